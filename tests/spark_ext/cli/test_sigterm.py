"""SIGTERM: what runs is finished within the grace, the rest waits for the same command."""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from spark_ext.actions import export_ports
from spark_ext.actions.export import Stopping
from tableformat.errors import StoppedError
from tableformat.export import job
from tableformat.export.outcome import Status
from tableformat.export.slices import Slice, SliceTask, WritePlan
from tableformat.ledger import State
from tests.support.big_export import assert_exported_once, fill, start, until_it_writes
from tests.support.fakes import FakeWriter
from tests.support.lake_statements import IN_FILES
from tests.support.scenarios import Partitions, RealFiles, ports_of, rows_in_main, run
from tests.support.time_bounds import ENDS_WITHIN
from tests.wrong.places import Places


def terminate(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_the_group_that_runs_is_exported_and_no_other_is_begun(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling restart loses no work that was nearly done."""
    monkeypatch.setattr(job, "MOST_PARTITIONS", 1)
    places.before = terminate
    words = ("export", "db.events", "--all", "--to", "lake.n.stopped")

    code, out, err = places.run(*words)

    assert (code, out.count(": exported")) == (4, 1)
    assert "1 were not begun" in err
    assert "Next: mergeberg export db.events --all --to lake.n.stopped" in err
    ledger = SqliteLedger(places.warehouse / LEDGER_FILE)
    rows = [r for r in ledger.rows() if r.destination_table == "lake.n.stopped"]
    assert [r.state for r in rows] == [State.COMPLETED]
    assert all(ledger.holder(r.key.hash) is None for r in rows)

    places.before = lambda *_: None
    code, out, _ = places.run(*words)

    assert (code, out.count(": exported"), out.count(": already exported")) == (0, 1, 1)


@dataclass
class StoppedAfterOne(FakeWriter):
    """A writer whose process gets a stop while it writes its first file."""

    def content(self, piece: Slice) -> bytes:
        if not self.written - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().content(piece)


def test_partitions_that_were_not_begun_stop_and_the_next_command_names_them(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: "failed" of what nobody tried, and what is exported replaced once more."""
    to = ("--to", "lake.n.told", "--manifest-ttl", "0", "--force")
    words = ("export", "db.events", "--all", *to)
    monkeypatch.setattr(export_ports, "SparkWriter", lambda *_: StoppedAfterOne())

    code, out, err = places.run(*words)

    assert code == 4
    done, left, summary = out.splitlines()
    first, second = (line.split()[1].rstrip(":") for line in (done, left))
    assert done.startswith(f"partition {first}: exported")
    assert left == f"partition {second}: stopped before it began"
    assert {first, second} == {"202401", "202402"}
    assert summary.startswith("1 exported, 1 stopped · ")
    (after,) = (line for line in err.splitlines() if line.startswith("Next: "))
    command = shlex.split(after.removeprefix("Next: mergeberg "))
    assert command[-2:] == ["--where", f"partition_id NOT IN ('{first}')"]
    assert ("--force" in command, "--all" in command) == (True, True)

    monkeypatch.setattr(export_ports, "SparkWriter", lambda *_: FakeWriter())
    code, out, _ = places.run(*command)

    assert (code, out.count("partition ")) == (0, 1)
    assert out.startswith(f"partition {second}: exported")


def test_the_next_command_keeps_the_filter_of_the_configuration(
    places: Places, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Harm prevented: partitions that the file excludes are forced."""
    file = tmp_path / "of_test.toml"
    file.write_text("[export]\nwhere = \"partition_id != '209901'\"\n")
    words = ("export", "db.events", "--all", "--to", "lake.n.kept", "--manifest-ttl", "0")
    monkeypatch.setattr(export_ports, "SparkWriter", lambda *_: StoppedAfterOne())

    _, out, err = places.run(*words, "--force", "--config", str(file))

    (after,) = (line for line in err.splitlines() if line.startswith("Next: "))
    first = out.split()[1].rstrip(":")
    where = f"(partition_id != '209901') AND partition_id NOT IN ('{first}')"
    assert shlex.split(after)[-2:] == ["--where", where]


def test_a_stopped_partition_says_which_files_are_finished(tmp_path: Path) -> None:
    begun: list[str] = []

    class Recording(RealFiles):
        def content(self, piece: Slice) -> bytes:
            begun.append(piece.partition_id)
            return super().content(piece)

    source = Partitions()
    ports = ports_of(tmp_path, source)
    stopping = replace(ports, writer=Recording, should_stop=lambda: bool(begun))

    outcomes = run(tmp_path, source, ports=stopping, request=IN_FILES)

    assert [(o.partition_id, o.status, o.message) for o in outcomes] == [
        ("p1", Status.STOPPED, "stopped when 1 of 2 files were finished, which the next run keeps"),
        ("p2", Status.STOPPED, "stopped before it began"),
    ]
    assert begun == ["p1"]
    again = run(tmp_path, source, request=IN_FILES)
    assert [o.status for o in again] == [Status.COMMITTED] * 2
    assert rows_in_main(tmp_path) == 15


def test_what_is_done_within_the_grace_is_done(places: Places) -> None:
    """Nothing is left to say when the last group was running."""
    places.before = terminate

    code, out, _ = places.run("export", "db.events", "--all", "--to", "lake.n.last")

    assert (code, out.count(": exported")) == (0, 2)


def test_after_the_grace_it_is_interrupted_and_can_be_resumed(places: Places) -> None:
    """Harm prevented: the one who sent SIGTERM has to send SIGKILL."""

    def hangs(plan: WritePlan, tasks: tuple[SliceTask, ...]) -> None:
        terminate(plan, tasks)
        threading.Event().wait(60)

    places.before = hangs
    words = ("export", "db.events", "--partition-id", "202401", "--to", "lake.n.slow")
    began = time.monotonic()

    code, out, err = places.run(*words, "--grace", "0.2")

    assert time.monotonic() - began < ENDS_WITHIN
    assert (code, out) == (4, "")
    assert "the grace time of 0.2 s was not enough for the running work" in err
    ledger = SqliteLedger(places.warehouse / LEDGER_FILE)
    (row,) = (r for r in ledger.rows() if r.destination_table == "lake.n.slow")
    assert (row.state, row.last_error) == (State.RUNNING, "interrupted")
    assert ledger.holder(row.key.hash) is None
    places.before = lambda *_: None
    assert places.run(*words)[0] == 0


def test_ctrl_c_stays_what_it_was(places: Places) -> None:
    """Harm prevented: an interruption that nobody meant as a shutdown ends with another code."""

    def interrupted(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        raise KeyboardInterrupt

    places.before = interrupted
    words = ("export", "db.events", "--partition-id", "202401", "--to", "lake.n.ctrl_c")

    code, _, err = places.run(*words)

    assert code == 130
    assert "mergeberg exports cancel" in err


def test_the_previous_signal_handlers_are_restored() -> None:
    """Harm prevented: a program that uses the export loses its own way of stopping."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM)

    def stop() -> None:
        with Stopping(0.05, lambda _: None):
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(30)

    with pytest.raises(StoppedError, match="not enough"):
        stop()

    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM)) == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0


def test_outside_of_the_main_thread_nothing_is_listened_to() -> None:
    """Signals belong to the program that runs the main thread."""
    seen: list[object] = []

    def enter() -> None:
        with Stopping(1, lambda _: None) as stopping:
            seen.extend([signal.getsignal(signal.SIGTERM), stopping.is_requested()])

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()

    assert seen == [before, False]


@pytest.mark.spark
def test_a_process_stops_on_request_and_the_next_resumes(tmp_path: Path) -> None:
    """Harm prevented: rows lost or twice because a host was shut down."""
    fill(tmp_path / "clickhouse")
    export = start(tmp_path, "--grace", "0.1")
    until_it_writes(export)

    sent = time.monotonic()
    export.send_signal(signal.SIGTERM)
    out, err = export.communicate()

    assert (export.returncode, out) == (4, "")
    assert time.monotonic() - sent < ENDS_WITHIN
    assert (
        "Cannot finish: the command was stopped, and the grace time of 0.1 s was not enough" in err
    )
    again = start(tmp_path)
    _, err = again.communicate()
    assert again.returncode == 0, err
    assert_exported_once(tmp_path / "warehouse")


@pytest.mark.spark
def test_a_second_sigterm_ends_the_process_at_once(tmp_path: Path) -> None:
    """Harm prevented: a grace that somebody regrets has to be waited for."""
    fill(tmp_path / "clickhouse")
    export = start(tmp_path, "--grace", "600")
    until_it_writes(export)

    export.send_signal(signal.SIGTERM)
    assert export.stderr is not None
    assert any("send it again to stop" in line for line in export.stderr)
    export.send_signal(signal.SIGTERM)
    out, _ = export.communicate()

    assert (export.returncode, out) == (4, "")
    (row,) = SqliteLedger(tmp_path / "warehouse" / LEDGER_FILE).rows()
    assert row.state is State.RUNNING, "the same command goes on with it"
