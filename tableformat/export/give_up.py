"""Gives up an export for good (protocol step 9), and proves which exports can never land.

`kill` makes a claim of its own, which supersedes the owner. It writes KILLED or FAILED only when
the table's sequence number has passed every request sent before; otherwise it commits the fence,
an empty commit. Model actions: Claim, Load, Look, Stage "fence", Fail (docs/spec/model).

`verdict` proves, without I/O, that data files can go (step 10); it never uses an age:

* KILLED or FAILED: its transaction and those on `old` can never land, also after a new claim.
* An export of epoch E landed with sequence number s: requests of older epochs have a number of at
  most s, so they cannot land on any M with seq(M) >= s. Nor can a transaction whose last epoch is
  below E.
* Files of the landed transaction that did not land are garbage. They are known if the snapshots
  refer to as many of its files as landed, or if its snapshot expired. In a Hive tree the files of a
  replaced export are garbage once they are no longer kept for readers.
* A manifest is garbage when seq(M) has reached the sequence number in its name.
* A list of commits stays for each export that a snapshot refers to, and for each key's last
  landed export: a rebuilt ledger needs them (`list_verdict`).

KILL QUERY stops a statement between its claims, too (RQ…QueryCancellation). The killer first marks
rows of the statement (`Stop.QUERY_KILLED`), and then reads which of its exports are running. The
run first claims, and then reads whether a row has the mark (`withdraw_killed`). So one of them sees
the other: the killer gives up a claim that it finds, and the run every other claim.

`standing` is the state in `exports list` and `exports show`: it combines the row's state, the
lease and the last error (RQ…PartialProgress). `forget` (`exports forget`) ends only the refusal
of another export; epoch, fingerprint and landed snapshots stay (N-23, P-10, P-11).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.committer import LakeTableState, Staged, Superseded, Unknown
from tableformat.effects import Step
from tableformat.errors import DestinationError, LedgerError, RefusedError, UnsupportedError
from tableformat.export.archived import unarchive_command
from tableformat.export.commit import (
    Ports,
    check_table_of_ledger,
    discard_abandoned_attempts,
    first_snapshot,
    held_in_main,
    load_table,
    send_empty,
    settle_mark,
    unsettled_mark,
)
from tableformat.export.decision import unfinished
from tableformat.export.leases import one_lease
from tableformat.iceberg.properties import other_version
from tableformat.ledger import (
    Claim,
    Landed,
    LeaseHeld,
    Ledger,
    Owner,
    Row,
    Stale,
    Standing,
    State,
    Stop,
    last_export,
)
from tableformat.quantities import counted

__all__ = [
    "BY_CANCEL",
    "GivenUp",
    "KillOutcome",
    "Listing",
    "NotUnderWay",
    "TooLate",
    "Verdict",
    "forget",
    "is_killed",
    "is_resumable",
    "kill",
    "list_verdict",
    "manifest_verdict",
    "moved_meanwhile",
    "refuse_archived",
    "standing",
    "verdict",
    "verdicts",
    "withdraw",
    "withdraw_killed",
    "works_on_it",
]

BY_CANCEL: Final = (
    "it was cancelled. Nothing of this run becomes visible; another export starts from the "
    "beginning"
)
"""The message about a partition whose export the run finds cancelled or killed."""
_FIRST_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The export did not land and cannot land; the row says so. `fences` counts empty commits."""

    row: Row
    fences: int


@dataclass(frozen=True, slots=True)
class TooLate:
    """The export landed first, and is settled; `in_main` is false after a rollback of main."""

    row: Row
    snapshot_id: int
    in_main: bool


@dataclass(frozen=True, slots=True)
class NotUnderWay:
    """No export of the key is running: never claimed (`row` is None), completed or given up."""

    row: Row | None


KillOutcome = GivenUp | TooLate | NotUnderWay | Superseded | Unknown


@dataclass(slots=True)
class _GivingUp:
    """The progress of giving up: the row of our claim, seq(M0), and each fence before it is sent.

    `first` is seq(M0), the sequence number of the first M that was loaded after the claim.
    """

    row: Row
    state: State
    first: int | None = None
    fences: list[Staged] = field(default_factory=list)
    evidence: str = "no response yet"

    def is_all_abandoned(self, state: LakeTableState) -> bool:
        """Whether no request of ours or of an older epoch can be applied any more."""
        seen = state.last_sequence_number
        older = self.first is not None and seen > self.first
        return older and all(seen >= a.sequence_number for a in self.fences)


