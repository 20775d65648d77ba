"""Decides what maintenance of an Iceberg table may do without ending a guarantee of an export.

* `small_files` finds the partitions that may be compacted: those whose exports are complete and
  unchanged in main, and on which nobody works.
* `unnoted` finds exports whose files another engine rewrote, while the ledger does not know it yet.
  Only the snapshots show where their rows are, until the ledger notes it (`note_rewritten`).
* `plan_expiry` chooses the snapshots that may expire. It computes the state of every key in main
  twice, by the function that exports use (`main_state.holding`): with all snapshots, and without
  those that would expire. Where the two differ, the snapshots since the export stay.
* `Expiring` notes, plans and lets an engine expire the snapshots. An engine expires them without
  regard to what others commit meanwhile. So afterwards `proof_since` looks for rewrites in between,
  whose proof the expired snapshots would have been.
* `OrphanFilter` tells which unreferenced files may be removed by their age. The age is no proof for
  a file of an export: `mergeberg gc` removes those (docs/spec/files.md).

Nothing here depends on the engine that does the maintenance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from tableformat.committer import (
    DETACHED_BRANCH,
    BranchFile,
    FileInMain,
    FilesOfMain,
    LakeTable,
    LakeTableState,
    SnapshotSeen,
)
from tableformat.effects import Effects, Step
from tableformat.errors import RefusedError, UnsupportedError
from tableformat.export.commit import Ports, load_table
from tableformat.export.leases import Leases
from tableformat.export.main_state import Holding, Kind, holding, last_landed, transaction_of
from tableformat.file_names import RECEIPTS, exported_by, sequence_number_in
from tableformat.iceberg.referred_files import Reference, references_of
from tableformat.ledger import MOST_FILES_NOTED, Ledger, Rewritten, Row, Stale, State
from tableformat.names import TransactionId

__all__ = [
    "ExpirableLake",
    "Expired",
    "Expiring",
    "Expiry",
    "Hold",
    "OrphanFilter",
    "SmallFiles",
    "Unnoted",
    "expired_by_age",
    "note_rewritten",
    "path_in",
    "plan_expiry",
    "proof_since",
    "small_files",
    "unnoted",
]

_SMALL: Final = 0.75
"""A file below this share of the target size is small, as in Iceberg's `rewrite_data_files`."""
_CLOCKS: Final = 60_000
"""Milliseconds by which the clocks of two writers may differ; Iceberg allows as many."""


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """A partition with more than one small file: the number and the bytes of all its files."""

    partition_id: str
    files: int
    bytes: int


def small_files(
    rows: Iterable[Row],
    state: LakeTableState,
    lake: FilesOfMain,
    target: int,
    is_worked_on: Callable[[str], bool],
) -> Iterator[SmallFiles]:
    """Yield the partitions that may be compacted and have more than one small file, by their ids.

    Args:
        rows: the ledger rows of the table, read after `state` was loaded.
        state: the table's metadata.
        lake: the lake table.
        target: the size of its data files in bytes.
        is_worked_on: whether a process has the lease of a key hash.
    """
    by_id: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_id[row.key.partition_id].append(row)
    for partition_id, of_it in sorted(by_id.items()):
        if any(r.state is State.RUNNING or is_worked_on(r.key.hash) for r in of_it):
            continue
        found = [_unchanged(row, state, lake) for row in of_it]
        files = [file for one in found if one is not None for file in one]
        small = [file for file in files if file.bytes < target * _SMALL]
        if None not in found and len(small) > 1:
            yield SmallFiles(partition_id, len(files), sum(file.bytes for file in files))


def _unchanged(row: Row, state: LakeTableState, lake: FilesOfMain) -> tuple[FileInMain, ...] | None:
    """Return the files of a key whose last export main holds unchanged, () if main has none.

    None if main holds anything else of the key.
    """
    held = _held(row, state, lake)
    if held is None or not held.is_certain:
        return None
    whole = row.done is not None and held.holds(row.done.landed)
    return held.files if whole or not held.files else None


def _held(row: Row, state: LakeTableState, lake: FilesOfMain) -> Holding | None:
    """Return the state of a key in main; None if deletes of another engine hide it."""
    try:
        return holding(row, state, row.key.hash, lake)
    except UnsupportedError:
        return None


@dataclass(frozen=True, slots=True)
class Unnoted:
    """An export whose rows another engine wrote to other files: the proof is not in the ledger."""

    row: Row
    proof: Rewritten

    @property
    def can_be_noted(self) -> bool:
        """Whether the ledger can store the proof, and no run has the key in progress."""
        return len(self.proof.files) <= MOST_FILES_NOTED and self.row.state is not State.RUNNING

    @property
    def noted(self) -> Row:
        """The row with the proof."""
        return replace(self.row, rewritten=self.proof)


