"""Commits a statement on one lake table: claims the keys, writes the files, sends one commit.

`Landing` first settles the keys that an abandoned run has landed. It refuses a key that an
unfinished MOVE takes to another table, because the rows may be there already.

`Stopping`: REPLACE, DROP and DETACH stop our own OPTIMIZE, UPDATE, DELETE and CLEAR on their
partition, as ClickHouse stops merges and mutations there, because those would rewrite files that
are about to be removed. Steps:

* The stopping statement claims the keys with new epochs and names itself (step 4 of
  docs/spec/commit-protocol.md); nothing of the other statement lands from then on.
* The other statement checks its claims between files and before its commit, and releases its
  leases.
* The stopping statement waits for that; if the other does not stop in time, it takes the leases.
* If the other statement landed first, its files are dropped as well.

Exports and other statements are not stopped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, assert_never

from tableformat.committer import (
    BranchFile,
    ByStatement,
    Commit,
    DetachedChange,
    DetachLeaving,
    FetchFiles,
    KeyCommit,
    LakeTableState,
)
from tableformat.effects import Step
from tableformat.errors import (
    DestinationError,
    InternalError,
    LedgerError,
    RefusedError,
    StoppedError,
    TableFormatError,
)
from tableformat.export.cleanup import Cleaning
from tableformat.export.commit import Ports, load_table, settle_mark
from tableformat.export.decision import SourceGuards, claimed, unfinished
from tableformat.export.leases import Leases
from tableformat.export.main_state import unsettled_mark
from tableformat.ledger import (
    MANIFEST_TTL,
    MOST_FILES_NOTED,
    Claim,
    GivesWay,
    Held,
    Key,
    LeaseHeld,
    MoveIntent,
    Row,
    Stale,
    State,
    StatementKind,
)
from tableformat.messages import Command
from tableformat.names import LakeName
from tableformat.operations.copy_from import CopyFrom, Replacing
from tableformat.operations.partition_files import Partitions
from tableformat.operations.statement import (
    DetachedUse,
    FetchedCopies,
    FileCopier,
    FileCopies,
    FileRewriter,
    FileRewrites,
    KeyChange,
    OperationPorts,
    Plan,
    ReturnedFiles,
    Statement,
    Which,
    shown_partition,
)
from tableformat.operations.take_out import Detach, Drop
from tableformat.receipt import Receipt
from tableformat.table_properties import Mark, statement_fingerprint

__all__ = ["Landing", "Stopping", "gives_way", "passed_over"]

_LOOKS: Final = 20
"""With growing pauses between them, they take half a minute."""


def gives_way(statement: Statement, change: KeyChange, ports: OperationPorts) -> GivesWay | None:
    """Return the mark of a claim that may be stopped: its statement rewrites files; else None."""
    return GivesWay(str(statement), str(ports.owner)) if change.rewrites else None


def passed_over(row: Row | None, statement: Statement, ports: OperationPorts) -> Row | None:
    """Return a row that another statement claims over, with a note if its claim gives way.

    The owner of the claim no longer runs, or does not stop.
    """
    of = row.claim.gives_way if row is not None and row.state is State.RUNNING else None
    if row is None or of is None or of.stopped_by or not _may_stop(statement):
        return row
    of = replace(of, stopped_by=_name(statement, ports))
    return replace(row, claim=replace(row.claim, gives_way=of))


def _may_stop(one: Statement) -> bool:
    if isinstance(one, CopyFrom):
        return one.replaces
    return isinstance(one, Drop | Detach | Replacing)


def _name(statement: Statement, ports: OperationPorts) -> str:
    return f"{statement} of {ports.owner}"


@dataclass(slots=True)
class Stopping:
    """Which statements one run of a statement has stopped, and whether it was stopped itself.

    `claimed` are the rows of its own last claims, `begun` the transactions of all its claims,
    `passed_over` the keys of the statements that it stopped.
    """

    ports: OperationPorts
    statement: Statement
    claimed: tuple[Row, ...] = ()
    begun: set[str] = field(default_factory=set)
    passed_over: dict[str, None] = field(default_factory=dict)

    def stop(self, held: Mapping[str, LeaseHeld], leases: Leases) -> bool:
        """Stop the statements that hold the leases of keys; false if one may not be stopped.

        Raises:
            LedgerError: the ledger failed.
        """
        if not _may_stop(self.statement):
            return False
        rows = self._rows(tuple(held))
        running = tuple(
            (row, lease.owner, row.claim.gives_way)
            for row, lease in zip(rows, held.values(), strict=True)
            if row is not None and row.state is State.RUNNING and row.claim.gives_way is not None
        )
        if len(running) < len(held) or any(str(by) != of.owner for _, by, of in running):
            return False
        self._ask(tuple((row, of) for row, _, of in running if not of.stopped_by))
        for row, by, of in running:
            key = row.key.hash
            self.passed_over[key] = None
            if not self._has_stopped(key, by):
                self.ports.note(
                    f"{of.statement} of {of.owner} has not stopped, so this statement runs without "
                    f"waiting for it: nothing of it becomes visible. {Command.GC} removes files "
                    "that it still writes"
                )
                leases.take_from(key, by)
        return True

    def _ask(self, running: tuple[tuple[Row, GivesWay], ...]) -> None:
        """Claim the keys of a running statement so that it cannot land; rows that changed stay."""
        if not running:
            return
        commit, by = self.ports.commit, _name(self.statement, self.ports)
        first = commit.ledger.next_epoch(len(running))
        for text in dict.fromkeys(f"{of.statement} of {of.owner}" for _, of in running):
            self.ports.note(f"stopping {text}")
        asked = tuple(
            replace(
                row,
                claim=replace(
                    row.claim, epoch=first + number, gives_way=replace(of, stopped_by=by)
                ),
                updated=commit.clock(),
            )
            for number, (row, of) in enumerate(running)
        )
        commit.effects(Step.CLAIM, partial(commit.ledger.write_all, asked))

    def _has_stopped(self, key: str, owner: object) -> bool:
        """Wait until an owner has released a lease; false if that takes too long."""
        commit = self.ports.commit
        for attempt in range(1, _LOOKS + 1):
            found = commit.effects(Step.READ_LEDGER, partial(commit.ledger.holder, key))
            if found is None or found.owner != owner:
                return True
            commit.pause(attempt)
        return False

    def begin(self, rows: tuple[Row, ...], leases: Leases) -> None:
        """Record the run's new claims, and start to watch whether they are taken over."""
        self.claimed = rows
        self.begun |= {row.claim.transaction_id for row in rows}
        for row in rows:
            leases.watch(row.key.hash, row.claim.epoch)

    def release_claims(self, plan: Plan) -> None:
        """Release keys that an earlier turn claimed, if the new plan does nothing with them.

        No request was sent for them. If a request of an older claim may be under way, the row stays
        RUNNING, as after an interrupted run.

        Raises:
            LedgerError: the ledger failed.
        """
        needed = {change.key for change in plan.changes}
        left = tuple(row for row in self.claimed if row.key not in needed)
        if not left:
            return
        commit = self.ports.commit
        pairs = zip(left, self._rows(tuple(row.key.hash for row in left)), strict=True)
        text = "the partition was changed by others meanwhile: there was nothing left to do"
        ended = tuple(
            replace(now, state=State.FAILED).noted(text, commit.clock())
            for own, now in pairs
            if now is not None and _is_ours(own, now) and self._is_dead(now.old)
        )
        commit.effects(Step.GIVE_UP, partial(commit.ledger.write_all, ended))
        self.claimed = tuple(row for row in self.claimed if row.key in needed)

    def _is_dead(self, older: tuple[Claim, ...]) -> bool:
        """Whether no claim can land: each was given up, or is of this run, which sent nothing."""
        return all(one.given_up or one.transaction_id in self.begun for one in older)

    def look(self, leases: Leases, key: str) -> None:
        """Check that no claim of the run was taken over, before work on a key continues.

        Raises:
            StoppedError: a claim was taken over.
            LedgerError: the ledger cannot be read.
        """
        (now,) = self._rows((key,))
        own = next(row for row in self.claimed if row.key.hash == key)
        gone = now is None or now.claim.epoch != own.claim.epoch
        if gone or any(leases.taken_over(row.key.hash) for row in self.claimed):
            message = (
                f"Cannot continue {self.statement}: another run took it over. List the exports to "
                "see it."
            )
            raise StoppedError(message)

    def came_of_it(self) -> int | str | None:
        """Return the snapshot in which the last claims landed, or the statement that stopped them.

        None if neither is known. Callers have no request under way.

        Raises:
            DestinationError: the table cannot be read.
            LedgerError: the ledger cannot be read.
        """
        if not self.claimed:
            return None
        state = load_table(self.ports.commit)
        rows = self._rows(tuple(row.key.hash for row in self.claimed))
        pairs = tuple(zip(self.claimed, rows, strict=True))
        landed = next((at for own, now in pairs if (at := _landed(own, now, state))), None)
        return landed or next((by for own, now in pairs if (by := _stopped_by(own, now))), None)

    def clean(self) -> None:
        """Remove the files of stopped statements that cannot land any more; gc removes the rest."""
        commit = self.ports.commit
        try:
            if self.passed_over and commit.storage is not None:
                location = load_table(commit).location
                cleaning = Cleaning(commit, commit.storage, location)
                for key in self.passed_over:
                    cleaning.clean(key)
        except TableFormatError as error:
            self.ports.note(
                f"files of stopped statements were not removed: {error} {Command.GC} removes them"
            )

    def _rows(self, keys: tuple[str, ...]) -> tuple[Row | None, ...]:
        commit = self.ports.commit
        return commit.effects(Step.READ_LEDGER, partial(commit.ledger.read_all, keys))


