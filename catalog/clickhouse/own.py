"""A ClickHouse of our own: it is started empty, computes something, and leaves nothing behind.

What it computes may be written by others than who runs it (SECURITY.md). Its configuration takes
away what its engine can do without: it calls no host, has no dictionaries, functions of users or
named collections, looks into no process, and has half of the machine's memory at most. It does
read and write files, because rows come and go as files; which functions a text may call is decided
before it comes here (`tableformat.mergetree.row_functions`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.scratch import ScratchDirectory
from tableformat.errors import SourceError
from tableformat.names import quote_string

__all__ = ["BYTES_A_SECOND", "LEAST_SECONDS", "MEMORY", "ROWS_A_SECOND", "OwnClickHouse"]

_RIGHTS: Final = (
    "SHOW, SELECT, INSERT, ALTER, TRUNCATE, OPTIMIZE, CHECK ON *.*",
    "CREATE DATABASE, CREATE TABLE, CREATE TEMPORARY TABLE, DROP TABLE ON *.*",
    "READ, WRITE ON FILE",
)
"""Of its only user. What it does in the background, such as a mutation, is done by no user."""
_SETTINGS: Final = (("allow_introspection_functions", "0"), ("allow_ddl", "1"))
"""Whose values no statement can change."""
MEMORY: Final = 0.5
"""The share of the machine's memory that it may have."""
LEAST_SECONDS: Final = 60.0
"""How long a statement without rows may take that others wrote, or of which they wrote a part."""
ROWS_A_SECOND: Final = 10_000
BYTES_A_SECOND: Final = 1 << 20
"""Of so many it may take a second more."""


class OwnClickHouse(EmbeddedConnection):
    """A ClickHouse without data, in a directory which goes with it. Leaving it closes."""

    def __init__(
        self,
        purpose: str,
        *,
        zone: str | None = None,
        seconds: float | None = None,
        memory: float = MEMORY,
    ) -> None:
        """Start it.

        Args:
            purpose: a word for the directory's name.
            zone: the server's time zone, None for this machine's. What ClickHouse does in the
                background (a mutation) knows no zone of a session.
            seconds: how long a statement may take, None for ever.
            memory: the share of the machine's memory that it may have.

        Raises:
            SourceError: ClickHouse does not start.
        """
        self._scratch = ScratchDirectory(purpose)
        place = self._scratch.path
        try:
            config = _configured(place, memory)
            super().__init__(
                place / "clickhouse", create=True, zone=zone, config_file=config, scratch=place
            )
        except BaseException:
            self._scratch.close()
            raise
        try:
            self._check_configured()
        except BaseException:
            self.close()
            raise
        self.seconds = seconds

    @property
    def directory(self) -> Path:
        """Where files may be put that go with it."""
        return self._scratch.path

    def allow(self, rows: int, size: int) -> None:
        """Let each of the next statements take the time that rows may need.

        Args:
            rows: that they are about.
            size: of their files, in bytes.
        """
        self.seconds = LEAST_SECONDS + rows / ROWS_A_SECOND + size / BYTES_A_SECOND

    def _check_configured(self) -> None:
        """Make sure that ClickHouse has read its configuration.

        Raises:
            SourceError: it can do what it must not.
        """
        names = ", ".join(quote_string(name) for name, _ in _SETTINGS)
        asked = f"SELECT count() FROM system.settings WHERE readonly AND name IN ({names})"
        if self.rows(asked) != ((len(_SETTINGS),),):
            message = (
                f"Cannot start ClickHouse in {self.directory}: it did not read its configuration "
                "there. Let TMPDIR be a directory with a plain name."
            )
            raise SourceError(message)

    def close(self) -> None:
        """End ClickHouse and remove its directory. Closing twice is the same as once."""
        super().close()
        self._scratch.close()


def _configured(place: Path, memory: float) -> Path:
    """Write the configuration; return its path."""
    users, config = place / "users.xml", place / "config.xml"
    rights = "".join(f"<query>GRANT {of}</query>" for of in _RIGHTS)
    values = "".join(f"<{name}>{value}</{name}>" for name, value in _SETTINGS)
    fixed = "".join(f"<{name}><readonly/></{name}>" for name, _ in _SETTINGS)
    users.write_text(
        f"<clickhouse><profiles><default>{values}<constraints>{fixed}</constraints></default>"
        "</profiles><users><default><password></password><networks><ip>::/0</ip></networks>"
        f"<profile>default</profile><quota>default</quota><grants>{rights}</grants></default>"
        "</users><quotas><default></default></quotas></clickhouse>"
    )
    config.write_text(
        f"<clickhouse><users_config>{users.name}</users_config><remote_url_allow_hosts/>"
        f"<max_server_memory_usage_to_ram_ratio>{memory}</max_server_memory_usage_to_ram_ratio>"
        "</clickhouse>"
    )
    return config