def _nothing(_row: Row) -> None:
    """Do nothing."""


def kill(
    ports: Ports,
    key: str,
    *,
    state: Literal[State.KILLED, State.FAILED],
    why: str | Stop = "",
    on_claim: Callable[[Row], None] = _nothing,
    ends_move: bool = False,
) -> KillOutcome:
    """Give up the export of a key for good, unless it has landed.

    Nothing is deleted here; `Unknown` and `Superseded` leave the row unchanged.

    Args:
        ports: what to act on; the caller has the key's lease.
        key: the hash of the ledger key.
        state: the state that the row gets.
        why: the error or the stop that is the reason, '' to keep the row's error.
        on_claim: called once with the claimed row, when the export is taken over.
        ends_move: also end a MOVE that has claimed the key; the caller knows which rows the other
            table has.

    Raises:
        RefusedError: the table belongs to another ledger or has a format version that is not
            written, its metadata was put back, or an unfinished MOVE has claimed the key.
        DestinationError: the table cannot be loaded before the claim.
        LedgerError: the ledger cannot be read or written for the claim.
    """
    table = ports.effects(Step.LOAD_METADATA, ports.table.load)
    check_table_of_ledger(table, ports.ledger)
    if why_not := other_version(table):
        return _without_fence(ports, key, table, why_not, ends_move=ends_move)
    why = why or (Stop.CANCELLED if state is State.KILLED else "")
    claimed = _claim(ports, key, why, ends_move=ends_move)
    if not isinstance(claimed, Row):
        return claimed
    on_claim(claimed)
    work = _GivingUp(claimed, state)
    try:
        return _give_up(ports, work)
    except (DestinationError, LedgerError) as error:
        return Unknown(str(error))


def is_killed(row: Row, query_id: str) -> bool:
    """Whether a row says that KILL QUERY stopped the statement of its last claim."""
    return row.claim.query_id == query_id and row.stop is Stop.QUERY_KILLED


def withdraw(
    ports: Ports, row: Row, *, state: Literal[State.KILLED, State.FAILED], why: str | Stop
) -> None:
    """Give up a claim of this run for which nothing was sent.

    Only a key with an earlier claim needs the proof by `kill`.

    Raises:
        TableFormatError: the table or the ledger cannot be read or written.
    """
    if row.version > _FIRST_VERSION:
        kill(ports, row.key.hash, state=state, why=why)
        return
    claim = replace(row.claim, recipe="", staging=())
    after = replace(row, state=state, claim=claim).noted(why, ports.clock())
    # If another process changed the row meanwhile, it gave the claim up or resumed it.
    ports.effects(Step.GIVE_UP, partial(ports.ledger.write, after))


def withdraw_killed(ports: Ports, query_id: str, claimed: Iterable[Row]) -> frozenset[str]:
    """Give up new claims if KILL QUERY has stopped their statement; return their partition ids.

    Args:
        ports: what to act on.
        query_id: the name of the statement; nothing stops one without a name.
        claimed: the rows as the run has claimed them, before it writes anything for them.

    Raises:
        TableFormatError: the table or the ledger cannot be read or written; no claim continues.
    """
    rows = tuple(claimed)
    if not query_id or not rows:
        return frozenset()

    def marked() -> frozenset[str]:
        of_query = ports.ledger.rows(query_id=query_id)
        return frozenset(r.key.hash for r in of_query if is_killed(r, query_id))

    known = ports.effects(Step.READ_LEDGER, marked)
    if not known:
        return frozenset()
    for row in rows:
        # The killer gives up the claims that it has marked.
        if row.key.hash not in known:
            withdraw(ports, row, state=State.KILLED, why=Stop.QUERY_KILLED)
    return frozenset(row.key.partition_id for row in rows)


