"""The line that says how far an export is: it fits every terminal, and its estimate stays calm."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, TextIO

import pytest

from spark_ext.cli import output
from spark_ext.cli.output import ProgressLine, TextOutput
from tableformat.export.outcome import Outcome, Status

ROWS = 47_000_000_000
SIZE = 3 * 1024**4


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return a clock that the output reads, and that a test sets."""
    clock = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(output, "time", SimpleNamespace(monotonic=lambda: clock.seconds))
    monkeypatch.delenv("COLUMNS", raising=False)
    return clock


@contextlib.contextmanager
def terminal(columns: int) -> Iterator[tuple[TextIO, Any]]:
    """Yield the writing end of a terminal, and what returns all that was written to it."""
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.set_blocking(reading, False)
    seen = bytearray()

    def read() -> str:
        with contextlib.suppress(BlockingIOError):
            while True:
                seen.extend(os.read(reading, 65_536))
        return seen.decode()

    try:
        with os.fdopen(writing, "w") as stream:
            yield stream, read
    finally:
        os.close(reading)


def drawn(text: str) -> list[str]:
    """Return what stood on the progress line, one state after the other."""
    states = re.split(r"[\r\n]+", text)
    return [s.rstrip() for s in states if "%" in s]


@pytest.mark.parametrize("columns", [20, 40, 80, 81, 200])
def test_the_progress_line_never_wraps(columns: int, now: SimpleNamespace) -> None:
    """Harm prevented: the screen and its history fill with five lines a second."""
    with terminal(columns) as (stream, read):
        progress = TextOutput(stream, stream)
        progress.begin(3000, ROWS, SIZE)
        for step in range(1, 2000):
            now.seconds += 61.7
            progress.rows(ROWS * step // 2000)
            if step % 100 == 0:
                progress.finished(Outcome("202401", Status.COMMITTED, "lake.n.t"))
            read()
        states = drawn(read())

    assert len(states) > 1900
    assert max(map(len, states)) <= columns - 1


def test_at_80_columns_it_says_partitions_share_bytes_rate_and_what_is_left(
    now: SimpleNamespace,
) -> None:
    with terminal(80) as (stream, read):
        progress = TextOutput(stream, stream)
        progress.begin(19, 5_700_000, 1024**3)
        for second in range(1, 21):
            now.seconds += 1
            progress.rows(130_000 * second)
            if second in {7, 14}:
                progress.finished(Outcome("202401", Status.COMMITTED, "lake.n.t"))
        states = drawn(read())

    assert states[0].endswith("0/19 partitions · 0 % · 0 B")
    assert states[-1].endswith("2/19 partitions · 45 % · 467.1 MiB · 130 k rows/s · 25 s left")
    assert states[-1].startswith("██████")


def test_of_hours_it_says_hours_and_of_minutes_minutes() -> None:
    """Harm prevented: 43200 s left."""
    line = ProgressLine(19, ROWS, SIZE, began=0.0)
    for second in range(1, 101):
        line.moved(1_000_000 * second, float(second))

    assert line.text(100.0).endswith("1.0 M rows/s · 13 h 2 min left")
    line.moved(ROWS - 120_000_000, 46_880.0)
    assert line.text(46_880.0).endswith("2 min left")


def test_files_that_end_in_bursts_do_not_shake_the_estimate() -> None:
    """Harm prevented: with a bound on the bandwidth it jumped from 39 to 85 and to 19 seconds."""
    line = ProgressLine(1, 60_000, 1, began=0.0)
    shown = []
    for tick in range(1, 500):
        seconds = tick / 5
        line.moved(int(seconds // 4) * 2000, seconds)
        if seconds > 20:
            rate = line.rate(seconds)
            assert rate is not None
            shown.append((line.rows - line.written) / rate + seconds)

    assert max(shown) - min(shown) < 16, "the end that it foretells moves by a fifth"


def test_a_stall_makes_the_rate_fall_and_the_estimate_grow() -> None:
    line = ProgressLine(1, 1_000_000, 1, began=0.0)
    for second in range(1, 21):
        line.moved(10_000 * second, float(second))
    before, after = line.rate(20.0), line.rate(80.0)

    assert before is not None
    assert after is not None
    assert after < before / 3


def test_a_line_of_the_past_leaves_nothing_behind_on_the_terminal(now: SimpleNamespace) -> None:
    with terminal(80) as (stream, read):
        progress = TextOutput(stream, stream)
        progress.begin(1, 1000, 1)
        now.seconds += 1
        progress.rows(500)
        progress.note("next")
        text = read()

    before, _, after = text.rpartition("· next")
    assert before.rstrip("\r").endswith(" "), "it was not wiped"
    assert before.split("\r")[-2].strip() == ""
    assert after.strip() == ""


def test_without_a_terminal_there_is_a_line_every_ten_seconds(
    now: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = TextOutput()
    progress.begin(1, 10_000, 2048)
    for second in range(1, 25):
        now.seconds += 1
        progress.rows(100 * second)

    assert capsys.readouterr().err.splitlines() == [
        "· writing 1 partition, 10,000 rows (2.0 KiB in ClickHouse)",
        "· 0/1 partition · 10 % · 204 B",
        "· 0/1 partition · 20 % · 409 B · 100 rows/s · 1 min left",
    ]


def test_few_rows_have_no_rate_and_one_row_is_no_rows(
    now: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = TextOutput()
    progress.begin(1, 1, 100)
    now.seconds += 3.9
    progress.rows(1)

    assert capsys.readouterr().err.splitlines() == [
        "· writing 1 partition, 1 row (100 B in ClickHouse)",
        "· 1 row written in 3.9 s",
    ]


def test_a_comparison_has_the_line_and_each_result_wipes_it(now: SimpleNamespace) -> None:
    with terminal(80) as (stream, read):
        told = TextOutput(stream, stream)
        told.begin_comparing(2, 1000, 1024**2)
        for second in range(1, 11):
            now.seconds += 1
            told.rows(100 * second)
            if second in {5, 10}:
                told.compared()
                told.say(f"partition {second}: equal")
        text = read()

    states = drawn(text)
    assert states[0].endswith("0/2 partitions · 0 % · 0 B")
    assert states[1].endswith("0/2 partitions · 10 % · 102.4 KiB")
    assert states[-1].endswith("1/2 partitions · 100 % · 1.0 MiB · 100 rows/s · 5 s left")
    plain = re.sub(r"\x1b\[\d*m", "", text)
    results = [line for line in re.split(r"[\r\n]+", plain) if "equal" in line]
    assert results == ["partition 5: equal", "partition 10: equal"]
    assert "written" not in text


def test_a_short_comparison_says_its_results_alone(
    now: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    told = TextOutput()
    told.begin_comparing(1, 1000, 2048)
    for rows in (500, 1000):
        now.seconds += 4
        told.rows(rows)
    told.begin_comparing(1, 1000, 2048)
    now.seconds += 11
    told.rows(500)

    assert capsys.readouterr().err.splitlines() == ["· 0/1 partition · 50 % · 1.0 KiB"]
