"""The pages of the command line name every command, every option and every field of its JSON."""

from __future__ import annotations

import inspect
import io
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import partial

import click
import pytest
from click.shell_completion import BashComplete

from spark_ext.cli.main import exports, invoke, main
from spark_ext.cli.sections import Run, SectionedGroup
from spark_ext.cli.typed_commands import TYPED_COMMANDS
from tableformat.export.outcome import Outcome, Status
from tests.support.typed_pages import REFERENCE, options, shared

PAGES = {
    page.stem: page.read_text(encoding="utf-8")
    for page in (REFERENCE / "cli.md", *sorted((REFERENCE / "cli").glob("*.md")))
}


def commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def rows_of(text: str) -> dict[str, tuple[str, str]]:
    """Return the environment variable and the meaning of each option in a table."""
    cells = (line.split(" | ") for line in text.splitlines() if line.startswith("| `--"))
    return {
        name.strip("|` ").split()[0]: (variable.strip("` "), meaning.removesuffix(" |"))
        for name, _, variable, meaning in cells
    }


def common() -> dict[str, dict[str, tuple[str, str]]]:
    """Return the common options, by the anchor of their group."""
    parts = re.split(r"^## ", PAGES["common-options"], flags=re.MULTILINE)[1:]
    return {part.splitlines()[0].lower().replace(" ", "-"): rows_of(part) for part in parts}


def documented() -> dict[str, dict[str, tuple[str, str]]]:
    """Return the options of each command on the pages, each with its variable and meaning."""
    groups = common()
    every = {name: row for group in groups.values() for name, row in group.items()}
    found = {}
    for text in PAGES.values():
        for part in re.split(r"^##? mergeberg ", text, flags=re.MULTILINE)[1:]:
            named = "".join(re.findall(r"^Common options: .*$", part, flags=re.MULTILINE))
            shared = [groups[group] for group in re.findall(r"common-options\.md#([\w-]+)", named)]
            alone = [{name: every[name]} for name in re.findall(r"`(--[\w-]+)`", named)]
            rows: dict[str, tuple[str, str]] = {}
            for more in (*shared, *alone, rows_of(part)):
                rows |= more
            found[part.splitlines()[0]] = rows
    return found


@pytest.mark.parametrize("command", dict(commands(main)).values(), ids=dict(commands(main)))
def test_what_runs_a_command_takes_its_options(command: click.Command) -> None:
    """Harm prevented: an option that is declared, and that the function of the command lacks."""
    run = command.callback
    assert isinstance(run, Run)
    with command.make_context("", [], resilient_parsing=True) as context:
        bound = run.bound(context.params)

    assert isinstance(bound, partial)
    inspect.signature(bound.func).bind(**bound.keywords)


def test_the_first_page_lists_every_command() -> None:
    words = set(re.findall(r"[a-z][a-z-]+", PAGES["cli"]))

    assert [name for name, _ in commands(main) if name.split()[-1] not in words] == []


def test_the_page_names_every_command_and_option_with_its_variable() -> None:
    there = {
        name: {
            option.opts[0]: str(option.envvar or "")
            for option in command.params
            if isinstance(option, click.Option)
        }
        for name, command in commands(main)
        if command not in TYPED_COMMANDS
    }

    assert {
        name: {option: variable for option, (variable, _) in rows.items()}
        for name, rows in documented().items()
    } == there


def test_a_common_option_means_the_same_in_every_command_that_has_it() -> None:
    """Harm prevented: an option that is explained once, and does something else elsewhere."""
    shared = {name: row for group in common().values() for name, row in group.items()}
    rows = documented()
    other = {
        (name, option.opts[0]): option.help
        for name, command in commands(main)
        for option in command.params
        if isinstance(option, click.Option) and command not in TYPED_COMMANDS
        if (row := rows[name][option.opts[0]]) is shared.get(option.opts[0])
        if row[1].replace("`", "") != str(option.help)
    }

    assert len(shared) > 20
    assert other == {}


def test_the_page_names_every_option_of_commands_that_are_statements() -> None:
    """`python -m tests.support.typed_pages` writes the table."""
    written = PAGES["statements"]
    every, of_others, others = shared()
    all_have, others_have = written.partition("All have ")[2].split("\n\n")[0].split("`--debug`.")
    named = others_have.partition(": ")[2]

    assert options() in written
    assert re.findall(r"`(--[a-z-]+)`", all_have) == every[:-1]
    assert re.findall(r"`(--[a-z-]+)`", named) == of_others
    assert re.findall(r"`(\w+)`", others_have)[: len(others)] == others


