"""Messages in SQL give their advice in SQL, never as an option of the command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import click
import pytest

from spark_ext.cli import declarations
from spark_ext.cli.declarations import alter, archive_command, export, gc
from spark_ext.sql.messages import in_alter, in_call, in_command, in_python, in_statement
from tableformat.export.options import EXPORT_OPTIONS
from tableformat.messages import Command, Option, convert, together
from tests.repository.source_files import source_files

OF_THE_COMMAND_LINE = re.compile(r"(?<![\w-])--[a-z][a-z-]+|`mergeberg ")
NOT_IN_SQL = (
    "spark_ext/cli/", "spark_ext/demo/", "spark_ext/__main__.py", "spark_ext/engine/jars.py",
    "spark_ext/engine/java.py", "spark_ext/engine/session.py", "spark_ext/engine/shell.py",
    "spark_ext/operations/maintenance.py",
)  # fmt: skip
"""What only the command line runs."""
WITHOUT_VALUES = {
    "tableformat/messages.py": "writes the names of the command line",
    "tableformat/export/options.py": "the helps of the command line's options",
    "tableformat/ledger_text.py": "the arguments of a command",
    "tableformat/export/archived.py": "a command that is given whole, and has no procedure",
    "spark_ext/actions/logs.py": "the option of the log, which only the command line has",
    "spark_ext/engine/jobs.py": "a line of the log",
}
ANY = pytest.mark.parametrize("option", [*Option], ids=lambda one: one.name)
IN_SQL = pytest.mark.parametrize("words", [in_call, in_statement, in_python])


def documentation(tree: ast.AST) -> set[int]:
    """Return the docstrings of a file, which are no messages."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    bodies = (node.body for node in ast.walk(tree) if isinstance(node, documented))
    return {id(one.value) for body in bodies for one in body if isinstance(one, ast.Expr)}


def texts() -> Iterator[tuple[str, str]]:
    """Yield every text of the code that SQL runs, and where it is."""
    for file in source_files("tableformat", "catalog", "spark_ext"):
        if file.path.startswith(NOT_IN_SQL):
            continue
        # One tree: the nodes of another one would have other ids, or by chance the same.
        tree = file.tree
        passed = documentation(tree)
        for node in ast.walk(tree):
            match node:
                case ast.Constant(str(text)) if id(node) not in passed and " " in text:
                    yield f"{file.path}:{node.lineno}", text
                case _:
                    pass


def test_messages_name_options_and_commands_as_values() -> None:
    """Harm prevented: an error that says to do what cannot be done here."""
    found = [*texts()]
    spelled = [
        (place, text)
        for place, text in found
        if OF_THE_COMMAND_LINE.search(text) and place.partition(":")[0] not in WITHOUT_VALUES
    ]

    assert spelled == []
    assert len(found) > 1000, "or nothing was looked at"


@ANY
@IN_SQL
def test_every_option_has_a_name_in_sql_and_python(
    option: Option, words: Callable[[str], str]
) -> None:
    shown = words(f"Give {option} to it.")

    assert shown.startswith("Give ")
    assert "--" not in shown


@ANY
def test_every_option_is_one_of_a_command(option: Option) -> None:
    """Harm prevented: a message that names an option that was renamed."""
    commands = [one for one in vars(declarations).values() if isinstance(one, click.Command)]
    known = {name for one in commands for option in one.params for name in option.opts}

    assert option.flag in known | {name for one in commands for name in of_flags(one)}


def of_flags(command: click.Command) -> set[str]:
    """Return the names of options that set a flag to false."""
    return {name for one in command.params for name in one.secondary_opts}


def test_options_of_an_export_are_named_as_the_arguments_of_call() -> None:
    of_export = {one.flag: one.name for one in EXPORT_OPTIONS.values()}
    named = {one: of_export[one.flag] for one in Option if one.flag in of_export}

    assert {one: in_call(f"{one}").strip("`").split(" ")[0] for one in named} == named
    assert len(named) > 10


