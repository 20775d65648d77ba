"""Which exports of a key can never land any more, so that their files may go: pure.

Protocol.md step 10 allows to delete data files when every request that would make them visible is
dead in M and no snapshot of M refers to them. This file proves the first; it never looks at an age.

* KILLED or FAILED is written only when all requests of that epoch and of older ones are dead
  (step 9), and such a row is never gone on with: its own transaction and those on `old` are dead.
  They stay dead when the key is claimed anew, and their claims on `old` say so.
* An export of epoch E that landed in a snapshot of sequence number s was staged on a metadata that
  was loaded after the claim of E. Whatever an older epoch sent was staged on the metadata before
  that claim, and so has a number of s at most: dead in every M with seq(M) >= s. A transaction
  whose last claim has an older epoch than E is dead with it.
* Requests of the landed transaction itself were staged before its mark was seen, with a number of
  s at most: files of it that did not land never will. They are told from those that did because
  the snapshots refer to as many files of it as landed. Where its snapshot was expired, what no
  other snapshot refers to is gone for good: a new one is made of those that there are. In a tree
  of Hive directories an export that a later one replaced is gone for good, too, once its files are
  kept for readers no more.
* A manifest is dead when seq(M) has reached the sequence number that its name tells
  (`manifest_names.py`), whoever staged it.

Of the lists of commits a rebuilt ledger needs those of exports that a snapshot refers to, and for
each key the one of the last that landed: without it nobody would know that there was one, and rows
that others rewrote since would be exported again.

Everything else is kept, and why is said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tableformat.committer import LakeTableState
from tableformat.ledger import Claim, Landed, Row, State
from tableformat.quantities import counted

__all__ = ["Listing", "Verdict", "list_verdict", "manifest_verdict", "verdict", "verdicts"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether what an export left behind may go, files that snapshots refer to apart, and why."""

    may_go: bool
    why: str


@dataclass(frozen=True, slots=True)
class Listing:
    """One export on the list of a commit, by the epoch of its claim then.

    `row` is the key's, None when the ledger does not know it; `referred` counts the files of the
    transaction in snapshots.
    """

    row: Row | None
    transaction_id: str
    epoch: int
    referred: int


def verdicts(
    row: Row,
    state: LakeTableState,
    referred: Mapping[str, Collection[str]],
    transaction_ids: Collection[str],
) -> dict[str, Verdict]:
    """Return the verdict on each transaction of a key.

    Args:
        row: the key's row, read after `state` was loaded.
        state: the table's metadata, loaded anew.
        referred: by transaction the files that any snapshot of `state` refers to.
        transaction_ids: those that left something behind.
    """
    return {t: verdict(row, state, len(referred.get(t, ())), t) for t in transaction_ids}


def verdict(row: Row, state: LakeTableState, referred: int, transaction_id: str) -> Verdict:
    """Return the verdict on one transaction; `referred` counts its files in snapshots."""
    seen = state.last_sequence_number
    if row.landed and max(x.sequence_number for x in row.landed) > seen:
        return Verdict(may_go=False, why="the table's metadata was put back to an older file")
    landed = next((x for x in row.landed if x.transaction_id == transaction_id), None)
    if landed is not None:
        return _of_landed(row, state, referred, landed)
    claim = row.claim_of(transaction_id)
    if claim is None:
        return Verdict(may_go=False, why="not ours to judge: the ledger does not know this export")
    if referred:
        return Verdict(may_go=False, why=f"snapshots refer to {counted(referred, 'file')} of it")
    return _of_claim(row, seen, claim)


def _of_claim(row: Row, seen: int, claim: Claim) -> Verdict:
    if row.state in (State.KILLED, State.FAILED):
        return Verdict(may_go=True, why=f"its export was given up ({row.state})")
    if claim.given_up:
        return Verdict(may_go=True, why="its export was given up")
    later = (x for x in row.landed if claim.epoch < x.epoch and 0 < x.sequence_number <= seen)
    proof = next(later, None)
    if proof is not None and claim is not row.claim:
        return Verdict(may_go=True, why=f"a later export landed in snapshot {proof.snapshot_id}")
    if claim is row.claim and row.state is State.RUNNING:
        return Verdict(may_go=False, why="its export can be gone on with, or cancelled")
    return Verdict(
        may_go=False, why="a request of it may still be applied until a later export has landed"
    )


