/* SPDX-License-Identifier: Apache-2.0 */
/* Replication and leadership (broker, broker/isr, metadata/takeover.go, isr.go, unclean.go). See README.md for the abstraction and the bounds.
 *
 * Three brokers, one partition, etcd as registers changed by compare-and-swap Txns. A record is the number of the epoch
 * that wrote it. One process with guarded atomic steps; a paused broker is one that takes no step. A crash restarts at once
 * (a dead broker is a paused one whose lease ends). An incarnation that ended never comes back, so Txns that
 * compare it are doomed at that moment; the same for a leader revision. Every rule that -D can take away is named X_...
 * -DUNCLEAN: one unclean election, read and Txn apart. What the one elected lacks is given up: it is not committed any more from then on.
 * -DASSIGN: broker 2 may be taken away from the assignment and assigned again, once each. It knows late of both, gives up what it holds when nobody
 * counts on it as it knows, and follows again.
 */
#ifndef NO
#define NO 2            /* offsets                              */
#endif
#ifndef MAXE
#define MAXE 3          /* leader epochs                        */
#endif
#ifndef CRASH
#define CRASH 1         /* crashes: the unsynced suffix is lost */
#endif
#ifndef WIPE
#define WIPE 0          /* of these: the whole disk is lost     */
#endif
#ifndef EXPIRE
#define EXPIRE 1        /* leases that end under a live broker  */
#endif
#ifndef ISRTX
#define ISRTX 2         /* ISR Txns sent                        */
#endif
#ifndef XFER
#define XFER 0          /* graceful transfers                   */
#endif
#ifdef UNCLEAN
#define ALIVE(x,m) (((m) & BIT(x)) && reg[x] && SAME(x))
#define SOMEBODY (ALIVE(0,eIsr|eElr) || ALIVE(1,eIsr|eElr) || ALIVE(2,eIsr|eElr))
/* its lease is over, so it acknowledges and answers nothing more: the clock is assumed good, as for reads */
#define DEPOSED(b) (ep[b]<eU)
#else
#define DEPOSED(b) 0
#endif
#ifdef TXN              /* records are the data (8) and the marker (16) of transactions, one open at a time */
#define EPOF(x) ((x)&7)
#define DATA 8
#else
#define EPOF(x) (x)
#define DATA 0
#endif
#define MIN 2
#ifdef LOWER            /* min.insync.replicas is lowered to 1 at some time, each broker sees it later */
#define MINV(b) cMin[b]
#define ELRBELOW(b) tS[b]
#define SETELRBELOW(b,f) tS[b]=(CNT((cIsr[b] & ~BIT(f)))<MINV(b));
#define KEEPELR(b) tE[b]=eElr;
#define LEARNELR(b) cElr[b]=tE[b];
#define BEGINELR(b) cElr[b]=eElr;
#ifdef X_ELRIGNORED
#define ELREMPTY(b) 1
#define MAYSEE(b) (role[b]==0 || cElr[b]==0)
#else
#define ELREMPTY(b) (cElr[b]==0)
#define MAYSEE(b) 1
#endif
#else
#define MINV(b) MIN
#define ELRBELOW(b) (CNT(eIsr)<MIN)
#define SETELRBELOW(b,f)
#define KEEPELR(b)
#define LEARNELR(b)
#define BEGINELR(b)
#define ELREMPTY(b) 1
#endif
#define BIT(x) (1<<(x))
#define CNT(m) (((m)&1)+(((m)>>1)&1)+(((m)>>2)&1))
#define L(b,o) lg[(b)*NO+(o)]
#define FE(b,f) fend[(b)*3+(f)]
#define FK(b,f) fknown[(b)*3+(f)]   /* 0: no fetch seen in this epoch, 1: seen, 2: seen, but from an ended incarnation */
#define FS(b,f) fst[(b)*3+(f)]
#define CS(b,f) cSt[(b)*3+(f)]      /* store id of the ISR entry, as the leader knows it */

bool S1_leader_has_all_committed = true;
bool S2_one_value_per_offset = true;
bool S6_latest_monotonic = true;
bool S7_delivered_is_committed = true;
bool S27_position_within_log = true;
#ifdef TXN
bool S6_lso_monotonic = true;
bool S14_no_undecided_below_lso = true;
#endif
#ifdef UNCLEAN
bool S1_given_up_only_if_nobody_is_left = true;
bool V1_follower_may_truncate = true;
#endif
#ifdef ASSIGN
bool V1_who_has_all_may_lead = true;
#endif
bool S9_fenced_leader_never_acks = true;
bool MINISR_durable_copies = true;
bool LOG_hw_within_log = true;

