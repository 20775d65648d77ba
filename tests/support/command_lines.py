"""What Click makes of a command line, without running the command."""

from __future__ import annotations

from pathlib import Path

import click

from spark_ext.cli.main import main

__all__ = ["context_of"]


def context_of(file: Path | None, *words: str) -> click.Context:
    """Return the context in which a command line runs, with a configuration file or without one."""
    own = [] if file is None else ["--config", str(file)]
    context = main.make_context("mergeberg", [*own, *words])
    command: click.Command = main
    left = [*words]
    while left and isinstance(command, click.Group):
        name = left.pop(0)
        command = command.commands[name]
        context = command.make_context(name, [*left], parent=context)
    return context
