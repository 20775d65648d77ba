"""What the ledger stores comes back as it was, or is refused: rows and events."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tableformat.errors import LedgerError
from tableformat.history import Event
from tableformat.ledger import Archived, Row
from tableformat.ledger_text import checksum, parse_row, render_row
from tests.strategies.ledger import events, ledger_rows


@given(row=ledger_rows())
def test_a_row_comes_back_as_it_was_stored(row: Row) -> None:
    """Harm prevented: a figure of an export is lost on the way to the disk."""
    assert parse_row(render_row(row), row.version) == row


def of_format(row: Row, version: int) -> str:
    """Return a row as an earlier release stored it."""
    body: dict[str, Any] = json.loads(render_row(row))
    del body["format_version"], body["checksum"]
    for one in (body["claim"], *body["old"], *([body["done"]] if body["done"] else [])):
        del one["columns"]
    if version < 10:
        del body["archived"]
    if version < 9:
        del body["division"]
    if version < 8:
        for one in (body["claim"], *body["old"]):
            del one["gives_way"]
    return json.dumps({"format_version": version, "checksum": checksum(body), **body})


@given(row=ledger_rows(), version=st.sampled_from((7, 8, 9, 10)))
def test_a_row_of_a_format_before_is_read_without_what_it_does_not_say(
    row: Row, version: int
) -> None:
    """Harm prevented: a ledger that cannot be used any more after an upgrade."""
    claims = tuple(replace(c, columns="") for c in (row.claim, *row.old))
    if version < 8:
        claims = tuple(replace(c, gives_way=None) for c in claims)

    read = parse_row(of_format(row, version), row.version)

    claim, *old = claims
    division = row.division if version > 8 else None
    done = row.done and replace(row.done, columns="")
    known = replace(row, claim=claim, old=tuple(old), done=done, division=division)
    assert replace(read, archived=None) == replace(known, archived=None)


@given(row=ledger_rows(), version=st.sampled_from((7, 8, 9)), ttl=st.integers(1, 10_000))
def test_what_an_earlier_release_archived_is_archived(row: Row, version: int, ttl: int) -> None:
    """Harm prevented: after an upgrade `--force` takes the only copy out of the lake."""
    assume(row.done is not None)
    assert row.done is not None
    for_ever = replace(row.done, ttl=0, forgotten=False)

    archived = parse_row(of_format(replace(row, done=for_ever, ttl=ttl), version), 1)
    kept = parse_row(of_format(replace(row, done=for_ever, ttl=0), version), 1)
    forgotten = replace(row, done=replace(for_ever, forgotten=True), ttl=ttl)

    assert archived.archived == Archived(row.updated)
    assert kept.archived is None
    assert parse_row(of_format(forgotten, version), 1).archived is None


@given(row=ledger_rows(), place=st.floats(0, 1, exclude_max=True), other=st.characters())
def test_a_row_with_any_other_character_is_the_same_row_or_refused(
    row: Row, place: float, other: str
) -> None:
    """Harm prevented: a damaged row is read as another state, another epoch, other rows."""
    text = render_row(row)
    position = int(place * len(text))

    damaged = text[:position] + other + text[position + 1 :]

    try:
        assert parse_row(damaged, row.version) == row
    except LedgerError as refused:
        assert refused.message.startswith("Cannot read a ledger row: ")  # noqa: PT017  either may happen


@given(row=ledger_rows(), place=st.floats(0, 1, exclude_max=True))
def test_a_row_that_is_cut_off_is_refused(row: Row, place: float) -> None:
    text = render_row(row)

    with pytest.raises(LedgerError, match="Cannot read a ledger row: "):
        parse_row(text[: int(place * len(text))], row.version)


@given(event=events)
def test_an_event_comes_back_as_it_was_stored(event: Event) -> None:
    assert Event.from_json(event.to_json()) == event


@pytest.mark.parametrize("text", ["", "[]", "7", '{"time": 1}', '{"kind": "DROP", "counter": 0}'])
def test_a_damaged_event_is_refused(text: str) -> None:
    """Harm prevented: a line of the log that never happened."""
    with pytest.raises(LedgerError, match="Its history is damaged, its exports need not be"):
        Event.from_json(text)
