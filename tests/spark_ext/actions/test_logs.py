"""Structured logs tell what an export did to each partition, in the order in which it happened."""

from __future__ import annotations

import contextlib
import json
import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_ext.actions.export_ports import export_all
from spark_ext.actions.logs import LoggedEffects, LoggedObserver, writing_logs
from tableformat.committer import Sent
from tableformat.effects import Direct, Effects, Step
from tableformat.errors import UsageError
from tableformat.export.ports import Silent
from tableformat.ledger import State
from tests.support.dying import Dies, DiesAt
from tests.support.scenarios import ALL, Partitions, parts_of, ports_of, row_of


def export(directory: Path, source: Partitions, effects: Effects | None = None) -> None:
    """Export as the command line does, logged."""
    ports = replace(
        ports_of(directory, source),
        effects=LoggedEffects(effects or Direct()),
        observer=LoggedObserver(Silent()),
    )
    export_all(ALL, ports, slots=1)


def logged(
    directory: Path, source: Partitions, effects: Effects | None = None
) -> list[dict[str, Any]]:
    """Return the objects that an export writes."""
    file = directory / "log.json"
    file.unlink(missing_ok=True)
    with writing_logs(f"json:{file}"), contextlib.suppress(Dies):
        export(directory, source, effects)
    return [json.loads(line) for line in file.read_text().splitlines()]


def events(found: list[dict[str, Any]], partition: str) -> list[str]:
    return [o["event"] for o in found if o["partition_id"] == partition]


def test_a_partition_is_followed_from_its_claim_to_its_end(tmp_path: Path) -> None:
    """Harm prevented: nobody can tell from a log how far an export came."""
    found = logged(tmp_path, Partitions())

    for partition in ("p1", "p2"):
        assert events(found, partition) == [
            "claimed", "written", "sent", "landed", "settled", "committed",
        ]  # fmt: skip
        row = row_of(tmp_path, partition)
        of_it = [o for o in found if o["partition_id"] == partition]
        assert {o["transaction_id"] for o in of_it} == {row.claim.transaction_id}
        assert row.done is not None
        assert {o["snapshot_id"] for o in of_it if o["event"] in ("sent", "landed", "settled")} == {
            str(row.done.landed.snapshot_id)
        }


def test_every_object_says_when_how_grave_and_what(tmp_path: Path) -> None:
    found = logged(tmp_path, Partitions())

    assert all(
        {"time", "level", "event", "transaction_id", "partition_id"} <= set(o) for o in found
    )
    assert found == sorted(found, key=lambda o: o["time"])


def test_every_step_reports_how_long_it_took(tmp_path: Path) -> None:
    found = [o for o in logged(tmp_path, Partitions()) if o["event"] == "step"]

    done = Counter(o["step"] for o in found)
    assert (done[Step.CLAIM], done[Step.SEND], done[Step.WRITE_FILES]) == (1, 1, 1)
    assert all(o["level"] == "debug" and o["seconds"] >= 0 for o in found)
    assert {o["ended"] for o in found} == {"done"}


def test_a_run_that_goes_on_says_that_it_resumed(tmp_path: Path) -> None:
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5)})
    died = logged(tmp_path, source, _DiesBefore(Step.NOTE_WRITTEN))
    assert events(died, "p1") == ["claimed"]
    assert [o["ended"] for o in died if o["event"] == "step"][-1] == "failed"

    again = logged(tmp_path, source)

    assert events(again, "p1")[:2] == ["resumed", "written"]
    first, second = (next(o for o in x if o["partition_id"] == "p1") for x in (died, again))
    assert first["transaction_id"] == second["transaction_id"]


def test_a_request_without_a_response_is_sent_and_has_not_landed(tmp_path: Path) -> None:
    """Harm prevented: a log says "landed" of what nobody knows."""
    found = logged(tmp_path, Partitions(by_id={"p1": parts_of("p1", 7)}), _Unanswered())

    listed = events(found, "p1")
    assert listed[:2] == ["claimed", "written"]
    assert set(listed[2:-1]) == {"sent"}
    assert listed[-1] == "unknown"
    assert {o["error"] for o in found if o["event"] == "sent"} == {"no answer"}
    assert [o["level"] for o in found if o["event"] == "unknown"] == ["error"]


def test_refusals_are_logged_with_their_reason(tmp_path: Path) -> None:
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5)})
    logged(tmp_path, source)
    source.by_id["p1"] = parts_of("p1", 7, 5, 3)

    (refused,) = (o for o in logged(tmp_path, source) if o["event"] == "refused")

    assert (refused["level"], refused["partition_id"]) == ("warning", "p1")
    assert "differs from what was exported" in refused["error"]


def test_what_is_cancelled_is_logged_as_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`exports cancel` ends a claim in the ledger; the run that lost it says killed."""
    export(tmp_path, Partitions())
    row = replace(row_of(tmp_path, "p1"), state=State.KILLED)

    with caplog.at_level(logging.INFO, "mergeberg"):
        LoggedEffects(Direct())(Step.GIVE_UP, lambda: row)

    (record,) = caplog.records
    assert (record.getMessage(), record.__dict__["state"]) == ("given_up", "KILLED")
    assert record.__dict__["partition_id"] == "p1"


def test_an_application_hears_the_records_of_the_logger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that configures logging in Python gets the same without a file of ours."""
    with caplog.at_level(logging.INFO, "mergeberg"):
        export(tmp_path, Partitions(by_id={"p1": parts_of("p1", 7)}))

    records = [r for r in caplog.records if r.name == "mergeberg"]
    events = [r for r in records if r.getMessage() != "note"]
    assert [r.getMessage() for r in events] == [
        "claimed", "written", "sent", "landed", "settled", "committed",
    ]  # fmt: skip
    assert {r.__dict__["partition_id"] for r in events} == {"p1"}


def test_without_logging_nothing_is_written_anywhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = Partitions()
    with writing_logs(""):
        export(tmp_path, source)
        export(tmp_path, source)

    assert capfd.readouterr() == ("", "")


def test_logs_go_to_standard_error_and_stop_afterwards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with writing_logs("json"):
        export(tmp_path, Partitions())
    first = capsys.readouterr()
    export(tmp_path, Partitions())

    assert first.out == ""
    assert json.loads(first.err.splitlines()[-1])["partition_id"] == ""
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("where", ["text", "json:", "xml:/tmp/x", ":", "JSON"])
def test_any_other_form_of_log_is_refused(where: str) -> None:
    with (
        pytest.raises(UsageError, match="it is neither json nor json:PATH"),
        writing_logs(where),
    ):
        pass


def test_a_log_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    """Harm prevented: an export that runs for hours without the log that was asked for."""
    with (
        pytest.raises(UsageError, match="No such file or directory"),
        writing_logs(f"json:{tmp_path}/none/log.json"),
    ):
        pass


class _DiesBefore(DiesAt):
    """Dies before the first effect of a name."""

    def __init__(self, step: Step) -> None:
        super().__init__(-1, after=False)
        self._step = step

    def __call__(self, step: Step, act: Any) -> Any:
        if step is self._step:
            self._left = 0
        return super().__call__(step, act)


class _Unanswered:
    """Effects that lose every request with files."""

    def __call__(self, step: Step, act: Any, /) -> Any:
        if step is Step.SEND and act.args[2].keys:
            return Sent(applied=False, error="no answer")
        return act()
