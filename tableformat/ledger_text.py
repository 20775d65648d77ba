"""Renders and parses the stored form of a ledger row: JSON with a checksum (docs/spec/ledger.md).

`ledger.Row` describes the fields. The parser also reads the ten earlier formats:

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
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
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
)
from tableformat.mergetree.table import KeeperNode

__all__ = ["ROW_FORMAT", "checksum", "parse_row", "render_row"]

ROW_FORMAT: Final = 17
_READ: Final = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, ROW_FORMAT)
_KNOWS_ARCHIVED: Final = 10
_KNOWS_KINDS: Final = 12
_UNKNOWN_ROWS: Final = -1


def render_row(row: Row) -> str:
    """Return the stored form, with `format_version` and `checksum` first."""
    body = asdict(row)
    del body["version"]
    head = {"format_version": ROW_FORMAT, "checksum": checksum(body)}
    return json.dumps({**head, **body}, separators=(",", ":"))


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
    """Return the SHA-256 of a JSON object, independent of spaces and the order of members."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
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
