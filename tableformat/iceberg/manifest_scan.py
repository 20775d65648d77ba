"""Lists the data files of branches and snapshots from the manifests, without opening the files.

* `live_files` lists the files of a branch as lake parts. A lake part is a data file with a name
  in the form of a ClickHouse part, `<partition id>_<n>_<n>_0`. `n` is computed from the file's
  path alone, so the name stays the same as long as the file exists: no commit, detach or attach
  of another file changes it (P-74).
* `MainFiles` lists files by writer and by partition. `tableformat/export/main_state.py` and
  `tableformat/export/foreign_rows.py` use it to decide which files a replacement removes, and
  whether other writers have files in a lake partition (step 6 of docs/spec/commit-protocol.md).
* `References` lists the data files of exports, and the manifests, that any snapshot refers to
  (step 10). Main alone is not enough: time travel reads files of tags, branches and older
  snapshots, and a rollback restores them. `is_in_use` tells this of the manifests of an attempt.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record

from tableformat.committer import (
    MAIN_BRANCH,
    BranchFile,
    FileInMain,
    LakeTableState,
    PartitionFile,
    Staged,
)
from tableformat.errors import DestinationError, UnsupportedError
from tableformat.file_names import exported_by, is_of_key, key_in, partition_directory
from tableformat.iceberg.snapshot import branch_head, table_of
from tableformat.iceberg.values import from_text, other_form
from tableformat.names import PartitionId, PartName

__all__ = ["LiveFile", "MainFiles", "References", "is_in_use", "lake_part_name", "live_files"]

_BITS: Final = 48


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of a branch. `key` is the hash of the export that wrote it, '' for other writers.

    `partition` is in the spec that the file was written with, as text: `ts_month=2024-01`, ''
    without partition fields. `rows` counts all rows in the file, deleted ones included.
    """

    path: str
    key: str
    spec_id: int
    partition: str
    rows: int
    bytes: int
    snapshot_id: int


def lake_part_name(partition_id: PartitionId, path: str) -> PartName:
    """Return the part name of a data file.

    Args:
        partition_id: of its rows.
        path: of the file, as the table's metadata has it.
    """
    digest = hashlib.sha256(path.encode()).digest()
    number = int.from_bytes(digest, "big") >> (len(digest) * 8 - _BITS)
    return PartName(partition_id, number, number, 0)


def live_files(table: Table, branch: str = MAIN_BRANCH) -> tuple[LiveFile, ...]:
    """Return the data files of a branch, sorted by path; none if the branch does not exist.

    Args:
        table: a loaded table; it is not changed.
        branch: its name.

    Raises:
        DestinationError: a manifest cannot be read.
    """
    try:
        return tuple(sorted(_files_of(table, branch), key=lambda file: file.path))
    except OSError as error:
        message = (
            f"Cannot list the files of {'.'.join(table.name())}: a manifest cannot be read: "
            f"{error}. Check the storage of the catalog."
        )
        raise DestinationError(message) from error


def _files_of(table: Table, branch: str) -> Iterator[LiveFile]:
    snapshot = branch_head(table, branch)
    specs, schema = table.specs(), table.schema()
    return (
        LiveFile(
            path=entry.data_file.file_path,
            key=key_in(entry.data_file.file_path),
            spec_id=manifest.partition_spec_id,
            partition=_shown(entry.data_file, specs[manifest.partition_spec_id], schema),
            rows=entry.data_file.record_count,
            bytes=entry.data_file.file_size_in_bytes,
            snapshot_id=entry.snapshot_id or manifest.added_snapshot_id or 0,
        )
        for manifest in (snapshot.manifests(table.io) if snapshot else ())
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    )


def _shown(file: DataFile, spec: PartitionSpec, schema: Schema) -> str:
    names = [field.name for field in spec.fields]
    return partition_directory(names, [_value(file, spec, schema, i) for i in range(len(names))])


def _value(file: DataFile, spec: PartitionSpec, schema: Schema, at: int) -> str | None:
    value, field = file.partition[at], spec.fields[at]
    if value is None:
        return None
    # A column may be dropped once only older specs use it.
    if schema.find_column_name(field.source_id) is None:
        return str(value)
    return field.transform.to_human_string(schema.find_type(field.source_id), value)


