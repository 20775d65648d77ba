"""What the commits of exports say, in the table itself, of how far the lake is complete (N-40)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.effects import Effects, Step
from tableformat.errors import DestinationError
from tableformat.export.job import ExportRequest
from tableformat.export.job import export as export_job
from tableformat.export.request import AllPartitions, ById, ExportOptions
from tableformat.export.watermark import StoredWatermark, find_watermark, property_of
from tableformat.names import PartitionId
from tests.faults.test_operator_actions import append, roll_back
from tests.support.fakes import TABLE
from tests.support.scenarios import (
    ALL,
    AtStep,
    Partitions,
    lake,
    parts_of,
    ports_of,
    run,
    state,
    statuses,
)

JANUARY, FEBRUARY, MARCH, APRIL = "202401", "202402", "202403", "202404"
ALONGSIDE = ExportOptions(overwrite_file_if_exists=True)


def source_of(*partitions: str) -> Partitions:
    return Partitions(by_id={p: parts_of(p, 7, 5) for p in partitions})


def stored(directory: Path) -> StoredWatermark | None:
    """Return what the table says."""
    text = state(directory).properties.get(property_of(TABLE.identity))
    return StoredWatermark.parse(text) if text is not None else None


def up_to(directory: Path) -> str:
    """Return the partition that the table names, '' for none."""
    found = stored(directory)
    return str(found.partition_id) if found is not None else ""


def export(
    directory: Path, source: Partitions, partition: str, effects: Effects | None = None
) -> list[str]:
    request = replace(ALL, selection=ById(PartitionId(partition)), options=ALONGSIDE)
    return statuses(run(directory, source, effects=effects, request=request, meddled=True))


def test_an_export_of_all_partitions_says_the_last_one_its_snapshot_and_when(
    tmp_path: Path,
) -> None:
    """A reader knows of which snapshot it is true, and until when rows of the source are in it."""
    source = source_of(JANUARY, FEBRUARY, MARCH)
    ports = ports_of(tmp_path, source, clock=lambda: 1_234_567)

    run(tmp_path, source, ports=ports)

    main = state(tmp_path).main
    assert main is not None
    assert stored(tmp_path) == StoredWatermark(main, 1_234_567, PartitionId(MARCH))


def test_each_commit_of_a_run_moves_it(tmp_path: Path) -> None:
    """Harm prevented: a run of hours that says nothing until its end."""
    source, seen = source_of(JANUARY, FEBRUARY, MARCH), list[str]()
    request: ExportRequest = replace(ALL, commit_every=1)

    ports = ports_of(tmp_path, source)
    for _ in export_job(request, ports, slots=1):
        seen.append(up_to(tmp_path))
    ports.ledger.close()

    assert seen == [JANUARY, FEBRUARY, MARCH]


def test_out_of_order_it_waits_for_the_gap_and_then_passes_all(tmp_path: Path) -> None:
    """Harm prevented: rows of the partition between are read from neither side."""
    source, seen = source_of(JANUARY, FEBRUARY, MARCH), list[str]()

    for partition in (MARCH, JANUARY, FEBRUARY):
        export(tmp_path, source, partition)
        seen.append(up_to(tmp_path))

    assert seen == ["", JANUARY, MARCH]


@pytest.mark.parametrize(("changed", "left"), [(FEBRUARY, JANUARY), (JANUARY, "")])
def test_a_partition_that_changed_lowers_it_with_the_next_commit(
    tmp_path: Path, changed: str, left: str
) -> None:
    """Harm prevented: rows that came in late are taken for exported."""
    source = source_of(JANUARY, FEBRUARY, MARCH)
    run(tmp_path, source)
    source.by_id[changed] = parts_of(changed, 7, 5, 3)
    source.by_id[APRIL] = parts_of(APRIL, 1)

    export(tmp_path, source, APRIL)

    assert up_to(tmp_path) == left


def test_a_row_that_comes_in_after_the_source_was_listed_is_not_claimed(tmp_path: Path) -> None:
    """What is exported then is not what was listed: it waits for the next commit."""
    source = source_of(JANUARY)
    grows = AtStep(
        Step.SNAPSHOT_SOURCE, lambda: source.by_id.update({JANUARY: parts_of(JANUARY, 7, 5, 3)})
    )

    assert export(tmp_path, source, JANUARY, grows) == ["committed"]
    assert up_to(tmp_path) == ""

    source.by_id[FEBRUARY] = parts_of(FEBRUARY, 1)
    export(tmp_path, source, FEBRUARY)
    assert up_to(tmp_path) == FEBRUARY


def test_it_is_of_the_main_that_the_request_is_made_for(tmp_path: Path) -> None:
    """Harm prevented: what an operator took out of main meanwhile is still reported as there."""
    source = source_of(JANUARY, FEBRUARY)
    export(tmp_path, source, JANUARY)
    assert up_to(tmp_path) == JANUARY

    export(tmp_path, source, FEBRUARY, AtStep(Step.SEND, lambda: roll_back(tmp_path)))

    assert up_to(tmp_path) == ""


def test_a_foreign_commit_in_between_changes_nothing_of_it(tmp_path: Path) -> None:
    """It names the snapshot of the request that was applied, not of one before."""
    source = source_of(JANUARY, FEBRUARY)
    export(tmp_path, source, JANUARY)

    export(tmp_path, source, FEBRUARY, AtStep(Step.SEND, lambda: append(tmp_path)))

    found = stored(tmp_path)
    assert found is not None
    assert (found.snapshot_id, str(found.partition_id)) == (state(tmp_path).main, FEBRUARY)


def test_after_a_rollback_it_names_a_snapshot_that_is_no_ancestor_of_main(
    tmp_path: Path,
) -> None:
    """A table property does not go back with main; the snapshot's id is how a reader notices."""
    source = source_of(JANUARY)
    run(tmp_path, source)
    roll_back(tmp_path)

    found, now = stored(tmp_path), state(tmp_path)

    assert found is not None
    assert str(found.partition_id) == JANUARY
    assert not now.is_ancestor(found.snapshot_id)


