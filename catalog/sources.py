"""Opens a source by what stands after --source and its options."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.clickhouse.connection import Connection
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.embedded_uri import parse_source
from catalog.clickhouse.source import ClickHouseSource

__all__ = ["SourcePlace", "open_source"]


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where a source is, as the user said: an address, and how long to wait for it in seconds."""

    uri: str
    wait: float = 60.0


def open_source(place: SourcePlace) -> ClickHouseSource:
    """Return the source; its directory is opened when it is first asked, and let go by `close`.

    Args:
        place: `chdb:DIRECTORY[?config-file=FILE]`; `wait` is for a directory that is in use.

    Raises:
        UnsupportedError: another kind of source.
        UsageError: the text is malformed.
    """
    settings = parse_source(place.uri)

    def connect() -> Connection:
        return EmbeddedConnection(
            settings.directory, wait=place.wait, config_file=settings.config_file
        )

    return ClickHouseSource(connect)
