"""Runs Spark jobs that the caller can watch, interrupt and cancel, and splits work into tasks.

`run_job` runs a job in its own job group, so cancelling it stops no other job of the session.

`in_tasks` runs work in Spark's tasks that the driver otherwise does, one item after the other.
The work and each item are pickled. A task returns a result for each item and stops at its first
error, which it returns as a result too. The caller gets the error of the first item that has one,
in the order of the items. A task attempt that Spark repeats is harmless: the files of each
attempt have different names, and only one result counts.

`task_directory` provides a temporary directory that tasks write to and other tasks read from, on
any host.
"""

from __future__ import annotations

import logging
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import tableformat.errors
from catalog.processes import ScratchDirectory
from catalog.storages.schemes import Storages
from spark_ext.engine.tasks import installed_versions
from tableformat.errors import (
    DestinationError,
    InternalError,
    SourceError,
    StoppedError,
    TableFormatError,
)
from tableformat.export.slices import deal
from tableformat.file_names import views_directory
from tableformat.storage import Storage

__all__ = ["JOB_ERRORS", "TaskDirectory", "in_tasks", "plain_error", "run_job", "task_directory"]

T = TypeVar("T")

JOB_ERRORS: Final = (PySparkException, Py4JError, OSError)
"""What a job fails with."""
_POLL_SECONDS: Final = 0.1
# Spark ends the Python worker of an interrupted task seconds later. Nothing has to wait for that:
# what such a task still writes is invisible, and has a name of its own.
_CANCEL_SECONDS: Final = 0.3
_PYTHON_ERROR: Final = re.compile(r"^(?P<name>[A-Za-z_][\w.]*): (?P<message>.*)", re.MULTILINE)
_CANCELLED: Final = re.compile(
    r"\[SPARK_JOB_CANCELLED\] (?P<why>[^\n]*?)(?: SQLSTATE: \w+)?$", re.MULTILINE
)


def run_job(
    context: SparkContext, group: str, told: str, collect: Callable[[], Iterable[T]]
) -> Generator[None, None, list[T]]:
    """Run a job in a thread of its own; yield about ten times a second; return its answers.

    Closing it, or an exception in the calling thread, cancels the job.

    Args:
        context: of the session.
        group: the job group, which is its own.
        told: what Spark shows of it.
        collect: runs it.

    Raises:
        PySparkException: it failed, and so of the two others in `JOB_ERRORS`.
    """
    answers: list[T] = []
    failed: list[Exception] = []
    ended = threading.Event()

    def run() -> None:
        try:
            context.setJobGroup(group, told, interruptOnCancel=True)
            answers.extend(collect())
        # Carried to the calling thread, which raises it.
        except JOB_ERRORS as error:
            failed.append(error)
        finally:
            ended.set()

    # Only such a thread has a job group of its own.
    thread = InheritableThread(target=run, name=group, daemon=True)
    thread.start()
    try:
        while not ended.wait(_POLL_SECONDS):
            yield
    except BaseException:
        # In a thread of its own: the interrupted call of this one may still wait for its answer.
        threading.Thread(target=context.cancelJobGroup, args=(group,), daemon=True).start()
        ended.wait(_CANCEL_SECONDS)
        raise
    thread.join()
    if failed:
        raise failed[0]
    return answers


def plain_error(what: str, then: str, error: Exception) -> SourceError | StoppedError:
    """Return what the Python task said, without the page of Java around it.

    Args:
        what: begins the message: what cannot be done.
        then: ends it: what became of the rest, and what to do.
        error: that the job failed with.
    """
    text = str(error)
    cancelled = _CANCELLED.search(text)
    if cancelled is not None:
        message = f"{what}: its Spark job was cancelled: {cancelled['why'].rstrip('. ')}. {then}"
        return StoppedError(message)
    found = _PYTHON_ERROR.findall(text.partition("JVM stacktrace")[0])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = ": ".join(found[-1]) if found else (lines[0] if lines else type(error).__name__)
    if found and found[-1][0] == "ModuleNotFoundError":
        message = (
            f"{what}: the Python of the session's workers is another one: "
            f"{said.rstrip('.')}. Set PYSPARK_PYTHON to {sys.executable}, or on a cluster to a "
            "Python on every host that has mergeberg, before the session starts."
        )
        return SourceError(message)
    return SourceError(f"{what}: a Spark task failed: {said.rstrip('.')}. {then}")


R = TypeVar("R")

_TASKS_PER_SLOT: Final = 3
# A task starts a ClickHouse of its own, which takes as long as so many things.
_LEAST_THINGS: Final = 8
# A cluster may get more executors while there are tasks that wait.
_TASK_BYTES: Final = 1024 * 1024 * 1024
_LOOK_SECONDS: Final = 1.0
_THEN: Final = "Nothing of it became visible. Run the statement again."


@dataclass(frozen=True, slots=True)
class _Answer(Generic[R]):
    """What became of a thing: what was made of it, or the class, message and code of an error."""

    number: int
    made: R | None = None
    error: tuple[str, str, int | None] | None = None


_Hand = tuple[tuple[int, T], ...]


