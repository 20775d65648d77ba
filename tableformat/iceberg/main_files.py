"""The data files of snapshots, by who wrote them and where they lie, from the manifests alone.

What a replacement removes, and what others have in a lake partition, is decided on it
(`export/in_main.py`, `export/foreign.py`, `export/whole_partition.py`; protocol.md step 6).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record

from tableformat.branches import MAIN_BRANCH, BranchFile
from tableformat.committer import FileInMain, LakeTableState, PartitionFile
from tableformat.errors import UnsupportedError
from tableformat.file_names import is_of_key, key_in
from tableformat.iceberg.snapshot import table_of
from tableformat.iceberg.tags import branch_head
from tableformat.iceberg.values import from_text

__all__ = ["MainFiles"]

F = TypeVar("F")
K = TypeVar("K")
T = TypeVar("T")
_SNAPSHOTS_HELD: Final = 4
"""A group of partitions is decided on one snapshot, and the next group on the one after it."""


@dataclass(frozen=True, slots=True)
class _Live:
    """A data file that a manifest adds or keeps; `key` is the hash in its name, '' for others'."""

    path: str
    rows: int
    bytes: int
    key: str
    spec_id: int
    partition: tuple[object, ...]
    snapshot_id: int
    sequence_number: int


@dataclass(frozen=True, slots=True)
class _Place:
    """What files of one spec have in a partition: values by their places.

    `whole`: a file that has them holds no row of another partition.
    """

    values: tuple[tuple[int, object], ...]
    whole: bool


class MainFiles:
    """The data files of snapshots, each manifest read once: manifests never change.

    One object serves one table for as long as a process works on it. It is asked for thousands of
    keys one after the other, so that the files of the latest snapshots are kept sorted.
    """

    def __init__(self) -> None:
        """Start without having read anything."""
        self._read: dict[str, tuple[_Live, ...]] = {}
        self._by_key: dict[int, Mapping[str, tuple[FileInMain, ...]]] = {}
        self._by_spec: dict[int, _BySpec] = {}

    def of_key(self, state: LakeTableState, key: str, at: int | None) -> tuple[FileInMain, ...]:
        """Return the files of a snapshot whose name carries a key hash, and which carry deletes.

        Raises:
            UnsupportedError: the snapshot has files that delete by equality.
        """
        if at is None:
            return ()
        by_key = _latest(self._by_key, at, lambda: _sorted(self._named(state, at), _begins))
        return tuple(f for f in by_key.get(key, ()) if is_of_key(f.path, key))

    def on(self, state: LakeTableState, branch: str) -> tuple[BranchFile, ...]:
        """Return all files of a branch, and which carry deletes; none when there is no branch.

        Those of main are of the snapshot that `state` has for it.

        Raises:
            UnsupportedError: the branch has files that delete by equality.
        """
        table = table_of(state)
        if branch == MAIN_BRANCH:
            head = state.main
        else:
            found = branch_head(table, branch)
            head = found.snapshot_id if found is not None else None
        return tuple(self._in(table, head)) if head is not None else ()

    def _named(self, state: LakeTableState, at: int) -> Iterable[FileInMain]:
        return (
            FileInMain(f.path, f.rows, f.deletes, f.bytes) for f in self._in(table_of(state), at)
        )

    def _in(self, table: Table, at: int) -> Iterable[BranchFile]:
        """Return the files of a snapshot, and which carry deletes."""
        snapshot = table.metadata.snapshot_by_id(at)
        manifests = snapshot.manifests(table.io) if snapshot else []
        deletes = [m for m in manifests if m.content == ManifestContent.DELETES]
        if deletes:
            _refuse_equality(table, deletes)
            return _with_deletes(table, at)
        live = (f for m in manifests for f in self._live(table, m))
        return (
            BranchFile(
                f.path,
                f.rows,
                f.bytes,
                f.spec_id,
                sequence_number=f.sequence_number,
                partition=f.partition,
            )
            for f in live
        )

    def in_partition(
        self, state: LakeTableState, partition: tuple[str | None, ...]
    ) -> tuple[PartitionFile, ...]:
        """Return the files of main that may hold rows of a partition of today's spec."""
        if state.main is None:
            return ()
        table = table_of(state)
        places = _places(table, partition)
        by_spec = _latest(self._by_spec, state.main, lambda: self._by_place(state))
        return tuple(
            PartitionFile(f.path, f.rows, f.snapshot_id, f.key, places[spec_id].whole, f.bytes)
            for spec_id, of_spec in by_spec.items()
            for f in _there(places[spec_id], of_spec)
        )

    def _by_place(self, state: LakeTableState) -> _BySpec:
        """Return the files of main by spec, and by the values of all its fields."""
        table = table_of(state)
        live = (f for m in _data_manifests(state) for f in self._live(table, m))
        by_spec = _sorted(live, lambda f: f.spec_id)
        return {i: _sorted(files, lambda f: f.partition) for i, files in by_spec.items()}

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
                )
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            )
            self._read[manifest.manifest_path] = found
        return found


