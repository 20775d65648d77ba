"""REPLACE PARTITION of one table by several processes, each of its own, while others append to it.

Each replaces its partition again and again by that of two tables in turn, which hold other rows;
another engine appends to a partition that none of them has. The catalog is SQLite, or PostgreSQL
with --postgresql, the ledger SQLite, and files are in a directory. ClickHouse is not asked: in
which partition rows of others lie is given.

    python -m tests.bench.replacing [--postgresql] [--processes N] [--times N] [--rows N]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException

from catalog.iceberg.table import IcebergTable
from catalog.network import DEFAULT_TIME_OUTS
from catalog.processes import this_process
from catalog.rewriting.copies import CopiedFiles
from catalog.rewriting.integrity import refuse_changed_files
from spark_ext.actions.export_ports import new_transaction
from spark_ext.operations.tables import operation_ports
from tableformat.committer import MAIN_BRANCH
from tableformat.effects import Direct, Step
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome
from tableformat.export.request import AllPartitions, ExportOptions
from tableformat.file_names import key_in
from tableformat.ledger import Owner
from tableformat.names import LakeName, TableName
from tableformat.operations.copy_from import CopyFrom, other_table
from tableformat.operations.partition_files import Partitions as LakePartitions
from tableformat.operations.run import Running
from tableformat.operations.statement import FileCopier, OperationPorts
from tests.places.far import FarPlace
from tests.places.found import place_at
from tests.places.local import LocalPlace
from tests.services.postgres import Postgres, postgres
from tests.support.lake_statements import ForeignPartitions, partition
from tests.support.scenarios import TO, Partitions, ledger_of, ledger_rows, parts_of, ports_of

__all__ = ["Replaced", "append_again", "in_turns_of", "made", "replace_again", "rows_of"]

T = TypeVar("T")
_SOURCES: Final = (LakeName("lake", ("n",), "a"), LakeName("lake", ("n",), "b"))
_OF_OTHERS: Final = ForeignPartitions(rest="others")
_BETWEEN_APPENDS: Final = 1.0
_ROOT: Final = Path(__file__).parents[2]


@dataclass
class Replaced:
    """What became of the statements of one process, and what they took, all together."""

    statuses: dict[str, int] = field(default_factory=dict)
    requests: int = 0
    seconds: float = 0.0
    processor: float = 0.0
    messages: list[str] = field(default_factory=list)

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        """Count a request: these are the effects of its statements."""
        self.requests += step is Step.SEND
        return act()


def made(directory: Path, count: int, rows: int) -> None:
    """Make the table, and the two that are copied from; partitions have that many rows, or more."""
    names = [f"p{number}" for number in range(count)]
    for more, name in enumerate((TO, *_SOURCES)):
        source = Partitions(by_id={one: parts_of(one, rows + more) for one in names})
        request = ExportRequest(
            TableName("db", "t"), name, AllPartitions(), ExportOptions(force=True), {}
        )
        done = tuple(export(request, ports_of(directory, source), slots=1))
        assert {o.status.value for o in done} == {"committed"}


def _table(directory: Path, name: LakeName) -> IcebergTable:
    found = place_at(directory).lake().table(name)
    assert found is not None
    return found


def replace_again(directory: Path, name: str, times: int) -> Replaced:
    """Replace one partition so many times; return what became of it each time."""
    replaced, statuses = Replaced(), Counter[str]()
    # Threads of a test are not one owner.
    owner = replace(this_process(), start=uuid.uuid4().hex)
    began, processor = time.monotonic(), time.process_time()
    for number in range(times):
        ended = _replace(directory, name, _SOURCES[number % 2], owner, replaced)
        statuses[ended.status.value] += 1
        if ended.message:
            replaced.messages.append(ended.message)
    replaced.seconds, replaced.processor = time.monotonic() - began, time.process_time() - processor
    replaced.statuses = dict(statuses)
    return replaced


def _replace(directory: Path, name: str, of: LakeName, owner: Owner, replaced: Replaced) -> Outcome:
    here, there = _table(directory, TO), _table(directory, of)
    ledger = ledger_of(directory)
    try:
        state, which = there.load(), partition(name)
        commit = replace(operation_ports(here, ledger), effects=replaced)
        copies = CopiedFiles(state, there.storages, here.load(), here.storages)
        intact = partial(refuse_changed_files, here.storages, here.load().location, lambda _: None)
        ports = OperationPorts(
            commit,
            owner,
            lambda _: True,
            new_transaction,
            lambda _: None,
            intact,
            FileCopier(copies),
        )
        from_other = other_table(
            state, LakePartitions(of, there, ledger, _OF_OTHERS, Direct()), which
        )
        lies = LakePartitions(TO, here, ledger, _OF_OTHERS, replaced)
        return Running(ports, TO, lies).run(CopyFrom(which, from_other, replaces=True))
    finally:
        ledger.close()


def append_again(directory: Path, goes_on: Callable[[int], bool]) -> int:
    """Append one row at a time as another engine does; return how many.

    `goes_on` says whether there is to be another one, after so many.
    """
    catalog, appended = place_at(directory).lake().catalog, 0
    column = pa.field("n", pa.int64(), nullable=False)
    row = pa.table([pa.array([-1])], pa.schema([column]))
    while goes_on(appended):
        try:
            catalog.load_table(TO.identifier).append(row)
            appended += 1
        except CommitFailedException:
            # Somebody was faster: as any engine, it tries again.
            continue
    return appended


def rows_of(directory: Path) -> Counter[str]:
    """Return the rows that the table has of each partition, of others by ''."""
    named = {row.key.hash: row.key.partition_id for row in ledger_rows(directory)}
    table, found = _table(directory, TO), Counter[str]()
    for file in table.files_on(table.load(), MAIN_BRANCH):
        found[named.get(key_in(file.path), "")] += file.rows
    return found


def in_turns_of(times: int, rows: int) -> int:
    """Return the rows that a partition has after so many replacements."""
    return rows + 1 + (times - 1) % 2


def main() -> None:
    """Measure, and print one line for each number of processes."""
    arguments = argparse.ArgumentParser(prog="python -m tests.bench.replacing")
    arguments.add_argument("--processes", type=int, action="append", help="default: 1, 2 and 4")
    arguments.add_argument("--times", type=int, default=25, help="statements of a process")
    arguments.add_argument("--rows", type=int, default=10_000, help="of a partition")
    arguments.add_argument("--postgresql", action="store_true", help="as the catalog")
    arguments.add_argument("--directory", type=Path, help="where everything is made for a while")
    arguments.add_argument("--of", help="replace this partition in --directory: a process of it")
    given = arguments.parse_args()
    if given.of:
        replaced = replace_again(given.directory, given.of, given.times)
        sys.stdout.write(json.dumps(asdict(replaced)) + "\n")
        return
    of_one = "CPU s of one | requests of one"
    _say(f"| processes | statements | refused | per second | {of_one} | appends |")
    _say("|---|---|---|---|---|---|---|")
    with postgres() if given.postgresql else contextlib.nullcontext() as server:
        for count in given.processes or (1, 2, 4):
            with _place(given.directory, server) as place:
                _say(_measured(place, count, given.times, given.rows))


@contextlib.contextmanager
def _place(directory: Path | None, server: Postgres | None) -> Iterator[Path]:
    """Yield a directory that stands for a new world; its catalog is in the server, if any."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-bench-", dir=directory) as made:
        here = LocalPlace(Path(made))
        if server is not None:
            uri = server.uri(server.account())
            catalog = {"type": "sql", "uri": uri, "warehouse": here.warehouse}
            times = asdict(DEFAULT_TIME_OUTS)
            FarPlace(catalog, here.ledger_uri, here.warehouse, "", times).name_in(Path(made))
        yield Path(made)


def _measured(directory: Path, count: int, times: int, rows: int) -> str:
    made(directory, count, rows)
    words = ("--directory", str(directory), "--times", str(times))
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.bench.replacing", "--of", f"p{number}", *words],
            cwd=_ROOT, stdout=subprocess.PIPE, text=True,
        )
        for number in range(count)
    ]  # fmt: skip

    def goes_on(_: int) -> bool:
        time.sleep(_BETWEEN_APPENDS)
        return any(one.poll() is None for one in running)

    appended = append_again(directory, goes_on)
    reports = [Replaced(**json.loads(one.communicate()[0])) for one in running]
    done = sum(one.statuses.get("replaced", 0) for one in reports)
    wanted = Counter({f"p{n}": in_turns_of(times, rows) for n in range(count)})
    wanted[""] = appended
    found = rows_of(directory)
    assert found == wanted, (found, wanted)
    seconds = max(one.seconds for one in reports)
    requests = sum(one.requests for one in reports) / (count * times)
    processor = sum(one.processor for one in reports) / (count * times)
    return (
        f"| {count} | {count * times} | {count * times - done} | {done / seconds:.1f} "
        f"| {processor:.2f} | {requests:.2f} | {appended} |"
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
