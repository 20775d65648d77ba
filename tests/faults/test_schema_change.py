"""`--evolve-schema` and what may happen meanwhile: columns once, rows once, or a refusal."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField, StringType

from catalog.iceberg.catalogs import open_catalog
from catalog.iceberg.table import IcebergTable
from catalog.ledgers.sqlite import SqliteLedger
from tableformat.committer import LakeTableState, SchemaChange, Sent
from tableformat.effects import Effects, Step
from tableformat.errors import RefusedError
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome, Status
from tableformat.export.request import ById, ExportOptions
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import State
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import Simple
from tableformat.names import LakeName, PartitionId, TableName
from tests.enumeration.oracle import check_values, look
from tests.enumeration.scenarios import World
from tests.enumeration.values import NARROW, ValuedParts, valued
from tests.support.dying import Dies, DiesAt, SentLate
from tests.support.fakes import TABLE, FakeSource, job_ports
from tests.support.scenarios import ALL, AtStep

TO = LakeName("lake", ("n",), "t")
REQUEST = ExportRequest(
    TableName("db", "t"), TO, ById(PartitionId("all")), ExportOptions(), {}, evolve_schema=True
)
WIDENING = replace(ALL, evolve_schema=True)
LATER = (Column("later", Simple("Int64"), "Int64"), Column("s", Simple("String"), "String"))
WIDE = replace(TABLE, columns=(*TABLE.columns, *LATER))


def make_table(directory: Path) -> None:
    """Make the destination as it was before the source got two columns more."""
    open_catalog("lake", warehouse=directory / "warehouse").create(
        TO,
        schema=Schema(NestedField(1, "n", LongType(), required=True)),
        spec=UNPARTITIONED_PARTITION_SPEC,
        order=UNSORTED_SORT_ORDER,
        properties={"format-version": "2"},
    )


def run(directory: Path, effects: Effects | None = None) -> list[Outcome]:
    """Run the command as a new process."""
    clock = itertools.count(1_000_000).__next__
    ports = job_ports(directory, FakeSource(table=WIDE), effects=effects, clock=clock)
    with contextlib.closing(ports.ledger):
        return list(export(REQUEST, ports, slots=1))


def lake(directory: Path) -> Table:
    """Return the destination as another engine opens it."""
    catalog = open_catalog("lake", warehouse=directory / "warehouse").catalog
    return catalog.load_table(TO.identifier)


def assert_grown_and_exported_once(directory: Path, *columns: str) -> None:
    """Check that the table has each column once, as optional, and the rows once."""
    table = lake(directory)
    assert tuple(f.name for f in table.schema().fields) == ("n", *columns)
    assert not any(f.required for f in table.schema().fields[1:])
    assert len({f.field_id for f in table.schema().fields}) == len(columns) + 1
    assert sum(task.file.record_count for task in table.scan().plan_files()) == 12
    with contextlib.closing(SqliteLedger(directory / "ledger.db")) as ledger:
        (row,) = ledger.rows()
    assert (row.state, len(row.landed)) == (State.COMPLETED, 1)


def _steps() -> list[Step]:
    recorder = DiesAt(10_000, after=False)
    with tempfile.TemporaryDirectory() as name:
        make_table(Path(name))
        run(Path(name), recorder)
        assert_grown_and_exported_once(Path(name), "later", "s")
    return recorder.steps


STEPS = _steps()


def test_the_columns_are_there_before_anything_is_claimed_or_written() -> None:
    """Harm prevented: files for a schema that the table never gets."""
    assert STEPS.count(Step.EVOLVE_SCHEMA) == 1
    assert STEPS.index(Step.EVOLVE_SCHEMA) < min(
        STEPS.index(s) for s in (Step.FIRST_SNAPSHOT, Step.CLAIM, Step.WRITE_FILES)
    )


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(len(STEPS)), ids=[f"{i}-{s}" for i, s in enumerate(STEPS)])
def test_a_crash_and_the_same_command_again_adds_and_exports_once(
    tmp_path: Path, number: int, *, after: bool
) -> None:
    """Harm prevented: a second column of the same name, or rows twice."""
    make_table(tmp_path)
    with pytest.raises(Dies):
        run(tmp_path, DiesAt(number, after=after))

    (outcome,) = run(tmp_path)

    assert outcome.status in (Status.COMMITTED, Status.ALREADY_EXPORTED)
    assert_grown_and_exported_once(tmp_path, "later", "s")
    assert len(lake(tmp_path).schemas()) == 2


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [Step.OPEN_TABLE, Step.EVOLVE_SCHEMA, Step.CLAIM])
def test_another_run_that_adds_the_same_columns_meanwhile(
    tmp_path: Path, step: Step, *, after: bool
) -> None:
    """Harm prevented: two runs at once add each column twice."""
    make_table(tmp_path)
    others: list[Outcome] = []

    run(tmp_path, AtStep(step, lambda: others.extend(run(tmp_path)), after=after))

    assert [o.status for o in others] == [Status.COMMITTED]
    assert_grown_and_exported_once(tmp_path, "later", "s")
    assert len(lake(tmp_path).schemas()) == 2


def test_a_column_that_another_writer_adds_stays_and_ours_come_after_it(
    tmp_path: Path,
) -> None:
    """Harm prevented: two columns with one id, after which one shows the other's values."""
    make_table(tmp_path)

    def add() -> None:
        with lake(tmp_path).update_schema() as update:
            update.add_column("theirs", StringType())

    run(tmp_path, AtStep(Step.EVOLVE_SCHEMA, add))

    assert_grown_and_exported_once(tmp_path, "theirs", "later", "s")


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (Step.EVOLVE_SCHEMA, "column n is long for ClickHouse and string"),
        (Step.FIRST_SNAPSHOT, "the table changed while it was opened"),
    ],
)
def test_another_writers_change_that_forbids_the_export_is_a_refusal(
    tmp_path: Path, step: Step, why: str
) -> None:
    """Harm prevented: files for a table that has become another one."""
    make_table(tmp_path)

    def change() -> None:
        with lake(tmp_path).update_schema() as update:
            update.delete_column("n")
            update.add_column("n", StringType())

    with pytest.raises(RefusedError, match=why):
        run(tmp_path, AtStep(step, change))

    assert list(SqliteLedger(tmp_path / "ledger.db").rows()) == []
    assert lake(tmp_path).schema().find_type("n") == StringType()


