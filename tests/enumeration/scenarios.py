"""What is enumerated: exports in a small world that can be put back to where they begin.

A scenario prepares a world, and then one command is run in it, which a fault meets somewhere
(`faults.py`). Everything is in memory but the ledger and the lake, and all of it outlives the
processes that act on it.
"""

from __future__ import annotations

import contextlib
import copy
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from catalog.iceberg import open_catalog
from tableformat.effects import Direct, Effects, Step
from tableformat.errors import InternalError, TableFormatError
from tableformat.export.claim import Wish
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome
from tableformat.export.ports import Lake
from tableformat.export.selection import ById
from tableformat.export.slices import FileFormat, Slice
from tableformat.mergetree.parts import Part
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import Simple
from tableformat.names import PartitionId
from tests.dying import Dies
from tests.fakes import TABLE, FakeWriter, job_ports
from tests.lake import make_table
from tests.other_engines import rewrite
from tests.scenarios import ALL, AtStep, Partitions, parts_of, pyiceberg

__all__ = ["FOREIGN", "SCENARIOS", "Piece", "Prepared", "Ran", "Scenario", "World"]

Piece = tuple[str, tuple[tuple[str, str, int | None, int | None], ...]]
"""Rows of the source that are one file: their partition and ranges of parts."""

FOREIGN: Final = 4
"""Rows that another engine appends where a scenario says so."""
_LEDGER: Final = "ledger.db"
_TOLD: Final = (
    "* FROM rows",
    "* FROM events",
    "* FROM counters",
    "* FROM landed",
    "key, host, pid, start, since FROM leases",
)
_TTL: Final = 180_000
_MANY: Final = 1_000_000
_SMALL_FILES: Final = FileFormat(target_file_bytes=80)
_ALL: Final = replace(ALL, format=_SMALL_FILES)
_ONE: Final = replace(_ALL, selection=ById(PartitionId("p1")))
_WIDE: Final = replace(TABLE, columns=(*TABLE.columns, Column("later", Simple("Int64"), "Int64")))


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run that did not die told, and the error that ended it."""

    outcomes: tuple[Outcome, ...]
    error: TableFormatError | None


def _told(ledger: Path) -> list[list[tuple[object, ...]]]:
    """Return what a ledger has; one that nobody has made yet has nothing."""
    if not ledger.exists():
        return [[] for _ in _TOLD]
    with contextlib.closing(sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)) as database:
        made = bool(database.execute("SELECT 1 FROM sqlite_master").fetchall())
        return [database.execute(f"SELECT {what}").fetchall() if made else [] for what in _TOLD]


@dataclass
class World:
    """Everything outside the processes. `written` counts how often rows became a file.

    `effects` is how the effects of all processes are performed: what others do meanwhile is there.
    """

    directory: Path
    source: Partitions = field(default_factory=Partitions)
    now: int = 1_700_000_000_000
    written: Counter[Piece] = field(default_factory=Counter)
    effects: Effects = field(default_factory=Direct)

    def clock(self) -> int:
        """Return a time that nobody was told before."""
        self.now += 1
        return self.now

    def lake(self) -> Lake:
        """Open what has the destination, for a new process."""
        return open_catalog("lake", warehouse=self.directory / "warehouse")

    def outside(self) -> object:
        """Return what a process that dies leaves, to compare: files, ledger, and the source.

        Left out: when a lease ends, which its holder moves between effects, and an empty ledger.
        """
        found = {
            (str(path), path.stat().st_size, path.stat().st_mtime_ns)
            for path in self.directory.rglob("*")
            if path.is_file() and not path.name.startswith(_LEDGER)
        }
        return found, _told(self.directory / _LEDGER), repr(self.source), self.written.total()

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
            writer=lambda: _CountingWriter(self.written, most_files),
        )
        if others_live:
            ports = replace(ports, is_alive=lambda _: True)
        outcomes: list[Outcome] = []
        try:
            outcomes.extend(export(request, ports, slots=1))
        except InternalError:
            raise
        except TableFormatError as error:
            return Ran(tuple(outcomes), error)
        finally:
            ports.ledger.close()
        return Ran(tuple(outcomes), None)


class _CountingWriter(FakeWriter):
    """Counts the files that it writes, and dies when they are enough."""

    def __init__(self, written: Counter[Piece], most: int) -> None:
        super().__init__()
        self._written, self._left = written, most

    def content(self, piece: Slice) -> bytes:
        if self._left == 0:
            raise Dies
        self._left -= 1
        rows = tuple((r.source_name, r.hash_of_all_files, r.start, r.stop) for r in piece.ranges)
        self._written[piece.partition_id, rows] += 1
        return super().content(piece)


def _nothing(_world: World) -> None:
    """Begin with an empty warehouse."""


def _direct(_world: World) -> Effects:
    return Direct()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A command in a prepared world.

    `meddle` gives the effects of all processes: what others do meanwhile.
    `repeats`: the command exports again what it finds exported.
    """

    name: str
    request: ExportRequest
    parts: Mapping[str, tuple[int, ...]]
    prepare: Callable[[World], None] = _nothing
    meddle: Callable[[World], Effects] = _direct
    repeats: bool = False

    def world(self, directory: Path) -> World:
        """Make the world in which it begins."""
        world = World(directory, Partitions(by_id=_of(self.parts)))
        self.prepare(world)
        return world


class Prepared:
    """A scenario's world, made once and put back for each case.

    It is always in the same directory, because a lake's metadata name their files in full.
    """

    def __init__(self, scenario: Scenario, directory: Path) -> None:
        """Make the world below an existing directory, and keep a copy."""
        self.scenario = scenario
        self._kept, self._used = directory / "kept", directory / "used"
        self._used.mkdir()
        self._world = scenario.world(self._used)
        shutil.copytree(self._used, self._kept)

    def world(self) -> World:
        """Return the world as it was prepared; the one returned before is gone."""
        shutil.rmtree(self._used)
        shutil.copytree(self._kept, self._used)
        world = copy.deepcopy(self._world)
        world.effects = self.scenario.meddle(world)
        return world


def _of(parts: Mapping[str, tuple[int, ...]]) -> dict[str, list[Part]]:
    return {name: parts_of(name, *rows) for name, rows in parts.items()}


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
    """Export p1; others write its rows anew under names of their own, and append; p1 grows."""
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
    make_table(world.directory / "warehouse")
    world.source.table = _WIDE


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
        "forced replacement", replace(_ONE, wish=Wish(force=True)), _TWO, _shrunk, repeats=True
    ),
    Scenario(
        "replacement of a whole lake partition",
        replace(_ONE, wish=Wish(force=True, whole=True)),
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
        replace(_ONE, wish=Wish(beside=True)),
        {"p1": (7, 5)},
        meddle=_another_writer,
    ),
)
