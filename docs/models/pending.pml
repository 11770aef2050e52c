/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets that transactions have pending for a group, and plain commits beside them (metadata/pending.go, gateway/coordinator_shard.go).
 * See README.md for the abstraction and the bounds.
 *
 * One group, one partition, two transactions. The last offset to come wins, not the transaction that ends last: whoever coordinates the group gives
 * each offset a stamp, a time that never goes back; a plain commit takes the newest there is, what a transaction writes a newer one. A transaction that ended moves
 * its offset, by a Txn that compares both keys, over what is committed if it is newer. Coordinator 0 has the shard at first; coordinator 1, whose
 * clock is behind, may take it over at any time and loads in two reads. Each commit is one step with its landing: late Txns are in offsets.pml.
 */
#ifndef K
#define K 3             /* plain commits               */
#endif
#ifndef REPEND
#define REPEND 1        /* offsets a transaction sends again */
#endif
bool S23_last_to_come_wins = true;
bool S23_no_lost_update = true;
bool LIVE_no_pending_offsets = true;

#define CLOCK(c) ((c)==0 -> 5 : 0)
#define MAX(a,b) ((a)>(b) -> (a) : (b))

bit owner; byte v; byte vs; byte orev;                    /* etcd: the committed offset, its stamp, the key's revision */
byte pv[2]; byte ps[2]; byte st[2];                       /* pending of each transaction, its stamp; 0 open 1 to commit 2 to abort 3 over */
byte newest[2]; byte loading;                             /* coordinators' memory; loading: 1 owns, 2 has read one, 3 serves */
byte rd[2]; byte rs[2]; byte rrev[2]; byte rv[2];         /* what the mover of a transaction has read: 1 read; stamp and revision of the committed offset, pending then */
byte n; byte nr; byte va; byte pa[2];                     /* history: order in which offsets came */
byte i;

#define SERVES(c) (owner==(c) && ((c)==0 || loading==3))
#ifdef X_OWNCLOCK
#define STAMP(c,txn) i=CLOCK(c)
#else
#define STAMP(c,txn) i=MAX(CLOCK(c), newest[c]+(txn))
#endif
#define WROTE(c) newest[c]=MAX(newest[c],i)

#define PLAIN(c) d_step { (SERVES(c) && n<K+2+REPEND && nr<K) -> printf("PLAIN %d\n",c); nr++; n++; STAMP(c,0); v=n; vs=i; va=n; orev++; WROTE(c); i=0 }
/* compares the transaction: open, and the shard */
#define PEND(c,t) d_step { (SERVES(c) && st[t]==0 && (pv[t]==0 || n<K+REPEND) && n<K+2+REPEND) -> printf("PEND %d %d\n",c,t); \
    n++; STAMP(c,1); pv[t]=n; ps[t]=i; pa[t]=n; WROTE(c); i=0 }
#define DECIDE(t,how) d_step { (st[t]==0) -> printf("DECIDE %d %d\n",t,how); st[t]=how }
#define READ(t) d_step { (st[t]>0 && st[t]<3 && pv[t]>0 && rd[t]==0) -> printf("READ %d\n",t); rd[t]=1; rs[t]=vs; rrev[t]=orev; rv[t]=pv[t] }
#ifdef X_NOREV
#define REVOK(t) 1
#else
#define REVOK(t) (rrev[t]==orev)
#endif
#ifdef X_LASTENDED
#define NEWER(t) 1
#else
#define NEWER(t) (ps[t]>rs[t])
#endif
#define MOVE(t) d_step { (rd[t]==1) -> printf("MOVE %d\n",t); \
    if :: REVOK(t) && rv[t]==pv[t] && pv[t]>0 -> \
        if :: st[t]==1 -> \
            if :: NEWER(t) && pa[t]<va && rrev[t]==orev -> S23_last_to_come_wins=false; assert(S23_last_to_come_wins) :: else fi; \
            if :: !NEWER(t) && pa[t]>va -> S23_last_to_come_wins=false; assert(S23_last_to_come_wins) :: else fi; \
            if :: NEWER(t) && rrev[t]!=orev -> S23_no_lost_update=false; assert(S23_no_lost_update) :: else fi; \
            if :: NEWER(t) -> v=pv[t]; vs=ps[t]; va=pa[t]; orev++ :: else fi \
           :: else fi; pv[t]=0; ps[t]=0; pa[t]=0; st[t]=3 \
       :: else fi; rd[t]=0; rs[t]=0; rrev[t]=0; rv[t]=0 }
#define OVER(t) d_step { (st[t]>0 && st[t]<3 && pv[t]==0) -> printf("OVER %d\n",t); st[t]=3 }

/* the shard goes to coordinator 1, which reads what is pending and then what is committed: nothing new is pending before it serves */
#define PENDINGS newest[1]=MAX(newest[1], MAX(ps[0], ps[1]))
#define OFFSETS newest[1]=MAX(newest[1], vs)
#ifdef X_OFFSETSFIRST
#define LOAD1 OFFSETS
#define LOAD2 PENDINGS
#elif defined(X_NOPENDING)
#define LOAD1 skip
#define LOAD2 OFFSETS
#else
#define LOAD1 PENDINGS
#define LOAD2 OFFSETS
#endif
#define TAKE d_step { (owner==0) -> printf("TAKE\n"); owner=1; loading=1 }
#define LOADA d_step { (loading==1) -> printf("LOADA\n"); loading=2; LOAD1 }
#define LOADB d_step { (loading==2) -> printf("LOADB\n"); loading=3; LOAD2 }

init {
  d_step { newest[0]=5 }
  do
  :: PLAIN(0) :: PLAIN(1) :: PEND(0,0) :: PEND(0,1) :: PEND(1,0) :: PEND(1,1)
  :: DECIDE(0,1) :: DECIDE(0,2) :: DECIDE(1,1) :: DECIDE(1,2) :: READ(0) :: READ(1) :: MOVE(0) :: MOVE(1) :: OVER(0) :: OVER(1)
  :: TAKE :: LOADA :: LOADB
  :: timeout -> if :: pv[0]>0 || pv[1]>0 || st[0]<3 || st[1]<3 -> LIVE_no_pending_offsets=false; assert(LIVE_no_pending_offsets) :: else fi; break
  od
}
