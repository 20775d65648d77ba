"""Defines the contract of a ledger's history: a bounded list of events, and permanent counters.

An event is a line of `exports log`, with the columns of ClickHouse's system.part_log. There is one
for each partition that a job tried to export, and one for each of its source parts. No decision
depends on events. Counters count source parts, not slices or files (RQ…Logging, RQ…Metrics).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from tableformat.errors import LedgerError
from tableformat.messages import Command
from tableformat.names import members

__all__ = [
    "MEANINGS",
    "MOST_EVENTS",
    "RUNNING_EXPORTS",
    "Counter",
    "Event",
    "EventKind",
    "History",
    "counted",
]

MOST_EVENTS: Final = 10_000
"""How many events a ledger keeps, the latest ones."""
RUNNING_EXPORTS: Final = "Export"
"""The name of the metric of the partitions that are being exported now.

A key counts while an export has claimed it and an owner that may be running has its lease. The
leases of statements on the lake table do not count.
"""


class Counter(StrEnum):
    """The permanent counters of source parts, by ClickHouse's names."""

    EXPORTS = "PartsExports"
    FAILURES = "PartsExportFailures"
    DUPLICATED = "PartsExportDuplicated"


MEANINGS: Final[Mapping[str, str]] = {
    Counter.EXPORTS.value: "source parts that were exported",
    Counter.FAILURES.value: "source parts of exports that failed",
    Counter.DUPLICATED.value: "source parts that are exported already, or by another run",
    RUNNING_EXPORTS: "partitions that are being exported now",
}
"""The description of each value of `History.counters`."""


class EventKind(StrEnum):
    """The `event_type` of part_log."""

    EXPORT_PARTITION = "EXPORT_PARTITION"


@dataclass(frozen=True, slots=True)
class Event:
    """The outcome of an export for a partition, or for one of its source parts.

    * `time` is milliseconds since 1970, `duration` milliseconds.
    * `part_name` is '' in the event of the partition.
    * `rows` counts rows of the source, including rows that a lightweight delete hides. `bytes_read`
      are bytes on the source's disks, `bytes_written` bytes of data files.
    * `counter` is the counter that the event increases by `parts`, None for none.
    * `query_id` is the name of the statement.
    """

    time: int
    kind: EventKind
    table: str
    destination: str
    partition_id: str
    part_name: str
    status: str
    transaction_id: str = ""
    rows: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    duration: int = 0
    error: str = ""
    counter: Counter | None = None
    parts: int = 0
    query_id: str = ""

    def to_json(self) -> str:
        """Return the stored form."""
        return json.dumps(self, default=members, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Event:
        """Parse the stored form.

        Raises:
            LedgerError: the text is damaged.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            raw["kind"] = EventKind(raw["kind"])
            raw["counter"] = Counter(raw["counter"]) if raw["counter"] is not None else None
            return cls(**raw)
        except (ValueError, KeyError, TypeError) as error:
            message = (
                f"Cannot read an event of the ledger: {error!r}. Its history is damaged, its "
                f"exports need not be: see them with {Command.EXPORTS}."
            )
            raise LedgerError(message) from error


class History(Protocol):
    """The part of a ledger that stores the history. Every method may raise LedgerError."""

    def note(self, events: tuple[Event, ...]) -> None:
        """Store events, drop the oldest beyond `MOST_EVENTS`, and increase the counters."""
        ...

    def events(self, since: int | None, most: int) -> tuple[Event, ...]:
        """Return at most `most` events, the latest first.

        Args:
            since: only events at this time or later, in milliseconds since 1970; None for all.
            most: the most events.
        """
        ...

    def counters(self) -> Mapping[str, int]:
        """Return the counters since the ledger was created, and the number of running exports.

        The result has every name of `Counter`, and `RUNNING_EXPORTS`.
        """
        ...


def counted(totals: Mapping[str, int], running: int) -> dict[str, int]:
    """Return every counter by its name, 0 if it has no total, and the number of running exports."""
    return {**{c.value: totals.get(c.value, 0) for c in Counter}, RUNNING_EXPORTS: running}
