"""The code that runs on executors: checks the host, writes slices, and reports progress.

A task writes its slices one after the other; it opens small slices together. Its only side
effects are finished files and their receipts. It returns one row for each slice: the receipt, or
an error. Failures are rows, not exceptions, so one bad partition does not fail the others.

Checks of a task:
- Before it reads: the host has the versions of the plan and, where parts are files, the disk of
  the source.
- Before or after it writes: the data of the slice passes the checks of the plan (class C in
  docs/reference/types.md).

`DigestWork` is what a task does for a verification: it digests data files of the lake.

Tasks send progress finer than a file, (slice, rows so far), to the application as datagrams.
A lost, late or foreign datagram changes only a progress bar.
"""

from __future__ import annotations

import contextlib
import logging
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
from functools import cache, lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypedDict

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark import TaskContext
from pyspark.sql import SparkSession

import tableformat.errors
from catalog.clickhouse.part_directories import sweep
from catalog.clickhouse.rows.digests import FileDigests
from catalog.clickhouse.server.settings import ServerSettings
from catalog.clickhouse.slice_reader import OpenSlice, OpenTogether, SliceReader, read_first
from catalog.processes import job_may_be_alive
from catalog.rate_limit import Pace, PacedSink, RatePool
from catalog.storages.schemes import Access, Opens, open_storage
from tableformat.committer import FileInMain
from tableformat.digest import Digest
from tableformat.errors import (
    DeniedError,
    InternalError,
    MissingError,
    NotBegunError,
    RefusedError,
    SourceError,
    TableFormatError,
    Unable,
    during,
)
from tableformat.export.slice_sql import broken, checks_sql
from tableformat.export.slices import (
    DataCheck,
    FileFormat,
    Slice,
    SliceTask,
    WritePlan,
    opened_together,
)
from tableformat.file_names import data_file_name, data_file_path, stop_mark
from tableformat.iceberg.arrow_schema import file_schema, to_file
from tableformat.iceberg.read_columns import FilesToDigest
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.parquet.writer import FileSink, WrittenFile, write_file
from tableformat.receipt import Receipt
from tableformat.source import ServedLayout

__all__ = [
    "DigestWork",
    "ErrorFields",
    "FileDigest",
    "NumberedFile",
    "ProgressAddress",
    "ProgressListener",
    "ServerAccess",
    "SliceProgress",
    "SliceRow",
    "StorageAccess",
    "TaskWork",
    "check_host",
    "error_of",
    "fields_of",
    "find_receipt",
    "installed_versions",
    "progress_host",
    "run_checks",
    "send_rows",
    "write_slice",
    "write_slices",
]

_FORMAT: Final = struct.Struct("!QQQ")
_LOGGER: Final = logging.getLogger("mergeberg.source")


@dataclass(frozen=True, slots=True)
class ProgressAddress:
    """The address to which tasks send progress; `job` distinguishes the datagrams of jobs."""

    host: str
    port: int
    job: int


