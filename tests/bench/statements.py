"""What statements on a lake partition of very many data files cost: seconds, and files opened.

python -m tests.bench.statements [--files N]

Prints the table of docs/operating/benchmarks.md: the same statements with files of one size and of
ten times that size. Files are counted at the storage, through which statements open all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.rewriting.copies import CopiedFiles
from catalog.rewriting.integrity import checks
from catalog.storages.local import LocalStorage
from tableformat.effects import Direct
from tableformat.export.job import export
from tableformat.export.outcome import Outcome, Status
from tableformat.export.slices import FileFormat, Slice
from tableformat.operations.copy_from import CopyFrom, other_table
from tableformat.operations.freeze import Freeze
from tableformat.operations.partition_files import Partitions as LakePartitions
from tableformat.operations.run import Running
from tableformat.operations.statement import FileCopier
from tests.support.lake_statements import LATER, ForeignPartitions, attach, detach, running
from tests.support.row_changes import change
from tests.support.scenarios import Partitions, RealFiles, lake, parts_of, ports_of, run
from tests.support.two_lake_tables import OTHER, P1, TO_OTHER, other

__all__ = ["Measured", "measure", "table"]

_FILES: Final = 10_000
_SIZES: Final = (2_000, 20_000)
_OPENING: Final = ("read", "fetch", "sha256")
_CHANGED: Final = 3
"""So many files have a row that UPDATE changes."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One statement: how long it took, and how many data files were opened, and were written."""

    statement: str
    seconds: float
    opened: int
    written: int


def measure(directory: Path, files: int, size: int) -> list[Measured]:
    """Measure every statement on a partition of so many files of about so many bytes.

    Args:
        directory: empty; two lake tables are made there.
        files: of the partition, at least as many as UPDATE changes.
        size: of each, in bytes.

    Raises:
        TableFormatError: a statement failed.
    """
    _prepare(directory, files, size)
    steps: tuple[tuple[str, Callable[[], Outcome], Status], ...] = (
        ("REPLACE FROM, --fast", partial(_replace, directory), Status.REPLACED),
        ("FREEZE", partial(_freeze, directory), Status.FROZEN),
        ("DETACH", lambda: running(directory).run(detach("p1")), Status.DETACHED),
        ("ATTACH --fast", lambda: _fast(directory).run(attach("p1")), Status.ATTACHED),
        ("DETACH again", lambda: running(directory).run(detach("p1")), Status.DETACHED),
        ("ATTACH, every byte", lambda: running(directory).run(attach("p1")), Status.ATTACHED),
        (f"UPDATE of {_CHANGED} rows", partial(_update, directory), Status.CHANGED),
    )
    return [_measured(name, act, ends) for name, act, ends in steps]


def _measured(name: str, act: Callable[[], Outcome], ends: Status) -> Measured:
    with _counted() as seen:
        began = time.monotonic()
        outcome = act()
        seconds = time.monotonic() - began
    assert outcome.status is ends, outcome
    sys.stderr.write(f"· {name}: {seconds:.2f} s\n")
    return Measured(name, seconds, sum(seen[one] for one in _OPENING), seen["create"])


@dataclass
class _Numbered(RealFiles):
    """Writes one row to each file, of the file's number, and fills it up to about a size."""

    size: int = 0

    def content(self, piece: Slice) -> bytes:
        column = pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "1"}, nullable=False)
        schema = pa.schema([column], {"filled": "x" * (self.size * 3 // 7)})
        sink = pa.BufferOutputStream()
        # The schema is there twice, once as text of a third more.
        pq.write_table(pa.table([pa.array([piece.number])], schema), sink)
        return bytes(sink.getvalue())


def _prepare(directory: Path, files: int, size: int) -> None:
    """Make a table without the partition, and another that has it."""
    source = Partitions()
    del source.by_id["p1"]
    run(directory, source)
    source.by_id["p1"] = parts_of("p1", *([1] * files))
    ports = ports_of(directory, source, clock=LATER.__next__)

    ports = replace(ports, writer=partial(_Numbered, storage=ports.storage, size=size))
    request = replace(TO_OTHER, format=FileFormat(target_file_bytes=1))
    done = {o.partition_id: o for o in export(request, ports, slots=1)}
    assert (done["p1"].status, done["p1"].data_files) == (Status.COMMITTED, files)


def _replace(directory: Path) -> Outcome:
    """Let the partition of the other table take the place of what is here, of the same storage."""
    ready, found, here = _fast(directory), other(directory), lake(directory)
    partitions = LakePartitions(
        OTHER, found, ready.ports.commit.ledger, ForeignPartitions(), Direct()
    )
    there = other_table(found.load(), partitions, P1)
    fast = checks(fast=True)
    copies = CopiedFiles(found.load(), found.storages, here.load(), here.storages, fast)
    ready = replace(ready, ports=replace(ready.ports, writer=FileCopier(copies)))
    return ready.run(CopyFrom(P1, there, replaces=True))


def _fast(directory: Path) -> Running:
    one, found = running(directory), lake(directory)
    location = found.load().location
    intact = partial(checks(fast=True), found.storages, location, lambda _: None)
    return replace(one, ports=replace(one.ports, intact=intact))


def _freeze(directory: Path) -> Outcome:
    one = running(directory)
    return Freeze(P1, "before").run(one.ports, one.partitions)


def _update(directory: Path) -> Outcome:
    # The numbers below are those of the other partition's files.
    return change(directory, P1, between=(2, 2 + _CHANGED + 1))


@contextlib.contextmanager
def _counted() -> Iterator[Counter[str]]:
    """Count what is asked of the storage about data files, by the name of the method."""
    seen: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        for name in (*_OPENING, "create"):
            stack.enter_context(mock.patch.object(LocalStorage, name, _counting(name, seen)))
        yield seen


def _counting(name: str, seen: Counter[str]) -> Callable[..., Any]:
    act = getattr(LocalStorage, name)

    def counting(storage: LocalStorage, location: str, *rest: Any) -> Any:
        seen[name] += location.endswith(".parquet")
        return act(storage, location, *rest)

    return counting


def table(small: list[Measured], large: list[Measured]) -> str:
    """Return both measurements as the table of the page."""
    lines = [
        "| statement | s | s, ten times the bytes | ratio | files opened | files written |",
        f"|{'---|' * 6}",
    ]
    for one, other_one in zip(small, large, strict=True):
        ratio = other_one.seconds / one.seconds
        lines.append(
            f"| {one.statement} | {one.seconds:.2f} | {other_one.seconds:.2f} | {ratio:.2f} "
            f"| {one.opened:,} | {one.written:,} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table."""
    arguments = argparse.ArgumentParser(prog="python -m tests.bench.statements")
    arguments.add_argument("--files", type=int, default=_FILES)
    arguments.add_argument("--directory", type=Path, help="where everything is made for a while")
    given = arguments.parse_args()
    found = []
    for size in _SIZES:
        with tempfile.TemporaryDirectory(prefix="mergeberg-bench-", dir=given.directory) as made:
            found.append(measure(Path(made), given.files, size))
    sys.stdout.write(f"{table(*found)}\n")


if __name__ == "__main__":
    main()
