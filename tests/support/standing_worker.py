"""Spark's daemon of Python workers, in whose workers one copy of a task stands still.

`spark.python.daemon.module` names it. In the directory of the variable STAND_STILL a test puts an
empty file whose name is the number of an attempt: the first task of that attempt that has read some
rows, and has more to read, takes it, adds its process to its name, and stops as SIGSTOP does it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyspark.daemon
import pytest
from pyspark import TaskContext

from spark_ext.engine import tasks
from tableformat.parquet.writer import WrittenFile, write_file

__all__ = ["DAEMON_CONF", "let_stand"]

DAEMON_CONF: Final = {"spark.python.daemon.module": __name__}
"""The setting that names this module; `spark.executorEnv.STAND_STILL` names the directory."""


def let_stand(directory: Path, attempt: int) -> None:
    """Let the next task of an attempt stand still in the middle of its file."""
    (directory / f"{attempt}").touch()


def _standing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all batches; before the second one it may be that the process stands still."""
    for number, batch in enumerate(batches):
        if number == 1:
            _stand_when_asked()
        yield batch


def _stand_when_asked() -> None:
    context = TaskContext.get()
    assert context is not None
    marker = Path(os.environ["STAND_STILL"]) / f"{context.attemptNumber()}"
    # Of two tasks that come here at the same time one finds it.
    with contextlib.suppress(FileNotFoundError):
        marker.rename(marker.with_suffix(f".{os.getpid()}"))
        os.kill(os.getpid(), signal.SIGSTOP)


def _written(batches: Iterable[pa.RecordBatch], *given: Any, **named: Any) -> WrittenFile:
    return write_file(_standing(batches), *given, **named)


if __name__ == "__main__":
    pytest.MonkeyPatch().setattr(tasks, "write_file", _written)
    pyspark.daemon.manager()  # type: ignore[no-untyped-call]
