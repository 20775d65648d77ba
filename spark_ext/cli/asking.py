"""Asks before a command does what takes rows away: on a terminal, unless `--yes` was given."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from tableformat.errors import RefusedError
from tableformat.export.outcome import Outcome, Status

__all__ = ["is_asked", "refuse_unless_confirmed", "takes_rows", "yes_option"]

F = TypeVar("F", bound=Callable[..., Any])

yes_option: Final = click.option(
    "--yes",
    is_flag=True,
    help="Do not ask, on a terminal, before rows leave the lake table.",
)


def is_asked(*, yes: bool, as_json: bool) -> bool:
    """Whether somebody sits at a terminal who is to be asked."""
    return not yes and not as_json and sys.stdin.isatty() and sys.stderr.isatty()


def takes_rows(one: Outcome) -> bool:
    """Whether rows, or their values, would be gone from main: files may be written anew as well."""
    if not one.left_files:
        return False
    return one.came_rows < one.left_rows or one.status in (Status.CHANGED, Status.REPLACED)


def refuse_unless_confirmed(what: str, said: str) -> None:
    """Ask whether to go on.

    Args:
        what: is about to be done, e.g. "drop partition 1 of lake.n.t".
        said: what that takes away, in a sentence.

    Raises:
        RefusedError: the answer was no.
    """
    click.echo(said, err=True)
    if not click.confirm("Go on?", default=False, err=True):
        message = f"Cannot {what}: it was not confirmed. Nothing was changed."
        raise RefusedError(message)
