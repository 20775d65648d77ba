"""Runs Spark jobs that the caller can watch, interrupt and cancel, and splits work into tasks.

`run_job` runs a job in its own job group, so cancelling it stops no other job of the session.

`running_tasks` runs work on a list of items in Spark tasks instead of on the driver, and lets the
caller do other work meanwhile; `in_tasks` waits for the results. The work and each item are
pickled. A task returns a result for each item and stops at its first error, which it returns as a
result too. The caller gets the error of the first item that has one, in the order of the items. A
task attempt that Spark repeats is harmless: the files of each attempt have different names, and
only one result counts.

A task starts its own ClickHouse, and the first tasks of a session start a Python each, so a few
small files are faster in the current process (`is_worth_tasks`). `sent_storages` sends tasks the
access to the lake's storages.

`task_directory` provides a temporary directory that tasks write to and other tasks read from, on
any host.

`DigestJob` is a job that digests data files, and counts their rows meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import InheritableThread, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from catalog.processes import ScratchDirectory
from catalog.storages.schemes import Opens, ReachedStorages, Storages
from spark_ext.engine.tasks import (
    ErrorFields,
    FileDigest,
    ProgressListener,
    error_of,
    fields_of,
    installed_versions,
)
from tableformat.committer import BranchFile, FileInMain
from tableformat.digest import Digest
from tableformat.errors import (
    DestinationError,
    InternalError,
    SourceError,
    StoppedError,
    TableFormatError,
)
from tableformat.export.slices import deal
from tableformat.file_names import views_directory
from tableformat.iceberg.read_columns import FilesToDigest
from tableformat.mergetree.digest_sql import empty_digest
from tableformat.storage import Storage

__all__ = [
    "JOB_ERRORS",
    "LEAST_BYTES",
    "LEAST_FILES",
    "DigestJob",
    "TaskDirectory",
    "in_tasks",
    "is_worth_tasks",
    "plain_error",
    "run_job",
    "running_tasks",
    "sent_storages",
    "spark_reason",
    "task_directory",
]

T = TypeVar("T")

JOB_ERRORS: Final = (PySparkException, Py4JError, OSError)
"""The exceptions of a failed Spark job."""
_POLL_SECONDS: Final = 0.1
# Spark ends the Python worker of an interrupted task seconds later. Nothing needs to wait for that:
# files that such a task still writes are invisible and have unique names.
_CANCEL_SECONDS: Final = 0.3
_PYTHON_ERROR: Final = re.compile(r"^(?P<name>[A-Za-z_][\w.]*): (?P<message>.*)", re.MULTILINE)
_CANCELLED: Final = re.compile(
    r"\[SPARK_JOB_CANCELLED\] (?P<why>[^\n]*?)(?: SQLSTATE: \w+)?$", re.MULTILINE
)


def run_job(
    context: SparkContext, group: str, description: str, collect: Callable[[], Iterable[T]]
) -> Generator[None, None, list[T]]:
    """Run a Spark job in a separate thread; yield about ten times a second; return its rows.

    Closing the generator, or an exception in the calling thread, cancels the job.

    Args:
        context: the Spark context.
        group: a job group for this job alone.
        description: the description of the job in Spark's UI.
        collect: runs the job and returns its rows.

    Raises:
        PySparkException: the job failed.
        Py4JError: the JVM could not be called.
        OSError: the connection to the JVM failed.
    """
    rows: list[T] = []
    failed: list[Exception] = []
    ended = threading.Event()

    def run() -> None:
        try:
            context.setJobGroup(group, description, interruptOnCancel=True)
            rows.extend(collect())
        # The calling thread raises it.
        except JOB_ERRORS as error:
            failed.append(error)
        finally:
            ended.set()

    # PySpark keeps a separate job group only for an InheritableThread.
    thread = InheritableThread(target=run, name=group, daemon=True)
    thread.start()
    try:
        while not ended.wait(_POLL_SECONDS):
            yield
    except BaseException:
        # In a separate thread: this thread's own call of the JVM may still be waiting for a reply.
        threading.Thread(target=context.cancelJobGroup, args=(group,), daemon=True).start()
        ended.wait(_CANCEL_SECONDS)
        raise
    thread.join()
    if failed:
        raise failed[0]
    return rows


def spark_reason(error: Exception) -> str:
    """Return why Spark failed, as one line without a full stop.

    The first line of an error of Java is Py4J's, and names only an object and a method.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, Py4JJavaError) and len(lines) > 1:
        del lines[0]
    return lines[0].removeprefix(": ").rstrip(". ") if lines else type(error).__name__


