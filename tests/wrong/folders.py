"""Frozen parts that cannot be exported, and what a command says (docs/reference/errors.md)."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from tests.support.errors_page import Refusal, refusal_of
from tests.wrong.places import Places

__all__ = ["BEGUN", "PREPARED"]

_NUMBERS: Final = itertools.count(1)
_UUID: Final = "0a1b2c3d-0000-4000-8000-000000000000"
_STATEMENT: Final = (
    "CREATE TABLE db.events (ts DateTime('UTC'), id Int64, s String) ENGINE = MergeTree"
    " PARTITION BY toYYYYMM(ts) ORDER BY id"
)


def _parts(places: Places, statement: str = _STATEMENT) -> Path:
    """Freeze db.events; its parts lie in `parts`, the statement in `events.sql`."""
    name = f"folders{next(_NUMBERS)}"
    places.clickhouse_run(f"ALTER TABLE db.events FREEZE WITH NAME '{name}'")
    (shadow,) = (places.clickhouse / "shadow" / name / "store").glob("*/*")
    shutil.rmtree(places.root / "parts", ignore_errors=True)
    shutil.move(shadow, places.root / "parts")
    (places.root / "events.sql").write_text(statement)
    return places.root / "parts"


def _words(places: Places, *, table: str = "db.events", identity: str = f"uuid:{_UUID}",
           partition: str = "202401", to: str = "lake.n.folders") -> tuple[str, ...]:  # fmt: skip
    whose = f"&identity={identity}" if identity else ""
    source = f"parts:{places.root}/parts?ddl={places.root}/events.sql&zone=UTC{whose}"
    chosen = ("--partition-id", partition)
    return ("export", table, *chosen, "--to", to, "--source", source)


def _no_statement(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*_words(places)[:-1], "parts:here")


def _statement_of_a_view(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    _parts(places, "CREATE VIEW db.events AS SELECT 1")
    return _words(places)


def _no_file(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    _parts(places)
    (places.root / "events.sql").unlink()
    return _words(places)


def _another_table(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    _parts(places)
    return _words(places, table="db.other")


def _old_syntax(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    _parts(places, "CREATE TABLE db.events (d Date, k UInt64) ENGINE = MergeTree(d, k, 8192)")
    return _words(places)


def _no_parts(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    for part in _parts(places).iterdir():
        shutil.rmtree(part)
    return _words(places)


def _two_tables(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    parts = _parts(places)
    for name in ("a", "b"):
        shutil.copytree(parts, places.root / "both" / name)
    shutil.rmtree(parts)
    (places.root / "both").rename(parts)
    return _words(places)


def _backup(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    (_parts(places) / ".backup").write_text("<config/>")
    return _words(places)


def _packed(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    (_parts(places) / "202403_9_9_0.tar").write_bytes(b"")
    return _words(places)


def _nameless(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    _parts(places)
    return _words(places, identity="")


def _macros(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    engine = "ReplicatedMergeTree('/tables/{shard}/t', '{replica}')"
    _parts(places, _STATEMENT.replace("MergeTree", engine))
    return _words(places, identity="")


def _other_keys(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    _parts(places, _STATEMENT.replace("PARTITION BY toYYYYMM(ts)", "PARTITION BY s"))
    return _words(places)


def _damaged(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    (part,) = _parts(places).glob("202401_*")
    (part / "partition.dat").unlink()
    return refusal_of(places, _words(places))


def _no_checksums(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    (part,) = _parts(places).glob("202401_*")
    (part / "checksums.txt").unlink()
    return refusal_of(places, _words(places))


def _covered(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    (part,) = _parts(places).glob("202401_*")
    shutil.copytree(part, part.with_name("202401_1_7_1"))
    return refusal_of(places, _words(places))


def _twice(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    (part,) = _parts(places).glob("202401_*")
    shutil.copytree(part, part.with_name("202401_8_8_0"))
    return refusal_of(places, _words(places))


def _other_type(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    _parts(places, _STATEMENT.replace("s String", "s FixedString(8)"))
    return refusal_of(places, _words(places, to="lake.n.typed"))


def _other_partition_key(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    _parts(places, _STATEMENT.replace("toYYYYMM(ts)", "toYYYYMM(ts + 40 * 86400)"))
    return refusal_of(
        places, (*_words(places, to="lake.n.keyed"), "--partition-spec", "unpartitioned")
    )


def _other_order(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    _parts(places, _STATEMENT.replace("ORDER BY id", "ORDER BY -id"))
    return refusal_of(places, _words(places, partition="202402"))


PREPARED: Mapping[str, Callable[[Places, pytest.MonkeyPatch], tuple[str, ...]]] = MappingProxyType(
    {
        "frozen parts without a statement": _no_statement,
        "frozen parts: the statement is of something else": _statement_of_a_view,
        "frozen parts: the file with the statement is not there": _no_file,
        "frozen parts: the statement is of another table": _another_table,
        "frozen parts: a table of the old syntax": _old_syntax,
        "frozen parts: there are none": _no_parts,
        "frozen parts: those of several tables or disks": _two_tables,
        "frozen parts: a backup that was not restored": _backup,
        "frozen parts: one is packed": _packed,
        "frozen parts: the table is not named": _nameless,
        "frozen parts: the Keeper path has macros": _macros,
        "frozen parts: none opens": _other_keys,
    }
)
"""What is wrong with the folders or the statement; nothing is begun."""

BEGUN: Mapping[str, Callable[[Places, pytest.MonkeyPatch], Refusal]] = MappingProxyType(
    {
        "a frozen part does not open": _damaged,
        "a frozen part has no checksums": _no_checksums,
        "a frozen part covers others": _covered,
        "two frozen parts are equal": _twice,
        "a frozen part has another type than the statement": _other_type,
        "the statement of frozen parts has another partition key": _other_partition_key,
        "the statement of frozen parts has another sorting key": _other_order,
    }
)
"""What refuses one partition of frozen parts."""