def _detached_change(statement: Statement, plan: Plan) -> DetachedChange | None:
    """Return how a plan changes the branch `detached`, None if only main changes."""
    if statement.detached_use is DetachedUse.FILLED:
        return DetachLeaving()
    return FetchFiles() if plan.fetches else None


def _is_ours(own: Row, now: Row) -> bool:
    return now.state is State.RUNNING and now.claim.epoch == own.claim.epoch


def _landed(own: Row, now: Row | None, state: LakeTableState) -> int | None:
    """Return the snapshot in which a claim landed."""
    transaction_id, mark = own.claim.transaction_id, state.mark(own.key.hash)
    if mark is not None and mark.transaction_id == transaction_id:
        return mark.snapshot_id
    known = now.landed if now is not None else ()
    return next((x.snapshot_id for x in known if x.transaction_id == transaction_id), None)


def _stopped_by(own: Row, now: Row | None) -> str:
    claim = now.claim_of(own.claim.transaction_id) if now is not None else None
    return claim.gives_way.stopped_by if claim is not None and claim.gives_way is not None else ""


@dataclass(frozen=True, slots=True)
class Landing:
    """Claims and commits on one lake table; `moves` has a MOVE's destinations by key hash."""

    ports: OperationPorts
    name: LakeName
    partitions: Partitions
    moves: Mapping[str, MoveIntent] = field(default_factory=dict)

    def settle_left(self, which: Which, state: LakeTableState, leases: Leases) -> tuple[Mark, ...]:
        """Settle commits of interrupted runs that landed unrecorded; return their marks."""
        wanted = which.partition_id
        settled: list[Mark] = []
        for key in state.marks:
            row = self.row_of(key)
            mark = unsettled_mark(row, state)
            if row is None or row.move is not None or mark is None:
                continue
            if wanted is not None and not self.partitions.may_have(row, wanted):
                continue
            # A running process settles its own commits.
            if not leases.take_all((key,)):
                self._settled(row.key, state)
                settled.append(mark)
        return tuple(settled)

    def refuse_moving(self, which: Which, state: LakeTableState) -> None:
        """Refuse keys that an unfinished MOVE takes to another table.

        Raises:
            RefusedError: a MOVE takes one of the keys.
            LedgerError: the ledger cannot be read.
        """
        for row, move in self.partitions.moving(state, which.partition_id):
            what = f"Cannot change partition {row.key.partition_id} of {self.name}"
            raise RefusedError(f"{what}: {unfinished(row, move)}.")

    def row_of(self, key: str) -> Row | None:
        """Return the row of a key."""
        ports = self.ports.commit
        return ports.effects(Step.READ_LEDGER, lambda: ports.ledger.read(key))

    def check(self, files: tuple[BranchFile, ...]) -> None:
        """Refuse files that return to main if their bytes have changed since they were written."""
        if files:
            self.ports.commit.effects(Step.CHECK_FILES, lambda: self.ports.intact(files))

    def written(
        self,
        rows: tuple[Row, ...],
        plan: Plan,
        state: LakeTableState,
        look: Callable[[str], None] = lambda _: None,
    ) -> tuple[tuple[Receipt, ...], ...]:
        """Return the receipts of the files that each key gets: copies and rewritten files.

        `look` is called with the key before each rewritten file, and repeatedly while `ahead`
        writes; it raises an error if the files are no longer needed.
        """
        pairs = tuple(zip(rows, plan.changes, strict=True))
        rewritten = tuple((row, change.rewrites) for row, change in pairs if change.rewrites)
        effects, writer = self.ports.commit.effects, self.ports.writer
        ahead = writer.ahead if isinstance(writer, FileRewriter) else None
        if ahead is not None and rewritten:
            effects(Step.WRITE_FILES, lambda: ahead(rewritten, state, look))
        return tuple(self._files(row, change, state, look) for row, change in pairs)

    def noted(
        self, rows: tuple[Row, ...], plan: Plan, receipts: tuple[tuple[Receipt, ...], ...]
    ) -> tuple[Row, ...] | None:
        """Store the size of an export's rewritten files; None if another run took a claim over.

        Raises:
            LedgerError: the ledger failed.
        """
        sized = tuple(
            replace(row, claim=replace(row.claim, bytes=_size(made)))
            for row, change, made in zip(rows, plan.changes, receipts, strict=True)
            if change.like is not None and _size(made) != row.claim.bytes
        )
        if not sized:
            return rows
        ports = self.ports.commit
        written = ports.effects(Step.NOTE_WRITTEN, lambda: ports.ledger.write_all(sized))
        now = {row.key: row for row in written if isinstance(row, Row)}
        return tuple(now.get(row.key, row) for row in rows) if len(now) == len(sized) else None

    def _files(
        self, row: Row, change: KeyChange, state: LakeTableState, look: Callable[[str], None]
    ) -> tuple[Receipt, ...]:
        effects, writer = self.ports.commit.effects, self.ports.writer
        match change.comes:
            case FileCopies(files) | FetchedCopies(files) if isinstance(writer, FileCopier):
                return effects(Step.WRITE_FILES, partial(writer.copy, row, files))
            case FileRewrites(rewrites) if isinstance(writer, FileRewriter):
                before_each = partial(look, row.key.hash)
                receipts = effects(
                    Step.WRITE_FILES, partial(writer.rewrite, row, rewrites, state, before_each)
                )
                _check_rows(receipts, change)
                return receipts
            case FileCopies() | FetchedCopies() | FileRewrites():
                message = "Cannot write files without a writer. This is a bug, please report it."
                raise InternalError(message)
            case ReturnedFiles() | None:
                return ()
            case never:
                assert_never(never)

    def claim(
        self, statement: Statement, plan: Plan, state: LakeTableState
    ) -> tuple[Row, ...] | None:
        """Claim every key that changes; None if another run claimed one of them first."""
        ports = self.ports.commit
        before = [self._settled(change.key, state) for change in plan.changes]
        if any(row is not None and _is_ahead(row, state) for row in before):
            return None
        epoch = ports.ledger.next_epoch(len(before))
        rows = tuple(
            self._claimed(statement, change, row, epoch + number)
            for number, (change, row) in enumerate(zip(plan.changes, before, strict=True))
        )
        written = ports.effects(Step.CLAIM, lambda: ports.ledger.write_all(rows))
        claims = tuple(row for row in written if isinstance(row, Row))
        return claims if len(claims) == len(rows) else None

    def _settled(self, key: Key, state: LakeTableState) -> Row | None:
        """Return the row of a key, after settling a commit that has landed."""
        ports = self.ports.commit
        row = self.row_of(key.hash)
        mark = unsettled_mark(row, state)
        if row is None or mark is None:
            return row
        settled = settle_mark(ports, row, state, mark)
        if isinstance(settled, Stale):
            return self.row_of(key.hash)
        return settled

    def _claimed(self, statement: Statement, change: KeyChange, row: Row | None, epoch: int) -> Row:
        now, of = self.ports.commit.clock(), change.source
        transaction_id = self.ports.new_transaction(epoch).value
        asked = statement_fingerprint(transaction_id, self.ports.asked)
        claim = _claim_of(statement, change, epoch, transaction_id, asked, now)
        made = claimed(
            passed_over(row, statement, self.ports),
            change.key,
            names=(of.source_table if of is not None else str(self.name), str(self.name)),
            guards=SourceGuards(of.keeper_node, of.server, of.division)
            if of is not None
            else SourceGuards(),
            claim=replace(
                claim,
                move=self.moves.get(change.key.hash),
                gives_way=gives_way(statement, change, self.ports),
            ),
            ttl=row.ttl if row is not None else MANIFEST_TTL,
            now=now,
        )
        # Afterwards main may not show any more which files had the rows of the export.
        made = replace(made, rewritten=change.rewritten or made.rewritten)
        return _with_detached(made) if statement.kind is StatementKind.DETACH else made

    def commit_of(
        self,
        statement: Statement,
        plan: Plan,
        rows: tuple[Row, ...],
        receipts: tuple[tuple[Receipt, ...], ...],
        state: LakeTableState,
    ) -> Commit:
        """Return the commit of the plan, under the claims of its keys."""
        keys = tuple(
            KeyCommit(
                row.key.hash,
                row.claim.epoch,
                row.claim.transaction_id,
                row.claim.fingerprint,
                made,
                ByStatement(tuple(f.path for f in change.returns)),
                row.key.partition_id,
            )
            for row, change, made in zip(rows, plan.changes, receipts, strict=True)
        )
        identity = self.ports.commit.ledger.identity
        summary = {
            "mergeberg.statement": str(statement),
            "mergeberg.partition-id": shown_partition(statement.which),
            "mergeberg.ledger": identity,
        }
        return Commit(
            keys,
            state.layout,
            identity,
            tuple(summary.items()),
            detached=_detached_change(statement, plan),
        )

    def release_claims(self, rows: tuple[Row, ...], why: str) -> None:
        """Release claims that cannot land, unless another run has taken them over.

        A claim stays RUNNING if an earlier run may have sent a request for its key: FAILED would
        mean that this request cannot land either. If the ledger cannot be reached, that is
        reported.
        """
        ports = self.ports.commit
        if not rows:
            return
        try:
            keys = tuple(row.key.hash for row in rows)
            now = ports.effects(Step.READ_LEDGER, lambda: ports.ledger.read_all(keys))
            left = tuple(
                replace(one, state=_ended(one)).noted(why, ports.clock())
                for one, row in zip(now, rows, strict=True)
                if one is not None
                and (one.claim.epoch, one.state) == (row.claim.epoch, State.RUNNING)
            )
            if left:
                ports.effects(Step.GIVE_UP, lambda: ports.ledger.write_all(left))
        except LedgerError as error:
            self.ports.note(f"the ledger could not store the reason: {error}")

    def note_error(self, rows: tuple[Row, ...], text: str) -> None:
        """Store on the claims why they stopped; if the ledger fails, that is reported."""
        ports = self.ports.commit
        noted = tuple(row.noted(text, ports.clock()) for row in rows)
        try:
            ports.effects(Step.NOTE_ERROR, lambda: ports.ledger.write_all(noted))
        except LedgerError as error:
            self.ports.note(f"the ledger could not store the reason: {error}")


