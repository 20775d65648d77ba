"""docs/spec/crashes.md names every effect before and after which a crash is tried."""

from __future__ import annotations

import re

from tableformat.effects import Step
from tests.enumeration.scenarios import SCENARIOS
from tests.enumeration.statements import STATEMENTS
from tests.repository.source_files import ROOT

PAGE = (ROOT / "docs/spec/crashes.md").read_text()
NUMBERS = (
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
)


def test_every_effect_is_listed_once() -> None:
    """Harm prevented: an effect that nobody thought about when it was added."""
    table = PAGE.partition("## Effects")[2]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]

    listed = [name for cell in first for name in re.findall(r"`([^`]+)`", cell)]

    assert sorted(listed) == sorted(step.value for step in Step)


def test_the_page_counts_the_runs() -> None:
    assert f"every effect of {NUMBERS[len(SCENARIOS) - 11]} runs" in PAGE


def test_the_page_counts_the_statements() -> None:
    assert f"every effect of {len(STATEMENTS)} statements" in PAGE
