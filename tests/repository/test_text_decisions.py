"""Nothing is decided by reading a text of our own: a message may get better at any time."""

from __future__ import annotations

import ast

import pytest

from tests.repository.text_decisions import REMAINING, TWICE, in_tree, text_decisions


def test_no_text_of_our_own_is_read_to_decide() -> None:
    """Harm prevented: a message gets better, and a partition is taken for another one silently."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in text_decisions():
        found.setdefault((one.path, one.function), []).append(one.expression)

    listed = {place for places in REMAINING.values() for place in places}
    allowed = {place: 2 if place in TWICE else 1 for place in listed}
    new = {place: texts for place, texts in found.items() if len(texts) > allowed.get(place, 0)}
    assert new == {}, "put what is decided on into a value alongside the text"
    gone = [place for place, times in allowed.items() if len(found.get(place, ())) < times]
    assert gone == [], "take these off the list"


@pytest.mark.parametrize(
    "code",
    [
        "if outcome.message.startswith('Cannot '): pass",
        "if row.last_error in (CANCELLED, KILLED): pass",
        "if 'mergeberg partitions' in error.message: pass",
        "if change.endswith(' is gone'): pass",
        "done = landed.statement.startswith(_DETACHING)",
        "found = _EDITING.match(statement)",
        "head, *lines = error.message.splitlines()",
        "text = _AGAIN.sub('', _CANNOT.sub('', error.message)).rstrip('.')",
        "error.message = in_alter(error.message)",
        "try: pass\nexcept KeyError as wrong:\n    if 'a' in str(wrong): pass",
        "match one.last_error:\n    case 'interrupted': pass",
        "same = row.claim.statement == str(leave)",
    ],
)
def test_a_decision_by_a_text_is_found(code: str) -> None:
    assert [*in_tree("some.py", ast.parse(code))]


@pytest.mark.parametrize(
    "code",
    [
        "if outcome.message: pass",
        "if row.last_error != '': pass",
        "if row.stop is Stop.CANCELLED: pass",
        "if Advice.LIST_PARTITIONS in error.advice: pass",
        "said = error.message.rstrip('. ') + '.'",
        "self.message = message",
        "match statement:\n    case Drop(): pass",
    ],
)
def test_what_is_no_decision_by_a_text_is_not_found(code: str) -> None:
    assert [*in_tree("some.py", ast.parse(code))] == []