def plain_error(what: str, then: str, error: Exception) -> SourceError | StoppedError:
    """Return a failed job's Python error without the Java stack trace around it.

    Args:
        what: the beginning of the message, "Cannot ...".
        then: the end of the message: the state of the other work, and what to do.
        error: the exception of the job.
    """
    text = str(error)
    cancelled = _CANCELLED.search(text)
    if cancelled is not None:
        message = f"{what}: its Spark job was cancelled: {cancelled['why'].rstrip('. ')}. {then}"
        return StoppedError(message)
    found = _PYTHON_ERROR.findall(text.partition("JVM stacktrace")[0])
    cause = ": ".join(found[-1]) if found else spark_reason(error)
    if found and found[-1][0] == "ModuleNotFoundError":
        message = (
            f"{what}: the Python of the session's workers is another one: "
            f"{cause.rstrip('.')}. Set PYSPARK_PYTHON to {sys.executable}, or on a cluster to a "
            "Python on every host that has mergeberg, before the session starts."
        )
        return SourceError(message)
    return SourceError(f"{what}: a Spark task failed: {cause.rstrip('.')}. {then}")


R = TypeVar("R")

_TASKS_PER_SLOT: Final = 3
# A task starts its own ClickHouse, which takes about as long as the work on so many items.
_LEAST_ITEMS: Final = 8
# More tasks than slots let a cluster with dynamic allocation add executors.
_TASK_BYTES: Final = 1024 * 1024 * 1024
_LOOK_SECONDS: Final = 1.0
_THEN: Final = "Nothing of it became visible. Run it again."

LEAST_FILES: Final = 64
LEAST_BYTES: Final = 128 * 1024 * 1024


def is_worth_tasks(spark: SparkSession, files: Iterable[BranchFile | FileInMain]) -> bool:
    """Whether tasks are faster than this process, because the files are many or large."""
    sizes = [file.bytes for file in files]
    many = len(sizes) >= LEAST_FILES or (len(sizes) > 1 and sum(sizes) >= LEAST_BYTES)
    return many and spark.sparkContext.defaultParallelism > 1


class _Sent(Protocol):
    """Holds the access to storages with their secrets; a broadcast."""

    @property
    def value(self) -> ReachedStorages:
        """The access."""
        ...


@dataclass(frozen=True, slots=True)
class _SentStorages:
    """Opens storages on an executor."""

    sent: _Sent

    def __call__(self, location: str) -> Storage:
        """Open the storage that a location belongs to."""
        return self.sent.value(location)


def sent_storages(spark: SparkSession, storages: Storages, locations: Iterable[str]) -> Opens:
    """Broadcast the access to the storages of some locations, for one job.

    Each job gets the current credentials, because vended credentials may have been renewed.

    Raises:
        UsageError: a storage is not supported or not configured.
    """
    return _SentStorages(spark.sparkContext.broadcast(storages.reached(locations)))


@dataclass(frozen=True, slots=True)
class _ItemResult(Generic[R]):
    """The result of one item, or its error."""

    number: int
    made: R | None = None
    error: ErrorFields | None = None


_Share = tuple[tuple[int, T], ...]


@dataclass(frozen=True, slots=True)
class _Task(Generic[T, R]):
    """The function that runs on executors: checks versions, then works on the items of a task."""

    what: str
    versions: tuple[tuple[str, str], ...]
    work: Callable[[Iterable[T]], Iterator[R]]

    def __call__(self, shares: Iterable[_Share[T]]) -> Iterator[_ItemResult[R]]:
        for share in shares:
            made, numbers = self._made(item for _, item in share), iter(share)
            for number, _ in numbers:
                try:
                    yield _ItemResult(number, next(made))
                except TableFormatError as error:
                    yield _ItemResult(number, error=fields_of(error))
                    break
            made.close()

    def _made(self, items: Iterable[T]) -> Generator[R, None, None]:
        for name, there in installed_versions():
            planned = dict(self.versions).get(name)
            if planned != there:
                message = (
                    f"{self.what} on executor host {socket.gethostname()}: it has {name} {there}, "
                    f"the session's driver has {planned}. Install the same versions on every "
                    "executor."
                )
                raise SourceError(message)
        yield from self.work(items)


