"""Renders and parses a ledger row as JSON with a checksum: its stored form, and its manifest.

`ledger.Row` describes the fields. The stored form is in docs/spec/ledger.md. The parser also reads
the eleven earlier formats:

* 17 and earlier have no `holds` of an export.
* 16 and earlier have no `server`.
* 15 and earlier have no increment of a key, and no `archived_since` and `is_ending`.
* 14 and earlier have no `detached`.
* 13 has no `rows` of `rewritten`: its files count as files with other rows.
* 12 and earlier have no `rewritten`.
* 11 and earlier have no kind of a statement and no reason of a stop. Only this module derives them
  from texts.
* 10 and earlier have no `columns`.
* 9 and earlier have no `archived`, which is derived from their times to live. Their records have no
  `begun` and no `query_id`.
* 8 and earlier have no `division`.
* 7 has no `gives_way`.

The manifest shows an export to users and tools (docs/spec/manifest.md; N-09 … N-15). It is
pretty-printed, and has the required fields first. A ledger stores the manifest with the row, in one
change. The manifest is derived from the row; no decision depends on it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tableformat.errors import LedgerError
from tableformat.ledger import (
    Archived,
    Claim,
    DetachedPart,
    ExportedPart,
    GivesWay,
    Held,
    Key,
    Landed,
    MoveIntent,
    Record,
    Rewritten,
    Row,
    State,
    StatementKind,
    Stop,
    last_export,
)
from tableformat.mergetree.table import KeeperNode
from tableformat.messages import Command
from tableformat.names import members

__all__ = [
    "MANIFEST_FORMAT",
    "ROW_FORMAT",
    "Manifest",
    "ManifestPart",
    "checksum",
    "manifest",
    "manifest_of",
    "parse_manifest",
    "parse_row",
    "render_row",
    "stored_manifest",
]

ROW_FORMAT: Final = 18
_READ: Final = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, ROW_FORMAT)
_KNOWS_ARCHIVED: Final = 10
_KNOWS_KINDS: Final = 12
_UNKNOWN_ROWS: Final = -1


def render_row(row: Row) -> str:
    """Return the stored form, with `format_version` and `checksum` first."""
    body = members(row)
    del body["version"]
    head = {"format_version": ROW_FORMAT, "checksum": checksum(body)}
    return json.dumps({**head, **body}, default=members, separators=(",", ":"))


def parse_row(text: str, version: int, *, what: str = "a ledger row") -> Row:
    """Parse the stored form.

    Args:
        text: the stored form.
        version: the version for compare-and-set, which the ledger stores separately.
        what: the name of the row in errors.

    Raises:
        LedgerError: the text is damaged, or of a format that this release does not read.
    """
    try:
        raw: dict[str, Any] = json.loads(text)
        found = raw.pop("format_version")
        if found not in _READ:
            raise _other_format(what, found)
        if raw.pop("checksum") != checksum(raw):
            raise _damaged(what, "its content does not match its checksum")
        if found < _KNOWS_KINDS:
            _add_values(raw)
        raw["key"] = Key(**raw["key"])
        raw["stop"] = Stop(stop) if (stop := raw["stop"]) is not None else None
        raw["state"] = State(raw["state"])
        raw["claim"] = _claim(raw["claim"])
        raw["old"] = tuple(_claim(c) for c in raw["old"])
        raw["landed"] = tuple(_landed(x) for x in raw["landed"])
        raw["done"] = _record(raw["done"]) if raw["done"] else None
        raw["changed"] = _landed(of) if (of := raw.get("changed")) else None
        raw["keeper_node"] = KeeperNode(**node) if (node := raw["keeper_node"]) else None
        if found < _KNOWS_ARCHIVED:
            raw["archived"] = _archived_before(raw["done"], raw["ttl"], raw["updated"])
        else:
            raw["archived"] = _archived(raw["archived"])
        raw["rewritten"] = _proof(proof) if (proof := raw.get("rewritten")) else None
        raw["detached"] = tuple(_proof(proof) for proof in raw.get("detached", []))
        return Row(**raw, version=version)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(what, repr(error)) from error


def checksum(body: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, independent of spaces and the order of members.

    A dataclass in it counts as the object of its members.
    """
    canonical = json.dumps(body, default=members, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def _damaged(what: str, why: str) -> LedgerError:
    return LedgerError(
        f"Cannot read {what}: {why}. The ledger is damaged; restore it from a copy, or rebuild it "
        "from the table."
    )


def _other_format(what: str, found: object) -> LedgerError:
    return LedgerError(
        f"Cannot read {what}: it has format {found}, this release reads "
        f"{', '.join(map(str, _READ[:-1]))} and {ROW_FORMAT}. Use the release that wrote it."
    )


def _parts(raw: list[dict[str, Any]]) -> tuple[ExportedPart, ...]:
    return tuple(ExportedPart(**{**p, "remote_paths": tuple(p["remote_paths"])}) for p in raw)


def _claim(raw: dict[str, Any]) -> Claim:
    staging = tuple(raw["staging"])
    move = MoveIntent(**of) if (of := raw.get("move")) else None
    gives_way = GivesWay(**of) if (of := raw.get("gives_way")) else None
    read = {"parts": _parts(raw["parts"]), "staging": staging, "move": move}
    return Claim(**{**raw, **read, "gives_way": gives_way, **_kind(raw), **_holds(raw)})


def _landed(raw: dict[str, Any]) -> Landed:
    return Landed(**{**raw, **_kind(raw), **_holds(raw)})


def _kind(raw: dict[str, Any]) -> dict[str, Any]:
    found = raw["kind"]
    return {"kind": None if found is None else StatementKind(found)}


def _holds(raw: dict[str, Any]) -> dict[str, Any]:
    found = raw.get("holds")
    return {"holds": found if found is None else tuple(Held(**one) for one in found)}


def _proof(raw: dict[str, Any]) -> Rewritten:
    snapshots, files = tuple(raw["snapshots"]), tuple(raw["files"])
    return Rewritten(raw["transaction_id"], snapshots, files, raw.get("rows", _UNKNOWN_ROWS))


def _archived(raw: dict[str, Any] | None) -> Archived | None:
    if raw is None:
        return None
    detached = raw["detached"]
    parts = None if detached is None else tuple(DetachedPart(**one) for one in detached)
    return Archived(raw["since"], parts, raw.get("is_ending", False))


def _archived_before(done: Record | None, ttl: int, updated: int) -> Archived | None:
    """Return the mark of a row of format 9 or earlier, None if it is not archived.

    Archiving set the record's time to live to 0, and not the row's; an export with a time to live
    of 0 sets both. If the user has forgotten the export since, the row is not archived.
    """
    if done is None or done.forgotten or done.ttl != 0 or ttl == 0:
        return None
    return Archived(updated)


def _record(raw: dict[str, Any]) -> Record:
    return Record(**{**raw, "landed": _landed(raw["landed"]), "parts": _parts(raw["parts"])})


# The beginnings of statements in rows of format 11 and earlier; the first match decides.
_NAMED: Final = r"(?:PARTITION ALL|PART(?:ITION ID)? '[^']*')"
_TEXTS_BEFORE: Final = tuple(
    (re.compile(begin), kind)
    for begin, kind in (
        (rf"ATTACH {_NAMED} FROM ", StatementKind.ATTACH_FROM),
        (r"ATTACH ", StatementKind.ATTACH),
        (r"CLEAR COLUMN ", StatementKind.CLEAR_COLUMN),
        (r"CLEAR INDEX ", StatementKind.CLEAR_INDEX),
        (r"DELETE ", StatementKind.DELETE),
        (r"DETACH ", StatementKind.DETACH),
        (r"DROP PART", StatementKind.DROP),
        (rf"FETCH {_NAMED} FROM '", StatementKind.FETCH_FROM_OUTSIDE),
        (r"FETCH ", StatementKind.FETCH),
        (rf"MOVE {_NAMED} TO (?:DISK|VOLUME) ", StatementKind.MOVE_TO_DISK),
        (rf"MOVE {_NAMED} TO TABLE ", StatementKind.MOVE_TO_TABLE),
        (r"OPTIMIZE ", StatementKind.OPTIMIZE),
        (r"REPLACE ", StatementKind.REPLACE_FROM),
        (r"UPDATE ", StatementKind.UPDATE),
    )
)
_STOPPED_BEFORE: Final = (
    (re.compile(r"interrupted"), Stop.INTERRUPTED),
    (re.compile(r"it is being cancelled"), Stop.CANCELLED),
    # The text continues with the reason for giving up.
    (re.compile(r"its query was killed.*", re.DOTALL), Stop.QUERY_KILLED),
)


def _add_values(raw: dict[str, Any]) -> None:
    """Add the values to a row of format 11 or earlier that only its texts have."""
    done, changed = raw["done"], raw.get("changed")
    landed = [*raw["landed"], *([done["landed"]] if done else []), *([changed] if changed else [])]
    for one in (raw["claim"], *raw["old"], *landed):
        one["kind"] = _kind_before(one.get("statement", ""))
    text = raw["last_error"]
    stops = (stop for pattern, stop in _STOPPED_BEFORE if pattern.fullmatch(text))
    raw["stop"] = next(stops, None)


def _kind_before(statement: str) -> StatementKind | None:
    if not statement:
        return None
    kinds = (kind for pattern, kind in _TEXTS_BEFORE if pattern.match(statement))
    return next(kinds, StatementKind.OTHER)


MANIFEST_FORMAT: Final = 3
_FEWEST_BYTES: Final = 200
"""The least bytes of a part in the text."""
_MOST_ERROR: Final = 4000
_MOST_SNAPSHOTS: Final = 1000
"""The most characters of an error, and the most landed snapshots, of a bounded text."""
_READ_MANIFESTS: Final = (1, 2, MANIFEST_FORMAT)
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
    body = _with_texts(members(made))
    tail = {"format_version": MANIFEST_FORMAT, "checksum": checksum(_sealed(body, MANIFEST_FORMAT))}
    return json.dumps({**body, **tail}, default=members, indent=2, ensure_ascii=True)


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
        if found not in _READ_MANIFESTS:
            message = (
                f"Cannot read a manifest of format {found}: this release reads {MANIFEST_FORMAT}. "
                "Use the release that wrote it."
            )
            raise LedgerError(message)
        if raw.pop("checksum") != checksum(_sealed(raw, found)):
            raise _damaged_manifest(
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
        raise _damaged_manifest(repr(error)) from error


def _with_texts(body: dict[str, Any]) -> dict[str, Any]:
    """Return the members with 64-bit numbers as texts: many JSON parsers lose their digits."""
    node, snapshot = body["keeper_node"], body["snapshot_id"]
    return {
        **body,
        "snapshot_id": None if snapshot is None else str(snapshot),
        "landed_snapshots": [str(one) for one in body["landed_snapshots"]],
        "keeper_node": node and {**members(node), "czxid": str(node.czxid)},
    }


def _node(found: dict[str, Any] | None) -> KeeperNode | None:
    return KeeperNode(**{**found, "czxid": int(found["czxid"])}) if found else None


def _sealed(body: dict[str, Any], form: int) -> dict[str, Any]:
    """Return the members that the checksum covers: all except itself."""
    return {**body, "format_version": form}


def _part(part: ExportedPart) -> ManifestPart:
    first = part.remote_paths[0] if part.remote_paths else ""
    return ManifestPart(part.name, first, part.remote_paths, part.rows, part.hash_of_all_files)


def _damaged_manifest(why: str) -> LedgerError:
    return LedgerError(
        f"Cannot read a manifest: {why}. It was changed or truncated after it was written; print "
        f"it again with {Command.SHOW.on('PARTITION_ID --json')}."
    )