def _without_fence(
    ports: Ports, key: str, state: LakeTableState, why: str, *, ends_move: bool
) -> KillOutcome:
    """Settle an export on a table that cannot have a fence, if it has landed.

    Raises:
        UnsupportedError: it has not, and nothing can show that it will not (code 48).
        RefusedError: an unfinished MOVE has claimed the key.
    """
    row = ports.effects(Step.READ_LEDGER, partial(ports.ledger.read, key))
    if row is None or row.state is not State.RUNNING:
        return NotUnderWay(row)
    mark = unsettled_mark(row, state)
    if mark is not None:
        after = settle_mark(ports, row, state, mark)
        if isinstance(after, Row) and (late := _too_late(ports, after, state)) is not None:
            return late
    _refuse_move(row, ends_move=ends_move)
    message = (
        f"Cannot give up partition {row.key.partition_id} in the table at {state.location}, which "
        f"takes an empty commit there: {why} Main has nothing of the partition's last export. Its "
        "row stays in the ledger, and hinders no export into another table. Iceberg's "
        "remove_orphan_files removes its files."
    )
    raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def _claim(
    ports: Ports, key: str, why: str | Stop, *, ends_move: bool
) -> Row | NotUnderWay | Superseded:
    """Claim the key with a new epoch (step 1).

    The claim keeps the transaction, so that its mark is still recognised if it lands.
    """
    for attempt in range(1, ports.most_attempts + 1):
        row = ports.effects(Step.READ_LEDGER, partial(ports.ledger.read, key))
        if row is None or row.state is not State.RUNNING:
            return NotUnderWay(row)
        _refuse_move(row, ends_move=ends_move)
        claimed = replace(row, claim=replace(row.claim, epoch=ports.ledger.next_epoch()))
        now = ports.clock()
        claimed = claimed.noted(why, now) if why else replace(claimed, updated=now)
        written = ports.effects(Step.CLAIM, partial(ports.ledger.write, claimed))
        if isinstance(written, Row):
            return written
        ports.pause(attempt)
    return Superseded("other processes kept writing its row")


def _refuse_move(row: Row, *, ends_move: bool) -> None:
    if row.move is not None and not ends_move:
        message = f"Cannot give up partition {row.key.partition_id}: {unfinished(row, row.move)}."
        raise RefusedError(message)


def _give_up(ports: Ports, work: _GivingUp) -> KillOutcome:
    for attempt in range(1, ports.most_attempts + 1):
        found = _turn(ports, work, may_send=attempt < ports.most_attempts)
        if found is not None:
            return found
        if work.evidence:
            ports.pause(attempt)
    text = (
        f"{len(work.fences)} empty commits were sent so that nothing sent before can land, and "
        f"none is known to be applied; the last: {work.evidence}"
    )
    return Unknown(text)


def _turn(ports: Ports, work: _GivingUp, *, may_send: bool) -> KillOutcome | None:
    """Load M and check it (steps 2 to 5); return the outcome, or send a fence and return None."""
    state = load_table(ports)
    if work.first is None:
        work.first = state.last_sequence_number
    row = ports.effects(Step.READ_LEDGER, partial(ports.ledger.read, work.row.key.hash))
    if row is None or not _is_ours(row, state, work):
        return Superseded("another run has claimed the partition since")
    mark = unsettled_mark(row, state)
    if mark is not None:
        after = settle_mark(ports, row, state, mark)
        return _too_late(ports, after, state) if isinstance(after, Row) else None
    if work.is_all_abandoned(state):
        has_error = row.last_error and row.stop is not Stop.CANCELLED
        kept = f"{row.last_error}; " if has_error else ""
        note = kept + _since(state)
        after = replace(row, state=work.state, updated=ports.clock(), last_error=note)
        written = ports.effects(Step.GIVE_UP, partial(ports.ledger.write, after))
        if isinstance(written, Stale):
            return None
        _discard(ports, work)
        return GivenUp(written, len(work.fences))
    if may_send:
        _fence(ports, state, work)
    return None


def _since(state: LakeTableState) -> str:
    """Return the note with the sequence number that fences off requests, for an operator."""
    return (
        f"given up: nothing sent before snapshot {state.main} (sequence number "
        f"{state.last_sequence_number}) can land any more"
    )


def _is_ours(row: Row, state: LakeTableState, work: _GivingUp) -> bool:
    """Whether no other process has claimed the key since (step 4)."""
    mark = state.mark(row.key.hash)
    epoch = work.row.claim.epoch
    later = mark is not None and mark.epoch > epoch
    return row.claim.epoch == epoch and row.state is State.RUNNING and not later


def _too_late(ports: Ports, row: Row, state: LakeTableState) -> KillOutcome | None:
    landed = row.settled
    if landed is None:
        return None
    held = held_in_main(ports, row, state, row.key.hash)
    in_history = landed.kind is not None and state.is_ancestor(landed.snapshot_id)
    return TooLate(row, landed.snapshot_id, in_main=held.has_rows_of(landed) or in_history)


