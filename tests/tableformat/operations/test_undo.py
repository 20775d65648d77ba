"""What a statement names as its undo: run at once, it restores exactly the rows of before."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Operation

from tableformat.errors import RefusedError
from tableformat.export.outcome import Outcome
from tableformat.names import LakeName, PartName
from tableformat.operations.attach import Attach
from tableformat.operations.statement import AllPartitions, OnePart, OnePartition
from tableformat.operations.take_out import Detach, Drop
from tests.support.foreign_actions import divide
from tests.support.other_engines import delete_first_row
from tests.support.row_changes import change
from tests.support.scenarios import TO, pyiceberg
from tests.support.two_lake_tables import OTHER, P1
from tests.support.two_sources import TwoSources

NOTHING_NAMED = "no single statement undoes it: "
Act = Callable[[TwoSources], Outcome]


def _replace_from_other(world: TwoSources) -> Outcome:
    return world.copy(OTHER, TO, replaces=True)


def _first(world: TwoSources) -> OnePart:
    return world.part((world.of_key(0) or world.paths())[0])


STATEMENTS: dict[str, Act] = {
    "drop": lambda w: w.run(Drop(P1)),
    "drop all": lambda w: w.run(Drop(AllPartitions())),
    "drop part": lambda w: w.run(Drop(_first(w))),
    "detach": lambda w: w.run(Detach(P1)),
    "detach all": lambda w: w.run(Detach(AllPartitions())),
    "detach part": lambda w: w.run(Detach(_first(w))),
    "update": lambda w: change(w.directory, P1, rows=w.foreign),
    "replace": _replace_from_other,
    "replace from source": lambda w: w.replace_from_source(1),
    "export": lambda w: w.export(0, force=True),
    "export whole": lambda w: w.export(0, force=True, replace_partition=True),
    "move": lambda w: w.moving().run(P1),
    "move to empty": lambda w: (w.run(Drop(AllPartitions()), OTHER), w.moving().run(P1))[1],
}


def _deleted_rows(world: TwoSources) -> None:
    table = pyiceberg(world.directory)
    delete_first_row(table, next(iter(table.scan().plan_files())).file)


def _detached_part(world: TwoSources) -> None:
    world.run(Detach(_first(world)))


def _detached_and_exported(world: TwoSources) -> None:
    world.run(Detach(P1))
    world.export(0, force=True)


def _dropped_and_undone(world: TwoSources) -> None:
    before = world.main()
    world.run(Drop(P1))
    world.copy(TO, TO, snapshot_id=before)


def _moved_back(world: TwoSources) -> None:
    before = world.main()
    world.append(500, 3)
    world.export(0, force=True)
    tables = pyiceberg(world.directory).manage_snapshots()
    tables.set_current_snapshot(snapshot_id=before).commit()
    world.append(600, 3)


def _merged(world: TwoSources) -> None:
    world.export(1, overwrite_file_if_exists=True)
    world.merge()


def _overwritten(world: TwoSources) -> None:
    world.merge(Operation.OVERWRITE)


def _copied_and_merged(world: TwoSources) -> None:
    world.append(700, 3, name=OTHER)
    world.run(Drop(P1))
    world.copy(OTHER, TO)
    world.merge(Operation.OVERWRITE)


def _attached_foreign(world: TwoSources) -> None:
    world.append(500, 3)
    world.run(Detach(P1))
    world.run(Attach(P1))


SITUATIONS: dict[str, Callable[[TwoSources], object]] = {
    "as exported": lambda _: None,
    "another source": lambda w: w.export(1, overwrite_file_if_exists=True),
    "foreign rows": lambda w: w.append(500, 4),
    "rows of two partitions": lambda w: w.append(500, 4, "p8", "p9"),
    "rows of p1 and another": lambda w: w.append(500, 4, "p1", "p9"),
    "deleted rows": _deleted_rows,
    "detached part": _detached_part,
    "detached and exported": _detached_and_exported,
    "detached of two partitions": lambda w: (
        w.append(500, 4, "p8", "p9"),
        w.run(Detach(AllPartitions())),
        w.export(0, force=True),
    ),
    "merged": _merged,
    "merged by overwrite": _overwritten,
    "main moved back": _moved_back,
    "copied and merged": _copied_and_merged,
    "attached foreign": _attached_foreign,
    "dropped and undone": _dropped_and_undone,
    "another spec": lambda w: divide(w.directory),
    "the same rows there": lambda w: (w.run(Drop(P1), OTHER), w.export(0, to=OTHER, force=True)),
    "foreign rows there": lambda w: w.append(800, 2, name=OTHER),
}


def prepared(directory: Path) -> TwoSources:
    """Return p1 of the first source in one table, of the second in the other."""
    made = TwoSources(directory)
    made.export(0)
    made.export(1, to=OTHER)
    return made


def undone(world: TwoSources, text: str) -> None:
    """Run the statement that a result names."""
    found = re.fullmatch(
        r"ALTER TABLE (?P<on>\S+) (?P<act>\w+) (?P<which>PARTITION ALL|PART(?:ITION ID)? '\S+')"
        r"(?: FROM (?P<source>\S+)\.snapshot_id_(?P<snapshot>\d+))?(?: TO TABLE (?P<to>\S+))?",
        text,
    )
    assert found is not None, text
    on = LakeName.parse(found["on"])
    which = which_of(world, found["which"])
    if found["to"]:
        assert isinstance(which, OnePartition)
        world.moving(on, LakeName.parse(found["to"])).run(which)
    elif found["snapshot"]:
        assert not isinstance(which, OnePart)
        replaces, at = found["act"] == "REPLACE", int(found["snapshot"])
        assert found["source"] == found["on"]
        world.copy(on, on, which=which, replaces=replaces, snapshot_id=at)
    else:
        assert found["act"] == "ATTACH"
        world.run(Attach(which), on)


def which_of(world: TwoSources, text: str) -> OnePartition | AllPartitions | OnePart:
    """Return what a statement is about."""
    if text in ("PARTITION ALL", str(P1)):
        return AllPartitions() if text == "PARTITION ALL" else P1
    paths = (*world.paths(), *world.paths("detached"))
    return next(part for path in paths if str(part := world.part(path)) == text)


NAMED = [
    (act, situation)
    for situation in ("as exported", "another source", "foreign rows there")
    for act in STATEMENTS
    if (act, situation) != ("replace from source", "another source")
    and act not in ("move", "export whole")
]
"""Where an undo has to be named."""


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("act", STATEMENTS)
def test_the_named_undo_restores_exactly_what_was_there(
    tmp_path: Path, act: str, situation: str
) -> None:
    """Harm prevented: an undo that is refused, takes other rows along, or adds some twice."""
    world = prepared(tmp_path)
    SITUATIONS[situation](world)
    if act == "move to empty":
        world.run(Drop(AllPartitions()), OTHER)
    before = world.all_rows
    try:
        done = STATEMENTS[act](world)
    except RefusedError:
        return
    if not done.undo:
        assert (act, situation) not in NAMED
        says_why = done.left_files > 0 and not act.startswith("export")
        assert says_why == (NOTHING_NAMED in done.message)
        return

    undone(world, done.undo)

    assert world.all_rows == before


@pytest.mark.parametrize(
    ("situation", "statement", "why"),
    [
        ("deleted rows", Drop(P1), "are deleted by delete files"),
        ("rows of two partitions", Drop(AllPartitions()), "rows of several partitions"),
        ("detached part", Detach(P1), "ATTACH would also return what was detached before"),
        ("another spec", Drop(P1), "has an earlier partition spec"),
        ("main moved back", Detach(P1), "ATTACH may be refused"),
    ],
)
def test_a_dry_run_says_as_the_run_that_nothing_undoes_it(
    tmp_path: Path, situation: str, statement: Drop | Detach, why: str
) -> None:
    """Harm prevented: a user relies on an undo, and learns after the DROP that there is none."""
    world = prepared(tmp_path)
    SITUATIONS[situation](world)
    main = world.main()

    dry = world.ready().forecast(statement)
    done = world.run(statement)

    for outcome in (dry, done):
        assert outcome.undo == ""
        assert NOTHING_NAMED in outcome.message
        assert why in outcome.message
    assert f"snapshot {main} has the rows" in done.message or "ATTACH PART returns" in done.message


def test_the_parts_of_a_detach_return_one_by_one(tmp_path: Path) -> None:
    """Harm prevented: the advice in place of an undo returns other rows, or none."""
    world = prepared(tmp_path)
    _detached_and_exported(world)
    before = world.all_rows

    done = world.run(Detach(P1))

    named = re.findall(r"p1_\w+", done.message)
    assert len(named) == 2
    for name in named:
        world.run(Attach(OnePart(PartName.parse(name))))
    assert world.all_rows == before


@pytest.mark.parametrize("finds", ["rows of others", "nothing", "other columns"])
def test_a_dry_move_says_whether_it_can_be_moved_back(tmp_path: Path, finds: str) -> None:
    """Harm prevented: a MOVE back takes rows along that were in the other table before."""
    world = prepared(tmp_path)
    if finds != "rows of others":
        world.run(Drop(P1), OTHER)
    moving = world.moving()
    if finds == "other columns":
        moving = replace(moving, check_back=_refuses)

    dry, done = moving.forecast(P1), moving.run(P1)

    is_named = finds == "nothing"
    assert [NOTHING_NAMED in one.message for one in (dry, done)] == [not is_named] * 2
    assert (done.undo != "") == is_named


def _refuses(*_states: object) -> None:
    message = "Cannot move: the tables differ."
    raise RefusedError(message)
