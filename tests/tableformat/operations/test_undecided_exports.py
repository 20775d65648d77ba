"""Exports of which others merged the files: how statements end that it is unknown what main has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tests.support.lake_statements import attach, detach, drop
from tests.support.scenarios import TO
from tests.support.two_lake_tables import OTHER
from tests.support.two_sources import TwoSources


@pytest.fixture
def world(tmp_path: Path) -> TwoSources:
    """Return a lake with p1 of two sources, in one file that another engine made of theirs."""
    made = TwoSources(tmp_path)
    made.export(0)
    made.export(1, overwrite_file_if_exists=True)
    made.merge()
    return made


def counted_once(world: TwoSources) -> int:
    """Return the number of rows in main, which has none of them twice."""
    found = world.rows()
    assert len(set(found)) == len(found)
    return len(found)


def test_drop_of_two_exports_ends(world: TwoSources) -> None:
    """Harm prevented: its own claims change the order of the plan, so it plans again for ever."""
    done = world.run(drop("p1"))

    assert (done.status, done.rows) == (Status.DROPPED, 17)
    assert [world.export(n, force=True).status for n in (0, 1)] == [Status.COMMITTED] * 2
    assert counted_once(world) == 17


@pytest.mark.parametrize("of", ["a lake table", "ClickHouse"])
def test_replace_ends_what_others_did_as_drop_does(world: TwoSources, of: str) -> None:
    """Harm prevented: a source that has no row in main any more can never be exported."""
    if of == "ClickHouse":
        done = world.replace_from_source(0)
    else:
        world.export(0, to=OTHER)
        done = world.copy(OTHER, TO, replaces=True)

    assert done.status is Status.REPLACED
    assert counted_once(world) == 12
    assert world.export(0).status in (Status.UNCHANGED, Status.ALREADY_EXPORTED)
    assert world.export(1, force=True).status is Status.COMMITTED
    assert counted_once(world) == 17


def test_replace_by_rows_of_others_decides_nothing(world: TwoSources) -> None:
    """Harm prevented: "No row of it is in main", while the rows that came are those."""
    for number in (0, 1):
        world.export(number, to=OTHER, overwrite_file_if_exists=number == 1)
    world.merge(name=OTHER)

    world.copy(OTHER, TO, replaces=True)

    for number in (0, 1):
        found = world.export(number, force=True)
        assert found.status is Status.REFUSED
        assert "its files were changed since" in found.message
        assert world.attach_from_source(number).status is not Status.ATTACHED
    assert counted_once(world) == 17


def test_the_way_out_of_merged_files_can_be_followed(world: TwoSources) -> None:
    """Harm prevented: two refusals that each name the option of the other."""
    world.run(detach("p1"))
    assert "DROP PARTITION" in world.export(0, force=True).message
    world.export(0, force=True, replace_partition=True)

    circle = world.export(1, force=True, replace_partition=True)

    assert circle.status is Status.REFUSED
    assert "without --replace-partition" not in circle.message
    assert "REPLACE PARTITION FROM the snapshot of this table before the change" in circle.message
    changed = re.search(r"changed since by snapshot (\d+) \(replace\)", circle.message)
    assert changed is not None
    before = world.lake().load().snapshots[int(changed[1])].parent_id
    assert world.copy(TO, TO, snapshot_id=before, replaces=True).status is Status.REPLACED
    assert world.export(1, force=True).status is Status.REPLACED
    assert counted_once(world) == 17


def test_a_detached_and_merged_partition_is_exported_after_drop(world: TwoSources) -> None:
    """Harm prevented: a partition that was detached can never be exported again."""
    world.run(detach("p1"))
    refused = world.export(0)
    assert (refused.status, "DROP PARTITION" in refused.message) == (Status.REFUSED, True)

    world.run(drop("p1"))

    assert [world.export(n, force=True).status for n in (0, 1)] == [Status.COMMITTED] * 2
    assert counted_once(world) == 17
    with pytest.raises(RefusedError, match="exported again since it was detached"):
        world.run(attach("p1"))