@pytest.mark.parametrize(
    ("text", "call", "statement", "python"),
    [
        (
            f"Use {Option.FORCE} to replace it.",
            "Use `force => true` to replace it.",
            "Use `export_merge_tree_partition_force_export = 1` to replace it.",
            "Use `force=True` to replace it.",
        ),
        (
            f"delete the rows with {together(Option.FORCE, Option.ALLOW_EMPTY)}.",
            "delete the rows with `force => true`, `allow_empty => true`.",
            (
                "delete the rows with `export_merge_tree_partition_force_export = 1`, "
                "`allow_replace_partition_from_empty_source = 1`."
            ),
            "delete the rows with `force=True`, `allow_empty=True`.",
        ),
        (
            f"{convert('id', 'decimal(38,0)')} makes them equal",
            "`convert => map('id', 'decimal(38,0)')` makes them equal",
            "`convert => map('id', 'decimal(38,0)')` makes them equal",
            "`convert={'id': 'decimal(38,0)'}` makes them equal",
        ),
        (
            f"{convert('`--force`', 'long')} keeps it",
            "`convert => map('--force', 'long')` keeps it",
            "`convert => map('--force', 'long')` keeps it",
            "`convert={'--force': 'long'}` keeps it",
        ),
        (
            f"Wait for it to end, or raise {Option.SOURCE_WAIT}.",
            "Wait for it to end, or raise spark.mergeberg.source.NAME.wait.",
            "Wait for it to end, or raise spark.mergeberg.source.NAME.wait.",
            "Wait for it to end, or raise spark.mergeberg.source.NAME.wait.",
        ),
        (
            f"leave out {Option.NO_PARALLEL_FORMATTING}",
            "leave out `parallel_formatting => false`",
            "leave out `output_format_parallel_formatting = 0`",
            "leave out `parallel_formatting=False`",
        ),
        (
            f"List them with {Command.PARTITIONS.on('db.t')}. Run it again.",
            "List them with `CALL system.partitions(...)`. Run it again.",
            "List them with `CALL system.partitions(...)`. Run it again.",
            "List them with `CALL system.partitions(...)`. Run it again.",
        ),
        (
            f"Run `mergeberg exports unarchive 1 --to lake.n.t`, or use {Option.FORCE}.",
            "Run `mergeberg exports unarchive 1 --to lake.n.t`, or use `force => true`.",
            (
                "Run `mergeberg exports unarchive 1 --to lake.n.t`, or use "
                "`export_merge_tree_partition_force_export = 1`."
            ),
            "Run `mergeberg exports unarchive 1 --to lake.n.t`, or use `force=True`.",
        ),
    ],
)
def test_a_message_has_the_words_of_its_interface(
    text: str, call: str, statement: str, python: str
) -> None:
    assert (in_call(text), in_statement(text), in_python(text)) == (call, statement, python)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            f"Use {Option.FORCE} to replace it.",
            "Use `export_merge_tree_partition_force_export = 1` to replace it.",
        ),
        (f"Allow it with {Option.ALLOW_ALTER}.", "Allow it with --allow-alter."),
        (
            f"{convert('id', 'string')} makes them equal; {Option.EVOLVE_SCHEMA} adds it",
            (
                "--convert id=string makes them equal; --evolve-schema adds it. "
                "`mergeberg export` has --convert and --evolve-schema."
            ),
        ),
        (
            f"give {Option.SAME_TABLE} to {Command.EXPORT}.",
            "give --same-table to `mergeberg export`.",
        ),
        (f"Look with {Command.VERIFY.on('db.t')}.", "Look with `mergeberg verify db.t`."),
    ],
)
def test_a_message_of_alter_names_what_alter_has(text: str, shown: str) -> None:
    assert in_alter(text) == shown


def test_a_command_names_the_command_that_has_an_option_it_lacks() -> None:
    text = f"{convert('id', 'string')} makes them equal, {Option.SOURCE_WAIT} waits"
    shown = "--convert id=string makes them equal, --source-wait waits"

    assert in_command(text, {"--source-wait"}) == f"{shown}. `mergeberg export` has --convert."
    assert in_command(text, {"--source-wait", "--convert"}) == shown


@ANY
def test_alter_names_no_option_that_nobody_has(option: Option) -> None:
    """Harm prevented: an error that says to give an option, and the command refuses it."""
    of_alter, of_export, of_others = (
        {name for command in commands for one in command.params for name in one.opts}
        for commands in ((alter,), (export,), (archive_command, gc))
    )
    shown = in_alter(f"Give {option}.")
    left = {one for one in re.findall(r"--[a-z-]+", shown) if one not in of_alter}

    assert left <= (of_export if "`mergeberg export`" in shown else of_others)