def _is_ahead(row: Row, state: LakeTableState) -> bool:
    """Whether another run has changed a key in a snapshot after M, or a MOVE takes it."""
    landed = max((x.sequence_number for x in row.landed), default=0)
    return row.move is not None or landed > state.last_sequence_number


def _ended(row: Row) -> State:
    """Return the state of a row whose claim did not land."""
    return State.FAILED if all(claim.given_up for claim in row.old) else State.RUNNING


def _size(receipts: tuple[Receipt, ...]) -> int:
    return sum(r.file_bytes for r in receipts)


def _check_rows(receipts: tuple[Receipt, ...], change: KeyChange) -> None:
    """Check that the written files have the planned rows, before they become visible.

    Raises:
        InternalError: they have others.
    """
    made, planned = [r.rows for r in receipts], [n for r in change.rewrites for n in r.made]
    if made != planned:
        message = (
            f"Cannot change partition {change.key.partition_id}: {len(made):,} files with "
            f"{sum(made):,} rows were written, but {len(planned):,} files with {sum(planned):,} "
            "rows were planned. Nothing became visible; please report it with the statement."
        )
        raise InternalError(message)


def _with_detached(row: Row) -> Row:
    """Return the row of a DETACH: its proofs stay when exports and other proofs follow."""
    kept = tuple(dict.fromkeys(row.proofs))
    while sum(len(one.files) for one in kept) > MOST_FILES_NOTED:
        kept = kept[1:]
    return replace(row, detached=kept)