def in_tasks(
    spark: SparkSession,
    what: str,
    items: Sequence[T],
    cost: Callable[[T], int],
    work: Callable[[Iterable[T]], Iterator[R]],
    look: Callable[[], None] = lambda: None,
) -> tuple[R, ...]:
    """Run `work` on all items, in tasks of about equal cost; return the results in order.

    An exception in the calling thread cancels the job, also Ctrl-C or an exception of `look`.

    Args:
        spark: the session.
        what: the beginning of error messages, "Cannot ..."; also the description in Spark's UI.
        items: the items to work on.
        cost: the cost of an item, in bytes to read.
        work: returns a result for each item in turn. It is pickled, and so are the items.
        look: called about once a second from the calling thread.

    Raises:
        TableFormatError: as `running_tasks`.
    """
    looked = time.monotonic()
    with closing(running_tasks(spark, what, items, cost, work)) as running:
        while True:
            try:
                next(running)
            except StopIteration as end:
                results: tuple[R, ...] = end.value
                return results
            if time.monotonic() - looked >= _LOOK_SECONDS:
                looked = time.monotonic()
                look()


def running_tasks(
    spark: SparkSession,
    what: str,
    items: Sequence[T],
    cost: Callable[[T], int],
    work: Callable[[Iterable[T]], Iterator[R]],
    then: str = _THEN,
) -> Generator[None, None, tuple[R, ...]]:
    """Run `work` on all items, in tasks of about equal cost; return the results in order.

    The job begins at the first `next`, which like each further one returns after about 0.1 seconds;
    the job runs on whether or not it is called again. Closing the generator cancels the job.

    Args:
        spark: the session.
        what: the beginning of error messages, "Cannot ..."; also the description in Spark's UI.
        items: the items to work on.
        cost: the cost of an item, in bytes to read.
        work: returns a result for each item in turn. It is pickled, and so are the items.
        then: the end of the message of a job that failed: the state of the other work, and what to
            do.

    Raises:
        TableFormatError: the error of the first item that has one.
        SourceError: Spark could not run the tasks, or a task failed.
        StoppedError: the job was cancelled from outside.
        InternalError: an item has no result, or two.
    """
    context = spark.sparkContext
    shares = _shares(items, cost, max(1, context.defaultParallelism))
    task = _Task(what, installed_versions(), work)

    def collect() -> list[_ItemResult[R]]:
        return context.parallelize(shares, len(shares)).mapPartitions(task).collect()

    group = f"mergeberg-{uuid.uuid4().hex[:12]}"
    with closing(run_job(context, group, f"mergeberg: {what}", collect)) as running:
        while (results := _next(what, then, running)) is None:
            yield
    return _results_of(len(items), results)


