"""Nothing is decided by reading a text of our own: a message may get better at any time."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from tests.repository.text_decisions import in_tree, text_decisions

# By file and function; `str(error)` is the text of a library's error, where that is caught.
OF_OTHERS: Final = {
    (
        "catalog/clickhouse/table_description.py",
        "written_table",
    ): "ClickHouse's definition of a view",
    ("catalog/clickhouse/parts.py", "_first_line"): "ClickHouse's text is cut to a line",
    ("catalog/clickhouse/server/rows.py", "_unreadable"): "chDB's text begins with its name",
    ("catalog/clickhouse/server/settings.py", "_unreadable"): "the XML parser's place",
    ("catalog/clickhouse/session.py", "_create"): "ClickHouse's definition of a table",
    ("catalog/iceberg/table.py", "first_line"): "a library's text is cut to a line",
    ("catalog/sources.py", "check_pass_on"): "the user's statement is cut to a line",
    ("catalog/storages/gs/google_login.py", "__call__"): "a library's text is cut to a line",
    ("catalog/storages/over_http/requests.py", "error_text"): "a library's text is cut to a line",
    ("catalog/storages/s3/requests.py", "error_text"): "a library's text is cut to a line",
    ("catalog/storages/s3/requests.py", "_other_advice"): "OpenSSL has no code for it",
    ("spark_ext/cli/commands/config.py", "_content"): "the TOML parser's place",
    ("spark_ext/operations/spark_views.py", "_failed"): "Spark's text is cut to a line",
    ("spark_ext/sql/catalogs.py", "refresh"): "Spark's text is cut to a line",
}
OF_EARLIER_RELEASES: Final = {
    ("tableformat/ledger_text.py", "_kind_before"): "rows up to format 11 have the text alone",
}
# Nothing else depends on these than how a line looks.
LOOKS: Final = {
    ("catalog/clickhouse/session.py", "_renamed"): "the stand-in's name is replaced",
    ("spark_ext/actions/export.py", "_next"): "a note has the reason alone",
    ("spark_ext/actions/exports.py", "statement"): "an error is cut to a line",
    ("spark_ext/cli/commands/exports.py", "_shown_error"): "an error is cut to a line",
    ("spark_ext/cli/exports_screen.py", "_why"): "an error is cut to a line",
    ("spark_ext/cli/output.py", "finished"): "a word does not stand twice in a line",
    ("spark_ext/cli/commands/statements.py", "_forecast"): "a sentence has no colon before it",
    ("tableformat/errors.py", "reason_of"): "the reason comes first in a list",
    ("tableformat/errors.py", "reason_first"): "the reason comes first in a list",
    ("tableformat/export/watermark.py", "why_not"): "an error is cut to a line",
}
WHOLE: Final = {
    ("tableformat/operations/move.py", "_begun"): "the same statement, given again, is the same",
}
TWICE: Final = {
    ("catalog/clickhouse/session.py", "_create"),
    ("spark_ext/cli/output.py", "finished"),
}
REMAINING: Final = {**OF_OTHERS, **OF_EARLIER_RELEASES, **LOOKS, **WHOLE}


def test_no_text_of_our_own_is_read_to_decide() -> None:
    """Harm prevented: a message gets better, and a partition is taken for another one silently."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in text_decisions():
        found.setdefault((one.path, one.function), []).append(one.expression)

    allowed = {place: 2 if place in TWICE else 1 for place in REMAINING}
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