F = TypeVar("F")
K = TypeVar("K")
T = TypeVar("T")
_SNAPSHOTS_CACHED: Final = 4
"""Each group of partitions is decided on one snapshot, and the next group on a later one."""


@dataclass(frozen=True, slots=True)
class _Live:
    """A data file that a manifest adds or keeps.

    `key` is the hash in its name, '' for other writers.
    """

    path: str
    rows: int
    bytes: int
    key: str
    spec_id: int
    partition: tuple[object, ...]
    snapshot_id: int
    sequence_number: int
    other_form: str


@dataclass(frozen=True, slots=True)
class _PartitionMatch:
    """The values, by index, that files of one spec have in a partition.

    `whole`: a file with these values has no row of another partition.
    """

    values: tuple[tuple[int, object], ...]
    whole: bool


_Place: TypeAlias = tuple[int, tuple[object, ...]]
"""A lake partition: the id of a spec, and the values by it."""


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """A data file that a rewrite removed or added."""

    path: str
    rows: int
    place: _Place


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """The data files that a snapshot of the operation `replace` removed and added."""

    removed: tuple[_Rewritten, ...] = ()
    added: tuple[_Rewritten, ...] = ()


def _rewrite_by(table: Table, snapshot: Snapshot) -> _Rewrite:
    entries = [
        (manifest.partition_spec_id, entry)
        for manifest in snapshot.manifests(table.io)
        if manifest.content == ManifestContent.DATA
        and manifest.added_snapshot_id == snapshot.snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        if entry.snapshot_id == snapshot.snapshot_id
    ]

    def of(status: ManifestEntryStatus) -> tuple[_Rewritten, ...]:
        return tuple(
            _Rewritten(
                entry.data_file.file_path,
                entry.data_file.record_count,
                (spec_id, _values(entry.data_file.partition)),
            )
            for spec_id, entry in entries
            if entry.status == status
        )

    return _Rewrite(of(ManifestEntryStatus.DELETED), of(ManifestEntryStatus.ADDED))


def _rows_at(files: Iterable[_Rewritten], place: _Place) -> int:
    return sum(f.rows for f in files if f.place == place)