def test_nothing_is_added_to_a_table_that_would_be_refused_all_the_same(tmp_path: Path) -> None:
    """Every other difference is reported first; the table stays as it is."""
    make_table(tmp_path)
    with lake(tmp_path).update_schema(allow_incompatible_changes=True) as update:
        update.add_column("needed", StringType(), required=True)
    before = lake(tmp_path).metadata_location

    with pytest.raises(RefusedError, match="needed is required in the destination") as refused:
        run(tmp_path)

    assert "missing" not in refused.value.message
    assert lake(tmp_path).metadata_location == before


class Responding:
    """Effects that change the responses to a change of the schema."""

    def __init__(self, respond: Callable[[Callable[[], Any]], Any]) -> None:
        self._respond = respond
        self.asked = 0

    def __call__(self, step: Step, act: Callable[[], Any], /) -> Any:
        if step is not Step.EVOLVE_SCHEMA:
            return act()
        self.asked += 1
        return self._respond(act)


def test_the_result_of_a_lost_response_is_looked_up(tmp_path: Path) -> None:
    """Harm prevented: the same columns are asked for again although they are there."""
    make_table(tmp_path)

    def lost(act: Callable[[], Any]) -> Sent:
        act()
        return Sent(applied=False, error="the answer was lost")

    effects = Responding(lost)
    run(tmp_path, effects)

    assert effects.asked == 1
    assert_grown_and_exported_once(tmp_path, "later", "s")


