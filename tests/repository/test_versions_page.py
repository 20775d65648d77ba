"""docs/reference/versions.md says what the code asks of a ClickHouse, and what it does without."""

from __future__ import annotations

import pytest

from catalog.clickhouse.capabilities import ALWAYS_NEEDED, Offer, Sign, SignKind
from tests.repository.source_files import ROOT

PAGE = ROOT / "docs" / "reference" / "versions.md"
CLICKHOUSE = ROOT / "catalog" / "clickhouse"
KINDS = {
    SignKind.COLUMN: "`system.{}`",
    SignKind.FUNCTION: "function `{}`",
    SignKind.SETTING: "setting `{}`",
    SignKind.TABLE_SETTING: "table setting `{}`",
}


def needed(sign: Sign) -> str:
    """Return how the page names a sign."""
    return KINDS[sign.kind].format(sign.name)


def row(offer: Offer) -> str:
    """Return the row of the page for an offer."""
    return f"| {needed(offer.sign)} | {offer.use} | {offer.otherwise} |"


def test_the_page_has_a_row_for_every_offer_and_no_other() -> None:
    """What depends on the version is on the page, in the words of the code."""
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition("| there is | then | else |\n|---|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == [row(offer) for offer in Offer]


def test_the_page_lists_what_must_be_there() -> None:
    """What no snapshot can be proved without is on the page."""
    listed = PAGE.read_text(encoding="utf-8").partition("## What each must have\n\n")[2]
    assert listed.partition("\n\n")[0].splitlines() == [f"- {needed(s)}" for s in ALWAYS_NEEDED]


@pytest.mark.parametrize("offer", Offer, ids=lambda offer: offer.name)
def test_every_offer_decides_something(offer: Offer) -> None:
    """A row of which nothing depends on would be a wrong promise."""
    files = [f for f in CLICKHOUSE.rglob("*.py") if f.name != "offers.py"]
    assert any(f"Offer.{offer.name}" in file.read_text(encoding="utf-8") for file in files)
