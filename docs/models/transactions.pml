/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions with one epoch per transaction (gateway/txn, gateway's coordinator, broker/txnmarker.go). See README.md for the abstraction and the bounds.
 *
 * One transactional id, partitions 0 and 1, one group. Coordinator 0 owns the shard at first, coordinator 1 may take over at any
 * time, 0 goes on from its memory. Partition 0 may change its leader once; the old leader still answers, but what it appends is gone.
 * Produce, EndTxn, TxnOffsetCommit and marker requests are delivered at any time after they were sent; EndTxn and markers repeatedly.
 * An append at the leader of the moment is one step with its commit. -DOFFS=1: it commits group offsets too; they are moved after the decision and
 * before the transaction is over, by Txns that compare its state.
 */
#ifndef EPOCHS
#define EPOCHS 2        /* transactions: epochs 1..EPOCHS */
#endif
#ifndef SENDS
#define SENDS 3         /* produce requests               */
#endif
#ifndef INITS
#define INITS 1
#endif
#define NE (EPOCHS+3)
#define BIT(x) (1<<(x))
bool S15_marker_is_the_decision = true;
bool S15_no_record_after_marker = true;
bool S15_offsets_follow_decision = true;
bool S15_acked_end_is_the_decision = true;
bool S15_commit_only_if_asked = true;
bool S16_old_epoch_has_no_effect = true;
bool LIVE_no_hanging_transaction = true;
bool LIVE_no_pending_offsets = true;

bit owner; byte tEp; byte tSt; byte tParts; byte dec[NE];               /* etcd: tSt 0 empty 1 ongoing 2 prepare */
byte mEp[2]; bit mOn[2]; byte mParts[2];                                /* coordinators' memory of an ongoing transaction */
byte know[2]; bit got[4];                                               /* decided epoch whose markers c sends; answers per partition */
byte open[2]; byte pep[2]; bit pco[2]; byte mk[2*NE]; bit inst; byte zopen;   /* partition state in the log; old leader's view */
byte vs[2]; byte ve[2];                                                 /* verification at the leader: 1 asked 2 yes */
byte cl; bit stopd; byte net[2*NE]; byte endm[NE]; bit offm[NE]; byte sent;   /* client */
byte po; byte ap; byte initRet; byte ninit;
byte i;

#define MK(p,e) mk[(p)*NE+(e)]
#define NET(p,e) net[(p)*NE+(e)]

/* client */
#define SENDP(p) d_step { (!stopd && cl<=EPOCHS && sent<SENDS && endm[cl]==0) -> printf("SENDP %d\n",p); sent++; NET(p,cl)++ }
#ifndef OFFS
#define OFFS 0          /* 1: the transaction also commits group offsets */
#endif
#define SENDOFF d_step { (OFFS && !stopd && cl<=EPOCHS && !offm[cl] && endm[cl]==0) -> printf("SENDOFF\n"); offm[cl]=1 }
#define SENDEND(dir) d_step { (!stopd && cl<=EPOCHS && endm[cl]==0) -> printf("SENDEND %d\n",dir); endm[cl]=dir }
#define NETLOST(p,e) d_step { (NET(p,e)>0) -> printf("NETLOST %d %d\n",p,e); NET(p,e)-- }

/* leader of the moment: an open transaction of this epoch goes on, else ask the coordinator first */
#define FENCEDAT(p,e) ((e)<pep[p])
#define APPEND(p,e) \
    if :: MK(p,e)>0 -> S15_no_record_after_marker=false; assert(S15_no_record_after_marker) :: else fi; \
    if :: (e)<initRet -> S16_old_epoch_has_no_effect=false; assert(S16_old_epoch_has_no_effect) :: else fi; \
    open[p]=e; pep[p]=e; NET(p,e)--
#define PRODUCE(p,e) d_step { (NET(p,e)>0) -> printf("PRODUCE %d %d\n",p,e); \
    if :: FENCEDAT(p,e) -> NET(p,e)-- \
       :: !FENCEDAT(p,e) && open[p]==e -> APPEND(p,e) \
       :: !FENCEDAT(p,e) && open[p]!=e && open[p]>0 -> NET(p,e)-- \
       :: !FENCEDAT(p,e) && open[p]==0 && vs[p]==0 -> vs[p]=1; ve[p]=e \
       :: else fi }
