"""What a thread in the background draws at random does not fail a test of Hypothesis."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def drawing() -> Iterator[threading.Event]:
    """Let a thread draw without end, as kazoo's does for a moment when it connects."""
    drawn, ended = threading.Event(), threading.Event()

    def draw() -> None:
        while not ended.is_set():
            random.uniform(0, 1)  # noqa: S311  nothing secret
            random.shuffle([1, 2, 3])
            drawn.set()

    thread = threading.Thread(target=draw)
    thread.start()
    yield drawn
    ended.set()
    thread.join()


@st.composite
def slow_draws(draw: st.DrawFn, drawing: threading.Event) -> int:
    """Draw a number, and have the thread draw one meanwhile."""
    number = draw(st.integers())
    drawing.clear()
    assert drawing.wait(30), "the thread does not draw"
    return number


def test_a_thread_that_draws_meanwhile_is_not_taken_for_the_strategy(
    drawing: threading.Event,
) -> None:
    @given(slow_draws(drawing))
    @settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def drawn_from(number: int) -> None:
        assert isinstance(number, int)

    drawn_from()


def test_the_main_thread_draws_from_the_global_generator() -> None:
    """Harm prevented: a seed, which pytest-randomly sets, without an effect."""
    random.seed(7)
    first = [random.random(), random.randint(0, 9)]  # noqa: S311  nothing secret
    random.seed(7)

    assert [random.random(), random.randint(0, 9)] == first  # noqa: S311  nothing secret


def test_no_thread_changes_what_the_main_thread_draws() -> None:
    random.seed(7)
    before = random.getstate()
    thread = threading.Thread(target=lambda: random.sample(range(9), 3))
    thread.start()
    thread.join()

    assert random.getstate() == before
