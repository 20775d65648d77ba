"""What processes of a user take of a limit that they name alike: together never more than it."""

from __future__ import annotations

import fcntl
import heapq
import itertools
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)

from catalog.rate_limit import HeldRate, RatePool, sharing_note
from tests.repository.source_files import ROOT

LIMIT = 10
rates = st.integers(1, LIMIT)


@contextmanager
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


class TooMuchError(Exception):
    """Less is left than is wanted."""


def busy(_seconds: float) -> None:
    """Wait for nobody."""
    raise TooMuchError


def taken_now(below: Path, rate: int) -> HeldRate | None:
    """Take a rate as another process would, or nothing where it would have to wait."""
    try:
        return RatePool(LIMIT, below, busy).take(rate)
    except TooMuchError:
        return None


def is_awaited(pool: RatePool) -> bool:
    """Whether a process waits for its turn."""
    directory = os.open(pool.directory, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(directory)


class Takers(RuleBasedStateMachine):
    """Processes that take and give back, end without a word, and find what the dead left."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.below = Path(tempfile.mkdtemp())
        self.rates: dict[int, int] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.below)

    @rule(target=held, rate=rates)
    def take(self, rate: int) -> HeldRate | None:
        held = taken_now(self.below, rate)
        assert (held is not None) == (sum(self.rates.values()) + rate <= LIMIT)
        if held is not None:
            self.rates[id(held)] = rate
        return held

    @rule(held=consumes(held))
    def give_back(self, held: HeldRate | None) -> None:
        if held is not None and self.rates.pop(id(held), 0):
            held.close()
            held.close()

    @rule(held=consumes(held))
    def die(self, held: HeldRate | None) -> None:
        """The kernel closes its files, and nobody removes them."""
        if held is not None and self.rates.pop(id(held), 0):
            assert held.descriptor is not None
            os.close(held.descriptor)

    @rule()
    def look(self) -> None:
        RatePool(LIMIT, self.below).probe()

    @invariant()
    def what_is_taken_is_what_is_held(self) -> None:
        assert RatePool(LIMIT, self.below).taken() == sum(self.rates.values()) <= LIMIT


def test_whatever_processes_do_they_hold_no_more_than_the_limit() -> None:
    run_state_machine_as_test(
        Takers, settings=settings(max_examples=50, stateful_step_count=20, deadline=None)
    )


@settings(max_examples=50, deadline=None)
@given(files=st.lists(st.tuples(rates, st.integers(1, 1000)), min_size=1, max_size=20))
def test_in_no_window_more_passes_than_the_limit(files: list[tuple[int, int]]) -> None:
    """Files of a size, each at its rate: a clock that only passes while somebody waits."""
    now = 0.0
    writing: list[tuple[float, int, HeldRate]] = []
    spans: list[tuple[float, float, int]] = []

    def wait(_seconds: float) -> None:
        nonlocal now
        now, _, held = heapq.heappop(writing)
        held.close()

    with temporary() as below:
        for number, (rate, size) in enumerate(files):
            held = RatePool(LIMIT, below, wait).take(rate)
            spans.append((now, now + size / rate, rate))
            heapq.heappush(writing, (now + size / rate, number, held))
        while writing:
            wait(0)
        assert list(below.iterdir()) == []

    moments = sorted({moment for begin, end, _ in spans for moment in (begin, end)})
    for begin, end in itertools.combinations(moments, 2):
        passed = sum(r * max(0.0, min(end, e) - max(begin, b)) for b, e, r in spans)
        assert passed <= LIMIT * (end - begin) * (1 + 1e-9)


TAKES = """
import os, random, sys
from pathlib import Path
from catalog.rate_limit import RatePool

below, log, seed = sys.argv[1:]
chosen, pool = random.Random(seed), RatePool(10, Path(below), lambda _: None)
written = os.open(log, os.O_WRONLY | os.O_APPEND)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(200):
    rate = chosen.randint(1, 10)
    with pool.hold(rate):
        os.write(written, b"%d " % rate)
        os.write(written, b"-%d " % rate)
"""
HOLDS = """
import sys
from pathlib import Path
from catalog.rate_limit import RatePool

with RatePool(10, Path(sys.argv[1])).hold(8):
    print("held", flush=True)
    sys.stdin.readline()
"""


def begun(script: str, *words: str) -> subprocess.Popen[str]:
    """Start a process that shares the limit, and hear its first word."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() in ("ready", "held")
    return process


def test_two_processes_hold_no_more_than_the_limit_at_any_moment(tmp_path: Path) -> None:
    """Each notes a rate once it has it, and that it gives it back before it does.

    Rates are bytes per second: so in a window of any length no more than its share passes.
    """
    log = tmp_path / "log"
    log.touch()
    both = [begun(TAKES, str(tmp_path), str(log), seed) for seed in "ab"]
    for one in both:
        one.communicate("go\n", timeout=50)

    assert [one.returncode for one in both] == [0, 0]
    noted = [int(rate) for rate in log.read_text().split()]
    assert len(noted) == 2 * 2 * 200
    assert max(itertools.accumulate(noted)) <= 10
    assert list(tmp_path.iterdir()) == [log]


def test_what_a_process_had_is_free_when_it_is_killed(tmp_path: Path) -> None:
    pool = RatePool(LIMIT, tmp_path, busy)
    holder = begun(HOLDS, str(tmp_path))
    assert (pool.taken(), taken_now(tmp_path, 3)) == (8, None)
    small = pool.take(2)

    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=50)

    assert pool.taken() == 2
    large = pool.take(8)
    assert pool.taken() == 10
    large.close()
    small.close()
    assert list(tmp_path.iterdir()) == []