class MainFiles:
    """The data files of snapshots. Each manifest is read once: manifests never change.

    One object serves one table while a process works on it. It serves thousands of keys in a row,
    so the files of the latest snapshots stay grouped in memory.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._read: dict[str, tuple[_Live, ...]] = {}
        self._by_key: dict[int, Mapping[str, tuple[FileInMain, ...]]] = {}
        self._by_path: dict[int, Mapping[str, FileInMain]] = {}
        self._rewrites: dict[int, _Rewrite] = {}
        self._by_equality: dict[int, Mapping[str, str]] = {}
        self._by_spec: dict[int, _BySpec] = {}

    def of_key(
        self, state: LakeTableState, key: str, at: int | None, also: Collection[str] = ()
    ) -> tuple[FileInMain, ...]:
        """Return a snapshot's files of a key hash, each with whether it has deletes.

        These are the files with the key hash in their names, and those at the paths `also`. In an
        earlier snapshot than main, a file has deletes if some may apply to it.

        Raises:
            UnsupportedError: in main, equality deletes may apply to one of the files.
        """
        if at is None:
            return ()
        by_key = _cached(self._by_key, at, lambda: _grouped(self._named(state, at), _name_prefix))
        found = tuple(f for f in by_key.get(key, ()) if is_of_key(f.path, key))
        if also:
            by_path = self._at_paths(state, at)
            others = (path for path in also if not is_of_key(path, key) and path in by_path)
            found = (*found, *(by_path[path] for path in others))
        by_equality = self._by_equality.get(at, {}) if at == state.main else {}
        if deleted := next((f.path for f in found if f.path in by_equality), None):
            raise _unknown_rows(by_equality[deleted])
        return found

    def _at_paths(self, state: LakeTableState, at: int) -> Mapping[str, FileInMain]:
        """Return the files of a snapshot by path."""
        return _cached(self._by_path, at, lambda: {f.path: f for f in self._named(state, at)})

    def on(self, state: LakeTableState, branch: str) -> tuple[BranchFile, ...]:
        """Return all files of a branch, each with whether it has deletes; none without the branch.

        The files of main are those of the snapshot in `state`.

        Raises:
            UnsupportedError: the branch has equality deletes.
        """
        table = table_of(state)
        if branch == MAIN_BRANCH:
            head = state.main
        else:
            found = branch_head(table, branch)
            head = found.snapshot_id if found is not None else None
        files = tuple(self._snapshot_files(table, head)) if head is not None else ()
        for deletes in self._by_equality.get(head or 0, {}).values():
            raise _unknown_rows(deletes)
        return files

    def rewritten(
        self, state: LakeTableState, files: Collection[FileInMain], since: Iterable[int]
    ) -> tuple[FileInMain, ...] | None:
        """Return the files of main with the rows of earlier files; None if that is not proved.

        A snapshot of the operation `replace` keeps the rows of a table (Iceberg's specification,
        "Snapshots"). The proof needs more: in every lake partition of such files, the files that
        the snapshot added have as many rows as those that it removed. No snapshot of another
        operation removed one of the files since, and no deletes apply to them.

        Args:
            state: the table's metadata.
            files: files of an earlier snapshot of main, to which no deletes applied.
            since: the snapshots of main after that one, oldest first.
        """
        if state.main is None:
            return None
        table, paths = table_of(state), {f.path for f in files}
        for rewrite in (self._rewrite(table, at) for at in since):
            places = {f.place for f in rewrite.removed if f.path in paths}
            if any(_rows_at(rewrite.removed, p) != _rows_at(rewrite.added, p) for p in places):
                return None
            paths -= {f.path for f in rewrite.removed}
            paths |= {f.path for f in rewrite.added if f.place in places}
        main = self._at_paths(state, state.main)
        found = [main.get(path) for path in sorted(paths)]
        known = tuple(f for f in found if f is not None and not f.deletes)
        return known if len(known) == len(found) else None

    def _rewrite(self, table: Table, at: int) -> _Rewrite:
        """Return what a snapshot rewrote; nothing if it may have changed rows."""
        if at not in self._rewrites:
            snapshot = table.metadata.snapshot_by_id(at)
            of = snapshot.summary.operation if snapshot and snapshot.summary else None
            self._rewrites[at] = (
                _rewrite_by(table, snapshot)
                if snapshot is not None and of is Operation.REPLACE
                else _Rewrite()
            )
        return self._rewrites[at]

    def _named(self, state: LakeTableState, at: int) -> Iterable[FileInMain]:
        return (
            FileInMain(f.path, f.rows, f.deletes, f.bytes)
            for f in self._snapshot_files(table_of(state), at)
        )

    def _snapshot_files(self, table: Table, at: int) -> Iterable[BranchFile]:
        """Return the files of a snapshot, each with whether it has deletes."""
        snapshot = table.metadata.snapshot_by_id(at)
        manifests = snapshot.manifests(table.io) if snapshot else []
        deletes = [m for m in manifests if m.content == ManifestContent.DELETES]
        entries = tuple(_delete_entries(table, deletes))
        has_equality = any(e.is_by_equality for e in entries)
        by_position = _paths_with_deletes(table, at) if entries and not has_equality else None
        data = (m for m in manifests if m.content == ManifestContent.DATA)
        live = tuple(f for m in data for f in self._live(table, m))
        by_equality = (e for e in entries if e.is_by_equality)
        self._by_equality[at] = {f.path: e.path for e in by_equality for f in live if e.may_hit(f)}
        return (
            BranchFile(
                f.path,
                f.rows,
                f.bytes,
                f.spec_id,
                sequence_number=f.sequence_number,
                deletes=(
                    any(e.may_hit(f) for e in entries)
                    if by_position is None
                    else f.path in by_position
                ),
                partition=f.partition,
                other_form=f.other_form,
            )
            for f in live
        )

    def in_partition(
        self, state: LakeTableState, partition: tuple[str | None, ...]
    ) -> tuple[PartitionFile, ...]:
        """Return the files of main that may have rows of a partition of the current spec."""
        if state.main is None:
            return ()
        table = table_of(state)
        matches = _partition_matches(table, partition)
        by_spec = _cached(self._by_spec, state.main, lambda: self._by_place(state))
        return tuple(
            PartitionFile(f.path, f.rows, f.snapshot_id, f.key, matches[spec_id].whole, f.bytes)
            for spec_id, of_spec in by_spec.items()
            for f in _matching(matches[spec_id], of_spec)
        )

    def _by_place(self, state: LakeTableState) -> _BySpec:
        """Return the files of main by spec and partition values."""
        table = table_of(state)
        live = (f for m in _data_manifests(state) for f in self._live(table, m))
        by_spec = _grouped(live, lambda f: f.spec_id)
        return {i: _grouped(files, lambda f: f.partition) for i, files in by_spec.items()}

    def paths(self, state: LakeTableState) -> tuple[str, ...]:
        """Return the paths of all data files of main."""
        table = table_of(state)
        return tuple(f.path for m in _data_manifests(state) for f in self._live(table, m))

    def _live(self, table: Table, manifest: ManifestFile) -> tuple[_Live, ...]:
        found = self._read.get(manifest.manifest_path)
        if found is None:
            found = tuple(
                _Live(
                    path := entry.data_file.file_path,
                    entry.data_file.record_count,
                    entry.data_file.file_size_in_bytes,
                    key_in(path),
                    manifest.partition_spec_id,
                    _values(entry.data_file.partition),
                    entry.snapshot_id or manifest.added_snapshot_id or 0,
                    entry.sequence_number or 0,
                    other_form(entry.data_file),
                )
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            )
            self._read[manifest.manifest_path] = found
        return found


def _values(partition: Record) -> tuple[object, ...]:
    return tuple(partition[i] for i in range(len(partition)))


_BySpec = Mapping[int, Mapping[tuple[object, ...], tuple[_Live, ...]]]


def _cached(cache: dict[int, T], snapshot_id: int, read: Callable[[], T]) -> T:
    """Return the cached value of a snapshot, or read it and drop the oldest entry."""
    if snapshot_id not in cache:
        found = read()
        while len(cache) >= _SNAPSHOTS_CACHED:
            del cache[next(iter(cache))]
        cache[snapshot_id] = found
    return cache[snapshot_id]


def _grouped(files: Iterable[F], by: Callable[[F], K]) -> Mapping[K, tuple[F, ...]]:
    found: defaultdict[K, list[F]] = defaultdict(list)
    for file in files:
        found[by(file)].append(file)
    return {key: tuple(of_key) for key, of_key in found.items()}


def _name_prefix(file: FileInMain) -> str:
    """Return the start of a file's name: the key hash, if an export wrote the file."""
    return file.path.rsplit("/", 1)[-1].partition("-")[0]


