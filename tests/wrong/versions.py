"""What old versions of ClickHouse say otherwise (docs/reference/errors.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from spark_ext.actions import export_ports
from tests.services.old_clickhouse import OldPair, old_pair
from tests.support.child_writer import ChildWriter
from tests.support.errors_page import Refusal, refusal_of
from tests.wrong.places import Places

__all__ = ["VERSIONS"]

Case = Callable[[Places, pytest.MonkeyPatch], Refusal]

_TABLE: Final = "CREATE TABLE db.old (d Date, k UInt64) ENGINE = MergeTree"
_STATEMENTS: Final = (
    "CREATE DATABASE db",
    f"{_TABLE} PARTITION BY toYYYYMM(d) ORDER BY k SETTINGS index_granularity = 8192",
    "INSERT INTO db.old SELECT toDate('2024-01-01'), number FROM numbers(1000)",
)


def _exported(prepare: Callable[[OldPair], None]) -> Case:
    """Return an export from ClickHouse 18.16 of a table of one part."""

    def run(places: Places, patch: pytest.MonkeyPatch) -> Refusal:
        patch.setattr(
            export_ports, "SparkWriter", lambda _, server, __: ChildWriter(lambda *_: None, server)
        )
        with old_pair() as pair:
            for sql in _STATEMENTS:
                pair.query(1, sql)
            prepare(pair)
            words = ("export", "db.old", "--all", "--to", "lake.n.old")
            source = ("--source", pair.url(1), "--allow-insecure")
            return refusal_of(places, (*words, *source))

    return run


def _damage(pair: OldPair) -> None:
    directory = pair.replica(1).directory / "data" / "data" / "db" / "old"
    (values,) = directory.glob("202401_*/k.bin")
    content = bytearray(values.read_bytes())
    content[len(content) // 2] ^= 1
    values.write_bytes(content)


def _mutate(pair: OldPair) -> None:
    pair.query(1, "SYSTEM STOP MERGES db.old")
    pair.query(1, "ALTER TABLE db.old DELETE WHERE k = 1")


VERSIONS: dict[str, Case] = {
    "a mutation whose parts are not named": _exported(_mutate),
    "a part is corrupted where there is no CHECK TABLE": _exported(_damage),
}
