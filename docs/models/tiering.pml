/* SPDX-License-Identifier: Apache-2.0 */
/* Seal, upload, commit, garbage collection, eviction, log start (tiering, metadata/head.go, metadata/garbage.go). See README.md for the abstraction
 * and the bounds.
 *
 * One partition, N committed offsets that both replicas hold at first. Broker 0 leads epoch 1, broker 1 may take over as epoch 2
 * at any time; broker 0 goes on as if nothing had happened. A Txn whose content is a function of what it compares is one
 * step at the moment it reaches etcd; its sender learns the outcome later or never. PUTs arrive at any time, also after GC.
 * A maximal run ends (no step is left): there the bucket must be clean and all must be sealed.
 * -DUNCLEAN: broker 1 may be elected uncleanly, with a log that ends anywhere at or above the tiered end, and has other records from there on. Such an
 * election does not change the head.
 */
#ifndef N
#define N 3             /* offsets                     */
#endif
#ifndef MAXA
#define MAXA 3          /* upload attempts in all      */
#endif
#ifndef CUTS
#define CUTS 1          /* logStart moves (retention, DeleteRecords) */
#endif
#ifndef DUP
#define DUP 1           /* second PUTs of one name     */
#endif
#ifndef CRASH
#define CRASH 1
#endif
bool S22_references_live = true;
bool S21_committed_readable = true;
bool M1_segments_tile = true;
bool S12_bucket_is_log = true;
bool LIVE_no_orphan_at_end = true;
bool LIVE_all_sealed_at_end = true;

/* attempts */
byte aBase[MAXA]; byte aEnd[MAXA]; byte aHead[MAXA]; bit aBy[MAXA];
byte put[MAXA];                 /* PUTs on their way                       */
bit obj[MAXA];                  /* object exists                           */
bit intent[MAXA]; byte gc[MAXA];/* gc: 1 record written, 2 deleted once    */
byte txn[MAXA];                 /* commit: 1 on its way, 2 applied, 3 failed */
byte na;
/* etcd */
bit lead; byte tieredEnd; byte logStart; byte headRev; byte seg[N]; /* seg[base] = attempt+1 */
/* brokers */
byte pc[2]; byte cur[2];        /* 0 idle, 1 intent written and PUT sent, 2 commit sent */
bit dead[2];                    /* fenced: knows it lost leadership        */
byte seenT[2]; byte seenS[2]; byte hot[2];
bit saw[MAXA]; bit unk[MAXA];   /* sweep: in the LIST; (mutant) unknown at the earlier read */
byte nd; byte nc; byte nk;
byte i; byte j; byte c; byte a;
#ifdef UNCLEAN
byte parts;                     /* 0: no unclean election; else the first offset + 1 from which the records are others */
#define RECORD(b,o) (((b)==1 && parts>0 && (o)+1>=parts) -> 2 : 1)
#define COMMITTED(o) RECORD(1,o)
#define SAME(o) if :: c==1 && RECORD(aBy[a],o)!=COMMITTED(o) -> S12_bucket_is_log=false; assert(S12_bucket_is_log) :: else fi;
#define ELECTUNCLEANLY(e) d_step { (lead==0 && (e)>=tieredEnd && (e)<N) -> printf("ELECTUNCLEANLY %d\n",e); lead=1; parts=(e)+1 }
#else
#define SAME(o)
#endif

#define COVER(o) c=0; j=0; do :: j<N -> if :: seg[j]>0 && j<=(o) && aEnd[seg[j]-1]>=(o) -> c++; a=seg[j]-1 :: else fi; j++ :: else -> break od
#define CHECK \
  j=0; do :: j<N -> if :: seg[j]>0 && obj[seg[j]-1]==0 -> S22_references_live=false; assert(S22_references_live) :: else fi; j++ :: else -> break od; \
  i=0; do :: i<N -> COVER(i); \
     if :: c>1 || (i>=logStart && i<tieredEnd && c!=1) || (i>=tieredEnd && c!=0) -> M1_segments_tile=false; assert(M1_segments_tile) :: else fi; \
     if :: i>=logStart && c==0 && (hot[0]>i || hot[1]>i) -> S21_committed_readable=false; assert(S21_committed_readable) :: else fi; \
     if :: i>=logStart && c==1 && obj[a]==0 && (hot[0]>i || hot[1]>i) -> S21_committed_readable=false; assert(S21_committed_readable) :: else fi; \
     SAME(i) i++ :: else -> break od; i=0; j=0; c=0; a=0