def _fence(ports: Ports, state: LakeTableState, work: _GivingUp) -> None:
    """Send an empty commit without a mark; no request staged on M or earlier can land after it."""
    if state.main is None:
        first_snapshot(ports, lambda _: None)
        return
    staged, sent = send_empty(ports, state, "fence")
    work.fences.append(staged)
    work.evidence = "" if sent.applied else sent.error


def _discard(ports: Ports, work: _GivingUp) -> None:
    """Remove the manifests of fences that were not applied; ignore errors."""
    with contextlib.suppress(DestinationError):
        discard_abandoned_attempts(ports, work.fences)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the files of an export that no snapshot refers to may be deleted, and why."""

    may_go: bool
    why: str


@dataclass(frozen=True, slots=True)
class Listing:
    """One export on the list of a commit.

    `row` is the key's ledger row, None if the ledger has none. `epoch` is that of the claim when
    the list was stored. `referred` counts the files of the transaction in snapshots.
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
        state: the newly loaded metadata of the table.
        referred: the files that any snapshot of `state` refers to, by transaction.
        transaction_ids: the transactions that left files or receipts behind.
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
        return Verdict(may_go=False, why="unknown export: this ledger has no record of it")
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
        return Verdict(may_go=False, why="its export can be resumed or cancelled")
    return Verdict(
        may_go=False, why="a request of it may still be applied until a later export has landed"
    )


def _of_landed(row: Row, state: LakeTableState, referred: int, landed: Landed) -> Verdict:
    under_way = row.state is State.RUNNING and row.claim.transaction_id == landed.transaction_id
    if under_way or not 0 < landed.sequence_number <= state.last_sequence_number:
        return Verdict(may_go=False, why="it is not known whether a request of it is running")
    if landed.transaction_id in state.replaced:
        if referred:
            why = "a later export replaced it, and readers may still use its files"
            return Verdict(may_go=False, why=why)
        return Verdict(may_go=True, why="a later export replaced it")
    if landed.snapshot_id not in state.snapshots:
        numbers = {one.sequence_number: one.snapshot_id for one in state.snapshots.values()}
        if (other := numbers.get(landed.sequence_number)) is not None:
            # The catalog went back to an earlier version of the table: the files may be needed when
            # the later version is restored.
            text = (
                f"it landed in {landed.snapshot_id}, and the table has {other} in place of that "
                "snapshot: its catalog lost the commit"
            )
            return Verdict(may_go=False, why=text)
        text = f"it landed in {landed.snapshot_id}, which was expired, and no snapshot refers to it"
        return Verdict(may_go=True, why=text)
    if referred != landed.own.data_files or not referred:
        return Verdict(
            may_go=False,
            why=f"it is not known which of its files landed: {landed.own.data_files} did, "
            f"snapshots refer to {referred}",
        )
    return Verdict(may_go=True, why=f"not among the files that landed in {landed.snapshot_id}")


def list_verdict(listed: Iterable[Listing], state: LakeTableState) -> Verdict | None:
    """Return the verdict on the list of a commit, None if rebuilding a lost ledger needs it.

    Args:
        listed: the exports on it.
        state: the newly loaded metadata of the table.
    """
    exports = tuple(listed)
    if any(_is_needed(one, state) for one in exports):
        return None
    ours = any(one.row is not None for one in exports)
    for one in exports:
        if one.row is None and ours:
            # This ledger stored the list, so the partition was forgotten since (FORGET PARTITION).
            continue
        if one.row is None:
            text = "unknown export: this ledger has no record of one on it"
            return Verdict(may_go=False, why=text)
        if not _is_outlived(one.row, one, state.last_sequence_number):
            text = "a request of it may still be applied, or its export resumed"
            return Verdict(may_go=False, why=text)
    return Verdict(may_go=True, why="none of its exports is in the table or can still land")


