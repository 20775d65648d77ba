"""Contract: what a ledger keeps of the past, bounded: events of exports, and counters for ever.

An event is a line of `exports log`, in the words of ClickHouse's system.part_log: one for each
partition that an export was tried of, and one for each of its source parts. Nothing is decided on
events; losing one loses a line of a log. Counters count source parts, not slices or files
(RQ…Logging, RQ…Metrics).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from tableformat.errors import LedgerError

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
"""The latest events that a ledger keeps."""
RUNNING_EXPORTS: Final = "Export"
"""The name of the metric that counts partitions that are being exported now.

A key counts while an export has claimed it and an owner that may be alive has its lease. Statements
on the lake table take the same leases, and do not count.
"""


class Counter(StrEnum):
    """What is counted for ever, in source parts, by ClickHouse's names."""

    EXPORTS = "PartsExports"
    FAILURES = "PartsExportFailures"
    DUPLICATED = "PartsExportDuplicated"


MEANINGS: Final[Mapping[str, str]] = {
    Counter.EXPORTS.value: "source parts that were exported",
    Counter.FAILURES.value: "source parts of exports that failed",
    Counter.DUPLICATED.value: "source parts that are exported already, or by another run",
    RUNNING_EXPORTS: "partitions that are being exported now",
}
"""What `History.counters` counts, in words for people."""


class EventKind(StrEnum):
    """What was tried: the `event_type` of part_log."""

    EXPORT_PARTITION = "EXPORT_PARTITION"


@dataclass(frozen=True, slots=True)
class Event:
    """What was tried with a partition, or with one source part of it, and what became of it.

    `time` and `duration` are milliseconds, `time` since 1970. `part_name` is '' for the whole
    partition. `rows` are the source's, lightweight-deleted ones included; `bytes_read` are on the
    source's disks, `bytes_written` in files of the lake. `counter` says what the event counts, and
    `parts` how many. `query_id` names the statement that tried.
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
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Event:
        """Read the stored form.

        Raises:
            LedgerError: it is damaged.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            raw["kind"] = EventKind(raw["kind"])
            raw["counter"] = Counter(raw["counter"]) if raw["counter"] is not None else None
            return cls(**raw)
        except (ValueError, KeyError, TypeError) as error:
            message = (
                f"Cannot read an event of the ledger: {error!r}. Its history is damaged, its "
                "exports need not be: see them with `mergeberg exports list`."
            )
            raise LedgerError(message) from error


class History(Protocol):
    """The part of a ledger that keeps the past. Every method may raise LedgerError."""

    def note(self, events: tuple[Event, ...]) -> None:
        """Keep events, the oldest of too many given up, and add what they count."""
        ...

    def events(self, since: int | None, most: int) -> tuple[Event, ...]:
        """Return at most `most` events, the last noted first.

        Args:
            since: only those of this time or later, milliseconds since 1970; None for all.
            most: how many.
        """
        ...

    def counters(self) -> Mapping[str, int]:
        """Return what was counted since the ledger was made, and how many exports run now.

        Every name of `Counter` is there, and `RUNNING_EXPORTS`.
        """
        ...


def counted(totals: Mapping[str, int], running: int) -> dict[str, int]:
    """Return every counter by its name, those that never counted as 0, and what runs now."""
    return {**{c.value: totals.get(c.value, 0) for c in Counter}, RUNNING_EXPORTS: running}
