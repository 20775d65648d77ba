"""Rows that arrive in a partition after it was archived: each lot once, and nothing leaves main."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from catalog.storages.schemes import open_storage
from spark_ext.actions.cancel import forget_exports, unarchivable, unarchive_each
from spark_ext.actions.exports import NamedTable
from tableformat.effects import Direct, Effects, Step
from tableformat.errors import RefusedError, TableFormatError
from tableformat.export.archived import archiving, unarchive
from tableformat.export.commit import Ports
from tableformat.export.dry_run import EXPORT, rehearse
from tableformat.export.give_up import kill
from tableformat.export.job import ExportRequest
from tableformat.export.options import LateRows
from tableformat.export.outcome import Outcome
from tableformat.export.request import ExportOptions
from tableformat.export.watermark import Watermark, find_watermark
from tableformat.iceberg.properties import LATE_ROWS
from tableformat.ledger import DetachedPart, Owner, Row, State
from tableformat.mergetree.table import KeeperNode, Part
from tableformat.messages import plain
from tableformat.names import PartName
from tableformat.operations.forget import Forget
from tableformat.operations.statement import OnePart
from tableformat.operations.take_out import Detach
from tests.enumeration.faults import DEATHS, FAILURES, Fault, struck
from tests.faults.test_rebuilt_ledger import lose, rebuilt
from tests.places.found import place_at
from tests.support.dying import Dies, KilledAt
from tests.support.lake_statements import drop, partition, running
from tests.support.late_lots import merged
from tests.support.scenarios import (
    ALL,
    TO,
    AtStep,
    Partitions,
    ledger_of,
    ledger_rows,
    parts_of,
    ports_of,
    pyiceberg,
    rows_by_key,
    rows_in_main,
)
from tests.support.scenarios import run as run_command

T = TypeVar("T")
ME = Owner("here", 1, "now")
APPEND = replace(ALL, options=ExportOptions(late_rows=LateRows.APPEND, manifest_ttl=1))
EFFECTS = 34
"""The effects of an export of late rows, each of which a process may not survive."""


def lot(number: int, *rows: int) -> list[Part]:
    """Return the parts of a lot of rows; lots have other block numbers and hashes."""
    return [
        replace(
            part,
            name=f"p1_{part.min_block + 10 * number}_{part.max_block + 10 * number}_0",
            min_block=part.min_block + 10 * number,
            max_block=part.max_block + 10 * number,
            hash_of_all_files=f"{part.hash_of_all_files} of lot {number}",
        )
        for part in parts_of("p1", *rows)
    ]


@dataclass
class World:
    """A lake, and a source whose partition is archived and gets other rows."""

    directory: Path
    source: Partitions = field(default_factory=lambda: Partitions(by_id={"p1": lot(0, 7, 5)}))
    now: int = 1_700_000_000_000

    def clock(self) -> int:
        """Return a time after the TTL of everything before."""
        self.now += 10_000
        return self.now

    def run(self, request: ExportRequest = APPEND, effects: Effects | None = None) -> Outcome:
        """Export as a new process; the partition is the only one."""
        ports = ports_of(self.directory, self.source, effects=effects, clock=self.clock)
        (outcome,) = run_command(self.directory, self.source, request=request, ports=ports)
        return outcome

    def rows(self) -> list[Row]:
        """Return the ledger's rows of the partition, in the order of their increments."""
        return sorted(ledger_rows(self.directory), key=lambda row: row.key.increment)

    def archive(self, *, drop: bool = False) -> None:
        """Take the partition out of the source, as `archive` does after the export."""
        row = self.rows()[-1]
        with (
            contextlib.closing(ledger_of(self.directory)) as ledger,
            archiving(ledger, row, owner=ME, is_alive=lambda _: False, now=self.clock()) as marked,
        ):
            left = tuple(DetachedPart(part.name, 9, 1) for part in self.source.by_id["p1"])
            self.source.by_id["p1"] = []
            self.source.aside |= set() if drop else {*left}
            marked.note_detached(() if drop else left)

    def arrive(self, *parts: Part) -> None:
        """Let the source have these parts of the partition."""
        self.source.by_id["p1"] = list(parts)

    def attach_again(self, *parts: Part) -> None:
        """Let the source attach all detached parts, and have these parts, too."""
        self.source.aside.clear()
        self.arrive(*lot(0, 7, 5), *parts)

    def unarchive(self, number: int) -> None:
        """Remove the mark of an increment."""
        rows = self.rows()
        later = rows[number + 1] if number + 1 < len(rows) else None
        with contextlib.closing(ledger_of(self.directory)) as ledger:
            unarchive(
                ledger, rows[number], later, owner=ME, is_alive=lambda _: False, now=self.clock()
            )

    def unarchive_as_users(self) -> None:
        """Unarchive the partition, as the command does."""
        place = place_at(self.directory)
        with contextlib.closing(ledger_of(self.directory)) as ledger:
            table = self.source.table.name
            found = unarchivable(ledger, "p1", table, TO, lambda _: place.lake())
            unarchive_each(ledger, found)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Export a partition of 12 rows, and archive it."""
    made = World(tmp_path)
    assert made.run().status.value == "committed"
    made.archive()
    return made


def test_late_rows_are_refused_and_the_refusal_names_the_option(world: World) -> None:
    """Harm prevented: rows appear twice, or the archived ones leave, because nobody asked."""
    world.arrive(*lot(1, 40))

    refused = world.run(ALL)

    assert refused.status.value == "refused"
    assert "the source has 40 rows in 1 part of it now" in refused.message
    assert "--late-rows append adds them to the lake" in plain(refused.message)
    assert rows_in_main(world.directory) == 12


AS_TABLE = replace(ALL, options=ExportOptions(late_rows=LateRows.TABLE, manifest_ttl=1))
REFUSE = replace(ALL, options=ExportOptions(late_rows=LateRows.REFUSE, manifest_ttl=1))


def forecast(world: World, request: ExportRequest) -> tuple[str, str]:
    """Return what a dry run says of the partition."""
    ports = ports_of(world.directory, world.source)
    with contextlib.closing(ports.ledger):
        (found,) = rehearse(
            request, world.source, ports.lake, ports.ledger,
            now=world.clock(), slots=1, note=lambda _: None, storage=open_storage,
        ).forecasts  # fmt: skip
    return found.action, plain(found.message)


def own(world: World, value: str) -> None:
    """Let the table's owner say what happens to late rows."""
    with pyiceberg(world.directory).transaction() as transaction:
        transaction.set_properties({LATE_ROWS: value})


