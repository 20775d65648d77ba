"""An export as a process of its own, which is killed before or after one effect: SIGKILL, no word.

    python -m tests.enumeration.real_process DIRECTORY NUMBER|STEP before|after

It prints the name of each effect when it comes to it. NUMBER -1 is never reached; of a step it is
the first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from catalog.iceberg.catalogs import open_catalog
from catalog.sources import SourcePlace
from spark_ext.actions.export_ports import (
    Places,
    SparkWhenNeeded,
    exit_code,
    export_all,
    open_ports,
)
from spark_ext.engine.session import SparkSettings, slots
from tableformat.effects import Step
from tableformat.export.job import ExportRequest
from tableformat.export.ports import Silent
from tableformat.export.request import AllPartitions, ExportOptions
from tableformat.names import LakeName, TableName

__all__ = ["NEVER", "TO"]

T = TypeVar("T")
_MASTER: Final = "local[2]"
NEVER: Final = -1
TO: Final = LakeName("lake", ("n",), "seams")
_REQUEST: Final = ExportRequest(TableName("db", "seams"), TO, AllPartitions(), ExportOptions(), {})


class _Killed:
    """Effects of a process that ends before or after the one of a number, or of a name."""

    def __init__(self, at: str, *, after: bool) -> None:
        self._at, self._after, self._next = at, after, 0

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        now = self._at in (str(self._next), step.value)
        self._next += 1
        sys.stdout.write(f"{step.value}\n")
        sys.stdout.flush()
        if now and not self._after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = act()
        if now:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def main() -> int:
    """Export, unless killed."""
    directory, at, when = sys.argv[1:]
    source = SourcePlace(f"chdb:{directory}/clickhouse")
    lake = open_catalog("lake", warehouse=Path(directory, "warehouse"))
    places = Places(source, lake)
    killed = _Killed(at, after=when == "after")
    spark = SparkWhenNeeded(SparkSettings(_MASTER))
    ports = open_ports(places, spark, Silent(), effects=killed)
    with contextlib.closing(ports.ledger):
        return exit_code(export_all(_REQUEST, ports, slots=slots(_MASTER)))


if __name__ == "__main__":
    sys.exit(main())
