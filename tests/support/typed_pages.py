"""The pages' tables of typed statements, made from the list `spark_ext.sql.statements`.

`python -m tests.support.typed_pages` writes them; `python -m tests.support.procedures_page` those
of procedures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import click

from spark_ext.cli.typed_commands import TYPED_COMMANDS, example
from spark_ext.sql.arguments import GivenValue
from spark_ext.sql.grammar import render_statement
from spark_ext.sql.statement_reader import DottedName
from spark_ext.sql.statements import TYPED, TypedStatement
from tableformat.names import quote_string
from tests.repository.source_files import ROOT

__all__ = ["REFERENCE", "call", "options", "shared", "statements"]

REFERENCE = ROOT / "docs" / "reference"
_TABLE = DottedName(("lake", "analytics", "events"))


def call(typed: TypedStatement, values: Mapping[str, GivenValue]) -> str:
    """Return a CALL with these arguments."""
    given = {"table": "analytics.events", **values}
    texts = (
        f"{name} => {'true' if value is True else quote_string(str(value))}"
        for name, value in given.items()
    )
    return f"CALL lake.system.{typed.name}({', '.join(texts)})"


def text(typed: TypedStatement, values: Mapping[str, GivenValue]) -> str:
    """Return the text of a statement with these arguments."""
    every = {one.name: values.get(one.name) for one in typed.arguments}
    return render_statement(typed.of(_TABLE, every, lambda one: one.name))


def statements() -> str:
    """Return the table of statements and what they are with named arguments."""
    rows = [
        f"| `{text(typed, values)}` | `{example(typed, values)}` | `{call(typed, values)}` |"
        for typed in TYPED.values()
        for values in typed.examples
    ]
    return "\n".join(["| statement | command | procedure |", "|---|---|---|", *rows])


def options() -> str:
    """Return the table of options, and the commands that have each."""
    of: dict[tuple[str, str], list[str]] = {}
    for command in TYPED_COMMANDS:
        own = {one.option for typed in TYPED.values() for one in typed.arguments}
        for option in _options(command):
            if option.opts[0] in own:
                meaning = str(option.help).replace("|", r"\|")
                of.setdefault((option.opts[0], meaning), []).append(str(command.name))
    rows = [
        f"| `{option}` | {', '.join(f'`{name}`' for name in names)} | {help_text} |"
        for (option, help_text), names in of.items()
    ]
    return "\n".join(["| option | of | meaning |", "|---|---|---|", *rows])


def shared() -> tuple[list[str], list[str], list[str]]:
    """Return the options that all have, those of commands that read others, and these commands."""
    own = {one.option for typed in TYPED.values() for one in typed.arguments}
    others = {typed.command for typed in TYPED.values() if typed.reads_others}
    names = {
        str(command.name): [o.opts[0] for o in _options(command) if o.opts[0] not in own]
        for command in TYPED_COMMANDS
    }
    every = names["detach"]
    more = [option for option in names["attach"] if option not in every]
    assert all(n == ([*more, *every] if c in others else every) for c, n in names.items())
    return every, more, sorted(others)


def _options(command: click.Command) -> Iterator[click.Option]:
    return (option for option in command.params if isinstance(option, click.Option))


if __name__ == "__main__":
    for page, made in (
        ("cli/statements.md", options()),
        ("statements/named-arguments.md", statements()),
    ):
        path = REFERENCE / page
        before = path.read_text(encoding="utf-8")
        (table,) = re.findall(r"(?m)(?:^\|.*\n)+", before)
        path.write_text(before.replace(table, made + "\n"), encoding="utf-8")
