"""A writer without Spark that lasts: one process runs the real task code of table after table.

`tests/support/child_writer.py` starts a process for every job, which takes longer than a small
table does.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import tableformat.errors
from catalog.clickhouse.server.settings import ServerSettings
from spark_ext.engine.tasks import installed_versions
from tableformat.errors import TableFormatError
from tableformat.export.ports import SliceFailure, Writing, Written
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.receipt import Receipt

__all__ = ["TaskWorker"]

_ROOT: Final = Path(__file__).parents[2]
# The connection that stays open keeps the ClickHouse of the process, which the last one would end.
_SERVE: Final = """
import pickle, struct, sys
from types import SimpleNamespace
import chdb
import adbc_driver_chdb
from spark_ext.engine.tasks import TaskWork, write_slices
answers = open(int(sys.argv[1]), "wb")
with adbc_driver_chdb.connect("chdb://"):
    while head := sys.stdin.buffer.read(4):
        plan, tasks, server = pickle.loads(sys.stdin.buffer.read(struct.unpack("<I", head)[0]))
        work = TaskWork(plan, tasks, None, server and SimpleNamespace(value=server))
        rows = [r for t in tasks for r in write_slices(work, t)]
        answer = pickle.dumps(rows)
        answers.write(struct.pack("<I", len(answer)) + answer)
        answers.flush()
"""


class TaskWorker:
    """A `tableformat.export.ports.SliceWriter`; a context manager: leaving it ends the process."""

    slots = 2

    def __init__(self, server: ServerSettings | None = None) -> None:
        """Prepare; the process starts on entry.

        Args:
            server: where slices are read, None for files.
        """
        self.server = server
        self.seconds_of_cpu = 0.0

    def __enter__(self) -> Self:
        mine, theirs = os.pipe()
        self._child = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(theirs)],
            stdin=subprocess.PIPE,
            pass_fds=(theirs,),
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
        )
        os.close(theirs)
        self._responses = os.fdopen(mine, "rb")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(timeout=60)
        self._responses.close()

    @property
    def process_id(self) -> int:
        """The process that writes."""
        return self._child.pid

    def versions(self) -> tuple[tuple[str, str], ...]:
        return installed_versions()

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],  # noqa: ARG002  all slices are begun at once
    ) -> Writing:
        rows = self._asked(plan, tasks, self.server)
        on_rows(0)
        yield
        receipts = tuple(Receipt.from_json(r["receipt"]) for r in rows if r["receipt"])
        failures = tuple(SliceFailure(r["slice"], _error(r)) for r in rows if not r["receipt"])
        return Written(receipts, failures)

    def _asked(self, *values: Any) -> list[dict[str, Any]]:
        assert self._child.stdin is not None
        request = pickle.dumps(values)
        self._child.stdin.write(struct.pack("<I", len(request)) + request)
        self._child.stdin.flush()
        head = self._responses.read(4)
        assert head, "the process that writes ended"
        size = struct.unpack("<I", head)[0]
        rows: list[dict[str, Any]] = pickle.loads(self._responses.read(size))  # noqa: S301  our own
        return rows


def _error(row: dict[str, Any]) -> TableFormatError:
    kind: type[TableFormatError] = getattr(tableformat.errors, row["error"])
    return kind(row["message"], code=int(row["code"]) if row["code"] else None)
