"""The commands that are statements on lake tables, made from the list `spark_ext.sql.statements`.

Each makes the statement that `mergeberg alter` reads from text, and runs it as that does. Those
that bring rows from another table have the options of a source, too, which is called ch there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

import click

from catalog.source_defaults import DEFAULT_SOURCE
from spark_ext.cli.options import (
    Location,
    catalog_options,
    cluster_host_option,
    grace_option,
    ledger_options,
    named_catalog_option,
    output_options,
    session_options,
    source_options,
    together,
    yes_option,
)
from spark_ext.cli.sections import Run
from spark_ext.sql.arguments import Argument, GivenValue
from spark_ext.sql.statements import TYPED, TypedStatement

__all__ = ["TYPED_COMMANDS", "example"]

_TABLE: Final = "lake.analytics.events"
_PATH: Final = "path"
"""The argument of FETCH that is a location of files."""
# With a single quote, and nothing that means something between double ones.
_IN_DOUBLE_QUOTES: Final = re.compile(r"""\A[^"$`\\!]*'[^"$`\\!]*\Z""")


def example(typed: TypedStatement, values: Mapping[str, GivenValue]) -> str:
    """Return a command line with these arguments."""
    words = ["mergeberg", typed.command, _TABLE]
    for name, value in values.items():
        option = next(one.option for one in typed.arguments if one.name == name)
        words += [option] if value is True else [option, str(value)]
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    """Return a word as a shell reads it, and a person too where it has single quotes inside."""
    return shlex.quote(word) if _IN_DOUBLE_QUOTES.search(word) is None else f'"{word}"'


def _once(context: click.Context, option: click.Parameter, given: Any) -> Any:
    """Refuse an option that is given twice: only one of them would count."""
    if len(given) > 1:
        message = f"{option.opts[0]} is given twice. Give it once, or write several commands."
        raise click.BadParameter(message, context, option)
    return given


def _option(one: Argument) -> click.Option:
    text = f"{one.description[0].upper()}{one.description[1:]}."
    if one.is_flag:
        return click.Option([one.option, one.name], is_flag=True, help=text)
    return click.Option(
        [one.option, one.name],
        type=Location() if one.name == _PATH else None,
        multiple=True,
        required=one.is_required,
        callback=None if one.several else _once,
        metavar=one.option.strip("-").replace("-", "_").upper(),
        help=f"{text} Repeatable." if one.several else text,
    )


def _help(typed: TypedStatement) -> str:
    examples = "\n".join(f"  {example(typed, values)}" for values in typed.examples)
    others = (
        f"\n\nA ClickHouse table is {DEFAULT_SOURCE}.database.table; --source says where it is."
    )
    more = others if typed.reads_others else ""
    return f"{typed.help}{more}\n\n\b\nExamples:\n{examples}"


_SHARED: Final = together(
    click.option("--dry-run", is_flag=True, help="Only report what it would do."),
    yes_option,
    named_catalog_option,
    ledger_options,
    catalog_options,
    output_options,
)
_OF_OTHERS: Final = together(grace_option, session_options, cluster_host_option, source_options())


def _command(typed: TypedStatement) -> click.Command:
    def described() -> None:
        """Have the options."""

    groups = (_OF_OTHERS, _SHARED) if typed.reads_others else (_SHARED,)
    options = together(click.argument("table"), *groups)
    made = click.command(typed.command, help=_help(typed))(options(described))
    made.params[1:1] = [_option(one) for one in typed.arguments]
    made.callback = Run("statements:run_typed", {"typed": typed})
    return made


TYPED_COMMANDS: Final = tuple(
    sorted((_command(typed) for typed in TYPED.values()), key=lambda one: str(one.name))
)
"""One command for each typed statement."""
