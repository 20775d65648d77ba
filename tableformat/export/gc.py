"""Finds and removes garbage of abandoned exports in one table (`gc`), with a proof for each file.

`tableformat/export/give_up.py` gives the proofs; the age of a file is only a filter. Garbage
without a proof is reported as kept, with the reason (`Garbage`).

* `Sweeping` handles the files of keys. Files of exports that the ledger does not know are not
  judged; files with other names may belong to another engine and are not read. A partly written
  file may go if no process holds the key's lease. A receipt without its data file is garbage.
* `MetadataSweeping` handles manifests, manifest lists and lists of commits. The name of our
  manifest carries the sequence number of its attempt (`tableformat/file_names.py`). It also
  handles the metadata file that a catalog without a server leaves when it loses a race. A list of
  commits is judged together with all exports on it.
* `DroppedSnapshots` expires the snapshots before DROPs of this ledger, after an age, to free their
  files' bytes. ClickHouse deletes a dropped partition in about ten minutes. In Iceberg the
  snapshots from the export to the DROP keep its files. A snapshot is expired if it is a commit of
  this ledger, an ancestor of the DROP, and no branch or tag names it. Snapshots of other writers,
  and snapshots that a user keeps, are never expired. Nothing in main changes, and a partition that
  came back keeps all of its snapshots.

Source: docs/spec/commit-protocol.md, step 10.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from typing import Any, Final, Protocol

from tableformat.committer import LakeTable, LakeTableState, Sent
from tableformat.disks import Disks
from tableformat.effects import Step
from tableformat.errors import DestinationError, LedgerError, RefusedError
from tableformat.export.cleanup import Cleaning, Left
from tableformat.export.commit import Ports, load_table
from tableformat.export.commit_lists import ListedExport, list_location, listed_in
from tableformat.export.give_up import Listing, Verdict, list_verdict, manifest_verdict
from tableformat.export.leases import Leases
from tableformat.file_names import exported_by, is_stop_mark, sequence_number_in, view_begun
from tableformat.ledger import Landed, LeaseHeld, Row, State, StatementKind
from tableformat.messages import Option
from tableformat.names import TransactionId
from tableformat.receipt import Receipt
from tableformat.storage import StoredObject

__all__ = ["DroppedSnapshots", "ExpiringLake", "Garbage", "Kind", "MetadataSweeping", "Sweeping"]


class Kind(StrEnum):
    """The kind of an unreferenced object."""

    DATA_FILE = "data file"
    BEGUN_FILE = "begun file"
    RECEIPT = "receipt"
    MANIFEST = "manifest"
    METADATA = "metadata file"
    SNAPSHOT = "snapshot"
    LIST = "list of a commit"
    STOP_MARK = "mark to stop"
    VIEW_ROWS = "rows of a view"
    STAGING_TABLE = "staging table"


@dataclass(frozen=True, slots=True)
class Garbage:
    """An object that may be unreferenced: its kind and location, and whether and why it may go."""

    kind: Kind
    location: str
    bytes: int
    may_go: bool
    why: str
    partition_id: str = ""


_PATH_PROPERTY = "write.metadata.path"


@dataclass(frozen=True, slots=True)
class MetadataSweeping:
    """Judges the files below a table's metadata directory that belong to no single key.

    Files younger than `older_than` milliseconds at `now` stay. `is_exporting` returns whether an
    export into the table with a uuid is running.
    """

    cleaning: Cleaning
    older_than: int
    now: int
    is_exporting: Callable[[str], bool]

    def find(self, state: LakeTableState, row_of: Callable[[str], Row | None]) -> Iterator[Garbage]:
        """Yield unreferenced files, and files that a running request may still need.

        Referenced files of snapshots, and lists from which a ledger can be rebuilt, are not
        included.

        Args:
            state: the table's metadata, newly loaded.
            row_of: the ledger row of a key hash, read after `state` was loaded.

        Raises:
            DestinationError: the table or its files cannot be read.
            LedgerError: the ledger cannot be read.
        """
        default = f"{self.cleaning.location.rstrip('/')}/metadata"
        metadata = state.properties.get(_PATH_PROPERTY, default).rstrip("/")
        own = self.cleaning.receipts
        found = self._list(metadata)
        used = frozenset(_name(p) for p in self.cleaning.ports.table.metadata_files(state))
        versions = [v for name in used if (v := _version(name)) is not None]
        for one in found:
            if not one.location.startswith(f"{own}/") and _name(one.location) not in used:
                yield from self._manifest(one, state)
                if versions and min(versions) < (_version(one.location) or 0) <= max(versions):
                    yield from self._lost_race(one, state)
        lists = f"{list_location(self.cleaning.location)}/"
        below_own = found if own.startswith(f"{metadata}/") else self._list(own)
        for one in below_own:
            if one.location.startswith(lists):
                yield from self._commit_list(one, state, row_of)
            elif is_stop_mark(one.location, own):
                yield self._of_running_exports(Kind.STOP_MARK, one, state, "its job is over")
            elif (began := view_begun(one.location, own)) is not None:
                # Nothing refers to it; a statement that still reads it fails, and changes nothing.
                proved = Verdict(may_go=True, why="of a view, while a statement divided its rows")
                judged = self._filtered(proved, began)
                yield Garbage(Kind.VIEW_ROWS, one.location, one.size, judged.may_go, judged.why)

    def _of_running_exports(
        self, kind: Kind, one: StoredObject, state: LakeTableState, why: str
    ) -> Garbage:
        """Judge a file that only a running job of the table can need."""
        works = self.is_exporting(state.layout.table_uuid)
        why = "an export into the table is under way" if works else why
        return Garbage(kind, one.location, one.size, may_go=not works, why=why)

    def _list(self, below: str) -> tuple[StoredObject, ...]:
        return self.cleaning.begun_and_finished(below)

    def _manifest(self, one: StoredObject, state: LakeTableState) -> Iterator[Garbage]:
        """Judge a manifest that no snapshot refers to."""
        number = sequence_number_in(one.location, state.layout.table_uuid)
        if number is not None:
            judged = self._filtered(
                manifest_verdict(number, state), _superseded_since(number, state)
            )
            yield Garbage(Kind.MANIFEST, one.location, one.size, judged.may_go, judged.why)

    def _lost_race(self, one: StoredObject, state: LakeTableState) -> Iterator[Garbage]:
        """Judge a metadata file with the version number of one of the table's files.

        Another file became the successor of the version that it was made for. A file older than the
        oldest version in the table's log may have been the table's own.
        """
        wanted = self._wanted(one, state)
        if wanted is not None and wanted <= state.last_sequence_number:
            judged = self._filtered(
                Verdict(may_go=True, why="of a commit that lost its race: another one came first"),
                _superseded_since(wanted, state),
            )
            yield Garbage(Kind.METADATA, one.location, one.size, judged.may_go, judged.why)

    def _wanted(self, one: StoredObject, state: LakeTableState) -> int | None:
        """Return the sequence number of the attempt of ours that a metadata file was made for."""
        try:
            raw: dict[str, Any] = json.loads(self._read(one))
            last = max(raw["snapshots"], key=lambda s: s["sequence-number"])
            number = sequence_number_in(last["manifest-list"], state.layout.table_uuid)
        except (ValueError, KeyError, TypeError, DestinationError):
            # A file of another writer, or one that no longer exists.
            return None
        return number if last["snapshot-id"] not in state.snapshots else None

    def _commit_list(
        self, one: StoredObject, state: LakeTableState, row_of: Callable[[str], Row | None]
    ) -> Iterator[Garbage]:
        """Judge the list of a commit with all exports on it.

        No process relies on an unfinished list; a process that is still writing it can only fail.
        """
        if _name(one.location).startswith("."):
            yield self._of_running_exports(Kind.LIST, one, state, "never finished")
            return
        try:
            listed = listed_in(one.location, self._read(one))
        except (LedgerError, DestinationError) as error:
            yield Garbage(Kind.LIST, one.location, one.size, may_go=False, why=str(error))
            return
        if any(e.destination != state.layout.table_uuid for e in listed):
            why = "unknown table: it belongs to another table that was in this location"
            yield Garbage(Kind.LIST, one.location, one.size, may_go=False, why=why)
            return
        verdict = list_verdict([self._listing(e, state, row_of) for e in listed], state)
        if verdict is None:
            return
        name = _name(one.location).removesuffix(".json")
        began = TransactionId(name).milliseconds if name.isdecimal() else 0
        judged = self._filtered(verdict, began)
        yield Garbage(Kind.LIST, one.location, one.size, judged.may_go, judged.why)

    def _listing(
        self, one: ListedExport, state: LakeTableState, row_of: Callable[[str], Row | None]
    ) -> Listing:
        key = one.key.hash
        referred = self.cleaning.ports.table.refers_to(state, key, (one.transaction_id,))
        return Listing(row_of(key), one.transaction_id, one.epoch, len(referred))

    def _read(self, one: StoredObject) -> bytes:
        effects, storage = self.cleaning.ports.effects, self.cleaning.storage(one.location)
        return effects(Step.FIND_GARBAGE, partial(storage.read, one.location))

    def _filtered(self, proved: Verdict, began: int) -> Verdict:
        if proved.may_go and self.older_than and began > self.now - self.older_than:
            return Verdict(may_go=False, why=f"{proved.why}, and younger than {Option.OLDER_THAN}")
        return proved


def _superseded_since(number: int, state: LakeTableState) -> int:
    """Return when the table passed a sequence number: no attempt at it was begun later."""
    passed = (s.made for s in state.snapshots.values() if s.sequence_number >= number)
    return min(passed, default=0)


def _version(location: str) -> int | None:
    """Return the number of a metadata file, None for other names."""
    number, _, rest = _name(location).partition("-")
    return int(number) if number.isdecimal() and rest.endswith(".metadata.json") else None


def _name(location: str) -> str:
    return location.rsplit("/", 1)[-1]


_NOT_OURS: Final = Verdict(may_go=False, why="unknown export: this ledger has no record of it")
_BEGUN: Final = Verdict(may_go=True, why="left unfinished by an interrupted export")
_NO_FILE: Final = Verdict(may_go=True, why="its file is not there")


@dataclass(frozen=True, slots=True)
class _OfKey:
    """Everything that exports of one key left, as it was listed."""

    files: list[StoredObject]
    receipts: list[StoredObject]


@dataclass(frozen=True, slots=True)
class Sweeping:
    """Sweeps one table. Files younger than `older_than` milliseconds at `now` stay."""

    cleaning: Cleaning
    leases: Leases
    holder: Callable[[str], LeaseHeld | None]
    older_than: int
    now: int

    def find(self) -> tuple[Garbage, ...]:
        """Return all files of abandoned exports, and files that running exports may need.

        Raises:
            RefusedError: the table is of another ledger.
            DestinationError: the table or its files cannot be read.
            LedgerError: the ledger cannot be read.
        """
        state = self._load()
        found: list[Garbage] = []
        for key, listed in sorted(self._listed(state).items()):
            found += self._garbage_of(key, listed, state)
        return (*found, *self._metadata())

    def sweep(self) -> tuple[Garbage, ...]:
        """Remove garbage, key by key under its lease; return removed and kept files.

        Raises:
            RefusedError: the table is of another ledger.
            DestinationError: the table or its files cannot be read, or a file cannot be deleted.
            LedgerError: the ledger cannot be read or written.
        """
        state = self._load()
        found: list[Garbage] = []
        for key, listed in sorted(self._listed(state).items()):
            garbage = self._garbage_of(key, listed, state)
            if not any(one.may_go for one in garbage):
                found += garbage
                continue
            held = self.leases.take(key)
            try:
                found += self._swept(key, listed, held)
            finally:
                self.leases.release(key)
        for one in (metadata := self._metadata()):
            if one.may_go:
                step = Step.CLEAN_ATTEMPT if one.kind is not Kind.LIST else Step.CLEAN_RECEIPT
                self._delete(step, one.location)
        return (*found, *metadata)

    def _metadata(self) -> tuple[Garbage, ...]:
        """Judge the files of no single key, on an M loaded after data files were removed."""
        state = self._load()
        swept = MetadataSweeping(self.cleaning, self.older_than, self.now, self._is_exporting)
        return tuple(swept.find(state, cache(partial(self._row, state=state))))

    def _is_exporting(self, destination: str) -> bool:
        """Whether a process holds the lease of any unfinished export into a table."""
        ports = self.cleaning.ports
        rows = ports.effects(Step.READ_LEDGER, lambda: tuple(ports.ledger.rows()))
        running = (r for r in rows if r.state is State.RUNNING)
        return any(
            self.holder(r.key.hash) is not None for r in running if r.key.destination == destination
        )

    def _garbage_of(self, key: str, listed: _OfKey, state: LakeTableState) -> list[Garbage]:
        """Judge the files of a key's exports; remove nothing."""
        row = self._row(key, state)
        if row is None:
            return _not_ours(listed)
        left = self.cleaning.left(row, state, listed.files, listed.receipts)
        held = self.holder(key)
        return [item for one in left for item in self._garbage(row, one, held)]

    def _swept(self, key: str, listed: _OfKey, held: LeaseHeld | None) -> list[Garbage]:
        """Judge a key's exports again, on an M loaded under the lease; remove their garbage."""
        state = self._load()
        row = self._row(key, state)
        if row is None:
            return _not_ours(listed)
        left = self.cleaning.left(row, state, listed.files, listed.receipts)
        garbage = [(one, self._garbage(row, one, held)) for one in left]
        whole = [replace(one, verdict=self._judged(one, held)) for one in left]
        most = sum(len(one.files) for one in left)
        self.cleaning.remove(row, tuple(whole), most=most)
        gone = {one.transaction_id for one in whole if one.verdict.may_go}
        for one, of_it in garbage:
            for item in of_it:
                if item.may_go and one.transaction_id not in gone:
                    step = Step.CLEAN_RECEIPT if item.kind is Kind.RECEIPT else Step.CLEAN_FILE
                    self._delete(step, item.location)
        return [item for _, of_it in garbage for item in of_it]

    def _delete(self, step: Step, location: str) -> None:
        storage = self.cleaning.storage(location)
        self.cleaning.ports.effects(step, partial(storage.delete, location))

    def _load(self) -> LakeTableState:
        return load_table(self.cleaning.ports, writes=False)

    def _row(self, key: str, state: LakeTableState) -> Row | None:
        """Return the row of a key of this very table."""
        ports = self.cleaning.ports
        row = ports.effects(Step.READ_LEDGER, partial(ports.ledger.read, key))
        ours = row is not None and row.key.destination == state.layout.table_uuid
        return row if ours else None

    def _listed(self, state: LakeTableState) -> dict[str, _OfKey]:
        """List the data files on all disks, and the receipts, each object once, by key."""
        found: dict[str, _OfKey] = {}
        places = {*Disks.of(state).places.values(), *state.data_locations}
        for one in sorted({o for p in places for o in self.cleaning.begun_and_finished(p)}):
            export = exported_by(one.location)
            if export is not None:
                found.setdefault(export[0], _OfKey([], [])).files.append(one)
        for one in self.cleaning.begun_and_finished(self.cleaning.receipts):
            key, _, rest = one.location.partition(f"{self.cleaning.receipts}/")[2].partition("/")
            if rest.count("/") == 1:
                found.setdefault(key, _OfKey([], [])).receipts.append(one)
        return found

    def _judged(self, left: Left, held: LeaseHeld | None) -> Verdict:
        """Return the verdict on all files of an export: the age filters proved verdicts."""
        if not left.verdict.may_go:
            return left.verdict
        return self._filtered(left, held, left.verdict)

    def _filtered(self, left: Left, held: LeaseHeld | None, proved: Verdict) -> Verdict:
        if held is not None:
            return Verdict(may_go=False, why=f"{held.owner} works on its partition")
        if TransactionId(left.transaction_id).milliseconds > self.now - self.older_than:
            return Verdict(may_go=False, why=f"{proved.why}, and younger than {Option.OLDER_THAN}")
        return proved

    def _garbage(self, row: Row, left: Left, held: LeaseHeld | None) -> list[Garbage]:
        """Return the files of an export, each with its verdict."""
        judged = self._judged(left, held)
        known = left.transaction_id in _known(row)
        found = []
        for one in (*left.files, *left.receipts):
            kind = _kind(one, left)
            verdict = judged
            if known and not left.verdict.may_go:
                verdict = self._apart(one, kind, left, held)
            found.append(
                Garbage(
                    kind, one.location, one.size, verdict.may_go, verdict.why, row.key.partition_id
                )
            )
        return found

    def _apart(self, one: StoredObject, kind: Kind, left: Left, held: LeaseHeld | None) -> Verdict:
        """Judge a single object of an export that is kept."""
        if kind is Kind.BEGUN_FILE:
            return self._filtered(left, held, _BEGUN)
        if kind is Kind.RECEIPT and self._names_no_file(one):
            return self._filtered(left, held, _NO_FILE)
        return left.verdict

    def _names_no_file(self, one: StoredObject) -> bool:
        """Whether a receipt can be read, and the file that it names is not there."""
        effects, storages = self.cleaning.ports.effects, self.cleaning.storage
        try:
            text = effects(Step.FIND_GARBAGE, partial(storages(one.location).read, one.location))
            receipt = Receipt.from_json(text.decode())
        except (LedgerError, DestinationError, UnicodeDecodeError):
            return False
        below = receipt.file_path.rsplit("/", 1)[0]
        there = effects(Step.FIND_GARBAGE, partial(storages(below).list, below))
        names = {o.location.rsplit("/", 1)[-1] for o in there}
        return receipt.file_path.rsplit("/", 1)[-1] not in names


