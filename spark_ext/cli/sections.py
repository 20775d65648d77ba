"""A group of commands whose help has them in sections, so that many of them can be read."""

from __future__ import annotations

from dataclasses import dataclass

import click

__all__ = ["Section", "SectionedGroup"]


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
        limit = formatter.width - 6 - max(map(len, named), default=0)
        for section in self.sections:
            with formatter.section(section.title):
                told = [(str(one.name), one.get_short_help_str(limit)) for one in section.commands]
                widest = max(map(len, named))
                formatter.write_dl([(name.ljust(widest), text) for name, text in told])


def _names(section: Section) -> list[str]:
    return [str(command.name) for command in section.commands]