def test_a_catalog_that_never_takes_the_change_ends_in_a_refusal(tmp_path: Path) -> None:
    """Harm prevented: a run that asks for ever."""
    make_table(tmp_path)
    effects = Responding(lambda _: Sent(applied=False, error="500: no"))

    with pytest.raises(RefusedError, match=r"10 requests were sent.*the last response: 500: no"):
        run(tmp_path, effects)

    assert effects.asked == 10
    assert [f.name for f in lake(tmp_path).schema().fields] == ["n"]


def test_a_request_that_is_late_never_applies_on_top_of_another_change(tmp_path: Path) -> None:
    """It requires the schema and the last id that it was made from."""
    make_table(tmp_path)
    table = open_catalog("lake", warehouse=tmp_path / "warehouse").table(TO)
    assert isinstance(table, IcebergTable)
    state: LakeTableState = table.load()
    schema = table_of(state).schema()
    grown = Schema(*schema.fields, NestedField(2, "late", LongType()))
    change = SchemaChange(grown.model_dump_json(), ("late (long)",), (("k", "v"),))

    assert table.evolve(state, change) == Sent(applied=True)
    again = table.evolve(state, change)

    assert not again.applied
    assert "CommitFailedException" in again.error
    assert [f.name for f in lake(tmp_path).schema().fields] == ["n", "late"]
    assert lake(tmp_path).properties["k"] == "v"


def narrow_world(directory: Path) -> World:
    """Make a world with a table of one int column, without a row."""
    world = World(directory, ValuedParts(table=NARROW, by_id={"p0": valued("p0", 1)}))
    world.run(ALL)
    world.source.by_id["p1"] = valued("p1", 7, 5)
    return world


def widen(world: World) -> None:
    """Let the source have a long, and rows that need it."""
    world.source.table = TABLE
    world.source.by_id["p1"] = valued("p1", 7, 5, late=2)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_request_for_narrow_files_that_is_late_never_doubles_rows(
    tmp_path: Path, *, after: bool
) -> None:
    """It lands before the type is widened, or never."""
    world = narrow_world(tmp_path)
    late = SentLate()
    with pytest.raises(Dies):
        world.run(ALL, effects=late)
    widen(world)

    world.run(WIDENING, effects=AtStep(Step.EVOLVE_SCHEMA, late.arrive, after=after))
    world.now += ALL.options.manifest_ttl * 1000
    (_, last) = world.run(WIDENING).outcomes

    assert last.status in (Status.REPLACED, Status.UNCHANGED)
    end = look(world)
    check_values(world, end)
    assert end.columns == ((1, "n", "long", True),)


@pytest.mark.parametrize("step", [Step.CLAIM, Step.WRITE_FILES, Step.SEND])
def test_a_type_that_others_widen_while_narrow_files_are_written(
    tmp_path: Path, step: Step
) -> None:
    """Harm prevented: rows twice, or files that nobody reads, of a run that read the old table."""
    world = narrow_world(tmp_path)
    narrow = world.source.table

    def meanwhile() -> None:
        widen(world)
        others.extend(world.run(WIDENING, others_live=True).outcomes)
        world.source.table = narrow

    others: list[Outcome] = []
    outcomes = world.run(ALL, effects=AtStep(step, meanwhile)).outcomes

    assert others[-1].status is Status.IN_PROGRESS
    assert outcomes[-1].status in (Status.FAILED, Status.REFUSED, Status.UNKNOWN, Status.COMMITTED)
    now = look(world)
    assert ("p1" in now.values) == (outcomes[-1].status is Status.COMMITTED)
    widen(world)
    for _ in range(2):
        world.run(WIDENING)
        world.now += ALL.options.manifest_ttl * 1000
    check_values(world, look(world))
