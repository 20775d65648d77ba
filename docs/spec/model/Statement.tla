------------------------------ MODULE Statement ------------------------------
(* Statements on the lake table beside exports of one key: DROP, DETACH,       *)
(* ATTACH, UPDATE, of all files or of the first, and what writes files anew    *)
(* while their rows stay (OPTIMIZE, CLEAR INDEX, MOVE TO DISK). A statement    *)
(* claims the key, stages, sends and settles as an export does                 *)
(* (docs/decisions/0013). The catalog, its fence and its late requests are     *)
(* those of Export.tla; what is left out here (kill, expiry, ledgers put back, *)
(* other keys) is there.                                                       *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Owners, Jobs,         \* Jobs[o]: set of goals; an owner runs one of them, once
  MaxAtt, NFiles,       \* commit attempts per owner, data files per export
  NRb, NComp, NSrc, NLease,  \* main set to any snapshot, some files rewritten by others, the source changes, a lease expires
  NLost,                \* answers that say nothing, of requests that may still be applied
  NStop,                \* a statement that takes files away stops one that writes them anew
  (* the rules *)
  HoldsBy,              \* main holds what landed last of the key: "all" its files are those of one export, all of them or none | "files" they are those that it noted | "line" and, where rows are not among them, main descends from it
  AttachBy,             \* ATTACH is refused where main has: "nothing" | "path" the same file | "key" files of another export, or such as cannot be told | "together" or files that were not in main with those
  Resume,               \* who goes on with a statement that has landed does not do it again
  KeepsChanges,         \* an export without force replaces no file that an UPDATE has changed
  LikeBy,               \* files that are written anew land as the export where main has: "any" files of the key | "planned" all of it and no others, when it was planned | "whole" and in each turn
  KnownBy,              \* what landed as that export is such a statement's own by: "content" as of an export | "transaction"
  KilledBy              \* who is stopped says that nothing of it lands: "word" of the stopper | "dead" and once its requests are dead

None == "none"
\* as: the content of the export as which it landed, 0 for a statement; exp: the last export that is settled
NoLand == [e |-> 0, st |-> 0, g |-> None, v |-> 0, as |-> 0, sid |-> 0, holds |-> {}]
Row0 == [e |-> 0, st |-> "NONE", g |-> None, v |-> 0, fe |-> 0, done |-> NoLand, exp |-> NoLand, hist |-> {}, stopped |-> {}]
NoM == [main |-> 0, det |-> {}, ctr |-> 0, mk |-> NoLand]
Idle == [pc |-> "idle", g |-> None, e |-> 0, v |-> 0, as |-> 0, fe |-> 0, base |-> 0, plan |-> {}, m |-> NoM, n |-> 0, sent |-> 0, land |-> NoLand, ans |-> None]

VARIABLES main, det, sn, ctr, mk, req, nid,   \* the table and its branch `detached`; requests under way
          L, lease, src,                      \* the ledger's row, its lease, content of the source
          P, bud,                             \* owners, what may still happen
          maxA, moved, asked, viol            \* for the invariants only
cat == <<main, det, sn, ctr, mk>>
gho == <<maxA, moved, asked, viol>>
vars == <<main, det, sn, ctr, mk, req, nid, L, lease, src, P, bud, maxA, moved, asked, viol>>

Init ==
  /\ main = 0 /\ det = {} /\ sn = (0 :> [par |-> 0, ents |-> {}]) /\ ctr = 0 /\ mk = NoLand /\ req = {} /\ nid = 1
  /\ L = Row0 /\ lease = None /\ src = 1 /\ P = [o \in Owners |-> Idle]
  /\ bud = [rb |-> NRb, comp |-> NComp, src |-> NSrc, lease |-> NLease, lost |-> NLost, stop |-> NStop]
  /\ maxA = 0 /\ moved = 0 /\ asked = 0 /\ viol = {}

(* A file: transaction, number, content, how often it was updated; c: rewritten by others, not recognised any more *)
Files == 1..NFiles
Unknown == {[fe |-> 0, f |-> 0, v |-> 0, u |-> 0, c |-> TRUE]}     \* what main has of the key cannot be told
RECURSIVE Anc(_)
Anc(s) == IF s = 0 THEN {0} ELSE {s} \cup Anc(sn[s].par)
Ours(s) == {x \in sn[s].ents : ~x.c}
Numbers(xs) == {x.f : x \in xs}
Count(xs, f) == Cardinality({x \in xs : x.f = f})
Catalog == [main |-> main, det |-> det, ctr |-> ctr, mk |-> mk]
Alive(rs, c) == {r \in rs : r.ctr = c}       \* the catalog refuses an old sequence number

-----------------------------------------------------------------------------
(* What the loop believes of the rows of the key in m.main; h: what landed of it *)
Last(m, h) == LET in == {x \in h : x.sid \in Anc(m.main)} IN
              IF in = {} THEN NoLand ELSE CHOOSE x \in in : \A y \in in : y.e <= x.e
All(xs) == Numbers(xs) = Files /\ Cardinality({x.fe : x \in xs}) <= 1
Sure(m, h) ==
  LET o == Ours(m.main) IN
  \/ h = {} /\ o = {}
  \/ o = {} /\ Last(m, h) = NoLand                       \* main was moved to before all of it
  \/ CASE HoldsBy = "all"   -> o = {} \/ All(o)
       [] HoldsBy = "files" -> \E x \in h : x.holds = o
       [] HoldsBy = "line"  -> \/ Numbers(o) = Files /\ \E x \in h : x.holds = o
                               \/ Last(m, h) # NoLand /\ Last(m, h).holds = o

\* main has all files of an export of the key, and no others of it
Whole(m, h, x) == x.as > 0 /\ x.holds # {} /\ Ours(m.main) = x.holds /\ Sure(m, h)
Like(m, h, x) == IF LikeBy = "any" THEN x.as > 0 /\ Ours(m.main) # {} ELSE Whole(m, h, x)

-----------------------------------------------------------------------------
(* An owner *)
Release(o) == IF lease = o THEN None ELSE lease
End(p, ans) == [Idle EXCEPT !.pc = "end", !.g = p.g, !.e = p.e, !.ans = ans]
Exports == {"exp", "force"}
Anew == {"anew", "anew1"}     \* OPTIMIZE, to which all files are worth it; MOVE PART TO DISK, to which the first is
Settled(row, land) == [row EXCEPT !.st = "DONE", !.done = land, !.hist = @ \cup {land}, !.exp = IF land.as > 0 THEN land ELSE @]

\* step 1; a claim that did not end is gone on with by the same statement. Who writes anew settles what has landed, plans, and claims
Start(o, g) ==
  /\ P[o].pc = "idle" /\ g \in Jobs[o] /\ lease = None
  /\ g = "exp" => (L.st # "DONE" \/ src # L.done.v \/ L.done.holds = {})
  /\ LET goes == L.st = "RUN" /\ L.g = g /\ g \notin Anew /\ (g \in Exports => L.v = src)
         e2 == L.e + 1 fe2 == IF goes THEN L.fe ELSE e2
         row == IF g \in Anew /\ mk.e > L.done.e THEN Settled(L, mk) ELSE L
         as == IF g \in Exports THEN src ELSE IF g \in Anew /\ Like(Catalog, row.hist, row.exp) THEN row.exp.as ELSE 0
         plan == IF g \in Anew THEN Ours(main) ELSE {} IN
     /\ g \in Anew => plan # {}
     /\ L' = [row EXCEPT !.e = e2, !.st = "RUN", !.g = g, !.v = src, !.fe = fe2]
     /\ lease' = o
     /\ P' = [P EXCEPT ![o] = [Idle EXCEPT !.pc = "load", !.g = g, !.e = e2, !.v = src, !.as = as, !.fe = fe2, !.base = row.done.e, !.plan = plan]]
     /\ asked' = IF g = "update" /\ ~goes THEN asked + 1 ELSE asked
  /\ UNCHANGED <<cat, req, nid, src, bud, maxA, moved, viol>>

Load(o) ==   \* step 2
  /\ P[o].pc = "load" /\ P' = [P EXCEPT ![o].pc = "look", ![o].m = Catalog]
  /\ UNCHANGED <<cat, req, nid, L, lease, src, bud, gho>>

New(p, f, u) == [fe |-> p.fe, f |-> f, v |-> p.v, u |-> u, c |-> FALSE]
\* what of the branch `detached` comes back
Back(p, m) == IF p.g = "attach1" THEN {x \in m.det : x.f = 1} ELSE m.det
\* known to have been in main at the same time: by one transaction, as one statement found them, or by a snapshot in main's line
Together(b, o, s) == \/ Cardinality({x.fe : x \in b \cup o}) <= 1
                     \/ o = {} /\ \E t \in DOMAIN sn : b \subseteq sn[t].ents
                     \/ \E t \in Anc(s) : b \cup o \subseteq sn[t].ents
Refused(p, m, h) ==
  \/ p.g \notin {"attach", "attach1"} \cup Anew /\ ~Sure(m, h)
  \/ p.g \in Anew /\ LikeBy = "whole" /\ (Ours(m.main) # p.plan \/ (p.as > 0) # Like(m, h, L.exp))
  \/ p.g = "exp" /\ KeepsChanges /\ \E x \in Ours(m.main) : x.u > 0
  \/ /\ p.g \in {"attach", "attach1"}
     /\ CASE AttachBy = "nothing" -> FALSE
          [] AttachBy = "path" -> sn[m.main].ents \cap Back(p, m) # {}
          [] OTHER -> \/ ~Sure(m, h)
                      \/ sn[m.main].ents \cap Back(p, m) # {}
                      \/ AttachBy = "key" /\ Cardinality({x.v : x \in Ours(m.main) \cup Back(p, m)}) > 1
                      \/ AttachBy = "together" /\ ~Together(Back(p, m), Ours(m.main), m.main)
\* step 6: the key's files in main afterwards, and the branch `detached`
After(p, m) ==
  LET o == Ours(m.main) one == {x \in o : x.f = 1} IN
  CASE p.g \in Exports -> <<{New(p, f, 0) : f \in Files}, m.det>>
    [] p.g = "drop"    -> <<{}, m.det>>
    [] p.g = "drop1"   -> <<o \ one, m.det>>
    [] p.g = "detach"  -> <<{}, m.det \cup o>>
    [] p.g = "detach1" -> <<o \ one, m.det \cup one>>
    [] p.g \in {"attach", "attach1"} -> <<o \cup Back(p, m), m.det \ Back(p, m)>>
    [] p.g = "update"  -> <<(o \ one) \cup {[x EXCEPT !.fe = p.fe, !.u = @ + 1] : x \in one}, m.det>>
    [] p.g \in Anew    -> LET w == IF p.as > 0 \/ p.g = "anew" THEN o ELSE one IN <<(o \ w) \cup {[x EXCEPT !.fe = p.fe] : x \in w}, m.det>>

Ends(o, p, ans) ==      \* without an outcome; the row stays RUNNING
  /\ P' = [P EXCEPT ![o] = End(p, ans)] /\ lease' = Release(o)
  /\ UNCHANGED <<cat, req, nid, L, src, bud, gho>>
Settling(o, p, land) ==
  /\ P' = [P EXCEPT ![o] = [p EXCEPT !.pc = "settle", !.land = land, !.m = NoM]]
  /\ UNCHANGED <<cat, req, nid, L, lease, src, bud, gho>>

Look(o) ==
  /\ P[o].pc = "look"
  /\ LET p == P[o] m == p.m
         h == L.hist \cup (IF m.mk.e > 0 THEN {m.mk} ELSE {})
         after == After(p, m)
         land == [e |-> p.e, st |-> p.fe, g |-> p.g, v |-> IF p.as > 0 THEN p.as ELSE m.mk.v, as |-> p.as, sid |-> nid,
                  holds |-> IF p.g \in Anew /\ ~Sure(m, h) THEN Unknown ELSE after[1]]
         same == KnownBy = "content" /\ p.g \in Anew /\ p.as > 0 /\ m.mk.as = p.as
         again == Resume /\ m.mk.e > p.base /\ (m.mk.st = p.fe \/ same)
     IN
     IF p.fe \in L.stopped /\ (KilledBy = "word" \/ p.n = 0 \/ m.ctr # p.sent) /\ ~\E x \in h : x.st = p.fe
     THEN /\ P' = [P EXCEPT ![o] = End(p, "killed")] /\ lease' = Release(o)
          /\ UNCHANGED <<cat, req, nid, L, src, bud, gho>>
     ELSE IF L.e # p.e \/ L.st # "RUN" \/ m.mk.e > p.e
     THEN P' = [P EXCEPT ![o] = End(p, "superseded")] /\ UNCHANGED <<cat, req, nid, L, lease, src, bud, gho>>
     ELSE IF m.mk.e = p.e \/ again THEN Settling(o, p, m.mk)
     ELSE IF Refused(p, m, h) THEN Ends(o, p, "refused")
     ELSE IF p.n >= MaxAtt THEN Ends(o, p, "unknown")
     ELSE /\ req' = Alive(req \cup {[sid |-> nid, par |-> m.main, ctr |-> m.ctr, land |-> land, det0 |-> m.det, det |-> after[2],
                                     ents |-> (sn[m.main].ents \ Ours(m.main)) \cup after[1],
                                     same |-> p.g \in {"attach", "attach1"} /\ sn[m.main].ents \cap Back(p, m) # {}]}, ctr)
          /\ nid' = nid + 1 /\ L' = [L EXCEPT !.hist = h]          \* hole 14: noted before the mark is overwritten
          /\ P' = [P EXCEPT ![o] = [p EXCEPT !.pc = "wait", !.n = @ + 1, !.sent = m.ctr, !.land = land, !.m = NoM]]
          /\ UNCHANGED <<cat, lease, src, bud, gho>>

Answer(o) ==     \* of the catalog: that it was applied; or anything, and it may be applied later
  /\ P[o].pc = "wait"
  /\ LET p == P[o] s == p.land.sid
         refused == s \notin DOMAIN sn /\ \A r \in req : r.sid = s => main # r.par IN
     \/ s \in DOMAIN sn /\ P' = [P EXCEPT ![o].pc = "settle"] /\ UNCHANGED bud
     \/ refused /\ P' = [P EXCEPT ![o].pc = "load"] /\ UNCHANGED bud
     \/ /\ ~refused /\ bud.lost > 0 /\ bud' = [bud EXCEPT !.lost = @ - 1]
        /\ P' = [P EXCEPT ![o].pc = "load"]
  /\ UNCHANGED <<cat, req, nid, L, lease, src, gho>>

Settle(o) ==     \* step 8
  /\ P[o].pc = "settle"
  /\ LET p == P[o] IN
     IF L.e = p.e /\ L.st = "RUN"
     THEN /\ L' = Settled(L, p.land)
          /\ lease' = Release(o) /\ P' = [P EXCEPT ![o] = End(p, "done")]
          /\ viol' = viol \cup IF p.g \in Anew /\ p.land.g # p.g THEN {"not-anew"} ELSE {}
     ELSE P' = [P EXCEPT ![o] = End(p, "superseded")] /\ UNCHANGED <<L, lease, viol>>
  /\ UNCHANGED <<cat, req, nid, src, bud, maxA, moved, asked>>

(* Who takes files away stops who writes them anew, waits for its lease, and passes it over *)
GivesWay == Anew \cup {"update"}
Stop(o, g) ==
  /\ P[o].pc = "idle" /\ g \in Jobs[o] \cap {"drop", "drop1", "detach", "detach1"} /\ bud.stop > 0
  /\ lease # None /\ L.st = "RUN" /\ L.g \in GivesWay /\ P[lease].e = L.e
  /\ L' = [L EXCEPT !.e = @ + 1, !.stopped = @ \cup {L.fe}] /\ bud' = [bud EXCEPT !.stop = @ - 1]
  /\ UNCHANGED <<cat, req, nid, lease, src, P, gho>>
PassOver == /\ lease # None /\ P[lease].fe \in L.stopped /\ lease' = None
            /\ UNCHANGED <<cat, req, nid, L, src, P, bud, gho>>

Step(o) == Load(o) \/ Look(o) \/ Answer(o) \/ Settle(o)

-----------------------------------------------------------------------------
(* The catalog, and the others *)
Moves(r) == r.det # r.det0
Apply(r) ==
  /\ main = r.par /\ r.ctr = ctr
  /\ sn' = (r.sid :> [par |-> r.par, ents |-> r.ents]) @@ sn
  /\ main' = r.sid /\ ctr' = ctr + 1 /\ req' = {} /\ mk' = r.land
  /\ det' = IF Moves(r) THEN r.det ELSE det
  /\ maxA' = IF r.land.e > maxA THEN r.land.e ELSE maxA
  /\ viol' = viol \cup (IF r.land.e < maxA THEN {"old-over-new"} ELSE {})
                  \cup (IF \E o \in Owners : P[o].ans = "killed" /\ P[o].e = r.land.e THEN {"killed"} ELSE {})
                  \cup (IF r.same THEN {"same-path"} ELSE {})
                  \cup (IF r.land.g = "exp" /\ \E x \in sn[main].ents : x.u > 0 /\ x \notin r.ents THEN {"undone"} ELSE {})
                  \cup (IF r.land.g \in {"detach", "detach1", "attach", "attach1"} /\ \E f \in Files :
                             Count(sn[main].ents \cup det, f) # Count(r.ents \cup det', f) THEN {"lost"} ELSE {})
  /\ UNCHANGED <<nid, L, lease, src, P, bud, moved, asked>>
FCompact == \E s \in SUBSET Ours(main) \ {{}} :
  /\ bud.comp > 0 /\ bud' = [bud EXCEPT !.comp = @ - 1]
  /\ sn' = (nid :> [par |-> main, ents |-> (sn[main].ents \ s) \cup {[x EXCEPT !.c = TRUE] : x \in s}]) @@ sn
  /\ main' = nid /\ nid' = nid + 1 /\ ctr' = ctr + 1 /\ req' = {}
  /\ UNCHANGED <<det, mk, L, lease, src, P, gho>>
FMove == \E s \in DOMAIN sn \ {main} : /\ bud.rb > 0 /\ bud' = [bud EXCEPT !.rb = @ - 1] /\ main' = s /\ moved' = L.e
                                       /\ UNCHANGED <<det, sn, ctr, mk, req, nid, L, lease, src, P, maxA, asked, viol>>
SrcChange == /\ bud.src > 0 /\ bud' = [bud EXCEPT !.src = @ - 1] /\ src' = src + 1
             /\ UNCHANGED <<cat, req, nid, L, lease, P, gho>>
LeaseExpire == /\ bud.lease > 0 /\ lease # None /\ bud' = [bud EXCEPT !.lease = @ - 1] /\ lease' = None
               /\ UNCHANGED <<cat, req, nid, L, src, P, gho>>

Over == (\A o \in Owners : P[o].pc \in {"idle", "end"}) /\ UNCHANGED vars
Next == \/ \E o \in Owners : Step(o) \/ \E g \in Jobs[o] : Start(o, g) \/ Stop(o, g)
        \/ \E r \in req : Apply(r)
        \/ FCompact \/ FMove \/ SrcChange \/ LeaseExpire \/ PassOver \/ Over
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
NoTwice == \A s \in DOMAIN sn : \A f \in Files : Count(sn[s].ents, f) <= 1
NoViolation == viol = {}       \* old-over-new, same-path, undone, lost, not-anew, killed
\* COMPLETED: main has the files that the statement left, also where others have rewritten them since, unless main was moved
Seen(xs) == {[x EXCEPT !.c = FALSE] : x \in xs}
Completed == (L.st = "DONE" /\ L.done.e > moved /\ L.done.holds # Unknown) => Seen(sn[main].ents) = L.done.holds
\* an UPDATE is made as often as it was asked for, however often its command was run again
Once == \A x \in sn[main].ents : x.u <= asked
\* what is told as an export is in main whole, with its content, and no UPDATE has changed it
Told == Whole(Catalog, L.hist, L.exp) => Numbers(sn[main].ents) = Files /\ \A x \in sn[main].ents : x.v = L.exp.as /\ x.u = 0

\* not properties: each must be violated, so that the runs above are not empty
NeverAttached == ~(L.st = "DONE" /\ L.done.g = "attach" /\ L.done.holds # {})
NeverUpdated == \A x \in sn[main].ents : x.u = 0
NeverLike == ~(mk.as > 0 /\ mk.g \in Anew)
NeverKilled == \A o \in Owners : P[o].ans # "killed"
NeverRefused == \A o \in Owners : P[o].ans # "refused"

\* who may run what
JobsPart == [o \in Owners |-> IF o = "o1" THEN {"exp"} ELSE IF o = "o2" THEN {"drop1", "detach1"} ELSE {"force", "attach"}]
JobsAttach == [o \in Owners |-> IF o = "o1" THEN {"exp"} ELSE IF o = "o2" THEN {"detach", "detach1"} ELSE IF o = "o3" THEN {"exp", "force"} ELSE {"attach", "attach1"}]
JobsForms == [o \in Owners |-> IF o = "o1" THEN {"exp"} ELSE IF o = "o2" THEN {"update"} ELSE IF o = "o3" THEN {"detach", "detach1"} ELSE {"detach", "attach", "attach1"}]
JobsUpdate == [o \in Owners |-> IF o = "o1" THEN {"exp"} ELSE IF o = "o4" THEN {"exp", "force"} ELSE {"update"}]
JobsDrop == [o \in Owners |-> IF o = "o1" THEN {"exp"} ELSE IF o = "o2" THEN {"drop", "drop1", "detach"} ELSE {"exp", "force", "update"}]
JobsAnew == [o \in Owners |-> IF o = "o1" THEN {"exp"} ELSE IF o = "o2" THEN {"update", "drop1"} ELSE {"anew", "anew1", "exp"}]
JobsAnewTwo == [o \in Owners |-> IF o = "o1" THEN {"exp"} ELSE IF o = "o2" THEN {"anew", "force"} ELSE {"anew1"}]
JobsStop == [o \in Owners |-> IF o = "o1" THEN {"exp"} ELSE IF o = "o2" THEN {"anew", "update"} ELSE {"drop", "drop1"}]
=============================================================================
