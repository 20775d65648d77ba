-------------------------------- MODULE Owner --------------------------------
(* What an owner of a key does, step by step; the numbers are those of         *)
(* docs/spec/commit-protocol.md.                                               *)
EXTENDS State

Free(k) == [lease EXCEPT ![k] = None]
Release(o, k) == IF lease[k] = o THEN Free(k) ELSE lease
End(p, ans) == [Idle EXCEPT !.pc = "end", !.k = p.k, !.g = p.g, !.e = p.e, !.v = p.v, !.ans = ans, !.q = p.q]

-----------------------------------------------------------------------------
(* Before the claim, and the claim: one atomic step on the ledger *)
Wanted(k, g) == LET l == L[k] IN
  \/ g = "exp" /\ (l.st # "DONE" \/ (l.ttl /\ (TtlForgets \/ src[k] # l.done.v)))
  \/ g = "force"
  \/ g = "kill" /\ l.st = "RUN"

Claim(o, k, g, q) ==
  LET l == L[k]
      res  == l.st = "RUN" /\ l.v = src[k] /\ g = "exp"
      e2   == IF Counts THEN cnt + 1 ELSE l.e + 1
      fe2  == IF res THEN l.fe ELSE e2
      old2 == IF l.st # "RUN" THEN {} ELSE IF res THEN l.old ELSE l.old \cup {l.fe}
      l1   == IF TtlForgets /\ l.ttl THEN Row0 ELSE l
  IN /\ L' = [L EXCEPT ![k] = [l1 EXCEPT !.e = e2, !.st = "RUN", !.v = src[k], !.fe = fe2, !.tx = o, !.old = old2, !.ttl = FALSE]]
     /\ IF Counts THEN Drawn ELSE UNCHANGED <<cnt, known, uid>>
     /\ lease' = [lease EXCEPT ![k] = o]
     /\ P' = [P EXCEPT ![o] = [Idle EXCEPT !.pc = IF LedgerLast THEN "load" ELSE "led0", !.k = k, !.g = g, !.e = e2, !.v = src[k],
                !.fe = fe2, !.base = l1.done.e, !.lid = lid, !.old = old2, !.q = q]]
     /\ del' = IF CleanOld = "claim" /\ ~res THEN del \cup {<<"D", k, f>> : f \in old2} ELSE del
     /\ maxE' = [maxE EXCEPT ![k] = IF e2 > @ THEN e2 ELSE @]
     /\ UNCHANGED <<cat, req, nid, lid, copy, src, bud, quiet, applied, maxA, moved, failed, viol, restored>>

Start(o, k, g) ==
  /\ P[o].pc = "idle" /\ <<k, g>> \in Jobs[o] /\ lease[k] = None
  /\ LET l == L[k] IN
     \/ /\ g = "exp" /\ l.st = "DONE" /\ l.ttl /\ ~TtlForgets /\ src[k] = l.done.v
        /\ IF Verify
           THEN P' = [P EXCEPT ![o] = [Idle EXCEPT !.pc = "uload", !.k = k, !.g = g, !.v = src[k], !.lid = lid, !.q = quiet]]
                /\ UNCHANGED viol
           ELSE /\ P' = [P EXCEPT ![o] = [Idle EXCEPT !.pc = "end", !.k = k, !.g = g, !.ans = "unchanged"]]
                /\ viol' = IF Exact(main, k, src[k]) THEN viol ELSE viol \cup {"unchanged-wrong"}
        /\ UNCHANGED <<cat, req, nid, led, del, bud, quiet, applied, maxA, maxE, moved, failed, restored>>
     \/ /\ ~Counts /\ Wanted(k, g) /\ Claim(o, k, g, quiet)
     \/ /\ Counts /\ Wanted(k, g)               \* the table is looked at before the claim
        /\ LET p == [Idle EXCEPT !.k = k, !.g = g, !.lid = lid, !.q = quiet] IN
           P' = [P EXCEPT ![o] = IF NotOfUs(Catalog, lid) THEN End(p, "refused-ledger") ELSE [p EXCEPT !.pc = "open"]]
        /\ UNCHANGED <<cat, req, nid, led, del, bud, quiet, gho>>

