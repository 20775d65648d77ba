"""Defines the contract of the ledger, which records every export of a partition.

The ledger keeps three things separate (docs/spec/ledger.md):

* the lease, bounded in time: it keeps two owners from the same work and proves nothing;
* the row, permanent: epoch, state, landed exports. It changes only by compare-and-set on its
  `version`;
* the record in the row: the content of the last export. Its time to live ends only the refusal of
  another export.

A ledger stores rows; `tableformat/export/decision.py` and `commit.py` decide the transitions.
`conformance/suites/ledger.py` compares each implementation with the one in memory.

A statement (DROP, UPDATE, OPTIMIZE …) claims the row as an export does, so that both never change
the same files. It is not an export: begin, query, end and content of the last export stay the same
(`last_export`; RQ…SystemTables.Exports).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Final, Protocol

from tableformat.errors import UsageError
from tableformat.history import History
from tableformat.mergetree.table import KeeperNode
from tableformat.messages import plain
from tableformat.names import Key, TransactionId

__all__ = [
    "MANIFEST_TTL",
    "MOST_FILES_NOTED",
    "Archived",
    "Claim",
    "DetachedPart",
    "ExportedPart",
    "GivesWay",
    "Held",
    "Key",
    "Landed",
    "LastExport",
    "Lease",
    "LeaseHeld",
    "Ledger",
    "MoveIntent",
    "Owner",
    "Record",
    "Rewritten",
    "Row",
    "Stale",
    "Standing",
    "State",
    "StatementKind",
    "Stop",
    "last_export",
]


@dataclass(frozen=True, slots=True)
class DetachedPart:
    """The identity of a part in the source's `detached` directory, as the source lists it.

    `modified` is seconds since 1970, `bytes` its size; each is 0 if the source does not report it.
    """

    name: str
    bytes: int = 0
    modified: int = 0


@dataclass(frozen=True, slots=True)
class Archived:
    """The rows of a completed export left their source: the lake may have the only copy.

    `since` is milliseconds since 1970. `detached` are the parts that are still in the source's
    `detached` directory, empty if they were dropped. It is None from before the change of the
    source until the source has reported them. `is_ending`: an unarchive has begun and not ended.
    """

    since: int
    detached: tuple[DetachedPart, ...] | None = None
    is_ending: bool = False


@dataclass(frozen=True, slots=True)
class GivesWay:
    """The running statement as text, its owner, and the statement that stops it, '' for none."""

    statement: str
    owner: str
    stopped_by: str = ""


@dataclass(frozen=True, slots=True)
class MoveIntent:
    """The destination of a key's rows, and the files that leave main once the rows are there.

    It is in the claim, so that any later run can finish the MOVE (decision 0013). `key` is the hash
    of the key in the destination, `transaction_id` the transaction that brings the rows, `table`
    the name of the lake table. `files` is a digest of the paths here.
    """

    key: str
    transaction_id: str
    table: str
    files: str


MANIFEST_TTL: Final = 180
"""ClickHouse's default of the seconds in which an export refuses another one."""


class State(StrEnum):
    """The state of a key's row."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    KILLED = "KILLED"


class Standing(StrEnum):
    """The state of a partition's export in `exports list` and `exports show`."""

    IN_PROGRESS = "IN_PROGRESS"
    INTERRUPTED = "INTERRUPTED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    COMPLETED = "COMPLETED"
    ARCHIVED = "ARCHIVED"


class StatementKind(StrEnum):
    """The kind of a statement on a lake table, in claims and in the ledger.

    All decisions on a statement depend on its kind, never on its text. Only rows of format 11 and
    earlier have OTHER: no release is known to have written their text.
    """

    ATTACH = "ATTACH"
    ATTACH_FROM = "ATTACH FROM"
    CLEAR_COLUMN = "CLEAR COLUMN"
    CLEAR_INDEX = "CLEAR INDEX"
    DELETE = "DELETE"
    DETACH = "DETACH"
    DROP = "DROP"
    FETCH = "FETCH"
    FETCH_FROM_OUTSIDE = "FETCH FROM OUTSIDE"
    """FETCH from a location that is not a table of the lake."""
    MOVE_TO_DISK = "MOVE TO DISK"
    MOVE_TO_TABLE = "MOVE TO TABLE"
    OPTIMIZE = "OPTIMIZE"
    REPLACE_FROM = "REPLACE FROM"
    UPDATE = "UPDATE"
    OTHER = "OTHER"

    @property
    def rewrites_rows(self) -> bool:
        """Whether it writes rows to other files, and removes no partition or part."""
        return self in _REWRITES_ROWS


