-------------------------------- MODULE Group --------------------------------
(* One commit of several keys, each with its own mark and its own ledger row:  *)
(* steps 2 to 6 and 8 hold per key. A key that is superseded, was killed or    *)
(* has landed leaves the group, and the rest is staged anew. The catalog, its  *)
(* fence and its late requests are those of Export.tla; what is left out here  *)
(* (resume, compaction, expiry, put-back ledgers) is there.                    *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Owners, Keys, Jobs,   \* Jobs[o]: set of <<set of keys, goal>>, goal "exp" or "kill"; an owner runs one of them, once
  MaxAtt,               \* commit attempts per owner
  NApp, NRb, NSrc, NLease,   \* foreign append, main moved to any live snapshot, the source changes, a lease expires
  (* the rules *)
  SettleBy,             \* a key has landed when "mark" the table carries its own mark | "any" key of the group has its mark there | "group" there is a snapshot of a group that had the key
  Leave,                \* a key that is not ours any more leaves the group | FALSE: only the first key is looked at
  Anew,                 \* what is left is staged anew | FALSE: what was staged before is sent again
  KillBy                \* KILLED needs the death of "old": all that older epochs sent | "own": what the killer itself sent | "key": what was sent for this key alone

None == "none"
NoMark == [e |-> 0, v |-> 0, sid |-> 0]
Row0 == [e |-> 0, st |-> "NONE", v |-> 0, done |-> NoMark, grps |-> {}]
Idle == [pc |-> "idle", g |-> None, ks |-> {}, e |-> [k \in Keys |-> 0], v |-> [k \in Keys |-> 0], m |-> [main |-> 0],
         c0 |-> 0, att |-> {}, n |-> 0, land |-> [k \in Keys |-> NoMark], ans |-> [k \in Keys |-> None]]

VARIABLES main, live, sn, ctr, mk, req, nid,   \* the table, requests under way
          L, lease, src,                       \* ledger rows, leases, content of the source
          P, del, bud,                         \* owners, removed data, what may still happen
          maxA, maxE, moved, failed, viol      \* for the invariants only
cat == <<main, live, sn, ctr, mk>>
led == <<L, lease, src>>
gho == <<maxA, maxE, moved, failed, viol>>
vars == <<main, live, sn, ctr, mk, req, nid, L, lease, src, P, del, bud, maxA, maxE, moved, failed, viol>>

Init ==
  /\ main = 0 /\ live = {0} /\ sn = (0 :> [par |-> 0, ents |-> {}, o |-> None]) /\ ctr = 0 /\ mk = [k \in Keys |-> NoMark]
  /\ req = {} /\ nid = 1
  /\ L = [k \in Keys |-> Row0] /\ lease = [k \in Keys |-> None] /\ src = [k \in Keys |-> 1]
  /\ P = [o \in Owners |-> Idle] /\ del = {}
  /\ bud = [app |-> NApp, rb |-> NRb, src |-> NSrc, lease |-> NLease]
  /\ maxA = [k \in Keys |-> 0] /\ maxE = [k \in Keys |-> 0] /\ moved = [k \in Keys |-> 0] /\ failed = [k \in Keys |-> 0] /\ viol = {}

RECURSIVE Anc(_, _)
Anc(s, lv) == IF s \notin lv THEN {} ELSE IF s = 0 THEN {0} ELSE {s} \cup Anc(sn[s].par, lv)
Rows(s, k) == {x \in sn[s].ents : x.k = k}
Catalog == [main |-> main, ctr |-> ctr, live |-> live, mk |-> mk]
Alive(rs, c) == {r \in rs : r.ctr = c}       \* the catalog refuses an old sequence number
First(ks) == CHOOSE k \in ks : TRUE

-----------------------------------------------------------------------------
(* An owner *)
Release(o, ks) == [k \in Keys |-> IF k \in ks /\ lease[k] = o THEN None ELSE lease[k]]

\* step 1, for the keys that are free: one compare-and-set each, here at one moment
Start(o, ks, g) ==
  /\ P[o].pc = "idle" /\ <<ks, g>> \in Jobs[o]
  /\ LET mine == {k \in ks : /\ lease[k] = None
                             /\ IF g = "kill" THEN L[k].st = "RUN" ELSE L[k].st # "DONE" \/ src[k] # L[k].done.v} IN
     /\ mine # {}
     /\ L' = [k \in Keys |-> IF k \in mine THEN [L[k] EXCEPT !.e = @ + 1, !.st = "RUN", !.v = src[k],
                                                               !.grps = IF SettleBy = "group" THEN @ \cup {o} ELSE {}] ELSE L[k]]
     /\ lease' = [k \in Keys |-> IF k \in mine THEN o ELSE lease[k]]
     /\ P' = [P EXCEPT ![o] = [Idle EXCEPT !.pc = "load", !.g = g, !.ks = mine, !.c0 = 99,
                !.e = [k \in Keys |-> IF k \in mine THEN L[k].e + 1 ELSE 0], !.v = [k \in Keys |-> IF k \in mine THEN src[k] ELSE 0]]]
     /\ maxE' = [k \in Keys |-> IF k \in mine THEN L[k].e + 1 ELSE maxE[k]]
  /\ UNCHANGED <<cat, req, nid, src, del, bud, maxA, moved, failed, viol>>

