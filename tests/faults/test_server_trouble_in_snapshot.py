"""A server that fails while partitions are frozen: nothing is half frozen, nothing stays behind."""

from __future__ import annotations

import pytest

from tests.services.clickhouse_front import ClickHouseFront
from tests.services.clickhouse_http import faults
from tests.support.server_trouble import Trouble

NO_SPACE = faults.error(243, "NOT_ENOUGH_SPACE", "Cannot reserve 1.00 MiB, not enough space")

# What a run asks the server, in this order.
CREATES = "CREATE TABLE"
CLONES = "REPLACE PARTITION"
COUNTS = "SELECT __src._part, count()"


@pytest.fixture(
    params=[
        pytest.param(CREATES, id="create", marks=pytest.mark.soak),
        pytest.param(CLONES, id="clone"),
        pytest.param(COUNTS, id="count", marks=pytest.mark.soak),
    ]
)
def moment(request: pytest.FixtureRequest) -> str:
    """Return a statement of the snapshot, before which something happens."""
    return str(request.param)


def test_a_server_that_dies_while_it_freezes(either: Trouble, moment: str) -> None:
    """What it had made is dropped by the next run, which exports everything once."""
    name = either.filled("dies")
    either.when(moment, either.process.kill)

    result = either.export(name)

    either.assert_stopped(result, 4, "Connection refused", "Check that the server runs")
    either.process.start()
    assert len(either.staged()) == (moment != CREATES)
    assert either.in_lake(name) == []
    assert "exported" in either.assert_exported_once(name).out


def test_a_server_that_restarts_while_it_freezes(either: Trouble, moment: str) -> None:
    """What it has on disk is still there, so the export goes on as if nothing had been."""
    name = either.filled("restarts")
    either.when(moment, either.restart)

    either.assert_exported_once(name)


def test_a_lost_response_to_the_clone(newest: Trouble, newest_server: ClickHouseFront) -> None:
    """Nobody knows whether it was made, so it is never sent again into the same table."""
    name = newest.filled("lost")
    newest_server.fail_next(faults.cut(0), containing=CLONES)

    result = newest.export(name)

    newest.assert_stopped(result, 4, newest.url)
    assert len(newest_server.requests(CLONES)) == 1
    newest.assert_exported_once(name)


def test_a_table_that_is_dropped_before_it_is_frozen(either: Trouble) -> None:
    name = either.filled("dropped")
    either.when(CLONES, lambda: either.drop(name))

    result = either.export(name)

    for partition in ("0", "1"):
        either.assert_failed(result, 3, partition, f"Cannot find the table db.{name}")
    assert (either.in_lake(name), either.staged()) == ([], ())


def test_a_table_that_is_dropped_while_its_clone_is_proved_is_exported(newest: Trouble) -> None:
    """Harm prevented: rows that exist nowhere any more, although they were frozen.

    An old server, which shows no row policies, is asked about the table itself until the proof is
    done.
    """
    name = newest.filled("proved")
    rows = newest.in_source(name)
    newest.when(COUNTS, lambda: newest.drop(name))

    newest.assert_exported_once(name, rows=rows)


def test_a_table_that_is_dropped_once_it_is_frozen_is_exported(either: Trouble) -> None:
    name = either.filled("frozen")
    rows = either.in_source(name)
    either.while_writing(lambda: either.drop(name))

    either.assert_exported_once(name, rows=rows)


def test_a_full_disk_costs_the_partitions_that_have_no_place(
    newest: Trouble, newest_server: ClickHouseFront
) -> None:
    """The group is tried together, then each alone: here the first has no place."""
    name = newest.filled("full")
    newest_server.fail_next(NO_SPACE, times=2, containing=CLONES)

    result = newest.export(name)

    newest.assert_failed(result, 4, "0", "not enough space", "Free space on the server's disk")
    assert newest.in_lake(name) == [row for row in newest.in_source(name) if row[0] == 1]
    assert newest.staged() == ()
    newest.assert_exported_once(name)


def test_a_server_that_dies_once_everything_is_visible(either: Trouble) -> None:
    """The export is done; what the server keeps is reported, and dropped by the next run."""
    name = either.filled("done")
    either.when("DROP TABLE IF EXISTS", either.process.kill)

    result = either.export(name)

    assert result.code == 0
    assert "the next export there drops them" in result.err
    either.process.start()
    assert len(either.staged()) == 1
    again = either.assert_exported_once(name)
    assert again.out.count(": already exported") == 2


def test_a_server_that_restarts_between_the_last_file_and_the_commit(either: Trouble) -> None:
    """What is written is the lake's: the server is not needed any more."""
    name = either.filled("committed")
    either.after_writing.append(either.restart)

    either.assert_exported_once(name)
