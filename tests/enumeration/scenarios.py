"""What is enumerated: exports in a small world that can be put back to where they begin.

A scenario prepares a world, and then one command is run in it, which a fault meets somewhere
(`faults.py`). Everything is in memory but the ledger and the lake, and all of it outlives the
processes that act on it.
"""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
from pyiceberg.manifest import clear_manifest_cache

from catalog.iceberg.table import IcebergTable
from tableformat.effects import Direct, Effects, Step
from tableformat.errors import InternalError, TableFormatError
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts, Lake, Writing
from tableformat.export.request import ById, ExportOptions
from tableformat.export.slices import FileFormat, Slice, SliceTask, WritePlan
from tableformat.ledger import Ledger
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import PartitionId
from tableformat.storage import Storage
from tests.enumeration.values import (
    NARROW,
    WIDE,
    ReadDigests,
    ValuedParts,
    parquet,
    rewritten,
    valued,
)
from tests.places.found import place_at
from tests.places.place import Place
from tests.support.dying import Dies
from tests.support.fakes import TABLE, FakeWriter, job_ports
from tests.support.lake import make_table_in
from tests.support.other_engines import rewrite
from tests.support.scenarios import ALL, AtStep, Partitions, lake, parts_of, pyiceberg

__all__ = ["FOREIGN", "SCENARIOS", "Piece", "Prepared", "Ran", "Scenario", "World"]

Piece = tuple[str, tuple[tuple[str, str, int | None, int | None], ...]]
"""Rows of the source that are one file: their partition and ranges of parts."""

FOREIGN: Final = 4
"""Rows that another engine appends where a scenario says so."""
_TTL: Final = 180_000
_MANY: Final = 1_000_000
_SMALL_FILES: Final = FileFormat(target_file_bytes=80)
_ALL: Final = replace(ALL, format=_SMALL_FILES)
_COMPARED: Final = replace(_ALL, options=ExportOptions(check_rows=True))
_EVOLVING: Final = replace(_ALL, evolve_schema=True)
_INCREMENTAL: Final = replace(_ALL, options=ExportOptions(incremental=True))
_ONE: Final = replace(_ALL, selection=ById(PartitionId("p1")))


@dataclass(frozen=True, slots=True)
class Ran:
    """The outcomes of a run that did not die, and the error that ended it."""

    outcomes: tuple[Outcome, ...]
    error: TableFormatError | None


@dataclass
class World:
    """Everything outside the processes. `written` counts how often rows became a file.

    `directory` stands for the place of lake and ledger. `effects` is how the effects of all
    processes are performed: what others do meanwhile is there. `verifies`: exports are verified.
    """

    directory: Path
    source: Partitions = field(default_factory=Partitions)
    verifies: bool = False
    now: int = 1_700_000_000_000
    written: Counter[Piece] = field(default_factory=Counter)
    effects: Effects = field(default_factory=Direct)
    place: Place = field(init=False)

    def __post_init__(self) -> None:
        """Find the place."""
        self.place = place_at(self.directory)

    def clock(self) -> int:
        """Return a time that was never returned before."""
        self.now += 1
        return self.now

    def lake(self) -> Lake:
        """Open what has the destination, for a new process."""
        return self.place.lake()

    def table(self) -> IcebergTable:
        """Return the lake table as it is."""
        return lake(self.directory)

    def outside(self) -> object:
        """Return what a process that dies leaves, to compare: files, ledger, and the source."""
        return self.place.outside(), repr(self.source), self.written.total()

    def run(
        self,
        request: ExportRequest,
        *,
        effects: Effects | None = None,
        others_live: bool = False,
        most_files: int = _MANY,
    ) -> Ran:
        """Run the command as a new process.

        Args:
            request: the command.
            effects: the port to the outside, that of all processes when None.
            others_live: it takes every other process for a living one, else for a dead one.
            most_files: it dies when it has written so many.

        Raises:
            Dies: it did.
        """
        effects = effects or self.effects
        ports = job_ports(self.directory, self.source, effects=effects, clock=self.clock)
        own = f"job{ports.owner.pid}"
        ports = replace(
            ports,
            lake=self.lake(),
            job=own,
            job_is_alive=lambda job: others_live or job in ("job", own),
            writer=lambda: self._writer(ports.storage, most_files),
        )
        ports = self._comparing(ports, check_rows=request.options.check_rows)
        if others_live:
            ports = replace(ports, is_alive=lambda _: True)
        outcomes: list[Outcome] = []
        with self._ending(ports.ledger):
            try:
                outcomes.extend(export(request, ports, slots=1))
            except InternalError:
                raise
            except TableFormatError as error:
                return Ran(tuple(outcomes), error)
        return Ran(tuple(outcomes), None)

    def _writer(self, storage: Callable[[str], Storage], most_files: int) -> FakeWriter:
        writer = _ValuesWriter if isinstance(self.source, ValuedParts) else _CountingWriter
        return writer(storage, self.written, most_files)

    def _comparing(self, ports: JobPorts, *, check_rows: bool) -> JobPorts:
        """Return the ports with what reads files, where anything is compared."""
        digests = ReadDigests(ports.storage)
        return replace(
            ports,
            digests=digests if self.verifies else None,
            compares=digests if self.verifies or check_rows else None,
        )

    @contextlib.contextmanager
    def _ending(self, ledger: Ledger) -> Iterator[None]:
        """Close the ledger of a process, unless that dies."""
        with contextlib.ExitStack() as stack:
            stack.callback(ledger.close)
            try:
                yield
            except Dies:
                stack.pop_all()
                self.place.dies(ledger)
                raise


