"""The option of commands that export: how the directories of a tree are called."""

from __future__ import annotations

from typing import Final

import click

__all__ = ["hive_column_option"]

hive_column_option: Final = click.option(
    "--hive-column",
    multiple=True,
    metavar="NAME=EXPRESSION",
    help="With --to hive:URI: the name of the directory of a member of the partition key that is "
    "an expression, e.g. month=toYYYYMM(d). May be given several times; a tree remembers them.",
)