def _known(row: Row) -> set[str]:
    claims = {c.transaction_id for c in (row.claim, *row.old)}
    return claims | {x.transaction_id for x in row.landed}


def _kind(one: StoredObject, left: Left) -> Kind:
    if one.location.rsplit("/", 1)[-1].startswith("."):
        return Kind.BEGUN_FILE
    return Kind.DATA_FILE if one in left.files else Kind.RECEIPT


def _not_ours(listed: _OfKey) -> list[Garbage]:
    return [
        Garbage(kind, one.location, one.size, _NOT_OURS.may_go, _NOT_OURS.why)
        for kind, objects in ((Kind.DATA_FILE, listed.files), (Kind.RECEIPT, listed.receipts))
        for one in objects
    ]


class ExpiringLake(LakeTable, Protocol):
    """An Iceberg table whose snapshots can be expired."""

    def references(self, state: LakeTableState) -> Mapping[str, int]:
        """Return the snapshots of all branches and tags, by name."""
        ...

    def snapshots_of(self, state: LakeTableState, ledger: str) -> frozenset[int]:
        """Return the snapshots that a ledger committed, according to their summaries."""
        ...

    def expire(self, state: LakeTableState, snapshot_ids: frozenset[int]) -> Sent:
        """Send one request to expire snapshots to the catalog; requires main as in `state`."""
        ...