def test_the_owner_of_a_table_decides_what_happens_to_late_rows(world: World) -> None:
    world.arrive(*lot(1, 40))
    assert forecast(world, AS_TABLE)[0] == "refused"
    assert world.run(AS_TABLE).status.value == "refused"

    own(world, "append")

    assert forecast(world, AS_TABLE)[0] == EXPORT
    assert forecast(world, REFUSE)[0] == "refused", "the user's option has priority"
    assert world.run(AS_TABLE).status.value == "committed"
    assert rows_in_main(world.directory) == 12 + 40


@pytest.mark.parametrize("value", ["append-all", "table", "Append", ""])
def test_another_value_of_the_owner_is_refused_by_name(world: World, value: str) -> None:
    """Harm prevented: an owner says once, and for all later rows, that none of them is archived."""
    world.arrive(*lot(1, 40))
    own(world, value)
    before = world.rows()

    for act in (forecast, World.run):
        with pytest.raises(RefusedError, match=rf"mergeberg\.late-rows is '{value}', and not"):
            act(world, AS_TABLE)

    assert world.rows() == before
    assert world.run(APPEND).status.value == "committed", "the user's option has priority"


def test_three_rounds_of_late_rows_are_in_the_lake_once(world: World) -> None:
    for number, rows in enumerate((3, 40, 5), start=1):
        world.arrive(*lot(number, rows))
        assert world.run().status.value == "committed"
        assert world.run(ALL).status.value == "unchanged"
        world.archive(drop=number % 2 == 0)

    gone = world.run(ALL)

    assert gone.status.value == "already_exported"
    assert rows_in_main(world.directory) == 12 + 3 + 40 + 5
    assert [row.key.increment for row in world.rows()] == [0, 1, 2, 3]
    assert len({row.key.hash for row in world.rows()}) == 4
    assert all(row.archived is not None for row in world.rows())


