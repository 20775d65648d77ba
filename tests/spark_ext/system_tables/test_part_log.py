"""`mergeberg.system.part_log`, `events` and `metrics`: what was tried, and how often.

RQ…Logging, RQ…Metrics.Export.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ext.system_tables import EVENTS, METRICS, PART_LOG, event_row, of_parts
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.history import Event
from tableformat.names import TableName
from tests.strategies.ledger import events
from tests.support.real_export import RealExport
from tests.support.system_tables import asked, session_of, typed


def log_of(exports: RealExport, name: TableName) -> list[dict[str, Any]]:
    """Return the log of a source table, the latest first."""
    return [r for r in asked(PART_LOG, session_of(exports.warehouse)) if r["table"] == str(name)]


def counted(exports: RealExport) -> dict[str, int]:
    conf = session_of(exports.warehouse)
    found = [*asked(EVENTS, conf), *asked(METRICS, conf)]
    assert all(r["description"] for r in found)
    return {str(r.get("event") or r.get("metric")): r["value"] for r in found}


def test_each_source_part_has_a_row_whose_sums_are_those_of_the_export(
    exports: RealExport,
) -> None:
    """Harm prevented: sum(rows) counts a partition and its parts, twice the truth."""
    name = exports.clickhouse.filled()
    exports.clickhouse.insert(name, first=100, rows=20)
    before = datetime.now(UTC) - timedelta(seconds=1)

    outcomes = exports.run(name)

    found = log_of(exports, name)
    assert sorted((r["partition"], r["part_name"], r["rows"]) for r in found) == [
        ("0", "0_1_1_0", 50),
        ("0", "0_3_3_0", 10),
        ("1", "1_2_2_0", 50),
        ("1", "1_4_4_0", 10),
    ]
    assert {(r["event_type"], r["status"], r["error"]) for r in found} == {
        ("EXPORT_PARTITION", "committed", "")
    }
    assert sum(r["bytes_written"] for r in found) == sum(o.bytes for o in outcomes)
    assert all(r["bytes_read"] > 0 for r in found)
    assert all(before < r["event_time"] <= datetime.now(UTC) for r in found)
    assert len({r["query_id"] for r in found} - {""}) == 1


def test_what_was_refused_is_there_for_the_whole_partition(exports: RealExport) -> None:
    """Logging all export operations, both successful and failed."""
    name = exports.clickhouse.filled()
    exports.run(name)

    exports.run(name)

    refused = [r for r in log_of(exports, name) if r["status"] == "already_exported"]
    assert sorted((r["partition"], r["part_name"]) for r in refused) == [("0", ""), ("1", "")]


def test_counters_count_parts_and_the_metric_what_runs_now(exports: RealExport) -> None:
    exports.run(exports.clickhouse.filled())
    name = exports.clickhouse.filled()
    exports.clickhouse.insert(name, first=100)
    before = counted(exports)
    during: list[dict[str, int]] = []

    def look(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        during.append(counted(exports))

    exports.before = look
    try:
        exports.run(name)
    finally:
        exports.before = lambda *_: None
    exports.run(name)

    after = counted(exports)
    assert after["PartsExports"] - before["PartsExports"] == 4
    assert after["PartsExportDuplicated"] - before["PartsExportDuplicated"] == 4
    assert after["PartsExportFailures"] == before["PartsExportFailures"]
    assert [d["Export"] for d in during] == [2]
    assert after["Export"] == 0


def test_without_a_ledger_the_table_is_empty(tmp_path: Path) -> None:
    """Harm prevented: an error on the dashboard until the first export."""
    conf = session_of(tmp_path / "warehouse")

    assert [asked(table, conf) for table in (PART_LOG, EVENTS, METRICS)] == [[], [], []]


@given(st.lists(events, max_size=6))
def test_every_attempt_is_listed_once_by_its_parts_or_as_a_whole(found: list[Event]) -> None:
    """Harm prevented: a failure that nobody sees, or rows that are counted twice."""
    reported = list(of_parts(found))

    assert [e for e in reported if e.part_name] == [e for e in found if e.part_name]

    def attempts(of: list[Event]) -> set[tuple[object, ...]]:
        return {(e.time, e.table, e.destination, e.partition_id, e.transaction_id) for e in of}

    assert attempts(reported) == attempts(found)
    whole = [e for e in reported if not e.part_name]
    assert not attempts(whole) & attempts([e for e in reported if e.part_name])


@given(events)
def test_every_event_is_a_row_that_spark_can_read(event: Event) -> None:
    known = replace(event, time=event.time % 2**47)

    seen = typed(PART_LOG, event_row(Event.from_json(known.to_json())))

    assert seen["event_time"].timestamp() * 1000 == pytest.approx(known.time, abs=1)
    assert (seen["rows"], seen["part_name"], seen["error"], seen["query_id"]) == (
        event.rows,
        event.part_name,
        event.error,
        event.query_id,
    )
