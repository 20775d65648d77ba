"""The partitions and parts of a table of either side, from SQL."""

from __future__ import annotations

import pytest

from spark_ext.system_tables import PARTS
from tableformat.errors import DestinationError, NotFoundError, UsageError
from tests.support.session_without_spark import NoSpark
from tests.support.system_tables import asked
from tests.wrong.places import Places


def test_the_partitions_of_a_clickhouse_table(session: NoSpark) -> None:
    rows = session.call("partitions", table="ch.db.events")

    shown = [(r["partition_id"], r["partition"], r["parts"], r["rows"]) for r in rows]
    assert shown == [("202401", "202401", 1, 1), ("202402", "202402", 1, 2)]
    assert rows[0]["bytes"] > 0
    assert str(rows[0]["min_time"]).startswith("2024-01-31")
    assert {r["files"] for r in rows} == {None}


def test_the_partitions_of_a_lake_table(places: Places, session: NoSpark) -> None:
    """Under the names of Iceberg's partitions, with files instead of parts."""
    places.run("export", "db.events", "--all", "--to", "lake.n.looked")

    rows = session.call("partitions", table="n.looked")

    shown = [(r["partition_id"], r["partition"], r["files"], r["rows"]) for r in rows]
    assert shown == [(None, "ts_month=2024-01", 1, 1), (None, "ts_month=2024-02", 1, 2)]
    assert min(r["bytes"] for r in rows) > 0


def test_a_lake_table_whose_manifests_are_gone_is_an_error_with_its_name(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: a traceback, or no partitions."""
    places.run("export", "db.events", "--all", "--to", "lake.n.lost")
    for manifest in (places.warehouse / "n" / "lost" / "metadata").glob("*-m*.avro"):
        manifest.unlink()

    with pytest.raises(DestinationError, match=r"list the files of n\.lost: a manifest cannot be"):
        session.call("partitions", table="n.lost")
    with pytest.raises(DestinationError, match=r"list the files of n\.lost: a manifest cannot be"):
        asked(PARTS, session.settings)


def test_a_lake_table_without_rows_has_no_partitions(session: NoSpark) -> None:
    session.call("create_table_like", source="ch.db.events", table="n.without")

    assert session.call("partitions", table="n.without") == []


def test_the_parts_of_a_table_and_of_one_partition(session: NoSpark) -> None:
    every = session.call("parts", table="ch.db.events")
    one = session.call("parts", table="ch.db.events", partition_id="202402")

    assert [(p["name"], p["rows"]) for p in every] == [("202401_1_1_0", 1), ("202402_2_2_0", 2)]
    assert [p for p in every if p["partition_id"] == "202402"] == one
    assert {len(p["hash_of_all_files"]) for p in every} == {32}


@pytest.mark.parametrize("name", ["partitions", "parts"])
def test_a_missing_table_is_reported_as_missing(session: NoSpark, name: str) -> None:
    with pytest.raises(NotFoundError, match=r"db\.nowhere"):
        session.call(name, table="ch.db.nowhere")


def test_a_missing_lake_table_is_reported_as_missing(session: NoSpark) -> None:
    with pytest.raises(NotFoundError, match=r"partitions of lake\.n\.nowhere: there is no such"):
        session.call("partitions", table="n.nowhere")


@pytest.mark.parametrize("name", ["n.nothing", "lake.n.nothing"])
def test_a_name_that_says_where_it_is_only_misses_its_table(session: NoSpark, name: str) -> None:
    """The message for a name with a catalog, or without, does not mention sources."""
    with pytest.raises(NotFoundError) as refused:
        session.call("partitions", table=name)

    assert str(refused.value) == (
        "Cannot list the partitions of lake.n.nothing: there is no such lake table. Check its "
        "name, and where its catalog is (--warehouse)."
    )


def test_a_name_with_an_unknown_first_part_is_reported_as_unknown(session: NoSpark) -> None:
    with pytest.raises(NotFoundError, match=r"neither a source nor a catalog is called 'nope'"):
        session.call("partitions", table="nope.db.events")


def test_a_lake_table_has_no_parts(session: NoSpark) -> None:
    with pytest.raises(UsageError, match=r"'lake' is a catalog of Spark's"):
        session.call("parts", table="lake.n.looked")