def test_late_rows_that_change_are_replaced_and_no_archived_row_with_them(world: World) -> None:
    world.arrive(*lot(1, 3))
    world.run()
    world.arrive(*lot(1, 3), *lot(2, 8))

    replaced = world.run(ALL)

    assert (replaced.status.value, replaced.rows) == ("replaced", 11)
    assert rows_in_main(world.directory) == 12 + 11


@pytest.mark.parametrize("force", [False, True], ids=["append", "append and force"])
def test_parts_that_were_attached_again_are_not_added_again(world: World, *, force: bool) -> None:
    """Harm prevented: ATTACH brings archived parts back beside late ones, and rows are twice."""
    world.source.aside = {part for part in world.source.aside if part.name != "p1_1_1_0"}
    world.arrive(*lot(0, 7), *lot(1, 3))
    request = replace(APPEND, options=replace(APPEND.options, force=force))

    refused = world.run(request)

    assert refused.status.value == "refused"
    assert "its part p1_1_1_0 is archived, and was attached to the source again" in refused.message
    assert rows_in_main(world.directory) == 12


def test_what_was_attached_again_as_it_was_is_there_already(world: World) -> None:
    world.arrive(*lot(1, 3))
    world.run()
    world.archive()
    world.attach_again()

    there = world.run()

    assert (there.status.value, there.rows) == ("already_exported", 12)
    assert there.transaction_id == world.rows()[0].done.landed.transaction_id  # type: ignore[union-attr]
    assert rows_in_main(world.directory) == 15


@pytest.mark.parametrize("is_merged", [False, True], ids=["inserted", "merged"])
@pytest.mark.parametrize(
    ("case", "status"),
    [
        ("still detached", "committed"),
        ("not detached any more", "refused"),
        ("not detached any more, and asked for", "committed"),
    ],
)
def test_no_part_is_new_while_an_archived_one_may_be_back(
    world: World, case: str, status: str, *, is_merged: bool
) -> None:
    """Harm prevented: parts attached again are merged or mutated, and their hashes are gone.

    After a DETACH and an ATTACH not even the name of a part shows that it was mutated.
    """
    world.arrive(merged(lot(1, 3, 4)) if is_merged else lot(1, 7)[0])
    options = APPEND.options
    if case != "still detached":
        world.source.aside.clear()
    if case.endswith("asked for"):
        options = replace(options, late_rows=LateRows.APPEND_ALL)

    found = world.run(replace(APPEND, options=options))

    assert found.status.value == status
    if status == "refused":
        assert "may have the rows of the archived part p1_1_1_0 and 1 more" in found.message
        assert "--late-rows append-all" in plain(found.message)
    assert rows_in_main(world.directory) == (12 if status == "refused" else 19)


def test_parts_that_come_back_before_the_snapshot_are_not_added(world: World) -> None:
    """Harm prevented: what is checked is the list of parts, and what is exported a later one."""
    world.arrive(*lot(1, 3))
    back = AtStep(Step.SNAPSHOT_SOURCE, lambda: world.attach_again(*lot(1, 3)))

    refused = world.run(APPEND, back)

    assert refused.status.value == "refused"
    assert "its part p1_1_1_0 and 1 more is archived" in refused.message
    assert rows_in_main(world.directory) == 12


def test_late_rows_are_resumed_though_they_left_the_source(world: World) -> None:
    """Harm prevented: they are in the snapshot of an interrupted run, and nowhere else."""
    world.arrive(*lot(1, 3))
    with contextlib.suppress(Dies):
        world.run(APPEND, KilledAt(Step.STAGE))
    world.arrive()

    resumed = world.run(ALL)

    assert (resumed.status.value, resumed.rows) == ("committed", 3)
    assert rows_in_main(world.directory) == 15


