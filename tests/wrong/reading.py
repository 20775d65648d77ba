"""What goes wrong while a server is read (docs/reference/errors.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from catalog.clickhouse.capabilities import Capabilities
from spark_ext.actions import export_ports
from tests.services.clickhouse_front import ClickHouseFront
from tests.services.clickhouse_http import faults
from tests.support.child_writer import ChildWriter
from tests.support.errors_page import Refusal, refusal_of
from tests.wrong.places import Places

__all__ = ["READING"]

Case = Callable[[Places, ClickHouseFront, pytest.MonkeyPatch], Refusal]

_TABLE: Final = (
    "CREATE DATABASE db",
    "CREATE TABLE db.events (p UInt8, k Int64) ENGINE = MergeTree PARTITION BY p ORDER BY k",
    "INSERT INTO db.events SELECT 1, number FROM numbers(10)",
)


def _exported(
    places: Places,
    front: ClickHouseFront,
    patch: pytest.MonkeyPatch,
    to: str,
    *options: str,
    frozen: Callable[[], None] = lambda: None,
) -> Refusal:
    """Export one partition; `frozen` is called when it is frozen, and no file is begun.

    Each case has a lake table of its own: their tables are several of one name.
    """
    patch.setattr(
        export_ports, "SparkWriter", lambda _, to, __: ChildWriter(lambda *_: frozen(), to)
    )
    words = ("export", "db.events", "--all", "--to", f"lake.n.{to}", "--max-retries", "0")
    return refusal_of(places, (*words, "--source", front.url, "--allow-insecure", *options))


def _dropped(places: Places, front: ClickHouseFront, patch: pytest.MonkeyPatch) -> Refusal:
    front.commands(*_TABLE)

    def drop() -> None:
        staged = "SELECT name FROM system.tables WHERE database = 'mergeberg_staging'"
        for (name,) in front.rows(staged):
            front.command(f"DROP TABLE mergeberg_staging.`{name}`")

    return _exported(places, front, patch, "dropped", frozen=drop)


def _unproved(places: Places, front: ClickHouseFront, patch: pytest.MonkeyPatch) -> Refusal:
    """Let the server be one that computes no transform, and its result lose all rows."""
    front.commands(*_TABLE)
    patch.setattr(Capabilities, "makes_wire_values", property(lambda _: False))
    front.fail_next(faults.short(0), containing="FORMAT Native")
    return _exported(places, front, patch, "unproved")


def _unknown(places: Places, front: ClickHouseFront, patch: pytest.MonkeyPatch) -> Refusal:
    front.commands(*_TABLE)
    return _exported(places, front, patch, "unknown", "--source-setting", "max_treads=1")


# Each makes its table at a server that is empty.
READING: dict[str, Case] = {
    "rows are missing in what proves a partition": _unproved,
    "another user drops a staging table": _dropped,
    "a `--source-setting` that the server does not have": _unknown,
}
