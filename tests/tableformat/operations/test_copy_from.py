"""ATTACH and REPLACE PARTITION … FROM another lake table: copies, and what exports say of them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Operation

from tableformat.effects import Step
from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tableformat.ledger import State
from tableformat.operations.statement import AllPartitions
from tests.support.cleaning_up import left_behind
from tests.support.dying import Dies, DiesAt
from tests.support.lake import Meddling
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    add_foreign,
    drop,
    export_at,
    in_files,
    partition,
    running,
)
from tests.support.other_engines import rewrite
from tests.support.scenarios import (
    TO,
    AtStep,
    Partitions,
    lake,
    parts_of,
    pyiceberg,
    row_of,
    rows_by_key,
    rows_in_main,
)
from tests.support.tiers import share_of
from tests.support.two_lake_tables import OTHER, copy, other, to_other

ALL = AllPartitions()


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    """Return a table of which `other` has all, and the table of the statements p2 alone."""
    made = in_files(tmp_path)
    running(tmp_path).run(drop("p1"))
    assert set(to_other(tmp_path, made).values()) == {Status.COMMITTED}
    return made


def rows_in_other(directory: Path) -> int:
    table = other(directory)
    return sum(f.rows for f in table.files_on(table.load(), "main"))


def test_the_partition_is_there_and_the_other_table_is_as_it_was(
    tmp_path: Path, source: Partitions
) -> None:
    before = other(tmp_path).load().metadata_location

    done = copy(tmp_path, partition("p1"))

    assert (done.status, done.rows, done.data_files) == (Status.ATTACHED, 12, 2)
    assert rows_in_main(tmp_path) == sum(source.rows.values())
    assert other(tmp_path).load().metadata_location == before
    table = lake(tmp_path)
    assert all("/other/" not in f.path for f in table.files_on(table.load(), "main"))
    assert left_behind(tmp_path) == []


def test_what_was_copied_counts_as_exported(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: the same partition is exported alongside its own copy."""
    copy(tmp_path, partition("p1"))

    row = row_of(tmp_path, "p1")
    assert (row.state, row.changed, row.last.rows) == (State.COMPLETED, None, 12)
    assert (row.source_table, row.destination_table) == ("db.t", str(TO))
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.UNCHANGED
    source.by_id["p1"] = parts_of("p1", 20)
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.REPLACED
    assert rows_in_main(tmp_path) == 23


@pytest.mark.parametrize("replaces", [False, True])
def test_what_is_there_already_is_not_copied_again(
    tmp_path: Path, source: Partitions, *, replaces: bool
) -> None:
    """Also when the process that copied it died before it could say so."""
    copy(tmp_path, ALL)
    before = lake(tmp_path).load().metadata_location

    done = copy(tmp_path, ALL, replaces=replaces)

    assert (done.status, done.message) == (Status.UNCHANGED, "15 rows are in main already")
    assert source.rows
    assert lake(tmp_path).load().metadata_location == before


