-------------------------------- MODULE State --------------------------------
(* What there is: a table of an Iceberg catalog, a ledger, owners of keys, and *)
(* requests under way. Every rule of the protocol is a constant, so that a     *)
(* configuration can take it away; configurations.toml says what each one sets.*)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  (* who takes part *)
  Owners, Keys, Jobs,   \* Jobs[o]: set of <<key, goal>>; an owner runs one of them, once
  MaxAtt,               \* commit attempts per owner
  NFiles,               \* data files per export
  (* what may happen, how often in one run *)
  NApp, NRb, NExp,      \* foreign: append, main set to any live snapshot, all other snapshots expired
  NComp, NDrop, NDel,   \* foreign: some files of a key rewritten, removed, given a row delete
  NBack,                \* the catalog is pointed at an earlier metadata file, and at the newer one again
  NTtl, NSrc, NLease, NGive,   \* TTL over, the source changes, a lease expires, an owner gives up
  NLost,                \* answers that say nothing, of requests that may still be applied; 9: any number
  NLoss, LossKeepsId,   \* the ledger is lost; TRUE: an empty one with the same identity is in its place
  NCopy, CopyAt,        \* the ledger is put back to a copy of any moment: "rest" nobody runs, nothing under way | "late" nobody runs | "any" always
  UseQuiet,             \* from some moment on nothing of the above
  (* the rules *)
  UseMark,              \* the commit sets and the loop checks the mark
  LedgerLast,           \* metadata first, then ledger
  MarkRm,               \* which marks of other keys a commit removes: "completed" | "any" | "never"
  TtlForgets,           \* TRUE: the TTL removes the whole row
  OnFail,               \* after anything but success: "look" | "blind" send again | "delete" what was sent
  EpochCheck,           \* loop and settle compare the epoch
  TxCheck,              \* and the transaction id
  Guard,                \* "none": only main is asserted | "seq": an old sequence number is refused too | "ref": a ref that only we move is asserted
  RootExempt,           \* TRUE: that check is skipped for a snapshot without parent (snapshot 0 stands for "no main")
  DeadBy,               \* a request is dead when "main" is not its parent any more | "ctr" the guard's counter has passed it
  DelRule,              \* manifests go when "hist" the snapshot is not in the metadata | "reach" nothing in it refers to them
  DeadAll,              \* FAILED, KILLED and deleting data need the death of older epochs' requests too
  CleanOld,             \* the data of the claim before goes at the "claim" | when the new one has "landed"
  DelSuper,             \* a superseded owner removes its data files
  Condemn,              \* FAILED is written before data files are removed
  Verify, Intact,       \* "unchanged" and "done" only after a look into main for: "any" file or the snapshot | "all" files, without a row delete
  Replace,              \* a replacement removes what the "last" export added | what is "inmain" of any
  Whole,                \* and only when the files of an export are there all, without a row delete
  GoneBy,               \* no file of the key in main means gone: "never" | "absent" always | "some" if a snapshot removed one and added nothing | "each" if that holds for all
  OneToOne,             \* a replacement may remove by partition predicate
  KeepHist,             \* a landed snapshot goes into the ledger before its mark is overwritten
  LidCheck,             \* the table remembers the ledger's identity
  Draws,                \* and of its counter: "none" nothing, epochs are the key's own | "claim" the epoch | "attempt" a number of each attempt | "named" the name of that number
  BackRule              \* refused when a landed export has a higher sequence number than the table: "none" | of the same "key" | of any key of the "table"

None == "none"
NoMark == [e |-> 0, v |-> 0, sid |-> 0, lid |-> 0, tx |-> None]
NoM == [main |-> 0, ctr |-> 0, live |-> {}, mk |-> [k \in Keys |-> NoMark], tid |-> 0, num |-> 0]
Row0 == [e |-> 0, st |-> "NONE", v |-> 0, fe |-> 0, tx |-> None, old |-> {}, done |-> NoMark, hist |-> {}, ttl |-> FALSE]
NoLr == [x \in {} |-> 0]
NoPlan == [x \in {} |-> 0]
NoCopy == [x \in {} |-> 0]
NoBack == [back |-> FALSE, m |-> NoM]
Idle == [pc |-> "idle", k |-> None, g |-> None, e |-> 0, v |-> 0, fe |-> 0, base |-> 0, lid |-> 0,
         m |-> NoM, lr |-> NoLr, pl |-> NoPlan, att |-> {}, c0 |-> <<>>, n |-> 0, old |-> {}, dd |-> {},
         land |-> NoMark, ans |-> None, q |-> FALSE]

