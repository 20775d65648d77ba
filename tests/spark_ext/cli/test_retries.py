"""`mergeberg export --max-retries`: what a user sees when a file cannot be written.

RQ.ClickHouse.ExportPartition.RetryMechanism, RQ…Settings.MaxRetries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from spark_ext.actions import export_ports
from tableformat.errors import (
    DestinationError,
    LastingError,
    RefusedError,
    TableFormatError,
    reason_first,
)
from tableformat.export.ports import SliceFailure, Writing, Written
from tableformat.export.slices import SliceTask, WritePlan
from tests.support.fakes import FakeWriter
from tests.wrong.places import Places

FULL = DestinationError("Cannot write: the disk is full. Make room.")
WITHOUT_ROOM = LastingError(
    "Cannot write /a/b.parquet: No space left on device. Free space there, and run it again."
)
BAD = RefusedError("Cannot export: a value has no place. Mend it.")


@dataclass
class Failing(FakeWriter):
    """Writes all partitions but 202402; `tries` are those of its slice."""

    error: TableFormatError = field(default=FULL)
    tries: int = 0

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        every = [s for task in tasks for s in task.slices]
        bad = [s for s in every if s.partition_id == "202402"]
        self.tries += len(bad)
        fine = tuple(SliceTask((s,)) for s in every if s not in bad)
        written = yield from super().write(plan, fine, on_rows=on_rows, should_stop=should_stop)
        return Written(written.receipts, tuple(SliceFailure(s.number, self.error) for s in bad))


def status_of(places: Places, table: str) -> Iterator[tuple[object, ...]]:
    """Yield partition, status and last error of each export to a lake table."""
    for one in places.outcomes("exports", "list"):
        if one["destination_table"] == table:
            yield one["partition_id"], one["status"], one["last_error"]


@pytest.mark.parametrize(
    ("words", "error", "tries"),
    [
        ((), FULL, 4),
        (("--max-retries", "1"), FULL, 2),
        (("--max-retries", "0"), FULL, 1),
        ((), BAD, 1),
        ((), WITHOUT_ROOM, 1),
    ],
)
def test_when_the_tries_are_exhausted_the_partition_has_failed_and_no_other(
    places: Places,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    error: TableFormatError,
    tries: int,
) -> None:
    """Three retries by default; what would fail again at once is not tried again."""
    writer = Failing(error=error)
    monkeypatch.setattr(export_ports, "SparkWriter", lambda *_: writer)
    table = f"lake.n.tries{tries}{type(error).__name__.lower()}{len(words)}"

    code, _, err = places.run("export", "db.other", "--all", "--to", table, *words)

    assert writer.tries == tries
    assert [line for line in err.splitlines() if "attempt" in line] == [
        f"· 1 file to write again, attempt {n} of {tries}: the disk is full: cannot write"
        for n in range(2, tries + 1)
    ]
    assert code in {3, 4}
    assert sorted(status_of(places, table)) == [
        ("202401", "COMPLETED", ""),
        ("202402", "FAILED", reason_first(error.message)),
    ]
