"""The text that names an embedded source: `chdb:DIRECTORY[?config-file=FILE]`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.shown_address import without_secret
from tableformat.errors import UnsupportedError, UsageError

__all__ = ["EmbeddedSettings", "parse_source", "render_source"]

_SCHEME: Final = "chdb:"
_CONFIG: Final = "config-file="


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """Where an embedded ClickHouse keeps its data, and the configuration it is opened with."""

    directory: Path
    config_file: Path | None = None


def parse_source(uri: str) -> EmbeddedSettings:
    """Read `chdb:DIRECTORY` or `chdb:DIRECTORY?config-file=FILE`.

    Raises:
        UnsupportedError: it names another kind of source.
        UsageError: the directory or the file is missing, or another option stands there.
    """
    if not uri.startswith(_SCHEME):
        message = (
            f"Cannot read the source {without_secret(uri)!r}: its kind is not known. Use "
            "https://[USER@]HOST[:PORT] for a server (its HTTP interface, not port 9000), "
            "chdb:DIRECTORY or chdb:DIRECTORY?config-file=FILE for a local data directory, or "
            "parts:DIR?ddl=FILE for frozen parts."
        )
        raise UnsupportedError(message)
    directory, mark, options = uri.removeprefix(_SCHEME).partition("?")
    config = options.removeprefix(_CONFIG)
    malformed = mark and (not options.startswith(_CONFIG) or not config or "&" in config)
    if not directory or malformed:
        what = "no directory" if not directory else f"the options {options!r} after the directory"
        message = (
            f"Cannot read the source {uri!r}: it has {what}. "
            "Write chdb:DIRECTORY or chdb:DIRECTORY?config-file=FILE."
        )
        raise UsageError(message)
    return EmbeddedSettings(Path(directory), Path(config) if mark else None)


def render_source(settings: EmbeddedSettings) -> str:
    """Return the text that `parse_source` reads."""
    tail = "" if settings.config_file is None else f"?{_CONFIG}{settings.config_file}"
    return f"{_SCHEME}{settings.directory}{tail}"