byte lg[3*NO]; byte mem[3]; byte syn[3]; byte hw[3]; byte ep[3];
byte role[3];                   /* 0 follower, 1 leader, 2 leader that has sent a transfer Txn */
bit st[3];                      /* store id */
byte cIsr[3]; byte est[3]; byte fend[9]; byte fknown[9]; bit fst[9]; bit cSt[9];   /* leader's memory */
byte tK[3]; byte tF[3]; bit tS[3]; byte tSt[3]; bit wt[3]; bit old[3];              /* Txn on its way: 1 sent, 2 applied, 3 refused. old: isrRev in memory is not etcd's any more */
byte eL; byte eE; bit eLive; bit reg[3]; byte eIsr; byte eElr; bit eSt[3]; bit eGone[3];   /* etcd. eLive: the leader key's incarnation is registered; eGone: that of the ISR entry is not */
byte lo[MAXE+1];
#ifdef LOWER
byte eMin; byte cMin[3]; byte cElr[3]; byte tE[3];
#endif
#ifdef UNCLEAN
byte eU; byte unclean[MAXE+1];   /* epoch of the unclean election, 0 for none; as the leader key of each epoch says it */
byte uB; byte uLeader; byte uIsr; byte uElr; byte uAlive; byte nU; bit uDue;   /* an election under way: whom, and what it has read */
#endif
#ifdef ASSIGN
byte aRev; byte kRev; byte sa[3]; byte tA[3]; bit away;   /* revisions of the assignment, of 1 broker 2 is not assigned: in etcd; as broker 2 knows; as its last fetch told each leader; that a Txn compares. away: it has given up its log */
#endif
byte com[NO]; byte seen; byte seenLso; bit wiped;                                      /* history */
byte nC; byte nX; byte nI; byte nT;
byte i; byte n; byte l; byte e; byte k; bit okk;

#define TMP i=0; n=0; l=0; e=0; k=0; okk=0
#define CLRT(b) tK[b]=0; tF[b]=0; tS[b]=0; tSt[b]=0
#define RESETL(b) cIsr[b]=0; est[b]=0; FE(b,0)=0; FE(b,1)=0; FE(b,2)=0; FK(b,0)=0; FK(b,1)=0; FK(b,2)=0; \
  FS(b,0)=0; FS(b,1)=0; FS(b,2)=0; old[b]=0; CS(b,0)=0; CS(b,1)=0; CS(b,2)=0; wt[b]=0; if :: tSt[b]>=2 -> CLRT(b) :: else fi
#define DOOM(b) if :: tSt[b]==1 && wt[b] -> tSt[b]=3 :: tSt[b]==1 && !wt[b] -> CLRT(b) :: else fi
#ifdef UNCLEAN
#ifdef X_MARKLOST
#define CARRYON unclean[eE+1]=0;
#else
#define CARRYON unclean[eE+1]=eU;
#endif
#else
#define CARRYON
#endif
#define NEWEPOCH(b) CARRYON eL=b; eE++; eLive=1; lo[eE]=b; DOOM(0); DOOM(1); DOOM(2)
#ifdef X_EXPANDINC
#define DOOMINC(b,f) if :: tSt[b]==1 && tF[b]==f && tK[b]==3 -> DOOM(b) :: else fi
#define STALE(b,f) skip
#else
#define DOOMINC(b,f) if :: tSt[b]==1 && tF[b]==f && tK[b]>=2 -> DOOM(b) :: else fi
#define STALE(b,f) if :: FK(b,f)==1 -> FK(b,f)=2 :: else fi
#endif
#define ENDINC(b) DOOMINC(0,b); DOOMINC(1,b); DOOMINC(2,b); STALE(0,b); STALE(1,b); STALE(2,b); if :: eL==b -> eLive=0 :: else fi; if :: eIsr & BIT(b) -> eGone[b]=1 :: else fi