Open(o) ==
  /\ P[o].pc = "open"
  /\ LET p == P[o] IN
     IF lease[p.k] = None /\ Wanted(p.k, p.g) THEN Claim(o, p.k, p.g, p.q)
     ELSE P' = [P EXCEPT ![o] = End(p, "answered")] /\ UNCHANGED <<cat, req, nid, led, del, bud, quiet, gho>>

ULoad(o) ==      \* "unchanged": is it still in main?
  /\ P[o].pc = "uload"
  /\ LET p == P[o] k == p.k d == L[k].done
         same == L[k].st = "DONE" /\ d.v = p.v /\ lid = p.lid
         ans == IF ~same THEN "retry" ELSE IF There(Catalog, k, d.sid) THEN "unchanged" ELSE "gone" IN
     IF ans = "gone" /\ Where(Catalog, k, L[k].hist) = "gone" /\ lease[k] = None THEN Claim(o, k, p.g, p.q)
     ELSE /\ P' = [P EXCEPT ![o] = End(p, ans)]
          /\ viol' = IF ans = "unchanged" /\ ~Exact(main, k, p.v) THEN viol \cup {"unchanged-wrong"} ELSE viol
          /\ UNCHANGED <<cat, req, nid, led, del, bud, quiet, applied, maxA, maxE, moved, failed, restored>>

-----------------------------------------------------------------------------
(* The commit loop *)
Led0(o) ==   \* only in the wrong order: ledger, then metadata
  /\ P[o].pc = "led0"
  /\ P' = [P EXCEPT ![o].pc = "load", ![o].lr = [L |-> L, lid |-> lid]]
  /\ UNCHANGED <<cat, req, nid, led, del, bud, quiet, gho>>

Load(o) ==   \* step 2
  /\ P[o].pc = "load"
  /\ P' = [P EXCEPT ![o].pc = "look", ![o].m = Catalog, ![o].c0 = IF @ = <<>> THEN <<main, ctr>> ELSE @]
  /\ UNCHANGED <<cat, req, nid, led, del, bud, quiet, gho>>

New(p) == {[k |-> p.k, fe |-> p.fe, v |-> p.v, sid |-> nid, f |-> f, c |-> FALSE, d |-> FALSE] : f \in Files}

\* p with what is to be sent: p.pl. n: the number that the table will carry
Send(o, p, n) ==
  /\ req' = Alive(req \cup {[k |-> p.k, e |-> p.e, v |-> p.v, sid |-> nid, par |-> p.m.main, ctr |-> p.m.ctr,
                             ents |-> p.pl.ents \cup (IF p.pl.kind = "exp" THEN New(p) ELSE {}), kind |-> p.pl.kind,
                             rmk |-> p.pl.rmk, lid |-> p.lid, tx |-> o, num |-> n]}, ctr)
  /\ nid' = nid + 1
  /\ P' = [P EXCEPT ![o] = [p EXCEPT !.pc = "wait", !.n = @ + 1, !.lr = NoLr, !.pl = NoPlan,
             !.att = @ \cup {[sid |-> nid, par |-> p.m.main, ctr |-> p.m.ctr]}]]

Stage(o, p, ents, kind, rmk, h) ==     \* steps 6 and 7; a number of its own is drawn in a step of its own
  LET q == [p EXCEPT !.pl = [ents |-> ents, kind |-> kind, rmk |-> rmk]] IN
  /\ L' = IF KeepHist /\ L[p.k].e = p.e THEN [L EXCEPT ![p.k].hist = @ \cup h] ELSE L    \* the compare-and-set that checks the epoch
  /\ IF Draws \in {"attempt", "named"} THEN P' = [P EXCEPT ![o] = [q EXCEPT !.pc = "draw"]] /\ UNCHANGED <<req, nid>>
                                       ELSE Send(o, q, IF Counts THEN Larger(p.e, p.m.num) ELSE 0)
  /\ UNCHANGED <<cat, lx, lease, src, del, bud, quiet, gho>>

