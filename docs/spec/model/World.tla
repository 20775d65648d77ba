-------------------------------- MODULE World --------------------------------
(* The catalog, which applies a request once, never, or late; the other        *)
(* writers of the table; what happens to leases, source and ledger.            *)
EXTENDS State

Apply(r) ==
  /\ main = r.par /\ (Guard = "none" \/ r.ctr = ctr \/ (RootExempt /\ r.par = 0)) /\ r.sid \notin live
  /\ sn' = (r.sid :> [par |-> r.par, ents |-> r.ents, q |-> Seq]) @@ sn
  /\ main' = r.sid /\ live' = live \cup {r.sid} /\ ctr' = Bump(TRUE) /\ tid' = r.lid
  /\ num' = r.num
  /\ mk' = [x \in Keys |-> IF x = r.k /\ r.kind = "exp" /\ UseMark THEN [e |-> r.e, v |-> r.v, sid |-> r.sid, lid |-> r.lid, tx |-> r.tx]
                           ELSE IF x \in r.rmk THEN NoMark ELSE mk[x]]
  /\ req' = Alive(req \ {r}, ctr') /\ UNCHANGED <<bud, other>>
  /\ applied' = applied \cup {r.sid}
  /\ maxA' = [maxA EXCEPT ![r.k] = IF r.kind = "exp" /\ r.e > @ THEN r.e ELSE @]
  /\ viol' = viol \cup (IF r.kind = "exp" /\ r.lid = lid /\ ~restored /\ r.e < maxA[r.k] THEN {"old-over-new"} ELSE {})
                  \cup (IF r.kind = "exp" /\ ~restored /\ r.e <= failed[r.k] THEN {"landed-after-failed"} ELSE {})
  /\ UNCHANGED <<nid, led, P, del, quiet, maxE, moved, failed, restored>>

-----------------------------------------------------------------------------
(* Other writers *)
NewSnap(ents) ==
  /\ sn' = (nid :> [par |-> main, ents |-> ents, q |-> Seq]) @@ sn
  /\ main' = nid /\ live' = live \cup {nid} /\ nid' = nid + 1 /\ ctr' = Bump(FALSE) /\ req' = Alive(req, ctr')
  /\ UNCHANGED <<mk, tid, num, other, led, P, del, quiet, applied, maxA, maxE, failed, viol, restored>>
FAppend  == bud.app > 0 /\ bud' = [bud EXCEPT !.app = @ - 1] /\ NewSnap(sn[main].ents) /\ UNCHANGED moved
FCompact == \E k \in Keys : \E s \in (IF NFiles = 1 THEN {Rows(main, k)} ELSE SUBSET Ours(main, k) \ {{}}) :
              /\ bud.comp > 0 /\ bud' = [bud EXCEPT !.comp = @ - 1] /\ Ours(main, k) # {}
              /\ NewSnap((sn[main].ents \ s) \cup {[x EXCEPT !.c = TRUE] : x \in s}) /\ UNCHANGED moved
FDrop == \E k \in Keys : \E s \in {Rows(main, k)} \cup {{x} : x \in Rows(main, k)} :
           /\ bud.drop > 0 /\ bud' = [bud EXCEPT !.drop = @ - 1] /\ s # {}
           /\ NewSnap(sn[main].ents \ s) /\ moved' = [moved EXCEPT ![k] = maxE[k]]
FDelete == \E x \in sn[main].ents :
             /\ bud.del > 0 /\ bud' = [bud EXCEPT !.del = @ - 1] /\ ~x.d
             /\ NewSnap((sn[main].ents \ {x}) \cup {[x EXCEPT !.d = TRUE]}) /\ moved' = [moved EXCEPT ![x.k] = maxE[x.k]]
FMove == \E s \in live \ {main} :
  /\ bud.rb > 0 /\ bud' = [bud EXCEPT !.rb = @ - 1] /\ main' = s /\ moved' = maxE
  /\ UNCHANGED <<live, sn, ctr, mk, tid, num, other, req, nid, led, P, del, quiet, applied, maxA, maxE, failed, viol, restored>>
FExpire == /\ bud.exp > 0 /\ live # {main} /\ bud' = [bud EXCEPT !.exp = @ - 1] /\ live' = {main}
           /\ UNCHANGED <<main, sn, ctr, mk, tid, num, other, req, nid, led, P, del, quiet, gho>>