/* members whose ends HW counts */
#ifdef X_MEMEND
#define OWN(b) mem[b]
#elif defined(X_OWNAPPENDED)
#define OWN(b) mem[b]
#elif defined(X_NOOWN)
#define OWN(b) 99
#else
#define OWN(b) syn[b]
#endif
#ifdef X_SHRINKEARLY
#define CNTSET(b) ((wt[b] && tK[b]==1) -> (cIsr[b] & ~BIT(tF[b])) : ((wt[b] && tK[b]==2) -> (cIsr[b] | BIT(tF[b])) : cIsr[b]))
#else
#define CNTSET(b) ((wt[b] && tK[b]==2) -> (cIsr[b] | BIT(tF[b])) : cIsr[b])
#endif
#define E1(b,f) ((CNTSET(b) & BIT(f)) -> ((f)==(b) -> OWN(b) : FE(b,f)) : 99)
#define MIN2(x,y) ((x)<(y) -> (x) : (y))
#ifdef X_HWBELOWMIN
#define HWOK(b) 1
#else
#define HWOK(b) (CNT(cIsr[b])>=MINV(b) && ELREMPTY(b))
#endif
/* HW moves, and with it acks=all completes, as soon as the leader can compute it */
#define COPY(x,b) if :: syn[x]>i && L(x,i)==L(b,i) -> k++ :: else fi
#define FENCED(x,b) if :: role[x]>0 && ep[x]>ep[b] && est[x]<=i -> S9_fenced_leader_never_acks=false; assert(S9_fenced_leader_never_acks) :: else fi
#define ADVANCE(b) n=0; \
  if :: role[b]>0 && HWOK(b) -> n=MIN2(E1(b,0),MIN2(E1(b,1),E1(b,2))) :: else fi; \
  if :: n<99 && n>hw[b] -> \
    if :: n>mem[b] -> LOG_hw_within_log=false; assert(LOG_hw_within_log) :: else fi; \
    i=hw[b]; do :: i<n -> \
        if :: DEPOSED(b) -> skip :: com[i]==0 && !DEPOSED(b) -> com[i]=L(b,i) :: !DEPOSED(b) && com[i]!=0 && com[i]!=L(b,i) -> S2_one_value_per_offset=false; assert(S2_one_value_per_offset) :: else fi; \
        if :: EPOF(L(b,i))==ep[b] && !DEPOSED(b) -> \
            FENCED(0,b); FENCED(1,b); FENCED(2,b); \
            k=wiped; COPY(0,b); COPY(1,b); COPY(2,b); if :: k<MINV(b) -> MINISR_durable_copies=false; assert(MINISR_durable_copies) :: else fi \
           :: else fi; \
        i++ :: else -> break od; \
    hw[b]=n \
  :: else fi; READS
/* every leader is read in every state: ListOffsets(latest) needs the epoch barrier and a good lease (clock assumption); a Fetch gets what lies below
 * the HW that the leader knows, also before the barrier, and its position, which may come from an earlier leader, is within the log */
#ifdef X_BARRIER
#define BARR(b) 1
#else
#define BARR(b) (hw[b]>=est[b])
#endif
#ifdef X_XFERREAD
#define RROLE(b) (role[b]>0)
#else
#define RROLE(b) (role[b]==1)
#endif
#ifdef X_NOCLOCK
#define LEASEOK(b) 1
#else
#define LEASEOK(b) reg[b]
#endif
#ifdef NOREADS
#define READS skip
#else
#define MAYANSWER(b) (RROLE(b) && BARR(b) && LEASEOK(b))
#define READ1(b) if :: MAYANSWER(b) && hw[b]>seen -> seen=hw[b] :: else fi
#define READ2(b) if :: MAYANSWER(b) && hw[b]<seen -> S6_latest_monotonic=false; assert(S6_latest_monotonic) :: else fi
#define READ3(b) if :: role[b]>0 && !DEPOSED(b) -> i=0; do :: i<NO -> \
      if :: i<hw[b] && (com[i]==0 || com[i]!=L(b,i)) -> S7_delivered_is_committed=false; assert(S7_delivered_is_committed) :: else fi; \
      if :: RROLE(b) && LEASEOK(b) && com[i]!=0 && mem[b]<=i -> S27_position_within_log=false; assert(S27_position_within_log) :: else fi; i++ :: else -> break od :: else fi
#ifdef TXN
#ifdef X_LSOAPPENDED
#define MARKEND(b) mem[b]
#else
#define MARKEND(b) hw[b]
#endif
/* k = LSO: first offset of the transaction whose marker is not below HW, at most HW */
#define LSO(b) k=hw[b]; i=0; do :: i<MARKEND(b) -> if :: (L(b,i)&8) && k>i && (i==0 || (L(b,i-1)&16)) -> k=i :: (L(b,i)&16) -> k=hw[b] :: else fi; i++ :: else -> break od
#define READ4(b) if :: MAYANSWER(b) -> LSO(b); if :: k>seenLso -> seenLso=k :: else fi :: else fi
#define READ5(b) if :: role[b]>0 -> LSO(b); \
      if :: MAYANSWER(b) && k<seenLso -> S6_lso_monotonic=false; assert(S6_lso_monotonic) :: else fi; \
      i=0; do :: i<k -> if :: i+1==k && (com[i]&8) -> S14_no_undecided_below_lso=false; assert(S14_no_undecided_below_lso) :: else fi; i++ :: else -> break od :: else fi
