"""What a refusal of late rows advises works, and takes no archived row out of the lake."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Operation

from tableformat.effects import Step
from tableformat.export.options import LateRows
from tableformat.export.request import ExportOptions
from tableformat.messages import plain
from tests.faults.test_late_rows import World, lot, watermark_of
from tests.faults.test_rebuilt_ledger import lose, rebuilt
from tests.support.lake_statements import ForeignPartitions, detach, drop, running
from tests.support.other_engines import origin_of, rewrite
from tests.support.scenarios import ALL, TO, AtStep, rows_in_main, state
from tests.support.scene import move
from tests.support.two_lake_tables import P1, between

OPTIONS = {
    "export": ExportOptions(),
    "force": ExportOptions(force=True),
    "force whole": ExportOptions(force=True, replace_partition=True),
}


def with_late_rows(tmp_path: Path) -> World:
    """Archive and drop a partition of 12 rows, and export 40 late rows."""
    world = World(tmp_path)
    world.run()
    world.archive(drop=True)
    world.arrive(*lot(1, 40))
    assert world.run().status.value == "committed"
    return world


@pytest.mark.parametrize("words", OPTIONS)
def test_late_rows_that_others_changed_return_with_the_archived(tmp_path: Path, words: str) -> None:
    """Harm prevented: DROP PARTITION, as advised, takes the only copy of the archived rows."""
    world = with_late_rows(tmp_path)
    before, late = state(tmp_path).main, world.rows()[1].key.hash
    rewrite(tmp_path, lambda path: origin_of(path) == late, operation=Operation.OVERWRITE)
    world.arrive(*lot(1, 40, 2))
    request = replace(ALL, options=OPTIONS[words])

    refused = world.run(request)
    assert before is not None
    between(tmp_path, TO, TO, P1, at=before, replaces=True, rows=ForeignPartitions(rest="p1"))
    restored = rows_in_main(tmp_path)
    again = world.run(replace(ALL, options=replace(OPTIONS[words], replace_partition=False)))

    assert refused.status.value == "refused"
    assert "REPLACE PARTITION FROM the snapshot of this table before the change" in refused.message
    assert "DROP PARTITION" not in plain(refused.message)
    assert (restored, again.status.value, rows_in_main(tmp_path)) == (52, "replaced", 54)
    assert again.message == "late rows 1: the archived rows of the partition stay"


@pytest.mark.parametrize("gone", ["moved back", "dropped"])
def test_an_export_of_late_rows_says_if_archived_rows_are_not_there(
    tmp_path: Path, gone: str
) -> None:
    """Harm prevented: who reads that the archived rows stay does not look for them."""
    world = World(tmp_path)
    world.run()
    world.archive(drop=True)
    if gone == "dropped":
        running(tmp_path).run(drop("p1"))
    else:
        move(tmp_path, 1)
    world.arrive(*lot(1, 40))

    late = world.run()

    assert (late.status.value, rows_in_main(tmp_path)) == ("committed", 40)
    assert late.message.startswith("late rows 1: main lacks archived rows of the partition: ")


@pytest.mark.parametrize("words", OPTIONS)
@pytest.mark.parametrize("is_late", [False, True], ids=["before", "during"])
def test_late_rows_that_return_to_main_stop_an_unarchived_export(
    tmp_path: Path, words: str, *, is_late: bool
) -> None:
    """Harm prevented: `unarchive` sees no late rows in main, which is moved forward after that."""
    world = with_late_rows(tmp_path)
    move(tmp_path, 2)
    world.unarchive_as_users()
    world.arrive(*lot(0, 7, 5), *lot(1, 40))
    request = replace(ALL, options=OPTIONS[words])
    if not is_late:
        move(tmp_path, 3)

    effects = AtStep(Step.WRITE_FILES, lambda: move(tmp_path, 3)) if is_late else None
    refused = world.run(request, effects)
    again = world.run(request)

    assert {refused.status.value, again.status.value} == {"refused"}, (refused, again)
    assert "main has late rows 1 of it" in again.message
    assert rows_in_main(tmp_path) == 52
    running(tmp_path).run(detach("p1"))
    assert world.run(request).status.value == "committed"
    assert rows_in_main(tmp_path) == 52


def test_the_watermark_needs_all_archived_rows_of_a_partition(tmp_path: Path) -> None:
    """Harm prevented: a query reads rows below the watermark from the lake, which lacks them.

    The first lot is attached again; the late rows left main with a rollback.
    """
    world = World(tmp_path)
    world.run()
    world.archive()
    world.arrive(*lot(1, 40))
    world.run()
    world.archive(drop=True)
    world.arrive()
    move(tmp_path, 2)
    gone = watermark_of(world)
    world.attach_again()

    found, refused = watermark_of(world), world.run(ALL)

    for one in (gone, found):
        assert (one.partition_id, "main was moved away from it" in one.why) == (None, True), one
    assert refused.status.value == "refused"
    assert "lacks other archived rows of it: " in refused.message
    move(tmp_path, 3)
    assert str(watermark_of(world).partition_id) == "p1"
    assert world.run(ALL).status.value == "already_exported"


def test_parts_without_rows_do_not_hide_that_main_lacks_archived_rows(tmp_path: Path) -> None:
    """Harm prevented: the watermark passes a partition whose only copy left main."""
    world = World(tmp_path)
    world.run()
    world.archive(drop=True)
    assert str(watermark_of(world).partition_id) == "p1"
    move(tmp_path, 1)

    assert watermark_of(world).partition_id is None


def test_a_rebuilt_ledger_knows_late_rows_after_a_rollback(tmp_path: Path) -> None:
    """Harm prevented: main never had the archived rows, and the late ones are exported as these."""
    world = World(tmp_path)
    world.run()
    world.archive(drop=True)
    move(tmp_path, 1)
    world.arrive(*lot(1, 40))
    assert world.run().status.value == "committed"
    lose(tmp_path)

    rebuilt(tmp_path)

    assert [row.archived is not None for row in world.rows()] == [True, True]
    for late_rows in LateRows:
        options = ExportOptions(late_rows=late_rows, manifest_ttl=1)
        assert world.run(replace(ALL, options=options)).status.value == "refused"
    assert rows_in_main(tmp_path) == 40