/* the coordinator's answer: adds the partition durably; already in it: by a Txn that compares coordEpoch and state */
#ifdef X_ADDMEM
#define ALREADY(c,p,e) (mOn[c] && mEp[c]==e && (mParts[c] & BIT(p)))
#else
#define ALREADY(c,p,e) (owner==c && tSt==1 && tEp==e && (tParts & BIT(p)))
#endif
#define VERIFY(p,c) d_step { (vs[p]==1) -> printf("VERIFY %d %d\n",p,c); \
    if :: ALREADY(c,p,ve[p]) -> vs[p]=2 \
       :: !ALREADY(c,p,ve[p]) && owner==c && tEp==ve[p] && tSt<=1 -> tSt=1; tParts=tParts|BIT(p); mOn[c]=1; mEp[c]=tEp; mParts[c]=tParts; vs[p]=2 \
       :: else -> vs[p]=0; if :: owner==c && NET(p,ve[p])>0 -> NET(p,ve[p])-- :: else fi; ve[p]=0 fi }
#define VERIFIED(p) d_step { (vs[p]==2) -> printf("VERIFIED %d\n",p); \
    if :: NET(p,ve[p])>0 && !FENCEDAT(p,ve[p]) && open[p]==0 -> i=ve[p]; APPEND(p,i); i=0 :: else fi; vs[p]=0; ve[p]=0 }
#define LEADER d_step { (inst==0) -> printf("LEADER\n"); inst=1; zopen=open[0]; vs[0]=0; ve[0]=0 }

/* coordinator */
#define DECIDE(c,dir) dec[tEp]=dir; \
    if :: dir==1 && endm[tEp]!=1 -> S15_commit_only_if_asked=false; assert(S15_commit_only_if_asked) :: else fi; \
    know[c]=tEp; got[(c)*2]=0; got[(c)*2+1]=0; tEp++; tSt=2; mOn[c]=0; mEp[c]=0; mParts[c]=0
#define ENDTXN(c,e) d_step { (endm[e]>0 && owner==c && cl==e && !stopd) -> printf("ENDTXN %d %d\n",c,e); \
    if :: tEp==e && tSt==1 -> DECIDE(c,endm[e]) \
       :: tEp==e && tSt==0 -> tEp++; dec[e]=endm[e]; cl=e+1 /* empty */ \
       :: tEp==e+1 && dec[e]==endm[e] -> cl=e+1 /* a retry: the same answer */ \
       :: else -> stopd=1 fi }
/* a delayed copy of a request whose answer the client has long had */
#define ENDLATE(c,e) d_step { (endm[e]>0 && owner==c && cl>e && LATECOND(e) && tSt==1) -> printf("ENDLATE %d %d\n",c,e); DECIDE(c,endm[e]) }
#ifdef X_ENDNOEPOCH
#define LATECOND(e) (tEp<NE-1)
#else
#define LATECOND(e) (tEp==e)
#endif
#define ACKCHECK(e) d_step { (cl>e && endm[e]>0 && dec[e]!=endm[e]) -> printf("ACKCHECK %d\n",e); S15_acked_end_is_the_decision=false; assert(S15_acked_end_is_the_decision) }
#define TIMEOUT(c) d_step { (owner==c && tSt==1) -> printf("TIMEOUT %d\n",c); DECIDE(c,2) }
#define INIT(c) d_step { (owner==c && ninit<INITS) -> printf("INIT %d\n",c); \
    if :: tSt==1 -> DECIDE(c,2); INITEARLY \
       :: tSt==0 -> ninit++; tEp++; initRet=tEp; stopd=1 \
       :: else fi }
#ifdef X_INITEARLY
#define INITEARLY ninit++; initRet=tEp; stopd=1
#else
#define INITEARLY
#endif
#define MOVE d_step { (owner==0) -> printf("MOVE\n"); owner=1; \
    if :: tSt==2 -> know[1]=tEp-1; got[2]=0; got[3]=0 :: tSt==1 -> mOn[1]=1; mEp[1]=tEp; mParts[1]=tParts :: else fi }

/* marker of coordinator c for its decided epoch, to the leader of p or, for 0, to the old one */
#ifdef X_NOBUMP
#define BUMP(p,e)
#else
#define BUMP(p,e) if :: pep[p]<(e)+1 -> pep[p]=(e)+1 :: else fi;
#endif
#ifdef X_MARKANY
#define MINE(p,e) (open[p]>0)
#else
#define MINE(p,e) (open[p]==(e))
#endif
#define MARKER(c,p) d_step { (know[c]>0 && !(got[(c)*2+p] && NOEFFECT(c,p))) -> printf("MARKER %d %d\n",c,p); \
    if :: c<pco[p] -> skip \
       :: c>=pco[p] && MINE(p,know[c]) -> pco[p]=c; \
            if :: dec[open[p]]!=dec[know[c]] || open[p]!=know[c] -> S15_marker_is_the_decision=false; assert(S15_marker_is_the_decision) :: else fi; \
            MK(p,know[c])=dec[know[c]]; open[p]=0; INVALIDATE(c,p) BUMP(p,know[c]) got[(c)*2+p]=1 \
       :: c>=pco[p] && !MINE(p,know[c]) -> UNKNOWN(c,p) got[(c)*2+p]=1 fi }
