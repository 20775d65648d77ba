"""Help in sections, and commands that import what they need when they run.

A group lists its commands with a name and a short help each, so that its help and the completion
of a command's name import no command. The short help is the first sentence of the command's own.
A command is declared without what runs it, so that its help and the completion of its options
import no Spark (`Run`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

__all__ = [
    "CONFIGURATION",
    "Invocation",
    "Run",
    "Section",
    "SectionedCommand",
    "SectionedGroup",
]

_OPTIONS: Final = {
    "Which partitions": ("--partition-id", "--partition", "--all", "--where"),
    "What happens": (
        *("--dry-run", "--verify", "--check-rows", "--drop", "--allow-alter", "--yes", "--force"),
        *("--no-wait", "--allow-empty", "--replace-partition", "--overwrite-file-if-exists"),
        *("--incremental", "--max-replace", "--late-rows", "--same-table", "--same-as"),
    ),
    "Destination and mapping": (
        *("--to", "--partition-spec", "--convert", "--evolve-schema", "--backfill", "--strict"),
        *("--hive-column",),
    ),
    "Speed, retries and time": (
        *("--max-bandwidth", "--max-slices", "--no-parallel-formatting", "--target-file-size"),
        *("--commit-every", "--max-retries", "--manifest-ttl", "--abandoned-ttl", "--grace"),
    ),
    "Source": (
        *("--source", "--source-wait", "--source-config", "--source-setting", "--sync-timeout"),
        *("--allow-insecure", "--ignore-row-policies", "--staging-database"),
        *("--cluster", "--cluster-host", "--database"),
    ),
    "Lake and ledger": (
        *("--warehouse", "--ledger", "--catalog"),
        *("--connect-timeout", "--read-timeout", "--retry-for", "--fast"),
    ),
    "Spark": ("--master", "--conf"),
    "Output": (
        *("--json", "--quiet", "--verbose", "--metrics-port", "--debug", "--help", "--help-all"),
    ),
}
"""The options in each section of a command's help, in order."""
_RARE: Final = frozenset(
    (
        *("--allow-empty", "--replace-partition", "--overwrite-file-if-exists", "--same-table"),
        *(
            "--late-rows",
            "--incremental",
            "--same-as",
            "--hive-column",
            "--no-parallel-formatting",
            "--target-file-size",
        ),
        *("--commit-every", "--max-retries", "--manifest-ttl", "--abandoned-ttl", "--grace"),
        *("--source-wait", "--source-setting", "--sync-timeout", "--allow-insecure"),
        *("--ignore-row-policies", "--staging-database", "--cluster-host", "--connect-timeout"),
        *("--read-timeout", "--retry-for", "--fast", "--metrics-port", "--debug"),
    )
)
"""The options that --help-all shows, and --help does not."""
_SHOWS_ALL: Final = "mergeberg.shows_all"
"""The key in a context's `meta` that makes the help show all options."""
CONFIGURATION: Final = "mergeberg.configuration"
"""The key in a context's `meta` of the configuration file in effect."""
_WHOLE: Final = 1000
"""The maximum length of a short help, so large that none is cut."""


@dataclass(slots=True)
class Invocation:
    """The running command line: its words, and the ids of partitions that it has exported.

    `context` is that of its command, None before the options are read.
    """

    words: tuple[str, ...] = ()
    landed: list[str] = field(default_factory=list)
    context: click.Context | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Runs a command: it imports the function of the command, and makes values of the options.

    `place` is `module:name` in `spark_ext.cli.commands`, of the function; `others` go to it, too.
    """

    place: str
    others: Mapping[str, Any] = field(default_factory=dict)

    def bound(self, given: Mapping[str, Any]) -> Callable[[], Any]:
        """Return the function with the values of the options."""
        module, _, name = self.place.partition(":")
        values = import_module("spark_ext.cli.option_values").values_of(given)
        function = getattr(import_module(f"spark_ext.cli.commands.{module}"), name)
        return partial(function, **values, **self.others)

    def __call__(self, **given: Any) -> Any:
        """Run the command, and keep its context for what is printed after it."""
        context = click.get_current_context()
        context.ensure_object(Invocation).context = context
        return self.bound(given)()


@dataclass(frozen=True, slots=True)
class Section:
    """Commands that are listed together, below a title.

    A command is given by its short help where it is imported when it is looked up.
    """

    title: str
    commands: Mapping[str, str | click.Command]

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the short help of each command, without importing it."""
        for name, one in self.commands.items():
            yield name, one if isinstance(one, str) else one.get_short_help_str(_WHOLE)