DrawNumber(o) ==
  /\ P[o].pc = "draw" /\ Drawn /\ Send(o, P[o], IF Draws = "named" THEN Draw ELSE Larger(Draw, P[o].m.num))
  /\ UNCHANGED <<cat, L, lid, copy, lease, src, del, bud, quiet, gho>>

\* after the answer is known: remove what the protocol allows, then end
Tidy(p, ans, dd) == IF p.att = {} /\ dd = {} THEN End(p, ans)
                    ELSE [p EXCEPT !.pc = "cload", !.ans = ans, !.dd = dd, !.lr = NoLr, !.m = NoM]

Super(o, p) ==
  /\ P' = [P EXCEPT ![o] = Tidy(p, "superseded", IF DelSuper THEN {p.fe} ELSE {})]
  /\ UNCHANGED <<cat, req, nid, led, del, bud, quiet, gho>>

Stop(o, p, ans) ==      \* ends without an outcome; nothing is removed; the ledger row stays RUNNING
  /\ P' = [P EXCEPT ![o] = End(p, ans)]
  /\ lease' = Release(o, p.k)
  /\ UNCHANGED <<cat, req, nid, L, lx, src, del, bud, quiet, gho>>

Mine(o, p, row) == row.e = p.e /\ (TxCheck => row.tx = o)

Look(o) ==     \* reads the ledger (after the metadata in p.m), decides
  /\ P[o].pc = "look"
  /\ LET p   == P[o]
         m   == p.m
         k   == p.k
         LL  == IF LedgerLast THEN L ELSE p.lr.L
         ld  == IF LedgerLast THEN lid ELSE p.lr.lid
         row == LL[k]
         mr  == m.mk[k]
         own == UseMark /\ Mine(o, p, mr) /\ mr.lid = p.lid
         pre == UseMark /\ ~own /\ mr.e > p.base
         rmk == {x \in Keys \ {k} : /\ m.mk[x].e > 0
                                    /\ \/ MarkRm = "any"
                                       \/ MarkRm = "completed" /\ LL[x].done.e >= m.mk[x].e /\ LL[x].done.lid = m.mk[x].lid}
     IN
     IF NotOfUs(m, p.lid) THEN Stop(o, p, "refused-ledger")
     ELSE IF EpochCheck /\ (~Mine(o, p, row) \/ row.st # "RUN" \/ ld # p.lid) THEN Super(o, p)
     ELSE IF EpochCheck /\ UseMark /\ mr.e > p.e THEN Super(o, p)
     ELSE IF own \/ (pre /\ ((p.g = "exp" /\ mr.v = p.v) \/ p.g = "kill"))
     THEN LET line == Anc(m.main, m.live)
              mine == mr.sid \in {a.sid : a \in p.att}
              there == There(m, k, mr.sid) \/ (mine /\ mr.sid \in line)
              ans == IF ~Verify \/ there THEN "done" ELSE "landed-but-gone"
              true == Exact(m.main, k, mr.v) \/ (mine /\ mr.sid \in line)     \* others may have removed what had landed
          IN /\ P' = [P EXCEPT ![o] = [p EXCEPT !.pc = "settle", !.land = mr, !.ans = ans, !.m = NoM, !.lr = NoLr]]
             /\ viol' = viol \cup (IF ans = "done" /\ ~true THEN {"done-but-gone"} ELSE {})
                             \cup (IF ans = "done" /\ p.g # "kill" /\ mr.v # p.v THEN {"done-other-content"} ELSE {})
             /\ UNCHANGED <<cat, req, nid, led, del, bud, quiet, applied, maxA, maxE, moved, failed, restored>>
     ELSE IF PutBack(m, k) THEN Stop(o, p, "refused-metadata")
     ELSE \/ /\ p.g = "kill" \/ bud.give > 0          \* step 9: the owner wants to give up (layout changed, killed, ...)
             /\ IF DeadOwn(p, m) /\ (DeadAll => DeadOld(p, m))
                THEN /\ P' = [P EXCEPT ![o] = [p EXCEPT !.pc = IF Condemn THEN "fail" ELSE "cload", !.dd = p.old \cup {p.fe},
                                  !.ans = "failed", !.lr = NoLr, !.m = NoM]]
                     /\ bud' = IF p.g = "kill" THEN bud ELSE [bud EXCEPT !.give = @ - 1]
                     /\ UNCHANGED <<cat, req, nid, led, del, quiet, gho>>
                ELSE IF p.n < MaxAtt THEN Stage(o, p, sn[m.main].ents, "fence", {}, {})  \* an empty commit settles it
                ELSE Stop(o, p, "unknown")
          \/ /\ p.g # "kill"
             /\ IF p.n >= MaxAtt THEN Stop(o, p, "unknown")
                ELSE LET last == IF pre THEN mr ELSE row.done
                         h    == row.hist \cup (IF mr.e > 0 THEN {mr.sid} ELSE {})
                         rm   == Removal(m, k, last, h)
                     IN IF ~rm[1] THEN Stop(o, p, "refused-unsure")
                        ELSE Stage(o, p, sn[m.main].ents \ rm[2], "exp", rmk, h)