def test_partitions_without_rows_are_passed_over(tmp_path: Path) -> None:
    """There is nothing to wait for in them."""
    source = source_of(JANUARY, MARCH)
    source.by_id[FEBRUARY] = []

    run(tmp_path, source)

    assert up_to(tmp_path) == MARCH


def test_two_source_tables_have_one_each(tmp_path: Path) -> None:
    """Harm prevented: two shards in one lake table overwrite each other's."""
    run(tmp_path, source_of(JANUARY, FEBRUARY))
    shard = replace(source_of(JANUARY), table=replace(TABLE, identity="another shard"))
    shard.by_id[JANUARY] = parts_of(JANUARY, 8)
    run(tmp_path, shard, request=ALL.of_table(TABLE.name, 2), meddled=True)

    other = state(tmp_path).properties[property_of("another shard")]

    assert up_to(tmp_path) == FEBRUARY
    assert str(StoredWatermark.parse(other).partition_id) == JANUARY


@given(
    exported=st.lists(st.sampled_from([JANUARY, FEBRUARY, MARCH]), min_size=1, unique=True),
    one_by_one=st.booleans(),
)
def test_it_says_what_asking_says(
    tmp_path_factory: pytest.TempPathFactory, exported: list[str], *, one_by_one: bool
) -> None:
    """In whatever order partitions are exported, the table and the command agree."""
    directory = tmp_path_factory.mktemp("lake")
    source = source_of(*(exported if not one_by_one else [JANUARY, FEBRUARY, MARCH]))
    if one_by_one:
        for partition in exported:
            export(directory, source, partition)
    else:
        run(directory, source, request=replace(ALL, selection=AllPartitions()))

    ledger = ports_of(directory, source).ledger
    asked = find_watermark(TABLE, source, lake(directory), ledger, now=2_000_000).partition_id
    ledger.close()

    assert up_to(directory) == (str(asked) if asked is not None else "")


@given(
    st.builds(
        StoredWatermark,
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**63 - 1),
        st.from_regex(r"[A-Za-z0-9-]{1,40}", fullmatch=True).map(PartitionId),
    )
)
def test_its_text_says_all_of_it(watermark: StoredWatermark) -> None:
    assert StoredWatermark.parse(watermark.text) == watermark


@pytest.mark.parametrize("text", ["", "1:2:", "1:all", "x:2:all", "1:2:all ", "1:2:3:4"])
def test_any_other_text_is_refused(text: str) -> None:
    """Harm prevented: half of an edited property is believed."""
    with pytest.raises(DestinationError, match="Cannot read the watermark"):
        StoredWatermark.parse(text)