@dataclass(slots=True)
class SliceProgress:
    """The progress of a slice: a row counts half when it is read, and in full when it is written.

    A row group takes seconds to read and seconds to write. If rows counted only when the row group
    is written, a progress bar would stop and then jump.
    """

    report: Callable[[int], None]
    rows_read: int = 0
    rows_written: int = 0

    def read(self, rows: int) -> None:
        """Set the number of rows that are read so far."""
        self.rows_read = rows
        self.report((self.rows_read + self.rows_written) // 2)

    def written(self, rows: int) -> None:
        """Set the number of rows that are written so far."""
        self.rows_written = rows
        self.report((self.rows_read + self.rows_written) // 2)


class ProgressListener:
    """Receives the progress of running slices on the driver, until the job has ended."""

    def __init__(self, host: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((host, 0))
        self._socket.settimeout(0)
        self._rows: dict[int, int] = {}
        self.address = ProgressAddress(host, self._socket.getsockname()[1], secrets.randbits(64))

    def rows(self) -> int:
        """Return the rows that all slices have reported so far."""
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
    """Send the progress of a slice; ignore network errors, which must not stop the writing."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(_FORMAT.pack(address.job, slice_number, rows), (address.host, address.port))


def progress_host(spark: SparkSession) -> str:
    """Return the host of this process as the session's tasks reach it."""
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        return "127.0.0.1"
    return context.getConf().get("spark.driver.host", "127.0.0.1") or "127.0.0.1"


ErrorFields: TypeAlias = tuple[str, str, int | None]
"""The class name, message and code of an error, which a task can send."""


def fields_of(error: TableFormatError) -> ErrorFields:
    """Return the fields of an error."""
    return type(error).__name__, error.message, error.code


def error_of(fields: ErrorFields) -> TableFormatError:
    """Return the error that has these fields, of its own class."""
    name, message, code = fields
    kind = getattr(tableformat.errors, name, TableFormatError)
    error: TableFormatError = kind(message, code=code)
    return error


_OF_A_PASS: Final = 250
"""Number of checks in one query; a query with thousands would exceed a server's size limit."""


def check_host(plan: WritePlan, installed: tuple[tuple[str, str], ...], slice_: Slice) -> None:
    """Check that this host has the planned versions and can read the parts of a slice.

    Args:
        plan: the write plan of the job.
        installed: the versions on this host.
        slice_: the slice to read here.

    Raises:
        SourceError: a version is not the planned one, or a part cannot be read on this host.
    """
    host = socket.gethostname()
    here = dict(installed)
    for name, planned in plan.versions:
        if here.get(name) != planned:
            message = (
                f"Cannot read {plan.table} on executor host {host}: it has {name} "
                f"{here.get(name, 'not installed')}, the command was planned with {planned}. "
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
    """Run data checks on a slice, in one query or in several if there are very many checks.

    Raises:
        RefusedError: columns have values that the lake table cannot hold; all are named.
        SourceError: the slice cannot be read.
    """
    passes = [checks[i : i + _OF_A_PASS] for i in range(0, len(checks), _OF_A_PASS)]
    found = [broken(some, opened.row(checks_sql(some))) for some in passes]
    reasons = " ".join(text for text in found if text)
    if reasons:
        raise RefusedError(Unable.of(_partition_of(plan, opened), reasons))


def _partition_of(plan: WritePlan, opened: SliceReader) -> str:
    """Return the partition of a slice, for messages to which the command gives the verb."""
    return f"partition {opened.slice.partition_id} of {plan.table}"


class SliceRow(TypedDict):
    """The result of a slice: its number, and the JSON of its receipt or the fields of an error."""

    slice: int
    receipt: str | None
    error: str | None
    message: str | None
    code: int | None


_PACKAGES: Final = ("chdb-core", "pyarrow")


class ServerAccess(Protocol):
    """Holds the access to the source's server with its secrets; on executors, a broadcast."""

    @property
    def value(self) -> ServerSettings:
        """The access."""
        ...


class StorageAccess(Protocol):
    """Holds the access to the lake's storage with its secrets; on executors, a broadcast."""

    @property
    def value(self) -> Access:
        """The access."""
        ...


@dataclass(frozen=True, slots=True)
class TaskWork:
    """A job in the form that is sent to executors: the plan, its tasks and the progress address.

    `access` is None if tasks read the source's parts as files. `storage` is None if tasks write
    local files.
    """

    plan: WritePlan
    tasks: tuple[SliceTask, ...]
    progress: ProgressAddress | None
    access: ServerAccess | None = None
    storage: StorageAccess | None = None

    @property
    def storage_access(self) -> Access | None:
        """The access to the lake's storage; None for local files."""
        return None if self.storage is None else self.storage.value

    def __call__(self, numbers: Iterable[int]) -> Iterator[SliceRow]:
        """Write the slices of the tasks with these numbers; the function for `mapPartitions`."""
        for number in numbers:
            yield from write_slices(self, self.tasks[number])


@cache
def installed_versions() -> tuple[tuple[str, str], ...]:
    """Return the versions that must be equal on the driver and on every executor."""
    python = ".".join(platform.python_version_tuple()[:2])
    return (("python", python), *((name, version(name)) for name in _PACKAGES))


def write_slices(work: TaskWork, task: SliceTask) -> Iterator[SliceRow]:
    """Write the slices of one task; yield a receipt or an error for each when it has ended."""
    context = TaskContext.get()
    attempt_number = context.attemptNumber() if context is not None else 0
    files = _Files.of(work.plan, work.storage_access)
    with _reading(work, task) as open_slices:
        for together in opened_together(task):
            with open_slices(together) as open_slice:
                for slice_ in together:
                    try:
                        with _held_rate(work.plan):
                            receipt = _finish(work, files, slice_, attempt_number, open_slice)
                    except TableFormatError as error:
                        yield _result_row(slice_, error=error)
                    else:
                        yield _result_row(slice_, receipt=receipt)


def _held_rate(plan: WritePlan) -> AbstractContextManager[None]:
    """Return a context in which a slice has its part of what processes of this host share."""
    share = plan.share
    if share is None or not share.limit or share.bytes_per_second is None:
        return contextlib.nullcontext()
    return RatePool(share.limit).hold(share.bytes_per_second)


def _reading(work: TaskWork, task: SliceTask) -> AbstractContextManager[OpenTogether]:
    """Return the context that opens slices: as files of this host, or as queries of a server."""
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
    """Return the receipt of an earlier attempt of the slice, or write the slice."""
    # A worker that died may have finished the file, which must not be written twice.
    receipt = find_receipt(work.plan, slice_, files.access) if attempt_number else None
    if receipt is None:
        _check_not_stopped(files, slice_)
        write = partial(_attempt, work, files, attempt_number=attempt_number, opened=open_slice)
        receipt = _write_copy(slice_, write) or write(replace(slice_, copy=None))
    return receipt


def _attempt(
    work: TaskWork, files: _Files, slice_: Slice, *, attempt_number: int, opened: OpenSlice
) -> Receipt:
    """Write a slice to a file of its own name."""
    attempt = f"{attempt_number}-{uuid.uuid4().hex[:12]}"
    return _write_slice(files, slice_, attempt, _progress(work, slice_), opened)


def _write_copy(slice_: Slice, write: Callable[[Slice], Receipt]) -> Receipt | None:
    """Write a slice from its copy, if it has one.

    Returns:
        None if it has none, or if it cannot be read: then the server of the snapshot reads it.
    """
    if slice_.copy is None:
        return None
    try:
        return write(slice_)
    except SourceError as error:
        _LOGGER.warning("%s The replica of the snapshot reads slice %d.", error, slice_.number)
        return None


def _check_not_stopped(files: _Files, slice_: Slice) -> None:
    """Check that the export is not being stopped (docs/operating/stopping.md).

    Raises:
        NotBegunError: the export is being stopped, and no further slice may start.
        DestinationError: the stop mark cannot be looked up.
    """
    mark = stop_mark(files.plan.receipts_location, files.plan.job)
    try:
        open_storage(mark, files.access).size(mark)
    except (MissingError, DeniedError):
        # S3 denies a request for an absent object to an account that may not list objects.
        return
    message = (
        f"Cannot begin another file of partition {slice_.partition_id}: the command was "
        "stopped. Run it again: it continues with the rest."
    )
    raise NotBegunError(message)


def write_slice(
    plan: WritePlan, slice_: Slice, attempt: str, on_rows: Callable[[int], None]
) -> Receipt:
    """Write one slice to one file and store its receipt.

    Args:
        plan: the write plan of the job.
        slice_: the slice to write.
        attempt: makes the file's name unique.
        on_rows: receives the progress in rows; all rows of the slice at the end.

    Raises:
        SourceError: the parts cannot be read here, or the number of rows is not the planned one.
        RefusedError: the lake table cannot hold a value.
        DestinationError: the file or its receipt cannot be stored.
        InternalError: a conversion failed, and no check of the plan explains why.
    """
    # chdb must not be loaded in a process that forks, and the Spark worker's parent does.
    from catalog.clickhouse import parts

    open_slice = partial(parts.open_slice, plan)
    return _write_slice(_Files.of(plan), slice_, attempt, on_rows, open_slice)


@dataclass(frozen=True, slots=True)
class _Files:
    """The data that all files of a task share: plan, schemas, format, versions and write rate."""

    plan: WritePlan
    lake_schema: Schema
    schema: pa.Schema
    format: FileFormat
    installed: tuple[tuple[str, str], ...]
    pace: Pace | None
    access: Access | None

    @classmethod
    def of(cls, plan: WritePlan, access: Access | None = None) -> _Files:
        """Derive it from a plan, once for each task: it takes longer than reading a small slice."""
        lake_schema, schema = _schemas(plan.schema_json, escape=not plan.tree)
        written = _in_file(plan.format, lake_schema, schema)
        rate = plan.share.bytes_per_second if plan.share is not None else None
        pace = None if rate is None else Pace(rate)
        return cls(plan, lake_schema, schema, written, installed_versions(), pace, access)

    def sink(self, path: str) -> FileSink:
        """Create a file that is written at the task's share of the write rate."""
        sink = open_storage(path, self.access).create(path)
        return sink if self.pace is None else PacedSink(sink, self.pace)


# A worker runs the tasks of many groups of partitions, which have the same schema.
@lru_cache(maxsize=8)
def _schemas(schema_json: str, *, escape: bool) -> tuple[Schema, pa.Schema]:
    lake_schema = Schema.model_validate_json(schema_json)
    return lake_schema, file_schema(lake_schema, escape=escape)


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
    path = data_file_path(plan.data_location, slice_.directory, name, plan.paths)
    with during(plan.action), open_slice(slice_) as opened:
        run_checks(plan, opened, [check for check in plan.checks if check.always])
        written = _write(files, opened, path, on_rows)
    receipt = _receipt(plan, slice_, attempt, path, written, time.monotonic() - started)
    stored = f"{_receipts(plan, slice_)}/{slice_.number}-{attempt}.json"
    open_storage(stored, files.access).put(stored, receipt.to_json().encode())
    return receipt


def find_receipt(plan: WritePlan, slice_: Slice, access: Access | None = None) -> Receipt | None:
    """Return a stored receipt of exactly this slice whose file is complete; None if there is none.

    If the storage allows no list, none is found.

    Raises:
        DestinationError: the receipts cannot be listed or read, or the file of one is missing.
        LedgerError: a receipt is damaged.
    """
    below = _receipts(plan, slice_)
    storage = open_storage(below, access)
    try:
        listed = storage.list(below)
    except DeniedError:
        return None
    for stored in listed:
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
    """Stream the slice into its file, and check that it has the planned number of rows."""
    plan = files.plan
    expected = opened.rows
    progress = SliceProgress(on_rows)

    def counted() -> Generator[pa.RecordBatch, None, None]:
        rows = 0
        for batch in opened.batches():
            rows += batch.num_rows
            progress.read(rows)
            yield batch
        # Checked inside the stream, so that a file with a wrong number of rows is never finished.
        if expected is not None and rows != expected:
            why = (
                f"slice {opened.slice.number} gave {rows} rows, planned were {expected}. Check the "
                "table with CHECK TABLE and run again."
            )
            raise SourceError(Unable.of(_partition_of(plan, opened), why))

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
        # ClickHouse fails at times that it cannot cast without naming the column; the checks do.
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
    """Whether the connection to a server broke: no value is the cause, and a check would fail."""
    by_server = isinstance(plan.layout, ServedLayout)
    return by_server and isinstance(error, SourceError) and error.code is None


def _in_file(fmt: FileFormat, lake_schema: Schema, schema: pa.Schema) -> FileFormat:
    """Return the format with the column names that are used in files, which may be escaped."""
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


def _result_row(
    slice_: Slice, *, receipt: Receipt | None = None, error: TableFormatError | None = None
) -> SliceRow:
    name, message, code = (None, None, None) if error is None else fields_of(error)
    return {
        "slice": slice_.number,
        "receipt": None if receipt is None else receipt.to_json(),
        "error": name,
        "message": message,
        "code": code,
    }


@dataclass(frozen=True, slots=True)
class NumberedFile:
    """A data file: the number of its `FilesToDigest`, and its own among all of the job."""

    of: int
    number: int
    file: FileInMain


@dataclass(frozen=True, slots=True)
class FileDigest:
    """The result of one file: its digest and the seconds that it took, or its error."""

    digest: Digest | None
    seconds: float = 0.0
    error: ErrorFields | None = None


@dataclass(slots=True)
class _SendingDigests:
    """Sends the number of rows that a task has digested of its current file."""

    address: ProgressAddress
    number: int = 0
    rows: int = 0

    def begin(self, number: int) -> None:
        """Begin with another file."""
        self.number, self.rows = number, 0

    def __call__(self, more: int) -> None:
        """Send the rows of the file so far."""
        self.rows += more
        send_rows(self.address, self.number, self.rows)


@dataclass(frozen=True, slots=True)
class DigestWork:
    """The function that digests files on an executor, one after the other."""

    storages: Opens
    wanted: tuple[tuple[Schema, tuple[DigestColumn, ...]], ...]
    progress: ProgressAddress

    def __call__(self, files: Iterable[NumberedFile]) -> Iterator[FileDigest]:
        """Digest the files; an unreadable one does not end the others."""
        sending = _SendingDigests(self.progress)
        with FileDigests(self.storages, threads=1, on_rows=sending) as digests:
            for one in files:
                sending.begin(one.number)
                try:
                    digest = digests.digest(FilesToDigest((one.file,), *self.wanted[one.of]))
                except TableFormatError as error:
                    yield FileDigest(None, error=fields_of(error))
                else:
                    yield FileDigest(digest, digests.seconds)
