--------------------------------- MODULE Late ---------------------------------
(* Late rows of an archived partition, beside exports and exports unarchive.   *)
(* Two keys: "base", which is archived and has content 1, and "late", the next *)
(* increment. The source has content 2. An export reads the mark of base and   *)
(* writes the first key that is not archived. Its commit loop is Owner.tla's,  *)
(* made smaller: main is one content for each key, a mark the epoch that       *)
(* landed last. Nobody needs a lease here: a lease proves nothing.             *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Owners, Jobs,         \* Jobs[o]: set of goals; an owner runs one of them, once
  MaxAtt, NLost,        \* commit attempts per owner; responses that say nothing
  (* the rules *)
  CommitLooks,          \* in every turn, a commit of late rows looks whether base is archived
  EndsFirst,            \* unarchive first notes that the mark ends: nobody exports either key meanwhile
  LooksAgain            \* then it looks at the row of the late rows once more

None == "none"
Row0 == [ver |-> 0, e |-> 0, st |-> "NONE", v |-> 0, arch |-> "no"]
Idle == [pc |-> "idle", g |-> None, k |-> None, e |-> 0, row |-> Row0, seen |-> Row0, ctr |-> 0, mk |-> 0, n |-> 0, sid |-> 0, ans |-> None]

VARIABLES main, ctr, mk, req, nid, landed,  \* the lake: content and mark by key, sequence number, requests under way
          L, P, bud                         \* ledger rows by key, owners, what may still happen
cat == <<main, ctr, mk, req, nid, landed>>
vars == <<main, ctr, mk, req, nid, landed, L, P, bud>>

Init ==
  /\ main = [base |-> 1, late |-> 0] /\ ctr = 0 /\ mk = [base |-> 1, late |-> 0] /\ req = {} /\ nid = 1 /\ landed = {}
  /\ L = [base |-> [ver |-> 1, e |-> 1, st |-> "DONE", v |-> 1, arch |-> "yes"], late |-> Row0]
  /\ P = [o \in Owners |-> Idle] /\ bud = NLost

Go(o, p) == P' = [P EXCEPT ![o] = p]
End(o, ans) == Go(o, [Idle EXCEPT !.pc = "end", !.g = P[o].g, !.k = P[o].k, !.ans = ans])
Begin(o, g) == P[o].pc = "idle" /\ g \in Jobs[o]

-----------------------------------------------------------------------------
(* An export of content 2 *)
Decide(o) ==   \* the first key that is not archived; nothing while a mark ends
  /\ Begin(o, "exp")
  /\ IF L["base"].arch = "ends" THEN Go(o, [Idle EXCEPT !.pc = "end", !.g = "exp", !.ans = "refused"])
     ELSE LET k == IF L["base"].arch = "yes" THEN "late" ELSE "base"
          IN IF L[k].st = "DONE" /\ L[k].v = 2 THEN Go(o, [Idle EXCEPT !.pc = "end", !.g = "exp", !.ans = "unchanged"])
             ELSE Go(o, [Idle EXCEPT !.pc = "claim", !.g = "exp", !.k = k, !.row = L[k]])
  /\ UNCHANGED <<cat, L, bud>>
Claim(o) ==    \* by compare-and-set
  /\ P[o].pc = "claim"
  /\ LET p == P[o] IN
     IF L[p.k] # p.row THEN End(o, "in progress") /\ UNCHANGED L
     ELSE /\ L' = [L EXCEPT ![p.k].ver = @ + 1, ![p.k].e = @ + 1, ![p.k].st = "RUN", ![p.k].v = 2]
          /\ Go(o, [p EXCEPT !.pc = "load", !.e = L[p.k].e + 1])
  /\ UNCHANGED <<cat, bud>>
Load(o) ==
  /\ P[o].pc = "load" /\ Go(o, [P[o] EXCEPT !.pc = "look", !.ctr = ctr, !.mk = mk[P[o].k]])
  /\ UNCHANGED <<cat, L, bud>>
Look(o) ==     \* the ledger is read after the metadata
  /\ P[o].pc = "look"
  /\ LET p == P[o] IN
     IF L[p.k].e # p.e \/ L[p.k].st # "RUN" THEN End(o, "superseded") /\ UNCHANGED <<cat, L>>
     ELSE IF p.mk = p.e THEN Go(o, [p EXCEPT !.pc = "settle"]) /\ UNCHANGED <<cat, L>>
     ELSE IF p.n >= MaxAtt THEN End(o, "unknown") /\ UNCHANGED <<cat, L>>
     ELSE IF (p.k = "late" /\ CommitLooks /\ L["base"].arch # "yes") \/ (p.k = "base" /\ L["base"].arch # "no")
          THEN End(o, "refused") /\ UNCHANGED <<cat, L>>
     ELSE /\ req' = {r \in req : r.ctr = ctr} \cup {[sid |-> nid, ctr |-> p.ctr, e |-> p.e, k |-> p.k]}
          /\ nid' = nid + 1 /\ Go(o, [p EXCEPT !.pc = "wait", !.n = @ + 1, !.sid = nid])
          /\ UNCHANGED <<main, ctr, mk, landed, L>>
  /\ UNCHANGED bud
Answer(o) ==
  /\ P[o].pc = "wait"
  /\ LET p == P[o] in == p.sid \in landed IN
     \/ in /\ Go(o, [p EXCEPT !.pc = "settle"]) /\ UNCHANGED bud
     \/ ~in /\ p.ctr # ctr /\ Go(o, [p EXCEPT !.pc = "load"]) /\ UNCHANGED bud
     \/ bud > 0 /\ bud' = bud - 1 /\ Go(o, [p EXCEPT !.pc = "load"])
  /\ UNCHANGED <<cat, L>>
Settle(o) ==
  /\ P[o].pc = "settle"
  /\ LET p == P[o] mine == L[p.k].e = p.e /\ L[p.k].st = "RUN" IN
     /\ L' = IF mine THEN [L EXCEPT ![p.k].ver = @ + 1, ![p.k].st = "DONE"] ELSE L
     /\ End(o, IF mine THEN "done" ELSE "superseded")
  /\ UNCHANGED <<cat, bud>>

-----------------------------------------------------------------------------
(* exports unarchive of base, while main has no rows of late *)
Ask(o) ==      \* what the user is shown
  /\ Begin(o, "unarchive")
  /\ IF L["base"].arch = "no" \/ main["late"] # 0 \/ L["late"].st = "RUN"
     THEN Go(o, [Idle EXCEPT !.pc = "end", !.g = "unarchive", !.ans = "refused"])
     ELSE Go(o, [Idle EXCEPT !.pc = "before", !.g = "unarchive", !.row = L["base"], !.seen = L["late"]])
  /\ UNCHANGED <<cat, L, bud>>
Before(o) ==   \* nothing has come since
  /\ P[o].pc = "before"
  /\ IF L["late"] # P[o].seen THEN End(o, "refused") ELSE Go(o, [P[o] EXCEPT !.pc = "ends"])
  /\ UNCHANGED <<cat, L, bud>>
Ends(o) ==
  /\ P[o].pc = "ends"
  /\ LET p == P[o] IN
     IF L["base"] # p.row THEN End(o, "refused") /\ UNCHANGED L
     ELSE /\ L' = [L EXCEPT !["base"].ver = @ + 1, !["base"].arch = IF EndsFirst THEN "ends" ELSE "no"]
          /\ Go(o, [p EXCEPT !.pc = IF LooksAgain THEN "again" ELSE "free", !.row = L'["base"]])
  /\ UNCHANGED <<cat, bud>>
Again(o) ==    \* late rows came in between: the mark is set again, by compare-and-set
  /\ P[o].pc = "again"
  /\ LET p == P[o] IN
     IF L["late"] = p.seen THEN Go(o, [p EXCEPT !.pc = "free"]) /\ UNCHANGED L
     ELSE /\ L' = IF L["base"] = p.row THEN [L EXCEPT !["base"].ver = @ + 1, !["base"].arch = "yes"] ELSE L
          /\ End(o, "refused")
  /\ UNCHANGED <<cat, bud>>
Free(o) ==
  /\ P[o].pc = "free"
  /\ LET p == P[o] IN
     IF L["base"] # p.row THEN End(o, "refused") /\ UNCHANGED L
     ELSE L' = [L EXCEPT !["base"].ver = @ + 1, !["base"].arch = "no"] /\ End(o, "unarchived")
  /\ UNCHANGED <<cat, bud>>
Dies(o) ==     \* unarchive, between any two steps
  /\ P[o].pc \in {"before", "ends", "again", "free"} /\ End(o, "died") /\ UNCHANGED <<cat, L, bud>>

Step(o) == Decide(o) \/ Claim(o) \/ Load(o) \/ Look(o) \/ Answer(o) \/ Settle(o)
           \/ Ask(o) \/ Before(o) \/ Ends(o) \/ Again(o) \/ Free(o) \/ Dies(o)

-----------------------------------------------------------------------------
Apply(r) ==
  /\ r.ctr = ctr /\ main' = [main EXCEPT ![r.k] = 2] /\ ctr' = ctr + 1 /\ mk' = [mk EXCEPT ![r.k] = r.e]
  /\ req' = {} /\ landed' = landed \cup {r.sid} /\ UNCHANGED <<nid, L, P, bud>>

Over == (\A o \in Owners : P[o].pc \in {"idle", "end"}) /\ UNCHANGED vars
Next == \/ \E o \in Owners : Step(o)
        \/ \E r \in req : Apply(r)
        \/ Over
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
Once == ~(main["base"] = 2 /\ main["late"] = 2)     \* no rows are there twice

\* not properties: each must be violated, so that the runs above are not empty
NeverLate == main["late"] = 0
NeverReplaced == main["base"] = 1
NeverHeld == \A o \in Owners : ~(P[o].g = "unarchive" /\ P[o].ans = "refused")

\* who may run what
JobsLate == [o \in Owners |-> IF o = "o3" THEN {"unarchive"} ELSE {"exp"}]
JobsTwo == [o \in Owners |-> IF o \in {"o3", "o4"} THEN {"unarchive"} ELSE {"exp"}]
=============================================================================