def unnoted(rows: Iterable[Row], state: LakeTableState, lake: FilesOfMain) -> Iterator[Unnoted]:
    """Yield the exports and statements whose files others rewrote without a note in the ledger."""
    for row in rows:
        held = _held(row, state, lake)
        if held is not None and held.proof is not None and held.proof != row.rewritten:
            yield Unnoted(row, held.proof)


def note_rewritten(effects: Effects, ledger: Ledger, row: Row, proof: Rewritten) -> Row:
    """Store the proof for a rewritten export, which holds when the snapshots have expired.

    Return the row as it is in the ledger: without the proof if it is too large, or if another
    process has changed the row. Then a later run stores it.

    Args:
        effects: performs the write.
        ledger: the ledger of the row.
        row: the row, whose lease the caller has.
        proof: the proof.

    Raises:
        LedgerError: the ledger cannot be written.
    """
    if row.rewritten == proof or len(proof.files) > MOST_FILES_NOTED:
        return row
    noted = replace(row, rewritten=proof)
    written = effects(Step.NOTE_REWRITTEN, partial(ledger.write, noted))
    return row if isinstance(written, Stale) else written


@dataclass(frozen=True, slots=True)
class Hold:
    """A partition that keeps snapshots from expiring; `since` is the time of the oldest of them.

    Times are milliseconds since 1970. `why` is the reason.
    """

    partition_id: str
    since: int
    why: str


@dataclass(frozen=True, slots=True)
class Expiry:
    """The snapshots that may expire, and what keeps others that are as old.

    `of_others` are partitions that other engines deleted, or that a rollback took out of main: once
    the snapshots are gone, only a forced export can replace them. `forced` are the snapshots that
    Iceberg would expire against `holds`, by an age that the owner gave to a branch.
    """

    snapshot_ids: frozenset[int]
    holds: tuple[Hold, ...] = ()
    of_others: tuple[str, ...] = ()
    forced: frozenset[int] = frozenset()


def expired_by_age(
    state: LakeTableState, references: Iterable[Reference], older_than: int, keeps: int, now: int
) -> frozenset[int]:
    """Return the snapshots that Iceberg's `expire_snapshots` would expire.

    Every branch keeps its latest snapshots: at least `keeps`, and all that were made at
    `older_than` or later. A branch's own retention goes first. Every tag keeps its snapshot. A
    snapshot of no branch or tag stays for the age alone. Source: Iceberg's `RemoveSnapshots`, and
    its specification, "Snapshot Retention Policy".

    Args:
        state: the table's metadata.
        references: its branches and tags.
        older_than: a time, in milliseconds since 1970.
        keeps: the least number of snapshots of each branch that stay.
        now: the time, for the ages of branches.
    """
    kept: set[int] = set()
    referred: set[int] = set()
    for one in references:
        if not one.is_branch:
            kept.add(one.snapshot_id)
            referred.add(one.snapshot_id)
            continue
        least, oldest = one.keeps or keeps, older_than if one.age is None else now - one.age
        stays = True
        for number, seen in enumerate(replace(state, main=one.snapshot_id).ancestors()):
            referred.add(seen.snapshot_id)
            stays = stays and (number < least or seen.made >= oldest)
            if stays:
                kept.add(seen.snapshot_id)
    kept |= {i for i, s in state.snapshots.items() if i not in referred and s.made >= older_than}
    return frozenset(state.snapshots.keys() - kept)


def plan_expiry(
    state: LakeTableState,
    references: tuple[Reference, ...],
    rows: Iterable[Row],
    lake: FilesOfMain,
    *,
    older_than: int,
    keeps: int,
    now: int,
    detached: Collection[str] = (),
) -> Expiry:
    """Return the snapshots that may expire without a change of what exports know of main.

    Args:
        state: the table's metadata.
        references: its branches and tags.
        rows: the ledger rows of the table, read after `state` was loaded, with the proofs that are
            noted before the snapshots expire.
        lake: the lake table.
        older_than: as in `expired_by_age`, and `keeps` and `now`.
        keeps: see above.
        now: see above.
        detached: the paths of the files on the branch `detached`.
    """
    asked = expired_by_age(state, references, older_than, keeps, now)
    if not asked:
        return Expiry(asked)
    work = _Holding(state, lake, asked, detached)
    for row in rows:
        work.look(row)
    forced = expired_by_age(state, references, 0, 1, now) & work.kept
    return Expiry(asked - work.kept, tuple(work.holds), tuple(sorted(work.of_others)), forced)