def _values(partition: Record) -> tuple[object, ...]:
    return tuple(partition[i] for i in range(len(partition)))


_BySpec = Mapping[int, Mapping[tuple[object, ...], tuple[_Live, ...]]]


def _latest(held: dict[int, T], snapshot_id: int, read: Callable[[], T]) -> T:
    """Return what is held of a snapshot, or read it and let go of the one held longest."""
    if snapshot_id not in held:
        found = read()
        while len(held) >= _SNAPSHOTS_HELD:
            del held[next(iter(held))]
        held[snapshot_id] = found
    return held[snapshot_id]


def _sorted(files: Iterable[F], by: Callable[[F], K]) -> Mapping[K, tuple[F, ...]]:
    found: defaultdict[K, list[F]] = defaultdict(list)
    for file in files:
        found[by(file)].append(file)
    return {key: tuple(of_key) for key, of_key in found.items()}


def _begins(file: FileInMain) -> str:
    """Return what a file's name begins with: its key, when it is of one."""
    return file.path.rsplit("/", 1)[-1].partition("-")[0]


def _there(
    place: _Place, of_spec: Mapping[tuple[object, ...], tuple[_Live, ...]]
) -> Iterable[_Live]:
    """Return the files of one spec that lie in a place: all its values are met."""
    values = tuple(value for _, value in place.values)
    if all(len(at) == len(values) for at in itertools.islice(of_spec, 1)):
        # Every field of the spec has a value, so that nothing has to be searched.
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


def _places(table: Table, partition: tuple[str | None, ...]) -> dict[int, _Place]:
    """Return, by spec, where files of a partition of today's spec lie.

    Specs are compared by what their fields are made of; fields that only one of them has tell
    nothing, and neither do those that divide nothing.
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
        found[spec_id] = _Place(values, whole=wanted.keys() <= set(made_of))
    return found


def _refuse_equality(table: Table, manifests: Iterable[ManifestFile]) -> None:
    """Refuse files that delete by equality: PyIceberg cannot say which data files they apply to.

    Raises:
        UnsupportedError: there is one.
    """
    for manifest in manifests:
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
                message = (
                    f"Cannot tell which rows main holds: {entry.data_file.file_path} deletes rows "
                    "by equality, which this release cannot apply. Rewrite the table's data files "
                    "with the engine that wrote it, and run the command again."
                )
                raise UnsupportedError(message)


def _with_deletes(table: Table, at: int) -> tuple[BranchFile, ...]:
    return tuple(
        BranchFile(
            task.file.file_path,
            task.file.record_count,
            task.file.file_size_in_bytes,
            task.file.spec_id,
            deletes=bool(task.delete_files),
            partition=_values(task.file.partition),
        )
        for task in table.scan(snapshot_id=at).plan_files()
    )
