"""The warehouse, source and clock of one partition; every run of the command is a new process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from catalog.ledgers.sqlite import SqliteLedger
from tableformat.effects import Effects, Step
from tableformat.errors import NotFoundError
from tableformat.export.job import ExportRequest
from tableformat.export.request import ById, ExportOptions
from tableformat.export.slices import FileFormat
from tableformat.ledger import Ledger, Row
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.table import MergeTreeTable, Part
from tableformat.messages import plain
from tableformat.names import PartitionId
from tableformat.source import FrozenPart, Probe, SourceSnapshot
from tests.support.dying import Dies, KilledAt
from tests.support.fakes import frozen_snapshot
from tests.support.scenarios import (
    ALL,
    Partitions,
    RealFiles,
    parts_of,
    ports_of,
    pyiceberg,
    row_of,
    run,
    state,
)

__all__ = ["ONE", "TTL", "TWO_FILES", "Lightly", "Scene", "merged", "move", "snapshot_at"]

TTL = 180
ONE = replace(ALL, selection=ById(PartitionId("p1")))
TWO_FILES = replace(ONE, format=FileFormat(target_file_bytes=80))
"""Each of the two parts of a partition becomes a file."""


@dataclass
class Lightly(Partitions):
    """A source in which all rows of some partitions may be deleted lightly."""

    hidden: set[str] = field(default_factory=set)

    def snapshot(
        self,
        table: MergeTreeTable,
        partition_ids: tuple[PartitionId, ...],
        *,
        job: str,
        probes: tuple[Probe, ...],
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        assert not probes
        self.snapshots += 1
        held = {
            i: tuple(
                FrozenPart(p, p.name, 0 if i.value in self.hidden else p.rows, p.disk)
                for p in self.by_id[i.value]
            )
            for i in partition_ids
        }
        name = f"{job}_{self.snapshots}"
        self.left[name] = frozen_snapshot(table, held, handle=(name,), digest=bool(digest))
        return self.left[name]

    def change(self, content: str) -> None:
        """Change what the partition p1 holds."""
        held = self.by_id["p1"]
        match content:
            case "more":
                self.by_id["p1"] = parts_of("p1", *(p.rows for p in held), 3)
            case "fewer":
                self.by_id["p1"] = held[:1]
            case "none":
                self.hidden.add("p1")
                self.by_id["p1"] = [
                    replace(p, name=f"{p.name}_9", hash_of_all_files=f"{p.name} 9", data_version=9)
                    for p in held
                ]
            case "merged":
                self.by_id["p1"] = merged(held)
            case "gone":
                del self.by_id["p1"]
            case _:
                assert content == "same"


def merged(parts: list[Part]) -> list[Part]:
    """Return the one part that a merge makes of the parts of p1."""
    (one,) = parts_of("p1", sum(p.rows for p in parts))
    name = f"p1_1_{len(parts)}_1"
    return [replace(one, name=name, hash_of_all_files="merged", max_block=len(parts), level=1)]


@dataclass
class Scene:
    """A warehouse, a source and a clock; `writers` are those of all runs so far."""

    directory: Path
    source: Lightly = field(default_factory=Lightly)
    now: int = 1_000_000
    request: ExportRequest = ONE
    slots: int = 1
    writers: list[RealFiles] = field(default_factory=list)

    def run(
        self,
        options: ExportOptions | None = None,
        effects: Effects | None = None,
        *,
        alive: bool = False,
        most: int | None = None,
        meddled: bool = False,
    ) -> tuple[str, str]:
        """Run the command; return its status word and its message.

        `alive`: it takes every other process for a living one; `most`: it dies when it has written
        so many files.
        """
        ports = ports_of(
            self.directory, self.source, effects=effects, clock=lambda: self.now, alive=alive
        )
        self.writers.append(RealFiles(most=most))
        asked = replace(
            options or ExportOptions(manifest_ttl=TTL), shards=self.request.options.shards
        )
        try:
            outcomes = run(
                self.directory,
                self.source,
                ports=replace(ports, writer=lambda: self.writers[-1]),
                request=replace(self.request, options=asked),
                meddled=meddled,
                slots=self.slots,
            )
        except NotFoundError as error:
            return "not found", str(error)
        finally:
            ports.ledger.close()
        (one,) = [o for o in outcomes if o.partition_id == "p1"] or outcomes
        return one.status.value, self.numbered(plain(one.message))

    def dies(
        self,
        effects: Effects | None = None,
        options: ExportOptions | None = None,
        *,
        most: int | None = None,
    ) -> None:
        """Run the command, which is killed: at an effect, or when `most` files are written."""
        with pytest.raises(Dies):
            self.run(options, effects or KilledAt(Step.WRITE_FILES, nth=0), most=most)

    def after_ttl(self) -> None:
        """Let the time to live of every record pass."""
        self.now += (TTL + 1) * 1000

    @property
    def files(self) -> int:
        """How many files were written by all runs so far."""
        return sum(w.written for w in self.writers)

    @property
    def row(self) -> Row:
        """The ledger row of p1."""
        return row_of(self.directory, "p1")

    @property
    def snapshots(self) -> int:
        """How many snapshots the table has."""
        return len(state(self.directory).snapshots)

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """Open the ledger."""
        opened = SqliteLedger(self.directory / "ledger.db")
        try:
            yield opened
        finally:
            opened.close()

    def numbered(self, text: str) -> str:
        """Return a message with each snapshot that is there named by its sequence number."""
        seen = state(self.directory).snapshots.values()
        named = {str(s.snapshot_id): f"S{s.sequence_number}" for s in seen}
        text = re.sub(r"\d{12,}", lambda found: named.get(found[0], found[0]), text)
        return re.sub(r"(job \w+ of )?process \d+", "process PID", text)


def snapshot_at(directory: Path, number: int) -> int:
    """Return the id of the snapshot with a sequence number."""
    (found,) = (
        s.snapshot_id for s in state(directory).snapshots.values() if s.sequence_number == number
    )
    return found


def move(directory: Path, number: int) -> None:
    """Move main to the snapshot with a sequence number."""
    main = snapshot_at(directory, number)
    pyiceberg(directory).manage_snapshots().set_current_snapshot(snapshot_id=main).commit()
