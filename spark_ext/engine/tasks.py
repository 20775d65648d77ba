"""The code that runs on executors: checks the host, writes slices, and reports progress.

A task writes its slices one after the other; it opens small slices together. Its only side
effects are finished files and their receipts. It returns one row for each slice: the receipt, or
an error. Failures are rows, not exceptions, so one bad partition does not fail the others.

Checks of a task:
- Before it reads: the host has the versions of the plan and, where parts are files, the disk of
  the source.
- Before or after it writes: the data of the slice passes the checks of the plan (class C in
  docs/reference/types.md).

Tasks send progress finer than a file, (slice, rows so far), to the application as datagrams.
A lost, late or foreign datagram changes only a progress bar.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import secrets
import socket
import struct
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark import TaskContext

from catalog.clickhouse.part_directories import sweep
from catalog.clickhouse.server.settings import ServerSettings
from catalog.clickhouse.slice_reader import OpenSlice, OpenTogether, SliceReader
from catalog.processes import job_may_be_alive
from catalog.spool import read_first
from catalog.storages.schemes import Access, open_storage
from tableformat.errors import (
    InternalError,
    NotBegunError,
    RefusedError,
    SourceError,
    TableFormatError,
)
from tableformat.export.data_checks import broken, checks_sql
from tableformat.export.slices import (
    DataCheck,
    FileFormat,
    Slice,
    SliceTask,
    WritePlan,
    opened_together,
)
from tableformat.file_names import data_file_name, stop_mark
from tableformat.iceberg.arrow_schema import file_schema, to_file
from tableformat.parquet.writer import FileSink, WrittenFile, write_file
from tableformat.rate_limit import Pace, PacedSink
from tableformat.receipt import Receipt
from tableformat.source import ServedLayout

__all__ = [
    "ANSWER_SCHEMA",
    "ProgressAddress",
    "ProgressListener",
    "ServerAccess",
    "SliceProgress",
    "StorageAccess",
    "TaskWork",
    "check_host",
    "find_receipt",
    "installed_versions",
    "run_checks",
    "send_rows",
    "write_slice",
    "write_slices",
]

_FORMAT: Final = struct.Struct("!QQQ")


@dataclass(frozen=True, slots=True)
class ProgressAddress:
    """Where tasks send to; `job` keeps the datagrams of other jobs out."""

    host: str
    port: int
    job: int


@dataclass(slots=True)
class SliceProgress:
    """How far a slice is: a row counts half when it is read, and in full when it is written.

    A row group takes seconds to collect and seconds to write; counted at its end only, a progress
    bar stands still and then jumps.
    """

    tell: Callable[[int], None]
    rows_read: int = 0
    rows_written: int = 0

    def read(self, rows: int) -> None:
        """Note the rows that are read by now."""
        self.rows_read = rows
        self.tell((self.rows_read + self.rows_written) // 2)

    def written(self, rows: int) -> None:
        """Note the rows that are written by now."""
        self.rows_written = rows
        self.tell((self.rows_read + self.rows_written) // 2)


class ProgressListener:
    """Collects the rows of running slices; made by the application, closed when the job is over."""

    def __init__(self, host: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((host, 0))
        self._socket.settimeout(0)
        self._rows: dict[int, int] = {}
        self.address = ProgressAddress(host, self._socket.getsockname()[1], secrets.randbits(64))

    def rows(self) -> int:
        """Return the rows of all slices as far as is known."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self._socket.recv(_FORMAT.size + 1)
                if len(data) == _FORMAT.size:
                    job, number, rows = _FORMAT.unpack(data)
                    if job == self.address.job:
                        self._rows[number] = rows
        return sum(self._rows.values())

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def send_rows(address: ProgressAddress, slice_number: int, rows: int) -> None:
    """Tell how far a slice is. A network that refuses is no reason to stop writing."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(_FORMAT.pack(address.job, slice_number, rows), (address.host, address.port))


_OF_A_PASS: Final = 250
"""Checks that one query asks: of thousands it would be larger than a server takes."""


def check_host(plan: WritePlan, installed: tuple[tuple[str, str], ...], slice_: Slice) -> None:
    """Refuse to work where results could differ or the source is not there.

    Args:
        plan: of the job.
        installed: the versions that this host has.
        slice_: what is to be read here.

    Raises:
        SourceError: a version is not the planned one, or a part cannot be read on this host.
    """
    host = socket.gethostname()
    here = dict(installed)
    for name, planned in plan.versions:
        if here.get(name) != planned:
            message = (
                f"Cannot read {plan.table} on executor host {host}: it has {name} "
                f"{here.get(name, 'not installed')}, the export was planned with {planned}. "
                "Install the same versions on every executor."
            )
            raise SourceError(message)
    if isinstance(plan.layout, ServedLayout):
        return
    for part in slice_.ranges:
        if not os.access(part.path, os.R_OK | os.X_OK):
            reason = "no permission" if os.path.exists(part.path) else "no such directory"  # noqa: PTH110
            message = (
                f"Cannot read {part.path} on executor host {host}: {reason}. "
                "Run the executors where the source's disk is mounted, as a user who may read it."
            )
            raise SourceError(message)


def run_checks(plan: WritePlan, opened: SliceReader, checks: list[DataCheck]) -> None:
    """Run checks over the slice: in one pass, or several where there are very many columns.

    Raises:
        RefusedError: values have no place in the lake table; every column with such is named.
        SourceError: the slice cannot be read.
    """
    passes = [checks[i : i + _OF_A_PASS] for i in range(0, len(checks), _OF_A_PASS)]
    found = [broken(some, opened.row(checks_sql(some))) for some in passes]
    reasons = " ".join(text for text in found if text)
    if reasons:
        raise RefusedError(
            f"Cannot export partition {opened.slice.partition_id} of {plan.table}: {reasons}"
        )


ANSWER_SCHEMA: Final = "slice long, receipt string, error string, message string, code int"
_ARROW_ANSWER: Final = pa.schema(
    [
        ("slice", pa.int64()),
        ("receipt", pa.string()),
        ("error", pa.string()),
        ("message", pa.string()),
        ("code", pa.int32()),
    ]
)
_PACKAGES: Final = ("chdb-core", "pyarrow")


class ServerAccess(Protocol):
    """Holds how to reach the source's server, with its secrets: on executors a broadcast."""

    @property
    def value(self) -> ServerSettings:
        """What is held."""
        ...