class _CountingWriter(FakeWriter):
    """Counts the files that it writes, and dies when they are enough."""

    def __init__(
        self, storage: Callable[[str], Storage], written: Counter[Piece], most: int
    ) -> None:
        super().__init__(storage=storage)
        self._written, self._left = written, most

    def content(self, piece: Slice) -> bytes:
        if self._left == 0:
            raise Dies
        self._left -= 1
        rows = tuple((r.source_name, r.hash_of_all_files, r.start, r.stop) for r in piece.ranges)
        self._written[piece.partition_id, rows] += 1
        return super().content(piece)


class _ValuesWriter(_CountingWriter):
    """Writes Parquet with the values of the rows."""

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        self._plan = plan
        return super().write(plan, tasks, on_rows=on_rows, should_stop=should_stop)

    def content(self, piece: Slice) -> bytes:
        super().content(piece)
        return parquet(self._plan, piece)


def _nothing(_world: World) -> None:
    """Begin with an empty warehouse."""


def _direct(_world: World) -> Effects:
    return Direct()


def _hashed(parts: Mapping[str, tuple[int, ...]]) -> Partitions:
    return Partitions(by_id={name: parts_of(name, *rows) for name, rows in parts.items()})


def _valued(parts: Mapping[str, tuple[int, ...]]) -> Partitions:
    return ValuedParts(by_id={name: valued(name, *rows) for name, rows in parts.items()})


@dataclass(frozen=True, slots=True)
class Scenario:
    """A command in a prepared world.

    `meddle` gives the effects of all processes: what others do meanwhile.
    `repeats`: the command exports again what it finds exported.
    `did`: the outcome of each partition, in their order; where there is none, any.
    `verifies`: it verifies what it exports.
    """

    name: str
    request: ExportRequest
    parts: Mapping[str, tuple[int, ...]]
    prepare: Callable[[World], None] = _nothing
    meddle: Callable[[World], Effects] = _direct
    repeats: bool = False
    did: tuple[Status, ...] = ()
    verifies: bool = False
    source: Callable[[Mapping[str, tuple[int, ...]]], Partitions] = _hashed

    def world(self, directory: Path) -> World:
        """Make the world in which it begins."""
        world = World(directory, self.source(self.parts), self.verifies)
        self.prepare(world)
        return world


class InWorld(Protocol):
    """What is done in a world that is prepared."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def world(self, directory: Path) -> World:
        """Make the world in which it begins."""
        ...

    @property
    def meddle(self) -> Callable[[World], Effects]:
        """What returns the effects of all processes."""
        ...


class Prepared:
    """A scenario's world, made once and put back for each case.

    It is always in the same place, because a lake's metadata name their files in full.
    """

    def __init__(self, scenario: InWorld, directory: Path) -> None:
        """Make the world in an existing directory, or where that says, and keep a copy."""
        self.scenario = scenario
        self._world = scenario.world(directory)
        self._kept = self._world.place.keep()

    def world(self) -> World:
        """Return the world as it was prepared; the one returned before is gone."""
        self._world.place.put_back(self._kept)
        # Manifests of the same names come again, with other content.
        clear_manifest_cache()
        world = copy.copy(self._world)
        world.source, world.written = copy.deepcopy((world.source, world.written))
        world.effects = self.scenario.meddle(world)
        return world


def _exported_before(world: World) -> None:
    """Export both partitions; then the record's time is over, and p1 has grown."""
    world.run(_ALL)
    world.now += _TTL
    world.source.by_id["p1"] = parts_of("p1", 7, 5, 2)
    world.written.clear()


