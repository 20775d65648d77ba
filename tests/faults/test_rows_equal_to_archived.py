"""Rows that arrive in an archived partition in parts that equal the archived ones: new rows.

A part that is attached again was detached before and is not any more. Nothing else explains that
the source has an archived part again.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from tableformat.export.archived import archiving
from tableformat.export.options import LateRows
from tableformat.ledger import DetachedPart
from tableformat.messages import plain
from tests.faults.test_late_rows import APPEND, ME, World, lot, watermark_of
from tests.support.late_lots import merged
from tests.support.scenarios import ALL, ledger_of, rows_in_main

APPEND_ALL = replace(APPEND, options=replace(APPEND.options, late_rows=LateRows.APPEND_ALL))
CASES = ("dropped", "still detached")


def world_of(tmp_path: Path, case: str) -> World:
    """Export a partition of 12 rows and archive it; then the same rows are inserted again."""
    world = World(tmp_path)
    assert world.run().status.value == "committed"
    world.archive(drop=case == "dropped")
    world.arrive(*lot(0, 7, 5))
    return world


@pytest.mark.parametrize("case", CASES)
def test_equal_rows_that_were_inserted_are_added_when_asked_for(tmp_path: Path, case: str) -> None:
    """Harm prevented: they count as exported, and `archive` takes the only copy of them."""
    world = world_of(tmp_path, case)
    assert watermark_of(world).partition_id is None

    for request in (ALL, APPEND):
        refused = world.run(request)
        assert refused.status.value == "refused"
        assert f"its part p1_1_1_0 and 1 more equals an archived one, which {case}" in (
            refused.message.replace("was dropped", "dropped").replace("is still", "still")
        )
        assert "--late-rows append-all" in plain(refused.message)
    added = world.run(APPEND_ALL)

    assert (added.status.value, rows_in_main(tmp_path)) == ("committed", 24)
    for request in (ALL, APPEND, APPEND_ALL):
        assert world.run(request).status.value == "unchanged"
    assert str(watermark_of(world).partition_id) == "p1"
    world.archive()
    world.arrive()
    assert world.run(ALL).status.value == "already_exported"
    assert rows_in_main(tmp_path) == 24


@pytest.mark.parametrize("case", CASES)
def test_equal_rows_next_to_late_ones_are_added_when_asked_for(tmp_path: Path, case: str) -> None:
    """Harm prevented: the message says that they were attached, and they never reach the lake."""
    world = world_of(tmp_path, case)
    world.arrive(*lot(0, 7), *lot(1, 3))

    refused = world.run()
    added = world.run(APPEND_ALL)

    assert refused.status.value == "refused"
    assert "its part p1_1_1_0 equals an archived one" in refused.message
    assert (added.status.value, rows_in_main(tmp_path)) == ("committed", 22)


def test_a_part_is_attached_again_as_often_as_it_was_detached(tmp_path: Path) -> None:
    """Harm prevented: a copy of an attached part counts as attached, too, and is taken out."""
    world = World(tmp_path)
    world.run()
    world.archive()
    world.attach_again(*lot(0, 7, 5))

    refused = world.run(APPEND_ALL)

    assert refused.status.value == "refused"
    assert "its part p1_1_1_0 and 1 more is archived, and was attached to the source again" in (
        refused.message
    )


def test_a_merge_of_parts_that_never_left_is_not_added(tmp_path: Path) -> None:
    """Harm prevented: the refusal says to add the rows, and the whole partition is there twice.

    DETACH PARTITION copies the parts first. The server dies then, and merges them when it is back.
    """
    world = World(tmp_path)
    world.run()
    died_in_detach(world)
    assert world.run(ALL).status.value == "already_exported"
    world.arrive(merged(lot(0, 7, 5)))

    asked, refused = world.run(ALL), world.run()

    assert [asked.status.value, refused.status.value] == ["refused", "refused"]
    assert "system.detached_parts" not in asked.message
    assert "it left the source, and p1_1_2_1 has its block numbers" in refused.message
    assert rows_in_main(tmp_path) == 12
    world.unarchive(0)
    assert world.run(ALL).status.value == "unchanged"
    assert rows_in_main(tmp_path) == 12


def test_late_rows_after_a_detach_without_a_response_are_added(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run()
    died_in_detach(world)
    world.arrive(*lot(1, 3))

    assert world.run().status.value == "committed"
    assert rows_in_main(tmp_path) == 15


def died_in_detach(world: World) -> None:
    """Let the server die in a DETACH after it has copied the parts of the partition."""
    with (
        contextlib.closing(ledger_of(world.directory)) as ledger,
        contextlib.suppress(OSError),
        archiving(ledger, world.rows()[-1], owner=ME, is_alive=lambda _: False, now=world.clock()),
    ):
        world.source.aside |= {DetachedPart(p.name, 9, 1) for p in world.source.by_id["p1"]}
        raise OSError