class StorageAccess(Protocol):
    """Holds how to reach the lake's storage, with its secrets: on executors a broadcast."""

    @property
    def value(self) -> Access:
        """What is held."""
        ...


@dataclass(frozen=True, slots=True)
class TaskWork:
    """A job as it is sent to executors: the plan, every task by number, and where progress goes.

    `access` is None when tasks open the source's parts as files, `storage` when they write files.
    """

    plan: WritePlan
    tasks: tuple[SliceTask, ...]
    progress: ProgressAddress | None
    access: ServerAccess | None = None
    storage: StorageAccess | None = None

    @property
    def storage_access(self) -> Access | None:
        """How to reach the lake's storage, None for files."""
        return None if self.storage is None else self.storage.value

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the slices of the tasks whose numbers arrive; the function of `mapInArrow`."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from write_slices(self, self.tasks[number])


def installed_versions() -> tuple[tuple[str, str], ...]:
    """Return what must be equal where a job is planned and where it runs."""
    python = ".".join(platform.python_version_tuple()[:2])
    return (("python", python), *((name, version(name)) for name in _PACKAGES))


def write_slices(work: TaskWork, task: SliceTask) -> Iterator[pa.RecordBatch]:
    """Write the slices of one task; yield one answer for each, as soon as it is known."""
    context = TaskContext.get()
    attempt_number = context.attemptNumber() if context is not None else 0
    files = _Files.of(work.plan, work.storage_access)
    with _reading(work, task) as open_slices:
        for together in opened_together(task):
            with open_slices(together) as open_slice:
                for slice_ in together:
                    try:
                        receipt = _finish(work, files, slice_, attempt_number, open_slice)
                    except TableFormatError as error:
                        yield _answer(slice_, error=error)
                    else:
                        yield _answer(slice_, receipt=receipt)


def _reading(work: TaskWork, task: SliceTask) -> AbstractContextManager[OpenTogether]:
    """Return what opens slices: as files of this host, or at the server that keeps their parts."""
    # chdb must not be loaded in a process that forks, and the Spark worker's parent does.
    if isinstance(work.plan.layout, ServedLayout):
        from catalog.clickhouse.server import rows as served

        if work.access is None:
            message = "A task cannot reach its server; this is a bug, please report it."
            raise InternalError(message)
        return served.reading(work.plan, work.access.value)
    from catalog.clickhouse import parts

    for disk in sorted({slice_.place for slice_ in task.slices if slice_.place}):
        sweep(Path(disk), job_may_be_alive)
    return parts.reading(work.plan)


