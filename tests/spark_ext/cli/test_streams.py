"""Standard streams that are closed or full, and log files: what was done decides how it ends."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from spark_ext.cli.main import invoke
from tableformat.ledger import State
from tests.wrong.places import Places


class _Full(io.RawIOBase):
    """A file on a disk without room."""

    def writable(self) -> bool:
        return True

    def write(self, _data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def full() -> Iterator[TextIO]:
    stream = io.TextIOWrapper(io.BufferedWriter(_Full()), encoding="utf-8")
    try:
        yield stream
    finally:
        with contextlib.suppress(OSError):
            stream.close()


@contextlib.contextmanager
def unread() -> Iterator[TextIO]:
    """Yield a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w", encoding="utf-8")
    try:
        yield stream
    finally:
        with contextlib.suppress(OSError):
            stream.close()


@contextlib.contextmanager
def closed() -> Iterator[TextIO]:
    stream = io.StringIO()
    stream.close()
    yield stream


@contextlib.contextmanager
def none() -> Iterator[None]:
    yield None


STREAMS = {
    "full": (full, "No space left on device"),
    "unread": (unread, "Broken pipe"),
    "closed": (closed, "I/O operation on closed file"),
    "none": (none, "it is closed"),
}
Opens = Callable[[], contextlib.AbstractContextManager[TextIO | None]]
JANUARY = ("export", "db.events", "--partition-id", "202401", "--manifest-ttl", "0")


@pytest.mark.parametrize(("opens", "why"), STREAMS.values(), ids=[*STREAMS])
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_an_export_whose_output_nobody_takes_is_done(
    places: Places, opens: Opens, why: str, more: tuple[str, ...]
) -> None:
    """Harm prevented: exit code 1 says that the lake differs, 4 that nothing was exported."""
    name = f"lake.n.out{opens.__name__}{len(more)}"
    err = io.StringIO()
    with opens() as out:
        code = invoke(places.words(*JANUARY, "--to", name, *more), out, err)

    assert code == 0, err.getvalue()
    messages = [line for line in err.getvalue().splitlines() if "standard output" in line]
    message = json.loads(messages[0])["error"] if more else messages[0]
    assert len(messages) == 1
    assert message.startswith(f"Cannot write all results to standard output: {why}. The command ")
    with contextlib.closing(SqliteLedger(places.warehouse / LEDGER_FILE)) as ledger:
        (row,) = (r for r in ledger.rows() if r.destination_table == name)
    assert row.state is State.COMPLETED


def test_what_is_refused_stays_refused(places: Places) -> None:
    err = io.StringIO()
    words = ("export", "db.events", "--all", "--to", "lake.n.outtwice", "--manifest-ttl", "0")
    assert places.run(*words)[0] == 0
    places.clickhouse_run("INSERT INTO db.events VALUES ('2024-01-09', 90, '')")
    with full() as out:
        assert invoke(places.words(*words), out, err) == 3
    assert "No space left" in err.getvalue()


def test_with_both_streams_full_it_is_done_all_the_same(places: Places) -> None:
    with full() as out, full() as err:
        code = invoke(places.words(*JANUARY, "--to", "lake.n.outboth"), out, err)

    assert code == 0


def test_an_error_that_nobody_can_read_keeps_its_exit_code(places: Places) -> None:
    out = io.StringIO()
    with full() as err:
        code = invoke(places.words("export", "db.evnts", "--all", "--to", "lake.n.x"), out, err)

    assert (code, out.getvalue()) == (3, "")


@pytest.mark.parametrize(
    "words",
    [("exports", "list"), ("exports", "log"), ("exports", "events"), ("partitions", "db.events")],
)
def test_what_only_prints_has_failed_where_it_cannot(
    places: Places, words: tuple[str, ...]
) -> None:
    """Harm prevented: a report that is cut short, and a schedule that takes it for whole."""
    places.run(*JANUARY, "--to", "lake.n.outprinted")
    err = io.StringIO()
    with full() as out:
        assert invoke(places.words(*words), out, err) == 4
    assert "Cannot write all results to standard output: No space left" in err.getvalue()
    assert "bug" not in err.getvalue()

    err = io.StringIO()
    with unread() as out:
        assert invoke(places.words(*words), out, err) == 0
    assert err.getvalue() == ""


def test_a_help_that_nobody_reads_is_no_error() -> None:
    err = io.StringIO()
    with unread() as out:
        assert invoke(["--help"], out, err) == 0


def test_a_process_without_standard_output_lists_nothing_and_says_so(tmp_path: Path) -> None:
    """Harm prevented: a file of ours gets the number of standard output, and is written to."""
    SqliteLedger(tmp_path / LEDGER_FILE).next_epoch()
    run = "from spark_ext.cli.main import run; run()"
    words = f"exports list --warehouse {tmp_path} >&- <&-"
    ended = subprocess.run(
        ["/bin/sh", "-c", f'"{sys.executable}" -c "import sys; {run}" {words}'],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert ended.returncode == 4, ended.stderr
    assert ended.stderr.splitlines()[0].endswith(
        "standard output: it is closed. Nothing was changed. Write them elsewhere."
    )


def test_a_full_log_is_reported_once_and_ends_nothing(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: 4 and "this is a bug" after everything was exported."""
    path, out, err = tmp_path / "log.json", io.StringIO(), io.StringIO()
    with full() as stream:
        monkeypatch.setattr(logging.FileHandler, "_open", lambda _: stream)
        words = places.words(*JANUARY, "--to", "lake.n.outlog")
        code = invoke(["--log", f"json:{path}", *words], out, err)

    assert (code, out.getvalue().count("exported")) == (0, 1)
    messages = [line for line in err.getvalue().splitlines() if "logs" in line]
    assert messages == [
        f"Cannot write logs to {path}: No space left on device. The command continues without them."
    ]
    assert "Traceback" not in err.getvalue()