VARIABLES
  main, live, sn, ctr, mk, tid, num,  \* the table's metadata: main, snapshots, last sequence number, marks, ledger's identity, highest number drawn
  other,                              \* another metadata file of the table; back: it is the newer one
  req, nid,                           \* requests under way, next snapshot id
  L, lid, cnt, known, copy,           \* the ledger: rows, identity, counter, names of its numbers, a copy of it
  lease, src,                         \* leases, content of the source
  P, del, bud, quiet,                 \* owners, removed files, what may still happen
  applied, maxA, maxE, moved, failed, viol, restored, uid   \* for the invariants only
meta == <<main, live, sn, ctr, mk, tid, num>>
cat == <<main, live, sn, ctr, mk, tid, num, other>>
lx  == <<lid, cnt, known, copy, uid>>
led == <<L, lid, cnt, known, copy, uid, lease, src>>
gho == <<applied, maxA, maxE, moved, failed, viol, restored>>
vars == <<main, live, sn, ctr, mk, tid, num, other, req, nid, L, lid, cnt, known, copy, uid, lease, src,
          P, del, bud, quiet, applied, maxA, maxE, moved, failed, viol, restored>>

Init ==
  /\ main = 0 /\ live = {0} /\ sn = (0 :> [par |-> 0, ents |-> {}, q |-> 0]) /\ ctr = 0
  /\ mk = [k \in Keys |-> NoMark] /\ tid = 0 /\ num = 0 /\ other = NoBack /\ req = {} /\ nid = 1
  /\ L = [k \in Keys |-> Row0] /\ lid = 1 /\ cnt = 0 /\ known = {0} /\ copy = NoCopy /\ uid = 0
  /\ lease = [k \in Keys |-> None] /\ src = [k \in Keys |-> 1]
  /\ P = [o \in Owners |-> Idle] /\ del = {} /\ quiet = FALSE
  /\ bud = [app |-> NApp, rb |-> NRb, exp |-> NExp, comp |-> NComp, drop |-> NDrop, del |-> NDel, back |-> NBack,
            ttl |-> NTtl, src |-> NSrc, loss |-> NLoss, copy |-> NCopy, lease |-> NLease, give |-> NGive, lost |-> NLost]
  /\ applied = {} /\ maxA = [k \in Keys |-> 0] /\ maxE = [k \in Keys |-> 0]
  /\ moved = [k \in Keys |-> 0] /\ failed = [k \in Keys |-> 0] /\ viol = {} /\ restored = FALSE

-----------------------------------------------------------------------------
(* What can be seen in metadata m (a file: key, export, content, snapshot that added it, number; c: rewritten by others, d: it carries a row delete) *)
Files == 1..NFiles
RECURSIVE Anc(_, _)                          \* ancestors of s that metadata still knows
Anc(s, lv) == IF s \notin lv THEN {} ELSE IF s = 0 THEN {0} ELSE {s} \cup Anc(sn[s].par, lv)
Rows(s, k) == {x \in sn[s].ents : x.k = k}
Ours(s, k) == {x \in Rows(s, k) : ~x.c}      \* recognisable by path; rewritten ones are not
Once(s, k) == \A f \in Files : Cardinality({x \in Rows(s, k) : x.f = f}) <= 1
Exact(s, k, v) == Once(s, k) /\ Cardinality(Rows(s, k)) = NFiles /\ \A x \in Rows(s, k) : x.v = v /\ ~x.d
Same(x, y) == x.k = y.k /\ x.sid = y.sid /\ x.f = y.f /\ x.c = y.c
Catalog == [main |-> main, ctr |-> ctr, live |-> live, mk |-> mk, tid |-> tid, num |-> num]

There(m, k, sid) ==
  IF Intact = "all" THEN \A f \in Files : \E x \in Ours(m.main, k) : x.sid = sid /\ x.f = f /\ ~x.d
  ELSE (\E x \in Ours(m.main, k) : x.sid = sid) \/ sid \in Anc(m.main, m.live)