@dataclass(frozen=True, slots=True)
class DroppedSnapshots:
    """Finds and expires snapshots of one table before DROPs that are `age` milliseconds old."""

    ports: Ports
    lake: ExpiringLake
    age: int
    now: int

    def find(self) -> tuple[Garbage, ...]:
        """Return the snapshots that may be expired, and those that keep dropped files.

        Raises:
            RefusedError: the table is of another ledger.
            DestinationError: the table cannot be read.
            LedgerError: the ledger cannot be read.
        """
        return tuple(item for _, item in self._found(load_table(self.ports, writes=False)))

    def expire(self) -> tuple[Garbage, ...]:
        """Expire snapshots; return these, and the snapshots that keep dropped files.

        Raises:
            RefusedError: the table is of another ledger, or the catalog confirmed no request.
            DestinationError: the table cannot be read.
            LedgerError: the ledger cannot be read.
        """
        error = ""
        for attempt in range(1, self.ports.most_attempts + 1):
            state = load_table(self.ports, writes=False)
            found = self._found(state)
            gone = frozenset(snapshot_id for snapshot_id, item in found if item.may_go)
            if not gone:
                return tuple(item for _, item in found)
            sent = self.ports.effects(Step.CLEAN_ATTEMPT, partial(self.lake.expire, state, gone))
            if sent.applied:
                return tuple(item for _, item in found)
            error = sent.error
            self.ports.pause(attempt)
        message = (
            "Cannot expire the snapshots before what was dropped: the catalog confirmed none of "
            f"{self.ports.most_attempts} requests; the last response: {error}. Run it again."
        )
        raise RefusedError(message)

    def _found(self, state: LakeTableState) -> list[tuple[int, Garbage]]:
        ports, uuid = self.ports, state.layout.table_uuid
        rows = ports.effects(Step.READ_LEDGER, lambda: tuple(ports.ledger.rows()))
        ours = self.lake.snapshots_of(state, ports.ledger.identity)
        named = {at: name for name, at in sorted(self.lake.references(state).items())}
        found: dict[int, Garbage] = {}
        for row in sorted((r for r in rows if r.key.destination == uuid), key=lambda r: r.key):
            dropped = self._dropped(row, state)
            if dropped is None:
                continue
            have = [s for s in state.snapshots if self.lake.files_of(state, row.key.hash, s)]
            before = _ancestors(state, dropped.snapshot_id)
            keeps = {s: why for s in have if (why := _kept(s, before, ours, named))}
            for one in sorted(keeps or have):
                why = f"it has files of {row.key.partition_id}, which {dropped.statement} dropped"
                if one in keeps:
                    item = Garbage(
                        Kind.SNAPSHOT, str(one), 0, may_go=False, why=f"{why}; {keeps[one]}",
                        partition_id=row.key.partition_id,
                    )  # fmt: skip
                    found[one] = item
                elif one not in found:
                    found[one] = Garbage(
                        Kind.SNAPSHOT, str(one), 0, may_go=True, why=why,
                        partition_id=row.key.partition_id,
                    )  # fmt: skip
        return list(found.items())

    def _dropped(self, row: Row, state: LakeTableState) -> Landed | None:
        """Return the DROP that removed all rows of a key from main, if it is old enough."""
        last = row.settled
        if last is None or last.kind is not StatementKind.DROP or last.holds != ():
            return None
        at = state.snapshots.get(last.snapshot_id)
        if at is None or not state.is_ancestor(last.snapshot_id):
            return None
        return last if at.made + self.age <= self.now else None


def _kept(
    snapshot_id: int, before: frozenset[int], ours: frozenset[int], named: Mapping[int, str]
) -> str:
    """Return why a snapshot is kept, '' if it is expired."""
    if snapshot_id in named:
        return f"{named[snapshot_id]} keeps it"
    if snapshot_id not in before:
        return "it is not from before that"
    return "" if snapshot_id in ours else "another writer made it"


def _ancestors(state: LakeTableState, snapshot_id: int) -> frozenset[int]:
    """Return the ancestors of a snapshot, as far as they are known."""
    found: set[int] = set()
    at = state.snapshots[snapshot_id].parent_id
    while at is not None and at in state.snapshots:
        found.add(at)
        at = state.snapshots[at].parent_id
    return frozenset(found)