def test_who_waits_is_not_overtaken(tmp_path: Path) -> None:
    """Harm prevented: a file at the whole rate waits for as long as small ones come."""
    others = RatePool(LIMIT, tmp_path, busy)
    first = others.take(1)
    waited: list[bool] = []

    def wait(_seconds: float) -> None:
        waited.append(is_awaited(others))
        first.close()

    with RatePool(LIMIT, tmp_path, wait).hold(LIMIT):
        assert (waited, is_awaited(others)) == ([True], False)


def test_limits_of_other_numbers_are_others(tmp_path: Path) -> None:
    ten, eleven = RatePool(10, tmp_path, busy), RatePool(11, tmp_path, busy)
    with ten.hold(10), eleven.hold(11):
        assert (ten.taken(), eleven.taken()) == (10, 11)


def test_nobody_else_can_look_into_it(tmp_path: Path) -> None:
    pool = RatePool(LIMIT, tmp_path, busy)
    with pool.hold(4):
        (file,) = pool.directory.iterdir()
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (pool.directory, file)]
    assert modes == [0o700, 0o600]


@pytest.mark.parametrize("there", ["file", "link", "nothing", "of another user"])
def test_where_it_cannot_be_shared_it_is_said_and_the_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, there: str
) -> None:
    """Harm prevented: no export at all, or one that follows a link of somebody else."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pool = RatePool(10)
    match there:
        case "file":
            pool.directory.touch()
        case "link":
            (tmp_path / "elsewhere").mkdir()
            pool.directory.symlink_to(tmp_path / "elsewhere")
        case "nothing":
            monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
            pool = RatePool(10)
        case _:
            pool.directory.mkdir()
            monkeypatch.setattr(os, "fstat", lambda _: os.stat_result((0, 0, 0, 0, -5, *[0] * 5)))

    note = sharing_note(10)
    for _ in range(2):
        with pool.hold(7):
            pass

    begin = "this command does not share its limit of 10 bytes per second: it cannot use "
    assert note.startswith(f"{begin}{pool.directory} (")
    assert note.endswith("). Set TMPDIR to another directory")
    assert [record.getMessage() for record in caplog.records] == [note]


def test_an_export_notes_that_others_share_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert sharing_note(10) == ""
    assert list(tmp_path.iterdir()) == []

    with RatePool(10).hold(4):
        note = sharing_note(10)

    assert note == "other exports on this host share the limit of 10 bytes per second"