#define READTXN READ4(0); READ4(1); READ4(2); READ5(0); READ5(1); READ5(2)
#else
#define READTXN skip
#endif
#define READS READ1(0); READ1(1); READ1(2); READ2(0); READ2(1); READ2(2); READ3(0); READ3(1); READ3(2); READTXN
#endif

/* --- data path */
#define PRODUCE(b) d_step { (role[b]==1 && mem[b]<NO && CNT(cIsr[b])>=MINV(b)) -> printf("PRODUCE %d\n",b); L(b,mem[b])=ep[b]+DATA; mem[b]++; ADVANCE(b); TMP }
#ifdef TXN
#define MARK(b) d_step { (role[b]==1 && mem[b]<NO && mem[b]>0 && (L(b,mem[b]-1)&8)) -> printf("MARK %d\n",b); L(b,mem[b])=ep[b]+16; mem[b]++; ADVANCE(b); TMP }
#else
#define MARK(b) d_step { (false) -> skip }
#endif
#define SYNC(b) d_step { (syn[b]<mem[b]) -> printf("SYNC %d\n",b); syn[b]=mem[b]; ADVANCE(b); TMP }
/* fetch: the request carries the durable end, the reply all that the leader has appended, synced or not. A follower syncs before its next fetch */
#if defined(X_MEMEND) || defined(SPLIT)
#define FSYNC(f)
#else
#define FSYNC(f) syn[f]=mem[f];
#endif
#ifdef X_MEMEND
#define CANFETCH(f) 1
#else
#define CANFETCH(f) (mem[f]==syn[f])
#endif
#ifdef X_ACKDIVERGED
#define ACKBEFORE(f) FE(l,f)=mem[f]; FK(l,f)=1; FS(l,f)=st[f];
#else
#define ACKBEFORE(f)
#endif
#ifdef X_HWTRUNC
#define TRUNCRULE 0
#define TOHW(b) i=hw[b]; do :: i<mem[b] -> L(b,i)=0; i++ :: else -> break od; mem[b]=hw[b]; syn[b]=hw[b]; i=0;
#define HWLOST(b) skip
#else
#define TRUNCRULE 1
#define TOHW(b)
#define HWLOST(b) hw[b]=0
#endif
/* the end counts only if it comes from the store that the ISR entry names */
#ifdef X_STORE
#define MEMBER(b,f) 1
#else
#define MEMBER(b,f) ((cIsr[b] & BIT(f)) -> CS(b,f)==st[f] : ((wt[b] && tK[b]==2 && tF[b]==f) -> tS[b]==st[f] : 1))
#endif
/* below its own high watermark a replica truncates only if all that it has is older than the unclean election that its leader's key names */
#ifdef UNCLEAN
#define MAYCUT(f) if :: n<hw[f] && EPOF(L(f,mem[f]-1))>=unclean[ep[f]] -> V1_follower_may_truncate=false; assert(V1_follower_may_truncate) :: else fi;
#else
#define MAYCUT(f)
#endif
#ifdef ASSIGN
#define ASSIGNED (aRev!=1)
#define HAS(f) ((f)!=2 || !away)
#define SAYS(f) if :: f==2 && kRev!=1 -> sa[l]=kRev :: else fi;
#define GONEAWAY(f) ((f)==2 && !ASSIGNED)
#ifdef X_OLDASSIGNMENT
#define SETASSIGNED(b,f) if :: f==2 -> tA[b]=aRev :: else fi;
#else
#define SETASSIGNED(b,f) if :: f==2 -> tA[b]=sa[b] :: else fi;
#endif
#ifdef X_NOTOPIC
#define ASSIGNEDSTILL(b) 1
#else
#define ASSIGNEDSTILL(b) (tK[b]!=2 || tF[b]!=2 || tA[b]==aRev)
#endif
#ifdef X_ASSIGNEDONLY
#define MAYSTAND(b) ((b)!=2 || ASSIGNED)
#else
#define MAYSTAND(b) 1
#endif
#else
#define HAS(f) 1
#define SAYS(f)
#define GONEAWAY(f) 0
#define SETASSIGNED(b,f)
#define ASSIGNEDSTILL(b) 1
#define MAYSTAND(b) 1
#endif
#define FETCH(f) d_step { (role[f]==0 && ep[f]>0 && lo[ep[f]]!=f && role[lo[ep[f]]]>0 && ep[lo[ep[f]]]==ep[f] && CANFETCH(f) && HAS(f)) -> printf("FETCH %d\n",f); \
    l=lo[ep[f]]; okk=1; \
    if :: mem[f]>0 -> k=EPOF(L(f,mem[f]-1)); n=0; e=0; i=0; \
        do :: i<mem[l] && EPOF(L(l,i))<=k -> n=i+1; e=EPOF(L(l,i)); i++ :: else -> break od; \
        if :: (e!=k || n<mem[f]) -> okk=0 :: else fi \
       :: else fi; \
    if :: okk==0 && TRUNCRULE -> ACKBEFORE(f) \
        i=0; do :: i<mem[f] && EPOF(L(f,i))<=e -> i++ :: else -> break od;  /* own end of that epoch */ \
        if :: i<n -> n=i :: else fi; MAYCUT(f) \
        i=n; do :: i<mem[f] -> L(f,i)=0; i++ :: else -> break od; \
        mem[f]=n; syn[f]=n; if :: hw[f]>n -> hw[f]=n :: else fi \
       :: else -> if :: MEMBER(l,f) -> FE(l,f)=mem[f]; FK(l,f)=1; FS(l,f)=st[f]; SAYS(f) skip :: else fi; ADVANCE(l); \
        i=mem[f]; do :: i<mem[l] -> L(f,i)=L(l,i); i++ :: else -> break od; \
        if :: mem[l]>mem[f] -> mem[f]=mem[l] :: else fi; FSYNC(f) \
        hw[f]=hw[l]; if :: hw[f]>mem[f] -> hw[f]=mem[f] :: else fi \
    fi; TMP }