def _shrunk(world: World) -> None:
    """Export both partitions; then p1 loses a part."""
    world.run(_ALL)
    world.source.by_id["p1"] = parts_of("p1", 7)
    world.written.clear()


def _rewritten(world: World) -> None:
    """Export p1; others rewrite its rows under names of their own, and append; p1 grows."""
    world.run(_ONE)
    rewrite(world.directory)
    _append(world)
    world.source.by_id["p1"] = parts_of("p1", 7, 5, 2)
    world.written.clear()


def _interrupted(world: World) -> None:
    """Die when two of four files are written; rows are inserted afterwards."""
    try:
        world.run(_ALL, most_files=2)
    except Dies:
        world.source.by_id["p3"] = parts_of("p3", 4)
        return
    message = "The writer did not die, so that there is nothing to go on with."
    raise AssertionError(message)


def _left_by_a_dead_one(world: World) -> None:
    """Die when a file is written; what was frozen is lost, and rows are inserted."""
    try:
        world.run(_ALL, most_files=1)
    except Dies:
        world.source.left.clear()
        world.source.by_id["p1"] = parts_of("p1", 7, 5, 2)
        world.written.clear()
        return
    message = "The writer did not die, so that nothing is left of it."
    raise AssertionError(message)


def _lacks_a_column(world: World) -> None:
    make_table_in(world.place.lake())
    world.source.table = WIDE


def _mutated(world: World) -> None:
    """Export both partitions; then a mutation writes their parts again and changes no row."""
    world.run(_ALL)
    world.source.by_id |= {name: rewritten(held) for name, held in world.source.by_id.items()}
    world.written.clear()


def _mutated_and_changed(world: World) -> None:
    """Export both partitions; a mutation changes the rows of p2; p3 comes; the TTL is over."""
    p1, p2 = world.source.by_id["p1"], world.source.by_id["p2"]
    world.run(_ALL)
    world.now += _TTL
    changed = {"p1": rewritten(p1), "p2": rewritten(p2, other_rows=True), "p3": valued("p3", 4)}
    world.source.by_id |= changed
    world.written.clear()


def _widened(world: World, to: MergeTreeTable = TABLE) -> None:
    """Export both partitions; the column gets a wider type, and p1 rows that need it."""
    world.source.table = NARROW
    world.run(_ALL)
    world.now += _TTL
    world.source.table = to
    world.source.by_id["p1"] = valued("p1", 7, 5, late=2)
    world.written.clear()


def _widened_and_added(world: World) -> None:
    """Do the same, and add a column."""
    _widened(world, WIDE)


def _widened_and_mutated(world: World) -> None:
    """Do the same, and ClickHouse has written the parts of p2 again for the type."""
    _widened(world)
    world.source.by_id["p2"] = rewritten(world.source.by_id["p2"])


def _interrupted_then_widened(world: World) -> None:
    """Die when two of four files are written; then the source gets a wider type and a column."""
    world.source.table = NARROW
    _interrupted(world)
    world.source.table = WIDE
    del world.source.by_id["p3"]
    world.written.clear()


def _got_new_parts(world: World) -> None:
    """Export both partitions; then the record's time is over, and p1 has two more parts."""
    world.run(_ALL)
    world.now += _TTL
    world.source.by_id["p1"] = valued("p1", 7, 5, 6, 4)
    world.written.clear()


def _interrupted_with_new_parts(world: World) -> None:
    """Do the same, and die when one of the two new parts is written."""
    _got_new_parts(world)
    try:
        world.run(_INCREMENTAL, most_files=1)
    except Dies:
        return
    message = "The writer did not die, so that there is nothing to go on with."
    raise AssertionError(message)


