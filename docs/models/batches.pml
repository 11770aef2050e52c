/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of offset commits (metadata/together.go, gateway/coordinator_write.go). See README.md for the abstraction and the bounds.
 *
 * Two groups in one shard, one offsets key each with one partition, one member each that commits ever higher values, also before it has
 * the answer to the last one. Coordinator 0 owns the shard at first, coordinator 1 may take over at any time, 0 goes on from its memory. One batch of
 * a coordinator is on its way, and one whose members have had an error. The other writers of an offsets key are in pending.pml,
 * fetches in offsets.pml.
 */
#ifndef K
#define K 3             /* commits               */
#endif
#ifndef GENS
#define GENS 1          /* rebalances of group 1 and 0 */
#endif
bool S23_no_older_commit_wins = true;
bool S23_acked_is_applied = true;
bool S23_stale_generation_fenced = true;
bool S23_stale_coordinator_fenced = true;
bool LIVE_nothing_waits = true;

bit owner; byte v[2]; byte rev[2]; bit ggen[2]; byte gk[2];       /* etcd: value and revision of the offsets key; generation and revision of the group key */
bit on[2]; byte mr[4]; byte mk[4]; bit mgen[4]; byte w[4]; byte rt[4]; /* coordinators' memory; values that wait */
byte ts[4]; byte f[8]; byte fr[8]; byte fk[8];                                /* batches: slot 2c on its way (1 sent 2 applied 3 refused), slot 2c+1 given up */
byte nv; byte ng; byte acked[2]; byte top[2];
byte i; byte j;
#define M(c,g) ((c)*2+(g))
#define F(x,g) ((x)*2+(g))

#define COMMIT(c,g) d_step { (nv<K && on[c] && mgen[M(c,g)]==0) -> printf("COMMIT %d %d\n",c,g); nv++; w[M(c,g)]=nv }
/* what waits goes into the next Txn: any set of groups (a failed one alone, the others together) */
#define FREE(c,g) (w[M(c,g)]>0)
#define TAKE(c,g) F(2*(c),g)
#define PUTIN(c,g) f[TAKE(c,g)]=w[M(c,g)]; fr[TAKE(c,g)]=mr[M(c,g)]; fk[TAKE(c,g)]=mk[M(c,g)]; w[M(c,g)]=0
#define SEND0(c) d_step { (on[c] && ts[2*(c)]==0 && FREE(c,0)) -> printf("SEND0 %d\n",c); PUTIN(c,0); ts[2*(c)]=1 }
#define SEND1(c) d_step { (on[c] && ts[2*(c)]==0 && FREE(c,1)) -> printf("SEND1 %d\n",c); PUTIN(c,1); ts[2*(c)]=1 }
#define SEND01(c) d_step { (on[c] && ts[2*(c)]==0 && FREE(c,0) && FREE(c,1)) -> printf("SEND01 %d\n",c); PUTIN(c,0); PUTIN(c,1); ts[2*(c)]=1 }
#ifdef X_NOGKEY
#define GOK(x,g) (f[F(x,g)]==0 || fr[F(x,g)]==rev[g])
#else
#define GOK(x,g) (f[F(x,g)]==0 || (fr[F(x,g)]==rev[g] && fk[F(x,g)]==gk[g]))
#endif
#define PUT(x,g) if :: f[F(x,g)]>0 -> \
     if :: acked[g]>f[F(x,g)] -> S23_no_older_commit_wins=false; assert(S23_no_older_commit_wins) :: else fi; \
     if :: owner!=(x)/2 -> S23_stale_coordinator_fenced=false; assert(S23_stale_coordinator_fenced) :: else fi; \
     if :: ggen[g] -> S23_stale_generation_fenced=false; assert(S23_stale_generation_fenced) :: else fi; \
     v[g]=f[F(x,g)]; top[g]=f[F(x,g)]; rev[g]++ :: else fi
#define CLEAR(x) ts[x]=0; f[F(x,0)]=0; f[F(x,1)]=0; fr[F(x,0)]=0; fr[F(x,1)]=0; fk[F(x,0)]=0; fk[F(x,1)]=0
#ifdef X_NOCOORD
#define OWNOK(x) 1
#else
#define OWNOK(x) (owner==(x)/2)
#endif
#define LAND(x) d_step { (ts[x]==1) -> printf("LAND %d\n",x); \
    if :: OWNOK(x) && GOK(x,0) && GOK(x,1) -> PUT(x,0); PUT(x,1); if :: (x)&1 -> CLEAR(x) :: else -> ts[x]=2 fi \
       :: else -> if :: (x)&1 -> CLEAR(x) :: else -> ts[x]=3 fi fi }
#define LOAD(c) mr[M(c,0)]=rev[0]; mr[M(c,1)]=rev[1]; mk[M(c,0)]=gk[0]; mk[M(c,1)]=gk[1]; mgen[M(c,0)]=ggen[0]; mgen[M(c,1)]=ggen[1]; \
    if :: mgen[M(c,0)] -> w[M(c,0)]=0; rt[M(c,0)]=0 :: else fi; if :: mgen[M(c,1)] -> w[M(c,1)]=0; rt[M(c,1)]=0 :: else fi
