"""Opens a source by what stands after --source."""

from __future__ import annotations

from catalog.clickhouse.connection import Connection
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.embedded_uri import parse_source
from catalog.clickhouse.source import ClickHouseSource

__all__ = ["open_source"]


def open_source(uri: str, *, wait: float) -> ClickHouseSource:
    """Return the source; its directory is opened when it is first asked, and let go by `close`.

    Args:
        uri: `chdb:DIRECTORY[?config-file=FILE]`.
        wait: seconds to wait while another process has the directory open.

    Raises:
        UnsupportedError: another kind of source.
        UsageError: the text is malformed.
    """
    settings = parse_source(uri)

    def connect() -> Connection:
        return EmbeddedConnection(settings.directory, wait=wait, config_file=settings.config_file)

    return ClickHouseSource(connect)
