"""The options that bound how much a command writes at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from tableformat.export.limits import MAX_SLICES, Limits

__all__ = ["limit_options"]


def limit_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add --max-bandwidth and --max-slices, which reach the command as one `Limits`."""

    @click.option(
        "--max-bandwidth",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        envvar="MERGEBERG_MAX_BANDWIDTH",
        help="Bytes per second that all tasks together write, and that a server reads for them; 0 "
        "is no limit (ClickHouse's max_exports_bandwidth_for_server).",
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
    @functools.wraps(command)
    def with_limits(*, max_bandwidth: int, max_slices: int, **others: Any) -> int:
        return command(limits=Limits(max_bandwidth, max_slices), **others)

    return with_limits