/* capture base and headRev, write the intent under the leader revision, send the PUT. Length 1 or 2 */
#define CHOOSE(b,len) d_step { (pc[b]==0 && !dead[b] && lead==b && na<MAXA && tieredEnd+len<=N && tieredEnd>=hot[b]) -> printf("CHOOSE %d %d\n",b,len); \
    aBase[na]=tieredEnd; aEnd[na]=tieredEnd+len-1; aHead[na]=headRev; aBy[na]=b; intent[na]=1; cur[b]=na; put[na]=1; na++; pc[b]=1 }
#define FENCE(b) d_step { (!dead[b] && lead!=b && b==0) -> printf("FENCE %d\n",b); dead[b]=1; pc[b]=0; cur[b]=0 }
#define PUTDUP(b) d_step { (pc[b]==1 && nd<DUP) -> printf("PUTDUP %d\n",b); nd++; put[cur[b]]++ }
#define PUTLAND(x) d_step { (put[x]>0) -> printf("PUTLAND %d\n",x); put[x]--; obj[x]=1 }
#define PUTLOST(x) d_step { (put[x]>0) -> printf("PUTLOST %d\n",x); put[x]-- }
#define GIVEUPPUT(b) d_step { (pc[b]==1 && put[cur[b]]==0 && !obj[cur[b]]) -> printf("GIVEUPPUT %d\n",b); pc[b]=0; cur[b]=0 }
/* HEAD has shown the object, the commit Txn goes out */
#define COMMITSEND(b) d_step { (pc[b]==1 && obj[cur[b]]) -> printf("COMMITSEND %d\n",b); txn[cur[b]]=1; pc[b]=2; EVICTEARLY(b) }
#ifdef X_EVICTEARLY
#define EVICTEARLY(b) hot[b]=aEnd[cur[b]]+1; CHECK
#else
#define EVICTEARLY(b) skip
#endif
#ifdef X_NOINTENT
#define INTOK(x) 1
#else
#define INTOK(x) intent[x]
#endif
#ifdef X_NOHEADREV
#define HREVOK(x) 1
#else
#define HREVOK(x) (aHead[x]==headRev)
#endif
#ifdef X_NOLEADER
#define LEADOK(x) 1
#else
#define LEADOK(x) (lead==aBy[x])
#endif
#define COMMITLAND(x) d_step { (txn[x]==1) -> printf("COMMITLAND %d\n",x); \
    if :: LEADOK(x) && INTOK(x) && HREVOK(x) -> txn[x]=2; seg[aBase[x]]=x+1; tieredEnd=aEnd[x]+1; headRev++; intent[x]=0 \
       :: else -> txn[x]=3 fi; CHECK }
#define COMMITDROP(x) d_step { (txn[x]==1) -> printf("COMMITDROP %d\n",x); txn[x]=3 }
/* the reply, or a read: mine is there or not; not there may still be on its way */
#define COMMITEND(b) d_step { (pc[b]==2) -> printf("COMMITEND %d\n",b); LOSTDEL(b) pc[b]=0; cur[b]=0; CHECK }
#ifdef X_LOSTDELETES
#define LOSTDEL(b) if :: txn[cur[b]]!=2 -> obj[cur[b]]=0 :: else fi;
#else
#define LOSTDEL(b)
#endif
#define CRASHB(b) d_step { (pc[b]>0 && nc<CRASH) -> printf("CRASHB %d\n",b); nc++; pc[b]=0; cur[b]=0 }
#define ELECT d_step { (lead==0) -> printf("ELECT\n"); lead=1 }

/* eviction from a head read earlier */
#define READHEAD(b) d_step { (seenT[b]!=tieredEnd || seenS[b]!=logStart) -> printf("READHEAD %d\n",b); seenT[b]=tieredEnd; seenS[b]=logStart }
#define EVICT(b) d_step { (hot[b]<seenT[b] || hot[b]<seenS[b]) -> printf("EVICT %d\n",b); \
    if :: hot[b]<seenT[b] -> hot[b]=seenT[b] :: else fi; if :: hot[b]<seenS[b] -> hot[b]=seenS[b] :: else fi; CHECK }

