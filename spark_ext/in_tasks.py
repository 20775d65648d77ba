"""Lets Spark's tasks do what is otherwise done here, one thing after the other.

What is done is a value that can be sent, and so is each thing that it is done to. A task answers
for each thing, and ends with the first error, which is an answer, too: the error of the first thing
is raised, in the order in which they were given. A task that runs twice has one answer: whatever
the other did has names of its own.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pyspark.sql import SparkSession

import tableformat.errors
from spark_ext.jobs import JOB_ERRORS, plain_error, run_job
from spark_ext.tasks import installed_versions
from tableformat.errors import InternalError, SourceError, TableFormatError
from tableformat.export.slicing import deal

__all__ = ["in_tasks"]

T = TypeVar("T")
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