\* the catalog is pointed at another metadata file of the table: at rest, when all that landed is settled,
\* and at an earlier one when an export has landed since (whoever commits nothing to it is not seen)
Rest == \A o \in Owners : P[o].pc \in {"idle", "end"}
FKeepMetadata == /\ bud.back > 0 /\ other = NoBack /\ other' = [back |-> FALSE, m |-> Catalog]
                 /\ UNCHANGED <<meta, req, nid, led, P, del, bud, quiet, gho>>
FPointAt == /\ bud.back > 0 /\ other # NoBack /\ Rest /\ \A k \in Keys : mk[k].e <= L[k].done.e
            /\ other.back \/ \E k \in Keys : L[k].done.sid \notin other.m.live
            /\ bud' = [bud EXCEPT !.back = @ - 1] /\ other' = [back |-> ~other.back, m |-> Catalog]
            /\ main' = other.m.main /\ live' = other.m.live /\ ctr' = other.m.ctr
            /\ mk' = other.m.mk /\ tid' = other.m.tid /\ num' = other.m.num /\ req' = {}
            /\ UNCHANGED <<sn, nid, led, P, del, quiet, gho>>

-----------------------------------------------------------------------------
(* Time, source, ledger *)
Ttl == \E k \in Keys : /\ bud.ttl > 0 /\ L[k].st = "DONE" /\ ~L[k].ttl /\ bud' = [bud EXCEPT !.ttl = @ - 1]
                       /\ L' = [L EXCEPT ![k].ttl = TRUE]
                       /\ UNCHANGED <<cat, req, nid, lx, lease, src, P, del, quiet, gho>>
SrcChange == \E k \in Keys : /\ bud.src > 0 /\ bud' = [bud EXCEPT !.src = @ - 1] /\ src' = [src EXCEPT ![k] = @ + 1]
                             /\ UNCHANGED <<cat, req, nid, L, lx, lease, P, del, quiet, gho>>
LeaseExpire == \E k \in Keys : /\ bud.lease > 0 /\ lease[k] # None /\ bud' = [bud EXCEPT !.lease = @ - 1]
                               /\ lease' = [lease EXCEPT ![k] = None]
                               /\ UNCHANGED <<cat, req, nid, L, lx, src, P, del, quiet, gho>>
Loss == /\ bud.loss > 0 /\ bud' = [bud EXCEPT !.loss = @ - 1] /\ lid' = IF LossKeepsId THEN lid ELSE lid + 1
        /\ L' = [k \in Keys |-> Row0] /\ lease' = [k \in Keys |-> None]
        /\ UNCHANGED <<cat, req, nid, cnt, known, copy, uid, src, P, del, quiet, gho>>
CopyLedger == /\ bud.copy > 0 /\ copy = NoCopy /\ copy' = [L |-> L, cnt |-> cnt, known |-> known]
              /\ UNCHANGED <<cat, req, nid, L, lid, cnt, known, uid, lease, src, P, del, bud, quiet, gho>>
RestoreLedger == /\ bud.copy > 0 /\ copy # NoCopy /\ bud' = [bud EXCEPT !.copy = @ - 1]
                 /\ CopyAt # "any" => Rest
                 /\ CopyAt = "rest" => req = {}
                 /\ L' = copy.L /\ cnt' = copy.cnt /\ known' = copy.known /\ copy' = NoCopy
                 /\ lease' = [k \in Keys |-> None] /\ restored' = TRUE
                 /\ UNCHANGED <<cat, req, nid, lid, uid, src, P, del, quiet, applied, maxA, maxE, moved, failed, viol>>
Quiet == UseQuiet /\ ~quiet /\ quiet' = TRUE
         /\ lease' = [k \in Keys |-> None]
         /\ UNCHANGED <<cat, req, nid, L, lx, src, P, del, bud, gho>>

Others == \/ FAppend \/ FCompact \/ FDrop \/ FDelete \/ FMove \/ FExpire \/ FKeepMetadata \/ FPointAt
          \/ Ttl \/ SrcChange \/ LeaseExpire \/ Loss \/ CopyLedger \/ RestoreLedger \/ Quiet
=============================================================================
