"""Defines the contract of the ledger, which records every export of a partition.

The ledger keeps three things separate (docs/spec/ledger.md):

* the lease, bounded in time: it keeps two owners from the same work and proves nothing;
* the row, permanent: epoch, state, landed exports. It changes only by compare-and-set on its
  `version`;
* the record in the row: the content of the last export. Its time to live ends only the refusal of
  another export.

A ledger stores rows and decides nothing. `tableformat/export/decision.py` and
`tableformat/export/commit.py` decide the transitions. `conformance/suites/ledger.py` compares
each implementation with the one in memory.

* `MoveIntent`: the claim of a MOVE stores the destination, so that any later run can finish it
  (decision 0013).
* `GivesWay`: the claim of a statement that REPLACE, DROP and DETACH may stop.
* `Archived`: the rows of the partition left their source after an export.
* `last_export`: a statement (DROP, UPDATE, OPTIMIZE …) claims the row as an export does, so that
  both never change the same files. It is not an export: begin, query, end and content of the last
  export stay the same (RQ…SystemTables.Exports).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

from tableformat.errors import UsageError
from tableformat.history import History
from tableformat.keys import Key
from tableformat.mergetree.table import KeeperNode
from tableformat.names import TransactionId

__all__ = [
    "MANIFEST_TTL",
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
    "Row",
    "Stale",
    "State",
    "StatementKind",
    "Stop",
    "digest_of_paths",
    "last_export",
]


@dataclass(frozen=True, slots=True)
class DetachedPart:
    """A part in the source's `detached` directory, as the source lists it: which one it is.

    `modified` is seconds since 1970, `bytes` its size; each 0 where the source does not say.
    """

    name: str
    bytes: int = 0
    modified: int = 0


@dataclass(frozen=True, slots=True)
class Archived:
    """That the rows of a completed export left their source: the lake may have the only copy.

    `since` is milliseconds since 1970. `detached` are the parts that still lie in the source's
    `detached` directory, none where they were dropped; None from before the source is touched until
    it has said which they are.
    """

    since: int
    detached: tuple[DetachedPart, ...] | None = None


@dataclass(frozen=True, slots=True)
class GivesWay:
    """The statement that runs, as text, and who runs it; '' in `stopped_by`: nobody stops it."""

    statement: str
    owner: str
    stopped_by: str = ""


@dataclass(frozen=True, slots=True)
class MoveIntent:
    """Where the rows of a key go, and which files leave main when they are there.

    `key` is the hash of the key there, `transaction_id` what brings the rows, `table` the name of
    the lake table, `files` a digest of the paths of the files here.
    """

    key: str
    transaction_id: str
    table: str
    files: str


def digest_of_paths(paths: Iterable[str]) -> str:
    """Return the SHA-256 of paths, in whatever order they come."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.encode() + b"\0")
    return digest.hexdigest()


MANIFEST_TTL: Final = 180
"""Seconds in which an export refuses another one, where the user says nothing; ClickHouse's own."""


class State(StrEnum):
    """The state of a key's row."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    KILLED = "KILLED"


class StatementKind(StrEnum):
    """The kind of a statement on a lake table, as claims and the ledger keep it.

    Everything that depends on what a statement does depends on its kind, never on its text. OTHER
    have only rows of format 11 and before, whose text no release is known to have written.
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
    """From a place that is no table of the lake."""
    MOVE_TO_DISK = "MOVE TO DISK"
    MOVE_TO_TABLE = "MOVE TO TABLE"
    OPTIMIZE = "OPTIMIZE"
    REPLACE_FROM = "REPLACE FROM"
    UPDATE = "UPDATE"
    OTHER = "OTHER"

    @property
    def rewrites_rows(self) -> bool:
        """Whether it writes rows to other files, and takes no partition or part away."""
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
    """What stopped the last run of a claim, where it was a user and no error."""

    INTERRUPTED = "INTERRUPTED"
    CANCELLED = "CANCELLED"
    """Tells the owner before why it was superseded."""
    QUERY_KILLED = "QUERY_KILLED"
    """The same, of a whole statement: its run begins nothing else, either."""

    @property
    def text(self) -> str:
        """Return it as people read it."""
        return _STOPPED[self]