def test_a_copy_is_refused_alongside_other_rows_of_its_partition(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: rows of the partition are there twice."""
    source.by_id["p2"] = parts_of("p2", 4, 5)
    to_other(tmp_path, source)
    before = rows_by_key(tmp_path)

    for which in (partition("p2"), ALL):
        with pytest.raises(RefusedError, match="could be there twice"):
            copy(tmp_path, which)

    assert rows_by_key(tmp_path) == before


def test_replacing_takes_away_all_that_was_there(tmp_path: Path, source: Partitions) -> None:
    """Rows that others added to the partition, too; other partitions stay."""
    source.by_id["p2"] = parts_of("p2", 4, 5)
    to_other(tmp_path, source)
    foreign = ForeignPartitions({add_foreign(tmp_path, 6): frozenset({"p2"})})
    before = len(pyiceberg(tmp_path).metadata.snapshots)

    done = copy(tmp_path, partition("p2"), replaces=True, rows=foreign)

    assert (done.status, done.rows) == (Status.REPLACED, 9)
    table = pyiceberg(tmp_path)
    made = table.current_snapshot()
    assert made is not None
    assert made.summary is not None
    assert made.summary.operation is Operation.OVERWRITE
    assert len(table.metadata.snapshots) == before + 1
    assert rows_in_main(tmp_path) == 9


def test_replacing_by_nothing_must_be_allowed(tmp_path: Path, source: Partitions) -> None:
    """As in ClickHouse: else the partition would be dropped without a word."""
    source.by_id = {"p1": source.by_id["p1"]}
    empty = partition("p3")
    foreign = ForeignPartitions({add_foreign(tmp_path, 6): frozenset({"p3"})})

    with pytest.raises(RefusedError, match="Use --allow-empty, or DROP PARTITION") as refused:
        copy(tmp_path, empty, replaces=True, rows=foreign)
    assert refused.value.code == 36
    assert copy(tmp_path, empty, rows=foreign).status is Status.EMPTY

    done = copy(tmp_path, empty, replaces=True, allow_empty=True, rows=foreign)
    assert (done.status, done.rows) == (Status.REPLACED, 6)
    assert rows_in_main(tmp_path) == 3


def test_rows_of_others_come_too_and_are_not_taken_for_exported(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: rows that others rewrote are exported alongside their copy."""
    found = other(tmp_path)
    paths = {f.path for f in found.files_on(found.load(), "main")}
    rewrite(tmp_path, lambda _: True, of=OTHER)
    moved = {f.path for f in found.files_on(found.load(), "main")} - paths
    assert moved
    foreign = ForeignPartitions(rest="p1")

    done = copy(tmp_path, partition("p1"), rows=foreign)

    assert done.status is Status.ATTACHED
    assert rows_in_main(tmp_path) == source.rows["p2"] + sum(source.rows.values())
    refused = export_at(tmp_path, source, LATER, IN_FILES)["p1"]
    assert refused.status is Status.REFUSED


def test_rows_that_others_rewrote_are_not_copied_to_the_same_rows(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: rows of an export are there twice, under the name of nobody."""
    copy(tmp_path, partition("p1"))
    rewrite(tmp_path, of=OTHER)
    foreign = ForeignPartitions(rest="p1")
    before = rows_by_key(tmp_path)

    with pytest.raises(RefusedError, match="could be there twice"):
        copy(tmp_path, partition("p1"), rows=foreign)

    assert source.rows
    assert rows_by_key(tmp_path) == before
    assert copy(tmp_path, partition("p1"), replaces=True, rows=foreign).status is Status.REPLACED


def test_rows_of_others_are_not_copied_twice_whatever_is_named(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: once by the name of the partition, and once with all of them."""
    uuid = other(tmp_path).load().layout.table_uuid
    of_p1 = replace(row_of(tmp_path, "p1").key, destination=uuid).hash
    rewrite(tmp_path, lambda path: of_p1 in path, of=OTHER)
    foreign = ForeignPartitions(rest="p1")
    copy(tmp_path, partition("p1"), rows=foreign)

    for which in (partition("p1"), ALL):
        with pytest.raises(RefusedError, match="could be there twice"):
            copy(tmp_path, which, rows=foreign)

    assert source.rows
    running(tmp_path, rows=foreign).run(drop("p1"))
    assert rows_in_main(tmp_path) == source.rows["p2"]
    assert copy(tmp_path, ALL, rows=foreign).rows == source.rows["p1"]


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_response_is_repaired(tmp_path: Path, source: Partitions, lost: int) -> None:
    deaf = Meddling(lake(tmp_path), lose=lambda n: n <= lost)

    done = copy(tmp_path, partition("p1"), table=deaf)

    assert done.status is Status.ATTACHED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


@pytest.mark.parametrize("step", [Step.CLAIM, Step.WRITE_FILES, Step.STAGE, Step.SEND])
@pytest.mark.parametrize("replaces", [False, True])
def test_an_export_at_once_has_one_order_with_it(
    tmp_path: Path, source: Partitions, step: Step, *, replaces: bool
) -> None:
    """Harm prevented: the export and the copy are there both."""
    seen: list[dict[str, Status]] = []

    def visit() -> None:
        found = export_at(tmp_path, source, itertools.count(90_000_000), IN_FILES)
        seen.append({name: one.status for name, one in found.items()})

    done = copy(tmp_path, partition("p1"), replaces=replaces, effects=AtStep(step, visit)).status

    # The export has not waited: before the claim it was first, later it took the claim over.
    assert seen == [{"p1": Status.COMMITTED, "p2": Status.UNCHANGED}]
    assert done is (Status.UNCHANGED if step is Step.CLAIM else Status.IN_PROGRESS)
    assert rows_in_main(tmp_path) == sum(source.rows.values())


@pytest.mark.soak  # tests/faults/test_statement_crashes.py tries each statement so.
@pytest.mark.parametrize(
    "after",
    [pytest.param(False, id="before", marks=pytest.mark.soak), pytest.param(True, id="after")],
)
@pytest.mark.parametrize("replaces", [False, True], ids=["attach", "replace"])
def test_a_death_at_any_effect_and_the_same_statement_again(
    tmp_path: Path, *, after: bool, replaces: bool
) -> None:
    """Harm prevented: a partition that is there in part, or twice."""

    def prepared(directory: Path) -> Partitions:
        made = in_files(directory)
        if replaces:
            made.by_id["p1"] = parts_of("p1", 20, 30)
        else:
            running(directory).run(drop("p1"))
        to_other(directory, made)
        return made

    prepared(tmp_path / "count")
    counting = DiesAt(10_000, after=False)
    copy(tmp_path / "count", partition("p1"), replaces=replaces, effects=counting)
    assert {Step.CLAIM, Step.WRITE_FILES, Step.SEND, Step.SETTLE} <= set(counting.steps)
    for number, step in share_of(enumerate(counting.steps)):
        directory = tmp_path / str(number)
        made = prepared(directory)
        with pytest.raises(Dies):
            copy(
                directory,
                partition("p1"),
                replaces=replaces,
                effects=DiesAt(number, after=after),
            )
        assert rows_in_main(directory) in ((15, 53) if replaces else (3, 15)), step

        done = copy(directory, partition("p1"), replaces=replaces).status

        assert done in (Status.ATTACHED, Status.REPLACED, Status.UNCHANGED), step
        assert rows_in_main(directory) == (53 if replaces else 15), step
        then = export_at(directory, made, itertools.count(90_000_000), IN_FILES)
        assert {o.status for o in then.values()} == {Status.UNCHANGED}, step
        assert left_behind(directory) == [], step


def test_a_damaged_file_is_named_and_nothing_comes(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: damage is copied, with a receipt that calls it right."""
    found = other(tmp_path)
    for file in found.files_on(found.load(), "main"):
        path = Path(file.path.removeprefix("file://"))
        data = path.read_bytes()
        path.write_bytes(data[:10] + bytes([data[10] ^ 1]) + data[11:])

    done = copy(tmp_path, partition("p1"))

    assert done.status is Status.FAILED
    assert "its bytes are not those that the export wrote" in done.message
    assert rows_in_main(tmp_path) == source.rows["p2"]


@pytest.mark.soak  # tests/faults/test_statement_crashes.py tries each statement so.
def test_a_death_at_any_effect_and_an_export_instead(tmp_path: Path) -> None:
    """Harm prevented: the export uses files that it did not plan, or leaves them there."""
    in_files(tmp_path / "count")
    running(tmp_path / "count").run(drop("p1"))
    to_other(tmp_path / "count", Partitions())
    counting = DiesAt(10_000, after=False)
    copy(tmp_path / "count", partition("p1"), effects=counting)
    for number, step in share_of(enumerate(counting.steps)):
        directory = tmp_path / str(number)
        made = in_files(directory)
        running(directory).run(drop("p1"))
        to_other(directory, made)
        with pytest.raises(Dies):
            copy(directory, partition("p1"), effects=DiesAt(number, after=True))

        then = export_at(directory, made, itertools.count(90_000_000), IN_FILES)

        good = (Status.COMMITTED, Status.UNCHANGED, Status.ALREADY_EXPORTED)
        assert then["p1"].status in good, step
        assert rows_in_main(directory) == 15, step
        assert left_behind(directory) == [], step
