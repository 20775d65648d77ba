"""The options that bound how much a command writes at a time, and the type of sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from tableformat.export.limits import MAX_SLICES, Limits
from tableformat.quantities import parse_size

__all__ = ["Size", "limit_options"]


class Size(click.ParamType[int]):
    """A number of bytes, with a unit or without one, which the command gets as an integer."""

    name = "size"

    def __init__(self, *, unit: int = 1, least: int = 0) -> None:
        """Read a number without a unit as so many times `unit` bytes; refuse less than `least`."""
        self._unit, self._least = unit, least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the bytes."""
        if isinstance(value, int):
            return value
        option = param.opts[0] if param is not None else "a size"
        size = parse_size(option, str(value), unit=self._unit)
        if size < self._least:
            self.fail(f"{value} is less than {self._least}.", param, ctx)
        return size


def limit_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options; what they say reaches the command as one `Limits`."""

    @click.option(
        "--max-bandwidth",
        type=Size(),
        default="0",
        show_default=True,
        metavar="SIZE",
        envvar="MERGEBERG_MAX_BANDWIDTH",
        help="Bytes per second, e.g. 50MB, that all tasks together read from the source, and that "
        "they write; 0 is no limit (ClickHouse's max_exports_bandwidth_for_server).",
    )
    @click.option(
        "--max-slices",
        type=click.IntRange(1),
        default=MAX_SLICES,
        show_default=True,
        envvar="MERGEBERG_MAX_SLICES",
        help="Files that are written at a time, where Spark can write so many (ClickHouse's "
        "background_move_pool_size).",
    )
    @click.option(
        "--no-parallel-formatting",
        is_flag=True,
        help="Write one file at a time, and read each whole, onto the disk of its host, before it "
        "is written: slower, with less memory (ClickHouse's output_format_parallel_formatting = "
        "0).",
    )
    @functools.wraps(command)
    def with_limits(
        *, max_bandwidth: int, max_slices: int, no_parallel_formatting: bool, **others: Any
    ) -> int:
        limits = Limits(max_bandwidth, max_slices, in_turn=no_parallel_formatting)
        return command(limits=limits, **others)

    return with_limits