_STOPPED: Final = {
    Stop.INTERRUPTED: "interrupted",
    Stop.CANCELLED: "it is being cancelled",
    Stop.QUERY_KILLED: "its query was killed",
}


@dataclass(frozen=True, slots=True)
class Owner:
    """Who works on a key; `start` tells a process apart from a later one with the same number."""

    host: str
    pid: int
    start: str

    def __str__(self) -> str:
        """Return the owner as people read it."""
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that was given. `until` is milliseconds since 1970 by the ledger's clock."""

    key: str
    owner: Owner
    until: int


@dataclass(frozen=True, slots=True)
class LeaseHeld:
    """A lease that was not given: who has it, since and until when (milliseconds since 1970)."""

    owner: Owner
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Stale:
    """A write that was not made: the row has moved on since it was read."""

    found: int | None


@dataclass(frozen=True, slots=True)
class Held:
    """Files of one transaction of a key that main has, as counts."""

    transaction_id: str
    data_files: int
    rows: int


@dataclass(frozen=True, slots=True)
class Landed:
    """One export of the key that landed in main, for ever. `data_files` 0: not known any more.

    Or a statement on the lake table, by its text and its `kind`: `holds` says which files of the
    key it left there, None that this is not known; `moved_to` the lake table that a MOVE brought
    them to. An export has no `kind`.
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
    def left(self) -> tuple[Held, ...] | None:
        """Which files of the key main had after it, None when that is not known."""
        if self.kind is not None or not self.data_files:
            return self.holds
        return (Held(self.transaction_id, self.data_files, self.rows),)


@dataclass(frozen=True, slots=True)
class ExportedPart:
    """A source part as exported: enough to tell whether a merge explains other parts later.

    `remote_paths` are the files that hold rows of it, noted when all files of the partition are
    there.
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
    """What one transaction exports, by its latest claim.

    `epoch` numbers the claims, drawn from one counter per ledger; a claim that resumes keeps the
    transaction and draws another epoch. `begun` is milliseconds since 1970, `staging` the handle of
    the source snapshot. `rows`, `data_files` and `bytes` are noted when the files are there, before
    the commit. `recipe` is a digest of all that decides what its files hold: those of another are
    not taken over. The slices were planned with `bytes_ratio` and `slots`. `query_id` names the
    statement that claimed last. Of one on `old` that is `given_up` nothing can land any more.
    `statement`, `kind` and `holds` are those of a statement on the lake table, as in `Landed`;
    `move` that of a MOVE, until it has ended; `gives_way` is there where REPLACE, DROP and DETACH
    may stop it.
    `columns` tells the source's stored columns from others, and whether parts lacked any; or ''.
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

    @property
    def by_statement(self) -> bool:
        """Whether it is that of a statement which changes rows of the key that main has."""
        return self.kind is not None or self.gives_way is not None


@dataclass(frozen=True, slots=True)
class Record:
    """The last export that completed. Times are milliseconds since 1970.

    `begun`, `query_id` and `columns` are those of the claim that wrote its rows, 0 and '' where an
    earlier release noted none; what OPTIMIZE writes anew is still the same export.

    Inside `ttl` seconds (0 is for ever) after it, exporting again is refused, unless the record was
    `forgotten`.
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
        """Rows of the parts as exported, lightweight-deleted ones included."""
        return sum(p.rows for p in self.parts)

    def refuses(self, now: int) -> bool:
        """Whether exporting again is refused at `now`, milliseconds since 1970."""
        return not self.forgotten and (self.ttl == 0 or now < self.completed + self.ttl * 1000)


