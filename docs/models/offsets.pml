/* SPDX-License-Identifier: Apache-2.0 */
/* Committed offsets of a group (gateway's coordinator, metadata/offsets.go). See README.md for the abstraction and the bounds.
 *
 * One group, one offsets key that holds partitions 0 and 1. Coordinator 0 owns the shard at first; its lease may end at any time,
 * coordinator 1 loads and serves, 0 goes on as if nothing had happened. Members of generation 1 and 2 commit partition 0
 * through whoever claims to coordinate; a transaction coordinator moves an offset into partition 1 by its own Txn (which of two offsets of one partition
 * stays is in pending.pml).
 * Two Txns of a coordinator can be on their way when the first has an unknown outcome.
 */
#ifndef K
#define K 3             /* commits               */
#endif
bool S23_no_older_commit_wins = true;
bool S23_applied_once = true;
bool S23_fetch_linearizable = true;
bool S23_no_lost_update = true;
bool S23_stale_generation_fenced = true;
bool S23_stale_coordinator_fenced = true;
bool S23_acked_is_applied = true;

bit owner; byte gen; byte v0; byte v1; byte orev;                      /* etcd */
bit on[2]; byte mgen[2]; byte c0[2]; byte c1[2]; byte crev[2];          /* coordinators' memory */
/* Txn slots x = coordinator*2 + k: 0 free 1 on its way 2 applied 3 refused 4 on its way, sender has given up */
byte ts[4]; byte tv[4]; byte tg[4]; byte tr[4]; byte t1[4];
/* member m: commit in flight handled by slot ms-1; acked = value of its last acknowledged commit */
byte ms[2]; byte acked[2]; byte by[K+1]; bit done[K+1];
byte nv; byte ackRev; byte aRev[4];
/* transaction coordinator */
byte qs; byte q0; byte qr;
byte i;

#define MG(m) ((m)+1)
/* batch of one: validate the generation in memory, build the value from memory */
#define COMMIT(m,c,k) d_step { (ms[m]==0 && nv<K && on[c] && mgen[c]==MG(m) && ts[(c)*2+k]==0 && (k==0 || ts[(c)*2]!=0) && OTHER(c,k)) -> printf("COMMIT %d %d %d\n",m,c,k); \
    nv++; by[nv]=m; ts[(c)*2+k]=1; tv[(c)*2+k]=nv; tg[(c)*2+k]=MG(m); tr[(c)*2+k]=crev[c]; t1[(c)*2+k]=c1[c]; ms[m]=(c)*2+k+1 }
/* the object's mutex: no second Txn while the first is undecided */
#define OTHER(c,k) (ts[(c)*2+1-(k)]==0 || ts[(c)*2+1-(k)]==4)
#ifdef X_NOOREV
#define REVOK(x) 1
#else
#define REVOK(x) (tr[x]==orev)
#endif
#ifdef X_NOGEN
#define GENOK(x) 1
#else
#define GENOK(x) (tg[x]==gen)
#endif
#ifdef X_NOCOORD
#define OWNOK(x) 1
#else
#define OWNOK(x) (owner==(x)/2)
#endif
#define LAND(x) d_step { (ts[x]==1 || ts[x]==4) -> printf("LAND %d\n",x); \
    if :: OWNOK(x) && GENOK(x) && REVOK(x) -> \
        if :: done[tv[x]] -> S23_applied_once=false; assert(S23_applied_once) :: else fi; \
        if :: acked[by[tv[x]]]>tv[x] -> S23_no_older_commit_wins=false; assert(S23_no_older_commit_wins) :: else fi; \
        if :: v1!=t1[x] -> S23_no_lost_update=false; assert(S23_no_lost_update) :: else fi; \
        if :: tg[x]!=gen -> S23_stale_generation_fenced=false; assert(S23_stale_generation_fenced) :: else fi; \
        if :: owner!=x/2 -> S23_stale_coordinator_fenced=false; assert(S23_stale_coordinator_fenced) :: else fi; \
        done[tv[x]]=1; v0=tv[x]; v1=t1[x]; orev++; aRev[x]=orev; \
        if :: ts[x]==1 -> ts[x]=2 :: else -> FREE(x) fi \
       :: else -> if :: ts[x]==1 -> ts[x]=3 :: else -> FREE(x) fi \
    fi }
