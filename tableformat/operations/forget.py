"""Runs ALTER TABLE … FORGET PARTITION: removes the ledger rows of an empty partition.

As in ClickHouse, a partition with files is refused (code 716), and so is an unknown one (code 999):
never exported, or forgotten before.

The row of a key is removed, with its manifest, mark, commit lists and receipts, once none of its
rows can return to main: no snapshot of any branch or tag has them, and no request for the key can
still land. An empty commit, the fence, makes sure of the latter. It also removes the mark, which a
later export would take for its own.

Until then the row stays, and only the refusal of another export ends: main may be moved back to a
snapshot that has the rows, or ATTACH may bring them back from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tableformat.clickhouse_codes import CANNOT_FORGET_PARTITION, KEEPER_EXCEPTION
from tableformat.committer import DETACHED_BRANCH, MAIN_BRANCH, LakeTableState
from tableformat.effects import Step
from tableformat.errors import InternalError, NotFoundError, RefusedError
from tableformat.export.cleanup import Cleaning
from tableformat.export.commit import held_in_main, load_table, send_empty
from tableformat.export.commit_lists import list_location, listed_in
from tableformat.export.give_up import moved_meanwhile, refuse_archived, works_on_it
from tableformat.export.leases import Leases
from tableformat.export.main_state import Kind, unsettled_mark
from tableformat.export.outcome import Outcome, Status
from tableformat.ledger import Row, Stale, State
from tableformat.operations.partition_files import Partitions
from tableformat.operations.statement import OnePartition, OperationPorts
from tableformat.quantities import counted

__all__ = ["Forget"]

_IS_EMPTY: Final = (Kind.GONE, Kind.WHOLE)
"""The states in which a key without files in main has no rows in other files either."""


@dataclass(frozen=True, slots=True)
class Forget:
    """FORGET PARTITION: `which` is the partition."""

    which: OnePartition

    def __str__(self) -> str:
        """Return the statement."""
        return f"FORGET {self.which}"

    def run(
        self, ports: OperationPorts, partitions: Partitions, *, dry_run: bool = False
    ) -> Outcome:
        """Forget the partition; return the outcome.

        Raises:
            RefusedError: main has files of it (code 716), it is archived, or another run works on
                it.
            NotFoundError: the ledger knows nothing of it (code 999).
            TableFormatError: the table or the ledger failed.
        """
        commit = ports.commit
        rows = self._rows(load_table(commit), partitions)
        if dry_run:
            return self._report(partitions, "would be forgotten")
        with Leases(
            commit.ledger,
            ports.owner,
            effects=commit.effects,
            is_alive=ports.is_alive,
            note=ports.note,
        ) as leases:
            held = leases.take_all(tuple(row.key.hash for row in rows))
            for row in rows:
                if (one := held.get(row.key.hash)) is not None:
                    raise works_on_it(row, one, commit.clock())
            made = [_Forgetting(ports, partitions, row).run() for row in rows]
        message = "; ".join(dict.fromkeys(one.text for one in made))
        if not any(one.changed for one in made):
            raise self._unknown(partitions, f"{self.which} was forgotten before: {message}")
        return self._report(partitions, message)

    def _report(self, partitions: Partitions, text: str) -> Outcome:
        partition_id = str(self.which.partition_id)
        return Outcome(partition_id, Status.FORGOTTEN, str(partitions.name), text)

    def _unknown(self, partitions: Partitions, why: str) -> NotFoundError:
        message = f"Cannot run {self} on {partitions.name}: {why}."
        return NotFoundError(message, code=KEEPER_EXCEPTION)

    def _rows(self, state: LakeTableState, partitions: Partitions) -> tuple[Row, ...]:
        """Return the ledger rows of a partition without files in main; at least one has an export.

        Raises:
            RefusedError: main has files of it (code 716), or one of its exports is archived.
            NotFoundError: the ledger has no export of it (code 999).
        """
        partition_id = self.which.partition_id
        there = partitions.files(state, partition_id)
        named = partitions.files(state, partition_id, by_name=True)
        if keys := there.keys or named.keys:
            files = sum(len(one.files) for one in keys)
            message = (
                f"Cannot run {self} on {partitions.name}: partition {partition_id} is not empty: "
                f"main has {counted(files, 'file')} of it. DROP PARTITION or DETACH PARTITION "
                "first."
            )
            raise RefusedError(message, code=CANNOT_FORGET_PARTITION)
        rows = tuple(r for r in partitions.rows_named(state, partition_id) if r.settled)
        if not any(row.done for row in rows):
            why = f"this ledger has no export of partition {partition_id}"
            raise self._unknown(partitions, f"{why}, so there is nothing to forget")
        for row in rows:
            refuse_archived(row)
        return rows


@dataclass(frozen=True, slots=True)
class _Forgotten:
    """The outcome for one key; `changed` tells whether the ledger was changed."""

    text: str
    changed: bool


@dataclass(frozen=True, slots=True)
class _Forgetting:
    """Forgets one key, whose lease the caller holds."""

    ports: OperationPorts
    partitions: Partitions
    row: Row

    @property
    def _key(self) -> str:
        return self.row.key.hash

    def run(self) -> _Forgotten:
        """Remove the key's row and files; if they are still needed, end only the refusal."""
        state = load_table(self.ports.commit)
        cleaning = self._cleaning(state)
        cleaning.clean(self._key)
        row = self._read()
        refuse_archived(row)
        if why := self._needed_for(row, state):
            return self._kept(row, why)
        state = self._fenced(row)
        if why := self._needed_for(row, state):
            return self._kept(row, why)
        self._remove_files(cleaning)
        gone = self.ports.commit.effects(
            Step.CLEAN_CLAIM, partial(self.ports.commit.ledger.remove, row)
        )
        if isinstance(gone, Stale):
            raise moved_meanwhile(row)
        return _Forgotten(f"{_named(row)}: its ledger row was removed", changed=True)

    def _cleaning(self, state: LakeTableState) -> Cleaning:
        storage = self.ports.commit.storage
        if storage is None:
            message = (
                "Cannot run FORGET without access to storage. This is a bug, please report it."
            )
            raise InternalError(message)
        return Cleaning(self.ports.commit, storage, state.location)

    def _read(self) -> Row:
        """Return the present row.

        Raises:
            RefusedError: it is gone, or another run has claimed the key.
        """
        commit = self.ports.commit
        row = commit.effects(Step.READ_LEDGER, partial(commit.ledger.read, self._key))
        if row is None or row.claim.epoch != self.row.claim.epoch:
            raise moved_meanwhile(self.row)
        return row

    def _needed_for(self, row: Row, state: LakeTableState) -> str:
        """Return why the row is still needed, '' if no rows of the key can return to main."""
        settled = row.settled
        if settled is None or row.state is State.RUNNING or unsettled_mark(row, state):
            return "an export or statement on it has not ended. Run it again, or cancel it"
        if row.old or (row.state in (State.KILLED, State.FAILED) and row.claim.recipe):
            return (
                "exports that did not land may still write files. `gc` removes them, and the "
                "partition can be forgotten seven days after those exports began"
            )
        held = held_in_main(self.ports.commit, row, state, self._key)
        if held.kind not in _IS_EMPTY or held.files:
            return held.text.rstrip(".")
        if holds := self._holding(row, state):
            return f"{holds} has its rows, and they can be read and attached from there"
        line = self._detached_line(state)
        ours = {s.snapshot_id for s in state.ancestors()} | line
        for one in state.snapshots.values():
            before = one.sequence_number < settled.sequence_number
            if one.snapshot_id not in ours or (before and one.snapshot_id not in line):
                return f"snapshot {one.snapshot_id}, which main can be moved to, may have its rows"
        return ""

    def _holding(self, row: Row, state: LakeTableState) -> str:
        """Name the branches and tags, or earlier snapshots, that refer to files of the key.

        It is '' if nothing does.
        """
        table = self.ports.commit.table
        rewritten = {path for proof in row.proofs for path in proof.files}
        if {f.path for f in self.partitions.detached(state)} & rewritten:
            return f"{DETACHED_BRANCH} of the table"
        known = {c.transaction_id for c in (row.claim, *row.old)}
        known |= {x.transaction_id for x in row.landed}
        if not table.refers_to(state, self._key, known):
            return ""
        named = self.partitions.lake.references(state)
        found = sorted(
            name
            for name, snapshot_id in named.items()
            if name != MAIN_BRANCH and table.files_of(state, self._key, snapshot_id)
        )
        return f"{', '.join(found)} of the table" if found else "an earlier snapshot"

    def _detached_line(self, state: LakeTableState) -> set[int]:
        """Return the known snapshots of the branch `detached`."""
        at = self.partitions.lake.references(state).get(DETACHED_BRANCH)
        line: set[int] = set()
        while at is not None and at in state.snapshots and at not in line:
            line.add(at)
            at = state.snapshots[at].parent_id
        return line

    def _kept(self, row: Row, why: str) -> _Forgotten:
        """End the refusal of another export, and keep the row."""
        text = f"the ledger keeps what landed, because {why}"
        done = row.done
        if done is None or done.forgotten:
            return _Forgotten(text, changed=False)
        commit = self.ports.commit
        after = replace(row, done=replace(done, forgotten=True), updated=commit.clock())
        written = commit.effects(Step.SETTLE, partial(commit.ledger.write, after))
        if isinstance(written, Stale):
            raise moved_meanwhile(row)
        return _Forgotten(f"{_named(row)}: exporting it again is not refused; {text}", changed=True)

    def _fenced(self, row: Row) -> LakeTableState:
        """Make sure that no request for the key can land, and remove its mark.

        Return the state of the table afterwards.

        Raises:
            RefusedError: another run changed the row, or no empty commit was confirmed.
        """
        commit = self.ports.commit
        first: int | None = None
        for attempt in range(1, commit.most_attempts + 1):
            state = load_table(commit)
            if self._read().version != row.version or unsettled_mark(row, state):
                raise moved_meanwhile(row)
            mark = state.mark(self._key)
            if first is not None and state.last_sequence_number > first and mark is None:
                return state
            first = state.last_sequence_number if first is None else first
            if attempt > 1:
                commit.pause(attempt - 1)
            send_empty(commit, state, "fence", remove_marks=(self._key,) if mark else ())
        message = (
            f"Cannot forget {_named(row)}: the catalog confirmed none of {commit.most_attempts} "
            "empty commits. Run it again."
        )
        raise RefusedError(message)

    def _remove_files(self, cleaning: Cleaning) -> None:
        """Remove the receipts of the key, and the commit lists that name no other key."""
        effects = self.ports.commit.effects
        for one in cleaning.receipts_of(self._key):
            storage = cleaning.storage(one.location)
            effects(Step.CLEAN_RECEIPT, partial(storage.delete, one.location))
        for one in cleaning.begun_and_finished(list_location(cleaning.location)):
            storage = cleaning.storage(one.location)
            if one.location.rsplit("/", 1)[-1].startswith("."):
                continue
            text = effects(Step.FIND_GARBAGE, partial(storage.read, one.location))
            if {listed.key.hash for listed in listed_in(one.location, text)} == {self._key}:
                effects(Step.CLEAN_RECEIPT, partial(storage.delete, one.location))


def _named(row: Row) -> str:
    return f"partition {row.key.partition_id} of {row.source_table} in {row.destination_table}"
