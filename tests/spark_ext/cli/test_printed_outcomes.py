"""What the command line says of each outcome, for people and for programs."""

from __future__ import annotations

import io
import json

import pytest

from spark_ext.cli.output import JsonOutput, TextOutput
from tableformat.export.outcome import Outcome, Status


def printed(outcome: Outcome) -> tuple[str, dict[str, object]]:
    text, record = io.StringIO(), io.StringIO()
    TextOutput(text, text).finished(outcome)
    JsonOutput(record, record).finished(outcome)
    return text.getvalue(), json.loads(record.getvalue())


@pytest.mark.parametrize("status", Status)
def test_every_status_has_a_line_and_a_record(status: Status) -> None:
    """Harm prevented: a statement lands, and its result is an error."""
    line, record = printed(Outcome("p", status, "lake.n.t"))

    assert line.startswith("partition p: ")
    assert record["status"] == status.value


@pytest.mark.parametrize(
    "status",
    [
        Status.DROPPED,
        Status.DETACHED,
        Status.ATTACHED,
        Status.CHANGED,
        Status.OPTIMIZED,
        Status.FROZEN,
    ],
)
def test_a_statement_reports_its_rows_and_the_snapshot(status: Status) -> None:
    done = Outcome("p", status, "lake.n.t", snapshot_id=7, rows=1200, data_files=2)

    assert printed(done)[0] == f"partition p: {status.value} · 1,200 rows · 2 files · snapshot 7\n"


def test_numbers_are_grouped_and_ids_are_not() -> None:
    """Harm prevented: a snapshot id with commas, which nothing can be asked with."""
    text = io.StringIO()
    output = TextOutput(text, text)
    output.table(["rows", "snapshot_id"], [{"rows": 1234567, "snapshot_id": 1485641953052928359}])
    output.record({"snapshot_id": 1485641953052928359})

    assert text.getvalue().split() == [
        "rows", "snapshot_id", "1,234,567", "1485641953052928359", "snapshot_id",
        "1485641953052928359",
    ]  # fmt: skip
