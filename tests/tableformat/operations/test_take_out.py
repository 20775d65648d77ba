"""DROP PARTITION on a lake table, and what an export of the partition says afterwards."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from catalog.iceberg.table import IcebergTable
from tableformat.effects import Step
from tableformat.errors import RefusedError
from tableformat.export.outcome import Outcome, Status
from tableformat.export.request import ExportOptions
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.ledger import State, StatementKind
from tableformat.operations.take_out import Drop
from tests.support.cleaning_up import left_behind
from tests.support.dying import Dies, DiesAt
from tests.support.fakes import TABLE
from tests.support.lake import Meddling, move_main
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    add_foreign,
    drop,
    export_at,
    in_files,
    part_in,
    running,
)
from tests.support.other_engines import rewrite
from tests.support.scenarios import (
    ALL,
    CLOCK,
    FORCED,
    AtStep,
    Partitions,
    lake,
    parts_of,
    row_of,
    rows_in_main,
    run,
    state,
)
from tests.support.tiers import share_of


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    """Return a table whose two partitions are in the lake."""
    made = Partitions()
    assert statuses_of(run(tmp_path, made)) == [Status.COMMITTED] * 2
    return made


def statuses_of(outcomes: list[Outcome]) -> list[Status]:
    return [o.status for o in outcomes]


def test_the_partition_leaves_and_the_others_stay(tmp_path: Path, source: Partitions) -> None:
    done = running(tmp_path).run(drop("p1"))

    assert (done.status, done.rows, done.data_files) == (Status.DROPPED, 12, 1)
    assert rows_in_main(tmp_path) == source.rows["p2"]
    assert done.snapshot_id == running(tmp_path).ports.commit.table.load().main


def test_what_is_not_there_is_no_error(tmp_path: Path, source: Partitions) -> None:
    """As in ClickHouse; nothing is committed."""
    assert source.rows
    before = running(tmp_path).ports.commit.table.load().main
    running(tmp_path).run(drop("p1"))

    again = running(tmp_path).run(drop("p1"))
    never = running(tmp_path).run(drop("p9"))

    assert statuses_of([again, never]) == [Status.EMPTY, Status.EMPTY]
    after = running(tmp_path).ports.commit.table.load()
    assert after.main is not None
    assert after.snapshots[after.main].parent_id == before


def test_inside_the_time_to_live_it_is_not_exported_again(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: a scheduled run brings back what was dropped a minute ago."""
    dropped = running(tmp_path).run(drop("p1"))

    outcomes = export_at(tmp_path, source, CLOCK)

    assert outcomes["p1"].status is Status.REFUSED
    assert f"snapshot {dropped.snapshot_id}: DROP PARTITION ID 'p1'" in outcomes["p1"].message
    assert outcomes["p2"].status is Status.ALREADY_EXPORTED
    assert rows_in_main(tmp_path) == source.rows["p2"]


