"""Is everything that lies below a table's location explained? What is not is named.

Explained is what the table's metadata refers to, and a record of ours that says why it is there:
files and receipts of a resumable export, receipts and lists of what is in a
snapshot. What other writers named is theirs to explain. Written apart from what `gc` decides by.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from tableformat.file_names import RECEIPTS, exported_by, sequence_number_in
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Row, State
from tableformat.names import LakeName
from tableformat.storage import Storage
from tests.places.found import place_at
from tests.places.place import objects_below
from tests.support.scenarios import TO, lake, ledger_rows

__all__ = ["unexplained"]


def unexplained(directory: Path, name: LakeName = TO) -> list[str]:
    """Return the files below a table's location, relative to it, that nothing explains.

    Those on disks of its own are named in full.
    """
    table, place = table_of(lake(directory, name).load()), place_at(directory)
    uuid = str(table.metadata.table_uuid)
    rows = [r for r in ledger_rows(directory) if r.key.destination == uuid]
    location, referred = table.metadata.location, frozenset(_referred(table))
    storage = place.storage(location)
    disks = [v for n, v in table.metadata.properties.items() if n.startswith("mergeberg.disk.")]
    roots = [location, *(f"{disk.rstrip('/')}/{uuid}" for disk in disks)]
    found_files = (objects_below(place.storage(root), root) for root in roots)
    files = sorted(one.location for at in found_files for one in at)
    found = _Explained(
        table,
        storage,
        tuple(files),
        referred,
        frozenset(e for p in referred if (e := exported_by(p)) is not None),
        frozenset((r.key.hash, r.claim.transaction_id) for r in rows if r.state is State.RUNNING),
        tuple(rows),
    )
    return [p.removeprefix(f"{location}/") for p in files if not found.is_known(p, location)]


def _referred(table: Table) -> Iterator[str]:
    """Yield everything that the table's metadata refers to, data files and its own versions too."""
    meta = table.metadata
    yield table.metadata_location
    yield from (v.metadata_file for v in meta.metadata_log)
    for snapshot in meta.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path


@dataclass(frozen=True, slots=True)
class _Explained:
    """What explains files: what metadata refers to, and what the ledger has.

    Exports, by key hash and transaction, are in snapshots, or can be resumed.
    """

    table: Table
    storage: Storage
    files: tuple[str, ...]
    referred: frozenset[str]
    in_snapshots: frozenset[tuple[str, str]]
    resumable: frozenset[tuple[str, str]]
    rows: tuple[Row, ...]

    def is_known(self, path: str, location: str) -> bool:
        """Whether somebody can say why a file is there."""
        if path in self.referred:
            return True
        below = path.removeprefix(f"{location}/")
        if below.startswith(f"{RECEIPTS}/groups/"):
            return self._is_listed(path)
        if below.startswith(f"{RECEIPTS}/"):
            return path.endswith(".json") and self._is_of_use(path)
        if below.startswith("metadata/"):
            return self._is_of_others(path)
        export = exported_by(path)
        return export is None or export in self.resumable

    def _is_of_use(self, path: str) -> bool:
        """Whether a receipt, or digest, is of an export that is there, or may be resumed.

        Of another one that landed a single receipt stays.
        """
        key, transaction_id, name = path.split("/")[-3:]
        if (key, transaction_id) in self.resumable:
            return True
        if (key, transaction_id) in self.in_snapshots:
            return name == "digest.json" or self._is_of_a_file_there(path)
        row = next((r for r in self.rows if r.key.hash == key), None)
        if row is None or not any(x.transaction_id == transaction_id for x in row.landed):
            return False
        if name == "digest.json":
            return row.done is not None and row.done.landed.transaction_id == transaction_id
        directory = path.removesuffix(name)
        receipts = (p for p in self.files if p.startswith(directory) and p.endswith(".json"))
        return path == min(p for p in receipts if p.removeprefix(directory)[0].isdecimal())

    def _is_of_a_file_there(self, receipt: str) -> bool:
        """Whether the file of a receipt is in a snapshot; another one was written twice."""
        return self._read(receipt)["file_path"] in self.referred

    def _is_listed(self, path: str) -> bool:
        """Whether a list tells of what is in a snapshot, or landed last, or may be resumed.

        Of an export that a later claim went on with, the list of the claim that landed.
        """
        if not path.endswith(".json"):
            return False
        exports = self._read(path)["exports"]
        listed = {(e["key"], e["transaction_id"], e["epoch"]) for e in exports}
        landed = {(r.key.hash, x.transaction_id, x.epoch) for r in self.rows for x in r.landed}
        last = {(r.key.hash, r.landed[-1].transaction_id) for r in self.rows if r.landed}
        there = {e for e in listed & landed if e[:2] in self.in_snapshots | last}
        return bool(there or {e[:2] for e in listed} & self.resumable)

    def _is_of_others(self, path: str) -> bool:
        """Whether another writer, or a catalog for one, left a file in the metadata directory."""
        uuid, name = str(self.table.metadata.table_uuid), path.rsplit("/", 1)[-1]
        if not name.endswith(".metadata.json"):
            return sequence_number_in(name, uuid) is None
        snapshots = self._read(path)["snapshots"]
        last = max(snapshots, key=lambda s: s["sequence-number"], default=None)
        known = {s.snapshot_id for s in self.table.metadata.snapshots}
        if last is None or last["snapshot-id"] in known:
            return True
        return sequence_number_in(last["manifest-list"], uuid) is None

    def _read(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.storage.read(path))
        return found
