"""A writer without Spark: the same task code, reading the same real parts, in one child process."""

from __future__ import annotations

from collections.abc import Callable

import tableformat.errors
from catalog.clickhouse.server.settings import ServerSettings
from catalog.storages.schemes import Storages
from spark_ext.engine.tasks import installed_versions
from tableformat.errors import TableFormatError
from tableformat.export.ports import SliceFailure, Writing, Written
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.receipt import Receipt
from tests.support.in_child import in_child

__all__ = ["ChildWriter"]

_WRITE = """
from types import SimpleNamespace
from spark_ext.engine.tasks import TaskWork, write_slices
plan, tasks, *told = values
server, storage = (None if one is None else SimpleNamespace(value=one) for one in told)
work = TaskWork(plan, tasks, None, server, storage)
answer([row for task in tasks for row in write_slices(work, task)])
"""


class ChildWriter:
    """A `tableformat.export.ports.SliceWriter`. `before` is called before anything is written.

    `server` is where the slices are read, None for files; `storages` are of the lake, None where it
    is in files.
    """

    slots = 2

    def __init__(
        self,
        before: Callable[[WritePlan, tuple[SliceTask, ...]], None],
        server: ServerSettings | None = None,
        storages: Storages | None = None,
    ) -> None:
        self._before, self._server, self._storages = before, server, storages

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
        self._before(plan, tasks)
        access = self._storages.access(plan.receipts_location) if self._storages else None
        rows = in_child(_WRITE, plan, tasks, self._server, access)
        on_rows(0)
        yield
        receipts = tuple(Receipt.from_json(r["receipt"]) for r in rows if r["receipt"])
        failures = tuple(SliceFailure(r["slice"], _error(r)) for r in rows if not r["receipt"])
        return Written(receipts, failures)


def _error(row: dict[str, str]) -> TableFormatError:
    kind: type[TableFormatError] = getattr(tableformat.errors, row["error"])
    return kind(row["message"], code=int(row["code"]) if row["code"] else None)