#define NOEFFECT(c,p) (c<pco[p] || (!MINE(p,know[c]) && vs[p]==0))
#ifdef X_NOGUARD
#define INVALIDATE(c,p)
#else
#define INVALIDATE(c,p) if :: ve[p]<=know[c] -> vs[p]=0; ve[p]=0 :: else fi;
#endif
#ifdef X_UNKNOWNOK
/* unknown => NONE, nothing is appended (guards are dropped all the same): here and at the old leader */
#define UNKNOWN(c,p) INVALIDATE(c,p)
#define ZOMBIEMARK(c) d_step { (inst && know[c]>0 && !got[(c)*2] && zopen!=know[c]) -> printf("ZOMBIEMARK %d\n",c); got[(c)*2]=1 }
#else
/* a marker is appended all the same */
#define UNKNOWN(c,p) pco[p]=c; MK(p,know[c])=dec[know[c]]; INVALIDATE(c,p) BUMP(p,know[c])
#define ZOMBIEMARK(c) d_step { (false) -> skip }
#endif
#ifdef X_COMPLETEEARLY
#define MOVED 1
#else
#define MOVED (po==0)
#endif
#define MOVEOFF(c) d_step { (OFFS && know[c]>0 && po>0 && owner==c && tSt==2 && tEp==know[c]+1) -> printf("MOVEOFF %d\n",c); \
    if :: po!=know[c] || dec[po]==0 -> S15_offsets_follow_decision=false; assert(S15_offsets_follow_decision) :: else fi; if :: dec[know[c]]==1 -> ap=po :: else fi; po=0 }
#define COMPLETE(c) d_step { (know[c]>0 && owner==c && tSt==2 && tEp==know[c]+1 && (got[(c)*2] || !(tParts & 1)) && (got[(c)*2+1] || !(tParts & 2)) && MOVED) -> printf("COMPLETE %d\n",c); \
    tSt=0; tParts=0 }
/* after that its markers may go on arriving until it forgets */
#define FORGET(c) d_step { (know[c]>0 && !(owner==c && tSt==2)) -> printf("FORGET %d\n",c); know[c]=0; got[(c)*2]=0; got[(c)*2+1]=0 }

/* offsets of the transaction: the group coordinator's Txn */
#ifdef X_OFFNOCMP
#define OFFOK(e) (true)
#else
#define OFFOK(e) (tEp==e && tSt==1 && (tParts & 4))
#endif
#define OFFADD(c,e) d_step { (offm[e] && owner==c && tEp==e && tSt<=1 && !(tParts & 4)) -> printf("OFFADD %d %d\n",c,e); tSt=1; tParts=tParts|4; mOn[c]=1; mEp[c]=tEp; mParts[c]=tParts }
#define OFFPUT(e) d_step { (offm[e] && po!=e && ap!=e && OFFOK(e)) -> printf("OFFPUT %d\n",e); offm[e]=0; po=e }
#define OFFLOST(e) d_step { (offm[e] && tEp>e) -> printf("OFFLOST %d\n",e); offm[e]=0 }

init {
  d_step { tEp=1; cl=1 }
  do
  :: SENDP(0) :: SENDP(1) :: SENDOFF :: SENDEND(1) :: SENDEND(2)
#define PE(A) :: A(0,1) :: A(1,1) :: A(0,2) :: A(1,2)
#define E1(A) :: A(1) :: A(2)
  PE(NETLOST) PE(PRODUCE) PE(ENDTXN) PE(ENDLATE) PE(OFFADD) E1(ACKCHECK) E1(OFFPUT) E1(OFFLOST)
  :: VERIFY(0,0) :: VERIFY(0,1) :: VERIFY(1,0) :: VERIFY(1,1) :: VERIFIED(0) :: VERIFIED(1) :: LEADER
  :: TIMEOUT(0) :: TIMEOUT(1) :: INIT(0) :: INIT(1) :: MOVE
  :: MARKER(0,0) :: MARKER(0,1) :: MARKER(1,0) :: MARKER(1,1) :: ZOMBIEMARK(0) :: ZOMBIEMARK(1)
  :: MOVEOFF(0) :: MOVEOFF(1) :: COMPLETE(0) :: COMPLETE(1) :: FORGET(0) :: FORGET(1)
  :: timeout -> 
     if :: open[0]>0 || open[1]>0 || tSt>0 -> LIVE_no_hanging_transaction=false; assert(LIVE_no_hanging_transaction) :: else fi;
     if :: po>0 -> LIVE_no_pending_offsets=false; assert(LIVE_no_pending_offsets) :: else fi; break
  od
}