_REWRITES_ROWS: Final = frozenset(
    {
        StatementKind.UPDATE,
        StatementKind.DELETE,
        StatementKind.CLEAR_COLUMN,
        StatementKind.CLEAR_INDEX,
        StatementKind.OPTIMIZE,
        StatementKind.MOVE_TO_DISK,
    }
)


class Stop(StrEnum):
    """The reason why a user, and no error, stopped the last run of a claim."""

    INTERRUPTED = "INTERRUPTED"
    CANCELLED = "CANCELLED"
    """The export was cancelled. Its former owner reads here why it was superseded."""
    QUERY_KILLED = "QUERY_KILLED"
    """The whole statement was killed: its run also claims no further partition."""

    @property
    def text(self) -> str:
        """Return the reason as a message shows it."""
        return _STOPPED[self]


_STOPPED: Final = {
    Stop.INTERRUPTED: "interrupted",
    Stop.CANCELLED: "it is being cancelled",
    Stop.QUERY_KILLED: "its query was killed",
}


@dataclass(frozen=True, slots=True)
class Owner:
    """The job of a process that holds a lease.

    `start` distinguishes the process from a later one with the same number, and after JOB_MARK the
    job from others of its process. Earlier releases name no job.
    """

    JOB_MARK: ClassVar = "-"
    host: str
    pid: int
    start: str

    def __str__(self) -> str:
        """Return the owner as a message shows it."""
        job = self.start.partition(self.JOB_MARK)[2]
        return f"{f'job {job} of ' if job else ''}process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class Lease:
    """A granted lease. `until` is milliseconds since 1970 by the ledger's clock."""

    key: str
    owner: Owner
    until: int


@dataclass(frozen=True, slots=True)
class LeaseHeld:
    """A lease of another owner, since when and until when, in milliseconds since 1970."""

    owner: Owner
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Stale:
    """A write that was refused: the row has changed since it was read."""

    found: int | None


@dataclass(frozen=True, slots=True)
class Held:
    """The number of files and rows of one transaction of a key that are in main."""

    transaction_id: str
    data_files: int
    rows: int


@dataclass(frozen=True, slots=True)
class Landed:
    """An export of the key that landed in main; permanent. `data_files` 0: no longer known.

    With a `kind` it is a statement on the lake table instead. `holds` are the files of the key that
    the statement left in main, None if they are unknown. Of an export of new parts they are the
    files that stay, which `rows` and `data_files` include (decision 0026). `moved_to` is the lake
    table to which a MOVE brought them.
    """

    epoch: int
    transaction_id: str
    fingerprint: str
    snapshot_id: int
    sequence_number: int
    rows: int
    data_files: int
    statement: str = ""
    holds: tuple[Held, ...] | None = None
    moved_to: str = ""
    kind: StatementKind | None = None

    @property
    def stays(self) -> tuple[Held, ...]:
        """The files of earlier exports next to which an export of new parts landed."""
        return () if self.kind is not None else self.holds or ()

    @property
    def own(self) -> Held:
        """The files that the export itself brought to main."""
        files = self.data_files - sum(one.data_files for one in self.stays)
        return Held(self.transaction_id, files, self.rows - sum(one.rows for one in self.stays))

    @property
    def left(self) -> tuple[Held, ...] | None:
        """The files of the key that main had after it, None if they are unknown."""
        is_known = self.kind is None and self.data_files
        return (*self.stays, self.own) if is_known else self.holds

    @property
    def rows_left(self) -> int | None:
        """The rows of the key that main had after it, None if they are unknown."""
        return None if self.left is None else sum(one.rows for one in self.left)


