"""Statements that bring partitions from one lake table to another, as Spark hands them over."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from tableformat.errors import (
    NotFoundError,
    RefusedError,
    TableFormatError,
    UnsupportedError,
)
from tests.lying_catalog.server import LyingCatalog
from tests.support.session_lake import ALLOWED, alter, export_all, opened, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places


@pytest.mark.parametrize("same", [True, False], ids=["the same table", "another one"])
def test_what_is_frozen_comes_back_from_its_tag(
    places: Places, session: NoSpark, dropped_from: str, other: str, *, same: bool
) -> None:
    """And it counts as the export that it was of: nothing doubles it."""
    to = dropped_from if same else other
    alter(
        session,
        f"ALTER TABLE lake.n.{dropped_from} FREEZE PARTITION 202402 WITH NAME 'before',"
        " DROP PARTITION 202402",
    )
    alter(session, f"ALTER TABLE lake.n.{to} DROP PARTITION 202402")

    (row,) = alter(
        session,
        f"ALTER TABLE lake.n.{to} ATTACH PARTITION 202402 FROM lake.n.{dropped_from}.tag_before",
    )

    assert (row["status"], row["rows"]) == ("attached", 2)
    assert rows_of(places, to) == 3
    assert {one["status"] for one in export_all(session, "events", to)} == {"already_exported"}
    again = alter(
        session,
        f"ALTER TABLE lake.n.{to} REPLACE PARTITION 202402 FROM lake.n.{dropped_from}.tag_before",
    )
    # Where it came back to, it is its own copy by now.
    assert [one["status"] for one in again] == ["replaced" if same else "unchanged"]
    assert rows_of(places, to) == 3


def test_a_tag_of_one_partition_gives_that_partition_alone(
    places: Places, session: NoSpark, dropped_from: str, other: str
) -> None:
    """What a name froze, what UNFREEZE left of it, and nothing else comes FROM the tag."""
    name = f"lake.n.{dropped_from}"
    alter(
        session,
        f"ALTER TABLE {name} FREEZE PARTITION 202402 WITH NAME 'one', FREEZE WITH NAME 'all',"
        " UNFREEZE PARTITION 202402 WITH NAME 'all'",
    )
    to = f"ALTER TABLE lake.n.{other} DROP PARTITION ALL, ATTACH PARTITION ALL FROM {name}"

    *_, one = alter(session, f"{to}.tag_one")
    assert (one["rows"], rows_of(places, other)) == (2, 2)
    *_, left = alter(session, f"{to}.tag_all")
    assert (left["rows"], rows_of(places, other)) == (1, 1)
    assert rows_of(places, dropped_from) == 3


def test_detached_rows_do_not_come_back_alongside_their_frozen_copy(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    """Harm prevented: every row of the partition is there twice."""
    places.reads_parts = True
    name = f"lake.n.{dropped_from}_written"
    export_all(session, "events", f"{dropped_from}_written")
    alter(
        session,
        f"ALTER TABLE {name} UPDATE s = 'x' IN PARTITION 202402 WHERE id = 1,"
        " FREEZE PARTITION 202402 WITH NAME 'a', DETACH PARTITION 202402",
    )
    alter(session, f"ALTER TABLE {name} ATTACH PARTITION 202402 FROM {name}.tag_a")

    with pytest.raises(RefusedError, match="were never in main at the same time"):
        alter(session, f"ALTER TABLE {name} ATTACH PARTITION 202402")

    found = opened(places, f"{dropped_from}_written").scan().to_arrow()
    assert sorted(found.column("id").to_pylist()) == [0, 1, 2]
    alter(session, f"ALTER TABLE {name} DROP PARTITION 202402, ATTACH PARTITION 202402")
    found = opened(places, f"{dropped_from}_written").scan().to_arrow()
    assert sorted(found.column("s").to_pylist()) == ["0", "2", "x"]


def test_foreign_rows_do_not_come_back_alongside_themselves(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    """Harm prevented: rows of a file that never left main are there twice."""
    table = opened(places, dropped_from)
    arrow = table.schema().as_arrow()
    moment = pa.scalar("2024-02-10T00:00:00+00:00").cast(arrow.field("ts").type)
    columns = [pa.array([moment.as_py()], arrow.field("ts").type), [7], [""]]
    table.append(pa.table(columns, schema=arrow))
    name = f"lake.n.{dropped_from}"
    alter(session, f"ALTER TABLE {name} FREEZE WITH NAME 'all'")

    with pytest.raises(RefusedError, match="could be there twice"):
        alter(session, f"ALTER TABLE {name} ATTACH PARTITION 202402 FROM {name}.tag_all")

    assert rows_of(places, dropped_from) == 4
    alter(session, f"ALTER TABLE {name} REPLACE PARTITION 202402 FROM {name}.tag_all")
    assert rows_of(places, dropped_from) == 4


@pytest.mark.parametrize("selector", ["tag_nothing", "branch_nothing", "snapshot_id_7", "parts"])
def test_an_unknown_selector_of_a_lake_table_is_refused(
    session: NoSpark, dropped_from: str, selector: str
) -> None:
    name = f"lake.n.{dropped_from}"

    with pytest.raises(NotFoundError, match="its catalog has no table of that name"):
        alter(session, f"ALTER TABLE {name} ATTACH PARTITION 202402 FROM {name}.{selector}")


def test_a_partition_comes_from_a_snapshot(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    name = f"lake.n.{dropped_from}"
    before = opened(places, dropped_from).metadata.current_snapshot_id
    alter(session, f"ALTER TABLE {name} DROP PARTITION ALL")

    alter(session, f"ALTER TABLE {name} ATTACH PARTITION ALL FROM {name}.snapshot_id_{before}")

    assert rows_of(places, dropped_from) == 3


def test_a_partition_comes_from_another_table(
    places: Places, session: NoSpark, dropped_from: str, other: str
) -> None:
    table = f"ALTER TABLE lake.n.{dropped_from}"
    rows = alter(
        session,
        f"{table} DROP PARTITION 202402, ATTACH PARTITION 202402 FROM lake.n.{other},"
        f" REPLACE PARTITION 202401 FROM lake.n.{other}",
    )

    assert [(r["status"], r["rows"]) for r in rows] == [
        ("dropped", 2),
        ("attached", 2),
        ("unchanged", 0),
    ]
    assert rows_of(places, dropped_from) == 3
    results = export_all(session, "events", dropped_from)
    assert {row["status"] for row in results} == {"already_exported"}
    (row,) = alter(
        session,
        f"{table} REPLACE PARTITION 199901 FROM lake.n.{other}"
        " SETTINGS allow_replace_partition_from_empty_source = 1",
    )
    assert row["status"] == "empty"


def test_a_partition_is_moved_to_another_table(
    places: Places, session: NoSpark, dropped_from: str, other: str
) -> None:
    """Rows that are there already are only taken away here, and are not exported here again."""
    alter(session, f"ALTER TABLE lake.n.{other} DROP PARTITION 202402")

    rows = alter(
        session,
        f"ALTER TABLE lake.n.{dropped_from} MOVE PARTITION 202402 TO TABLE lake.n.{other},"
        f" MOVE PARTITION ID '202401' TO TABLE lake.n.{other},"
        f" MOVE PARTITION 199901 TO TABLE lake.n.{other}",
    )

    assert [(r["status"], r["rows"]) for r in rows] == [("moved", 2), ("moved", 1), ("empty", 0)]
    assert (rows_of(places, dropped_from), rows_of(places, other)) == (0, 3)
    with pytest.raises(RefusedError, match=rf"MOVE .* TO TABLE lake\.n\.{other}"):
        export_all(session, "events", dropped_from)


@pytest.mark.parametrize(
    ("of", "error", "message", "code"),
    [
        ("PARTITION 202401 TO TABLE lake.n.nowhere", NotFoundError, "no table of that name", 60),
        ("PARTITION 202401 TO TABLE ch.db.events", UnsupportedError, "of ClickHouse", 48),
    ],
)
def test_a_table_that_cannot_receive_a_move_is_reported(
    places: Places,
    session: NoSpark,
    dropped_from: str,
    of: str,
    error: type[TableFormatError],
    message: str,
    code: int,
) -> None:
    with pytest.raises(error, match=message) as refused:
        alter(session, f"ALTER TABLE lake.n.{dropped_from} MOVE {of}")

    assert refused.value.code == code
    assert rows_of(places, dropped_from) == 3


@pytest.fixture
def by_two_names(places: Places) -> Iterator[NoSpark]:
    """Return a session in which one REST catalog is `lake` and `prod`."""
    with LyingCatalog(places.warehouse) as served:
        settings = {
            "spark.mergeberg.source.ch": f"chdb:{places.clickhouse}",
            "spark.mergeberg.ledger": f"sqlite:{places.root}/of-two-names.db",
        }
        for name in ("lake", "prod"):
            catalog = f"spark.sql.catalog.{name}"
            settings[catalog] = "org.apache.iceberg.spark.SparkCatalog"
            settings |= {f"{catalog}.type": "rest", f"{catalog}.uri": served.uri}
        yield NoSpark(settings)


@pytest.mark.parametrize("catalog", ["lake", "prod"])
def test_to_a_table_nothing_comes_from_itself_by_any_name(
    places: Places, by_two_names: NoSpark, catalog: str
) -> None:
    """Harm prevented: a MOVE removes the rows, which are in the other table already."""
    name = f"itself_{catalog}"
    export_all(by_two_names, "events", name)
    here, itself = f"ALTER TABLE lake.n.{name}", f"{catalog}.n.{name}"
    before = opened(places, name).metadata_location

    for procedure, of in (("move_partition", "to_table"), ("replace_partition", "from_table")):
        given = {"table": f"lake.n.{name}", "partition_id": "202402", of: itself}
        for dry_run in (True, False):
            (row,) = by_two_names.call(procedure, **given, dry_run=dry_run)
            assert (row["status"], row["rows"]) == ("unchanged", 0)
            assert f"{itself} is this table itself" in row["message"]
    for statement in (
        f"ATTACH PARTITION ID '202402' FROM {itself}",
        f"ATTACH PARTITION ALL FROM {itself}",
        f"FETCH PARTITION ID '202402' FROM '{itself}'",
    ):
        with pytest.raises(RefusedError, match="the same table") as refused:
            alter(by_two_names, f"{here} {statement}")
        assert refused.value.code == 36
    with pytest.raises(RefusedError, match="has no files of it"):
        alter(by_two_names, f"{here} REPLACE PARTITION ID '199901' FROM {itself}")

    assert opened(places, name).metadata_location == before
    assert rows_of(places, name) == 3
    snapshot = opened(places, name).metadata.current_snapshot_id
    _, row = alter(
        by_two_names,
        f"{here} DROP PARTITION ID '202402', ATTACH PARTITION ID '202402' FROM"
        f" {itself}.snapshot_id_{snapshot}",
    )
    assert (row["status"], row["rows"]) == ("attached", 2)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("lake.n.nowhere", NotFoundError, "its catalog has no table of that name"),
        ("ch.db.nothing", NotFoundError, "has no such table"),
        ("lake.n.{self}", RefusedError, "it is the same table"),
        ("lake.n.stranger", RefusedError, "it was not created by an export"),
    ],
)
def test_a_table_that_cannot_be_copied_from_is_reported(
    places: Places,
    session: NoSpark,
    dropped_from: str,
    name: str,
    error: type[Exception],
    message: str,
) -> None:
    catalog = open_catalog("lake", warehouse=places.warehouse).catalog
    catalog.create_table_if_not_exists("n.stranger", Schema(NestedField(1, "id", LongType())))
    table = name.replace("{self}", dropped_from)

    with pytest.raises(error, match=message):
        alter(session, f"ALTER TABLE lake.n.{dropped_from} ATTACH PARTITION 202401 FROM {table}")


def test_tables_that_differ_are_refused_with_all_differences(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    """In the order and with the code of ClickHouse."""
    with EmbeddedConnection(places.clickhouse) as connection:
        connection.command(
            "CREATE TABLE IF NOT EXISTS db.unlike (ts DateTime('UTC'), id Int32)"
            " ENGINE = MergeTree PARTITION BY toYear(ts) ORDER BY (id, ts)"
        )
        connection.command("INSERT INTO db.unlike VALUES ('2024-01-01', 1)")
    alter(
        session, f"ALTER TABLE ch.db.unlike EXPORT PARTITION ALL TO TABLE lake.n.unlike {ALLOWED}"
    )

    for how in ("REPLACE PARTITION 1 FROM", "MOVE PARTITION ID '202401' TO TABLE"):
        with pytest.raises(RefusedError) as refused:
            alter(session, f"ALTER TABLE lake.n.{dropped_from} {how} lake.n.unlike")

        assert refused.value.code == 122
        for what in ("structure", "ordering", "partition key", "primary key"):
            assert f"Tables have different {what}: " in str(refused.value)


def test_a_partition_is_fetched_and_then_attached(
    places: Places, session: NoSpark, dropped_from: str, other: str
) -> None:
    name = f"lake.n.{dropped_from}"
    alter(session, f"ALTER TABLE {name} DROP PARTITION 202402")

    (row,) = alter(session, f"ALTER TABLE {name} FETCH PARTITION 202402 FROM 'lake.n.{other}'")

    assert (row["status"], row["rows"], rows_of(places, dropped_from)) == ("fetched", 2, 1)
    assert alter(session, f"ALTER TABLE {name} ATTACH PARTITION 202402")[0]["rows"] == 2
    assert rows_of(places, dropped_from) == 3
    with pytest.raises(NotFoundError, match="has no files of it") as refused:
        alter(session, f"ALTER TABLE {name} FETCH PARTITION 199901 FROM 'lake.n.{other}'")
    assert refused.value.code == 257
