"""The judge of a chaos run: reads every version of the table that ever was, and every report.

doubled   a snapshot that could be read shows a key's rows more than once
dangling  a snapshot of the last version refers to a file that is not there
lost      the last, quiet report says that a partition is in main, and it is not, or not whole
false     a report says that rows are in main, and during that run they never were; or that an
          export was killed, and some snapshot shows rows of it

What was cleaned up meanwhile is read from where the chaos keeps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from tests.chaos.world import Report

__all__ = ["Judge"]

_IN_MAIN = frozenset(("committed", "replaced", "unchanged", "already_exported"))


@dataclass(frozen=True, slots=True)
class _Version:
    """One version of the table: from when on, and its main."""

    since: int
    main: int | None
    snapshots: tuple[int, ...]


@dataclass
class Judge:
    """Reads a table from its last version. `keys`: partition id to the hash in its files' names.

    `io` also reads what was cleaned up.
    """

    current: str
    keys: dict[str, str]
    io: FileIO
    _exports: set[str] = field(default_factory=set)
    _rows: dict[int, Counter[str]] = field(default_factory=dict)
    _manifests: dict[str, Counter[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def read(self) -> tuple[_Version, ...]:
        """Read every version that was the table's; note doubled rows of any snapshot.

        A commit that lost its race leaves a metadata file that never was: not in the log.
        """
        found = []
        last: TableMetadata = FromInputFile.table_metadata(self.io.new_input(self.current))
        for location in (*(entry.metadata_file for entry in last.metadata_log), self.current):
            metadata: TableMetadata = FromInputFile.table_metadata(self.io.new_input(location))
            for snapshot in metadata.snapshots:
                self._read(snapshot)
            main = metadata.current_snapshot_id
            ids = tuple(s.snapshot_id for s in metadata.snapshots)
            found.append(_Version(metadata.last_updated_ms, main, ids))
        return tuple(sorted(found, key=lambda v: v.since))

    def dangling(self, metadata: TableMetadata, there: Collection[str]) -> int:
        """Count what snapshots of a version refer to and is not there, among these locations."""
        needed = set[str]()
        for snapshot in metadata.snapshots:
            needed.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(self.io):
                needed.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(self.io, discard_deleted=True)
                needed.update(entry.data_file.file_path for entry in entries)
        return len(needed.difference(there))

    def false_reports(self, reports: list[Report], versions: tuple[_Version, ...]) -> Iterator[str]:
        """Yield the reports that were true of main at no moment of their run."""
        for report in reports:
            # Of one that was never claimed the ledger knows nothing, and nothing is in main.
            key = self.keys.get(report.partition_id, "")
            if report.status == "killed" and not report.message:
                if f"{key}-{report.transaction_id}" in self._exports:
                    yield f"{report} and its rows were seen in a snapshot"
                continue
            if report.status not in _IN_MAIN:
                continue
            seen = [self._rows_of(v.main)[key] for v in _during(versions, report)]
            if report.rows not in seen:
                yield f"{report} while main held {sorted(set(seen))}"

    def rows_in(self, version: _Version) -> dict[str, int]:
        """Return the rows of each partition in a version's main."""
        found = self._rows_of(version.main)
        return {partition: found[key] for partition, key in self.keys.items()}

    def _rows_of(self, snapshot_id: int | None) -> Counter[str]:
        return self._rows.get(snapshot_id, Counter()) if snapshot_id is not None else Counter()

    def _read(self, snapshot: Snapshot) -> None:
        """Count a snapshot's rows by key; two transactions of one key are its rows twice."""
        if snapshot.snapshot_id in self._rows:
            return
        by_transaction: Counter[str] = Counter()
        for manifest in snapshot.manifests(self.io):
            if manifest.content == ManifestContent.DATA:
                by_transaction += self._of(manifest)
        rows: Counter[str] = Counter()
        transactions: Counter[str] = Counter()
        self._exports.update(by_transaction)
        for name, count in by_transaction.items():
            key = name.split("-")[0]
            rows[key] += count
            transactions[key] += 1
        for partition, key in self.keys.items():
            if transactions[key] > 1:
                text = (
                    f"snapshot {snapshot.snapshot_id} shows {partition} {transactions[key]} times"
                )
                self.wrong.append(f"doubled: {text}")
        self._rows[snapshot.snapshot_id] = rows

    def _of(self, manifest: ManifestFile) -> Counter[str]:
        """Return the rows of a manifest by key and transaction."""
        found = self._manifests.get(manifest.manifest_path)
        if found is None:
            found = Counter()
            for entry in manifest.fetch_manifest_entry(self.io, discard_deleted=True):
                name = entry.data_file.file_path.rsplit("/", 1)[-1]
                found["-".join(name.split("-")[:2])] += entry.data_file.record_count
            self._manifests[manifest.manifest_path] = found
        return found


def _during(versions: tuple[_Version, ...], report: Report) -> list[_Version]:
    """Return the versions that were the table's at some moment of a run."""
    found = []
    for this, following in zip(versions, (*versions[1:], None), strict=True):
        until = following.since if following is not None else report.ended
        if this.since <= report.ended and until >= report.begun:
            found.append(this)
    return found
