------------------------------- MODULE Forget -------------------------------
(* FORGET PARTITION beside exports and statements on one key: the ledger's row  *)
(* goes once nothing of the key can come to main any more, the table's mark     *)
(* with it (docs/spec/commit-protocol.md, "Forgetting"). The exports and        *)
(* statements are those of Statement.tla; snapshots expire here, too. FORGET    *)
(* has the key's lease, and claims nothing.                                     *)
EXTENDS Statement

CONSTANTS
  NExp,                 \* how often some snapshots expire
  (* the rules *)
  ForgetBy,             \* the row goes when main has no file of the key, and: "main" that is all | "files" no snapshot has one, nor `detached` | "line" and all snapshots are of main's line, not older than what landed last
  Rereads,              \* and when the row is still the one that was read
  EpochsBy              \* the next claim's epoch is above those of: "row" the row, and there is none | "ledger" every claim before

VARIABLES gone, left    \* expired snapshots; how often some may still expire
all == <<main, det, sn, ctr, mk, req, nid, L, lease, src, P, bud, maxA, moved, asked, viol, gone, left>>
Live == DOMAIN sn \ gone

Begin == Init /\ gone = {} /\ left = NExp

-----------------------------------------------------------------------------
(* FORGET; p.e is the epoch of the row that was read, p.plan the snapshots of p.m, p.sent the number that the fence has to pass *)
Named(s) == Ours(s) # {}                     \* the snapshot has files that are known by their names
Needed(p) ==
  LET m == p.m IN
  \/ sn[m.main].ents # {} \/ ~Sure(m, L.hist)
  \/ ForgetBy # "main" /\ (m.det # {} \/ \E s \in p.plan : Named(s))
  \/ ForgetBy = "line" /\ \E s \in p.plan : s \notin Anc(m.main) \/ s < L.done.sid

FStart(o) ==
  /\ P[o].pc = "idle" /\ "forget" \in Jobs[o] /\ lease = None /\ L.st = "DONE"
  /\ lease' = o /\ P' = [P EXCEPT ![o] = [Idle EXCEPT !.pc = "fload", !.g = "forget", !.e = L.e]]
  /\ UNCHANGED <<cat, req, nid, L, src, bud, gho, gone, left>>

FLoad(o) ==
  /\ P[o].pc = "fload" /\ P' = [P EXCEPT ![o] = [@ EXCEPT !.pc = "flook", !.m = Catalog, !.plan = Live]]
  /\ UNCHANGED <<cat, req, nid, L, lease, src, bud, gho, gone, left>>

FEnd(o, p, ans) == P' = [P EXCEPT ![o] = End(p, ans)] /\ lease' = Release(o)

FLook(o) ==
  /\ P[o].pc = "flook"
  /\ LET p == P[o] m == p.m IN
     IF Rereads /\ (L.e # p.e \/ L.st # "DONE") THEN FEnd(o, p, "moved") /\ UNCHANGED <<req, nid, L>>
     ELSE IF Needed(p) THEN FEnd(o, p, "kept") /\ UNCHANGED <<req, nid, L>>
     ELSE IF p.n > 0 /\ m.ctr > p.sent /\ m.mk = NoLand                      \* the fence has passed, and the mark is gone
     THEN /\ L' = [Row0 EXCEPT !.e = IF EpochsBy = "ledger" THEN L.e ELSE 0]
          /\ FEnd(o, p, "forgotten") /\ UNCHANGED <<req, nid>>
     ELSE IF p.n >= MaxAtt THEN FEnd(o, p, "unknown") /\ UNCHANGED <<req, nid, L>>
     ELSE /\ req' = Alive(req \cup {[sid |-> nid, par |-> m.main, ctr |-> m.ctr, land |-> NoLand, det0 |-> m.det, det |-> m.det,
                                     ents |-> sn[m.main].ents, same |-> FALSE]}, ctr)
          /\ nid' = nid + 1 /\ UNCHANGED <<L, lease>>
          /\ P' = [P EXCEPT ![o] = [p EXCEPT !.pc = "fwait", !.n = @ + 1, !.sent = IF p.n = 0 THEN m.ctr ELSE @,
                                             !.land = [NoLand EXCEPT !.sid = nid], !.m = NoM, !.plan = {}]]
  /\ UNCHANGED <<cat, src, bud, gho, gone, left>>

FWait(o) ==      \* whatever the catalog answers, the table is looked at again
  /\ P[o].pc = "fwait"
  /\ LET s == P[o].land.sid
         known == s \in DOMAIN sn \/ \A r \in req : r.sid = s => main # r.par
     IN /\ known \/ bud.lost > 0
        /\ bud' = IF known THEN bud ELSE [bud EXCEPT !.lost = @ - 1]
  /\ P' = [P EXCEPT ![o] = [@ EXCEPT !.pc = "fload", !.land = NoLand]]
  /\ UNCHANGED <<cat, req, nid, L, lease, src, gho, gone, left>>

IsFence(r) == r.land = NoLand
Fence(r) ==
  /\ IsFence(r) /\ main = r.par /\ r.ctr = ctr
  /\ sn' = (r.sid :> [par |-> r.par, ents |-> r.ents]) @@ sn
  /\ main' = r.sid /\ ctr' = ctr + 1 /\ req' = {} /\ mk' = NoLand
  /\ UNCHANGED <<det, nid, L, lease, src, P, bud, gho, gone, left>>

-----------------------------------------------------------------------------
(* Others *)
FExpire == \E xs \in SUBSET (Live \ {main}) \ {{}} :
  /\ left > 0 /\ left' = left - 1 /\ gone' = gone \cup xs
  /\ UNCHANGED <<cat, req, nid, L, lease, src, P, bud, gho>>
MoveLive == FMove /\ main' \in Live          \* main is set to a snapshot that is there yet

FNext == \/ \E o \in Owners : FStart(o) \/ FLoad(o) \/ FLook(o) \/ FWait(o)
         \/ \E r \in req : Fence(r)
         \/ FExpire
         \/ /\ UNCHANGED <<gone, left>>
            /\ \/ \E o \in Owners : Step(o) \/ \E g \in Jobs[o] \ {"forget"} : Start(o, g)
               \/ \E r \in req : ~IsFence(r) /\ Apply(r)
               \/ FCompact \/ MoveLive \/ SrcChange \/ LeaseExpire \/ Over
Forgetting == Begin /\ [][FNext]_all

-----------------------------------------------------------------------------
\* once the row is gone, no reader comes to rows of the key, until an export lands
Unknowing == (L.st = "NONE" /\ L.e > 0) => det = {} /\ \A s \in Live : sn[s].ents = {}
NeverForgotten == \A o \in Owners : P[o].ans # "forgotten"
NeverKept == \A o \in Owners : P[o].ans # "kept"
NeverAfter == ~(L.st = "DONE" /\ L.done.holds # {} /\ \E o \in Owners : P[o].ans = "forgotten")

JobsForget == [o \in Owners |-> IF o = "o1" THEN {"exp"} ELSE IF o = "o2" THEN {"drop", "detach"} ELSE IF o = "o3" THEN {"forget"} ELSE {"exp", "force"}]
=============================================================================