@dataclass(slots=True)
class _Holding:
    """Finds, row by row, which of the snapshots `asked` must stay. `line` is main, newest first."""

    state: LakeTableState
    lake: FilesOfMain
    asked: frozenset[int]
    detached: Collection[str]
    kept: set[int] = field(default_factory=set)
    holds: list[Hold] = field(default_factory=list)
    of_others: set[str] = field(default_factory=set)
    line: tuple[SnapshotSeen, ...] = field(init=False)
    after: LakeTableState = field(init=False)

    def __post_init__(self) -> None:
        """Compute what all rows are compared with."""
        self.line = tuple(self.state.ancestors())
        self.after = self._without(self.asked)

    def look(self, row: Row) -> None:
        """Keep the snapshots that one key needs."""
        if row.state is State.RUNNING and row.claim.by_statement:
            # A statement may read any snapshot, as one that undoes another does.
            what = f"unfinished: {row.claim.statement or 'a statement'}"
            self._keep(row, self.state.snapshots.keys(), what)
            return
        if row.state is State.RUNNING:
            begun = min((row.claim.begun, *_began(row)))
            self._keep_since(row, self._before(begun), "its export is unfinished")
        if row.proofs and self._is_detached(row):
            # ATTACH compares the detached files with what main had before the DETACH.
            acts = {x.snapshot_id for x in row.landed if x.kind is not None}
            oldest = (n + 1 for n, s in enumerate(self.line) if s.snapshot_id in acts)
            self._keep_since(row, max(oldest, default=0), "rows of it are detached")
        self._keep_state(row)

    def _keep_state(self, row: Row) -> None:
        """Keep the snapshots that show the state of a key in main."""
        before = _held(row, self.state, self.lake)
        if before is None or before.kind in (Kind.CHANGED, Kind.STRANGE):
            return
        if self._is_same(before, row, self.after):
            return
        if before.kind in (Kind.GONE, Kind.MOVED):
            self.of_others.add(row.key.partition_id)
            return
        numbers = [s.snapshot_id for s in self.line]
        last = last_landed(row, [*self.line])
        since = numbers.index(last.snapshot_id) if last is not None else len(numbers)
        left = self._without(self.asked - {*numbers[: since + 1]})
        if not self._is_same(before, row, left):
            since = len(numbers)
        self._keep_since(row, since, "only snapshots show where its rows are")

    def _is_same(self, before: Holding, row: Row, state: LakeTableState) -> bool:
        """Whether a key has the same state in main when only these snapshots are left."""
        after = _held(row, state, self.lake)
        return after is not None and _guarantee(after) == _guarantee(before)

    def _without(self, snapshot_ids: Collection[int]) -> LakeTableState:
        left = {i: s for i, s in self.state.snapshots.items() if i not in snapshot_ids}
        return replace(self.state, snapshots=left)

    def _is_detached(self, row: Row) -> bool:
        """Whether the branch `detached` has files of a key."""
        return any(
            exported[0] == row.key.hash
            if (exported := exported_by(path)) is not None
            else transaction_of(path, row) is not None
            for path in self.detached
        )

    def _before(self, moment: int) -> int:
        """Return the index of the snapshot that was main at a time."""
        found = (n for n, seen in enumerate(self.line) if seen.made + _CLOCKS < moment)
        return next(found, len(self.line))

    def _keep_since(self, row: Row, since: int, why: str) -> None:
        """Keep the snapshots of main from the one with the index `since` on, 0 is the latest."""
        self._keep(row, {seen.snapshot_id for seen in self.line[: since + 1]}, why)

    def _keep(self, row: Row, needed: Collection[int], why: str) -> None:
        if self.asked.isdisjoint(needed):
            return
        self.kept.update(needed)
        since = min(self.state.snapshots[i].made for i in needed)
        self.holds.append(Hold(row.key.partition_id, since, why))


def _guarantee(held: Holding) -> tuple[object, ...]:
    """Return what exports decide by; the text and the snapshots of a proof may differ."""
    landed = tuple(one.transaction_id for one in held.landed)
    return held.kind, frozenset(f.path for f in held.files), landed, held.edited


def _began(row: Row) -> Iterator[int]:
    """Yield the times at which the transactions of a row that may still land began."""
    for one in (row.claim, *(claim for claim in row.old if not claim.given_up)):
        if one.transaction_id.isdecimal():
            yield TransactionId(one.transaction_id).milliseconds