/* --- ISR and transfer: one Txn of this leader on its way */
#define SEND(b,f,kind) tK[b]=kind; tF[b]=f; tSt[b]=1; wt[b]=1
#define SHRINK(b,f) d_step { (role[b]==1 && b!=f && (nI<ISRTX || eGone[f] || GONEAWAY(f)) && tK[b]==0 && (cIsr[b] & BIT(f))) -> printf("SHRINK %d %d\n",b,f); \
    if :: !eGone[f] && !GONEAWAY(f) -> nI++ :: else fi; SEND(b,f,1); SETELRBELOW(b,f) if :: ep[b]!=eE || old[b] -> tSt[b]=3 :: else fi; ADVANCE(b); TMP }
#define EXPAND(b,f) d_step { (role[b]==1 && b!=f && nI<ISRTX && tK[b]==0 && !(cIsr[b] & BIT(f)) \
        && FK(b,f)>0 && FE(b,f)>=hw[b] && FE(b,f)>=est[b]) -> printf("EXPAND %d %d\n",b,f); \
    nI++; SEND(b,f,2); tS[b]=FS(b,f); SETASSIGNED(b,f) if :: ep[b]!=eE || FK(b,f)==2 || old[b] -> tSt[b]=3 :: else fi; TMP }
/* a member that is back with its store: a new incarnation in its entry */
#define RESTAMP(b,f) d_step { (role[b]==1 && b!=f && tK[b]==0 && (cIsr[b] & BIT(f)) && eGone[f] && FK(b,f)==1 && FE(b,f)>=hw[b] && CS(b,f)==FS(b,f)) -> printf("RESTAMP %d %d\n",b,f); \
    SEND(b,f,4); tS[b]=FS(b,f); if :: ep[b]!=eE || old[b] -> tSt[b]=3 :: else fi; TMP }
#define XFERSEND(b,f) d_step { (role[b]==1 && b!=f && nT<XFER && eE<MAXE && tK[b]==0 && (cIsr[b] & BIT(f)) \
        && FK(b,f)>0 && FE(b,f)==mem[b] && syn[b]==mem[b]) -> printf("XFERSEND %d %d\n",b,f); \
    nT++; role[b]=2; SEND(b,f,3); tS[b]=FS(b,f); if :: ep[b]!=eE || FK(b,f)==2 || old[b] -> tSt[b]=3 :: else fi; TMP }
