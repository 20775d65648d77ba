"""Renders the manifest of an export: its ledger row as a JSON document for users and tools.

The JSON is pretty-printed, has the required fields first, and a checksum (docs/spec/manifest.md;
N-09 … N-15). A ledger stores the manifest with the row, in one change. The manifest is derived from
the row; no decision depends on it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from tableformat.errors import LedgerError
from tableformat.ledger import ExportedPart, Row, last_export
from tableformat.ledger_text import checksum
from tableformat.mergetree.table import KeeperNode
from tableformat.messages import Command

__all__ = [
    "MANIFEST_FORMAT",
    "Manifest",
    "ManifestPart",
    "manifest",
    "manifest_of",
    "parse_manifest",
    "stored_manifest",
]

MANIFEST_FORMAT: Final = 3
_FEWEST_BYTES: Final = 200
"""The least bytes of a part in the text."""
_MOST_ERROR: Final = 4000
_MOST_SNAPSHOTS: Final = 1000
"""The most characters of an error, and the most landed snapshots, of a bounded text."""
_READ: Final = (1, 2, MANIFEST_FORMAT)
"""Format 1 has no Keeper node. Formats 1 and 2 have 64-bit numbers as numbers, and all parts."""


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """A source part, and the files that hold its rows; `remote_path` is the first, '' for none yet.

    A part may be in several files, and a file may hold several parts.
    """

    part_name: str
    remote_path: str
    remote_paths: tuple[str, ...]
    rows: int
    hash_of_all_files: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The last export of a partition, from its ledger row. Times are milliseconds since 1970.

    * `completed`: the export landed and was settled. Only then it has a `snapshot_id` and a
      `completed_time`, and refuses another export for `ttl` seconds (0 is for ever), unless it was
      `forgotten`.
    * `landed_snapshots`: the snapshots of all exports of the partition.
    * `keeper_node`: that of a replicated source table, None if it is unknown.
    * `parts_left_out`: how many parts are missing in `parts`, because a stored manifest is bounded.
    """

    transaction_id: str
    partition_id: str
    destination: str
    completed: bool
    parts: tuple[ManifestPart, ...]
    source: str
    source_identity: str
    destination_uuid: str
    key: str
    state: str
    epoch: int
    fingerprint: str
    rows: int
    data_files: int
    bytes: int
    snapshot_id: int | None
    completed_time: int | None
    created: int
    updated: int
    ttl: int
    forgotten: bool
    landed_snapshots: tuple[int, ...]
    last_error: str
    keeper_node: KeeperNode | None
    parts_left_out: int = 0


def manifest(row: Row, parts: tuple[ExportedPart, ...] | None = None) -> str:
    """Return the manifest of a row's last export as pretty-printed JSON.

    Args:
        row: the row.
        parts: the parts of the export with their finished files, None for those of the row.
    """
    return _rendered(manifest_of(row, parts))


def stored_manifest(row: Row, most: int) -> str:
    """Return the manifest for a ledger whose texts have at most `most` bytes.

    The error and the list of snapshots are always bounded; parts are left out until the text fits.
    """
    whole = manifest_of(row)
    error, landed = whole.last_error, whole.landed_snapshots[-_MOST_SNAPSHOTS:]
    error = error if len(error) <= _MOST_ERROR else f"{error[:_MOST_ERROR]} …"
    whole = replace(whole, last_error=error, landed_snapshots=landed)
    stays = min(len(whole.parts), most // _FEWEST_BYTES)
    while True:
        left_out = len(whole.parts) - stays
        text = _rendered(replace(whole, parts=whole.parts[:stays], parts_left_out=left_out))
        if len(text) <= most or not stays:
            return text
        stays = stays * most // len(text)


def _rendered(made: Manifest) -> str:
    body = _with_texts(asdict(made))
    tail = {"format_version": MANIFEST_FORMAT, "checksum": checksum(_sealed(body, MANIFEST_FORMAT))}
    return json.dumps({**body, **tail}, indent=2, ensure_ascii=True)


def manifest_of(row: Row, parts: tuple[ExportedPart, ...] | None = None) -> Manifest:
    """Return the manifest of the current export of a row, or else of the one that ended last."""
    of = last_export(row)
    done = of.record
    return Manifest(
        transaction_id=of.transaction_id,
        partition_id=row.key.partition_id,
        destination=row.destination_table,
        completed=done is not None,
        parts=tuple(_part(p) for p in (of.parts if parts is None else parts)),
        source=row.source_table,
        source_identity=row.key.source,
        destination_uuid=row.key.destination,
        key=row.key.hash,
        state=of.state.value,
        epoch=of.epoch,
        fingerprint=of.fingerprint,
        rows=of.rows,
        data_files=of.data_files,
        bytes=of.bytes,
        snapshot_id=done.landed.snapshot_id if done is not None else None,
        completed_time=done.completed if done is not None else None,
        created=row.created,
        updated=row.updated,
        ttl=done.ttl if done is not None else row.ttl,
        forgotten=done is not None and done.forgotten,
        landed_snapshots=tuple(x.snapshot_id for x in row.landed),
        last_error=of.error,
        keeper_node=row.keeper_node,
    )


def parse_manifest(text: str) -> Manifest:
    """Parse a manifest, with any spacing.

    Raises:
        LedgerError: the text is damaged, or of a newer format.
    """
    try:
        raw: dict[str, Any] = json.loads(text)
        found = raw.pop("format_version")
        if found not in _READ:
            message = (
                f"Cannot read a manifest of format {found}: this release reads {MANIFEST_FORMAT}. "
                "Use the release that wrote it."
            )
            raise LedgerError(message)
        if raw.pop("checksum") != checksum(_sealed(raw, found)):
            raise _damaged(
                f"its entry of partition {raw.get('partition_id')!r} does not match its checksum"
            )
        raw["parts"] = tuple(
            ManifestPart(**{**p, "remote_paths": tuple(p["remote_paths"])}) for p in raw["parts"]
        )
        raw["landed_snapshots"] = tuple(int(one) for one in raw["landed_snapshots"])
        raw["snapshot_id"] = None if raw["snapshot_id"] is None else int(raw["snapshot_id"])
        raw["keeper_node"] = _node(raw.get("keeper_node"))
        return Manifest(**raw)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(repr(error)) from error


def _with_texts(body: dict[str, Any]) -> dict[str, Any]:
    """Return the members with 64-bit numbers as texts: many JSON parsers lose their digits."""
    node, snapshot = body["keeper_node"], body["snapshot_id"]
    return {
        **body,
        "snapshot_id": None if snapshot is None else str(snapshot),
        "landed_snapshots": [str(one) for one in body["landed_snapshots"]],
        "keeper_node": node and {**node, "czxid": str(node["czxid"])},
    }


def _node(found: dict[str, Any] | None) -> KeeperNode | None:
    return KeeperNode(**{**found, "czxid": int(found["czxid"])}) if found else None


def _sealed(body: dict[str, Any], form: int) -> dict[str, Any]:
    """Return the members that the checksum covers: all except itself."""
    return {**body, "format_version": form}


def _part(part: ExportedPart) -> ManifestPart:
    first = part.remote_paths[0] if part.remote_paths else ""
    return ManifestPart(part.name, first, part.remote_paths, part.rows, part.hash_of_all_files)


def _damaged(why: str) -> LedgerError:
    return LedgerError(
        f"Cannot read a manifest: {why}. It was changed or truncated after it was written; print "
        f"it again with {Command.SHOW.on('PARTITION_ID --json')}."
    )
