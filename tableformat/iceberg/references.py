"""Which data files of exports, and manifests, any snapshot of a table refers to (step 10).

Main alone would not do: a file that only a tag, a branch or an older snapshot refers to is read by
time travel, and comes back with a rollback.
"""

from __future__ import annotations

from collections.abc import Collection

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tableformat.committer import LakeTableState
from tableformat.file_names import exported_by
from tableformat.iceberg.snapshot import table_of

__all__ = ["References"]


class References:
    """The files of exports by manifest; each manifest and list is read once: they never change.

    One object serves one table for as long as a process works on it.
    """

    def __init__(self) -> None:
        """Start without having read anything."""
        self._manifests: dict[str, tuple[str, ...]] = {}
        self._lists: dict[str, tuple[str, ...]] = {}
        self._at = ""
        self._by_export: dict[tuple[str, str], set[str]] = {}

    def to(
        self, state: LakeTableState, key: str, transaction_ids: Collection[str]
    ) -> frozenset[str]:
        """Return the paths of files of these exports of a key that any snapshot refers to."""
        self._know(state)
        return frozenset().union(*(self._by_export.get((key, t), ()) for t in transaction_ids))

    def metadata_files(self, state: LakeTableState) -> frozenset[str]:
        """Return all metadata files that `state` knows, and what its snapshots refer to, but data.

        Its versions, manifest lists, manifests and statistics.
        """
        self._know(state)
        table = table_of(state).metadata
        lists = [s.manifest_list for s in table.snapshots]
        manifests = (m for one in lists for m in self._lists[one])
        versions = (v.metadata_file for v in table.metadata_log)
        statistics = (s.statistics_path for s in (*table.statistics, *table.partition_statistics))
        return frozenset((state.metadata_location, *versions, *lists, *manifests, *statistics))

    def _know(self, state: LakeTableState) -> None:
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
        """Return the manifests of a snapshot, all of them read."""
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
