------------------------------- MODULE Archive -------------------------------
(* archive: a partition leaves its source, and the lake has the only copy.     *)
(* One key, beside exports that replace whatever they find (--force), rows     *)
(* that come later, and an unarchive. What a commit loop does is Owner.tla's,  *)
(* made smaller: main is one content, a mark the epoch that landed last.       *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Owners, Jobs,         \* Jobs[o]: set of goals; an owner runs one of them, once
  MaxAtt,               \* commit attempts per owner
  NLease, NLost, NLate, \* leases that expire, answers that say nothing, contents that come to the source
  (* the rules *)
  ClaimLooks,           \* who claims the key for an export looks whether it is archived
  Settled,              \* only a row of which nothing is under way becomes archived
  Compares,             \* it becomes archived by compare-and-set: the row is what was looked at
  BackCompares,         \* where the source changed, that is taken back by compare-and-set, too
  MarksFirst            \* it becomes archived before the source is touched, not after

None == "none"
Row0 == [ver |-> 0, e |-> 0, st |-> "NONE", v |-> 0, done |-> 0, arch |-> FALSE]
Idle == [pc |-> "idle", g |-> None, e |-> 0, v |-> 0, row |-> Row0, was |-> FALSE, ctr |-> 0, mk |-> 0, n |-> 0, sid |-> 0, ans |-> None]

VARIABLES main, ctr, mk, req, nid, landed,   \* the lake: content, sequence number, mark, requests under way
          L, lease, P, bud,                  \* the ledger row, its lease, owners, what may still happen
          src, next,                         \* what the source holds, the next content that comes to it
          taken, freed                       \* for the invariants: contents that left the source; given free by unarchive
cat == <<main, ctr, mk, req, nid, landed>>
vars == <<main, ctr, mk, req, nid, landed, L, lease, P, bud, src, next, taken, freed>>

Init ==
  /\ main = 0 /\ ctr = 0 /\ mk = 0 /\ req = {} /\ nid = 1 /\ landed = {}
  /\ L = Row0 /\ lease = None /\ P = [o \in Owners |-> Idle]
  /\ bud = [lease |-> NLease, lost |-> NLost, late |-> NLate]
  /\ src = 1 /\ next = 2 /\ taken = {} /\ freed = {}

Go(o, p) == P' = [P EXCEPT ![o] = p]
End(o, ans) == Go(o, [Idle EXCEPT !.pc = "end", !.g = P[o].g, !.ans = ans]) /\ lease' = IF lease = o THEN None ELSE lease
Begin(o, g) == P[o].pc = "idle" /\ g \in Jobs[o] /\ lease = None

-----------------------------------------------------------------------------
(* An export of what the source has, which replaces what main has *)
Claim(o) ==
  /\ Begin(o, "exp") /\ src # 0
  /\ IF ClaimLooks /\ L.arch THEN Go(o, [Idle EXCEPT !.pc = "end", !.g = "exp", !.ans = "refused"]) /\ UNCHANGED <<L, lease>>
     ELSE /\ L' = [L EXCEPT !.ver = @ + 1, !.e = @ + 1, !.st = "RUN", !.v = src] /\ lease' = o
          /\ Go(o, [Idle EXCEPT !.pc = "load", !.g = "exp", !.e = L.e + 1, !.v = src])
  /\ UNCHANGED <<cat, bud, src, next, taken, freed>>
Load(o) ==
  /\ P[o].pc = "load" /\ Go(o, [P[o] EXCEPT !.pc = "look", !.ctr = ctr, !.mk = mk])
  /\ UNCHANGED <<cat, L, lease, bud, src, next, taken, freed>>
Look(o) ==     \* the ledger is read after the metadata
  /\ P[o].pc = "look"
  /\ LET p == P[o] IN
     IF L.e # p.e \/ L.st # "RUN" THEN End(o, "superseded") /\ UNCHANGED <<cat, L>>
     ELSE IF p.mk = p.e THEN Go(o, [p EXCEPT !.pc = "settle"]) /\ UNCHANGED <<cat, L, lease>>
     ELSE IF p.n >= MaxAtt THEN End(o, "unknown") /\ UNCHANGED <<cat, L>>
     ELSE /\ req' = {r \in req : r.ctr = ctr} \cup {[sid |-> nid, ctr |-> p.ctr, e |-> p.e, v |-> p.v]}
          /\ nid' = nid + 1 /\ Go(o, [p EXCEPT !.pc = "wait", !.n = @ + 1, !.sid = nid])
          /\ UNCHANGED <<main, ctr, mk, landed, L, lease>>
  /\ UNCHANGED <<bud, src, next, taken, freed>>
Answer(o) ==
  /\ P[o].pc = "wait"
  /\ LET p == P[o] in == p.sid \in landed IN
     \/ in /\ Go(o, [p EXCEPT !.pc = "settle"]) /\ UNCHANGED bud
     \/ ~in /\ p.ctr # ctr /\ Go(o, [p EXCEPT !.pc = "load"]) /\ UNCHANGED bud
     \/ bud.lost > 0 /\ bud' = [bud EXCEPT !.lost = @ - 1] /\ Go(o, [p EXCEPT !.pc = "load"])
  /\ UNCHANGED <<cat, L, lease, src, next, taken, freed>>
Settle(o) ==
  /\ P[o].pc = "settle"
  /\ LET p == P[o] mine == L.e = p.e /\ L.st = "RUN" IN
     /\ L' = IF mine THEN [L EXCEPT !.ver = @ + 1, !.st = "DONE", !.done = p.v] ELSE L
     /\ End(o, IF mine THEN "done" ELSE "superseded")
  /\ UNCHANGED <<cat, bud, src, next, taken, freed>>

-----------------------------------------------------------------------------
(* archive: what is exported and in main leaves the source *)
StartArchive(o) ==
  /\ Begin(o, "archive") /\ L.done # 0 /\ main = L.done /\ src = L.done
  /\ lease' = o /\ Go(o, [Idle EXCEPT !.pc = IF MarksFirst THEN "mark" ELSE "take", !.g = "archive", !.v = L.done, !.row = L, !.was = L.arch])
  /\ UNCHANGED <<cat, L, bud, src, next, taken, freed>>
Mark(o) ==
  /\ P[o].pc = "mark"
  /\ LET p == P[o] IN
     IF (Settled /\ p.row.st = "RUN") \/ (Compares /\ L # p.row) THEN End(o, "refused") /\ UNCHANGED L
     ELSE /\ L' = [(IF Compares THEN L ELSE p.row) EXCEPT !.ver = L.ver + 1, !.arch = TRUE]
          /\ IF MarksFirst THEN Go(o, [p EXCEPT !.pc = "take", !.row = L']) /\ UNCHANGED lease ELSE End(o, "archived")
  /\ UNCHANGED <<cat, bud, src, next, taken, freed>>
Take(o) ==     \* ClickHouse takes out the parts that were exported and no others
  /\ P[o].pc = "take"
  /\ LET p == P[o] IN
     IF src # p.v
     THEN /\ L' = IF MarksFirst /\ (BackCompares => L = p.row) THEN [L EXCEPT !.ver = @ + 1, !.arch = p.was] ELSE L
          /\ End(o, "refused") /\ UNCHANGED <<src, taken>>
     ELSE /\ src' = 0 /\ taken' = taken \cup {p.v} /\ UNCHANGED L
          /\ IF MarksFirst THEN End(o, "archived") ELSE Go(o, [p EXCEPT !.pc = "mark"]) /\ UNCHANGED lease
  /\ UNCHANGED <<cat, bud, next, freed>>
Unarchive(o) ==
  /\ Begin(o, "unarchive") /\ L.arch
  /\ L' = [L EXCEPT !.ver = @ + 1, !.arch = FALSE] /\ freed' = freed \cup taken \cup {L.done} /\ End(o, "unarchived")
  /\ UNCHANGED <<cat, bud, src, next, taken>>

Step(o) == Claim(o) \/ Load(o) \/ Look(o) \/ Answer(o) \/ Settle(o)
           \/ StartArchive(o) \/ Mark(o) \/ Take(o) \/ Unarchive(o)

-----------------------------------------------------------------------------
(* The catalog, the source, and leases *)
Apply(r) ==
  /\ r.ctr = ctr /\ main' = r.v /\ ctr' = ctr + 1 /\ mk' = r.e /\ req' = {} /\ landed' = landed \cup {r.sid}
  /\ UNCHANGED <<nid, L, lease, P, bud, src, next, taken, freed>>
Late ==        \* rows come, to what is there or to nothing; or it is again what it was
  /\ bud.late > 0 /\ bud' = [bud EXCEPT !.late = @ - 1]
  /\ \/ src' = next /\ next' = next + 1
     \/ src' \in 1..(next - 1) /\ UNCHANGED next
  /\ UNCHANGED <<cat, L, lease, P, taken, freed>>
LeaseExpire ==
  /\ bud.lease > 0 /\ lease # None /\ bud' = [bud EXCEPT !.lease = @ - 1] /\ lease' = None
  /\ UNCHANGED <<cat, L, P, src, next, taken, freed>>

Over == (\A o \in Owners : P[o].pc \in {"idle", "end"}) /\ UNCHANGED vars
Next == \/ \E o \in Owners : Step(o)
        \/ \E r \in req : Apply(r)
        \/ Late \/ LeaseExpire \/ Over
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
Kept == \A c \in taken \ freed : main = c       \* what left its source is in the lake
Archived == L.arch => L.st # "RUN"              \* nothing is under way for what is archived

\* not properties: each must be violated, so that the runs above are not empty
NeverTaken == taken = {}
NeverRefused == \A o \in Owners : ~(P[o].g = "exp" /\ P[o].ans = "refused")
NeverFreed == ~(freed # {} /\ main \notin {0} \cup freed)

\* who may run what
JobsArchive == [o \in Owners |-> IF o = "o3" THEN {"archive"} ELSE {"exp"}]
JobsUnarchive == [o \in Owners |-> CASE o = "o3" -> {"archive"} [] o = "o4" -> {"unarchive"} [] OTHER -> {"exp"}]
JobsTwo == [o \in Owners |-> IF o \in {"o3", "o4"} THEN {"archive"} ELSE {"exp"}]
=============================================================================
