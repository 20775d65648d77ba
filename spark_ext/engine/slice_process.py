"""Processes that write files of parts where no Spark does.

`python -m spark_ext.engine.slice_process IN OUT`. They run the code of a task
(`spark_ext.engine.tasks`), each its share of the slices. chdb does not survive a fork, so the
calling process never loads it. Request and answer go over two inherited file descriptors, because
standard output belongs to ClickHouse, which may print there. End of input ends the process, also in
the middle of a file.
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
from catalog.secret_variables import harmless_environment
from catalog.storages.schemes import Access
from spark_ext.engine.tasks import TaskWork, write_slices
from tableformat.errors import SourceError, TableFormatError
from tableformat.export.slices import Slice, WritePlan, tasks
from tableformat.receipt import Receipt

__all__ = ["main", "written_slices"]

_AT_ONCE: Final = 2
"""A process needs up to 650 MB."""


@dataclass(frozen=True, slots=True)
class _Storage:
    """How to reach the lake's storage, as tasks ask for it."""

    value: Access


@dataclass(frozen=True, slots=True)
class _Server:
    """How to reach the source's server, as tasks ask for it."""

    value: ServerSettings


def written_slices(
    plan: WritePlan,
    slices: tuple[Slice, ...],
    access: Access | None,
    server: ServerSettings | None = None,
) -> tuple[Receipt, ...]:
    """Write slices, and return a receipt for each, by their numbers.

    Args:
        plan: what they share.
        slices: each becomes one file.
        access: how to reach the lake's storage, None for files.
        server: where the slices are read, None for files.

    Raises:
        SourceError: a process ended without an answer.
        TableFormatError: the error of the first slice that could not be written.
    """
    dealt = tasks(slices, _AT_ONCE)
    with ExitStack() as stack:
        asked = [
            stack.enter_context(_asked((plan, hand, access, server)))
            for number in range(_AT_ONCE)
            if (hand := dealt[number::_AT_ONCE])
        ]
        rows = [row for one in asked for row in _answer(one)]
    receipts = {r["slice"]: r["receipt"] for r in rows}
    for row in sorted(rows, key=lambda r: int(r["slice"])):
        if not row["receipt"]:
            raise _error(row)
    if sorted(receipts) != [one.number for one in slices]:
        message = f"{len(slices)} files were planned, {len(receipts)} came back. Run it again."
        raise SourceError(f"Cannot write the files of {plan.table}: {message}")
    return tuple(Receipt.from_json(receipts[number]) for number in sorted(receipts))


@contextmanager
def _asked(request: tuple[Any, ...]) -> Iterator[Connection]:
    """Start a process with a request, and lend where its answer comes; it ends with this."""
    child_in, to_child = os.pipe()
    from_child, child_out = os.pipe()
    with (
        Connection(to_child, readable=False) as asking,
        Connection(from_child, writable=False) as answers,
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
            # Ctrl-C goes to every process of a session; this one ends with who asked.
            start_new_session=True,
        )
        os.close(child_in)
        os.close(child_out)
        try:
            asking.send(request)
            yield answers
        finally:
            child.kill()
            child.wait()


def _answer(answers: Connection) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = answers.recv()
    except EOFError as error:
        message = (
            "Cannot write the files of parts: the process that reads them ended without an "
            "answer, as one does that gets no more memory. Run the statement again."
        )
        raise SourceError(message) from error
    return found


def _error(row: dict[str, Any]) -> TableFormatError:
    kind: type[TableFormatError] = getattr(tableformat.errors, row["error"])
    return kind(row["message"], code=int(row["code"]) if row["code"] else None)


def _environment() -> dict[str, str]:
    """Return an environment in which the process finds our packages, without any secret."""
    ours = str(Path(catalog.__file__).parent.parent)
    others = os.environ.get("PYTHONPATH")
    return harmless_environment() | {"PYTHONPATH": ours + (os.pathsep + others if others else "")}


def main(requests_from: int, answers_to: int) -> None:
    """Answer one request, then end the process."""
    asked = Connection(requests_from, writable=False)
    plan, hands, access, server = asked.recv()
    threading.Thread(target=_end_with_parent, args=(requests_from,), daemon=True).start()
    work = TaskWork(
        plan,
        hands,
        None,
        None if server is None else _Server(server),
        None if access is None else _Storage(access),
    )
    rows = [r for hand in hands for batch in write_slices(work, hand) for r in batch.to_pylist()]
    Connection(answers_to, readable=False).send(rows)
    # Past the interpreter's own ending, in which chdb's threads may still be at work.
    os._exit(0)


def _end_with_parent(requests_from: int) -> None:
    while os.read(requests_from, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