def _claim_of(
    statement: Statement,
    change: KeyChange,
    epoch: int,
    transaction_id: str,
    fingerprint: str,
    now: int,
) -> Claim:
    """Return the claim of a key: of the export that its new files are, or of the statement."""
    made = [n for r in change.rewrites for n in r.made] or [f.rows for f in change.copies]
    archived = change.source.archived if change.source is not None else None
    since = archived.since if archived is not None else 0
    if change.like is not None:
        return Claim(
            epoch,
            transaction_id,
            change.like.landed.fingerprint,
            now,
            # The files that have rows of a part are different ones.
            parts=tuple(replace(part, remote_paths=()) for part in change.like.parts),
            rows=sum(made),
            data_files=len(made),
            # For rewritten files, `noted` stores the size after the rewrite.
            bytes=sum(f.bytes for f in change.copies),
            columns=change.like.columns,
            archived_since=since,
        )
    own = (Held(transaction_id, len(made), sum(made)),) if made and not change.fetches else ()
    return Claim(
        epoch,
        transaction_id,
        fingerprint,
        now,
        statement=str(statement),
        kind=statement.kind,
        holds=None if change.holds is None else (*change.holds, *own),
        archived_since=since,
    )


def stage_once(ports: Ports, state: LakeTableState, leaves: tuple[str, ...]) -> None:
    """Write the manifests of a removal of files, and delete them, to show that they can be written.

    A MOVE adds the rows to the other table first. If the removal could not be written then, they
    would be in both tables.

    Raises:
        RefusedError: the files cannot be removed from this table.
        DestinationError: the manifests cannot be written.
        LedgerError: the ledger failed.
    """
    number = ports.effects(Step.READ_LEDGER, ports.ledger.next_epoch)
    trial = Commit((), state.layout, ports.ledger.identity, number=number)
    staged = ports.effects(Step.STAGE, partial(ports.table.stage, state, trial, leaves))
    with contextlib.suppress(DestinationError):
        # It was never sent. `gc` finds what is left.
        ports.effects(Step.CLEAN_ATTEMPT, partial(ports.table.discard, staged))