#define FREE(x) ts[x]=0; tv[x]=0; tg[x]=0; tr[x]=0; t1[x]=0; aRev[x]=0
#define ANSWER(m,x) d_step { (ms[m]==x+1 && ts[x]>=2 && ts[x]<=3) -> printf("ANSWER %d %d\n",m,x); \
    if :: ts[x]==2 -> if :: done[tv[x]]==0 -> S23_acked_is_applied=false; assert(S23_acked_is_applied) :: else fi; \
            acked[m]=tv[x]; if :: aRev[x]>ackRev -> ackRev=aRev[x] :: else fi; c0[x/2]=tv[x]; crev[x/2]=aRev[x] \
       :: else fi; ms[m]=0; FREE(x) }
/* refused or changed by another writer: read the key again */
#define REFRESH(c) d_step { (on[c] && crev[c]!=orev) -> printf("REFRESH %d\n",c); c0[c]=v0; c1[c]=v1; crev[c]=orev }
/* unknown outcome: the read shows that it is not there; the member gets a retriable error and may commit its next offset */
#define GIVEUP(m,x) d_step { (ms[m]==x+1 && ts[x]==1) -> printf("GIVEUP %d %d\n",m,x); ts[x]=4; ms[m]=0 }
#define LOSE(x) d_step { (ts[x]==4) -> printf("LOSE %d\n",x); FREE(x) }
#ifdef X_RESEND
/* the coordinator itself sends the batch again as a new Txn */
#define RESEND(m,x) d_step { (ms[m]==x+1 && ts[x]==1 && (x & 1)==0 && ts[x+1]==0) -> printf("RESEND %d %d\n",m,x); \
    ts[x]=4; ts[x+1]=1; tv[x+1]=tv[x]; tg[x+1]=tg[x]; tr[x+1]=crev[x/2]; t1[x+1]=c1[x/2]; ms[m]=x+2 }
#else
#define RESEND(m,x) d_step { (false) -> skip }
#endif
#define MOVE d_step { (owner==0 && mgen[1]==0) -> printf("MOVE\n"); owner=1; on[1]=1; mgen[1]=gen; c0[1]=v0; c1[1]=v1; crev[1]=orev }
#define NEWGEN(c) d_step { (gen==1 && owner==c && on[c]) -> printf("NEWGEN %d\n",c); gen=2; mgen[c]=2 }
#define NOTICE d_step { (on[0] && owner==1) -> printf("NOTICE\n"); on[0]=0 }
#ifdef X_FETCHMEM
#define FETCHREV(c) crev[c]
#else
#define FETCHREV(c) ((owner==(c)) -> orev : 255)
#endif
#define FETCH(c) d_step { (on[c] && FETCHREV(c)<ackRev) -> printf("FETCH %d\n",c); S23_fetch_linearizable=false; assert(S23_fetch_linearizable) }
/* the decision Txn of a transaction: read the key, put partition 1 */
#ifndef TXN
#define TXN 1
#endif
#define TREAD d_step { (TXN && qs==0) -> printf("TREAD\n"); qs=1; q0=v0; qr=orev }
#ifdef X_NOTREV
#define TOK 1
#else
#define TOK (qr==orev)
#endif
#define TLAND d_step { (qs==1) -> printf("TLAND\n"); \
    if :: TOK -> if :: v0!=q0 -> S23_no_lost_update=false; assert(S23_no_lost_update) :: else fi; v0=q0; v1=1; orev++; qs=2 :: else -> qs=0 fi; q0=0; qr=0 }

init {
  d_step { gen=1; on[0]=1; mgen[0]=1 }
  do
  :: COMMIT(0,0,0) :: COMMIT(0,0,1) :: COMMIT(0,1,0) :: COMMIT(0,1,1) :: COMMIT(1,0,0) :: COMMIT(1,0,1) :: COMMIT(1,1,0) :: COMMIT(1,1,1)
  :: LAND(0) :: LAND(1) :: LAND(2) :: LAND(3) :: LOSE(0) :: LOSE(1) :: LOSE(2) :: LOSE(3)
#define MX(A) :: A(0,0) :: A(0,1) :: A(0,2) :: A(0,3) :: A(1,0) :: A(1,1) :: A(1,2) :: A(1,3)
  MX(ANSWER) MX(GIVEUP) MX(RESEND)
  :: REFRESH(0) :: REFRESH(1) :: MOVE :: NEWGEN(0) :: NEWGEN(1) :: NOTICE :: FETCH(0) :: FETCH(1) :: TREAD :: TLAND
  od
}