MOST_FILES_NOTED: Final = 1000
"""A row stores no proof of more files: a path has a hundred bytes, and every run reads the row."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The proof that files of other writers have the rows of a key (`export/main_state.py`).

    `transaction_id` is that of the export, or of the statement that changed rows, that left them.
    `snapshots` rewrote files, each with the operation `replace`. `files` are the paths of all files
    with the rows, `rows` is the number of all rows in them.
    """

    transaction_id: str
    snapshots: tuple[int, ...]
    files: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class ExportedPart:
    """A source part as exported, with the values that show whether a merge explains later parts.

    `remote_paths` are the files that hold its rows. They are set when all files of the partition
    exist.
    """

    name: str
    hash_of_all_files: str
    rows: int
    min_block: int
    max_block: int
    data_version: int
    bytes_on_disk: int = 0
    remote_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """The latest claim of a transaction, and what that transaction exports.

    * `epoch` numbers the claims of one ledger. A claim that resumes keeps the transaction and gets
      another epoch.
    * `begun` is milliseconds since 1970; `staging` is the handle of the source snapshot.
    * `rows`, `data_files` (both with `stays`) and `bytes` are set when all its files exist.
    * `recipe` is a digest of everything that determines the content of the files. A run does not
      reuse files with another recipe. The slices were planned with `bytes_ratio` and `slots`.
    * `query_id` names the statement that claimed last.
    * `given_up`, of a claim in `Row.old`: nothing of it can land any more.
    * `statement` and `kind` are those of a statement on the lake table; `holds` as in `Landed`.
    * `move` is that of a MOVE until it ends. `gives_way`: REPLACE, DROP and DETACH may stop it.
    * `columns` identifies the source's stored columns, and says whether parts lacked any; or ''.
    * `archived_since`: a statement brings rows that are archived since then; 0 if they are not.
    """

    epoch: int
    transaction_id: str
    fingerprint: str
    begun: int
    parts: tuple[ExportedPart, ...] = ()
    staging: tuple[str, ...] = ()
    recipe: str = ""
    bytes_ratio: float = 1.0
    slots: int = 1
    rows: int = 0
    data_files: int = 0
    bytes: int = 0
    query_id: str = ""
    given_up: bool = False
    statement: str = ""
    holds: tuple[Held, ...] | None = None
    move: MoveIntent | None = None
    gives_way: GivesWay | None = None
    columns: str = ""
    kind: StatementKind | None = None
    archived_since: int = 0

    @property
    def by_statement(self) -> bool:
        """Whether a statement claims, which changes rows of the key that main has."""
        return self.kind is not None or self.gives_way is not None

    @property
    def stays(self) -> tuple[Held, ...]:
        """The files of earlier exports next to which an export of new parts lands."""
        return () if self.by_statement else self.holds or ()


@dataclass(frozen=True, slots=True)
class Record:
    """The last completed export. Times are milliseconds since 1970.

    `begun`, `query_id` and `columns` are those of the claim that wrote its rows, 0 and '' if an
    earlier release did not store them. Files that OPTIMIZE rewrote belong to the same export.

    For `ttl` seconds (0 is for ever) another export is refused, unless the record is `forgotten`.
    """

    landed: Landed
    parts: tuple[ExportedPart, ...]
    bytes: int
    completed: int
    ttl: int
    forgotten: bool = False
    begun: int = 0
    query_id: str = ""
    columns: str = ""

    @property
    def source_rows(self) -> int:
        """The rows of the exported parts, including lightweight-deleted ones."""
        return sum(p.rows for p in self.parts)

    def refuses(self, now: int) -> bool:
        """Whether another export is refused at `now`, in milliseconds since 1970."""
        return not self.forgotten and (self.ttl == 0 or now < self.completed + self.ttl * 1000)


