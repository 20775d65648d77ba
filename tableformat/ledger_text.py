"""The text form of a ledger's row: JSON under a checksum, in which a ledger stores it.

The fields are in docs/spec/ledger.md; what they mean is said at `ledger.Row`. Rows of the five
formats before are read, too, and this is the only place that reads the kind of a statement, or what
stopped a claim, from a text: format 11 and before have nothing else. Formats 10 and before do not
say which columns there were. Formats 9 and before have no `archived`, which their times to live
tell, and their records do not say when the export was begun, and by which query; formats 8 and 7 do
not say how the source is divided, nor format 7 which claim gives way.
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
    Row,
    State,
    StatementKind,
    Stop,
)
from tableformat.mergetree.table import KeeperNode

__all__ = ["ROW_FORMAT", "checksum", "parse_row", "render_row"]

ROW_FORMAT: Final = 12
_READ: Final = (7, 8, 9, 10, 11, ROW_FORMAT)
_KNOWS_ARCHIVED: Final = 10
_KNOWS_KINDS: Final = 12


def render_row(row: Row) -> str:
    """Return the stored form: `format_version` and `checksum` first."""
    body = asdict(row)
    del body["version"]
    head = {"format_version": ROW_FORMAT, "checksum": checksum(body)}
    return json.dumps({**head, **body}, separators=(",", ":"))


def parse_row(text: str, version: int, *, what: str = "a ledger row") -> Row:
    """Read the stored form.

    Args:
        text: the stored form.
        version: of compare-and-set, which is stored beside it.
        what: names the row in errors.

    Raises:
        LedgerError: it is damaged, or of another format.
    """
    try:
        raw: dict[str, Any] = json.loads(text)
        found = raw.pop("format_version")
        if found not in _READ:
            raise _other_format(what, found)
        if raw.pop("checksum") != checksum(raw):
            raise _damaged(what, "its content is not what its checksum was made of")
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
        return Row(**raw, version=version)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(what, repr(error)) from error


def checksum(body: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, however it is spaced and ordered."""
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


def _archived(raw: dict[str, Any] | None) -> Archived | None:
    if raw is None:
        return None
    detached = raw["detached"]
    parts = None if detached is None else tuple(DetachedPart(**one) for one in detached)
    return Archived(raw["since"], parts)


def _archived_before(done: Record | None, ttl: int, updated: int) -> Archived | None:
    """Return whether a row of format 9 or older is archived.

    Archiving set the record's time to live to 0 and left the row's as it was; an export with a
    time to live of 0 sets both. One that was forgotten afterwards was given up on purpose.
    """
    if done is None or done.forgotten or done.ttl != 0 or ttl == 0:
        return None
    return Archived(updated)


def _record(raw: dict[str, Any]) -> Record:
    return Record(**{**raw, "landed": _landed(raw["landed"]), "parts": _parts(raw["parts"])})


# How the statements begin that releases up to format 11 wrote; the first that fits is the one.
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
    # What gave it up stands behind it.
    (re.compile(r"its query was killed.*", re.DOTALL), Stop.QUERY_KILLED),
)


def _add_values(raw: dict[str, Any]) -> None:
    """Add to a row of format 11 or before the values that only its texts tell."""
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
