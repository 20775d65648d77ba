"""Help in sections, so that many commands, and many options of one, can be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import click

__all__ = ["Section", "SectionedCommand", "SectionedGroup"]

_OPTIONS: Final = {
    "Which partitions": ("--partition-id", "--partition", "--all", "--where"),
    "What happens": (
        *("--dry-run", "--verify", "--drop", "--allow-alter", "--yes", "--force", "--allow-empty"),
        *("--replace-partition", "--overwrite-file-if-exists", "--same-table", "--same-as"),
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
    "Output": ("--json", "--quiet", "--verbose", "--metrics-port", "--debug", "--help"),
}
"""The options that the sections of a long help have, in their order."""
_WHOLE: Final = 1000
"""No first sentence is longer: it is wrapped, and not cut."""


@dataclass(frozen=True, slots=True)
class Section:
    """Commands that are told together, below a title."""

    title: str
    commands: tuple[click.Command, ...]


class SectionedGroup(click.Group):
    """A group whose commands are added section by section."""

    sections: tuple[Section, ...] = ()

    def add(self, section: Section) -> None:
        """Add the commands of a section."""
        self.sections = (*self.sections, section)
        for command in section.commands:
            self.add_command(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  the signature is Click's
        """Write the commands, each section below its title."""
        named = [name for section in self.sections for name in _names(section)]
        for section in self.sections:
            with formatter.section(section.title):
                told = [(str(one.name), one.get_short_help_str(_WHOLE)) for one in section.commands]
                widest = max(map(len, named))
                formatter.write_dl([(name.ljust(widest), text) for name, text in told])


class SectionedCommand(click.Command):
    """A command of many options, whose help has them below titles."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each section below its title, those of no section last."""
        records = {
            next((one for one in param.opts if one.startswith("--")), param.opts[0]): record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
            and (record := param.get_help_record(ctx)) is not None
        }
        for title, names in _OPTIONS.items():
            found = [records.pop(name) for name in names if name in records]
            if found:
                with formatter.section(title):
                    formatter.write_dl(found)
        if records:
            with formatter.section("Other options"):
                formatter.write_dl([*records.values()])


def _names(section: Section) -> list[str]:
    return [str(command.name) for command in section.commands]
