"""ATTACH and REPLACE PARTITION … FROM a ClickHouse table, in the small world."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from pyiceberg.table.snapshots import Operation

from tableformat.effects import Effects, Step
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts
from tableformat.export.request import ById, ExportOptions
from tableformat.ledger import LeaseHeld, Owner, Row, StatementKind
from tableformat.names import PartitionId
from tableformat.operations.replace_from_clickhouse import LandingReplaced
from tests.faults.test_operator_actions import move_main
from tests.support.cleaning_up import left_behind
from tests.support.dying import Dies, DiesAt, KilledAt
from tests.support.fakes import TABLE
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    add_foreign,
    drop,
    in_files,
    partition,
    running,
)
from tests.support.scenarios import (
    AtStep,
    Partitions,
    ledger_of,
    ledger_rows,
    parts_of,
    ports_of,
    pyiceberg,
    rows_in_main,
    state,
)
from tests.support.tiers import share_of

T = TypeVar("T")
P1 = ById(PartitionId("p1"))
REPLACE = replace(
    IN_FILES,
    selection=P1,
    options=ExportOptions(force=True, of_statement=StatementKind.REPLACE_FROM),
)
ATTACH = replace(
    IN_FILES, selection=P1, options=ExportOptions(of_statement=StatementKind.ATTACH_FROM)
)
IN_P1 = ForeignPartitions(rest="p1")


class Neighbour(Partitions):
    """Another table, of other rows of p1."""

    def __init__(self, rows: int = 4) -> None:
        super().__init__(table=replace(TABLE, identity="another table"))
        self.by_id = {"p1": parts_of("p1", rows)}


class Late:
    """Effects of a process that dies with its first request, which arrives later."""

    def __init__(self) -> None:
        self.requests: list[Callable[[], object]] = []

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        if self.requests or step is Step.SEND:
            self.requests.append(act)
            raise Dies
        return act()


def bring(
    directory: Path,
    source: Partitions,
    *,
    attaches: bool = False,
    effects: Effects | None = None,
    rows: ForeignPartitions = IN_P1,
) -> Outcome:
    """Run the statement about p1 as a new process; return the outcomes of its export."""
    ports = ports_of(directory, source, effects=effects)
    ready = running(directory, effects=effects, rows=rows)
    owned = replace(ready.ports, owner=ports.owner, is_alive=ports.is_alive)
    landing = LandingReplaced(replace(ready, ports=owned), partition("p1"), "ch.db.t")
    ports = ports if attaches else replace(ports, landing=landing.land)
    request = ATTACH if attaches else REPLACE
    (done,) = exported(request, ports)
    return done


def exported(request: ExportRequest, ports: JobPorts) -> list[Outcome]:
    """Export, and release the ledger."""
    with contextlib.closing(ports.ledger):
        return list(export(request, ports, slots=1))


def later(directory: Path, source: Partitions, request: ExportRequest = IN_FILES) -> list[Status]:
    """Export after the time to live of every export."""
    ports = ports_of(directory, source, clock=LATER.__next__)
    return [one.status for one in exported(request, ports)]


def snapshots(directory: Path) -> int:
    return len(pyiceberg(directory).metadata.snapshots)


def statements(directory: Path) -> int:
    """Return how many snapshots say that REPLACE made them."""
    found = pyiceberg(directory).metadata.snapshots
    texts = [s.summary.additional_properties.get("mergeberg.statement") for s in found if s.summary]
    return sum(one == "REPLACE PARTITION ID 'p1' FROM ch.db.t" for one in texts)


def neighbour_row(directory: Path) -> Row:
    (found,) = (r for r in ledger_rows(directory) if r.key.source == "another table")
    return found


def filled(directory: Path) -> Partitions:
    """Make a lake table with p1 (12 rows, 4 of a neighbour, 5 of others) and p2 (3)."""
    made = in_files(directory)
    alongside = replace(IN_FILES, options=ExportOptions(overwrite_file_if_exists=True))
    assert later(directory, Neighbour(), alongside) == [Status.COMMITTED]
    add_foreign(directory, 5)
    assert rows_in_main(directory) == 24
    made.by_id["p1"] = parts_of("p1", 20)
    return made


def test_everything_else_leaves_in_the_snapshot_that_brings_the_export(tmp_path: Path) -> None:
    """Of whatever key, and rows of others; the ledger knows of each key that left why."""
    source = filled(tmp_path)
    before = snapshots(tmp_path)

    done = bring(tmp_path, source)

    assert (done.status, done.rows) == (Status.REPLACED, 20)
    assert (rows_in_main(tmp_path), snapshots(tmp_path)) == (23, before + 1)
    made = pyiceberg(tmp_path).current_snapshot()
    assert made is not None
    assert made.summary is not None
    assert made.summary.operation is Operation.OVERWRITE
    changed = neighbour_row(tmp_path).changed
    assert changed is not None
    assert changed.statement == "REPLACE PARTITION ID 'p1' FROM ch.db.t"
    assert later(tmp_path, source) == [Status.UNCHANGED, Status.UNCHANGED]
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("of_key", [False, True], ids=["rows of others", "another key"])
def test_what_lands_meanwhile_leaves_too(tmp_path: Path, *, of_key: bool) -> None:
    """With the request, when the plan is made long since."""
    source = filled(tmp_path)

    def visit() -> None:
        if of_key:
            third = Neighbour(9)
            third.table = replace(TABLE, identity="a third table")
            alongside = replace(IN_FILES, options=ExportOptions(overwrite_file_if_exists=True))
            assert later(tmp_path, third, alongside) == [Status.COMMITTED]
        else:
            add_foreign(tmp_path, 6)

    done = bring(tmp_path, source, effects=AtStep(Step.SEND, visit))

    assert done.status is Status.REPLACED
    assert rows_in_main(tmp_path) == 23


def test_the_export_alone_that_lands_by_an_older_request_is_finished(tmp_path: Path) -> None:
    """Harm prevented: the export is there, and what it was to replace, too."""
    source, late = filled(tmp_path), Late()
    plain = replace(REPLACE, options=ExportOptions(force=True))
    with pytest.raises(Dies):
        exported(plain, ports_of(tmp_path, source, effects=late))

    done = bring(tmp_path, source, effects=AtStep(Step.STAGE, late.requests[0]))

    assert (done.status, done.rows) == (Status.COMMITTED, 20)
    assert rows_in_main(tmp_path) == 23
    assert later(tmp_path, source) == [Status.UNCHANGED, Status.UNCHANGED]


def test_a_run_on_a_key_that_would_leave_holds_it_back_and_files_stay(tmp_path: Path) -> None:
    source = filled(tmp_path)
    key = neighbour_row(tmp_path).key.hash
    other = Owner("elsewhere", 1, "now")
    with contextlib.closing(ledger_of(tmp_path)) as ledger:
        lease = ledger.take_lease(key, other, 600)
    assert not isinstance(lease, LeaseHeld)
    before = rows_in_main(tmp_path)
    ready = replace(ports_of(tmp_path, source), is_alive=lambda _: True)
    run_of = running(tmp_path, rows=IN_P1)
    alive = replace(run_of.ports, owner=ready.owner, is_alive=ready.is_alive)
    landing = LandingReplaced(replace(run_of, ports=alive), partition("p1"), "ch.db.t")

    (done,) = exported(REPLACE, replace(ready, landing=landing.land))

    assert done.status is Status.REFUSED
    assert "elsewhere" in done.message
    assert rows_in_main(tmp_path) == before
    with contextlib.closing(ledger_of(tmp_path)) as ledger:
        ledger.release(lease)
    frozen = source.snapshots
    assert bring(tmp_path, source).status is Status.REPLACED
    assert rows_in_main(tmp_path) == 23
    assert source.snapshots == frozen


def test_what_an_interrupted_run_had_frozen_is_not_what_is_brought(tmp_path: Path) -> None:
    """Harm prevented: the partition is the source's of yesterday."""
    source = filled(tmp_path)
    with pytest.raises(Dies):
        bring(tmp_path, source, effects=KilledAt(Step.STAGE))
    source.by_id["p1"] = parts_of("p1", 7)

    done = bring(tmp_path, source)

    assert (done.status, done.rows) == (Status.REPLACED, 7)
    assert rows_in_main(tmp_path) == 10