def test_a_table_of_another_keeper_adds_no_late_rows(tmp_path: Path) -> None:
    """Harm prevented: the increment was given up, so nothing of it says which table it was."""
    world = World(tmp_path)
    world.source.table = replace(world.source.table, keeper_node=KeeperNode(1, 1000))
    world.run()
    world.archive()
    world.arrive(*lot(1, 3))
    with contextlib.suppress(Dies):
        world.run(APPEND, KilledAt(Step.STAGE))
    ports = ports_of(tmp_path, world.source, clock=world.clock)
    table = ports.lake.table(TO)
    assert table is not None
    with contextlib.closing(ports.ledger) as ledger:
        of_commit = Ports(Direct(), table, ledger, world.clock, lambda _: None)
        kill(of_commit, world.rows()[1].key.hash, state=State.KILLED)
    world.source.table = replace(world.source.table, keeper_node=KeeperNode(2, 2000))
    world.arrive(*lot(5, 9))

    refused = world.run()

    assert refused.status.value == "refused"
    assert "another Keeper" in refused.message
    assert rows_in_main(tmp_path) == 12


def test_what_archive_dropped_cannot_come_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run()
    world.archive(drop=True)
    world.arrive(merged(lot(1, 3, 4)))

    assert world.run().status.value == "committed"
    assert rows_in_main(tmp_path) == 19


def third_lot_arrives(world: World) -> None:
    """Let a second lot be exported and archived, and a third one arrive."""
    world.arrive(*lot(1, 3))
    world.run()
    world.archive()
    world.arrive(*lot(2, 9, 1))


def test_an_export_of_late_rows_has_so_many_effects(world: World) -> None:
    """So the next test has a case for each of them, and none for nothing."""
    third_lot_arrives(world)
    steps = list[Step]()

    def noted(step: Step, act: Callable[[], T], /) -> T:
        steps.append(step)
        return act()

    world.run(APPEND, noted)

    assert len(steps) == EFFECTS


@pytest.mark.parametrize("number", range(EFFECTS))
@pytest.mark.parametrize("fault", [*DEATHS, *FAILURES], ids=lambda fault: fault.name)
def test_late_rows_are_once_in_the_lake_whatever_ends_the_export(
    world: World, fault: Fault, number: int
) -> None:
    """Harm prevented: a lot is lost or doubled because a process died between two effects."""
    third_lot_arrives(world)
    effects = struck(Direct(), number, fault, partial(pytest.fail, "nobody else runs"))

    with contextlib.suppress(Dies, TableFormatError):
        world.run(APPEND, effects)
    assert effects.step is not None
    last = world.run()

    assert last.status.value in ("committed", "already_exported", "unchanged")
    held = rows_by_key(world.directory)
    assert [held[row.key.hash] for row in world.rows()] == [12, 3, 10]
    world.archive()
    world.arrive(*lot(3, 2))
    assert world.run().status.value == "committed"
    assert rows_in_main(world.directory) == 12 + 3 + 10 + 2


@pytest.mark.parametrize("number", range(EFFECTS))
@pytest.mark.parametrize(
    "fault",
    [Fault.PAUSED_BEFORE_BY_THE_DEAD, Fault.PAUSED_AFTER_BY_THE_DEAD],
    ids=lambda fault: fault.name,
)
def test_two_exports_of_the_same_late_rows_add_them_once(
    world: World, fault: Fault, number: int
) -> None:
    """Harm prevented: each takes the other for dead, and begins an increment of its own."""
    third_lot_arrives(world)
    others = list[Outcome]()

    outcome = world.run(APPEND, struck(Direct(), number, fault, lambda: others.append(world.run())))

    told = {outcome.status.value, *(one.status.value for one in others)}
    assert told <= {"committed", "already_exported", "unchanged", "in_progress"}
    assert told & {"committed", "already_exported"}
    held = rows_by_key(world.directory)
    assert [held[row.key.hash] for row in world.rows()] == [12, 3, 10]