#ifdef X_ELRKEEP
#define ELRCLEAR(b) eElr=eElr & ~BIT(tF[b])
#else
#define ELRCLEAR(b) if :: CNT(eIsr)>=MINV(b) -> eElr=0 :: else -> eElr=eElr & ~BIT(tF[b]) fi
#endif
/* it arrives at etcd, perhaps long after the sender lost interest (doomed ones never get here) */
#define APPLY(b) d_step { (tSt[b]==1) -> printf("APPLY %d\n",b); tSt[b]=2; \
    if :: !ASSIGNEDSTILL(b) -> tSt[b]=3 \
       :: tK[b]==1 -> eIsr=eIsr & ~BIT(tF[b]); eGone[tF[b]]=0; if :: ELRBELOW(b) -> eElr=eElr | BIT(tF[b]) :: else -> eElr=0 fi \
       :: tK[b]==2 && ASSIGNEDSTILL(b) -> eIsr=eIsr | BIT(tF[b]); eSt[tF[b]]=tS[b]; eGone[tF[b]]=0; ELRCLEAR(b) \
       :: tK[b]==4 -> eGone[tF[b]]=0 \
       :: tK[b]==5 -> eElr=0 \
       :: tK[b]==3 && eE<MAXE -> NEWEPOCH(tF[b]) \
       :: else -> tSt[b]=3 \
    fi; KEEPELR(b) if :: wt[b]==0 -> if :: role[b]>0 && ep[b]==eE -> old[b]=1 :: else fi; CLRT(b) :: else fi }
#define DROP(b) d_step { (tSt[b]==1 && wt[b]==0) -> printf("DROP %d\n",b); CLRT(b) }
#define LEARN(b) d_step { (wt[b] && tSt[b]>=2) -> printf("LEARN %d\n",b); if :: tSt[b]==2 && tK[b]!=3 -> LEARNELR(b) skip :: else fi; \
    if :: tSt[b]==2 && tK[b]==1 -> cIsr[b]=cIsr[b] & ~BIT(tF[b]) \
       :: tSt[b]==2 && tK[b]==2 -> cIsr[b]=cIsr[b] | BIT(tF[b]); CS(b,tF[b])=tS[b] \
       :: tSt[b]==3 -> if :: tK[b]==3 -> role[b]=1 :: else fi; \
            if :: old[b] && ep[b]==eE -> cIsr[b]=eIsr; CS(b,0)=eSt[0]; CS(b,1)=eSt[1]; CS(b,2)=eSt[2]; old[b]=0 :: else fi \
       :: tSt[b]==2 && tK[b]==3 -> role[b]=0; RESETL(b) \
       :: else fi; wt[b]=0; CLRT(b); ADVANCE(b); TMP }
/* rule 0 read as "one read decides": the opId is not there, so it is taken as not applied although it is on its way */
#ifdef X_READDECIDES
#define GIVEUP(b) d_step { (wt[b] && tSt[b]==1) -> printf("GIVEUP %d\n",b); wt[b]=0; if :: role[b]==2 -> role[b]=1 :: else fi; ADVANCE(b); TMP }
#else
#define GIVEUP(b) d_step { (false) -> skip }
#endif

/* --- leadership */
#ifdef X_TAKEOVERREG
#define GONE 1
#else
#define GONE (!eLive)
#endif
#ifdef X_STORE
#define SAME(b) 1
#else
#define SAME(b) (eSt[b]==st[b])
#endif
/* the same Txn puts the ISR key: the old leader out, the taker with its own incarnation */
#define ELRADD(f,b) if :: CNT(eIsr)<MINV(b) -> eElr=eElr | BIT(f) :: else fi;
#define ISRPUT(b) if :: eL!=b && (eIsr & BIT(eL)) -> eIsr=eIsr & ~BIT(eL); eGone[eL]=0; ELRADD(eL,b) :: else fi; eGone[b]=0
#define TAKEOVER(b) d_step { (eE<MAXE && GONE && !(eL==b && eLive) && reg[b] && (eIsr & BIT(b)) && SAME(b) && MAYSTAND(b)) -> printf("TAKEOVER %d\n",b); ISRPUT(b); NEWEPOCH(b) }
#ifdef X_ELRISR
#define ELRPUT(b)
#else
#define ELRPUT(b) eElr=(eElr | eIsr) & ~BIT(b); eIsr=BIT(b); eGone[0]=0; eGone[1]=0; eGone[2]=0;
#endif
#define ELRTAKEOVER(b) d_step { (eE<MAXE && GONE && reg[b] && (eElr & BIT(b)) && SAME(b) && MAYSTAND(b)) -> printf("ELRTAKEOVER %d\n",b); NEWEPOCH(b); ELRPUT(b) skip }
#ifdef X_HWLEO
#define HWSTART(b) hw[b]=mem[b];
#else
#define HWSTART(b)
#endif
/* what is given up is what the one elected does not have when it begins: until then it may still follow the old leader, and what that tells it to
 * be committed it serves */