def proof_since(
    row: Row, before: LakeTableState, state: LakeTableState, lake: FilesOfMain, held: Holding
) -> Rewritten | None:
    """Return the proof that others only rewrote a key's files since an earlier state of main.

    It is needed if snapshots expired in between that `main_state.holding` would need: the earlier
    state was read when they were there.

    Args:
        row: the ledger row of the key, newly read.
        before: the earlier metadata, whose main is an ancestor of the present main.
        state: the present metadata.
        lake: the lake table.
        held: the state of the key in `before`.
    """
    now = _held(row, state, lake)
    if now is None or now.kind is not Kind.CHANGED or not held.files:
        return None
    later = [seen.snapshot_id for seen in state.ancestors()][::-1]
    if before.main not in later:
        return None
    later = later[later.index(before.main) + 1 :]
    found = lake.rewritten(state, held.files, later)
    last = last_landed(row, [*before.ancestors()])
    of = held.landed[0] if len(held.landed) == 1 else last
    if found is None or of is None:
        return None
    by = tuple(i for i in later if state.snapshots[i].operation == "replace")
    proof = Rewritten(
        of.transaction_id, by, tuple(f.path for f in found), sum(f.rows for f in found)
    )
    noted = _held(replace(row, rewritten=proof), state, lake)
    return proof if noted is not None and noted.kind is not Kind.CHANGED else None


class ExpirableLake(LakeTable, Protocol):
    """An Iceberg table whose snapshots an engine expires."""

    def files_on(self, state: LakeTableState, branch: str) -> tuple[BranchFile, ...]:
        """Return all data files of a branch."""
        ...

    def referred_files(
        self, state: LakeTableState, snapshot_ids: Collection[int]
    ) -> Mapping[str, int]:
        """Return all files, of any writer, that snapshots refer to, with their sizes."""
        ...


@dataclass(frozen=True, slots=True)
class Expired:
    """What an expiry of snapshots did or would do.

    `noted` counts the exports whose rewrite by others was noted in the ledger. `files` and `bytes`
    are those of all files that only the expired snapshots refer to; manifest lists have no size.
    """

    plan: Expiry
    noted: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Expiring:
    """Expires snapshots of one table that were made before `older_than`.

    `keeps` is the least number of snapshots of each branch that stay. Times are milliseconds since
    1970.
    """

    ports: Ports
    lake: ExpirableLake
    older_than: int
    keeps: int

    def find(self) -> Expired:
        """Return what would expire now; change nothing.

        Raises:
            RefusedError: the table is of another ledger, or Iceberg would expire a snapshot that an
                export needs.
            DestinationError: the table cannot be read.
            LedgerError: the ledger cannot be read.
        """
        state = load_table(self.ports, writes=False)
        rows = {row.key.hash: row for row in self._rows(state)}
        found = [u for u in unnoted(rows.values(), state, self.lake) if u.can_be_noted]
        rows |= {one.row.key.hash: one.noted for one in found}
        return self._figures(self._plan(state, rows.values()), state, len(found))

    def run(self, leases: Leases, expire: Callable[[frozenset[int]], None]) -> Expired:
        """Note what others rewrote, and let an engine expire snapshots.

        Args:
            leases: of this process, for the notes.
            expire: expires snapshots of these ids, of which none is the head of a branch or tag.

        Raises:
            RefusedError: the table is of another ledger, or Iceberg would expire a snapshot that an
                export needs.
            DestinationError: the table cannot be read, or the engine failed.
            LedgerError: the ledger cannot be read or written.
        """
        state = load_table(self.ports, writes=False)
        every = tuple(unnoted(self._rows(state), state, self.lake))
        noted = sum(self._note(leases, one.row, one.proof) for one in every if one.can_be_noted)
        rows = self._rows(state)
        plan = self._plan(state, rows)
        if not plan.snapshot_ids:
            return self._figures(plan, state, noted)
        done = self._figures(plan, state, noted)
        held = {row.key.hash: _held(row, state, self.lake) for row in rows}
        expire(plan.snapshot_ids)
        after = load_table(self.ports, writes=False)
        if after.main == state.main:
            return done
        for row in self._rows(after):
            before = held.get(row.key.hash)
            if before is None or row.state is State.RUNNING:
                continue
            proof = proof_since(row, state, after, self.lake, before)
            noted += proof is not None and self._note(leases, row, proof)
        return replace(done, noted=noted)

    def _plan(self, state: LakeTableState, rows: Iterable[Row]) -> Expiry:
        references = tuple(references_of(state))
        detached = [file.path for file in self.lake.files_on(state, DETACHED_BRANCH)]
        plan = plan_expiry(
            state,
            references,
            rows,
            self.lake,
            older_than=self.older_than,
            keeps=self.keeps,
            now=self.ports.clock(),
            detached=detached,
        )
        if plan.forced:
            raise _forced(plan, references)
        return plan

    def _figures(self, plan: Expiry, state: LakeTableState, noted: int) -> Expired:
        if not plan.snapshot_ids:
            return Expired(plan, noted)
        gone = self.lake.referred_files(state, plan.snapshot_ids)
        left = self.lake.referred_files(state, state.snapshots.keys() - plan.snapshot_ids)
        sizes = [size for path, size in gone.items() if path not in left]
        return Expired(plan, noted, len(sizes), sum(sizes))

    def _rows(self, state: LakeTableState) -> tuple[Row, ...]:
        """Return the ledger rows of the table."""
        ports, uuid = self.ports, state.layout.table_uuid
        rows = ports.effects(Step.READ_LEDGER, lambda: tuple(ports.ledger.rows()))
        return tuple(row for row in rows if row.key.destination == uuid)

    def _note(self, leases: Leases, row: Row, proof: Rewritten) -> bool:
        """Store a proof in a row that nobody has changed since; return whether it is there."""
        ports, key = self.ports, row.key.hash
        if leases.take(key) is not None:
            return False
        try:
            now = ports.effects(Step.READ_LEDGER, partial(ports.ledger.read, key))
            if now is None or now.version != row.version:
                return False
            return note_rewritten(ports.effects, ports.ledger, now, proof).rewritten == proof
        finally:
            leases.release(key)