def _shares(items: Sequence[T], cost: Callable[[T], int], slots: int) -> list[_Share[T]]:
    """Distribute numbered items to tasks by cost; each task gets its items in order."""
    by_slots = min(_TASKS_PER_SLOT * slots, max(slots, len(items) // _LEAST_ITEMS))
    number = max(by_slots, -(-sum(map(cost, items)) // _TASK_BYTES))
    dearest = sorted(enumerate(items), key=lambda one: -cost(one[1]))
    dealt = deal(dearest, number, lambda one: cost(one[1]))
    return [tuple(sorted(share, key=lambda one: one[0])) for share in dealt]


def _next(
    what: str, then: str, running: Generator[None, None, list[_ItemResult[R]]]
) -> list[_ItemResult[R]] | None:
    """Return the results of a job that has ended; None while it runs."""
    try:
        next(running)
    except StopIteration as end:
        results: list[_ItemResult[R]] = end.value
        return results
    except JOB_ERRORS as error:
        raise plain_error(what, then, error) from error
    return None


def _results_of(number: int, results: list[_ItemResult[R]]) -> tuple[R, ...]:
    """Return the results in order, or raise the first error.

    Each item must have exactly one result, except those after an error in the same task.
    """
    failed = min((one for one in results if one.error), key=lambda one: one.number, default=None)
    if failed is not None and failed.error is not None:
        raise error_of(failed.error)
    made = {one.number: one.made for one in results if one.made is not None}
    if len(results) != number or made.keys() != set(range(number)):
        message = (
            f"Cannot use the results of a job: it returned {len(results)} for {number} items. This "
            "is a bug, please report it."
        )
        raise InternalError(message)
    return tuple(made[one] for one in range(number))


_LOGGER: Final = logging.getLogger("mergeberg")


@dataclass(frozen=True, slots=True)
class TaskDirectory:
    """A directory for tasks; `at_hand` is True if it is a path on this host and tasks run here."""

    location: str
    at_hand: bool


@contextmanager
def task_directory(
    context: SparkContext, purpose: str, table_location: str, storages: Storages
) -> Iterator[TaskDirectory]:
    """Provide a directory that tasks can write to, and remove it with its files at the end.

    `mergeberg gc` removes files that cannot be removed here.

    Args:
        context: the Spark context whose tasks write.
        purpose: a word for the name of the directory.
        table_location: the location of the lake table; the directory is below it, unless Spark
            runs in local mode.
        storages: open the storage of the table.
    """
    if (context.master or "").startswith("local"):
        with ScratchDirectory(purpose) as scratch:
            yield TaskDirectory(str(scratch.path), at_hand=True)
        return
    below = views_directory(table_location, int(time.time() * 1000), uuid.uuid4().hex)
    try:
        yield TaskDirectory(below, at_hand=False)
    finally:
        _remove(storages(below), below)


def _remove(storage: Storage, below: str) -> None:
    """Remove the files below a location; log an error, because the work itself has succeeded."""
    try:
        for one in storage.list(below):
            storage.delete(one.location)
    except DestinationError as error:
        _LOGGER.warning("what is in %s stays: %s `mergeberg gc` removes it", below, error)


_NO_RESULT: Final = "A job that digests files has no result; this is a bug, please report it."
_REPORT_SECONDS: Final = 0.5


@dataclass(slots=True)
class DigestJob:
    """A Spark job that digests the files of `wanted`."""

    wanted: tuple[FilesToDigest, ...]
    slots: int
    running: Generator[None, None, tuple[FileDigest, ...]]
    listener: ProgressListener
    on_rows: Callable[[int], None]
    reported: int = 0
    found: tuple[FileDigest, ...] | None = None
    failed: TableFormatError | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_waited_for: threading.Event = field(default_factory=threading.Event)
    is_closed: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether the results are there, or the job has failed."""
        return self.found is not None or self.failed is not None

    def watch(self) -> None:
        """Begin the job, or wait a moment for its end; report the rows digested so far."""
        try:
            next(self.running)
        except StopIteration as end:
            self.found = end.value
            self._report(sum(file.rows for one in self.wanted for file in one.files))
        except TableFormatError as error:
            self.failed = error
        else:
            self._report()
        if self.has_ended:
            self._close_listener()

    def report_meanwhile(self) -> None:
        """Report the rows on a thread, until the caller waits for the job."""
        threading.Thread(target=self._meanwhile, name="compared-rows", daemon=True).start()

    def _meanwhile(self) -> None:
        # The output may be closed by now.
        with contextlib.suppress(OSError):
            while not self.is_waited_for.wait(_REPORT_SECONDS):
                self._report()

    def _report(self, rows: int = 0) -> None:
        """Report the rows digested so far, at least so many."""
        with self.lock:
            so_far = rows or (0 if self.is_closed else self.listener.rows())
            # A file that is read again by another attempt of its task begins at 0.
            if so_far > self.reported:
                self.on_rows(so_far - self.reported)
                self.reported = so_far

    def _close_listener(self) -> None:
        self.is_waited_for.set()
        with self.lock:
            self.is_closed = True
            self.listener.close()

    def digest(self, wanted: FilesToDigest) -> tuple[Digest, float]:
        """Wait for the job; return the digest of some of its files, and the seconds it took.

        Raises:
            TableFormatError: a file could not be read, or the job failed.
        """
        self.is_waited_for.set()
        while not self.has_ended:
            self.watch()
        if self.found is None:
            raise self.failed or InternalError(_NO_RESULT)
        at = self.wanted.index(wanted)
        begin = sum(len(one.files) for one in self.wanted[:at])
        files = self.found[begin : begin + len(wanted.files)]
        digest, seconds = empty_digest(wanted.columns), 0.0
        for one in files:
            if one.digest is None:
                raise error_of(one.error) if one.error else InternalError(_NO_RESULT)
            digest += one.digest
            seconds += one.seconds
        return digest, seconds / min(self.slots, len(self.found))

    def close(self) -> None:
        """Cancel the job, if it runs."""
        self.running.close()
        self._close_listener()
