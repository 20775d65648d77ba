------------------------------- MODULE Export -------------------------------
(* Exactly-once export of keys into an Iceberg table, one key per commit:      *)
(* competing owners, a linearizable ledger with leases, a catalog whose commit *)
(* is compare-and-set and whose requests may be lost, or applied at any later  *)
(* time. README.md says how to read this.                                      *)
EXTENDS Owner, World

Over == Rest /\ UNCHANGED vars
Next == \/ \E o \in Owners : Step(o) \/ \E k \in Keys, g \in {"exp", "force", "kill"} : Start(o, k, g)
        \/ \E r \in req : Apply(r)
        \/ ~quiet /\ Others
        \/ Over
Spec == Init /\ [][Next]_vars
Fair == Spec /\ \A o \in Owners : WF_vars(Step(o))

-----------------------------------------------------------------------------
NoTwice == \A s \in live : \A k \in Keys : Once(s, k)
NoDangling == \A s \in live : /\ <<"M", None, s>> \notin del
                              /\ \A x \in sn[s].ents : ~x.c => <<"M", None, x.sid>> \notin del /\ <<"D", x.k, x.fe>> \notin del
NoViolation == viol = {}       \* old-over-new, landed-after-failed, unchanged-wrong, done-but-gone, done-other-content
\* COMPLETED: it landed; and it is in main, once, with its content, unless somebody took it away after its epoch was claimed
Completed == \A k \in Keys : (lid = 1 /\ ~restored /\ ~other.back /\ L[k].st = "DONE") =>
                /\ L[k].done.sid \in applied
                /\ (L[k].done.e > moved[k] => Exact(main, k, L[k].done.v))
\* FAILED/KILLED: the files of that export are not in main
Failed == \A k \in Keys : L[k].st = "FAIL" => \A x \in Rows(main, k) : x.fe # L[k].fe
\* an owner that starts after the last fault gets an answer, and "done" is true in main
Settled == \A o \in Owners : (P[o].q /\ P[o].pc = "end") =>
                /\ P[o].ans \notin {"unknown", "superseded"}
                /\ P[o].ans = "done" => \E x \in Rows(main, P[o].k) : TRUE
\* a row delete of others is not undone: no export removes a file that carries one
Undone == \A s \in applied : sn[s].par \in DOMAIN sn =>
            \A x \in sn[sn[s].par].ents : x.d => \E y \in sn[s].ents : Same(x, y)
Ends == \A o \in Owners : [](P[o].pc # "idle" => <>(P[o].pc = "end"))

\* not properties: each must be violated, so that the runs above are not empty
NeverData == \A x \in del : x[1] # "D"
NeverManifest == \A x \in del : x[1] # "M"
NeverKilled == \A k \in Keys : L[k].st # "FAIL"
NeverUnchanged == \A o \in Owners : P[o].ans # "unchanged"
NeverGone == \A o \in Owners : P[o].ans # "gone"
NeverResumed == \A k \in Keys : ~(L[k].st = "DONE" /\ L[k].done.e > L[k].fe)
NeverAgain == \A k \in Keys : ~(L[k].st = "DONE" /\ Cardinality(L[k].hist) > 1)
NeverRefused == \A o \in Owners : P[o].ans # "refused-ledger"
NeverPutBack == \A o \in Owners : P[o].ans # "refused-metadata"

\* who may run what
JobsA == [o \in Owners |-> IF o = "o1" THEN {<<"k1", "exp">>} ELSE IF o = "o2" THEN {<<"k1", "exp">>, <<"k1", "force">>} ELSE {<<"k2", "exp">>}]
JobsB == [o \in Owners |-> IF o = "o1" THEN {<<"k1", "exp">>} ELSE {<<"k1", "exp">>, <<"k1", "force">>}]
JobsK == [o \in Owners |-> IF o = "o1" THEN {<<"k1", "exp">>} ELSE IF o = "o2" THEN {<<"k1", "exp">>, <<"k1", "kill">>} ELSE {<<"k1", "exp">>}]
JobsE == [o \in Owners |-> {<<IF o = "o2" THEN "k2" ELSE "k1", "exp">>}]
JobsO == [o \in Owners |-> {<<"k1", "exp">>}]
=============================================================================