def _finish(
    work: TaskWork, files: _Files, slice_: Slice, attempt_number: int, open_slice: OpenSlice
) -> Receipt:
    """Return the receipt of a slice: that of an attempt that died, or after writing it."""
    # A worker that died may have finished this file: it is never written again.
    receipt = find_receipt(work.plan, slice_, files.access) if attempt_number else None
    if receipt is None:
        _stop_when_told(files, slice_)
        attempt = f"{attempt_number}-{uuid.uuid4().hex[:12]}"
        receipt = _write_slice(files, slice_, attempt, _progress(work, slice_), open_slice)
    return receipt


def _stop_when_told(files: _Files, slice_: Slice) -> None:
    """Refuse to begin a slice after the application was stopped (docs/operating/stopping.md).

    Raises:
        NotBegunError: it was.
        DestinationError: nobody can say.
    """
    mark = stop_mark(files.plan.receipts_location, files.plan.job)
    if open_storage(mark, files.access).list(mark.rsplit("/", 1)[0]):
        message = (
            f"Cannot begin another file of partition {slice_.partition_id}: the export was told to "
            "stop. Run the same command again: it goes on with what is left."
        )
        raise NotBegunError(message)


def write_slice(
    plan: WritePlan, slice_: Slice, attempt: str, on_rows: Callable[[int], None]
) -> Receipt:
    """Write one slice to one file and store its receipt.

    Args:
        plan: of the job.
        slice_: what to write.
        attempt: makes the file's name unique.
        on_rows: told how far the slice is, in rows; all of them once the file is written.

    Raises:
        SourceError: the parts cannot be read here, or gave other rows than planned.
        RefusedError: a value has no place in the lake table.
        DestinationError: the file or its receipt cannot be stored.
        InternalError: data did not fit, and no check of the plan explains why.
    """
    # chdb must not be loaded in a process that forks, and the Spark worker's parent does.
    from catalog.clickhouse import parts

    open_slice = partial(parts.open_slice, plan)
    return _write_slice(_Files.of(plan), slice_, attempt, on_rows, open_slice)


@dataclass(frozen=True, slots=True)
class _Files:
    """What all files of a task share: plan, schemas, format, what is installed here, the pace."""

    plan: WritePlan
    lake_schema: Schema
    schema: pa.Schema
    format: FileFormat
    installed: tuple[tuple[str, str], ...]
    pace: Pace | None
    access: Access | None

    @classmethod
    def of(cls, plan: WritePlan, access: Access | None = None) -> _Files:
        """Read it from a plan; it takes longer than reading a small slice."""
        lake_schema = Schema.model_validate_json(plan.schema_json)
        schema = file_schema(lake_schema, escape=not plan.tree)
        written = _in_file(plan.format, lake_schema, schema)
        rate = plan.share.bytes_per_second if plan.share is not None else None
        pace = None if rate is None else Pace(rate)
        return cls(plan, lake_schema, schema, written, installed_versions(), pace, access)

    def sink(self, path: str) -> FileSink:
        """Begin a file, which is written at the pace of the task."""
        sink = open_storage(path, self.access).create(path)
        return sink if self.pace is None else PacedSink(sink, self.pace)


def _write_slice(
    files: _Files,
    slice_: Slice,
    attempt: str,
    on_rows: Callable[[int], None],
    open_slice: OpenSlice,
) -> Receipt:
    started = time.monotonic()
    plan = files.plan
    check_host(plan, files.installed, slice_)
    name = data_file_name(
        slice_.key,
        slice_.transaction_id,
        slice_.number,
        attempt,
        transaction_first=plan.tree,
    )
    path = "/".join(p for p in (plan.data_location.rstrip("/"), slice_.directory, name) if p)
    with open_slice(slice_) as opened:
        run_checks(plan, opened, [check for check in plan.checks if check.always])
        written = _write(files, opened, path, on_rows)
    receipt = _receipt(plan, slice_, attempt, path, written, time.monotonic() - started)
    stored = f"{_receipts(plan, slice_)}/{slice_.number}-{attempt}.json"
    open_storage(stored, files.access).put(stored, receipt.to_json().encode())
    return receipt


def find_receipt(plan: WritePlan, slice_: Slice, access: Access | None = None) -> Receipt | None:
    """Return the stored receipt of exactly this slice whose file is there, if there is one.

    Raises:
        DestinationError: the receipts cannot be listed or read, or the file of one is gone.
        LedgerError: a receipt is damaged.
    """
    below = _receipts(plan, slice_)
    storage = open_storage(below, access)
    for stored in storage.list(below):
        if not stored.location.removeprefix(f"{below}/").startswith(f"{slice_.number}-"):
            continue
        receipt = Receipt.from_json(storage.read(stored.location).decode())
        same = receipt.ranges == slice_.ranges and receipt.epoch == slice_.epoch
        if same and storage.size(receipt.file_path) == receipt.file_bytes:
            return receipt
    return None