def _mutated_after_a_dead_one(world: World) -> None:
    """Do the same; then a mutation writes all parts again, and what was frozen is lost."""
    _interrupted_with_new_parts(world)
    world.source.left.clear()
    world.source.by_id["p1"] = rewritten(world.source.by_id["p1"], other_rows=True)
    world.written.clear()


def _append(world: World) -> None:
    table = pyiceberg(world.directory)
    table.append(pa.table([pa.array(range(FOREIGN))], table.schema().as_arrow()))


def _another_writer(world: World) -> Effects:
    """Append rows before the first request of any export is sent."""
    return AtStep(Step.SEND, lambda: _append(world))


_THREE: Final = {"p1": (7, 5), "p2": (3,), "p3": (4, 2)}
_TWO: Final = {"p1": (7, 5), "p2": (3, 6)}
SCENARIOS: Final = (
    Scenario("first export of one partition", _ONE, {"p1": (7, 5)}),
    Scenario("three partitions in one commit", _ALL, _THREE),
    Scenario("three partitions, each in its own", replace(_ALL, commit_every=1), _THREE),
    Scenario("committed while others are written", replace(_ALL, commit_after=0), _THREE),
    Scenario("replacement after the TTL", _ALL, _TWO, _exported_before),
    Scenario(
        "forced replacement",
        replace(_ONE, options=ExportOptions(force=True)),
        _TWO,
        _shrunk,
        repeats=True,
    ),
    Scenario(
        "replacement of a whole lake partition",
        replace(_ONE, options=ExportOptions(force=True, replace_partition=True)),
        {"p1": (7, 5)},
        _rewritten,
        repeats=True,
    ),
    Scenario("resume of an interrupted export", _ALL, _TWO, _interrupted),
    Scenario("after a dead export of other rows", _ONE, {"p1": (7, 5)}, _left_by_a_dead_one),
    Scenario(
        "a column that is added", replace(_ONE, evolve_schema=True), {"p1": (7, 5)}, _lacks_a_column
    ),
    Scenario(
        "another writer comes first",
        replace(_ONE, options=ExportOptions(overwrite_file_if_exists=True)),
        {"p1": (7, 5)},
        meddle=_another_writer,
    ),
    Scenario(
        "the same rows in other parts",
        _COMPARED,
        _TWO,
        _mutated_and_changed,
        did=(Status.UNCHANGED, Status.REPLACED, Status.COMMITTED),
        source=_valued,
    ),
    Scenario(
        "the same rows within the TTL",
        _COMPARED,
        _TWO,
        _mutated,
        did=(Status.ALREADY_EXPORTED,) * 2,
        source=_valued,
    ),
    Scenario(
        "the same rows as a kept digest",
        _ALL,
        _TWO,
        _mutated_and_changed,
        did=(Status.UNCHANGED, Status.REPLACED, Status.COMMITTED),
        verifies=True,
        source=_valued,
    ),
    Scenario(
        "columns that are widened and added",
        _EVOLVING,
        _TWO,
        _widened_and_added,
        did=(Status.REPLACED, Status.UNCHANGED),
        source=_valued,
    ),
    Scenario(
        "a wider column after a dead export",
        _EVOLVING,
        _TWO,
        _interrupted_then_widened,
        did=(Status.COMMITTED,) * 2,
        source=_valued,
    ),
    Scenario(
        "only the new parts of a partition",
        _INCREMENTAL,
        _TWO,
        _got_new_parts,
        did=(Status.COMMITTED, Status.UNCHANGED),
        verifies=True,
        source=_valued,
    ),
    Scenario(
        "resume of an export of new parts",
        _INCREMENTAL,
        _TWO,
        _interrupted_with_new_parts,
        did=(Status.COMMITTED, Status.UNCHANGED),
        source=_valued,
    ),
    Scenario(
        "a mutation after a dead export of new parts",
        _INCREMENTAL,
        _TWO,
        _mutated_after_a_dead_one,
        did=(Status.REPLACED, Status.UNCHANGED),
        source=_valued,
    ),
    Scenario(
        "a wider column, and rows compared",
        replace(_COMPARED, evolve_schema=True),
        _TWO,
        _widened_and_mutated,
        did=(Status.REPLACED, Status.UNCHANGED),
        source=_valued,
    ),
)