@dataclass(frozen=True, slots=True)
class Row:
    """Everything that is known of a key. Times are milliseconds since 1970.

    `claim` is the last one, `ttl` what its record will have. `old` holds claims of earlier
    transactions whose files may still lie there: nothing of them is deleted before this key has
    landed (docs/spec/commit-protocol.md, step 1). `done` is the last export that completed,
    `changed` the last statement on the lake table that did since, `landed` every one of both.
    `keeper_node` is that of the source table (`export/table_identity.py`), `division` how that is
    divided (`mergetree/compatibility.py`): each None when it is not known. While it is `archived`,
    no export of the key is begun or committed (`export/archive_mark.py`). `last_error` says
    to people why the last run ended without a commit; `stop` says it where a user stopped it.
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
    changed: Landed | None = None
    division: str | None = None
    archived: Archived | None = None
    stop: Stop | None = None

    @property
    def settled(self) -> Landed | None:
        """The last that completed, an export or a statement; None before the first."""
        return self.changed or (self.done.landed if self.done else None)

    @property
    def done_epoch(self) -> int:
        """The epoch of the last that completed, 0 before the first."""
        return self.settled.epoch if self.settled else 0

    @property
    def last(self) -> Claim | Landed:
        """What its figures are told from: the completed export, or the claim that is under way."""
        if self.state is State.COMPLETED and self.done is not None:
            return self.done.landed
        return self.claim

    @property
    def bytes(self) -> int:
        """Bytes of the files of `last`."""
        if self.state is State.COMPLETED and self.done is not None:
            return self.done.bytes
        return self.claim.bytes

    @property
    def is_exporting(self) -> bool:
        """Whether an export is under way; the claim of a statement has no recipe."""
        is_export = self.key.is_of_export and self.claim.recipe and not self.claim.by_statement
        return bool(is_export) and self.state is State.RUNNING

    @property
    def move(self) -> MoveIntent | None:
        """The MOVE that takes the key's rows to another table, as long as it is not finished."""
        return self.claim.move if self.state is State.RUNNING else None

    def noted(self, why: str | Stop, updated: int) -> Row:
        """Return the row with why the last run of its claim ended: a stop, or an error's text."""
        if isinstance(why, Stop):
            return replace(self, last_error=why.text, stop=why, updated=updated)
        return replace(self, last_error=why, stop=None, updated=updated)

    def claim_of(self, transaction_id: str) -> Claim | None:
        """Return the claim of a transaction that is not yet known to have landed."""
        claims = (self.claim, *self.old)
        return next((c for c in claims if c.transaction_id == transaction_id), None)

    def knows(self, snapshot_id: int) -> bool:
        """Whether an export that landed in this snapshot is already noted."""
        return any(x.snapshot_id == snapshot_id for x in self.landed)

    def with_landed(self, landed: Landed) -> Row:
        """Return the row that also knows `landed`; the same row when it knew it."""
        known = self.knows(landed.snapshot_id)
        return self if known else replace(self, landed=(*self.landed, landed))


