"""How many source parts are in finished files, from the receipts alone (reading 17)."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tableformat.export.progress import processed_parts
from tableformat.ledger import ExportedPart
from tableformat.receipt import PartRange


def part(name: str, rows: int) -> ExportedPart:
    return ExportedPart(name, "", rows, 0, 0, 0)


def of(name: str, rows: int, start: int | None = None, stop: int | None = None) -> PartRange:
    return PartRange(f"frozen {name}", name, "", rows, "", start, stop)


@given(
    rows=st.lists(st.integers(1, 100), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 99), max_size=6),
    data=st.data(),
)
def test_a_part_is_processed_when_the_last_of_its_slices_is(
    rows: list[int], cuts: list[int], data: st.DataObject
) -> None:
    """Harm prevented: a part in three files is told as done when one of them is there."""
    parts = [part(str(n), count) for n, count in enumerate(rows)]
    slices = [
        of(one.name, one.rows, start, stop)
        for one in parts
        for inside in [sorted({0, one.rows, *(c for c in cuts if c < one.rows)})]
        for start, stop in itertools.pairwise(inside)
    ]
    written = data.draw(st.permutations(slices))
    missing = data.draw(st.sampled_from(slices))

    assert len(processed_parts(parts, written)) == len(parts)
    assert len(processed_parts(parts, [*written, missing])) == len(parts)
    without = [one for one in written if one != missing]
    assert len(processed_parts(parts, without)) == len(parts) - 1


def test_whole_parts_need_no_range() -> None:
    assert processed_parts([part("a", 5), part("b", 3)], [of("b", 3)]) == {"b"}


def test_files_of_parts_that_the_claim_has_not_count_for_nothing() -> None:
    """Files of an earlier content of the partition may lie there."""
    assert not processed_parts([part("a", 5)], [of("b", 5), replace(of("a", 5), stop=4)])
