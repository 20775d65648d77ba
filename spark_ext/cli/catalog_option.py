"""The option --catalog of commands that name lake tables: no catalog is current there."""

from __future__ import annotations

from typing import Final

import click

__all__ = ["named_catalog_option"]

named_catalog_option: Final = click.option(
    "--catalog",
    help="The catalog of lake tables that are named without one, namespace.table.",
)
