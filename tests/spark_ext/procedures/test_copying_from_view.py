"""ATTACH and REPLACE PARTITION from a temporary view of the caller's session, without Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.rewriting.foreign_files import WrittenRows
from catalog.storages.schemes import Storages
from spark_ext.procedures import statements
from tableformat.errors import DestinationError, RefusedError, TableFormatError, UsageError
from tests.support.session_lake import ALLOWED, alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.support.typed_pages import REFERENCE
from tests.support.view_without_spark import GivenView
from tests.wrong.places import Places

Shown = Callable[..., GivenView]
SEEN = [("2024-01-31", 0, "0"), ("2024-02-01", 1, "1"), ("2024-02-02", 2, "2")]
ALLOW_EMPTY = "SETTINGS allow_replace_partition_from_empty_source = 1"


@pytest.fixture
def table(places: Places, session: NoSpark, request: pytest.FixtureRequest) -> str:
    """Return the name of a lake table of the events, with files that can be read."""
    places.reads_parts = True
    name = f"view_{abs(hash(request.node.name))}"
    export_all(session, "events", name)
    return name


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shown:
    """Return what lets the session have a view `v` of these tables."""

    def show(*tables: pa.Table) -> GivenView:
        view = GivenView(tables, tmp_path / "view")

        def views(*_: object) -> Callable[[tuple[str, ...]], GivenView | None]:
            return lambda parts: view if parts in {("v",), ("late_events",)} else None

        monkeypatch.setattr(statements, "session_views", views)
        return view

    return show


def rows(*of: tuple[str, int, str | None]) -> pa.Table:
    """Return rows as Spark has them: in another order of columns, and in another zone."""
    days = [datetime.fromisoformat(day).replace(tzinfo=UTC) for day, _, _ in of]
    return pa.table(
        {
            "s": pa.array([s for _, _, s in of], pa.string()),
            "ts": pa.array(days, pa.timestamp("us", "Europe/Berlin")),
            "id": pa.array([number for _, number, _ in of], pa.int64()),
        }
    )


def rows_in_lake(places: Places, name: str) -> list[tuple[str, int, str]]:
    """Return the rows of a lake table as PyIceberg reads them."""
    found = opened(places, name).scan().to_arrow().to_pylist()
    return sorted((str(r["ts"].date()), r["id"], r["s"]) for r in found)


def snapshots(places: Places, name: str) -> int:
    return len(opened(places, name).metadata.snapshots)


def test_a_partition_is_replaced_by_the_rows_of_a_view_in_one_snapshot(
    places: Places, session: NoSpark, table: str, shown: Shown
) -> None:
    """Rows of other partitions do not come; run again it replaces again, and doubles nothing."""
    view = shown(
        rows(("2024-02-09", 9, "new"), ("2024-01-01", 7, "other")),
        rows(("2024-03-01", 8, "other")),
        rows(("2024-02-10", 10, "new"), ("2024-02-10", 10, "new")),
    )
    before = snapshots(places, table)
    after = [SEEN[0], ("2024-02-09", 9, "new"), *[("2024-02-10", 10, "new")] * 2]

    for times in (1, 2):
        (row,) = alter(session, f"ALTER TABLE lake.n.{table} REPLACE PARTITION 202402 FROM v")

        assert (row["status"], row["rows"], row["partition_id"]) == ("replaced", 3, "202402")
        assert rows_in_lake(places, table) == after
        assert (snapshots(places, table), view.evaluated) == (before + times, times)
    with pytest.raises(RefusedError, match="REPLACE PARTITION ID '202402' FROM"):
        export_all(session, "events", table)
    assert rows_in_lake(places, table) == after


def test_the_example_of_the_page_returns_what_the_page_shows(
    session: NoSpark, table: str, shown: Shown
) -> None:
    page = (REFERENCE / "statements" / "attach-from-view.md").read_text(encoding="utf-8")
    (statement,) = re.findall(r"^ALTER TABLE lake\.analytics\.events .*$", page, re.MULTILINE)
    ((_, result),) = re.findall(r"^\| partition_id (.*)\n\|[-|]*\n\| (.*) \|$", page, re.MULTILINE)
    shown(rows(("2024-02-09", 9, "new"), *[("2024-02-10", 10, "new")] * 2))

    (row,) = alter(session, statement.replace("lake.analytics.events", f"lake.n.{table}"))

    assert [str(row[name]) for name in ("partition_id", "status", "rows")] == result.split(" | ")


def test_a_partition_is_attached_where_main_has_no_row_of_it_and_only_once(
    places: Places, session: NoSpark, table: str, shown: Shown
) -> None:
    shown(rows(("2024-02-01", 1, "1"), ("2024-02-02", 2, "2"), ("2024-01-31", 0, "0")))
    name = f"lake.n.{table}"
    with pytest.raises(RefusedError, match=r"main has 2 rows .* Use REPLACE PARTITION"):
        alter(session, f"ALTER TABLE {name} ATTACH PARTITION 202402 FROM v")
    assert rows_in_lake(places, table) == SEEN
    alter(session, f"ALTER TABLE {name} DROP PARTITION 202402")
    assert rows_in_lake(places, table) == SEEN[:1]

    (row,) = alter(session, f"ALTER TABLE {name} ATTACH PARTITION 202402 FROM v")

    assert (row["status"], row["rows"]) == ("attached", 2)
    assert rows_in_lake(places, table) == SEEN
    with pytest.raises(RefusedError, match="could be there twice"):
        alter(session, f"ALTER TABLE {name} ATTACH PARTITION 202402 FROM v")
    export = f"ALTER TABLE ch.db.events EXPORT PARTITION 202402 TO TABLE {name} {ALLOWED}"
    with pytest.raises(RefusedError, match="ATTACH PARTITION ID '202402' FROM v"):
        alter(session, export)
    assert rows_in_lake(places, table) == SEEN
    alter(session, f"{export}, export_merge_tree_partition_force_export = 1")
    assert rows_in_lake(places, table) == SEEN


def test_a_view_without_rows_replaces_a_partition_only_where_that_is_allowed(
    places: Places, session: NoSpark, table: str, shown: Shown
) -> None:
    shown(rows(("2024-03-01", 1, "1")))
    name = f"lake.n.{table}"

    (row,) = alter(session, f"ALTER TABLE {name} ATTACH PARTITION 202402 FROM v")
    assert row["status"] == "empty"
    with pytest.raises(RefusedError, match="the view has no rows of it") as refused:
        alter(session, f"ALTER TABLE {name} REPLACE PARTITION 202402 FROM v")
    assert refused.value.code == 36
    assert rows_in_lake(places, table) == SEEN

    (row,) = alter(session, f"ALTER TABLE {name} REPLACE PARTITION 202402 FROM v {ALLOW_EMPTY}")
    assert row["status"] == "replaced"
    assert rows_in_lake(places, table) == SEEN[:1]


def test_refusals_come_in_order_and_change_nothing(
    places: Places, session: NoSpark, table: str, shown: Shown
) -> None:
    """Names, structure, partition: only then the view is evaluated."""
    name, before = f"lake.n.{table}", snapshots(places, table)
    odd = pa.table({"id": pa.array(["1"]), "more": pa.array([1]), "s": pa.array(["x"])})
    view = shown(odd)
    with pytest.raises(RefusedError) as refused:
        alter(session, f"ALTER TABLE {name} REPLACE PARTITION 'no month' FROM v")
    assert refused.value.code == 122
    for one in ("no column ts", "id is string", "a column more"):
        assert one in refused.value.message
    with pytest.raises(TableFormatError):
        alter(session, f"ALTER TABLE {name} REPLACE PARTITION 202402 FROM w")
    assert view.evaluated == 0

    view = shown(rows(("2024-02-01", 1, "1")))
    with pytest.raises(UsageError):
        alter(session, f"ALTER TABLE {name} REPLACE PARTITION 'no month' FROM v")
    assert view.evaluated == 0

    shown(rows(("2024-02-01", 1, None)))
    with pytest.raises(RefusedError, match="column s: it has NULLs"):
        alter(session, f"ALTER TABLE {name} REPLACE PARTITION 202402 FROM v")
    assert (rows_in_lake(places, table), snapshots(places, table)) == (SEEN, before)

    with opened(places, table).update_schema() as update:
        update.rename_column("ts", "at")
    view = shown(rows(("2024-02-01", 1, "1")).rename_columns(["s", "at", "id"]))
    with pytest.raises(RefusedError, match="it no longer has the column ts"):
        alter(session, f"ALTER TABLE {name} REPLACE PARTITION 202402 FROM v")
    assert (view.evaluated, snapshots(places, table)) == (0, before)


def test_rows_that_were_lost_on_the_way_are_noticed(
    places: Places,
    session: NoSpark,
    table: str,
    shown: Shown,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = shown(rows(("2024-02-01", 1, "1"), ("2024-02-02", 2, "2")))
    written = view.written

    @contextmanager
    def cut(location: str, storages: Storages) -> Iterator[tuple[WrittenRows, ...]]:
        with written(location, storages) as files:
            pq.write_table(rows(("2024-02-01", 1, "1")), files[0].location)
            yield files

    monkeypatch.setattr(view, "written", cut)
    with pytest.raises(DestinationError, match="1 rows of 2"):
        alter(session, f"ALTER TABLE lake.n.{table} REPLACE PARTITION 202402 FROM v")
    assert rows_in_lake(places, table) == SEEN


def test_rows_that_come_while_a_view_is_evaluated_are_not_replaced_unseen(
    places: Places,
    session: NoSpark,
    table: str,
    shown: Shown,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Harm prevented: the view reads this very table, and a row that it has not seen is gone."""
    view = shown(rows(("2024-02-01", 1, "1")))
    written = view.written

    @contextmanager
    def late(location: str, storages: Storages) -> Iterator[tuple[WrittenRows, ...]]:
        with written(location, storages) as files:
            lake = opened(places, table)
            more = rows(("2024-02-03", 3, "3")).select(["ts", "id", "s"])
            lake.append(more.cast(lake.schema().as_arrow()))
            yield files

    replace = f"ALTER TABLE lake.n.{table} REPLACE PARTITION 202402 FROM v"
    monkeypatch.setattr(view, "written", late)
    with pytest.raises(RefusedError, match="while the view was evaluated"):
        alter(session, replace)
    assert rows_in_lake(places, table) == [*SEEN, ("2024-02-03", 3, "3")]

    monkeypatch.setattr(view, "written", written)
    alter(session, replace)
    assert rows_in_lake(places, table) == SEEN[:2]