#define ACK(x,g) if :: f[F(x,g)]>0 -> if :: top[g]<f[F(x,g)] -> S23_acked_is_applied=false; assert(S23_acked_is_applied) :: else fi; \
     if :: f[F(x,g)]>acked[g] -> acked[g]=f[F(x,g)] :: else fi; mr[M((x)/2,g)]=fr[F(x,g)]+1 :: else fi
/* the whole Txn was refused: what it held waits again; a newer value that waits already stands for it */
#ifdef X_RETRYLATE
#define AGAIN(c,g) if :: f[TAKE(c,g)]>0 -> rt[M(c,g)]=f[TAKE(c,g)] :: else fi
#define SENDRT(c,g) d_step { (on[c] && ts[2*(c)]==0 && rt[M(c,g)]>0) -> printf("SENDRT %d %d\n",c,g); f[TAKE(c,g)]=rt[M(c,g)]; fr[TAKE(c,g)]=mr[M(c,g)]; fk[TAKE(c,g)]=mk[M(c,g)]; rt[M(c,g)]=0; ts[2*(c)]=1 }
#else
#define AGAIN(c,g) if :: f[TAKE(c,g)]>0 && w[M(c,g)]==0 -> w[M(c,g)]=f[TAKE(c,g)] :: else fi
#define SENDRT(c,g) d_step { (false) -> skip }
#endif
#define LEARN(c) d_step { (ts[2*(c)]>=2) -> printf("LEARN %d\n",c); \
    if :: ts[2*(c)]==2 -> ACK(2*(c),0); ACK(2*(c),1) :: else -> AGAIN(c,0); AGAIN(c,1); LOAD(c) fi; CLEAR(2*(c)); STOP(c) }
/* one that is refused by coordEpoch has lost the shard */
#define STOP(c) if :: owner!=(c) && mr[M(c,0)]==rev[0] -> on[c]=0; w[M(c,0)]=0; w[M(c,1)]=0; rt[M(c,0)]=0; rt[M(c,1)]=0 :: else fi
#define REFRESH(c) d_step { (on[c] && owner==c && ts[2*(c)]==0 && (mk[M(c,0)]!=gk[0] || mk[M(c,1)]!=gk[1] || mr[M(c,0)]!=rev[0] || mr[M(c,1)]!=rev[1])) -> printf("REFRESH %d\n",c); LOAD(c) }
#define GIVEUP(c) d_step { (ts[2*(c)]==1 && ts[2*(c)+1]==0) -> printf("GIVEUP %d\n",c); j=2*(c); i=j+1; ts[i]=1; f[2*i]=f[2*j]; f[2*i+1]=f[2*j+1]; fr[2*i]=fr[2*j]; fr[2*i+1]=fr[2*j+1]; fk[2*i]=fk[2*j]; fk[2*i+1]=fk[2*j+1]; CLEAR(2*(c)); i=0; j=0 }
#define LOSE(c) d_step { (ts[2*(c)+1]==1) -> printf("LOSE %d\n",c); CLEAR(2*(c)+1) }
#define MOVE d_step { (owner==0) -> printf("MOVE\n"); owner=1; on[1]=1; LOAD(1) }
#define NOTICE d_step { (on[0] && owner==1 && ts[0]==0) -> printf("NOTICE\n"); on[0]=0; w[0]=0; w[1]=0; rt[0]=0; rt[1]=0 }
#define NEWGEN(g) d_step { (ng<GENS && ggen[g]==0 && on[owner] && mk[M(owner,g)]==gk[g] && ts[2*owner]==0) -> printf("NEWGEN %d\n",g); ng++; ggen[g]=1; gk[g]++; mk[M(owner,g)]=gk[g]; mgen[M(owner,g)]=1; w[M(owner,g)]=0; rt[M(owner,g)]=0 }
init {
  d_step { on[0]=1 }
  do
#define EC(A) :: A(0) :: A(1)
#define CG(A) :: A(0,0) :: A(0,1) :: A(1,0) :: A(1,1)
  CG(COMMIT) EC(SEND0) EC(SEND1) EC(SEND01) CG(SENDRT) :: LAND(0) :: LAND(1) :: LAND(2) :: LAND(3) EC(LEARN) EC(REFRESH) EC(GIVEUP) EC(LOSE)
  :: MOVE :: NOTICE :: NEWGEN(0) :: NEWGEN(1)
  :: timeout -> if :: ts[0]>0 || ts[2]>0 || (on[0] && (w[0]>0 || w[1]>0)) || (on[1] && (w[2]>0 || w[3]>0)) -> LIVE_nothing_waits=false; assert(LIVE_nothing_waits) :: else fi; break
  od
}
