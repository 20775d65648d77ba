"""What is enumerated in addition to exports: every statement on lake tables, in a small world.

Each begins in two tables (`tests/support/two_lake_tables.py`): p1 has 12 rows in two files, and
what is done before it makes it a statement that has something to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest.mock import patch

from tableformat.effects import Effects
from tableformat.export.outcome import Status
from tests.enumeration.acts import MORE, Sources, files_are_there, has_disks
from tests.enumeration.scenarios import World
from tests.support.history_acts import ACTS, Act, Seat
from tests.support.scenarios import RealFiles, parts_of
from tests.support.two_lake_tables import prepared

__all__ = ["ALL_ACTS", "OLDER", "STATEMENTS", "Exports", "StatementScenario"]

ALL_ACTS: Final[dict[str, Act]] = {**ACTS, **MORE}


@dataclass(frozen=True, slots=True)
class Exports:
    """Outcomes of exports of p1 after a statement (decision 0013).

    `again` inside the time to live, `later` after it, `changed` then with other rows in the source.
    """

    again: Status
    later: Status
    changed: Status


_HERE: Final = Exports(Status.ALREADY_EXPORTED, Status.UNCHANGED, Status.REPLACED)
_CHANGED: Final = Exports(Status.ALREADY_EXPORTED, Status.UNCHANGED, Status.REFUSED)
_GONE: Final = Exports(Status.REFUSED, Status.COMMITTED, Status.COMMITTED)
_IN_PART: Final = Exports(Status.REFUSED, Status.REFUSED, Status.REFUSED)
_FORGOTTEN: Final = Exports(Status.COMMITTED, Status.UNCHANGED, Status.REPLACED)


@dataclass(frozen=True, slots=True)
class StatementScenario:
    """A statement in a prepared world.

    `before` is what was done before it, `did` what it says, and `exports` what exports say then.
    Once it has landed the same statement is `refused`, or does it once more where it `repeats`. It
    is done `apart` in two commits: of two tables, or of the exports of two shards. `of` is the name
    of the statement, where the scenario has another one, and `spec` what exports are given as the
    partition spec.
    """

    name: str
    did: Status
    exports: Exports
    before: tuple[str, ...] = ()
    refused: bool = False
    repeats: bool = False
    apart: bool = False
    prepare: Callable[[Path], None] = lambda _: None
    grown: bool = False
    filters: bool = False
    of: str = ""
    spec: str | None = None

    @property
    def act(self) -> Act:
        """The statement."""
        return ALL_ACTS[self.of or self.name]

    def world(self, directory: Path) -> World:
        """Make the world in which it begins."""
        with patch.object(RealFiles, "filters", new=self.filters):
            prepared(directory)
        self.prepare(directory)
        source = Sources(probed=None if self.spec is None else "0")
        for name in self.before:
            ALL_ACTS[name](directory, source, Seat())
        if self.grown:
            source.by_id["p1"] = parts_of("p1", 20)
        return World(directory, source)

    def meddle(self, world: World) -> Effects:
        """Return the effects of all processes."""
        return world.effects


_THERE: Final = ("export there", "drop")
_OTHERS: Final = ("others append",)
_OLDER: Final = ("others change the table", *_OTHERS, "others promote it")
"""Main has files of an earlier spec that lack a column, and of the current one with a narrow one.

A file that is detached later is of the earlier spec, too.
"""
_SPEC: Final = "truncate(1000000, n)"
STATEMENTS: Final = (
    StatementScenario("drop", Status.DROPPED, _GONE, _OTHERS),
    StatementScenario("drop part", Status.DROPPED, _IN_PART, refused=True),
    StatementScenario("detach", Status.DETACHED, _GONE, _OTHERS),
    StatementScenario("detach part", Status.DETACHED, _IN_PART, refused=True),
    StatementScenario("attach", Status.ATTACHED, _HERE, ("detach",)),
    StatementScenario("attach part", Status.ATTACHED, _HERE, ("detach part",), refused=True),
    StatementScenario("drop detached", Status.DROPPED, _GONE, ("detach",)),
    StatementScenario("drop detached part", Status.DROPPED, _GONE, ("detach",), refused=True),
    StatementScenario("attach from", Status.ATTACHED, _HERE, _THERE),
    StatementScenario("attach a piece", Status.ATTACHED, _IN_PART, _THERE, refused=True),
    StatementScenario("replace from", Status.REPLACED, _HERE, (*_THERE, *_OTHERS)),
    StatementScenario("fetch", Status.FETCHED, _GONE, _THERE, refused=True),
    StatementScenario(
        "fetch files", Status.FETCHED, _GONE, ("drop",), refused=True, prepare=files_are_there
    ),
    StatementScenario("fetch parts", Status.FETCHED, _GONE, ("drop",), refused=True),
    StatementScenario("move", Status.MOVED, _IN_PART, _OTHERS, apart=True),
    StatementScenario("update", Status.CHANGED, _CHANGED, _OTHERS),
    StatementScenario("delete", Status.CHANGED, _CHANGED),
    StatementScenario("clear column", Status.CHANGED, _CHANGED),
    StatementScenario("clear index", Status.CHANGED, _HERE, filters=True),
    StatementScenario("optimize", Status.OPTIMIZED, _HERE),
    StatementScenario("deduplicate", Status.OPTIMIZED, _CHANGED),
    StatementScenario("freeze", Status.FROZEN, _HERE, refused=True),
    StatementScenario("freeze by number", Status.FROZEN, _HERE, repeats=True),
    StatementScenario("unfreeze", Status.UNFROZEN, _HERE, ("freeze",)),
    StatementScenario("forget", Status.FORGOTTEN, _FORGOTTEN, ("drop",)),
    StatementScenario("move to disk", Status.MOVED, _HERE, _OTHERS, prepare=has_disks),
    StatementScenario("attach from ClickHouse", Status.ATTACHED, _HERE, ("drop",)),
    StatementScenario("attach from two shards", Status.ATTACHED, _HERE, ("drop",), apart=True),
    StatementScenario("replace from ClickHouse", Status.REPLACED, _HERE, _OTHERS, grown=True),
    StatementScenario("replace from two shards", Status.REPLACED, _HERE, _OTHERS, grown=True),
    StatementScenario(
        "attach from view",
        Status.ATTACHED,
        _IN_PART,
        ("drop",),
        refused=True,
        prepare=files_are_there,
    ),
    StatementScenario(
        "replace from view",
        Status.REPLACED,
        _IN_PART,
        _OTHERS,
        repeats=True,
        prepare=files_are_there,
    ),
    StatementScenario(
        "update of older files", Status.CHANGED, _CHANGED, _OLDER, of="update", spec=_SPEC
    ),
    StatementScenario(
        "optimize of older files", Status.OPTIMIZED, _HERE, _OLDER, of="optimize", spec=_SPEC
    ),
    StatementScenario(
        "detach of older files", Status.DETACHED, _GONE, _OLDER, of="detach", spec=_SPEC
    ),
    StatementScenario(
        "attach of older files",
        Status.ATTACHED,
        _HERE,
        (*_OLDER, "detach"),
        of="attach",
        spec=_SPEC,
    ),
)
OLDER: Final = tuple(one for one in STATEMENTS if one.spec is not None)
"""Statements on a table whose columns and partition spec were others at its exports."""
