"""`exports list` and `exports show`: which source parts are in finished files, in every state.

RQ.ClickHouse.ExportPartition.PartialProgress.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from spark_ext.actions import export_ports
from tableformat.errors import DestinationError, RefusedError
from tableformat.export.ports import Writing
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.names import LakeName
from tests.support.fakes import FakeWriter
from tests.wrong.places import Places

FULL = DestinationError("Cannot write: the disk is full. Make room.")


@dataclass
class Watched(FakeWriter):
    """A writer; somebody looks before the files are there, and when they are."""

    before: Callable[[], None] = field(default=lambda: None)
    after: Callable[[], None] = field(default=lambda: None)

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        self.before()
        written = yield from super().write(plan, tasks, on_rows=on_rows, should_stop=should_stop)
        self.after()
        return written


@pytest.fixture
def words(places: Places, request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Return the export of a table of the test's own, whose one partition has two parts."""
    name = f"t{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}"
    rows = "SELECT toDateTime('2024-01-31', 'UTC'), number FROM numbers(3)"
    places.clickhouse_run(
        f"CREATE TABLE db.{name} (ts DateTime('UTC'), id Int64) ENGINE = MergeTree"
        " PARTITION BY toYYYYMM(ts) ORDER BY id",
        f"SYSTEM STOP MERGES db.{name}",
        *[f"INSERT INTO db.{name} {rows}"] * 2,
    )
    return ("export", f"db.{name}", "--all", "--to", f"lake.n.{name}")


def listed(places: Places, words: tuple[str, ...]) -> tuple[object, ...]:
    """Return status, parts in all, processed and failed, as they are listed."""
    found = places.outcomes("exports", "list")
    (one,) = (one for one in found if one["source_table"] == words[1])
    return tuple(one[n] for n in ("status", "parts_total", "parts_processed", "parts_failed"))


def shown_parts(places: Places, words: tuple[str, ...]) -> dict[str, bool | None]:
    """Return of each part whether it is processed, as it is shown."""
    out = places.run("exports", "show", "202401", "--table", words[1])[1]
    lines = [line for line in out.splitlines() if line.startswith("  202401_")]
    return {line.split()[0]: _processed(line) for line in lines}


def _processed(line: str) -> bool | None:
    if line.endswith("not in a finished file"):
        return False
    return True if line.endswith(" file:") else None


def test_parts_are_reported_during_the_export_and_after_it(
    places: Places, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[object, ...]] = []

    def look() -> None:
        seen.append((*listed(places, words), *shown_parts(places, words).values()))

    writer = Watched(before=look, after=look)
    monkeypatch.setattr(export_ports, "SparkWriter", lambda *_: writer)

    assert places.run(*words)[0] == 0

    look()
    assert seen == [
        ("IN_PROGRESS", 2, 0, 0, False, False),
        ("IN_PROGRESS", 2, 2, 0, True, True),
        ("COMPLETED", 2, 2, 0, True, True),
    ]


@pytest.mark.parametrize(
    ("in_files", "found"),
    [(False, ("FAILED", 2, 0, 2)), (True, ("FAILED", 2, 2, 0))],
)
def test_after_a_failure_parts_and_the_error_are_reported(
    places: Places,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    *,
    in_files: bool,
    found: tuple[object, ...],
) -> None:
    """Finished files stay, and are listed; the list also shows why it ended."""

    def fail() -> None:
        raise FULL

    writer = Watched(after=fail) if in_files else Watched(before=fail)
    monkeypatch.setattr(export_ports, "SparkWriter", lambda *_: writer)

    assert places.run(*words)[0] == 4

    assert listed(places, words) == found
    assert [*shown_parts(places, words).values()] == [in_files, in_files]
    assert "the disk is full" in places.run("exports", "show", "202401", "--table", words[1])[1]


@pytest.fixture
def _lake_is_away(places: Places, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail an export, then let its catalog be away."""

    def fail() -> None:
        raise FULL

    def away(_name: LakeName, **_: object) -> None:
        raise RefusedError("Cannot open the catalog lake: it is away. Wait.")

    monkeypatch.setattr(export_ports, "SparkWriter", lambda *_: Watched(before=fail))
    places.run(*words)
    monkeypatch.setattr("spark_ext.cli.commands.exports.open_destination", away)


@pytest.mark.usefixtures("_lake_is_away")
def test_a_lake_that_does_not_respond_hides_the_figures_and_says_so(
    places: Places, words: tuple[str, ...]
) -> None:
    """Harm prevented: 0 is shown where the figure is unknown."""
    assert listed(places, words) == ("FAILED", 2, None, None)
    assert (
        f"the progress of exports to {words[4]} is unknown: Cannot open the catalog lake: it is "
        "away" in (places.run("exports", "show", "202401", "--table", words[1])[2])
    )