Sent(p) == CHOOSE s \in {a.sid : a \in p.att} : \A a \in p.att : a.sid <= s

Ok(o) ==
  /\ P[o].pc = "wait"
  /\ LET p == P[o] s == Sent(p) IN
     /\ s \in applied
     /\ P' = [P EXCEPT ![o] = IF p.g = "kill" THEN [p EXCEPT !.pc = "load"]
                              ELSE IF \E x \in sn[s].ents : x.sid = s
                              THEN [p EXCEPT !.pc = "settle", !.land = [e |-> p.e, v |-> p.v, sid |-> s, lid |-> p.lid, tx |-> o],
                                             !.ans = "done", !.m = NoM]
                              ELSE [p EXCEPT !.pc = "load"]]     \* a fence landed
  /\ UNCHANGED <<cat, req, nid, led, del, bud, quiet, gho>>

Lost(o) ==       \* 409, 5xx, timeout, dropped connection: applied, not applied, or not applied yet
  /\ P[o].pc = "wait"
  /\ LET p == P[o] s == Sent(p)
         refused == s \notin applied /\ \A r \in req : r.sid = s => (main # r.par \/ r.ctr # ctr)
     IN
     /\ quiet => refused
     /\ refused \/ bud.lost > 0
     /\ bud' = IF refused \/ NLost = 9 THEN bud ELSE [bud EXCEPT !.lost = @ - 1]
     /\ CASE OnFail = "look"  -> P' = [P EXCEPT ![o].pc = IF LedgerLast THEN "load" ELSE "led0", ![o].m = NoM] /\ UNCHANGED <<del, lease>>
          [] OnFail = "blind" -> P' = [P EXCEPT ![o].pc = "bload", ![o].m = NoM] /\ UNCHANGED <<del, lease>>
          [] OTHER -> /\ P' = [P EXCEPT ![o] = End(p, "failed")]
                      /\ del' = del \cup {<<"M", None, s>>, <<"D", p.k, p.fe>>}
                      /\ lease' = Release(o, p.k)
  /\ UNCHANGED <<cat, req, nid, L, lx, src, quiet, gho>>

Blind(o) ==      \* stock client: refresh and append again, nothing checked
  /\ P[o].pc = "bload"
  /\ LET p == [P[o] EXCEPT !.m = Catalog] IN
     IF p.n >= MaxAtt THEN Stop(o, p, "unknown") ELSE Stage(o, p, sn[main].ents, "exp", {}, {})

-----------------------------------------------------------------------------
(* Steps 8 to 10 *)
Settle(o) ==
  /\ P[o].pc = "settle"
  /\ LET p == P[o] k == p.k IN
     IF ~EpochCheck \/ (Mine(o, p, L[k]) /\ lid = p.lid)
     THEN /\ L' = [L EXCEPT ![k] = [@ EXCEPT !.st = "DONE", !.done = p.land, !.hist = @ \cup {p.land.sid}, !.old = {}, !.ttl = FALSE]]
          /\ lease' = Release(o, k)
          /\ P' = [P EXCEPT ![o] = Tidy([p EXCEPT !.att = {a \in @ : a.sid # p.land.sid}], p.ans, p.old)]
          /\ UNCHANGED <<cat, req, nid, lx, src, del, bud, quiet, gho>>
     ELSE Super(o, p)

Fail(o) ==       \* outcome Conflicted/Killed: certain
  /\ P[o].pc = "fail"
  /\ LET p == P[o] k == p.k IN
     IF ~EpochCheck \/ (Mine(o, p, L[k]) /\ lid = p.lid)
     THEN /\ L' = [L EXCEPT ![k] = [@ EXCEPT !.st = "FAIL", !.old = {}]]
          /\ lease' = Release(o, k)
          /\ failed' = [failed EXCEPT ![k] = p.e]
          /\ P' = [P EXCEPT ![o] = IF Condemn THEN [p EXCEPT !.pc = "cload"] ELSE End(p, p.ans)]
          /\ UNCHANGED <<cat, req, nid, lx, src, del, bud, quiet, applied, maxA, maxE, moved, viol, restored>>
     ELSE P' = [P EXCEPT ![o] = IF Condemn THEN Tidy(p, "superseded", {}) ELSE End(p, "superseded")]
          /\ UNCHANGED <<cat, req, nid, led, del, bud, quiet, gho>>

CLoad(o) ==
  /\ P[o].pc = "cload" /\ P' = [P EXCEPT ![o].pc = "cdel", ![o].m = Catalog]
  /\ UNCHANGED <<cat, req, nid, led, del, bud, quiet, gho>>

CDel(o) ==
  /\ P[o].pc = "cdel"
  /\ LET p == P[o] m == p.m
         refS(s) == \E t \in m.live : t = s \/ \E x \in sn[t].ents : ~x.c /\ x.sid = s
         refD(f) == \E t \in m.live : \E x \in sn[t].ents : ~x.c /\ x.k = p.k /\ x.fe = f
         ms == {a.sid : a \in {a \in p.att : DeadA(a, m) /\ (IF DelRule = "reach" THEN ~refS(a.sid) ELSE a.sid \notin m.live)}}
         fs == {f \in p.dd : DeadOwn(p, m) /\ (DeadAll => DeadOld(p, m)) /\
                             (IF DelRule = "reach" THEN ~refD(f) ELSE \A a \in p.att : a.sid \notin m.live)}
     IN /\ del' = del \cup {<<"M", None, s>> : s \in ms} \cup {<<"D", p.k, f>> : f \in fs}
        /\ P' = [P EXCEPT ![o] = IF p.ans = "failed" /\ ~Condemn THEN [p EXCEPT !.pc = "fail", !.m = NoM] ELSE End(p, p.ans)]
  /\ UNCHANGED <<cat, req, nid, led, bud, quiet, gho>>

Step(o) == \/ Open(o) \/ ULoad(o) \/ Led0(o) \/ Load(o) \/ Look(o) \/ DrawNumber(o) \/ Ok(o) \/ Lost(o) \/ Blind(o)
           \/ Settle(o) \/ Fail(o) \/ CLoad(o) \/ CDel(o)
=============================================================================
