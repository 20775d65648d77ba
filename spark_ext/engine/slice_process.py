"""Writes slices in local processes, for callers without a Spark session.

The processes are `python -m spark_ext.engine.slice_process IN OUT`. Each runs the code of a task
(`spark_ext.engine.tasks`) on its share of the slices. The calling process never loads chdb, which
does not survive a fork. IN and OUT are inherited file descriptors for the request and the result:
standard output belongs to ClickHouse, which may print there. A process ends at the end of its
input, also in the middle of a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import catalog
import tableformat.errors
from catalog.clickhouse.server.settings import ServerSettings
from catalog.processes import finish
from catalog.secret_variables import harmless_environment
from catalog.storages.schemes import Access
from spark_ext.engine.tasks import TaskWork, write_slices
from tableformat.errors import SourceError, TableFormatError
from tableformat.export.slices import Slice, WritePlan, tasks
from tableformat.receipt import Receipt

__all__ = ["main", "written_slices"]

_AT_ONCE: Final = 2
"""Number of parallel processes; each needs up to 650 MB."""


@dataclass(frozen=True, slots=True)
class _Storage:
    """Holds the access to the lake's storage, in the form that tasks expect."""

    value: Access


@dataclass(frozen=True, slots=True)
class _Server:
    """Holds the access to the source's server, in the form that tasks expect."""

    value: ServerSettings


def written_slices(
    plan: WritePlan,
    slices: tuple[Slice, ...],
    access: Access | None,
    server: ServerSettings | None = None,
) -> tuple[Receipt, ...]:
    """Write slices; return their receipts in the order of the slice numbers.

    Args:
        plan: the write plan.
        slices: the slices; each becomes one file.
        access: how to reach the lake's storage; None for local files.
        server: the server that has the rows; None to read parts as files.

    Raises:
        SourceError: a process ended without a result.
        TableFormatError: the error of the first slice that could not be written.
    """
    dealt = tasks(slices, _AT_ONCE)
    with ExitStack() as stack:
        started = [
            stack.enter_context(_started((plan, share, access, server)))
            for number in range(_AT_ONCE)
            if (share := dealt[number::_AT_ONCE])
        ]
        rows = [row for one in started for row in _received(one)]
    receipts = {r["slice"]: r["receipt"] for r in rows}
    for row in sorted(rows, key=lambda r: int(r["slice"])):
        if not row["receipt"]:
            raise _error(row)
    if sorted(receipts) != [one.number for one in slices]:
        message = (
            f"{len(slices)} files were planned, but {len(receipts)} were written. Run it again."
        )
        raise SourceError(f"Cannot write the files of {plan.table}: {message}")
    return tuple(Receipt.from_json(receipts[number]) for number in sorted(receipts))


@contextmanager
def _started(request: tuple[Any, ...]) -> Iterator[Connection]:
    """Start a process, send it a request, and provide the connection for its result.

    The process is killed when the context ends.
    """
    child_in, to_child = os.pipe()
    from_child, child_out = os.pipe()
    with (
        Connection(to_child, readable=False) as requests,
        Connection(from_child, writable=False) as results,
    ):
        child = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "spark_ext.engine.slice_process",
                str(child_in),
                str(child_out),
            ],
            pass_fds=(child_in, child_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=_environment(),
            # A session of its own gets no Ctrl-C from the terminal; the process ends with its
            # parent instead.
            start_new_session=True,
        )
        os.close(child_in)
        os.close(child_out)
        try:
            requests.send(request)
            yield results
        finally:
            child.kill()
            child.wait()


def _received(results: Connection) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = results.recv()
    except EOFError as error:
        message = (
            "Cannot write the files of parts: the process that reads them ended without a result, "
            "for example because it ran out of memory. Run it again."
        )
        raise SourceError(message) from error
    return found


def _error(row: dict[str, Any]) -> TableFormatError:
    kind: type[TableFormatError] = getattr(tableformat.errors, row["error"])
    return kind(row["message"], code=int(row["code"]) if row["code"] else None)


def _environment() -> dict[str, str]:
    """Return an environment without secrets, whose PYTHONPATH has mergeberg's packages."""
    ours = str(Path(catalog.__file__).parent.parent)
    others = os.environ.get("PYTHONPATH")
    return harmless_environment() | {"PYTHONPATH": ours + (os.pathsep + others if others else "")}


def main(request_fd: int, result_fd: int) -> None:
    """Write the slices of one request, send the result, and end the process.

    Args:
        request_fd: the file descriptor of the request.
        result_fd: the file descriptor for the result.
    """
    requests = Connection(request_fd, writable=False)
    plan, share, access, server = requests.recv()
    threading.Thread(target=_end_with_parent, args=(request_fd,), daemon=True).start()
    work = TaskWork(
        plan,
        share,
        None,
        None if server is None else _Server(server),
        None if access is None else _Storage(access),
    )
    rows = [row for task in share for row in write_slices(work, task)]
    Connection(result_fd, readable=False).send(rows)
    finish()
    # Skips the interpreter's shutdown, during which chdb's threads may still be running.
    os._exit(0)


def _end_with_parent(request_fd: int) -> None:
    while os.read(request_fd, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