#ifdef UNCLEAN
#define GIVEUPBELOW(b) if :: uDue && ep[b]>=eU -> uDue=0; seen=0; i=0; do :: i<NO -> if :: com[i]!=0 && (mem[b]<=i || L(b,i)!=com[i]) -> com[i]=0 :: else fi; \
        if :: i<hw[b] -> com[i]=L(b,i) :: else fi; i++ :: else -> break od :: else fi;
#else
#define GIVEUPBELOW(b)
#endif
/* drain, sync the epoch entry, read leader and isr at one revision */
#define BEGIN(b) d_step { (eL==b && eLive && ep[b]<eE) -> printf("BEGIN %d\n",b); \
    RESETL(b); ep[b]=eE; role[b]=1; syn[b]=mem[b]; est[b]=mem[b]; HWSTART(b) BEGINELR(b) cIsr[b]=eIsr; CS(b,0)=eSt[0]; CS(b,1)=eSt[1]; CS(b,2)=eSt[2]; \
    GIVEUPBELOW(b) i=0; do :: i<NO -> if :: com[i]!=0 && (mem[b]<=i || L(b,i)!=com[i]) -> S1_leader_has_all_committed=false; assert(S1_leader_has_all_committed) :: else fi; i++ :: else -> break od; \
    ADVANCE(b); TMP }
/* a broker learns of a later epoch in which it does not lead; any later one, watches lag */
#ifdef X_EPOCHBACK
#define LATER(b,x) ((x)!=ep[b] && (role[b]==0 || (x)>ep[b]))
#else
#define LATER(b,x) ((x)>ep[b])
#endif
#define OBSERVE(b,x) d_step { ((x)<=eE && LATER(b,x) && lo[x]!=b) -> printf("OBSERVE %d %d\n",b,x); role[b]=0; RESETL(b); ep[b]=x; TOHW(b) skip }

/* --- unclean election: reads who leads, who counts and who of them is away; the Txn compares all of it */
#ifdef UNCLEAN
#define AWAY ((reg[0] && SAME(0))+2*(reg[1] && SAME(1))+4*(reg[2] && SAME(2)))
#ifdef X_BACKAGAIN
#define AWAYSTILL 1
#else
#define AWAYSTILL (((AWAY ^ uAlive) & (uIsr|uElr))==0)
#endif
#define UREAD(b) d_step { (nU==0 && eE<MAXE && !eLive && reg[b] && !SOMEBODY) -> printf("UREAD %d\n",b); nU=1; uB=b; uLeader=eE; uIsr=eIsr; uElr=eElr; uAlive=AWAY }
#define ULAND d_step { (nU==1) -> printf("ULAND %d\n",uB); nU=2; \
    if :: uLeader==eE && uIsr==eIsr && uElr==eElr && !eLive && reg[uB] && AWAYSTILL -> \
        if :: SOMEBODY -> S1_given_up_only_if_nobody_is_left=false; assert(S1_given_up_only_if_nobody_is_left) :: else fi; \
        eU=eE+1; NEWEPOCH(uB); unclean[eE]=eE; eIsr=BIT(uB); eElr=0; eGone[0]=0; eGone[1]=0; eGone[2]=0; eSt[uB]=st[uB]; \
        uDue=1 \
       :: else fi; uB=0; uLeader=0; uIsr=0; uElr=0; uAlive=0 }
#endif

/* --- broker 2 leaves the assignment and comes back. It gives up its log once it reads that it is not assigned and that nobody counts on it */
#ifdef ASSIGN
#ifdef X_REMOVEELIGIBLE
#define COUNTSON eIsr
#else
#define COUNTSON (eIsr|eElr)
#endif
#define UNASSIGN d_step { (aRev==0) -> printf("UNASSIGN\n"); aRev=1 }
#define REASSIGN d_step { (aRev==1 && !(eIsr & BIT(2))) -> printf("REASSIGN\n"); aRev=2 }
#define HEAR d_step { (kRev<aRev) -> printf("HEAR\n"); kRev++; if :: kRev==2 -> away=0 :: else fi }
#define REMOVE d_step { (kRev==1 && aRev==1 && !away && role[2]==0 && !(COUNTSON & BIT(2))) -> printf("REMOVE\n"); away=1; \
    i=0; do :: i<NO -> L(2,i)=0; i++ :: else -> break od; i=0; mem[2]=0; syn[2]=0; hw[2]=0 }
