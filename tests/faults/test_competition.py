"""Jobs, deaths, operators, changing content, in any order (tests/competition.py): never twice."""

from __future__ import annotations

from tests.competition import compete


def test_whatever_happens_no_row_is_twice_and_a_quiet_run_exports_the_rest() -> None:
    """Harm prevented: what each fault alone does not do, two of them do together."""
    compete(examples=20, steps=6)