def _matching(
    place: _PartitionMatch, of_spec: Mapping[tuple[object, ...], tuple[_Live, ...]]
) -> Iterable[_Live]:
    """Return the files of one spec that have all values of a match."""
    values = tuple(value for _, value in place.values)
    if all(len(at) == len(values) for at in itertools.islice(of_spec, 1)):
        # Every field of the spec has a value: a look-up suffices.
        return of_spec.get(values, ())
    return (
        f
        for at, files in of_spec.items()
        if all(at[i] == value for i, value in place.values)
        for f in files
    )


def _data_manifests(state: LakeTableState) -> tuple[ManifestFile, ...]:
    table = table_of(state)
    snapshot = table.metadata.snapshot_by_id(state.main) if state.main is not None else None
    manifests = snapshot.manifests(table.io) if snapshot else ()
    return tuple(m for m in manifests if m.content == ManifestContent.DATA)


def _partition_matches(
    table: Table, partition: tuple[str | None, ...]
) -> dict[int, _PartitionMatch]:
    """Return, by spec, the values of files in a partition of the current spec.

    Fields are matched by source column and transform. Fields of only one of the two specs, and void
    fields, are ignored.
    """
    spec = table.spec()
    types = spec.partition_type(table.schema()).fields
    wanted = {
        (f.source_id, str(f.transform)): from_text(text, of.field_type)
        for f, text, of in zip(spec.fields, partition, types, strict=True)
        if not isinstance(f.transform, VoidTransform)
    }
    found = {}
    for spec_id, one in table.specs().items():
        made_of = [(f.source_id, str(f.transform)) for f in one.fields]
        values = tuple((at, wanted[m]) for at, m in enumerate(made_of) if m in wanted)
        found[spec_id] = _PartitionMatch(values, whole=wanted.keys() <= set(made_of))
    return found


@dataclass(frozen=True, slots=True)
class _DeleteFile:
    """A file of deletes. PyIceberg cannot match those by equality with data files.

    `is_global`: it is of a spec without partition fields.
    """

    path: str
    is_by_equality: bool
    is_global: bool
    place: _Place
    sequence_number: int

    def may_hit(self, file: _Live) -> bool:
        """Whether it may delete rows of a data file."""
        if file.sequence_number > self.sequence_number:
            return False
        return self.is_global or self.place == (file.spec_id, file.partition)


