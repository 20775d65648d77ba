"""Lists all files, of any writer, that snapshots of a table refer to, for maintenance.

`tableformat/iceberg/manifest_scan.py` lists the data files of exports. Maintenance removes files of
every writer, so it needs all of them: data files, files of deletes, manifests, manifest lists and
statistics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from tableformat.committer import LakeTableState
from tableformat.iceberg.snapshot import table_of

__all__ = ["Place", "Reference", "ReferredFiles", "references_of"]

Place: TypeAlias = tuple[int, tuple[object, ...]]
"""A lake partition: the id of a spec, and the values by it."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A branch or tag with the retention that its owner gave it, None where none was given.

    `keeps` is the least number of snapshots of a branch that stay, `age` their age in milliseconds.
    """

    name: str
    snapshot_id: int
    is_branch: bool
    keeps: int | None = None
    age: int | None = None


def references_of(state: LakeTableState) -> tuple[Reference, ...]:
    """Return the branches and tags of a table."""
    return tuple(
        Reference(
            name,
            ref.snapshot_id,
            ref.snapshot_ref_type == SnapshotRefType.BRANCH,
            ref.min_snapshots_to_keep,
            ref.max_snapshot_age_ms,
        )
        for name, ref in table_of(state).metadata.refs.items()
    )


@dataclass(frozen=True, slots=True)
class _OfManifest:
    """The files that a manifest adds or keeps, with their sizes, and the rows of data files."""

    files: Mapping[str, int]
    rows: Mapping[Place, int]


class ReferredFiles:
    """The files of snapshots, of any writer. Each manifest is read once: manifests never change."""

    def __init__(self) -> None:
        """Start empty."""
        self._read: dict[str, _OfManifest] = {}

    def of(self, state: LakeTableState, snapshot_ids: Collection[int]) -> dict[str, int]:
        """Return all files of snapshots with their sizes in bytes.

        The size of a manifest list is not known, and counts as 0.
        """
        table = table_of(state)
        found: dict[str, int] = {}
        for one in table.metadata.snapshots:
            if one.snapshot_id not in snapshot_ids:
                continue
            found[one.manifest_list] = 0
            for manifest in one.manifests(table.io):
                if manifest.manifest_path not in found:
                    found[manifest.manifest_path] = manifest.manifest_length
                    found.update(self._of(table, manifest).files)
        for made in (*table.metadata.statistics, *table.metadata.partition_statistics):
            if made.snapshot_id in snapshot_ids:
                found[made.statistics_path] = made.file_size_in_bytes
        return found

    def rows(self, state: LakeTableState, at: int) -> dict[Place, int]:
        """Return the rows of the data files of a snapshot, by spec id and partition values."""
        table, found = table_of(state), dict[Place, int]()
        for manifest in _data_manifests(table, at):
            for place, rows in self._of(table, manifest).rows.items():
                found[place] = found.get(place, 0) + rows
        return found

    def manifests(self, state: LakeTableState) -> tuple[int, ...]:
        """Return the sizes of the manifests of main that list data files."""
        found = _data_manifests(table_of(state), state.main)
        return tuple(one.manifest_length for one in found)

    def _of(self, table: Table, manifest: ManifestFile) -> _OfManifest:
        if manifest.manifest_path not in self._read:
            files, rows = dict[str, int](), dict[Place, int]()
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                file = entry.data_file
                files[file.file_path] = file.file_size_in_bytes
                if manifest.content == ManifestContent.DATA:
                    values = tuple(file.partition[i] for i in range(len(file.partition)))
                    place = (manifest.partition_spec_id, values)
                    rows[place] = rows.get(place, 0) + file.record_count
            self._read[manifest.manifest_path] = _OfManifest(files, rows)
        return self._read[manifest.manifest_path]


def _data_manifests(table: Table, at: int | None) -> tuple[ManifestFile, ...]:
    snapshot = table.metadata.snapshot_by_id(at) if at is not None else None
    manifests = snapshot.manifests(table.io) if snapshot is not None else ()
    return tuple(one for one in manifests if one.content == ManifestContent.DATA)
