"""Jobs, deaths, operators, changing content, in any order: never twice."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tests.support.competition import compete

WANTED: Final = ("committed", "die", "operate")
ROUNDS: Final = 5
"""What happens is drawn by chance: at most so often, until each of these has happened."""


def test_whatever_happens_no_row_is_twice_and_a_quiet_run_exports_the_rest() -> None:
    """Harm prevented: what each fault alone does not do, two of them do together."""
    happened = Counter[str]()
    for number in range(ROUNDS):
        happened += compete(examples=10, steps=6, number=number)
        if all(happened[what] for what in WANTED):
            break

    # A competition in which nothing competes would prove nothing.
    assert {what for what in WANTED if happened[what] == 0} == set(), happened