def _of_landed(row: Row, state: LakeTableState, referred: int, landed: Landed) -> Verdict:
    under_way = row.state is State.RUNNING and row.claim.transaction_id == landed.transaction_id
    if under_way or not 0 < landed.sequence_number <= state.last_sequence_number:
        return Verdict(may_go=False, why="whether a request of it is under way cannot be told")
    if landed.transaction_id in state.replaced:
        if referred:
            why = "a later export replaced it, and readers may still use its files"
            return Verdict(may_go=False, why=why)
        return Verdict(may_go=True, why="a later export replaced it")
    if landed.snapshot_id not in state.snapshots:
        text = f"it landed in {landed.snapshot_id}, which was expired, and no snapshot refers to it"
        return Verdict(may_go=True, why=text)
    if referred != landed.data_files or not referred:
        return Verdict(
            may_go=False,
            why=f"which of its files landed cannot be told: {landed.data_files} did, snapshots "
            f"refer to {referred}",
        )
    return Verdict(may_go=True, why=f"not among the files that landed in {landed.snapshot_id}")


def list_verdict(listed: Iterable[Listing], state: LakeTableState) -> Verdict | None:
    """Return the verdict on the list of a commit: it may go when none of its exports needs it.

    None when a ledger that is lost could be rebuilt from it.

    Args:
        listed: the exports on it.
        state: the table's metadata, loaded anew.
    """
    exports = tuple(listed)
    if any(_is_of_use(one, state) for one in exports):
        return None
    ours = any(one.row is not None for one in exports)
    for one in exports:
        if one.row is None and ours:
            # This ledger listed it together with the others: its partition was forgotten since.
            continue
        if one.row is None:
            text = "not ours to judge: the ledger does not know an export on it"
            return Verdict(may_go=False, why=text)
        if not _is_outlived(one.row, one, state.last_sequence_number):
            text = "a request of it may still be applied, or its export gone on with"
            return Verdict(may_go=False, why=text)
    return Verdict(may_go=True, why="no export on it is in the table, or can be any more")


def _is_of_use(one: Listing, state: LakeTableState) -> bool:
    """Whether a rebuilt ledger would say of a key what it should because of one listed export."""
    landed = one.row.landed if one.row is not None else ()
    same = [x for x in landed if x.transaction_id == one.transaction_id]
    this = next((x for x in same if x.epoch == one.epoch), None)
    if this is None:
        return bool(one.referred) and not same
    last = max(landed, key=lambda x: x.epoch)
    return this == last or bool(one.referred) or this.snapshot_id in state.snapshots


def _is_outlived(row: Row, one: Listing, seen: int) -> bool:
    """Whether no request of this epoch of a listed export can be applied any more."""
    if row.state in (State.KILLED, State.FAILED):
        return one.epoch <= row.claim.epoch
    claim = row.claim_of(one.transaction_id)
    if claim is not None and claim.given_up:
        return one.epoch <= claim.epoch
    if row.state is State.RUNNING and row.claim.transaction_id == one.transaction_id:
        return False
    later = (x for x in row.landed if 0 < x.sequence_number <= seen)
    return any(x.epoch > one.epoch or x.transaction_id == one.transaction_id for x in later)


def manifest_verdict(sequence_number: int, state: LakeTableState) -> Verdict:
    """Return the verdict on a manifest or manifest list that no snapshot of `state` refers to.

    Args:
        sequence_number: that the snapshot of its attempt would have.
        state: the table's metadata.
    """
    if sequence_number > state.last_sequence_number:
        return Verdict(may_go=False, why="the request for its attempt may still be applied")
    text = (
        f"of an attempt at sequence number {sequence_number}, which the table has passed "
        "without it, or of a snapshot that was expired"
    )
    return Verdict(may_go=True, why=text)
