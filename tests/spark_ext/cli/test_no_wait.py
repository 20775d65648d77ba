"""`mergeberg export --no-wait`: the export goes on without the command and without its shell."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from spark_ext.cli.background import StartReport
from tableformat.ledger import Row, State
from tests.repository.source_files import ROOT
from tests.services.server_process import wait_until
from tests.support.big_export import assert_exported_once, fill
from tests.support.processes import has_ended
from tests.wrong.places import Places

WORDS = ("export", "db.big", "--all", "--to", "lake.n.big", "--master", "local[2]", "--no-wait")
BEGUN = re.compile(r"partition all: begun, transaction (?P<transaction>\d+)\n")
PROCESS = re.compile(
    r"Process (?P<pid>\d+) exports 1 partition, .*; its output is in (?P<log>\S+) and"
    r" (?P<errors>\S+) \(notes and errors\)"
)


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from spark_ext.cli.main import run; run()", *words]


def environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(directory / "state")}


def ended(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        cwd=directory,
        env=environment(directory),
        capture_output=True,
        text=True,
        check=False,
    )


def row_of(directory: Path) -> Row:
    ledger = SqliteLedger(directory / "warehouse" / LEDGER_FILE)
    with contextlib.closing(ledger):
        (row,) = ledger.rows()
    return row


@pytest.mark.spark
def test_the_export_goes_on_after_its_shell_and_terminal_are_gone(tmp_path: Path) -> None:
    fill(tmp_path / "clickhouse")
    script = '"$@"; echo "ended with $?"; read -r _'
    shell = subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", *command(*WORDS)],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert shell.stdout is not None
    output = ""
    for line in shell.stdout:
        output += line
        if line.startswith("ended with"):
            break
    os.killpg(shell.pid, signal.SIGHUP)
    os.killpg(shell.pid, signal.SIGKILL)
    with shell:
        shell.wait()

    assert output.endswith("ended with 0\n"), output
    begun, process = BEGUN.match(output), PROCESS.search(output)
    assert begun is not None
    assert process is not None
    assert row_of(tmp_path).claim.transaction_id == begun["transaction"]
    wait_until(lambda: has_ended(int(process["pid"])), "the export has ended")

    assert row_of(tmp_path).state is State.COMPLETED
    assert "partition all: exported" in Path(process["log"]).read_text()
    assert "writing 1 partition" in Path(process["errors"]).read_text()
    assert_exported_once(tmp_path / "warehouse")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    with EmbeddedConnection(tmp_path / "clickhouse", create=True) as connection:
        connection.command("CREATE DATABASE db")
        connection.command("CREATE TABLE db.big (id UInt32) ENGINE = MergeTree ORDER BY id")
    return tmp_path


def test_what_ends_before_it_writes_is_the_commands_own_end(small: Path) -> None:
    """Harm prevented: `begun` of an export that was refused a moment later."""
    done = ended(small, *WORDS, "--partition-id", "1")
    nothing = ended(small, *WORDS)

    assert done.returncode == 2
    assert "Cannot choose partitions" in done.stderr
    assert nothing.returncode == 0, nothing
    assert "no partition is selected" in nothing.stdout
    assert "begun" not in nothing.stdout


def test_results_and_errors_of_the_process_have_their_own_streams(small: Path) -> None:
    """Harm prevented: a program reads an error object, or a note, as the result of a partition."""
    words = ("export", "db.nope", *WORDS[2:])

    refused = ended(small, *words, "--json")
    in_words = ended(small, *words)
    nothing = ended(small, *WORDS, "--json")

    assert (refused.returncode, refused.stdout) == (3, "")
    errors = [json.loads(line) for line in refused.stderr.splitlines()]
    assert "db.nope" in errors[0]["error"]
    assert (in_words.returncode, in_words.stdout) == (3, "")
    assert "Cannot find the table db.nope" in in_words.stderr
    assert nothing.returncode == 0, nothing.stderr
    assert [sorted(json.loads(line)) for line in nothing.stdout.splitlines()] == [["message"]]


def test_a_locked_source_is_refused_in_words(small: Path) -> None:
    with EmbeddedConnection(small / "clickhouse"):
        done = ended(small, *WORDS, "--source-wait", "0.2")

    assert (done.returncode, done.stdout) == (4, "")
    assert "another process" in done.stderr


def exporting(waiting: int) -> list[int]:
    """Return the processes of the export that a command began."""
    children = psutil.Process(waiting).children()
    return [one.pid for one in children if "spark_ext.cli.child" in one.cmdline()]


def test_a_process_that_is_killed_before_it_writes_is_reported(small: Path) -> None:
    """Harm prevented: an export that the kernel ended, of which nothing is printed."""
    with EmbeddedConnection(small / "clickhouse"):
        words = command(*WORDS, "--source-wait", "60")
        with subprocess.Popen(
            words,
            cwd=small,
            env=environment(small),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as waiting:
            state = small / "state" / "mergeberg"
            wait_until(lambda: any(state.glob("*.log")), "the export has begun")
            wait_until(lambda: bool(exporting(waiting.pid)), "its process is there")
            (child,) = exporting(waiting.pid)
            os.kill(child, signal.SIGKILL)
            _, err = waiting.communicate()

    assert waiting.returncode == 128 + signal.SIGKILL
    assert f"Process {child} was ended by SIGKILL before it wrote a file. Run it again" in err


def test_without_a_place_for_its_output_nothing_is_begun(small: Path) -> None:
    (small / "state").write_text("a file")

    done = ended(small, *WORDS)

    assert done.returncode == 3
    assert "Set XDG_STATE_HOME to a directory that you may write" in done.stderr


def test_a_dry_run_begins_nothing(places: Places) -> None:
    code, _, err = places.run(*WORDS, "--dry-run")

    assert (code, "Cannot give --dry-run with --no-wait" in err) == (2, True)


def test_the_report_is_written_once_and_needs_no_reader() -> None:
    read, write = os.pipe()
    report = StartReport(write)

    report.send()
    report.send()

    with os.fdopen(read) as pipe:
        assert json.loads(pipe.read()) == []
    gone, unread = os.pipe()
    os.close(gone)
    StartReport(unread).send()