def test_the_page_names_every_field_and_status_of_an_outcome() -> None:
    page = PAGES["json"]
    rows = "\n".join(line for line in page.splitlines() if line.startswith("| `"))

    assert [f.name for f in fields(Outcome) if f"`{f.name}`" not in rows] == []
    assert [s.value for s in Status if f"`{s.value}`" not in page] == []


def test_every_command_has_a_help_with_an_example() -> None:
    assert [n for n, c in commands(main) if "mergeberg " + n not in (c.help or "")] == []


@pytest.mark.parametrize("group", [main, exports], ids=["mergeberg", "exports"])
def test_a_group_lists_each_command_with_the_first_sentence_of_its_help(
    group: SectionedGroup,
) -> None:
    """Harm prevented: the list, which imports no command, says something else than the command."""
    listed = dict(group.short_helps())

    assert {n: c.get_short_help_str(1000) for n, c in group.commands.items()} == listed
    assert {n: c.name for n, c in group.commands.items()} == {n: n for n in listed}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("mergeberg exp", ["export", "exports"]),
        ("mergeberg exports w", ["watermark"]),
        ("mergeberg exports list --wa", ["--watch", "--warehouse"]),
        ("mergeberg --vers", ["--version"]),
    ],
)
def test_a_shell_completes_names_of_commands_and_options(words: str, found: list[str]) -> None:
    *before, incomplete = words.split()
    shell = BashComplete(main, {}, "mergeberg", "_MERGEBERG_COMPLETE")

    assert [one.value for one in shell.get_completions(before[1:], incomplete)] == found


def test_the_help_lists_every_command_once_below_a_title() -> None:
    """Harm prevented: a command that is there, and that nobody finds."""
    with click.Context(main, terminal_width=100) as context:
        lines = main.get_help(context).splitlines()
    listed = [line.split()[0] for line in lines if re.match(r"  [a-z][a-z-]*  +[A-Z]", line)]

    assert sorted(listed) == sorted(main.commands)
    assert "Statements on lake tables:" in lines


def help_of(*words: str) -> str:
    """Return what a command prints for --help or --help-all."""
    out, err = io.StringIO(), io.StringIO()
    assert (invoke(words, out, err), err.getvalue()) == (0, "")
    return out.getvalue()


def named_in(text: str, option: click.Option) -> int:
    """Return how often a help lists an option, below its titles: text above them may name it."""
    listed = re.split(r"(?m)^[A-Z][a-z, ]+:$", text, maxsplit=1)[1]
    return len(re.findall(rf"^  (?:-\w, )?{option.opts[0]}(?![\w-])", listed, re.MULTILINE))


LONG = ["alter", "archive", "check", "export", "verify"]


@pytest.mark.parametrize("name", LONG)
def test_help_all_has_every_option_once_and_none_below_no_title(name: str) -> None:
    """Harm prevented: 47 options in one list, and --dry-run behind --metrics-port."""
    text = help_of(name, "--help-all")
    options = [one for one in main.commands[name].params if isinstance(one, click.Option)]

    assert "Other options" not in text
    assert {one.opts[0]: named_in(text, one) for one in options} == {o.opts[0]: 1 for o in options}
    assert text.index("Which partitions:" if name in ("export", "verify") else "Source:") > 0


@pytest.mark.parametrize("name", LONG)
def test_help_leaves_rare_options_out_and_says_so_in_its_last_line(name: str) -> None:
    """Harm prevented: the options that everybody needs are lost among those of one in a hundred."""
    text, whole = help_of(name, "--help"), help_of(name, "--help-all")
    options = [one for one in main.commands[name].params if isinstance(one, click.Option)]
    left = [one.opts[0] for one in options if not named_in(text, one)]

    assert text.splitlines()[-1] == (
        f"{len(left)} less common options: mergeberg {name} --help-all"
    )
    assert "--retry-for" in left
    assert "less common" not in whole
    assert len(text.splitlines()) < len(whole.splitlines())


def test_the_help_of_export_has_the_options_of_everyday_and_fits_two_screens() -> None:
    text = help_of("export", "--help")

    assert len(text.splitlines()) <= 100
    for option in ("--partition-id", "--all", "--where", "--to", "--dry-run", "--force", "--json"):
        assert option in text
    assert "--same-as" not in text