@dataclass(frozen=True, slots=True)
class Row:
    """The state of a key. Times are milliseconds since 1970.

    * `claim` is the latest claim, `ttl` the manifest TTL that its record will get.
    * `old` lists claims of earlier transactions whose files may still exist. None of these files is
      deleted before this key has landed (docs/spec/commit-protocol.md, step 1).
    * `done` is the last completed export, `changed` the last statement on the lake table that
      completed since. `landed` lists all of both.
    * `keeper_node`, `server`, `division` are of the source table; None and '' are unknown.
    * `rewritten` is the last proof for rewritten files, None if there is none. Statements on the
      lake table keep it. `detached` are the proofs for files that a DETACH took to the branch.
    * While the row is `archived`, no export of the key begins or commits (`export/archived.py`).
    * `last_error` is why the last run ended without a commit; `stop` is set if a user stopped it.
    """

    key: Key
    source_table: str
    destination_table: str
    state: State
    claim: Claim
    created: int
    updated: int
    version: int = 0
    landed: tuple[Landed, ...] = ()
    old: tuple[Claim, ...] = ()
    done: Record | None = None
    ttl: int = MANIFEST_TTL
    last_error: str = ""
    keeper_node: KeeperNode | None = None
    server: str = ""
    changed: Landed | None = None
    division: str | None = None
    archived: Archived | None = None
    stop: Stop | None = None
    rewritten: Rewritten | None = None
    detached: tuple[Rewritten, ...] = ()

    @property
    def proofs(self) -> tuple[Rewritten, ...]:
        """The proofs for rewritten files, in main or detached, the latest last."""
        return self.detached if self.rewritten is None else (*self.detached, self.rewritten)

    @property
    def settled(self) -> Landed | None:
        """The last completed export or statement; None before the first."""
        return self.changed or (self.done.landed if self.done else None)

    @property
    def done_epoch(self) -> int:
        """The epoch of the last completed export or statement, 0 before the first."""
        return self.settled.epoch if self.settled else 0

    @property
    def last(self) -> Claim | Landed:
        """The source of the row's figures: the completed export, or else the current claim."""
        if self.state is State.COMPLETED and self.done is not None:
            return self.done.landed
        return self.claim

    @property
    def bytes(self) -> int:
        """Bytes of the files of `last`."""
        if self.state is State.COMPLETED and self.done is not None:
            return self.done.bytes
        return self.bytes_with(self.claim)

    def bytes_with(self, claim: Claim) -> int:
        """Return the bytes of the files of a claim, and of those of `done` that stay with it."""
        stays = self.done.bytes if self.done and claim.stays and claim.data_files else 0
        return claim.bytes + stays

    @property
    def is_exporting(self) -> bool:
        """Whether an export is running or interrupted; the claim of a statement has no recipe."""
        is_export = self.key.is_of_export and self.claim.recipe and not self.claim.by_statement
        return bool(is_export) and self.state is State.RUNNING

    @property
    def move(self) -> MoveIntent | None:
        """The unfinished MOVE that takes the key's rows to another table, if any."""
        return self.claim.move if self.state is State.RUNNING else None

    def noted(self, why: str | Stop, updated: int) -> Row:
        """Return the row with the reason why the last run ended: a stop or an error."""
        if isinstance(why, Stop):
            return replace(self, last_error=why.text, stop=why, updated=updated)
        return replace(self, last_error=plain(why), stop=None, updated=updated)

    def claim_of(self, transaction_id: str) -> Claim | None:
        """Return the claim of a transaction that is not yet known to have landed."""
        claims = (self.claim, *self.old)
        return next((c for c in claims if c.transaction_id == transaction_id), None)

    def knows(self, snapshot_id: int) -> bool:
        """Whether the row lists an export that landed in this snapshot."""
        return any(x.snapshot_id == snapshot_id for x in self.landed)

    def with_landed(self, landed: Landed) -> Row:
        """Return the row with `landed` added, unless the row lists it already."""
        known = self.knows(landed.snapshot_id)
        return self if known else replace(self, landed=(*self.landed, landed))