@pytest.mark.soak  # tests/faults/test_statement_crashes.py tries each statement so.
@pytest.mark.parametrize(
    "after",
    [pytest.param(False, id="before", marks=pytest.mark.soak), pytest.param(True, id="after")],
)
@pytest.mark.parametrize(
    "attaches",
    [
        pytest.param(False, id="replace"),
        # As of any export: tests/faults/test_crash_at_every_step.py.
        pytest.param(True, id="attach", marks=pytest.mark.soak),
    ],
)
def test_a_death_at_any_effect_and_the_same_statement_again(
    tmp_path: Path, *, after: bool, attaches: bool
) -> None:
    """Harm prevented: a partition that is there in part, or twice, or brought by two snapshots."""

    def prepared(directory: Path) -> Partitions:
        if not attaches:
            return filled(directory)
        made = in_files(directory)
        running(directory).run(drop("p1"))
        return made

    prepared(tmp_path / "count")
    counting = DiesAt(10_000, after=False)
    bring(tmp_path / "count", prepared(tmp_path / "counted"), attaches=attaches, effects=counting)
    assert {Step.CLAIM, Step.SEND, Step.SETTLE} <= set(counting.steps)
    whole = 15 if attaches else 23
    # What leads to the claim is that of any export, and is gone through by the other cases.
    first = counting.steps.index(Step.CLAIM) if after and not attaches else 0
    for number, step in share_of(list(enumerate(counting.steps))[first:]):
        directory = tmp_path / str(number)
        source = prepared(directory)
        before = rows_in_main(directory)
        with pytest.raises(Dies):
            bring(directory, source, attaches=attaches, effects=DiesAt(number, after=after))
        assert rows_in_main(directory) in (before, whole), step

        done = bring(directory, source, attaches=attaches)

        assert done.status in (Status.COMMITTED, Status.REPLACED, Status.UNCHANGED), step
        assert rows_in_main(directory) == whole, step
        assert statements(directory) == (not attaches), step
        assert later(directory, source) == [Status.UNCHANGED, Status.UNCHANGED], step
        assert left_behind(directory) == [], step


def test_rows_that_come_back_during_an_attach_are_not_doubled_nor_replaced(
    tmp_path: Path,
) -> None:
    """Harm prevented: main is moved back to where the rows are, and the attached ones follow."""
    source = in_files(tmp_path)
    before = state(tmp_path).main
    running(tmp_path).run(drop("p1"))

    def visit() -> None:
        move_main(tmp_path, before)

    done = bring(tmp_path, source, attaches=True, effects=AtStep(Step.NOTE_WRITTEN, visit))

    assert done.status is Status.REFUSED
    assert "could be there twice" in done.message
    assert rows_in_main(tmp_path) == 15


@pytest.mark.parametrize("changed", [False, True])
def test_attach_is_done_where_its_rows_are_and_refused_where_others_are(
    tmp_path: Path, *, changed: bool
) -> None:
    source = in_files(tmp_path)
    if changed:
        source.by_id["p1"] = parts_of("p1", 20)
    before = snapshots(tmp_path)

    done = bring(tmp_path, source, attaches=True)

    assert done.status is (Status.REFUSED if changed else Status.UNCHANGED)
    assert ("Use REPLACE PARTITION" in done.message) is changed
    assert (rows_in_main(tmp_path), snapshots(tmp_path)) == (15, before)
