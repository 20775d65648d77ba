"""The option that serves the metrics of a command while it runs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click

from spark_ext.cli.metrics_server import parse_metrics_address, serving
from spark_ext.cli.options import output_for
from spark_ext.metrics import Figures, render
from spark_ext.wiring import ALLOTMENT

__all__ = ["metrics_option"]


def metrics_option(command: Callable[..., int]) -> Callable[..., int]:
    """Add --metrics-port: the command gets `figures` to count with, None without the option.

    They are served before the command begins, and no longer than it runs.
    """

    @click.option(
        "--metrics-port",
        metavar="[HOST:]PORT",
        envvar="MERGEBERG_METRICS_PORT",
        help="Serve metrics for Prometheus at http://HOST:PORT/metrics while the export runs. Host "
        "is 127.0.0.1 by default; whoever reaches another one can read them.",
    )
    @functools.wraps(command)
    def with_figures(*, metrics_port: str | None, **others: Any) -> int:
        note = output_for(as_json=bool(others.get("as_json"))).note
        with _counting(metrics_port, note) as figures:
            return command(figures=figures, **others)

    return with_figures


@contextlib.contextmanager
def _counting(port: str | None, note: Callable[[str], None]) -> Iterator[Figures | None]:
    """Serve what is counted, if a port is given.

    Raises:
        UsageError: it is no port.
        RefusedError: it is taken.
    """
    if port is None:
        yield None
        return
    address = parse_metrics_address(port)
    figures = Figures(lambda: ALLOTMENT.slices)
    with serving(address, partial(render, figures)):
        note(f"metrics at {address.url}")
        yield figures
