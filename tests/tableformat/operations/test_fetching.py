"""FETCH PARTITION … FROM another lake table: detached here, visible nowhere until ATTACH."""

from __future__ import annotations

from pathlib import Path

import pytest

from tableformat.effects import Step
from tableformat.errors import NotFoundError, RefusedError
from tableformat.export.outcome import Status
from tests.support.cleaning_up import left_behind
from tests.support.dying import Dies, DiesAt
from tests.support.lake import Meddling
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    attach,
    drop,
    drop_detached,
    export_at,
    in_files,
    on,
    partition,
    running,
)
from tests.support.other_engines import rewrite
from tests.support.scenarios import Partitions, lake, rows_in_main
from tests.support.tiers import share_of
from tests.support.two_lake_tables import OTHER, P1, fetch, other, to_other


def prepared(directory: Path) -> Partitions:
    """Return a table of which another has all, and this one p2 alone."""
    made = in_files(directory)
    running(directory).run(drop("p1"))
    to_other(directory, made)
    return made


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    return prepared(tmp_path)


def rows_detached(directory: Path) -> int:
    table = lake(directory)
    return sum(f.rows for f in table.files_on(table.load(), "detached"))


def test_it_is_detached_until_it_is_attached(tmp_path: Path, source: Partitions) -> None:
    before, theirs = on(tmp_path, "main"), other(tmp_path).load().metadata_location

    done = fetch(tmp_path, P1)

    assert (done.status, done.rows, done.data_files) == (Status.FETCHED, 12, 2)
    assert on(tmp_path, "main") == before
    assert rows_detached(tmp_path) == 12
    assert all("/other/" not in path for path in on(tmp_path, "detached"))
    assert other(tmp_path).load().metadata_location == theirs
    assert left_behind(tmp_path) == []

    assert running(tmp_path).run(attach("p1")).status is Status.ATTACHED
    assert rows_in_main(tmp_path) == sum(source.rows.values())
    assert rows_detached(tmp_path) == 0


def test_an_export_of_unchanged_rows_stays_unchanged_after_a_fetch(tmp_path: Path) -> None:
    """Harm prevented: an export of what is there is made again, or refused, after a FETCH."""
    source = in_files(tmp_path)
    to_other(tmp_path, source)

    fetch(tmp_path, P1)

    done = export_at(tmp_path, source, LATER, IN_FILES)
    assert {one.status for one in done.values()} == {Status.UNCHANGED}


def test_fetched_rows_are_not_attached_alongside_the_same_rows(tmp_path: Path) -> None:
    """Harm prevented: the rows of the partition are there twice."""
    source = in_files(tmp_path)
    to_other(tmp_path, source)
    fetch(tmp_path, P1)

    with pytest.raises(RefusedError, match="the fetched rows could be there twice"):
        running(tmp_path).run(attach("p1"))

    running(tmp_path).run(drop("p1"))
    assert running(tmp_path).run(attach("p1")).rows == 12
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_an_export_is_refused_alongside_attached_rows(tmp_path: Path, source: Partitions) -> None:
    fetch(tmp_path, P1)
    running(tmp_path).run(attach("p1"))

    outcome = export_at(tmp_path, source, LATER, IN_FILES)["p1"]

    assert outcome.status is Status.REFUSED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_what_is_detached_already_is_not_fetched_over(tmp_path: Path, source: Partitions) -> None:
    """As in ClickHouse."""
    assert source.rows
    fetch(tmp_path, P1)

    with pytest.raises(RefusedError, match="are detached here already") as refused:
        fetch(tmp_path, P1)

    assert refused.value.code == 256
    drop_detached(tmp_path, P1)
    assert fetch(tmp_path, P1).status is Status.FETCHED


def test_a_partition_that_is_not_there_is_an_error(tmp_path: Path, source: Partitions) -> None:
    assert source.rows

    with pytest.raises(NotFoundError, match="has no files of it") as refused:
        fetch(tmp_path, partition("p9"))

    assert refused.value.code == 257


def test_rows_of_others_are_fetched_too(tmp_path: Path, source: Partitions) -> None:
    rewrite(tmp_path, of=OTHER)
    foreign = ForeignPartitions(rest="p1")

    done = fetch(tmp_path, P1, rows=foreign)

    assert (done.status, done.rows) == (Status.FETCHED, sum(source.rows.values()))
    assert rows_detached(tmp_path) == sum(source.rows.values())


def test_rows_that_others_rewrote_are_not_attached_to_the_same_rows(tmp_path: Path) -> None:
    """Harm prevented: rows of an export are there twice, under the name of nobody."""
    source = in_files(tmp_path)
    to_other(tmp_path, source)
    rewrite(tmp_path, of=OTHER)
    foreign = ForeignPartitions(rest="p1")
    fetch(tmp_path, P1, rows=foreign)

    with pytest.raises(RefusedError, match="would be there twice"):
        running(tmp_path, rows=foreign).run(attach("p1"))

    assert rows_in_main(tmp_path) == sum(source.rows.values())


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_response_is_repaired(tmp_path: Path, source: Partitions, lost: int) -> None:
    assert source.rows
    deaf = Meddling(lake(tmp_path), lose=lambda n: n <= lost)

    assert fetch(tmp_path, P1, table=deaf).status is Status.FETCHED

    assert rows_detached(tmp_path) == 12


@pytest.mark.soak  # tests/faults/test_statement_crashes.py tries each statement so.
@pytest.mark.parametrize(
    "after",
    [pytest.param(False, id="before", marks=pytest.mark.soak), pytest.param(True, id="after")],
)
def test_a_death_at_any_effect_and_the_same_statement_again(tmp_path: Path, *, after: bool) -> None:
    """Harm prevented: a partition that is detached in part, or twice, or visible."""
    prepared(tmp_path / "count")
    counting = DiesAt(10_000, after=False)
    fetch(tmp_path / "count", P1, effects=counting)
    assert {Step.CLAIM, Step.WRITE_FILES, Step.SEND, Step.SETTLE} <= set(counting.steps)
    for number, step in share_of(enumerate(counting.steps)):
        directory = tmp_path / str(number)
        prepared(directory)
        with pytest.raises(Dies):
            fetch(directory, P1, effects=DiesAt(number, after=after))
        landed = rows_detached(directory) == 12
        assert landed or rows_detached(directory) == 0, step

        if landed:
            with pytest.raises(RefusedError, match="are detached here already"):
                fetch(directory, P1)
        else:
            assert fetch(directory, P1).status is Status.FETCHED, step

        assert rows_detached(directory) == 12, step
        assert rows_in_main(directory) == 3, step
        assert running(directory).run(attach("p1")).status is Status.ATTACHED, step
        assert rows_in_main(directory) == 15, step
        assert left_behind(directory) == [], step