@pytest.mark.parametrize(
    "step", [Step.SNAPSHOT_SOURCE, Step.CLAIM, Step.WRITE_FILES, Step.STAGE, Step.SEND]
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_unarchiving_while_late_rows_are_on_their_way(
    world: World, step: Step, *, after: bool
) -> None:
    """Harm prevented: both keys may have the same rows, each in files of its own."""
    world.arrive(*lot(1, 40))
    refused = list[str]()

    def meanwhile() -> None:
        try:
            world.unarchive(0)
        except RefusedError as error:
            refused.append(error.message)

    outcome = world.run(APPEND, AtStep(step, meanwhile, after=after))

    assert (outcome.status.value == "committed") == bool(refused)
    again = world.run(ALL)
    assert again.status.value == ("unchanged" if refused else "replaced")
    assert rows_in_main(world.directory) == (12 + 40 if refused else 40)


def test_only_the_last_lot_can_be_unarchived_while_its_rows_are_in_the_lake(world: World) -> None:
    world.arrive(*lot(1, 3))
    world.run()
    world.archive()

    world.unarchive(1)
    world.arrive(*lot(1, 3), *lot(2, 2))

    assert (world.run(ALL).status.value, rows_in_main(world.directory)) == ("replaced", 17)


def test_a_part_name_that_two_exports_have_names_no_part(tmp_path: Path) -> None:
    """Harm prevented: the server counts blocks from the start again, and an archived part goes."""
    world = World(tmp_path, Partitions(by_id={"p1": lot(0, 7)}))
    world.run()
    world.archive(drop=True)
    world.arrive(replace(lot(0, 3)[0], hash_of_all_files="another"))
    assert world.run().status.value == "committed"

    with pytest.raises(RefusedError, match="2 exports of partition p1 have a part of that name"):
        running(tmp_path).run(Detach(OnePart(PartName.parse("p1_1_1_0"))))

    assert rows_in_main(tmp_path) == 10


def test_nothing_of_a_partition_is_forgotten_if_a_part_of_it_is_archived(world: World) -> None:
    world.arrive(*lot(1, 3))
    world.run()
    running(world.directory).run(drop("p1"))
    one = running(world.directory)

    with pytest.raises(RefusedError, match="it is archived"):
        Forget(partition("p1")).run(one.ports, one.partitions)

    assert len(world.rows()) == 2


def test_a_rebuilt_ledger_knows_late_rows_and_that_those_before_are_archived(world: World) -> None:
    """Harm prevented: with a new ledger an export replaces the archived rows by the late ones."""
    world.arrive(*lot(1, 40))
    world.run()
    lose(world.directory)

    rebuilt(world.directory)

    assert [row.key.increment for row in world.rows()] == [0, 1]
    assert all(row.archived is not None for row in world.rows())
    assert world.run(ALL).status.value == "already_exported"
    for parts in (lot(2, 50), [*lot(0, 7), *lot(1, 40)], [merged(lot(0, 7, 5))]):
        world.arrive(*parts)
        refused = world.run()
        assert refused.status.value == "refused"
        assert "the ledger does not know which parts of it were archived" in refused.message
    assert rows_in_main(world.directory) == 12 + 40


def test_the_ttl_of_late_rows_can_be_ended_though_others_are_archived(world: World) -> None:
    world.arrive(*lot(1, 3))
    world.run()

    with contextlib.closing(ledger_of(world.directory)) as ledger:
        (told,) = forget_exports(ledger, "p1", world.source.table.name, NamedTable(TO, None))

    assert told[0].key.increment == 1
    world.archive()
    with (
        contextlib.closing(ledger_of(world.directory)) as ledger,
        pytest.raises(RefusedError, match="it is archived"),
    ):
        list(forget_exports(ledger, "p1", world.source.table.name, NamedTable(TO, None)))


def test_the_watermark_counts_late_rows_as_the_partition(world: World) -> None:
    world.arrive(*lot(1, 3))
    assert watermark_of(world).why == "rows arrived after it was archived"
    world.run()

    assert str(watermark_of(world).partition_id) == "p1"


def watermark_of(world: World) -> Watermark:
    ports = ports_of(world.directory, world.source, clock=world.clock)
    table = ports.lake.table(TO)
    assert table is not None
    with contextlib.closing(ports.ledger):
        return find_watermark(
            world.source.table, world.source, table, ports.ledger, now=world.clock()
        )