def _receipts(plan: WritePlan, slice_: Slice) -> str:
    return f"{plan.receipts_location.rstrip('/')}/{slice_.key}/{slice_.transaction_id}"


def _write(
    files: _Files, opened: SliceReader, path: str, on_rows: Callable[[int], None]
) -> WrittenFile:
    """Stream the slice into its file; afterwards the file is complete and has the planned rows."""
    plan = files.plan
    expected = opened.rows
    progress = SliceProgress(on_rows)

    def counted() -> Generator[pa.RecordBatch, None, None]:
        rows = 0
        for batch in opened.batches():
            rows += batch.num_rows
            progress.read(rows)
            yield batch
        # Inside the stream, so that a file with other rows than planned is never finished.
        if expected is not None and rows != expected:
            message = (
                f"Cannot export partition {opened.slice.partition_id} of {plan.table}: slice "
                f"{opened.slice.number} gave {rows} rows, planned were {expected}. "
                "Check the table with CHECK TABLE and run again."
            )
            raise SourceError(message)

    rows = counted()
    if plan.share is not None and plan.share.in_turn:
        rows = read_first(rows)
    sink = files.sink(path)
    try:
        with contextlib.closing(rows) as batches:
            return write_file(
                batches,
                sink,
                files.schema,
                files.format if expected is None else replace(files.format, bloom_values=expected),
                plan.sort_fields,
                convert=lambda table: to_file(table, files.lake_schema, escape=not plan.tree),
                on_rows=progress.written,
            )
    except (pa.ArrowException, RefusedError, SourceError) as error:
        # ClickHouse itself stops at instants that it cannot cast, without naming the column.
        if not _is_cut(plan, error):
            run_checks(plan, opened, [check for check in plan.checks if not check.always])
        if isinstance(error, TableFormatError):
            raise
        message = (
            f"Cannot write partition {opened.slice.partition_id} of {plan.table}: {error}. No "
            "check of the data explains it. This is a bug, please report it."
        )
        raise InternalError(message) from error


def _is_cut(plan: WritePlan, error: Exception) -> bool:
    """Whether a server gave no whole answer: no value is the reason, and it may not answer now."""
    by_server = isinstance(plan.layout, ServedLayout)
    return by_server and isinstance(error, SourceError) and error.code is None


def _in_file(fmt: FileFormat, lake_schema: Schema, schema: pa.Schema) -> FileFormat:
    """Return the format with the names that columns have in files, which may be escaped."""
    written = dict(zip((f.name for f in lake_schema.fields), schema.names, strict=True))
    return replace(fmt, bloom_columns=tuple(written.get(n, n) for n in fmt.bloom_columns))


def _receipt(
    plan: WritePlan, slice_: Slice, attempt: str, path: str, written: WrittenFile, seconds: float
) -> Receipt:
    unit = 1 if sys.platform == "darwin" else 1024
    return Receipt(
        key=slice_.key,
        transaction_id=slice_.transaction_id,
        epoch=slice_.epoch,
        slice_number=slice_.number,
        attempt=attempt,
        ranges=slice_.ranges,
        file_path=path,
        file_bytes=written.bytes,
        sha256=written.sha256,
        rows=written.rows,
        rows_expected=slice_.rows,
        partition=slice_.partition,
        spec_id=plan.spec_id,
        sort_order_id=plan.sort_order_id,
        split_offsets=written.split_offsets,
        columns=written.columns,
        seconds=seconds,
        peak_memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
    )


def _progress(work: TaskWork, slice_: Slice) -> Callable[[int], None]:
    def send(rows: int) -> None:
        if work.progress is not None:
            send_rows(work.progress, slice_.number, rows)

    return send


def _answer(
    slice_: Slice, *, receipt: Receipt | None = None, error: TableFormatError | None = None
) -> pa.RecordBatch:
    row = {
        "slice": slice_.number,
        "receipt": None if receipt is None else receipt.to_json(),
        "error": None if error is None else type(error).__name__,
        "message": None if error is None else error.message,
        "code": None if error is None else error.code,
    }
    return pa.RecordBatch.from_pylist([row], schema=_ARROW_ANSWER)
