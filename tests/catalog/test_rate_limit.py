"""What is written at a pace: never more than the rate, never slower than it has to be."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.rate_limit import Pace, PacedSink, TokenBucket

RATES = st.integers(1, 10**9)
STEPS = st.lists(st.tuples(st.integers(0, 10**7), st.floats(0, 100)), min_size=1, max_size=30)


@dataclass
class Clock:
    """Time that only passes when somebody waits for it."""

    now: float = 50.0
    waits: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@dataclass
class Recording:
    """A sink that remembers when which bytes came."""

    clock: Clock
    came: list[tuple[float, bytes]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def write(self, data: bytes, /) -> None:
        self.came.append((self.clock.now, data))

    def commit(self) -> None:
        self.ended.append("commit")

    def abort(self) -> None:
        self.ended.append("abort")


@given(rate=RATES, steps=STEPS)
def test_in_no_time_more_passes_than_the_rate_and_one_second_of_it(
    rate: int, steps: list[tuple[int, float]]
) -> None:
    """Between any two moments; the pauses are those of a reader that has nothing to write."""
    bucket, now = TokenBucket(float(rate), 0.0), 0.0
    passed: list[tuple[float, int]] = []
    for amount, pause in steps:
        now += pause
        now += bucket.take(amount, now)
        passed.append((now, amount))

    for first in range(len(passed)):
        # What passed at the first moment may have been waited for before it.
        total = 0
        for moment, amount in passed[first + 1 :]:
            total += amount
            allowed = rate * (moment - passed[first][0] + 1.0)
            assert total <= allowed * (1 + 1e-9) + 1e-3 * rate


@given(rate=RATES, amounts=st.lists(st.integers(1, 10**7), min_size=1, max_size=30))
def test_a_writer_that_never_pauses_has_the_whole_rate(rate: int, amounts: list[int]) -> None:
    """Harm prevented: a limit that takes more than it says."""
    bucket, now = TokenBucket(float(rate), 0.0), 0.0
    for amount in amounts:
        now += bucket.take(amount, now)

    assert now == pytest.approx(sum(amounts) / rate, rel=1e-6)


def test_the_first_bytes_wait_for_their_time_too() -> None:
    """Harm prevented: a thousand small files, each of them written at once."""
    assert TokenBucket(100.0, 0.0).take(50, 0.0) == 0.5


def test_bytes_reach_the_file_evenly_and_in_order() -> None:
    clock = Clock()
    file = Recording(clock)
    sink = PacedSink(file, Pace(1000, clock, clock.wait))

    sink.write(bytes(range(250)))
    sink.write(b"")
    sink.write(b"end")
    sink.commit()

    assert b"".join(data for _, data in file.came) == bytes(range(250)) + b"end"
    assert [(round(at - 50.0, 6), len(data)) for at, data in file.came] == [
        (0.1, 100),
        (0.2, 100),
        (0.25, 50),
        (0.253, 3),
    ]
    assert file.ended == ["commit"]


def test_files_of_one_pace_share_it() -> None:
    clock = Clock()
    pace = Pace(1000, clock, clock.wait)
    for _ in range(4):
        PacedSink(Recording(clock), pace).write(b"x" * 500)

    assert clock.now == pytest.approx(52.0)


def test_what_is_abandoned_is_abandoned_behind_it() -> None:
    clock = Clock()
    file = Recording(clock)

    PacedSink(file, Pace(1, clock, clock.wait)).abort()

    assert (file.ended, clock.waits) == (["abort"], [])