def test_a_later_export_does_not_count_as_there_once_main_is_moved_back(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: "unchanged" of rows that are nowhere in main, and the source lets them go."""
    dropped = running(tmp_path).run(drop("p1"))
    run(tmp_path, source, request=FORCED)
    move_main(lake(tmp_path), dropped.snapshot_id)
    assert rows_in_main(tmp_path) == source.rows["p2"]

    outcomes = export_at(tmp_path, source, LATER)

    assert outcomes["p1"].status is Status.COMMITTED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


@pytest.mark.parametrize("changed", [False, True], ids=["as it was", "with other rows"])
def test_later_it_is_exported_again(tmp_path: Path, source: Partitions, *, changed: bool) -> None:
    running(tmp_path).run(drop("p1"))
    if changed:
        source.by_id["p1"] = parts_of("p1", 2)

    outcomes = export_at(tmp_path, source, LATER)

    assert (outcomes["p1"].status, outcomes["p2"].status) == (Status.COMMITTED, Status.UNCHANGED)
    assert rows_in_main(tmp_path) == sum(source.rows.values())
    row = row_of(tmp_path, "p1")
    assert (row.state, row.changed, len(row.landed)) == (State.COMPLETED, None, 3)


def test_main_that_is_moved_back_has_it_again(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: an export of what is there already doubles its rows."""
    before = state(tmp_path).main
    running(tmp_path).run(drop("p1"))
    move_main(lake(tmp_path), before)

    outcomes = export_at(tmp_path, source, LATER)

    assert outcomes["p1"].status is Status.UNCHANGED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_rows_of_others_in_the_partition_go_too(tmp_path: Path, source: Partitions) -> None:
    here, there = add_foreign(tmp_path, 4), add_foreign(tmp_path, 5)
    foreign = ForeignPartitions({here: frozenset({"p1"}), there: frozenset({"p3"})})

    done = running(tmp_path, rows=foreign).run(drop("p1"))

    assert (done.status, done.rows, done.data_files) == (Status.DROPPED, 16, 2)
    assert rows_in_main(tmp_path) == source.rows["p2"] + 5


def test_a_file_of_others_that_holds_more_is_refused_by_name(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: rows of another partition are lost with it."""
    path = add_foreign(tmp_path)
    foreign = ForeignPartitions({path: frozenset({"p1", "p2"})})

    with pytest.raises(
        RefusedError, match=f"{path}, which no export .* holds rows of it and of p2"
    ):
        running(tmp_path, rows=foreign).run(drop("p1"))

    assert rows_in_main(tmp_path) == sum(source.rows.values()) + 4


@pytest.mark.parametrize("step", [Step.CLAIM, Step.STAGE, Step.SEND])
def test_what_others_add_meanwhile_has_one_place_in_the_order(
    tmp_path: Path, source: Partitions, step: Step
) -> None:
    """It came before the statement, which takes it away as well; it is never taken half."""
    foreign = ForeignPartitions()

    def add() -> None:
        foreign.of[add_foreign(tmp_path)] = frozenset({"p1"})

    done = running(tmp_path, rows=foreign, effects=AtStep(step, add)).run(drop("p1"))

    assert (done.status, done.rows) == (Status.DROPPED, 16)
    assert rows_in_main(tmp_path) == source.rows["p2"]


@pytest.mark.parametrize("step", [Step.CLAIM, Step.STAGE, Step.SEND])
def test_what_others_add_elsewhere_meanwhile_stays(
    tmp_path: Path, source: Partitions, step: Step
) -> None:
    foreign = ForeignPartitions()

    def add() -> None:
        foreign.of[add_foreign(tmp_path)] = frozenset({"p3"})

    done = running(tmp_path, rows=foreign, effects=AtStep(step, add)).run(drop("p1"))

    assert (done.status, done.rows) == (Status.DROPPED, 12)
    assert rows_in_main(tmp_path) == source.rows["p2"] + 4


def test_a_part_of_what_others_rewrote_leaves_it_unknown_what_is_there(tmp_path: Path) -> None:
    """Harm prevented: no file of its name is left; rows that others rewrote are exported again."""
    source = in_files(tmp_path)
    part = part_in(tmp_path, "p1", 1)
    rewrite(tmp_path, lambda path: lake_part_name(part.partition_id, path) != part.part)

    dropped = running(tmp_path, rows=ForeignPartitions(rest="p1")).run(Drop(part))
    assert dropped.status is Status.DROPPED

    outcome = export_at(tmp_path, source, LATER, IN_FILES)["p1"]
    assert outcome.status is Status.REFUSED
    assert "it is unknown which files it left" in outcome.message


def test_a_lost_response_is_repaired(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: a partition that is dropped, and a message that says that it is not."""
    deaf = cast("IcebergTable", Meddling(lake(tmp_path), lose=lambda n: n == 1))

    done = running(tmp_path, table=deaf).run(drop("p1"))

    assert done.status is Status.DROPPED
    assert rows_in_main(tmp_path) == source.rows["p2"]


def test_an_export_and_a_drop_at_once_have_one_order(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: half of an export is in main, or rows that its outcome promised are gone."""
    source.by_id["p1"] = parts_of("p1", 20, 30)
    seen: list[Outcome] = []

    def export() -> None:
        seen.extend(run(tmp_path, source, request=FORCED, meddled=True))

    done = running(tmp_path, effects=AtStep(Step.SEND, export)).run(drop("p1"))

    of_p1 = next(o for o in seen if o.partition_id == "p1")
    assert (of_p1.status, done.status) == (Status.REPLACED, Status.IN_PROGRESS)
    assert rows_in_main(tmp_path) == 50 + source.rows["p2"]


def with_a_second_shard(directory: Path) -> Partitions:
    """Export partitions of the same names from another source, along with those of the first."""
    second = Partitions(table=replace(TABLE, identity="second"), by_id={"p1": parts_of("p1", 4)})
    options = ExportOptions(overwrite_file_if_exists=True, shards=2)
    run(directory, second, request=replace(ALL, options=options), meddled=True)
    return second


def test_a_partition_of_two_shards_goes_as_one(tmp_path: Path, source: Partitions) -> None:
    with_a_second_shard(tmp_path)

    done = running(tmp_path).run(drop("p1"))

    assert (done.status, done.rows, done.data_files) == (Status.DROPPED, 16, 2)
    assert rows_in_main(tmp_path) == source.rows["p2"]


@pytest.mark.parametrize("step", [Step.CLAIM, Step.STAGE, Step.SEND])
def test_of_two_shards_none_goes_without_the_other(
    tmp_path: Path, source: Partitions, step: Step
) -> None:
    """Harm prevented: half of a partition is dropped, because somebody exports the other half."""
    second = with_a_second_shard(tmp_path)
    second.by_id["p1"] = parts_of("p1", 6)
    again = replace(FORCED, options=ExportOptions(force=True, shards=2))

    def export() -> None:
        (outcome,) = run(tmp_path, second, request=again, meddled=True)
        assert outcome.status is Status.REPLACED

    done = running(tmp_path, effects=AtStep(step, export)).run(drop("p1"))

    # The export was first: what it put there is dropped as well.
    assert (done.status, done.rows) == (Status.DROPPED, 18)
    assert rows_in_main(tmp_path) == source.rows["p2"]


def steps_of_a_drop(directory: Path) -> list[Step]:
    counting = DiesAt(10_000, after=False)
    run(directory, Partitions())
    running(directory, effects=counting).run(drop("p1"))
    return counting.steps


@pytest.mark.enumeration
@pytest.mark.parametrize(
    "after",
    [pytest.param(False, id="before", marks=pytest.mark.soak), pytest.param(True, id="after")],
)
def test_a_death_at_any_effect_and_the_same_statement_again(tmp_path: Path, *, after: bool) -> None:
    """Harm prevented: a partition that is dropped in part, or comes back by itself."""
    steps = steps_of_a_drop(tmp_path / "count")
    assert {Step.CLAIM, Step.STAGE, Step.SEND, Step.SETTLE} <= set(steps)
    for number in share_of(range(len(steps))):
        directory, source = tmp_path / str(number), Partitions()
        run(directory, source)
        with pytest.raises(Dies):
            running(directory, effects=DiesAt(number, after=after)).run(drop("p1"))
        assert rows_in_main(directory) in (source.rows["p2"], 15), steps[number]

        done = running(directory).run(drop("p1"))

        assert done.status in (Status.DROPPED, Status.EMPTY), steps[number]
        assert rows_in_main(directory) == source.rows["p2"], steps[number]
        outcomes = export_at(directory, source, itertools.count(90_000_000))
        assert outcomes["p1"].status is Status.COMMITTED, steps[number]
        assert rows_in_main(directory) == 15, steps[number]
        row = row_of(directory, "p1")
        assert [x.kind for x in row.landed] == [None, StatementKind.DROP, None]
        assert left_behind(directory) == []