/* the log start moves, and what lies below it is dropped, by the leader of the moment */
#ifdef X_NOMAXEND
#define MAXEND
#else
#define MAXEND if :: tieredEnd<logStart -> tieredEnd=logStart :: else fi;
#endif
#define CUT(s) d_step { (s>logStart && nk<CUTS) -> printf("CUT %d\n",s); nk++; logStart=s; MAXEND headRev++; CHECK }
#define DEREF(x) d_step { (seg[x]>0 && aEnd[seg[x]-1]<logStart) -> printf("DEREF %d\n",x); gc[seg[x]-1]=1; seg[x]=0; headRev++; CHECK }

/* garbage collection: claim, delete, delete again, sweep */
#define CLAIM(x) d_step { (intent[x]) -> printf("CLAIM %d\n",x); intent[x]=0; gc[x]=1; CHECK }
#ifdef X_DELETEFIRST
#define DEL1(x) d_step { (intent[x] && obj[x]) -> printf("DEL1 %d\n",x); obj[x]=0; CHECK }
#else
#define DEL1(x) d_step { (gc[x]==1) -> printf("DEL1 %d\n",x); obj[x]=0; gc[x]=2; CHECK }
#endif
#define DEL2(x) d_step { (gc[x]==2) -> printf("DEL2 %d\n",x); obj[x]=0; gc[x]=0; CHECK }
#if N>=3
#define REF(x) ((seg[0]==x+1) || (seg[1]==x+1) || (seg[2]==x+1))
#else
#define REF(x) ((seg[0]==x+1) || (seg[1]==x+1))
#endif
#ifdef X_SWEEPFIRST
#define SWEEPREAD(x) d_step { (!unk[x] && !intent[x] && gc[x]==0 && !REF(x)) -> printf("SWEEPREAD %d\n",x); unk[x]=1 }
#define SWEEP(x) d_step { (unk[x] && obj[x]) -> printf("SWEEP %d\n",x); unk[x]=0; gc[x]=1; CHECK }
#elif defined(X_NOSWEEP)
#define SWEEPREAD(x) d_step { (false) -> skip }
#define SWEEP(x) d_step { (false) -> skip }
#else
#define SWEEPREAD(x) d_step { (!saw[x] && obj[x] && !REF(x)) -> printf("SWEEPREAD %d\n",x); saw[x]=1 }
#define SWEEP(x) d_step { (saw[x]) -> printf("SWEEP %d\n",x); saw[x]=0; if :: !intent[x] && gc[x]==0 && !REF(x) -> gc[x]=1 :: else fi; CHECK }
#endif

init {
  do
#define EB(A) :: A(0) :: A(1)
#if MAXA==2
#define EA(A) :: A(0) :: A(1)
#elif MAXA==3
#define EA(A) :: A(0) :: A(1) :: A(2)
#else
#define EA(A) :: A(0) :: A(1) :: A(2) :: A(3)
#endif
  :: CHOOSE(0,1) :: CHOOSE(0,2) :: CHOOSE(1,1) :: CHOOSE(1,2)
  EB(FENCE) EB(PUTDUP) EB(GIVEUPPUT) EB(COMMITSEND) EB(COMMITEND) EB(CRASHB) :: READHEAD(1) :: EVICT(1)
  EA(PUTLAND) EA(PUTLOST) EA(COMMITLAND) EA(COMMITDROP) EA(CLAIM) EA(DEL1) EA(DEL2) EA(SWEEPREAD) EA(SWEEP)
#ifdef UNCLEAN
  :: ELECTUNCLEANLY(0) :: ELECTUNCLEANLY(1)
#endif
  :: ELECT :: CUT(1) :: CUT(2) :: DEREF(0) :: DEREF(1)
#if N>=3
  :: CUT(3) :: DEREF(2)
#endif
  :: timeout ->
     i=0;
     do :: i<MAXA -> if :: obj[i] && !REF(i) -> LIVE_no_orphan_at_end=false; assert(LIVE_no_orphan_at_end) :: else fi;
           if :: intent[i] || gc[i]>0 -> LIVE_no_orphan_at_end=false; assert(LIVE_no_orphan_at_end) :: else fi; i++
        :: else -> break od;
     if :: na<MAXA && tieredEnd<N -> LIVE_all_sealed_at_end=false; assert(LIVE_all_sealed_at_end) :: else fi;
     break
  od
}
