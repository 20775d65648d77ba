"""What may become of a task: it dies once when it has done its work, or it never ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from tableformat.errors import RefusedError

__all__ = ["AsIs", "DiesOnce", "NeverEnds", "Refuses"]

Work = Callable[[Iterable[Any]], Iterator[Any]]


@dataclass(frozen=True)
class AsIs:
    """Returns each item unchanged."""

    def __call__(self, items: Iterable[Any]) -> Iterator[Any]:
        yield from items


@dataclass(frozen=True)
class Refuses:
    """Refuses some numbers, and makes of each other the number."""

    refused: frozenset[int]

    def __call__(self, items: Iterable[int]) -> Iterator[int]:
        for one in items:
            if one in self.refused:
                message = f"Cannot do {one}: it is refused. Leave it out."
                raise RefusedError(message, code=36)
            yield one


@dataclass(frozen=True)
class DiesOnce:
    """Does all of its work, and kills its process before Spark hears of it, the first time."""

    work: Work
    died: Path
    """A directory that gets a file for each task that died."""

    def __call__(self, items: Iterable[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        made = list(self.work(items))
        if context.attemptNumber() == 0:
            (self.died / f"{context.partitionId()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from made


@dataclass(frozen=True)
class NeverEnds:
    """Does some of its work, says so, and waits for its end."""

    work: Work
    begun: Path
    """Is made when it waits."""

    def __call__(self, items: Iterable[Any]) -> Iterator[Any]:
        yield next(self.work(items))
        self.begun.touch()
        threading.Event().wait()