class Ledger(History, Protocol):
    """Where rows, the epoch counter and leases are kept. Every method may raise LedgerError."""

    @property
    def identity(self) -> str:
        """Names this ledger for ever; every table it exports to keeps it, to refuse another one.

        Asking for it makes the ledger, when it is not there.
        """
        ...

    @property
    def uri(self) -> str:
        """Where it is, as the user may write it after --ledger."""
        ...

    def is_made(self) -> bool:
        """Whether it is there; one that is not reads as an empty one, and reading makes none."""
        ...

    def read(self, key: str) -> Row | None:
        """Return the latest row of a key hash, never from a cache (Keeper: sync, then read)."""
        ...

    def read_all(self, keys: tuple[str, ...]) -> tuple[Row | None, ...]:
        """Do what `read` does for many keys, in one go."""
        ...

    def rows(self) -> Iterator[Row]:
        """Return all rows, latest update first."""
        ...

    def write(self, row: Row) -> Row | Stale:
        """Replace the row that has `row.version` (0: there must be none); return it.

        One that was removed and made again has another `created`, and is another row.
        """
        ...

    def write_all(self, rows: tuple[Row, ...]) -> tuple[Row | Stale, ...]:
        """Do what `write` does for rows of different keys, in one go; each has its own answer.

        After an error nobody knows which of them were written.
        """
        ...

    def remove(self, row: Row) -> Stale | None:
        """Remove the row that has `row.version`; None once it is gone, whoever removed it.

        Epochs are not given again, and `highest_landed` stays what it was.
        """
        ...

    def next_epoch(self, count: int = 1) -> int:
        """Return a number greater than all returned before, the first of `count` new ones."""
        ...

    def highest_epoch(self) -> int:
        """Return the greatest number that `next_epoch` has returned, 0 before the first."""
        ...

    def highest_landed(self, destination: str) -> int:
        """Return the greatest sequence number that any row of a destination knows, else 0."""
        ...

    def take_lease(
        self, key: str, owner: Owner, seconds: float, *, instead_of: Owner | None = None
    ) -> Lease | LeaseHeld:
        """Give a lease that is free, expired, or held by `owner` or `instead_of`."""
        ...

    def take_leases(
        self, keys: tuple[str, ...], owner: Owner, seconds: float
    ) -> tuple[Lease | LeaseHeld, ...]:
        """Do what `take_lease` does for many keys, in one go; each has its own answer."""
        ...

    def renew(self, lease: Lease, seconds: float) -> Lease | LeaseHeld:
        """Lengthen a lease that its owner still has; else say who has it now."""
        ...

    def release(self, *leases: Lease) -> None:
        """Give leases back. Nothing happens to one that is somebody else's by now."""
        ...

    def holder(self, key: str) -> LeaseHeld | None:
        """Return who has an unexpired lease of a key."""
        ...

    def leave(self) -> None:
        """Hear that the process was interrupted: only what ends at once is still waited for.

        What is asked afterwards, or is being asked now, fails within seconds where nobody answers.
        """
        ...

    def close(self) -> None:
        """Let go of the ledger."""
        ...


@dataclass(frozen=True, slots=True)
class LastExport:
    """An export of a key. `begun` is milliseconds since 1970, `record` that of a completed one.

    `claim` numbers are those of the export; `rows`, `data_files` and `bytes` are 0 before its files
    are there. `error` is why it did not end, '' when nothing went wrong; `stop` as in `Row`.
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
    """Return the last export of a row: the one that is under way, else the last one that ended.

    A row that only statements have claimed, whose rows another table's export wrote, is told from
    its claim.
    """
    if row.state is State.COMPLETED and row.done is not None:
        return _completed(row, row.done)
    if not row.claim.by_statement:
        return _claimed(row.claim, row.state, row.last_error, row.stop)
    if row.done is not None:
        return _completed(row, row.done)
    earlier = [claim for claim in row.old if not claim.by_statement]
    if earlier:
        # The statement has taken its place: nobody resumes it.
        return _claimed(max(earlier, key=lambda c: c.epoch), State.FAILED, "")
    return _claimed(row.claim, row.state, row.last_error, row.stop)


def _completed(row: Row, record: Record) -> LastExport:
    landed = record.landed
    return LastExport(
        state=State.COMPLETED,
        epoch=landed.epoch,
        transaction_id=landed.transaction_id,
        fingerprint=landed.fingerprint,
        begun=_begun(row, record),
        query_id=record.query_id,
        parts=record.parts,
        rows=landed.rows,
        data_files=landed.data_files,
        bytes=record.bytes,
        record=record,
    )


def _claimed(claim: Claim, state: State, error: str, stop: Stop | None = None) -> LastExport:
    return LastExport(
        state=state,
        epoch=claim.epoch,
        transaction_id=claim.transaction_id,
        fingerprint=claim.fingerprint,
        begun=claim.begun,
        query_id=claim.query_id,
        parts=claim.parts,
        rows=claim.rows,
        data_files=claim.data_files,
        bytes=claim.bytes,
        error=error,
        stop=stop,
    )


def _begun(row: Row, record: Record) -> int:
    """Return when a completed export was begun; records of earlier releases do not say it.

    Its claim does, as long as it is the row's; else its transaction, whose id begins with the time.
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
