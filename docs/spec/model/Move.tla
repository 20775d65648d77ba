-------------------------------- MODULE Move --------------------------------
(* MOVE PARTITION ... TO TABLE: one key, two tables, "s" where the rows are    *)
(* and "d" where they go; two commits, no catalog takes both in one            *)
(* (docs/decisions/0013). Beside it an export into either table, DROP there,   *)
(* and a second run that finishes a MOVE or gives it up. What one table's loop *)
(* does is Statement.tla's, made smaller: a fence is one step, content is      *)
(* known by the transaction that wrote it.                                     *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Owners, Jobs,         \* Jobs[o]: set of goals; an owner runs one of them, once
  MaxAtt,               \* commit attempts per owner and table
  NRb, NComp, NLease,   \* a main set to any snapshot, files rewritten by others, a lease expires
  NLost,                \* answers that say nothing, of requests that may still be applied
  (* the rules *)
  First,                \* which table is changed first: "d" | "s"
  ClaimsBoth,           \* the key of "s" is claimed, too, before anything is added
  Unfinished,           \* who finds the claim of a MOVE on the key: "refuses" | "passes" over it
  FencesHere,           \* what was sent to "s" before the claim cannot land any more when the addition is sent
  GivesUpBy,            \* the addition is given up by: "row" what the ledger says | "fence" nothing under way can land, either
  LooksHere,            \* who adds looks whether "s" has still what was copied
  TakesBy,              \* what leaves "s": "copied" the files that were copied | "key" all of the key
  LooksThere            \* who takes away looks whether "d" has them

None == "none"
Sides == {"s", "d"}
NoMk == [e |-> 0, st |-> 0]
Row0 == [e |-> 0, st |-> 0, state |-> "NONE", g |-> None, to |-> 0, copied |-> {}, hist |-> {}]
First0 == [st |-> 1, of |-> 1, c |-> FALSE]
Idle == [pc |-> "idle", g |-> None, x |-> None, e |-> 0, st |-> 0, es |-> 0, ed |-> 0, to |-> 0, copied |-> {}, seen |-> 0,
         m |-> NoMk, base |-> 0, ctr |-> 0, n |-> 0, sid |-> 0, ans |-> None]

VARIABLES main, sn, ctr, mk, req,   \* of each table; requests under way
          nid, ep,                  \* next snapshot id, the ledger's counter
          L, lease, P, bud,         \* rows and leases of both keys, owners, what may still happen
          gone, foreign, viol       \* for the invariants only: rows that may be nowhere; others have changed a main
cat == <<main, sn, ctr, mk, req>>
gho == <<gone, foreign, viol>>
vars == <<main, sn, ctr, mk, req, nid, ep, L, lease, P, bud, gone, foreign, viol>>

Init ==
  /\ main = [x \in Sides |-> IF x = "s" THEN 1 ELSE 0]
  /\ sn = [x \in Sides |-> IF x = "s" THEN (0 :> [par |-> 0, ents |-> {}]) @@ (1 :> [par |-> 0, ents |-> {First0}])
                                       ELSE (0 :> [par |-> 0, ents |-> {}])]
  /\ ctr = [x \in Sides |-> 0] /\ mk = [x \in Sides |-> NoMk] /\ req = [x \in Sides |-> {}]
  /\ nid = 2 /\ ep = 1
  /\ L = [x \in Sides |-> IF x = "s" THEN [Row0 EXCEPT !.e = 1, !.st = 1, !.state = "DONE", !.g = "exp", !.hist = {1}] ELSE Row0]
  /\ lease = [x \in Sides |-> None] /\ P = [o \in Owners |-> Idle]
  /\ bud = [rb |-> NRb, comp |-> NComp, lease |-> NLease, lost |-> NLost]
  /\ gone = {} /\ foreign = FALSE /\ viol = {}

Ents(x) == sn[x][main[x]].ents
Of(xs) == {f.of : f \in xs}
RECURSIVE Line(_, _)
Line(x, s) == IF s = 0 THEN {0} ELSE {s} \cup Line(x, sn[x][s].par)
Other(x) == IF x = "s" THEN "d" ELSE "s"
Release(o) == [x \in Sides |-> IF lease[x] = o THEN None ELSE lease[x]]
Free(xs) == \A x \in xs : lease[x] = None
Take(o, xs) == [x \in Sides |-> IF x \in xs THEN o ELSE lease[x]]
Open(x) == L[x].state = "RUN" /\ L[x].g = "move"     \* a MOVE that is not finished
End(o, ans) == P' = [P EXCEPT ![o] = [Idle EXCEPT !.pc = "end", !.g = P[o].g, !.ans = ans]] /\ lease' = Release(o)
Go(o, p) == P' = [P EXCEPT ![o] = p]
Landed(t) == t \in L["d"].hist \/ mk["d"].st = t
Moving == {"move"}

-----------------------------------------------------------------------------
(* Claims: an export or DROP of one table; a MOVE of both, there first         *)
Table(g) == IF g = "exp" THEN "s" ELSE "d"
Start(o, g) ==
  /\ P[o].pc = "idle" /\ g \in Jobs[o] \ Moving /\ Free({Table(g)})
  /\ LET x == Table(g) IN
     /\ x = "s" => L[x].g # "move" \/ (Unfinished = "passes" /\ Open(x))
     /\ ep' = ep + 1 /\ lease' = Take(o, {x})
     /\ L' = [L EXCEPT ![x].e = ep', ![x].st = ep', ![x].state = "RUN", ![x].g = g]
     /\ Go(o, [Idle EXCEPT !.pc = "load", !.g = g, !.x = x, !.e = ep', !.st = ep'])
  /\ UNCHANGED <<cat, nid, bud, gho>>

StartMove(o) ==
  /\ P[o].pc = "idle" /\ "move" \in Jobs[o] /\ Free(Sides)
  /\ lease' = Take(o, Sides)
  /\ IF Open("s")
     THEN /\ Go(o, [Idle EXCEPT !.pc = "again", !.g = "move", !.to = L["s"].to, !.copied = L["s"].copied, !.seen = L["s"].e])
          /\ UNCHANGED <<ep, L>>
     ELSE /\ Ents("s") # {} /\ (\A f \in Ents("s") : ~f.c)    \* known, and planned for these files
          /\ ep' = ep + 1
          /\ L' = [L EXCEPT !["d"].e = ep', !["d"].st = ep', !["d"].state = "RUN", !["d"].g = "add"]
          /\ Go(o, [Idle EXCEPT !.pc = "claim", !.g = "move", !.to = ep', !.ed = ep', !.copied = Ents("s"), !.seen = L["s"].e])
  /\ UNCHANGED <<cat, nid, bud, gho>>

Begin(p) == IF First = "d" THEN [p EXCEPT !.pc = "load", !.x = "d", !.e = p.ed, !.st = p.to]
                           ELSE [p EXCEPT !.pc = "load", !.x = "s", !.e = p.es, !.st = p.es]
ClaimHere(o) ==
  /\ P[o].pc = "claim"
  /\ LET p == P[o] IN
     IF ~ClaimsBoth THEN Go(o, Begin(p)) /\ UNCHANGED <<ep, L, lease>>
     ELSE IF L["s"].e # p.seen THEN End(o, "again") /\ UNCHANGED <<ep, L>>
     ELSE /\ ep' = ep + 1 /\ UNCHANGED lease
          /\ L' = [L EXCEPT !["s"] = [@ EXCEPT !.e = ep', !.st = ep', !.state = "RUN", !.g = "move", !.to = p.to, !.copied = p.copied]]
          /\ Go(o, IF L["s"].state = "RUN" /\ FencesHere THEN [p EXCEPT !.es = ep', !.pc = "fence"] ELSE Begin([p EXCEPT !.es = ep']))
  /\ UNCHANGED <<cat, nid, bud, gho>>

(* An empty commit: what was sent to x before cannot land any more *)
Fence(x) ==
  /\ sn' = [sn EXCEPT ![x] = (nid :> [par |-> main[x], ents |-> Ents(x)]) @@ @]
  /\ main' = [main EXCEPT ![x] = nid] /\ nid' = nid + 1 /\ ctr' = [ctr EXCEPT ![x] = @ + 1] /\ req' = [req EXCEPT ![x] = {}]
FenceHere(o) ==
  /\ P[o].pc = "fence" /\ Fence("s") /\ Go(o, Begin(P[o]))
  /\ UNCHANGED <<mk, ep, L, lease, bud, gho>>

-----------------------------------------------------------------------------
(* A MOVE that somebody began: finished where it has landed, else given up     *)
AgainHere(o) ==
  /\ P[o].pc = "again"
  /\ LET p == P[o] IN
     IF L["s"].e # p.seen \/ ~Open("s") THEN End(o, "superseded") /\ UNCHANGED <<ep, L>>
     ELSE /\ ep' = ep + 1 /\ L' = [L EXCEPT !["s"].e = ep'] /\ UNCHANGED lease
          /\ Go(o, [p EXCEPT !.pc = "again-d", !.es = ep', !.st = L["s"].st])
  /\ UNCHANGED <<cat, nid, bud, gho>>
Ours(p) == L["d"].state = "RUN" /\ L["d"].st = p.to
AgainThere(o) ==
  /\ P[o].pc = "again-d"
  /\ IF Ours(P[o]) THEN ep' = ep + 1 /\ L' = [L EXCEPT !["d"].e = ep'] ELSE UNCHANGED <<ep, L>>
  /\ Go(o, [P[o] EXCEPT !.pc = "again-look", !.ed = ep'])
  /\ UNCHANGED <<cat, nid, lease, bud, gho>>
AgainLook(o) ==
  /\ P[o].pc = "again-look"
  /\ LET p == P[o] IN
     IF Landed(p.to)
     THEN /\ L' = IF Ours(p) THEN [L EXCEPT !["d"].state = "DONE", !["d"].hist = @ \cup {p.to}] ELSE L
          /\ Go(o, [p EXCEPT !.pc = "load", !.x = "s", !.e = p.es]) /\ UNCHANGED <<cat, nid>>
     ELSE /\ IF GivesUpBy = "fence" THEN Fence("d") /\ UNCHANGED mk ELSE UNCHANGED <<cat, nid>>
          /\ Go(o, [p EXCEPT !.pc = "give"]) /\ UNCHANGED L
  /\ UNCHANGED <<ep, lease, bud, gho>>
Give(o) ==
  /\ P[o].pc = "give"
  /\ LET p == P[o] IN
     IF Landed(p.to) THEN Go(o, [p EXCEPT !.pc = "again-look"]) /\ UNCHANGED <<L, lease>>
     ELSE IF L["s"].e # p.es THEN End(o, "superseded") /\ UNCHANGED L
     ELSE /\ L' = [L EXCEPT !["d"].state = IF Ours(p) THEN "KILLED" ELSE @, !["s"].state = "KILLED", !["s"].g = None]
          /\ End(o, "given up")
  /\ UNCHANGED <<cat, nid, ep, bud, gho>>

-----------------------------------------------------------------------------
(* The commit loop on table p.x *)
Load(o) ==
  /\ P[o].pc = "load"
  /\ Go(o, [P[o] EXCEPT !.pc = "look", !.m = mk[P[o].x], !.base = main[P[o].x], !.ctr = ctr[P[o].x]])
  /\ UNCHANGED <<cat, nid, ep, L, lease, bud, gho>>

Next1(p) ==     \* what comes after the commit on p.x has landed and is settled; none: it is done
  IF p.g # "move" \/ p.x = (IF First = "d" THEN "s" ELSE "d") THEN None ELSE Other(p.x)
After(p) == LET there == sn[p.x][p.base].ents IN
  CASE p.g \in {"exp", "expd"} -> {[st |-> p.st, of |-> p.st, c |-> FALSE]}
    [] p.g = "drop" -> {}
    [] p.x = "d" -> there \cup {[st |-> p.to, of |-> f.of, c |-> FALSE] : f \in p.copied}
    [] OTHER -> IF TakesBy = "copied" THEN there \ p.copied ELSE {}
Refused(p) == LET there == sn[p.x][p.base].ents IN
  IF p.g = "move" THEN p.x = "d" /\ there # {} ELSE \E f \in there : f.c
Both(p) ==      \* it is in "d", and cannot be taken away here
  /\ p.g = "move" /\ p.x = "s"
  /\ \/ TakesBy = "copied" /\ sn["s"][p.base].ents # p.copied
     \/ LooksThere /\ \A a \in Line("d", main["d"]) : \A f \in sn["d"][a].ents : f.st # p.to

Look(o) ==
  /\ P[o].pc = "look"
  /\ LET p == P[o] x == p.x
         known == L[x].hist \cup (IF p.m.st > 0 THEN {p.m.st} ELSE {})
         mine == L[x].e = p.e /\ L[x].state = "RUN"
         here == (p.g = "move" /\ x = "d" /\ ClaimsBoth) => (L["s"].e = p.es /\ L["s"].state = "RUN")
         bare == p.g = "move" /\ x = "s" /\ ~ClaimsBoth
     IN
     IF ~here \/ (~bare /\ (~mine \/ p.m.e > p.e))
     THEN End(o, "superseded") /\ UNCHANGED <<cat, nid, L>>
     ELSE IF p.m.st = p.st THEN Go(o, [p EXCEPT !.pc = "settle"]) /\ UNCHANGED <<cat, nid, L, lease>>
     ELSE IF p.g = "move" /\ x = "d" /\ LooksHere /\ Ents("s") # p.copied THEN End(o, "again") /\ UNCHANGED <<cat, nid, L>>
     ELSE IF Both(p) THEN End(o, "both") /\ UNCHANGED <<cat, nid, L>>
     ELSE IF Refused(p) THEN End(o, "refused") /\ UNCHANGED <<cat, nid, L>>
     ELSE IF p.n >= MaxAtt THEN End(o, "unknown") /\ UNCHANGED <<cat, nid, L>>
     ELSE /\ req' = [req EXCEPT ![x] = {r \in @ \cup {[sid |-> nid, par |-> p.base, ctr |-> p.ctr, e |-> p.e, st |-> p.st, g |-> p.g,
                                                         ents |-> After(p), copied |-> p.copied, rb |-> bud.rb]} : r.ctr = ctr[x]}]
          /\ nid' = nid + 1 /\ L' = [L EXCEPT ![x].hist = known]
          /\ Go(o, [p EXCEPT !.pc = "wait", !.n = @ + 1, !.sid = nid])
          /\ UNCHANGED <<main, sn, ctr, mk, lease>>
  /\ UNCHANGED <<ep, bud, gho>>

Answer(o) ==
  /\ P[o].pc = "wait"
  /\ LET p == P[o] x == p.x
         in == p.sid \in DOMAIN sn[x]
         refused == ~in /\ \A r \in req[x] : r.sid = p.sid => main[x] # r.par IN
     \/ in /\ Go(o, [p EXCEPT !.pc = "settle"]) /\ UNCHANGED bud
     \/ refused /\ Go(o, [p EXCEPT !.pc = "load"]) /\ UNCHANGED bud
     \/ ~refused /\ bud.lost > 0 /\ bud' = [bud EXCEPT !.lost = @ - 1] /\ Go(o, [p EXCEPT !.pc = "load"])
  /\ UNCHANGED <<cat, nid, ep, L, lease, gho>>

Settle(o) ==
  /\ P[o].pc = "settle"
  /\ LET p == P[o] x == p.x n == Next1(p) mine == L[x].e = p.e /\ L[x].state = "RUN" IN
     /\ L' = IF mine THEN [L EXCEPT ![x].state = "DONE", ![x].hist = @ \cup {p.st}] ELSE L
     /\ IF n # None THEN Go(o, [p EXCEPT !.pc = "load", !.x = n, !.n = 0, !.e = IF n = "s" THEN p.es ELSE p.ed,
                                         !.st = IF n = "s" THEN p.es ELSE p.to]) /\ UNCHANGED lease
        ELSE End(o, IF mine THEN "done" ELSE "superseded")
  /\ UNCHANGED <<cat, nid, ep, bud, gho>>

Step(o) == \/ ClaimHere(o) \/ FenceHere(o) \/ AgainHere(o) \/ AgainThere(o) \/ AgainLook(o) \/ Give(o)
           \/ Load(o) \/ Look(o) \/ Answer(o) \/ Settle(o)

-----------------------------------------------------------------------------
(* The catalog, and the others *)
Apply(x, r) ==
  /\ main[x] = r.par /\ r.ctr = ctr[x]
  /\ LET was == Ents(x) out == was \ r.ents IN
     /\ sn' = [sn EXCEPT ![x] = (r.sid :> [par |-> r.par, ents |-> r.ents]) @@ @]
     /\ main' = [main EXCEPT ![x] = r.sid] /\ ctr' = [ctr EXCEPT ![x] = @ + 1] /\ req' = [req EXCEPT ![x] = {}]
     /\ mk' = [mk EXCEPT ![x] = [e |-> r.e, st |-> r.st]]
     \* what an export replaced or DROP took may be nowhere; what MOVE took here, when main there was moved since it looked
     /\ gone' = IF r.g # "move" \/ bud.rb # r.rb THEN gone \cup Of(out) ELSE gone
     /\ viol' = viol \cup (IF r.e < mk[x].e THEN {"old-over-new"} ELSE {})
                     \cup (IF r.g = "move" /\ x = "s" /\ ~(out \subseteq r.copied) THEN {"others"} ELSE {})
  /\ UNCHANGED <<nid, ep, L, lease, P, bud, foreign>>
FComp ==
  /\ bud.comp > 0 /\ Ents("s") # {} /\ bud' = [bud EXCEPT !.comp = @ - 1]
  /\ sn' = [sn EXCEPT !["s"] = (nid :> [par |-> main["s"], ents |-> {[f EXCEPT !.c = TRUE] : f \in Ents("s")}]) @@ @]
  /\ main' = [main EXCEPT !["s"] = nid] /\ nid' = nid + 1 /\ ctr' = [ctr EXCEPT !["s"] = @ + 1] /\ req' = [req EXCEPT !["s"] = {}]
  /\ foreign' = TRUE /\ UNCHANGED <<mk, ep, L, lease, P, gone, viol>>
FMove == \E x \in Sides : \E s \in DOMAIN sn[x] \ {main[x]} :
  /\ bud.rb > 0 /\ bud' = [bud EXCEPT !.rb = @ - 1] /\ main' = [main EXCEPT ![x] = s]
  /\ gone' = gone \cup ((Of(Ents(x)) \ Of(sn[x][s].ents)) \ Of(Ents(Other(x))))
  /\ foreign' = TRUE /\ UNCHANGED <<sn, ctr, mk, req, nid, ep, L, lease, P, viol>>
LeaseExpire == \E x \in Sides :
  /\ bud.lease > 0 /\ lease[x] # None /\ bud' = [bud EXCEPT !.lease = @ - 1]
  /\ lease' = Release(lease[x]) /\ UNCHANGED <<cat, nid, ep, L, P, gho>>

Over == (\A o \in Owners : P[o].pc \in {"idle", "end"}) /\ UNCHANGED vars
Next == \/ \E o \in Owners : Step(o) \/ StartMove(o) \/ \E g \in Jobs[o] : Start(o, g)
        \/ \E x \in Sides : \E r \in req[x] : Apply(x, r)
        \/ FComp \/ FMove \/ LeaseExpire \/ Over
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
NoTwice == \A x \in Sides : \A s \in DOMAIN sn[x] : Cardinality(sn[x][s].ents) <= 1
NoViolation == viol = {}       \* old-over-new; others: what was not copied was taken away
NotNeither == 1 \in Of(Ents("s")) \cup Of(Ents("d")) \cup gone
\* in both only while a MOVE is noted that is not finished
NotBoth == foreign \/ Open("s") \/ Of(Ents("s")) \cap Of(Ents("d")) = {}
\* what ended without taking away ended so because of others
NeverStuck == foreign \/ \A o \in Owners : P[o].ans # "both"
Completed == foreign \/ ((L["s"].state = "DONE" /\ L["s"].g = "move") => Ents("s") = {})

\* not properties: each must be violated, so that the runs above are not empty
NeverMoved == ~(L["s"].state = "DONE" /\ L["s"].g = "move")
NeverFinished == \A o \in Owners : ~(P[o].pc = "settle" /\ P[o].x = "s" /\ P[o].st < P[o].e)
NeverGivenUp == \A o \in Owners : P[o].ans # "given up"
NeverBoth == \A o \in Owners : P[o].ans # "both"

\* who may run what
JobsMove == [o \in Owners |-> IF o = "o3" THEN {"exp", "expd", "drop"} ELSE {"move"}]
JobsTwo == [o \in Owners |-> {"move"}]
=============================================================================
