"""A partition is compared, and moved out of its ClickHouse, only where statements may do that."""

from __future__ import annotations

import itertools

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg import open_catalog
from tableformat.errors import DestinationError, RefusedError
from tableformat.names import LakeName
from tests.damaged_files import lose_a_row
from tests.session_without_spark import NoSpark, Row
from tests.wrong.places import Places

_NUMBERS = itertools.count(1)


@pytest.fixture
def table(places: Places) -> str:
    """Make a table with 3 rows in partition 1 and 2 in partition 2; return its bare name."""
    places.reads_parts = True
    name = f"t{next(_NUMBERS)}"
    places.clickhouse_run(
        f"CREATE TABLE db.{name} (p UInt8, id Int64) ENGINE = MergeTree PARTITION BY p ORDER BY id",
        f"INSERT INTO db.{name} VALUES (1, 1), (1, 2), (1, 3), (2, 4), (2, 5)",
    )
    return name


def archive(session: NoSpark, table: str, *, source: str = "ch", **given: bool) -> Row:
    (row,) = session.call(
        "archive_partition",
        source=f"{source}.db.{table}",
        partition_id="1",
        table=f"n.{table}",
        **given,
    )
    return row


def verify(session: NoSpark, table: str) -> Row:
    (row,) = session.call(
        "verify_partition", source=f"ch.db.{table}", partition_id="1", table=f"n.{table}"
    )
    return row


def in_source(places: Places, table: str) -> tuple[int, int]:
    """Return rows of the table, and the number of its detached parts."""
    with EmbeddedConnection(places.clickhouse) as connection:
        shown = connection.rows(f"SELECT count() FROM db.{table}")
        detached = connection.rows(
            f"SELECT count() FROM system.detached_parts WHERE table = '{table}'"
        )
    return int(str(shown[0][0])), int(str(detached[0][0]))


def damage(places: Places, table: str) -> None:
    lake = open_catalog("lake", warehouse=places.warehouse).table(LakeName.parse(f"lake.n.{table}"))
    assert lake is not None
    for task in lake.loaded.scan().plan_files():
        lose_a_row(places.warehouse / task.file.file_path.split("/warehouse/")[1])


@pytest.mark.parametrize("drop", [False, True], ids=["detach", "drop"])
def test_an_archived_partition_is_in_the_lake_and_not_in_the_table(
    places: Places, session: NoSpark, table: str, *, drop: bool
) -> None:
    row = archive(session, table, drop=drop)

    assert (row["partition_id"], row["status"]) == ("1", "dropped" if drop else "detached")
    assert (row["export_status"], row["rows"], row["data_files"]) == ("committed", 3, 1)
    assert in_source(places, table) == (2, 0 if drop else 1)
    (partition,) = session.call("partitions", table=f"n.{table}")
    assert (partition["partition"], partition["rows"]) == ("p=1", 3)


def test_a_source_that_does_not_allow_it_is_not_touched(
    places: Places, session: NoSpark, table: str
) -> None:
    """Harm prevented: whoever may write SQL takes rows out of production."""
    with pytest.raises(RefusedError, match=r"only where that is allowed\. Set --allow-alter"):
        archive(session, table, source="fixed")

    assert in_source(places, table) == (5, 0)
    assert not (places.warehouse / "n" / table).exists()


def test_what_is_not_equal_stays_in_the_source_and_is_an_error(
    places: Places, session: NoSpark, table: str
) -> None:
    """Harm prevented: the lake lost a row since the export, and the source goes."""
    places.run("export", f"db.{table}", "--partition-id", "1", "--to", f"lake.n.{table}")
    damage(places, table)

    with pytest.raises(RefusedError, match=r"they stay in the source: partition 1: .*differs"):
        archive(session, table)

    assert in_source(places, table) == (5, 0)


def test_an_equal_partition_says_what_was_compared(
    places: Places, session: NoSpark, table: str
) -> None:
    places.run("export", f"db.{table}", "--all", "--to", f"lake.n.{table}")

    row = verify(session, table)

    assert (row["status"], row["compared_with"], row["message"]) == ("equal", "source", None)
    assert (row["rows"], row["columns"], row["data_files"], row["shard"]) == (3, 2, 1, None)


def test_a_difference_is_an_error_that_names_it(
    places: Places, session: NoSpark, table: str
) -> None:
    """Harm prevented: a script drops the source after a comparison that nobody read."""
    places.run("export", f"db.{table}", "--all", "--to", f"lake.n.{table}")
    damage(places, table)

    with pytest.raises(DestinationError, match=r"partition 1: differs: .*rows.*3"):
        verify(session, table)


def test_what_was_never_exported_cannot_be_compared(
    places: Places, session: NoSpark, table: str
) -> None:
    places.run("export", f"db.{table}", "--partition-id", "2", "--to", f"lake.n.{table}")

    with pytest.raises(RefusedError, match=r"partition 1: not_exported: the ledger knows no"):
        verify(session, table)
