"""Lots of rows that arrive in one partition, and what is done with them, as new processes.

The n-th lot has 4ⁿ rows, so that the number of all rows tells which lots are there, and how often.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pyiceberg.table.snapshots import Operation

from spark_ext.actions.cancel import unarchivable, unarchive_each
from tableformat.committer import DETACHED_BRANCH, MAIN_BRANCH
from tableformat.errors import NotFoundError, RefusedError
from tableformat.export.archived import archiving
from tableformat.export.job import ExportRequest, export
from tableformat.export.options import LateRows
from tableformat.export.outcome import Outcome, Status
from tableformat.export.request import ExportOptions
from tableformat.ledger import DetachedPart, Owner
from tableformat.mergetree.table import Part
from tests.places.found import place_at
from tests.support.history_acts import Seat, done
from tests.support.lake_statements import LATER
from tests.support.other_engines import origin_of, rewrite
from tests.support.scenarios import ALL, TO, Partitions, ledger_of, ledger_rows, parts_of, ports_of
from tests.support.two_lake_tables import OTHER, to_other

__all__ = ["ACTS", "MOST_LOTS", "Lots", "merged"]

ME = Owner("here", 1, "now")
MOST_LOTS = 6
IN_MAIN = (Status.COMMITTED, Status.REPLACED, Status.UNCHANGED, Status.ALREADY_EXPORTED)
_OPTIONS = ExportOptions(late_rows=LateRows.APPEND, manifest_ttl=1)


def merged(parts: list[Part]) -> Part:
    """Return the part that a merge makes of parts."""
    low, high = min(p.min_block for p in parts), max(p.max_block for p in parts)
    level = max(p.level for p in parts) + 1
    return replace(
        parts[0],
        name=f"p1_{low}_{high}_{level}",
        rows=sum(p.rows for p in parts),
        min_block=low,
        max_block=high,
        level=level,
        hash_of_all_files="merge of " + ", ".join(p.hash_of_all_files for p in parts),
    )


@dataclass
class Lots:
    """Two lake tables, and a source with lots of rows of one partition.

    `lots` are the numbers of the lots in each part of the source by the part's hash, `archived`
    those that left it after an export. `aside` are its detached parts.
    """

    at: Path
    source: Partitions = field(default_factory=lambda: Partitions(by_id={"p1": []}))
    lots: dict[str, frozenset[int]] = field(default_factory=dict)
    archived: set[int] = field(default_factory=set)
    aside: list[Part] = field(default_factory=list)
    made: int = 0
    blocks: int = 0

    def __post_init__(self) -> None:
        """Make both tables, with another partition."""
        of_p2 = Partitions(by_id={"p2": parts_of("p2", 1)})
        for request in (ALL, replace(ALL, to=OTHER)):
            ports = ports_of(self.at, of_p2, clock=LATER.__next__)
            with contextlib.closing(ports.ledger):
                list(export(request, ports, slots=1))

    def _next(self, part: Part) -> Part:
        """Give a part the next block number, as an INSERT and an ATTACH do."""
        self.blocks += 1
        name = f"p1_{self.blocks}_{self.blocks}_{part.level}"
        return replace(part, name=name, min_block=self.blocks, max_block=self.blocks)

    def arrive(self) -> Status:
        """Let the next lot arrive in the source."""
        if self.made == MOST_LOTS:
            return Status.EMPTY
        (part,) = parts_of("p1", 4**self.made)
        part = replace(self._next(part), hash_of_all_files=f"lot {self.made}")
        self.lots[part.hash_of_all_files] = frozenset({self.made})
        self.source.by_id["p1"].append(part)
        self.made += 1
        return Status.COMMITTED

    def merge(self) -> Status:
        """Merge all parts of the source."""
        parts = self.source.by_id["p1"]
        if not parts:
            return Status.EMPTY
        made = merged(parts)
        self.lots[made.hash_of_all_files] = self.in_source()
        self.source.by_id["p1"] = [made]
        return Status.COMMITTED

    def export(self, request: ExportRequest) -> Outcome:
        """Export the partition."""
        ports = ports_of(self.at, self.source, clock=LATER.__next__)
        with contextlib.closing(ports.ledger):
            found = {o.partition_id: o for o in export(request, ports, slots=1)}
        return found.get("p1", Outcome("p1", Status.EMPTY, ""))

    def exported(self, options: ExportOptions = _OPTIONS) -> Status:
        """Export the partition; what the source has is in main afterwards, if it says so."""
        outcome = self.export(replace(ALL, options=options))
        if outcome.status in IN_MAIN:
            lacking = [lot for lot in self.in_source() if self.copies(TO, MAIN_BRANCH)[lot] != 1]
            assert not lacking, f"{outcome} without the lots {lacking}"
        return outcome.status

    def archive(self, *, drop: bool = False) -> Status:
        """Export, and take the parts out of the source if they are the exported ones."""
        outcome = self.export(replace(ALL, options=_OPTIONS))
        parts = self.source.by_id["p1"]
        if outcome.status not in IN_MAIN or not parts:
            return Status.REFUSED
        here = {(p.hash_of_all_files, p.rows) for p in parts}
        with contextlib.closing(ledger_of(self.at)) as ledger:
            of_it = (r for r in ledger.rows() if r.done is not None)
            (row,) = (r for r in of_it if r.done.landed.transaction_id == outcome.transaction_id)  # type: ignore[union-attr]
            if {(p.hash_of_all_files, p.rows) for p in row.done.parts} != here:  # type: ignore[union-attr]
                return Status.REFUSED
            with archiving(ledger, row, owner=ME, is_alive=lambda _: False, now=9) as marked:
                left = tuple(DetachedPart(p.name, p.rows, 1) for p in parts)
                self.archived |= self.in_source()
                self.source.by_id["p1"] = []
                if not drop:
                    self.aside += parts
                    self.source.aside |= {*left}
                marked.note_detached(() if drop else left)
        return Status.DETACHED

    def attach_back(self) -> Status:
        """Attach all detached parts to the source again."""
        self.source.by_id["p1"] += [self._next(part) for part in self.aside]
        self.source.aside.clear()
        self.aside.clear()
        return Status.ATTACHED

    def in_source(self) -> frozenset[int]:
        """Return the lots that the source has."""
        parts = self.source.by_id["p1"]
        return frozenset().union(*(self.lots[p.hash_of_all_files] for p in parts))

    def compact(self) -> Status:
        """Let another engine compact all files of the partition."""
        keys = {r.key.hash for r in ledger_rows(self.at) if r.key.partition_id == "p1"}
        rewrite(self.at, lambda path: origin_of(path) in keys, operation=Operation.REPLACE)
        return Status.COMMITTED

    def statement(self, name: str) -> Status:
        """Run a statement on a lake table."""
        return done(name, self.at, self.source, Seat())

    def to_other(self) -> Status:
        """Export to the other table, with --force."""
        return to_other(self.at, self.source).get("p1", Status.EMPTY)

    def into_other(self, options: ExportOptions) -> Status:
        """Export to the other table."""
        return self.export(replace(ALL, to=OTHER, options=options)).status

    def unarchive(self) -> Status:
        """Unarchive the partition, as the command does."""
        place = place_at(self.at)
        with contextlib.closing(ledger_of(self.at)) as ledger:
            found = unarchivable(ledger, "p1", self.source.table.name, TO, lambda _: place.lake())
            unarchive_each(ledger, found)
        # From now on an export may replace the rows.
        self.archived.clear()
        return Status.CHANGED

    def copies(self, *where: object) -> list[int]:
        """Return how often each lot is in the tables and branches of `where`, all by default."""
        rows = 0
        for name in (TO, OTHER):
            table = place_at(self.at).lake().table(name)
            assert table is not None
            state = table.load()
            for branch in (MAIN_BRANCH, DETACHED_BRANCH):
                if not where or where == (name, branch):
                    rows += sum(
                        file.rows
                        for file in table.files_on(state, branch)
                        if not self._is_p2(file.path)
                    )
        return [rows // 4**lot % 4 for lot in range(MOST_LOTS + 1)]

    def _is_p2(self, path: str) -> bool:
        keys = {r.key.hash for r in ledger_rows(self.at) if r.key.partition_id == "p2"}
        return origin_of(path) in keys


def _act(name: str, did: Callable[[Lots], Status]) -> tuple[str, Callable[[Lots], Status]]:
    def acted(lots: Lots) -> Status:
        try:
            return did(lots)
        except (RefusedError, NotFoundError):
            return Status.REFUSED

    return name, acted


_STATEMENTS = (
    *("detach", "attach", "move", "attach from", "forget", "update"),
    *("detach smallest part", "attach smallest part"),
)
ACTS: dict[str, Callable[[Lots], Status]] = dict(
    (
        _act("rows arrive", Lots.arrive),
        _act("the source merges", Lots.merge),
        _act("parts are attached back", Lots.attach_back),
        _act("export", Lots.exported),
        _act("export without the option", partial(Lots.exported, options=ExportOptions())),
        _act("force", partial(Lots.exported, options=replace(_OPTIONS, force=True))),
        _act("force there", Lots.to_other),
        _act("export there", partial(Lots.into_other, options=ExportOptions(manifest_ttl=1))),
        _act("append there", partial(Lots.into_other, options=_OPTIONS)),
        _act("unarchive", Lots.unarchive),
        _act("archive", Lots.archive),
        _act("archive and drop", partial(Lots.archive, drop=True)),
        _act("others compact", Lots.compact),
        *(_act(name, partial(Lots.statement, name=name)) for name in _STATEMENTS),
    )
)
"""What may happen; nothing of it takes an archived row out of the lake for ever."""