@dataclass(frozen=True, slots=True)
class _Task(Generic[T, R]):
    """What runs on an executor."""

    what: str
    versions: tuple[tuple[str, str], ...]
    work: Callable[[Iterable[T]], Iterator[R]]

    def __call__(self, hands: Iterable[_Hand[T]]) -> Iterator[_Answer[R]]:
        for hand in hands:
            made, numbers = self._made(thing for _, thing in hand), iter(hand)
            for number, _ in numbers:
                try:
                    yield _Answer(number, next(made))
                except TableFormatError as error:
                    told = type(error).__name__, error.message, error.code
                    yield _Answer(number, error=told)
                    break
            made.close()

    def _made(self, things: Iterable[T]) -> Generator[R, None, None]:
        for name, there in installed_versions():
            planned = dict(self.versions).get(name)
            if planned != there:
                message = (
                    f"{self.what} on executor host {socket.gethostname()}: it has {name} {there}, "
                    f"the session's driver has {planned}. Install the same versions on every "
                    "executor."
                )
                raise SourceError(message)
        yield from self.work(things)


def in_tasks(
    spark: SparkSession,
    what: str,
    things: Sequence[T],
    cost: Callable[[T], int],
    work: Callable[[Iterable[T]], Iterator[R]],
    look: Callable[[], None] = lambda: None,
) -> tuple[R, ...]:
    """Do something to all things, in tasks of about equal cost; return what was made of each.

    An exception in the calling thread, Ctrl-C or what `look` raises, cancels the job.

    Args:
        spark: the session.
        what: begins messages: what cannot be done. Spark shows it, too.
        things: that it is done to.
        cost: of each, in bytes that are read.
        work: makes one after the other; it and all things are pickled.
        look: called about every second from the calling thread.

    Raises:
        TableFormatError: the error of the first thing that has one.
        SourceError: Spark could not run the tasks; the message is the one of the task.
        StoppedError: its job was cancelled from outside.
        InternalError: a thing has no answer, or two.
    """
    context = spark.sparkContext
    hands = _hands(things, cost, max(1, context.defaultParallelism))
    task = _Task(what, installed_versions(), work)

    def collect() -> list[_Answer[R]]:
        return context.parallelize(hands, len(hands)).mapPartitions(task).collect()

    group = f"mergeberg-{uuid.uuid4().hex[:12]}"
    with closing(run_job(context, group, f"mergeberg: {what}", collect)) as running:
        looked = time.monotonic()
        while (answers := _next(what, running)) is None:
            if time.monotonic() - looked >= _LOOK_SECONDS:
                looked = time.monotonic()
                look()
    return _made_of(len(things), answers)


def _hands(things: Sequence[T], cost: Callable[[T], int], slots: int) -> list[_Hand[T]]:
    """Deal things with their numbers to tasks, each of which has them in their order."""
    by_slots = min(_TASKS_PER_SLOT * slots, max(slots, len(things) // _LEAST_THINGS))
    number = max(by_slots, -(-sum(map(cost, things)) // _TASK_BYTES))
    dearest = sorted(enumerate(things), key=lambda one: -cost(one[1]))
    dealt = deal(dearest, number, lambda one: cost(one[1]))
    return [tuple(sorted(hand, key=lambda one: one[0])) for hand in dealt]


def _next(what: str, running: Generator[None, None, list[_Answer[R]]]) -> list[_Answer[R]] | None:
    """Return the answers of a job that has ended, None for one that runs."""
    try:
        next(running)
    except StopIteration as end:
        answers: list[_Answer[R]] = end.value
        return answers
    except JOB_ERRORS as error:
        raise plain_error(what, _THEN, error) from error
    return None


def _made_of(number: int, answers: list[_Answer[R]]) -> tuple[R, ...]:
    """Return what was made of each thing; each has exactly one answer, but behind an error."""
    failed = min((one for one in answers if one.error), key=lambda one: one.number, default=None)
    if failed is not None and failed.error is not None:
        name, message, code = failed.error
        kind = getattr(tableformat.errors, name, TableFormatError)
        error: TableFormatError = kind(message, code=code)
        raise error
    made = {one.number: one.made for one in answers if one.made is not None}
    if len(answers) != number or made.keys() != set(range(number)):
        message = (
            f"Cannot use the answers of a job: {len(answers)} came of {number} things that were "
            "asked for. This is a bug, please report it."
        )
        raise InternalError(message)
    return tuple(made[one] for one in range(number))


_LOGGER: Final = logging.getLogger("mergeberg")


@dataclass(frozen=True, slots=True)
class TaskDirectory:
    """A location; `at_hand` tells that it is a path of this host, where all tasks run, too."""

    location: str
    at_hand: bool


@contextmanager
def task_directory(
    context: SparkContext, purpose: str, table_location: str, storages: Storages
) -> Iterator[TaskDirectory]:
    """Lend a directory, and remove it with what is in it, or leave that to `mergeberg gc`.

    Args:
        context: of the session whose tasks write.
        purpose: a word for its name.
        table_location: of a lake table: where no directory of this host is that of all tasks, it is
            below that.
        storages: open what the table is in.
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
    """Remove what is there; what it was for has ended, and does not fail with this."""
    try:
        for one in storage.list(below):
            storage.delete(one.location)
    except DestinationError as error:
        _LOGGER.warning("what is in %s stays: %s `mergeberg gc` removes it", below, error)