def _delete_entries(table: Table, manifests: Iterable[ManifestFile]) -> Iterator[_DeleteFile]:
    specs = table.specs()
    for manifest in manifests:
        spec_id = manifest.partition_spec_id
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield _DeleteFile(
                entry.data_file.file_path,
                entry.data_file.content == DataFileContent.EQUALITY_DELETES,
                spec_id not in specs or specs[spec_id].is_unpartitioned(),
                (spec_id, _values(entry.data_file.partition)),
                entry.sequence_number or 0,
            )


def _unknown_rows(path: str) -> UnsupportedError:
    """Return the error that a file deletes by equality, at the path."""
    message = (
        f"Cannot tell which rows main holds: {path} deletes rows by equality, which this release "
        "cannot apply. Rewrite the table's data files with the engine that wrote it, and run it "
        "again."
    )
    return UnsupportedError(message)


def _paths_with_deletes(table: Table, at: int) -> frozenset[str]:
    """Return the paths of the data files to which deletes by position apply.

    PyIceberg matches them exactly, but its plan has no sequence numbers and no files without rows.
    """
    tasks = table.scan(snapshot_id=at).plan_files()
    return frozenset(task.file.file_path for task in tasks if task.delete_files)


class References:
    """The files of exports by manifest. Each manifest and list is read once: they never change.

    One object serves one table while a process works on it.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._manifests: dict[str, tuple[str, ...]] = {}
        self._lists: dict[str, tuple[str, ...]] = {}
        self._at = ""
        self._by_export: dict[tuple[str, str], set[str]] = {}

    def to(
        self, state: LakeTableState, key: str, transaction_ids: Collection[str]
    ) -> frozenset[str]:
        """Return the paths of files of these exports of a key that any snapshot refers to."""
        self._refresh(state)
        return frozenset().union(*(self._by_export.get((key, t), ()) for t in transaction_ids))

    def metadata_files(self, state: LakeTableState) -> frozenset[str]:
        """Return the versions, manifest lists, manifests and statistics that `state` refers to."""
        self._refresh(state)
        table = table_of(state).metadata
        lists = [s.manifest_list for s in table.snapshots]
        manifests = (m for one in lists for m in self._lists[one])
        versions = (v.metadata_file for v in table.metadata_log)
        statistics = (s.statistics_path for s in (*table.statistics, *table.partition_statistics))
        return frozenset((state.metadata_location, *versions, *lists, *manifests, *statistics))

    def _refresh(self, state: LakeTableState) -> None:
        if self._at != state.metadata_location:
            self._load(table_of(state))
            self._at = state.metadata_location

    def _load(self, table: Table) -> None:
        self._at, self._by_export = "", {}
        manifests = {m for s in table.metadata.snapshots for m in self._list(table, s)}
        for path in (path for m in manifests for path in self._manifests[m]):
            export = exported_by(path)
            if export is not None:
                self._by_export.setdefault(export, set()).add(path)

    def _list(self, table: Table, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the manifests of a snapshot, and read them."""
        found = self._lists.get(snapshot.manifest_list)
        if found is None:
            manifests = snapshot.manifests(table.io)
            for manifest in manifests:
                self._read(table, manifest)
            found = tuple(m.manifest_path for m in manifests)
            self._lists[snapshot.manifest_list] = found
        return found

    def _read(self, table: Table, manifest: ManifestFile) -> None:
        if manifest.manifest_path not in self._manifests:
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            paths = (entry.data_file.file_path for entry in entries)
            self._manifests[manifest.manifest_path] = tuple(p for p in paths if exported_by(p))


def is_in_use(state: LakeTableState, staged: Staged) -> bool:
    """Whether any snapshot in the metadata refers to a file of an attempt (protocol step 10).

    The absence of the attempt's snapshot is not enough: after its expiry its children still refer
    to its manifests.
    """
    table = table_of(state)
    wanted = set(staged.files)
    for snapshot in table.metadata.snapshots:
        if snapshot.manifest_list in wanted:
            return True
        if any(m.manifest_path in wanted for m in snapshot.manifests(table.io)):
            return True
    return False