def _forced(plan: Expiry, references: Iterable[Reference]) -> RefusedError:
    needed = ", ".join(f"partition {one.partition_id} ({one.why})" for one in plan.holds)
    aged = " and ".join(one.name for one in references if one.is_branch and one.age is not None)
    return RefusedError(
        f"Cannot expire snapshots: {needed} needs some that are older than the age of the branch "
        f"{aged} (max-snapshot-age-ms), by which Iceberg would expire these with the others. "
        "Give the branch a greater age, or remove the reason first: finish or cancel an unfinished "
        "export, attach or drop detached rows, or export the partition again."
    )


_LOCAL: Final = ("", "file")


def path_in(location: str, *, is_encoded: bool = True) -> str:
    """Return the path of a location, by which files are compared.

    Spark and mergeberg write the same location in different ways: `file:/a`, `file:///a`, and `s3a`
    for `s3`. A local location of ours has its path encoded, as a URI has.
    """
    if urlsplit(location).scheme in _LOCAL:
        path = location.partition(":")[2] if location.startswith("file:") else location
        path = f"/{path.lstrip('/')}"
        return unquote(path) if is_encoded else path
    _, _, rest = location.partition("://")
    return rest


@dataclass(frozen=True, slots=True)
class OrphanFilter:
    """Tells which unreferenced files of a table maintenance may remove by their age.

    `names` are the names of all files that the metadata and any snapshot refer to. Engines write
    one location in several ways, so names are compared: they are unique, and where they are not, a
    file stays. `knows` tells whether the ledger has a key hash.
    """

    state: LakeTableState
    names: frozenset[str]
    knows: Callable[[str], bool]

    @classmethod
    def of(
        cls, state: LakeTableState, files: Iterable[str], knows: Callable[[str], bool]
    ) -> OrphanFilter:
        """Return the filter for the locations of all files that are referred to."""
        return cls(state, frozenset(_name(one) for one in files), knows)

    def may_go(self, location: str) -> bool:
        """Whether a file that is old enough may be removed.

        Receipts and lists stay, and so does every file that `mergeberg gc` judges.
        """
        receipts = f"{path_in(self.state.location).rstrip('/')}/{RECEIPTS}/"
        if path_in(location).startswith(receipts) or _name(location) in self.names:
            return False
        return not self.is_of_export(location)

    def is_of_export(self, location: str) -> bool:
        """Whether only `mergeberg gc` can judge a file: the ledger knows its export.

        These are files of exports and statements, and the manifests of their attempts.
        """
        exported = exported_by(location)
        if exported is not None:
            return self.knows(exported[0])
        return sequence_number_in(location, self.state.layout.table_uuid) is not None


def _name(location: str) -> str:
    return location.rsplit("/", 1)[-1]
