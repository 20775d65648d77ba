"""Runs a Spark job so that whoever waits for it can look, be interrupted, and cancel it.

It runs on a job group of its own, so that cancelling it stops nothing else in the session.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeVar

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext
from pyspark.errors import PySparkException

from tableformat.errors import SourceError, StoppedError

__all__ = ["JOB_ERRORS", "plain_error", "run_job"]

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