class SectionedGroup(click.Group):
    """A group whose help lists its commands in sections."""

    def __init__(
        self,
        name: str | None = None,
        *,
        sections: tuple[Section, ...] = (),
        places: tuple[str, ...] = (),
        last_line: Callable[[click.Context], str] = lambda _: "",
        **named: Any,
    ) -> None:
        """Make a group of the commands of the sections; the rest is Click's.

        `places` are `module:name` in `spark_ext.cli`, of tuples that have the commands. `last_line`
        returns that of the help, '' for none.
        """
        commands = {name: one for section in sections for name, one in section.commands.items()}
        super().__init__(name, commands=_Commands(commands, places), **named)
        self._sections = sections
        self._last_line = last_line

    def short_helps(self) -> Iterator[tuple[str, str]]:
        """Yield name and short help of each command, without importing it."""
        for section in self._sections:
            yield from section.lines()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  the signature is Click's
        """Write the commands section by section."""
        widest = max(map(len, self.commands))
        for section in self._sections:
            with formatter.section(section.title):
                formatter.write_dl([(name.ljust(widest), text) for name, text in section.lines()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the last line."""
        super().format_epilog(ctx, formatter)
        if line := self._last_line(ctx):
            formatter.write_paragraph()
            formatter.write(f"{line}\n")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the matching commands and options, without importing a command."""
        found = [
            CompletionItem(name, help=text)
            for name, text in self.short_helps()
            if name.startswith(incomplete)
        ]
        # click.Group.shell_complete would import the commands.
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


class _Commands(MutableMapping[str, click.Command]):
    """The commands of a group by name; each is imported at its first use."""

    def __init__(self, commands: dict[str, str | click.Command], places: tuple[str, ...]) -> None:
        """Begin with commands of which some are not imported yet."""
        self._commands, self._places = commands, places

    def __getitem__(self, name: str) -> click.Command:
        """Return a command."""
        found = self._commands[name]
        if isinstance(found, str):
            found = self._commands[name] = self._loaded(name)
        return found

    def _loaded(self, name: str) -> click.Command:
        """Import a command."""
        for place in self._places:
            module, _, variable = place.partition(":")
            for command in getattr(import_module(f"spark_ext.cli.{module}"), variable):
                if command.name == name:
                    found: click.Command = command
                    return found
        raise KeyError(name)

    def __setitem__(self, name: str, command: click.Command) -> None:
        """Add a command."""
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        """Remove a command."""
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._commands)

    def __len__(self) -> int:
        """Return how many commands there are."""
        return len(self._commands)

    def __contains__(self, name: object) -> bool:
        """Whether there is a command of this name, without importing it."""
        return name in self._commands


def _show_all(context: click.Context, _option: click.Parameter, given: object) -> None:
    """Print the help with all options, and end the command."""
    if given and not context.resilient_parsing:
        context.meta[_SHOWS_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


_HELP_ALL: Final = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show this message with every option, and exit.",
)


class SectionedCommand(click.Command):
    """A command with many options: --help shows the common ones, --help-all shows all."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with --help-all after --help."""
        return [*super().get_params(ctx), _HELP_ALL]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options section by section, with the remaining options last."""
        records = {
            name: record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
            and (record := param.get_help_record(ctx)) is not None
            and ((name := _name(param)) not in _RARE or ctx.meta.get(_SHOWS_ALL))
        }
        for title, names in _OPTIONS.items():
            found = [records.pop(name) for name in names if name in records]
            if found:
                with formatter.section(title):
                    formatter.write_dl(found)
        if records:
            with formatter.section("Other options"):
                formatter.write_dl([*records.values()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the number of options that the help leaves out, and the option to show them."""
        super().format_epilog(ctx, formatter)
        left = sum(isinstance(one, click.Option) and _name(one) in _RARE for one in self.params)
        if left and not ctx.meta.get(_SHOWS_ALL):
            formatter.write_paragraph()
            formatter.write_text(f"{left} less common options: {ctx.command_path} --help-all")


def _name(option: click.Option) -> str:
    """Return the name of an option: its long form if it has one."""
    return next((one for one in option.opts if one.startswith("--")), option.opts[0])