\* snapshot t removed file f that snapshot sid added for k
Removed(t, k, sid, f) == /\ \E x \in Ours(sn[t].par, k) : x.sid = sid /\ x.f = f
                         /\ ~\E x \in Ours(t, k) : x.sid = sid /\ x.f = f
AddsNothing(t) == \A x \in sn[t].ents : \E y \in sn[sn[t].par].ents : Same(x, y)
\* all rows of k were taken out of main, and not put elsewhere; h: landed snapshots of k
Gone(m, k, h) ==
  LET line == Anc(m.main, m.live)
      ts == {t \in line \ {0} : sn[t].par \in m.live /\ AddsNothing(t) /\ (h \cap line) \subseteq Anc(sn[t].par, m.live)}
  IN CASE GoneBy = "never"  -> FALSE
       [] GoneBy = "absent" -> TRUE
       [] GoneBy = "some"   -> \E sid \in h, f \in Files, t \in ts : Removed(t, k, sid, f)
       [] GoneBy = "each"   -> \E sid \in h : \A f \in Files : \E t \in ts : Removed(t, k, sid, f)

\* what the loop believes about the rows of k in m.main; h: landed snapshots of k it knows
Where(m, k, h) ==
  LET o == Ours(m.main, k) IN
  IF o # {} THEN IF Whole => \A x \in o : \A f \in Files : \E y \in o : y.sid = x.sid /\ y.f = f /\ ~y.d
                 THEN "visible" ELSE "unsure"
  ELSE IF h = {} THEN "never"
  ELSE IF h \cap Anc(m.main, m.live) = {} /\ 0 \in Anc(m.main, m.live) THEN "rolledback"
  ELSE IF Gone(m, k, h) THEN "gone"
  ELSE "unsure"

Removal(m, k, last, h) ==     \* <<may go on, files to remove>>
  IF Replace = "inmain"
  THEN IF OneToOne THEN <<TRUE, Rows(m.main, k)>>
       ELSE CASE Where(m, k, h) = "visible" -> <<TRUE, Ours(m.main, k)>>
              [] Where(m, k, h) = "unsure"  -> <<FALSE, {}>>
              [] OTHER -> <<TRUE, {}>>
  ELSE LET f == {x \in Ours(m.main, k) : x.sid = last.sid} IN      \* "last": the files that the last export added
       IF last.e = 0 THEN <<TRUE, {}>>
       ELSE IF f # {} THEN <<TRUE, f>>
       ELSE IF last.sid \in Anc(m.main, m.live) THEN (IF OneToOne THEN <<TRUE, Rows(m.main, k)>> ELSE <<FALSE, {}>>)
       ELSE <<TRUE, {}>>

-----------------------------------------------------------------------------
(* What is dead: it can never be applied any more *)
DeadA(a, m) == IF DeadBy = "main" THEN m.main # a.par ELSE m.ctr # a.ctr
DeadOld(p, m) == IF DeadBy = "main" THEN m.main # p.c0[1] ELSE m.ctr # p.c0[2]
DeadOwn(p, m) == \A a \in p.att : DeadA(a, m)
Alive(rs, c) == IF Guard = "none" THEN rs ELSE {r \in rs : r.ctr = c \/ (RootExempt /\ r.par = 0)}
Bump(own) == IF Guard = "seq" \/ (Guard = "ref" /\ own) THEN ctr + 1 ELSE ctr
Seq == IF NBack > 0 THEN ctr + 1 ELSE 0

(* The ledger's counter, when it numbers more than the claims of one key *)
Larger(a, b) == IF a > b THEN a ELSE b
Counts == Draws # "none"
Draw == IF Draws = "named" THEN uid + 1 ELSE cnt + 1         \* what a table will carry
Drawn == /\ cnt' = cnt + 1
         /\ IF Draws = "named" THEN uid' = uid + 1 /\ known' = known \cup {uid + 1} ELSE UNCHANGED <<uid, known>>
NotOfUs(m, l) == \/ LidCheck /\ m.tid \notin {0, l}          \* step 3
                 \/ Draws \in {"claim", "attempt"} /\ m.num > cnt
                 \/ Draws = "named" /\ m.num \notin known
PutBack(m, k) == CASE BackRule = "none" -> FALSE
                   [] BackRule = "key" -> \E s \in L[k].hist : sn[s].q > m.ctr
                   [] BackRule = "table" -> \E x \in Keys : \E s \in L[x].hist : sn[s].q > m.ctr
=============================================================================
