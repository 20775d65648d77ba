"""A ClickHouse of our own: it is started empty, computes something, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.scratch import ScratchDirectory

__all__ = ["OwnClickHouse"]


class OwnClickHouse(EmbeddedConnection):
    """A ClickHouse without data, in a directory which goes with it. Leaving it closes."""

    def __init__(self, purpose: str, *, zone: str | None = None) -> None:
        """Start it.

        Args:
            purpose: a word for the directory's name.
            zone: the server's time zone, None for this machine's. What ClickHouse does in the
                background (a mutation) knows no zone of a session.

        Raises:
            SourceError: ClickHouse does not start.
        """
        self._scratch = ScratchDirectory(purpose)
        try:
            super().__init__(self._scratch.path / "clickhouse", create=True, zone=zone)
        except BaseException:
            self._scratch.close()
            raise

    @property
    def directory(self) -> Path:
        """Where files may be put that go with it."""
        return self._scratch.path

    def close(self) -> None:
        """End ClickHouse and remove its directory. Closing twice is the same as once."""
        super().close()
        self._scratch.close()
