"""How a statement lands on one lake table: keys claimed, files copied, one commit for all of them.

What is claimed for a dead run and has landed is settled first. A key that an unfinished MOVE takes
to another table is nobody else's: its rows may be there already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tableformat.branches import BranchFile
from tableformat.committer import Commit, KeyCommit, LakeTableState
from tableformat.effects import Step
from tableformat.errors import InternalError, LedgerError, RefusedError
from tableformat.export.claim import claimed, unfinished
from tableformat.export.leases import Leases
from tableformat.export.marks import unsettled_mark
from tableformat.export.settling import settle_mark
from tableformat.lake_marks import Mark, statement_fingerprint
from tableformat.ledger import MANIFEST_TTL, Claim, Held, Key, Row, Stale, State
from tableformat.move_intent import MoveIntent
from tableformat.names import LakeName
from tableformat.operations.partition_files import Partitions
from tableformat.operations.planned import KeyChange, Plan
from tableformat.operations.statement import OperationPorts, Statement
from tableformat.operations.stopping import gives_way, passed_over
from tableformat.operations.which import Which, shown_partition
from tableformat.receipt import Receipt

__all__ = ["Landing"]


@dataclass(frozen=True, slots=True)
class Landing:
    """Claims and commits on one lake table. `moves` says where keys go, by hash, with a MOVE."""

    ports: OperationPorts
    name: LakeName
    partitions: Partitions
    moves: Mapping[str, MoveIntent] = field(default_factory=dict)

    def settle_left(self, which: Which, state: LakeTableState, leases: Leases) -> tuple[Mark, ...]:
        """Settle what landed and nobody noted: the owner is dead; return the marks of it."""
        wanted = which.partition_id
        settled: list[Mark] = []
        for key in state.marks:
            row = self.row_of(key)
            mark = unsettled_mark(row, state)
            if row is None or row.move is not None or mark is None:
                continue
            if wanted is not None and not self.partitions.may_have(row, wanted):
                continue
            # The living settle their own.
            if not leases.take_all((key,)):
                self._settled(row.key, state)
                settled.append(mark)
        return tuple(settled)

    def refuse_moving(self, which: Which, state: LakeTableState) -> None:
        """Refuse what a MOVE that is not finished takes to another table.

        Raises:
            RefusedError: it does, of one of the keys.
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
        """Refuse what comes back to main otherwise than it was written."""
        if files:
            self.ports.commit.effects(Step.CHECK_FILES, lambda: self.ports.intact(files))

    def written(
        self,
        rows: tuple[Row, ...],
        plan: Plan,
        state: LakeTableState,
        look: Callable[[str], None] = lambda _: None,
    ) -> tuple[tuple[Receipt, ...], ...]:
        """Return the receipts of the files that each key gets: copies, or files written anew.

        Before each of these, or again and again while others write them, `look` is called with the
        key: it raises when nobody needs them.
        """
        pairs = tuple(zip(rows, plan.changes, strict=True))
        anew = tuple((row, change.rewrites) for row, change in pairs if change.rewrites)
        effects, ahead = self.ports.commit.effects, self.ports.ahead
        if ahead is not None and anew:
            effects(Step.WRITE_FILES, lambda: ahead(anew, state, look))
        return tuple(self._files(row, change, state, look) for row, change in pairs)

    def noted(
        self, rows: tuple[Row, ...], plan: Plan, receipts: tuple[tuple[Receipt, ...], ...]
    ) -> tuple[Row, ...] | None:
        """Note the size of an export's files that were written anew; None when one was taken over.

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
        effects, copy, rewrite = self.ports.commit.effects, self.ports.copy, self.ports.rewrite
        if change.copies and copy is not None:
            return effects(Step.WRITE_FILES, lambda: copy(row, change.copies))
        if change.rewrites and rewrite is not None:
            before_each = partial(look, row.key.hash)
            receipts = effects(
                Step.WRITE_FILES, lambda: rewrite(row, change.rewrites, state, before_each)
            )
            _check_rows(receipts, change)
            return receipts
        if change.copies or change.rewrites:
            message = "Files are to be written, and nothing can. This is a bug, please report it."
            raise InternalError(message)
        return ()

    def claim(
        self, statement: Statement, plan: Plan, state: LakeTableState
    ) -> tuple[Row, ...] | None:
        """Claim every key that changes; None when another run was faster with one."""
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
        """Return the row of a key once what landed of it is settled."""
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
        return claimed(
            passed_over(row, statement, self.ports),
            change.key,
            names=(of.source_table if of is not None else str(self.name), str(self.name)),
            keeper_node=of.keeper_node if of is not None else None,
            division=of.division if of is not None else None,
            claim=replace(
                claim,
                move=self.moves.get(change.key.hash),
                gives_way=gives_way(statement, change, self.ports),
            ),
            ttl=row.ttl if row is not None else MANIFEST_TTL,
            now=now,
        )

    def commit_of(
        self,
        statement: Statement,
        plan: Plan,
        rows: tuple[Row, ...],
        receipts: tuple[tuple[Receipt, ...], ...],
        state: LakeTableState,
    ) -> Commit:
        """Return what becomes visible at once: the plan, under the claims of its keys."""
        keys = tuple(
            KeyCommit(
                row.key.hash,
                row.claim.epoch,
                row.claim.transaction_id,
                row.claim.fingerprint,
                made,
                partition_id=row.key.partition_id,
                returns=tuple(f.path for f in change.returns),
                of_statement=True,
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
            detaches=statement.detaches,
            fetches=any(change.aside for change in plan.changes),
        )

    def let_go(self, rows: tuple[Row, ...], why: str) -> None:
        """Let claims go of which nothing can land; those that are another run's by now stay.

        So do those of keys of which an earlier run may have sent something: FAILED would say that
        it is dead as well. A ledger that is away is said.
        """
        ports = self.ports.commit
        if not rows:
            return
        try:
            keys = tuple(row.key.hash for row in rows)
            now = ports.effects(Step.READ_LEDGER, lambda: ports.ledger.read_all(keys))
            left = tuple(
                replace(one, state=_ended(one), last_error=why, updated=ports.clock())
                for one, row in zip(now, rows, strict=True)
                if one is not None
                and (one.claim.epoch, one.state) == (row.claim.epoch, State.RUNNING)
            )
            if left:
                ports.effects(Step.GIVE_UP, lambda: ports.ledger.write_all(left))
        except LedgerError as error:
            self.ports.note(f"the ledger could not be told why: {error}")

    def note_error(self, rows: tuple[Row, ...], text: str) -> None:
        """Say on the claims why they stopped; a ledger that is away is said as well."""
        ports = self.ports.commit
        noted = tuple(replace(row, last_error=text, updated=ports.clock()) for row in rows)
        try:
            ports.effects(Step.NOTE_ERROR, lambda: ports.ledger.write_all(noted))
        except LedgerError as error:
            self.ports.note(f"the ledger could not be told why: {error}")


def _is_ahead(row: Row, state: LakeTableState) -> bool:
    """Whether others have done something to a key that M does not have, or are about to."""
    landed = max((x.sequence_number for x in row.landed), default=0)
    return row.move is not None or landed > state.last_sequence_number


def _ended(row: Row) -> State:
    """Return the state of a row whose claim came to nothing."""
    return State.FAILED if all(claim.given_up for claim in row.old) else State.RUNNING


def _size(receipts: tuple[Receipt, ...]) -> int:
    return sum(r.file_bytes for r in receipts)


def _check_rows(receipts: tuple[Receipt, ...], change: KeyChange) -> None:
    """Check that what was written is what was planned, before anybody sees it."""
    made, planned = [r.rows for r in receipts], [n for r in change.rewrites for n in r.made]
    if made != planned:
        message = (
            f"Cannot change partition {change.key.partition_id}: {len(made):,} files were written "
            f"anew with {sum(made):,} rows, and {len(planned):,} with {sum(planned):,} were "
            "planned. Nothing became visible; please report it with the statement."
        )
        raise InternalError(message)


def _claim_of(
    statement: Statement,
    change: KeyChange,
    epoch: int,
    transaction_id: str,
    fingerprint: str,
    now: int,
) -> Claim:
    """Return the claim of a key: that of the export that its files are, or the statement's."""
    made = [n for r in change.rewrites for n in r.made] or [f.rows for f in change.copies]
    if change.like is not None:
        return Claim(
            epoch,
            transaction_id,
            change.like.landed.fingerprint,
            now,
            # The files that held rows of a part are others.
            parts=tuple(replace(part, remote_paths=()) for part in change.like.parts),
            rows=sum(made),
            data_files=len(made),
            # Of what is written anew it is noted when it is there, as `noted` does.
            bytes=sum(f.bytes for f in change.copies),
            columns=change.like.columns,
        )
    own = (Held(transaction_id, len(made), sum(made)),) if made and not change.aside else ()
    return Claim(
        epoch,
        transaction_id,
        fingerprint,
        now,
        statement=str(statement),
        holds=None if change.holds is None else (*change.holds, *own),
    )
