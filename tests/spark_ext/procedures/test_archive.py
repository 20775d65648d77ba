"""A partition is compared, and moved out of its ClickHouse, only where statements may do that."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace

import pytest
from pyspark.errors import PySparkException

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.server import client
from catalog.iceberg.catalogs import open_catalog
from catalog.ledgers.uris import open_ledger
from catalog.shards import LocalTable
from catalog.sources import SourcePlace
from spark_ext.sql import session_settings
from tableformat.errors import DestinationError, RefusedError, SourceError, TableFormatError
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.ledger import Owner
from tableformat.names import LakeName, TableName
from tests.support.damaged_files import lose_a_row
from tests.support.session_without_spark import NoSpark, Row
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


@pytest.fixture
def half(table: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the table be of two shards, and nobody be there at the address of the second."""

    def shards(place: SourcePlace, name: TableName, **_: object) -> tuple[LocalTable, ...]:
        gone = replace(place, uri="http://127.0.0.1:1", allow_insecure=True)
        return LocalTable(place, name, 1), LocalTable(gone, name, 2)

    monkeypatch.setattr(client, "_PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(session_settings, "local_tables", shards)
    return table


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
    """Harm prevented: any user of SQL takes rows out of production."""
    with pytest.raises(RefusedError, match=r"only if that is allowed. Set --allow-alter"):
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


def test_a_partition_that_another_process_exports_is_no_refusal(
    places: Places, session: NoSpark, table: str
) -> None:
    """Harm prevented: a nightly job gives up where running it again is enough."""
    to = f"lake.n.{table}"
    places.run("export", f"db.{table}", "--partition-id", "1", "--to", to)
    with contextlib.closing(open_ledger(None, local_warehouse=places.warehouse)) as ledger:
        (row,) = (one for one in ledger.rows() if one.destination_table == to)
        ledger.take_lease(row.key.hash, Owner("other-host", 7, "1"), 60.0)

    with pytest.raises(DestinationError, match=r"stay in the source: partition 1: .*other-host"):
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


def test_a_difference_is_reported_although_another_shard_is_unreadable(
    places: Places, session: NoSpark, half: str
) -> None:
    """Harm prevented: "cannot reach shard 2" hides that shard 1 is not what the lake has."""
    places.run("export", f"db.{half}", "--all", "--to", f"lake.n.{half}")
    damage(places, half)

    with pytest.raises(DestinationError) as caught:
        verify(session, half)

    assert "partition 1 of shard 1: differs" in caught.value.message
    assert "Cannot verify 1 of 2 shards: shard 2: Cannot" in caught.value.message


def test_removed_rows_are_reported_although_another_shard_is_unreadable(
    places: Places, session: NoSpark, half: str
) -> None:
    """Harm prevented: nobody hears that shard 1's rows have left the table."""
    with pytest.raises(TableFormatError) as caught:
        archive(session, half)

    message = caught.value.message
    assert "Cannot archive from 1 of 2 shards: shard 2: Cannot" in message
    assert "removed from the source: partition 1 of shard 1 (detached)." in message
    assert in_source(places, half) == (2, 1)


def test_the_reason_against_archiving_is_shown_without_sparks_table(
    places: Places, session: NoSpark, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: an error of Spark's in the place of the one that matters."""
    session.settings["spark.sql.catalog.lake"] = "org.apache.iceberg.spark.SparkCatalog"
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{places.root}/own.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{places.root}/own")
    session.settings["spark.mergeberg.ledger"] = f"sqlite:{places.root}/own-ledger.db"

    def unreadable(_name: str) -> bool:
        raise PySparkException("its metadata is gone")

    def gone(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        raise SourceError("Cannot read part 1_1_1_0: the disk is gone. Mend it.")

    monkeypatch.setattr(session, "tableExists", unreadable)
    places.reads_parts, places.before = False, gone

    with pytest.raises(TableFormatError) as caught:
        archive(session, table)

    assert "they stay in the source: partition 1: " in caught.value.message
    assert "the disk is gone" in caught.value.message
    assert f"Cannot show lake.n.{table} in this session as it is now" in caught.value.message
