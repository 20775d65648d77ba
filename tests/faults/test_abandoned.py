"""An interrupted replacement of a source that went back to what is exported holds nothing back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tableformat.effects import Step
from tableformat.errors import SourceError
from tableformat.export.request import ById
from tableformat.ledger import State
from tableformat.names import PartitionId
from tests.enumeration.oracle import look
from tests.enumeration.scenarios import World
from tests.support.dying import Dies
from tests.support.scenarios import ALL, FORCED, AtStep, parts_of


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a world in which the replacement of both partitions died when one file was written."""
    made = World(tmp_path)
    made.run(ALL)
    for name in ("p1", "p2"):
        made.source.by_id[name] = parts_of(name, 20)
    with pytest.raises(Dies):
        made.run(FORCED, most_files=1)
    made.written.clear()
    assert len(made.source.left) == 1
    return made


def back(world: World, *names: str) -> None:
    """Let partitions be what they were when they were exported."""
    was = {"p1": (7, 5), "p2": (3,)}
    for name in names:
        world.source.by_id[name] = parts_of(name, *was[name])


def test_an_already_exported_partition_leaves_no_staged_parts(world: World) -> None:
    """Harm prevented: parts that nobody can use fill the source's disk until somebody cancels."""
    back(world, "p1", "p2")

    ran = world.run(ALL)

    assert [o.status.value for o in ran.outcomes] == ["already_exported"] * 2
    assert world.source.left == {}
    assert all(r.claim.staging == () for r in look(world).rows)


def test_what_a_neighbour_may_still_use_stays(world: World) -> None:
    """Harm prevented: partitions are frozen together, and the other one loses its frozen parts."""
    back(world, "p1")
    one = replace(ALL, selection=ById(PartitionId("p1")))

    world.run(one)

    assert len(world.source.left) == 1
    assert look(world).of("p2").claim.staging == tuple(world.source.left)


def test_finished_files_are_still_used(world: World) -> None:
    """Harm prevented: letting go of the parts costs the files that were made of them."""
    back(world, "p1", "p2")
    world.run(ALL)
    for name in ("p1", "p2"):
        world.source.by_id[name] = parts_of(name, 20)

    ran = world.run(FORCED)

    assert {o.status.value for o in ran.outcomes} == {"replaced"}
    assert sum(world.written.values()) == 1
    assert {r.state for r in look(world).rows} == {State.COMPLETED}


def test_a_failed_clean_up_of_staged_parts_changes_no_outcome(world: World) -> None:
    """Harm prevented: "already exported" becomes a failure because of a disk that is busy."""
    back(world, "p1", "p2")

    def fail() -> None:
        message = "Cannot drop the staging table: the disk is busy. Wait."
        raise SourceError(message)

    ran = world.run(ALL, effects=AtStep(Step.SWEEP_SOURCE, fail, nth=3))

    assert [o.status.value for o in ran.outcomes] == ["already_exported"] * 2
    assert len(world.source.left) == 1
    world.run(ALL)
    assert world.source.left == {}
