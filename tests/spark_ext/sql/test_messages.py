"""Who writes SQL is told in SQL what to do, never an option of the command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ext.cli.declarations import alter, export, gc
from spark_ext.sql.messages import in_alter, in_call, in_command, in_statement
from tableformat.export.options import EXPORT_OPTIONS, ExportOption
from tests.repository.source_files import source_files

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
OF_THE_COMMAND_ONLY = {
    "--conf": "starts Spark, which runs already",
    "--log": "the log of the command",
    "--catalog": "said where no catalog is current, and in Spark one always is",
    "--add-modules": "of Java's command",
    "--properties": "of python -m spark_ext",
}
NO_DOOR_TO_SQL = ("spark_ext/cli/", "spark_ext/demo/")


def documentation(tree: ast.AST) -> set[int]:
    """Return the docstrings of a file, which are no messages."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    firsts = (node.body[0] for node in ast.walk(tree) if isinstance(node, documented) and node.body)
    return {id(one.value) for one in firsts if isinstance(one, ast.Expr)}


def written(node: ast.Constant | ast.JoinedStr) -> str:
    """Return a text as it stands in the code, with X for each value in it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(written(one) if isinstance(one, ast.Constant) else "X" for one in node.values)


def texts() -> Iterator[tuple[str, str]]:
    """Yield every text of the code that SQL runs, and where it stands."""
    for file in source_files("tableformat", "catalog", "spark_ext"):
        if file.path.startswith(NO_DOOR_TO_SQL):
            continue
        # One tree: the nodes of another one would have other ids, or by chance the same.
        tree = file.tree
        passed = documentation(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                # It comes before its pieces, each of which alone would lack the rest of a command.
                passed |= {id(piece) for piece in node.values}
            elif not isinstance(node, ast.Constant) or id(node) in passed:
                continue
            text = written(node)
            # What is a command as a whole has its own options; a message quotes it.
            is_message = " " in text and not text.startswith("mergeberg ")
            if is_message and OPTION.search(text):
                yield f"{file.path}:{node.lineno}", text


def test_no_option_of_the_command_is_left_in_any_message() -> None:
    """Harm prevented: an error that says to do what cannot be done here."""
    found = [*texts()]
    left = [
        (place, option, told(text))
        for place, text in found
        for told in (in_call, in_statement)
        for option in OPTION.findall(told(text))
        if option not in OF_THE_COMMAND_ONLY and "sql/messages.py" not in place
    ]

    assert left == []
    assert len(found) > 20, "or nothing was looked at"


@pytest.mark.parametrize(
    "option",
    [one for one in EXPORT_OPTIONS.values() if one.name != "dry_run"],
    ids=lambda one: one.name,
)
def test_every_option_of_an_export_is_named_as_its_argument_in_a_call(option: ExportOption) -> None:
    """Harm prevented: an option that messages name, and SQL calls by its flag."""
    told = in_call(f"Give {option.flag} to it.")

    assert told.startswith(f"Give `{option.name}")
    assert "--" not in told


@pytest.mark.parametrize(
    ("text", "call", "statement"),
    [
        (
            "Use --force to replace it.",
            "Use `force => true` to replace it.",
            "Use `export_merge_tree_partition_force_export = 1` to replace it.",
        ),
        (
            "delete the rows with --force --allow-empty.",
            "delete the rows with `force => true`, `allow_empty => true`.",
            (
                "delete the rows with `export_merge_tree_partition_force_export = 1`, "
                "`allow_replace_partition_from_empty_source = 1`."
            ),
        ),
        (
            "--convert id=decimal(38,0) makes them equal",
            "`convert => map('id', 'decimal(38,0)')` makes them equal",
            "`convert => map('id', 'decimal(38,0)')` makes them equal",
        ),
        (
            "Wait for it to end, or raise --source-wait.",
            "Wait for it to end, or raise spark.mergeberg.source.NAME.wait.",
            "Wait for it to end, or raise spark.mergeberg.source.NAME.wait.",
        ),
        (
            "List them with `mergeberg partitions db.t`. Run the command again.",
            "List them with `CALL system.partitions(...)`. Run the statement again.",
            "List them with `CALL system.partitions(...)`. Run the statement again.",
        ),
        (
            "Run the same command again: it goes on.",
            "Run the same statement again: it goes on.",
            "Run the same statement again: it goes on.",
        ),
        (
            "Run `mergeberg exports unarchive 1 --table db.t --to lake.n.t`, or use --force.",
            (
                "Run `mergeberg exports unarchive 1 --table db.t --to lake.n.t`, or use "
                "`force => true`."
            ),
            (
                "Run `mergeberg exports unarchive 1 --table db.t --to lake.n.t`, or use "
                "`export_merge_tree_partition_force_export = 1`."
            ),
        ),
        (
            "it may be at work elsewhere: --older-than AGE decides",
            "it may be at work elsewhere: `older_than` decides",
            "it may be at work elsewhere: `older_than` decides",
        ),
    ],
)
def test_a_message_is_said_in_the_words_of_its_door(text: str, call: str, statement: str) -> None:
    assert (in_call(text), in_statement(text)) == (call, statement)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Use --force to replace it.",
            "Use `export_merge_tree_partition_force_export = 1` to replace it.",
        ),
        ("Say it with `--allow-alter`.", "Say it with --allow-alter."),
        (
            "--convert id=string makes them equal; --evolve-schema adds it",
            (
                "--convert id=string makes them equal; --evolve-schema adds it. "
                "`mergeberg export` has --convert and --evolve-schema."
            ),
        ),
        ("give --same-table to `mergeberg export`.", "give --same-table to `mergeberg export`."),
        (
            "Look with `mergeberg verify db.t --partition-id 1`. Run the command again.",
            "Look with `mergeberg verify db.t --partition-id 1`. Run the command again.",
        ),
    ],
)
def test_a_message_of_alter_names_what_alter_has(text: str, said: str) -> None:
    assert in_alter(text) == said


def test_a_command_is_told_whose_an_option_is_that_it_lacks() -> None:
    text = "--convert id=string makes them equal, --source-wait waits"

    assert in_command(text, {"--source-wait"}) == f"{text}. `mergeberg export` has --convert."
    assert in_command(text, {"--source-wait", "--convert"}) == text


def test_alter_names_no_option_that_nobody_has() -> None:
    """Harm prevented: an error that says to give an option, and the command refuses it."""
    of_alter, of_export, of_gc = (
        {name for one in command.params for name in one.opts} for command in (alter, export, gc)
    )
    found = [(place, in_alter(text)) for place, text in texts() if place.startswith("tableformat/")]
    left = [
        (place, option)
        for place, said in found
        for option in OPTION.findall(said)
        if option not in of_alter
        and not ("`mergeberg export`" in said and option in of_export)
        and not ("/gc.py" in place and option in of_gc)
    ]

    assert left == []
    assert len(found) > 20, "or nothing was looked at"


@given(st.text())
def test_what_names_no_option_and_no_command_stays_as_it_is(text: str) -> None:
    if "--" not in text and "command" not in text and "mergeberg" not in text:
        assert in_call(text) == in_statement(text) == text
