"""What every reader makes of every table is what is recorded: right, or wrong in the known way.

docs/reference/readers.md shows the result: right types, pruned scans. When a test here fails, look
at the result. Where it is right now, or differs by the reader's own fault,
`make readers ARGS=record` writes it down, and `faults.py` says why.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.readers import recorded
from tests.readers.each_engine import each_engine
from tests.readers.engines import Engine
from tests.readers.recorded import OfReader

RECORDED = recorded.load()
Measured = Callable[[Engine], OfReader]

pytestmark = [
    # The first test waits for the tables, for a download and for a thousand results.
    pytest.mark.timeout(900),
    each_engine(),
    pytest.mark.nightly,
]


def test_every_value_is_read_and_every_filter_finds_what_clickhouse_finds(
    measured: Measured, engine: Engine
) -> None:
    """Harm prevented: an analyst gets another value than ClickHouse has, or loses rows."""
    assert measured(engine).wrong == RECORDED[engine.name].wrong


def test_a_query_reads_no_byte_that_it_has_no_need_of(measured: Measured, engine: Engine) -> None:
    """Harm prevented: a query for one day reads the whole lake."""
    assert measured(engine).pruned == RECORDED[engine.name].pruned


def test_types_are_shown_as_the_page_says(measured: Measured, engine: Engine) -> None:
    """Harm prevented: a program that expects a UUID gets bytes."""
    assert measured(engine).shown == RECORDED[engine.name].shown


def test_the_reader_is_the_one_that_the_page_names(measured: Measured, engine: Engine) -> None:
    """Harm prevented: the page tells of a release that nobody has asked."""
    assert measured(engine).version == RECORDED[engine.name].version