class Ledger(History, Protocol):
    """Stores rows, the epoch counter and leases. Every method may raise LedgerError."""

    @property
    def identity(self) -> str:
        """The permanent id of this ledger.

        Every table to which it exports stores the id, so that another ledger can be refused. If the
        ledger does not exist, reading the id creates it.
        """
        ...

    @property
    def uri(self) -> str:
        """The location of the ledger, as `--ledger` accepts it."""
        ...

    def is_made(self) -> bool:
        """Whether the ledger exists; a missing one reads as empty, and reading creates none."""
        ...

    def read(self, key: str) -> Row | None:
        """Return the latest row of a key hash, never from a cache (Keeper: sync, then read)."""
        ...

    def read_all(self, keys: tuple[str, ...]) -> tuple[Row | None, ...]:
        """Read many keys in one request, each as `read` does."""
        ...

    def rows(
        self, *, state: State | None = None, query_id: str = "", not_of: str = ""
    ) -> Iterator[Row]:
        """Return all rows, latest update first.

        The arguments select rows: of a state, of the query of their claim, `not_of` a source.
        """
        ...

    def write(self, row: Row) -> Row | Stale:
        """Replace the row that has `row.version` (0: no row may exist); return the new row.

        A row that was removed and created again has another `created`, so it is another row.
        """
        ...

    def write_all(self, rows: tuple[Row, ...]) -> tuple[Row | Stale, ...]:
        """Write rows of different keys in one request, each as `write` does, with one result each.

        After an error it is unknown which rows were written.
        """
        ...

    def remove(self, row: Row) -> Stale | None:
        """Remove the row that has `row.version`; return None also if another process removed it.

        Its epochs are never assigned again, and `highest_landed` does not change.
        """
        ...

    def next_epoch(self, count: int = 1) -> int:
        """Return a number greater than all returned before, the first of `count` new ones."""
        ...

    def highest_epoch(self) -> int:
        """Return the greatest number that `next_epoch` has returned, 0 before the first."""
        ...

    def highest_landed(self, destination: str) -> int:
        """Return the greatest sequence number in any row of a destination, 0 if there is none."""
        ...

    def take_lease(
        self, key: str, owner: Owner, seconds: float, *, instead_of: Owner | None = None
    ) -> Lease | LeaseHeld:
        """Grant a lease that is free, expired, or held by `owner` or `instead_of`."""
        ...

    def take_leases(
        self, keys: tuple[str, ...], owner: Owner, seconds: float
    ) -> tuple[Lease | LeaseHeld, ...]:
        """Grant leases of many keys in one request, as `take_lease` does; one result each."""
        ...

    def renew(self, lease: Lease, seconds: float) -> Lease | LeaseHeld:
        """Extend a lease if its owner still holds it; otherwise return the current holder."""
        ...

    def release(self, *leases: Lease) -> None:
        """Release leases; those that another owner holds by now stay."""
        ...

    def holder(self, key: str) -> LeaseHeld | None:
        """Return the holder of an unexpired lease of a key, None if there is none."""
        ...

    def leave(self) -> None:
        """Limit the time of all requests to seconds, because the process was interrupted.

        It applies to current and later requests: they fail within seconds if the ledger does not
        respond.
        """
        ...

    def close(self) -> None:
        """Close the ledger."""
        ...


@dataclass(frozen=True, slots=True)
class LastExport:
    """An export of a key. `begun` is milliseconds since 1970, `record` that of a completed export.

    Epoch and transaction are those of the claim of the export; `rows`, `data_files` and `bytes` are
    0 until its files exist. `error` is the reason why it did not complete, '' if there is none;
    `stop` as in `Row`.
    """

    state: State
    epoch: int
    transaction_id: str
    fingerprint: str
    begun: int
    query_id: str
    parts: tuple[ExportedPart, ...]
    rows: int
    data_files: int
    bytes: int
    record: Record | None = None
    error: str = ""
    stop: Stop | None = None


def last_export(row: Row) -> LastExport:
    """Return the last export of a row: the current one, otherwise the last one that ended.

    If only statements have claimed the row, and another table's export wrote its rows, the claim of
    the statement is returned.
    """
    if row.state is State.COMPLETED and row.done is not None:
        return _completed(row, row.done)
    if not row.claim.by_statement:
        return _claimed(row, row.claim, row.state)
    if row.done is not None:
        return _completed(row, row.done)
    earlier = [claim for claim in row.old if not claim.by_statement]
    if earlier:
        # The statement superseded the export, so no run resumes it.
        return _claimed(row, max(earlier, key=lambda c: c.epoch), State.FAILED)
    return _claimed(row, row.claim, row.state)


def _completed(row: Row, record: Record) -> LastExport:
    of = record.landed
    return LastExport(
        State.COMPLETED, of.epoch, of.transaction_id, of.fingerprint, _begun(row, record),
        record.query_id, record.parts, of.rows, of.data_files, record.bytes, record,
    )  # fmt: skip


def _claimed(row: Row, claim: Claim, state: State) -> LastExport:
    error, stop = (row.last_error, row.stop) if claim is row.claim else ("", None)
    return LastExport(
        state, claim.epoch, claim.transaction_id, claim.fingerprint, claim.begun, claim.query_id,
        claim.parts, claim.rows, claim.data_files, row.bytes_with(claim), None, error, stop,
    )  # fmt: skip


def _begun(row: Row, record: Record) -> int:
    """Return when a completed export began; records of earlier releases do not store it.

    Then it is the time of its claim if the row still has that claim, otherwise the time with which
    the transaction id begins.
    """
    if record.begun:
        return record.begun
    transaction_id = record.landed.transaction_id
    if row.claim.transaction_id == transaction_id:
        return row.claim.begun
    try:
        return TransactionId(transaction_id).milliseconds
    except UsageError:
        return row.created
