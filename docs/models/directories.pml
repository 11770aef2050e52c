/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a data directory (internal/cli/stamp.go, Store.RegisterNode). See README.md for the abstraction and the bounds.
 *
 * A directory and one image of it, taken at any time, also while the node runs. Each may be started, also both at a time, also again and again. The
 * directory holds how often it was opened (boots, raised by each opening), a stamp, and records; etcd holds the last boots and stamp that were registered. A start
 * looks whether etcd knows a higher stamp or as many boots by another process, and is refused then; else it raises the stamp, in the directory first and
 * then in etcd, as a running node does now and then. Any step may be the last before a crash; of a Txn the sender may not hear.
 * An image that is younger than the last stamp is taken for the directory. -DFOOLED: what comes after that is not looked at. Without it the properties hold up
 * to four starts of both; with six the two can take turns so that the one that lacks records has as high a stamp.
 */
#ifndef STARTS
#define STARTS 4        /* of both together            */
#endif
#ifndef STAMPS
#define STAMPS 2        /* beyond those at a start     */
#endif
#ifndef RECORDS
#define RECORDS 3
#endif
#ifndef COPIES
#define COPIES 2
#endif
bool S1_no_old_copy_serves = true;
bool S1_no_two_copies_stamp = true;
bool V1_own_directory_starts = true;

byte boots[2]; byte stamp[2]; byte recs[2];     /* on the disks: the directory, the image */
bit there;                                      /* there is an image */
byte eBoots; byte eStamp;                       /* etcd */
byte p[2];                                      /* process: 0 none 1 opened 2 registered 3 stamped its directory 4 serves 5 has stamped its directory again */
byte mine[2];                   /* boots that it registered itself; 0: none */
byte atStamp;                                   /* history: records in the directory when the stamp was raised that etcd has */
byte raised[2];                                 /* records when this one raised its stamp */
bit used;                                       /* the image was started: from then on either may be refused */
#ifdef FOOLED
bit fooled;
#endif
byte nb; byte ns; byte nr; byte nc;

#define KNOWN(x) (eBoots>boots[x] || (eBoots==boots[x] && mine[x]!=boots[x]))
#ifdef X_NOSTAMP
#define OLD(x) KNOWN(x)
#else
#define OLD(x) (eStamp>stamp[x] || KNOWN(x))
#endif
#define OPEN(x) d_step { (p[x]==0 && nb<STARTS && ((x)==0 || there)) -> printf("OPEN %d\n",x); nb++; boots[x]++; mine[x]=0; p[x]=1; if :: (x)==1 -> used=1 :: else fi; RAISEFIRST(x) }
#ifdef X_RAISEFIRST
#define RAISEFIRST(x) stamp[x]++
#else
#define RAISEFIRST(x) skip
#endif
#define REFUSED(x) p[x]=0; if :: !used && (x)==0 -> V1_own_directory_starts=false; assert(V1_own_directory_starts) :: else fi
/* what etcd has is at least as old as this directory: an older copy lacks what was acknowledged since */
#ifdef FOOLED
#define LOOK(x) !fooled
#define FOOL(x) ; fooled=fooled || ((x)==1)
#else
#define LOOK(x) 1
#define FOOL(x)
#endif
#define ACCEPTED(x) if :: LOOK(x) && recs[x]<atStamp -> S1_no_old_copy_serves=false; assert(S1_no_old_copy_serves) :: else fi FOOL(x)
#define REGISTER(x) d_step { (p[x]==1) -> printf("REGISTER %d\n",x); \
    if :: OLD(x) -> REFUSED(x) :: else -> ACCEPTED(x); eBoots=boots[x]; eStamp=stamp[x]; mine[x]=boots[x]; p[x]=2 fi }
/* it is applied, and its process ends before it hears so */
#define REGISTERED(x) d_step { (p[x]==1 && !OLD(x)) -> printf("REGISTERED %d\n",x); ACCEPTED(x); eBoots=boots[x]; eStamp=stamp[x]; p[x]=0 }
#ifdef X_ETCDFIRST
#define STAMPDISK(x,from,to) d_step { (p[x]==from && (from==2 || ns<STAMPS) && !(eStamp>stamp[x] || eBoots>boots[x])) -> printf("STAMPETCD %d\n",x); if :: from==4 -> ns++ :: else fi; \
    eStamp=stamp[x]+1; atStamp=recs[x]; p[x]=to }
#define STAMPETCD(x,from) d_step { (p[x]==from) -> printf("STAMPDISK %d\n",x); stamp[x]++; p[x]=4 }
#else
#define STAMPDISK(x,from,to) d_step { (p[x]==from && (from==2 || ns<STAMPS)) -> printf("STAMPDISK %d\n",x); if :: from==4 -> ns++ :: else fi; \
    stamp[x]++; raised[x]=recs[x]; p[x]=to }
#define STAMPETCD(x,from) d_step { (p[x]==from) -> printf("STAMPETCD %d\n",x); \
    if :: OLD(x) -> REFUSED(x) \
       :: else -> if :: LOOK(x) && raised[x]<atStamp -> S1_no_two_copies_stamp=false; assert(S1_no_two_copies_stamp) :: else fi; \
            eStamp=stamp[x]; eBoots=boots[x]; atStamp=raised[x]; p[x]=4 fi }
#endif
#define APPEND(x) d_step { (p[x]>=4 && nr<RECORDS) -> printf("APPEND %d\n",x); nr++; recs[x]++ }
#define CRASH(x) d_step { (p[x]>0) -> printf("CRASH %d\n",x); p[x]=0 }
#define COPY d_step { (nc<COPIES && p[1]==0 && !used) -> printf("COPY\n"); nc++; there=1; boots[1]=boots[0]; stamp[1]=stamp[0]; recs[1]=recs[0] }

init {
  do
#define EB(A) :: A(0) :: A(1)
  EB(OPEN) EB(REGISTER) EB(REGISTERED) EB(APPEND) EB(CRASH) :: COPY
  :: STAMPDISK(0,2,3) :: STAMPDISK(1,2,3) :: STAMPDISK(0,4,5) :: STAMPDISK(1,4,5) :: STAMPETCD(0,3) :: STAMPETCD(1,3) :: STAMPETCD(0,5) :: STAMPETCD(1,5)
  od
}
