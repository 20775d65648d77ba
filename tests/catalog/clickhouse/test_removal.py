"""A partition leaves the source only as exactly what was exported."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.clickhouse.capabilities import probe_capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection
from catalog.clickhouse.removal import drop_detached, take_out
from tableformat.errors import RefusedError, SourceError, TableFormatError
from tableformat.ledger import DetachedPart, ExportedPart
from tableformat.names import PartitionId, TableName
from tests.support.clickhouse_source import Clickhouse

_ONE = PartitionId("1")


def exported(clickhouse: Clickhouse, name: TableName) -> tuple[ExportedPart, ...]:
    """Return the parts of partition 1 as an export notes them."""
    return tuple(
        ExportedPart(p.name, p.hash_of_all_files, p.rows, p.min_block, p.max_block, p.data_version)
        for p in clickhouse.source.parts(name, _ONE)
    )


def rows(clickhouse: Clickhouse, name: TableName) -> tuple[int, int]:
    """Return the rows of partition 1 that a SELECT shows, and the number of detached parts."""
    shown = clickhouse.rows(f"SELECT count() FROM {name.sql} WHERE p = 1")
    detached = clickhouse.rows(
        f"SELECT count() FROM system.detached_parts WHERE table = '{name.name}'"
    )
    return int(str(shown[0][0])), int(str(detached[0][0]))


def taken_out(
    connection: Connection,
    name: TableName,
    known: tuple[ExportedPart, ...],
    *,
    drop: bool,
    has_replicas: bool,
) -> None:
    """Take partition 1 out; each statement is the same for a table that really has replicas."""
    capabilities = probe_capabilities(connection)
    parts = take_out(connection, capabilities, name, _ONE, known, has_replicas=has_replicas)
    if drop:
        drop_detached(connection, capabilities, name, _ONE, parts, fresh=True)


_BOTH_WAYS = pytest.mark.parametrize("has_replicas", [False, True], ids=["whole", "part by part"])


@_BOTH_WAYS
@pytest.mark.parametrize("drop", [False, True], ids=["detached", "dropped"])
def test_what_was_exported_leaves_the_table(
    clickhouse: Clickhouse, *, drop: bool, has_replicas: bool
) -> None:
    name = clickhouse.filled()
    clickhouse.command(f"INSERT INTO {name.sql} (p, k, s) VALUES (1, 1000, 'more')")
    known = exported(clickhouse, name)

    taken_out(clickhouse.connection, name, known, drop=drop, has_replicas=has_replicas)

    assert rows(clickhouse, name) == (0, 0 if drop else 2)
    clickhouse.command(f"ALTER TABLE {name.sql} ATTACH PARTITION ID '1'")
    assert rows(clickhouse, name) == (0 if drop else 51, 0)


def shown(clickhouse: Clickhouse, name: TableName) -> set[tuple[object, ...]]:
    """Return the rows of partition 1 that a SELECT shows."""
    return set(clickhouse.rows(f"SELECT toInt64(k), s FROM {name.sql} WHERE p = 1"))


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO {t} (p, k, s) VALUES (1, 1000, 'late')",
        "ALTER TABLE {t} UPDATE s = 'x' WHERE k = 1 SETTINGS mutations_sync = 2",
        "ALTER TABLE {t} DETACH PARTITION ID '1'",
    ],
)
@_BOTH_WAYS
def test_a_partition_that_changed_since_its_export_stays(
    clickhouse: Clickhouse, change: str, *, has_replicas: bool
) -> None:
    """Harm prevented: rows that were never exported are dropped from the source."""
    name = clickhouse.filled()
    known = exported(clickhouse, name)
    clickhouse.command(change.format(t=name.sql))
    before = rows(clickhouse, name)

    with pytest.raises(RefusedError, match="no longer those that were exported and compared"):
        taken_out(clickhouse.connection, name, known, drop=True, has_replicas=has_replicas)

    assert rows(clickhouse, name) == before


class _Meanwhile:
    """A connection on which events happen once, each before the first statement with its text."""

    def __init__(self, real: Connection, happens: dict[str, Callable[[], None]]) -> None:
        self._real, self._happens = real, dict(happens)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def command(self, sql: str) -> None:
        self._look(sql)
        self._real.command(sql)

    def rows(self, sql: str) -> tuple[tuple[object, ...], ...]:
        self._look(sql)
        return self._real.rows(sql)

    def _look(self, sql: str) -> None:
        for before in [text for text in self._happens if text in sql]:
            self._happens.pop(before)()


def dropped_while(
    clickhouse: Clickhouse,
    name: TableName,
    happens: dict[str, Callable[[], None]],
    *,
    has_replicas: bool,
) -> None:
    """Take partition 1 out, and drop it, while events happen before statements."""
    known = exported(clickhouse, name)
    meanwhile: Any = _Meanwhile(clickhouse.connection, happens)
    taken_out(meanwhile, name, known, drop=True, has_replicas=has_replicas)


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO {t} (p, k, s) VALUES (1, 1000, 'late')",
        "OPTIMIZE TABLE {t} PARTITION ID '1' FINAL",
        "ALTER TABLE {t} UPDATE s = 'x' WHERE k = 1 SETTINGS mutations_sync = 2",
        "UPDATE {t} SET s = 'x' WHERE k = 1",
    ],
    ids=["insert", "merge", "mutation", "lightweight update"],
)
@pytest.mark.parametrize(
    ("has_replicas", "when"),
    [
        (False, "SELECT name, toInt64(rows)"),
        (False, "ifNull(reason, '') = ''"),
        (False, "ALTER TABLE"),
        (True, "endsWith(partition_id"),
        (True, "ifNull(reason, '') = ''"),
        (True, "ALTER TABLE"),
    ],
)
def test_what_comes_in_the_last_moment_is_put_back(
    clickhouse: Clickhouse, change: str, when: str, *, has_replicas: bool
) -> None:
    """Harm prevented: DETACH takes a part with it that was inserted a moment ago."""
    settings = "enable_block_number_column = 1, enable_block_offset_column = 1"
    name = clickhouse.filled(f"ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS {settings}")
    clickhouse.command(f"INSERT INTO {name.sql} (p, k, s) VALUES (1, 999, 'more')")
    before = shown(clickhouse, name)
    act = change.format(t=name.sql)

    # A refusal, so that the partition does not count as archived.
    with pytest.raises(RefusedError, match="The source is unchanged"):
        dropped_while(
            clickhouse, name, {when: lambda: clickhouse.command(act)}, has_replicas=has_replicas
        )

    late = {"INSERT": {(1000, "late")}, "OPTIMI": set()}.get(change[:6], {(1, "x")})
    assert late <= shown(clickhouse, name)
    assert {k for k, _ in before} <= {k for k, _ in shown(clickhouse, name)}
    assert rows(clickhouse, name) == (51 + change.startswith("INSERT"), 0)


@_BOTH_WAYS
def test_a_mutation_that_waits_keeps_the_partition(
    clickhouse: Clickhouse, *, has_replicas: bool
) -> None:
    """Harm prevented: an UPDATE that was accepted finds no row, and no copy has its values."""
    name = clickhouse.filled()
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    update = f"ALTER TABLE {name.sql} UPDATE s = 'x' WHERE k = 1 SETTINGS mutations_sync = 0"
    statement = "DETACH PART" if has_replicas else "DETACH PARTITION"

    with pytest.raises(RefusedError, match="no longer those that were exported"):
        dropped_while(
            clickhouse,
            name,
            {statement: lambda: clickhouse.command(update)},
            has_replicas=has_replicas,
        )

    assert rows(clickhouse, name) == (50, 0)


def test_what_follows_a_detach_of_parts_one_by_one_brings_them_back(
    clickhouse: Clickhouse,
) -> None:
    """So that a partition is never half in the table, with rows that no export has."""
    name = clickhouse.filled()
    late = f"INSERT INTO {name.sql} (p, k, s) VALUES (1, 1000, 'late')"
    happens = {"SELECT name, toInt64(rows)": lambda: clickhouse.command(late)}

    with pytest.raises(RefusedError, match="The source is unchanged"):
        dropped_while(clickhouse, name, happens, has_replicas=True)
    assert rows(clickhouse, name) == (51, 0)


def test_a_statement_without_a_response_reports_where_the_rows_are(clickhouse: Clickhouse) -> None:
    """Harm prevented: nobody looks for rows that a DETACH without a response took."""
    name = clickhouse.filled()

    def lose() -> None:
        clickhouse.command(f"ALTER TABLE {name.sql} DETACH PARTITION ID '1'")
        message = "Cannot reach ClickHouse: it closed the connection before it responded."
        raise SourceError(message)

    with pytest.raises(SourceError, match=r"It is unknown whether it was detached.*ATTACH PART"):
        dropped_while(clickhouse, name, {"DETACH PARTITION": lose}, has_replicas=False)
    assert rows(clickhouse, name) == (0, 1)


@pytest.mark.parametrize("suffix", ["", "_try1"])
def test_copies_of_parts_that_stay_are_not_attached(clickhouse: Clickhouse, suffix: str) -> None:
    """Harm prevented: rows twice, after a DETACH that copied the parts and found no more room."""
    name = clickhouse.filled()
    clickhouse.command(f"INSERT INTO {name.sql} (p, k, s) VALUES (1, 1000, 'more')")
    before = shown(clickhouse, name)

    def fail() -> None:
        places = clickhouse.rows(
            f"SELECT path FROM system.parts WHERE table = '{name.name}' AND active"
            " AND partition_id = '1'"
        )
        for (place,) in places:
            part = Path(str(place))
            shutil.copytree(part, part.parent / "detached" / f"{part.name}{suffix}")
        message = "Code: 243. DB::Exception: Cannot reserve 1.00 MiB. (NOT_ENOUGH_SPACE)"
        raise ClickHouseError(message)

    with pytest.raises(RefusedError, match=r"unchanged\. It left copies .*DROP DETACHED PART"):
        dropped_while(clickhouse, name, {"DETACH PARTITION": fail}, has_replicas=False)

    assert shown(clickhouse, name) == before
    assert rows(clickhouse, name) == (51, 2)


@pytest.mark.parametrize("code", [341, 999, 159])
def test_a_statement_that_may_still_run_is_not_taken_for_refused(
    clickhouse: Clickhouse, code: int
) -> None:
    """Harm prevented: parts leave later, and nothing says that they are archived."""
    name = clickhouse.filled()

    def stop_waiting() -> None:
        message = f"Code: {code}. DB::Exception: Alter is not finished: it is run later."
        raise ClickHouseError(message)

    with pytest.raises(SourceError, match="It is unknown whether it was detached"):
        dropped_while(clickhouse, name, {"DETACH PART ": stop_waiting}, has_replicas=True)
    assert rows(clickhouse, name) == (50, 0)


@pytest.mark.parametrize(
    ("statement", "right", "detached"),
    [
        ("DETACH PART ", "ALTER DELETE", 0),
        ("DROP DETACHED PART", "ALTER DELETE", 1),
        ("ATTACH PART ", "INSERT", 1),
    ],
)
def test_a_missing_right_is_reported_as_its_grant_statement(
    clickhouse: Clickhouse, statement: str, right: str, detached: int
) -> None:
    """Taken away meanwhile: at the start it was asked for."""
    name = clickhouse.filled()

    def refuse() -> None:
        message = (
            "Code: 497. DB::Exception: archiver: Not enough privileges. To execute this query, "
            f"it's necessary to have the grant {right} ON {name}. (ACCESS_DENIED)"
        )
        raise ClickHouseError(message)

    def insert() -> None:
        clickhouse.command(f"INSERT INTO {name.sql} (p, k, s) VALUES (1, 1000, 'late')")

    # Only what came meanwhile is attached again.
    happens = {"ALTER TABLE": insert} if statement == "ATTACH PART " else {}
    has_replicas = statement == "DETACH PART "
    with pytest.raises(TableFormatError, match=rf"Run GRANT {right} ON {name} TO archiver;"):
        dropped_while(clickhouse, name, {**happens, statement: refuse}, has_replicas=has_replicas)
    assert rows(clickhouse, name)[1] == detached


def test_other_partitions_and_older_detached_parts_are_left_alone(clickhouse: Clickhouse) -> None:
    name = clickhouse.filled()
    clickhouse.command(f"ALTER TABLE {name.sql} DETACH PARTITION ID '1'")
    clickhouse.insert(name)
    others = clickhouse.rows(f"SELECT count() FROM {name.sql} WHERE p != 1")

    parts = clickhouse.source.take_out(name, _ONE, exported(clickhouse, name))
    clickhouse.source.drop_detached(name, _ONE, parts, fresh=False)

    assert clickhouse.rows(f"SELECT count() FROM {name.sql} WHERE p != 1") == others
    assert rows(clickhouse, name) == (0, 1)


def test_parts_of_another_hash_are_not_the_exported_ones(clickhouse: Clickhouse) -> None:
    name = clickhouse.filled()
    (known,) = exported(clickhouse, name)

    with pytest.raises(RefusedError, match="no longer those that were exported"):
        clickhouse.source.take_out(name, _ONE, (replace(known, hash_of_all_files="0" * 32),))

    assert rows(clickhouse, name) == (50, 0)


def test_detached_parts_are_dropped_later_with_their_bytes(clickhouse: Clickhouse) -> None:
    """Harm prevented: what was archived fills the disk until somebody drops it by hand."""
    name = clickhouse.filled()
    parts = clickhouse.source.take_out(name, _ONE, exported(clickhouse, name))

    dropped = clickhouse.source.drop_detached(name, _ONE, parts, fresh=False)

    assert dropped == parts
    assert all(part.bytes > 0 for part in parts)
    assert rows(clickhouse, name) == (0, 0)
    assert clickhouse.source.drop_detached(name, _ONE, parts, fresh=False) == ()


@pytest.mark.parametrize(
    "other",
    [
        lambda part: replace(part, bytes=7),
        lambda part: replace(part, modified=7),
        lambda part: DetachedPart(part.name),
    ],
    ids=["size", "time", "neither is known"],
)
def test_a_detached_part_that_may_be_another_one_is_not_dropped(
    clickhouse: Clickhouse, other: Callable[[DetachedPart], DetachedPart]
) -> None:
    """Harm prevented: a name that was given again after a restart, and rows of which no copy is."""
    name = clickhouse.filled()
    clickhouse.command(f"INSERT INTO {name.sql} (p, k, s) VALUES (1, 1000, 'more')")
    first, second = clickhouse.source.take_out(name, _ONE, exported(clickhouse, name))

    with pytest.raises(RefusedError, match=f"{second.name} cannot be identified as archived"):
        clickhouse.source.drop_detached(name, _ONE, (first, other(second)), fresh=False)

    assert rows(clickhouse, name) == (0, 2)
