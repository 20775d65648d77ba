"""The commands that the demo prints; they work in the directory where the demo was started."""

from __future__ import annotations

import itertools
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from spark_ext.demo.data import TABLE
from spark_ext.demo.directory import LAKE_TABLE, DemoDirectory

__all__ = ["Command", "export_command", "next_commands"]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: the words after `mergeberg`, grouped by printed line."""

    lines: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        """Return the command on one line."""
        return shlex.join((_program(), *itertools.chain.from_iterable(self.lines)))

    def shown(self) -> tuple[str, ...]:
        """Return the command on several lines, with backslashes so that it can be copied."""
        first, *more = map(shlex.join, self.lines)
        lines = (f"{shlex.quote(_program())} {first}", *(f"    {line}" for line in more))
        return (*(f"{line} \\" for line in lines[:-1]), lines[-1])


def export_command(place: DemoDirectory, *which: str) -> Command:
    """Return the command that exports partitions of the demo's table."""
    lake = ("--warehouse", str(place.warehouse), "--to", str(LAKE_TABLE))
    return Command((("export", str(TABLE), *which, "--source", place.source), lake))


def next_commands(place: DemoDirectory) -> tuple[Command, ...]:
    """Return commands to try after the demo: list exports, list parts, repeat an export."""
    return (
        Command((("exports", "list", "--warehouse", str(place.warehouse)),)),
        Command((("parts", str(TABLE), "--source", place.source),)),
        export_command(place, "--partition-id", "202402"),
    )


def _program() -> str:
    """Return `mergeberg`, or the path of this program if another one is first on PATH."""
    started = sys.argv[0]
    on_path = shutil.which("mergeberg")
    if Path(started).name != "mergeberg" or (on_path and Path(on_path).samefile(started)):
        return "mergeberg"
    return started
