"""How long is waited before something is tried again."""

from __future__ import annotations

import random

from catalog.retry import jitter


def test_waits_differ_and_are_never_longer_than_asked_for() -> None:
    waits = {jitter(0.5) for _ in range(100)}

    assert len(waits) > 1
    assert all(0 <= wait <= 0.5 for wait in waits)


def test_what_a_seeded_program_draws_is_not_changed() -> None:
    """Harm prevented: a notebook gives other numbers, because a request was repeated."""
    random.seed(7)
    before = random.getstate()

    jitter(1.0)

    assert random.getstate() == before