#define STUCK d_step { (!eLive && reg[2] && SAME(2) && ((eIsr|eElr) & BIT(2)) && !MAYSTAND(2)) -> printf("STUCK\n"); V1_who_has_all_may_lead=false; assert(V1_who_has_all_may_lead) }
#endif

#ifdef LOWER
#define LOWERMIN d_step { (eMin==MIN) -> printf("LOWERMIN\n"); eMin=1 }
#define SEEMIN(b) d_step { (cMin[b]!=eMin && MAYSEE(b)) -> printf("SEEMIN %d\n",b); cMin[b]=eMin; ADVANCE(b); TMP }
#define CLEARELR(b) d_step { (role[b]==1 && tK[b]==0 && cElr[b]!=0 && CNT(cIsr[b])>=eMin) -> printf("CLEARELR %d\n",b); SEND(b,b,5); if :: ep[b]!=eE || old[b] -> tSt[b]=3 :: else fi; TMP }
#endif

/* --- faults */
#define CRASHB(b) d_step { (nC<CRASH) -> printf("CRASHB %d\n",b); nC++; role[b]=0; RESETL(b); HWLOST(b); \
    i=syn[b]; do :: i<mem[b] -> L(b,i)=0; i++ :: else -> break od; mem[b]=syn[b]; TOHW(b) ENDINC(b); reg[b]=1; i=0 }
#define CRASHW(b) d_step { (nC<CRASH && wiped<WIPE) -> printf("CRASHW %d\n",b); nC++; wiped=1; role[b]=0; RESETL(b); hw[b]=0; st[b]=1; \
    i=0; do :: i<NO -> L(b,i)=0; i++ :: else -> break od; mem[b]=0; syn[b]=0; \
    ep[b]=0; ENDINC(b); reg[b]=1; i=0 }
#define EXPIREB(b) d_step { (reg[b] && nX<EXPIRE) -> printf("EXPIREB %d\n",b); nX++; reg[b]=0; ENDINC(b) }
/* the live broker notices, drops all leadership and registers again */
#define REREG(b) d_step { (!reg[b]) -> printf("REREG %d\n",b); role[b]=0; RESETL(b); reg[b]=1 }

init {
  d_step { eL=0; eE=1; eLive=1; eIsr=7; lo[1]=0; reg[0]=1; reg[1]=1; reg[2]=1;
    ep[0]=1; ep[1]=1; ep[2]=1; role[0]=1; cIsr[0]=7
#ifdef LOWER
    eMin=MIN; cMin[0]=MIN; cMin[1]=MIN; cMin[2]=MIN
#endif
  }
  do
#define EACH(A) :: A(0) :: A(1) :: A(2)
#define PAIRS(A) :: A(0,1) :: A(0,2) :: A(1,0) :: A(1,2) :: A(2,0) :: A(2,1)
  EACH(PRODUCE) EACH(MARK) EACH(SYNC) EACH(FETCH)
  PAIRS(SHRINK) PAIRS(EXPAND) PAIRS(RESTAMP) PAIRS(XFERSEND) EACH(APPLY) EACH(DROP) EACH(LEARN) EACH(GIVEUP)
  EACH(TAKEOVER) EACH(ELRTAKEOVER) EACH(BEGIN)
  :: OBSERVE(0,1) :: OBSERVE(1,1) :: OBSERVE(2,1)
  :: OBSERVE(0,2) :: OBSERVE(1,2) :: OBSERVE(2,2)
#if MAXE>=3
  :: OBSERVE(0,3) :: OBSERVE(1,3) :: OBSERVE(2,3)
#endif
#if MAXE>=4
  :: OBSERVE(0,4) :: OBSERVE(1,4) :: OBSERVE(2,4)
#endif
#ifdef UNCLEAN
  EACH(UREAD) :: ULAND
#endif
#ifdef ASSIGN
  :: UNASSIGN :: REASSIGN :: HEAR :: REMOVE :: STUCK
#endif
#ifdef LOWER
  :: LOWERMIN EACH(SEEMIN) EACH(CLEARELR)
#endif
  EACH(CRASHB) EACH(CRASHW) EACH(EXPIREB) EACH(REREG)
  od
}