Load(o) ==
  /\ P[o].pc = "load"
  /\ P' = [P EXCEPT ![o].pc = "look", ![o].m = Catalog, ![o].c0 = IF @ = 99 THEN ctr ELSE @]
  /\ UNCHANGED <<cat, req, nid, led, del, bud, gho>>

Ended(p) == [Idle EXCEPT !.pc = "end", !.g = p.g, !.e = p.e, !.v = p.v, !.ans = p.ans]
Answered(p, ks, a) == [k \in Keys |-> IF k \in ks THEN a ELSE p.ans[k]]

\* step 4: the keys whose row or mark says that another claim has them
Lost(p, m) ==
  LET gone(k) == L[k].e # p.e[k] \/ L[k].st # "RUN" \/ m.mk[k].e > p.e[k] IN
  IF Leave THEN {k \in p.ks : gone(k)} ELSE IF gone(First(p.ks)) THEN p.ks ELSE {}
\* step 5: the keys that have landed, and the proof
OfGroups(m, k) == {t \in m.live : sn[t].o \in L[k].grps}
Marked(p, m) == {k \in p.ks : m.mk[k].e = p.e[k] \/ (m.mk[k].e > L[k].done.e /\ (p.g = "kill" \/ m.mk[k].v = p.v[k]))}
Landed(p, m) == CASE SettleBy = "mark" -> Marked(p, m)
                  [] SettleBy = "any" -> IF Marked(p, m) = {} THEN {} ELSE p.ks
                  [] SettleBy = "group" -> {k \in p.ks : OfGroups(m, k) # {}}
Proof(p, m, k) ==
  CASE SettleBy = "mark" -> m.mk[k]
    [] SettleBy = "any" -> [e |-> p.e[k], v |-> p.v[k], sid |-> m.mk[CHOOSE x \in Marked(p, m) : TRUE].sid]
    [] SettleBy = "group" -> [e |-> p.e[k], v |-> p.v[k], sid |-> CHOOSE t \in OfGroups(m, k) : TRUE]

\* step 6: what leaves main, and the marks that have done their duty
Removed(m, ks) == UNION {Rows(m.main, k) : k \in ks}
Done(m, ks) == {k \in Keys \ ks : m.mk[k].e > 0 /\ L[k].done.e >= m.mk[k].e}

Send(o, p, m, ks, kind) ==
  LET new == [sid |-> nid, o |-> IF kind = "exp" /\ SettleBy = "group" THEN o ELSE None, par |-> m.main, ctr |-> m.ctr, ks |-> IF kind = "exp" THEN ks ELSE {},
              e |-> p.e, v |-> p.v, rmk |-> IF kind = "exp" THEN Done(m, ks) ELSE {},
              ents |-> IF kind = "exp" THEN (sn[m.main].ents \ Removed(m, ks)) \cup {[k |-> k, e |-> p.e[k], v |-> p.v[k], sid |-> nid] : k \in ks}
                       ELSE sn[m.main].ents] IN
  /\ req' = Alive(req \cup {new}, ctr) /\ nid' = nid + 1
  /\ P' = [P EXCEPT ![o] = [p EXCEPT !.pc = "wait", !.ks = ks, !.n = @ + 1, !.att = @ \cup {[sid |-> nid, ctr |-> m.ctr, ks |-> new.ks]}]]

\* the same files and marks once more, on the main of now: what not to do
SendAgain(o, p, m) ==
  LET last == CHOOSE a \in p.att : \A b \in p.att : b.sid <= a.sid IN Send(o, p, m, last.ks, "exp")

\* the requests that must be dead before KILLED is written for k
DeadFor(p, m, k) ==
  CASE KillBy = "own" -> \A a \in p.att : m.ctr # a.ctr
    [] KillBy = "key" -> ~\E r \in req : r.ks = {k}
    [] KillBy = "old" -> m.ctr # p.c0 /\ \A a \in p.att : m.ctr # a.ctr

Look(o) ==
  /\ P[o].pc = "look"
  /\ LET p == P[o] m == p.m
         lost == Lost(p, m)
         land == Landed(p, m) \ lost
         rest == p.ks \ (lost \cup land)
         q == [p EXCEPT !.ans = Answered(p, lost, "superseded"), !.m = [main |-> 0]]
     IN
     IF land # {}        \* step 8, before anything else
     THEN /\ P' = [P EXCEPT ![o] = [q EXCEPT !.pc = "settle", !.ks = rest, !.land = [k \in Keys |-> IF k \in land THEN Proof(p, m, k) ELSE NoMark]]]
          /\ UNCHANGED <<cat, req, nid, led, del, bud, gho>>
     ELSE IF rest = {} THEN P' = [P EXCEPT ![o] = Ended(q)] /\ UNCHANGED <<cat, req, nid, led, del, bud, gho>>
     ELSE IF p.g = "kill" /\ \A k \in rest : DeadFor(p, m, k)
     THEN P' = [P EXCEPT ![o] = [q EXCEPT !.pc = "fail", !.ks = rest]] /\ UNCHANGED <<cat, req, nid, led, del, bud, gho>>
     ELSE IF p.n >= MaxAtt
     THEN /\ P' = [P EXCEPT ![o] = Ended([q EXCEPT !.ans = Answered(q, rest, "unknown")])]
          /\ lease' = Release(o, rest) /\ UNCHANGED <<cat, req, nid, L, src, del, bud, gho>>
     ELSE /\ IF p.g = "kill" THEN Send(o, q, m, rest, "fence")
             ELSE IF ~Anew /\ p.att # {} THEN SendAgain(o, q, m) ELSE Send(o, q, m, rest, "exp")
          /\ UNCHANGED <<cat, led, del, bud, gho>>

Answer(o) ==     \* of the catalog: anything; who gets a success looks as well
  /\ P[o].pc = "wait"
  /\ P' = [P EXCEPT ![o].pc = "load"]
  /\ UNCHANGED <<cat, req, nid, led, del, bud, gho>>

Settle(o) ==     \* step 8 for one key after the other; then what is left goes on
  /\ P[o].pc = "settle"
  /\ LET p == P[o]
         todo == {k \in Keys : p.land[k] # NoMark}
         k == First(todo)
         mine == L[k].e = p.e[k] /\ L[k].st = "RUN"
         q == [p EXCEPT !.land[k] = NoMark, !.ans[k] = IF mine THEN "done" ELSE "superseded"]
     IN /\ L' = IF mine THEN [L EXCEPT ![k] = [@ EXCEPT !.st = "DONE", !.done = p.land[k], !.grps = {}]] ELSE L
        /\ lease' = Release(o, {k})
        /\ P' = [P EXCEPT ![o] = IF todo # {k} THEN q ELSE IF p.ks = {} THEN Ended(q) ELSE [q EXCEPT !.pc = "load"]]
  /\ UNCHANGED <<cat, req, nid, src, del, bud, gho>>

Fail(o) ==       \* KILLED first, then the data goes
  /\ P[o].pc = "fail"
  /\ LET p == P[o]
         k == First(p.ks)
         mine == L[k].e = p.e[k] /\ L[k].st = "RUN"
         q == [p EXCEPT !.ks = @ \ {k}, !.ans[k] = IF mine THEN "killed" ELSE "superseded"]
     IN /\ L' = IF mine THEN [L EXCEPT ![k].st = "KILL"] ELSE L
        /\ failed' = IF mine THEN [failed EXCEPT ![k] = p.e[k]] ELSE failed
        /\ del' = IF mine THEN del \cup {<<k, e>> : e \in (1..p.e[k]) \ {x.e : x \in UNION {Rows(s, k) : s \in live}}} ELSE del
        /\ lease' = Release(o, {k})
        /\ P' = [P EXCEPT ![o] = IF q.ks = {} THEN Ended(q) ELSE q]
  /\ UNCHANGED <<cat, req, nid, src, bud, maxA, maxE, moved, viol>>

Step(o) == Load(o) \/ Look(o) \/ Answer(o) \/ Settle(o) \/ Fail(o)

-----------------------------------------------------------------------------
(* The catalog, and the others *)
Apply(r) ==
  /\ main = r.par /\ r.ctr = ctr /\ r.sid \notin live
  /\ sn' = (r.sid :> [par |-> r.par, ents |-> r.ents, o |-> r.o]) @@ sn
  /\ main' = r.sid /\ live' = live \cup {r.sid} /\ ctr' = ctr + 1 /\ req' = {}
  /\ mk' = [k \in Keys |-> IF k \in r.ks THEN [e |-> r.e[k], v |-> r.v[k], sid |-> r.sid] ELSE IF k \in r.rmk THEN NoMark ELSE mk[k]]
  /\ maxA' = [k \in Keys |-> IF k \in r.ks /\ r.e[k] > maxA[k] THEN r.e[k] ELSE maxA[k]]
  /\ viol' = viol \cup {<<"old-over-new", k>> : k \in {k \in r.ks : r.e[k] < maxA[k]}}
                  \cup {<<"landed-after-killed", k>> : k \in {k \in r.ks : r.e[k] <= failed[k]}}
  /\ UNCHANGED <<nid, led, P, del, bud, maxE, moved, failed>>
FAppend == /\ bud.app > 0 /\ bud' = [bud EXCEPT !.app = @ - 1]
           /\ sn' = (nid :> [par |-> main, ents |-> sn[main].ents, o |-> None]) @@ sn
           /\ main' = nid /\ live' = live \cup {nid} /\ nid' = nid + 1 /\ ctr' = ctr + 1 /\ req' = {}
           /\ UNCHANGED <<mk, led, P, del, gho>>
FMove == \E s \in live \ {main} : /\ bud.rb > 0 /\ bud' = [bud EXCEPT !.rb = @ - 1] /\ main' = s /\ moved' = maxE
                                  /\ UNCHANGED <<live, sn, ctr, mk, req, nid, led, P, del, maxA, maxE, failed, viol>>
SrcChange == \E k \in Keys : /\ bud.src > 0 /\ bud' = [bud EXCEPT !.src = @ - 1] /\ src' = [src EXCEPT ![k] = @ + 1]
                             /\ UNCHANGED <<cat, req, nid, L, lease, P, del, gho>>
LeaseExpire == \E k \in Keys : /\ bud.lease > 0 /\ lease[k] # None /\ bud' = [bud EXCEPT !.lease = @ - 1]
                               /\ lease' = [lease EXCEPT ![k] = None]
                               /\ UNCHANGED <<cat, req, nid, L, src, P, del, gho>>

Over == (\A o \in Owners : P[o].pc \in {"idle", "end"}) /\ UNCHANGED vars
Next == \/ \E o \in Owners : (Step(o) \/ \E job \in Jobs[o] : Start(o, job[1], job[2]))
        \/ \E r \in req : Apply(r)
        \/ FAppend \/ FMove \/ SrcChange \/ LeaseExpire \/ Over
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
NoTwice == \A s \in live : \A k \in Keys : Cardinality(Rows(s, k)) <= 1
NoDangling == \A s \in live : \A x \in sn[s].ents : <<x.k, x.e>> \notin del
NoViolation == viol = {}       \* old-over-new, landed-after-killed
\* COMPLETED: it is in main with its content, unless main was moved after its epoch was claimed
Completed == \A k \in Keys : (L[k].st = "DONE" /\ L[k].done.e > moved[k]) => \E x \in Rows(main, k) : x.v = L[k].done.v
Killed == \A k \in Keys : L[k].st = "KILL" => \A x \in Rows(main, k) : x.e # L[k].e

\* not properties: each must be violated, so that the runs above are not empty
NeverTogether == \A s \in live : Cardinality({x \in sn[s].ents : x.sid = s}) < 2
NeverLeft == \A o \in Owners : ~(P[o].pc = "end" /\ "superseded" \in {P[o].ans[k] : k \in Keys} /\ "done" \in {P[o].ans[k] : k \in Keys})
NeverKilled == \A k \in Keys : L[k].st # "KILL"
NeverBefore == \A o \in Owners : ~(/\ P[o].pc = "end" /\ \A k \in Keys : P[o].ans[k] = "done"
                                   /\ \E k \in Keys : L[k].st = "DONE" /\ L[k].done.e < P[o].e[k])
NeverAnew == \A s \in live : \A o \in Owners : ~(Cardinality(P[o].att) > 1 /\ \E a, b \in P[o].att : a.ks # b.ks /\ a.ks # {} /\ b.ks # {} /\ b.sid = s)

\* who may run what
Both == <<{"k1", "k2"}, "exp">>
JobsKill == [o \in Owners |-> IF o = "o1" THEN {Both} ELSE {<<{"k1"}, "kill">>}]
JobsOne == [o \in Owners |-> IF o = "o1" THEN {Both} ELSE {<<{"k1"}, "exp">>}]
JobsTwo == [o \in Owners |-> {Both}]
JobsAll == [o \in Owners |-> IF o = "o1" THEN {Both} ELSE IF o = "o2" THEN {<<{"k1"}, "kill">>} ELSE {<<{"k2"}, "exp">>}]
=============================================================================
