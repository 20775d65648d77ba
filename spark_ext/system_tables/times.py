"""Times of the ledger as the system tables have them: Spark's TIMESTAMP, as ISO text in JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["timestamp"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(milliseconds: int) -> str:
    """Return a time since 1970 as ISO text with its offset, exact to the millisecond."""
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