def _is_needed(one: Listing, state: LakeTableState) -> bool:
    """Whether rebuilding the ledger row of a key needs this listed export."""
    landed = one.row.landed if one.row is not None else ()
    same = [x for x in landed if x.transaction_id == one.transaction_id]
    this = next((x for x in same if x.epoch == one.epoch), None)
    if this is None:
        return bool(one.referred) and not same
    # Statements such as DETACH store no list, so that of the export before them is needed.
    is_last = not any(x.kind is None and x.epoch > this.epoch for x in landed)
    return is_last or bool(one.referred) or this.snapshot_id in state.snapshots


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
        sequence_number: the number that the snapshot of its attempt would have.
        state: the table's metadata.
    """
    if sequence_number > state.last_sequence_number:
        return Verdict(may_go=False, why="the request for its attempt may still be applied")
    text = (
        f"of an attempt at sequence number {sequence_number}, which the table has passed "
        "without it, or of a snapshot that was expired"
    )
    return Verdict(may_go=True, why=text)


def standing(row: Row, *, worked_on: bool) -> Standing:
    """Return the state of an export; `worked_on`: an owner that may be running has its lease."""
    of = last_export(row)
    if of.state is State.COMPLETED and row.archived is not None:
        return Standing.ARCHIVED
    if of.state is not State.RUNNING:
        return Standing(of.state.value)
    if worked_on:
        return Standing.IN_PROGRESS
    return Standing.FAILED if of.error and of.stop is None else Standing.INTERRUPTED


def is_resumable(row: Row, *, worked_on: bool) -> bool:
    """Whether the next run may resume the export from its finished files."""
    return last_export(row).state is State.RUNNING and not worked_on


def forget(
    ledger: Ledger, row: Row, *, owner: Owner, is_alive: Callable[[Owner], bool], now: int
) -> str:
    """Stop a row's completed export from refusing another one; return a sentence on the result.

    An export whose refusal has ended already is left unchanged.

    Args:
        ledger: the ledger with the row.
        row: as it was read.
        owner: this process, which holds the key's lease meanwhile.
        is_alive: whether the owner of a lease may be running.
        now: milliseconds since 1970.

    Raises:
        RefusedError: an export of the partition is running, none has completed, the partition is
            archived, or another process changed the row meanwhile.
        LedgerError: the ledger cannot be read or written.
    """
    key = row.key.hash
    lease = one_lease(ledger, key, owner, is_alive=is_alive)
    if isinstance(lease, LeaseHeld):
        raise works_on_it(row, lease, now)
    try:
        return _forgotten(ledger, ledger.read(key) or row, now)
    finally:
        ledger.release(lease)


def _forgotten(ledger: Ledger, row: Row, now: int) -> str:
    done = row.done
    if done is None:
        raise _not_forgotten(
            row, "no export of it has completed, so none refuses another. Export it"
        )
    refuse_archived(row)
    what = f"partition {row.key.partition_id} of {row.source_table} in {row.destination_table}"
    if not done.refuses(now):
        why = (
            "it was forgotten before" if done.forgotten else f"its TTL of {done.ttl} s has expired"
        )
        return f"{what}: nothing to do, {why}"
    written = ledger.write(replace(row, done=replace(done, forgotten=True), updated=now))
    if isinstance(written, Stale):
        raise moved_meanwhile(row)
    return (
        f"{what}: exporting it again is no longer refused. The ledger still knows what landed, "
        f"last in snapshot {done.landed.snapshot_id}: the same content stays as it is, other "
        "content replaces it"
    )


def works_on_it(row: Row, lease: LeaseHeld, now: int) -> RefusedError:
    """Return the refusal to forget a partition whose lease another process holds at `now`."""
    seconds = max(0, now - lease.since) // 1000
    return _not_forgotten(
        row, f"{lease.owner} has worked on it for {seconds} s. Wait until it has ended"
    )


def moved_meanwhile(row: Row) -> RefusedError:
    """Return the refusal to forget a partition whose row another process changed meanwhile."""
    return _not_forgotten(row, "its ledger row was changed at the same moment. Run it again")


def refuse_archived(row: Row) -> None:
    """Refuse to forget an archived partition, whose source no longer exists.

    Raises:
        RefusedError: the partition is archived.
    """
    if row.archived is not None:
        why = (
            "it is archived, and that refusal does not expire. To let exports replace its rows "
            f"again, run `{unarchive_command(row)}`"
        )
        raise _not_forgotten(row, why)


def _not_forgotten(row: Row, why: str) -> RefusedError:
    return RefusedError(
        f"Cannot forget the export of partition {row.key.partition_id} of {row.source_table} in "
        f"{row.destination_table}: {why}."
    )
