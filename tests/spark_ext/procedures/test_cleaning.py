"""`gc` lists what abandoned exports left, and removes it only on request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from tableformat.errors import NotFoundError, UsageError
from tableformat.export.slices import SliceTask, WritePlan
from tests.support.session_without_spark import NoSpark, Row
from tests.wrong.places import Places

LOOK_AT = {"source": "ch.db.events", "partition_id": "202401"}


def interrupt(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def file(places: Places, session: NoSpark, request: pytest.FixtureRequest) -> Path:
    """Leave an export that was cancelled, and a file that its worker finished afterwards."""
    name = table(request)
    places.before = interrupt
    places.run("export", "db.events", "--partition-id", "202401", "--to", f"lake.{name}")
    places.before = lambda *_: None
    (row,) = session.call("cancel_export", **LOOK_AT, table=name)
    ledger = SqliteLedger(places.warehouse / LEDGER_FILE)
    (key,) = (r.key.hash for r in ledger.rows() if r.destination_table == f"lake.{name}")
    ledger.close()
    data = places.warehouse / name.replace(".", "/") / "data"
    data.mkdir(exist_ok=True)
    left = data / f"{key}-{row['transaction_id']}-0-x.parquet"
    left.write_bytes(b"rows")
    return left


def table(request: pytest.FixtureRequest) -> str:
    return f"n.{request.node.name.partition('[')[0]}"


def swept(session: NoSpark, name: str, **given: str | bool) -> list[Row]:
    return session.call("gc", table=name, **given)


def test_by_default_garbage_is_listed_and_nothing_is_removed(
    session: NoSpark, file: Path, request: pytest.FixtureRequest
) -> None:
    """Harm prevented: somebody who only looks loses files."""
    (garbage,) = swept(session, table(request))

    assert (garbage["action"], garbage["kind"], garbage["bytes"]) == ("remove", "data file", 4)
    assert garbage["location"].endswith(file.name)
    assert garbage["partition_id"] == "202401"
    assert file.exists()


def test_it_goes_when_that_is_wanted_and_then_nothing_is_left(
    session: NoSpark, file: Path, request: pytest.FixtureRequest
) -> None:
    (garbage,) = swept(session, table(request), dry_run=False, source="ch")

    assert garbage["action"] == "removed"
    assert not file.exists()
    assert swept(session, table(request), dry_run=False) == []


def test_null_is_no_word_for_removing(
    session: NoSpark, file: Path, request: pytest.FixtureRequest
) -> None:
    """Harm prevented: a variable that was never set deletes files."""
    with pytest.raises(UsageError, match=r"call gc: `dry_run` is NULL\. Give .*, or leave it out"):
        session.call("gc", table=table(request), dry_run=None)

    assert file.exists()


def test_younger_files_stay_with_a_reason_in_words_of_sql(
    session: NoSpark, file: Path, request: pytest.FixtureRequest
) -> None:
    before = (datetime.now(UTC) - timedelta(hours=1)).isoformat().replace("+00:00", "Z")

    (garbage,) = swept(session, table(request), older_than=before, dry_run=False)

    assert garbage["action"] == "keep"
    assert garbage["why"].endswith("younger than `older_than`")
    assert file.exists()


def test_a_time_that_is_not_over_is_refused(session: NoSpark) -> None:
    """Harm prevented: everything is older than next year."""
    with pytest.raises(UsageError, match="that time is not over"):
        swept(session, "n.any", older_than="2999-01-01T00:00:00Z")


def test_a_cluster_needs_a_source_that_knows_it(session: NoSpark) -> None:
    with pytest.raises(UsageError, match="Name one by `source`"):
        swept(session, "n.any", cluster="main")


@pytest.mark.parametrize("source", ["nope", "nope.db.events"])
def test_a_source_that_there_is_not_is_named(session: NoSpark, source: str) -> None:
    with pytest.raises(NotFoundError, match="Cannot find the source 'nope'"):
        swept(session, "n.any", source=source)


def test_a_source_alone_is_looked_at(session: NoSpark, places: Places) -> None:
    """Who looks after the source need not know the tables of the lake."""
    places.run("export", "db.events", "--partition-id", "202401", "--to", "lake.n.alone")

    assert session.call("gc", source="ch", dry_run=False) == []


def test_neither_a_table_nor_a_source_is_nothing_to_clean(session: NoSpark) -> None:
    with pytest.raises(UsageError, match="name the lake table by `table`, or a `source`, or both"):
        session.call("gc")


def test_a_missing_table_is_reported_as_missing(session: NoSpark) -> None:
    with pytest.raises(NotFoundError, match=r"clean up lake\.n\.none: there is no such lake table"):
        swept(session, "n.none")
