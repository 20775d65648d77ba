"""How many source parts are in finished files, from the receipts alone (RQ…PartialProgress)."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tableformat.export.slices import files_of_parts, processed_parts, with_files
from tableformat.ledger import ExportedPart
from tableformat.receipt import PartRange, Receipt


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
    """Harm prevented: a part in three files is reported as done when one of them is there."""
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


def receipt(number: int, *ranges: PartRange, attempt: str = "0-a") -> Receipt:
    return Receipt(
        key="k", transaction_id="1", epoch=1, slice_number=number, attempt=attempt, ranges=ranges,
        file_path=f"/lake/{number}-{attempt}.parquet", file_bytes=1, sha256="", rows=1,
        rows_expected=1, partition=(), spec_id=0, sort_order_id=None, split_offsets=(), columns=(),
        seconds=0.0, peak_memory=0,
    )  # fmt: skip


@given(
    rows=st.lists(st.integers(1, 100), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 99), max_size=6),
    data=st.data(),
)
def test_a_part_has_its_paths_as_soon_as_all_of_its_slices_are_done(
    rows: list[int], cuts: list[int], data: st.DataObject
) -> None:
    """N-15. Harm prevented: a path that says "exported" of a part of which a file is missing."""
    parts = tuple(part(str(n), count) for n, count in enumerate(rows))
    slices = [
        of(one.name, one.rows, start, stop)
        for one in parts
        for inside in [sorted({0, one.rows, *(c for c in cuts if c < one.rows)})]
        for start, stop in itertools.pairwise(inside)
    ]
    receipts = [receipt(number, one) for number, one in enumerate(slices)]
    finished = data.draw(st.lists(st.sampled_from(receipts), unique=True))

    found = with_files(parts, data.draw(st.permutations(finished)))

    for one in found:
        own = [r for r in receipts if r.ranges[0].source_name == one.name]
        is_done = all(r in finished for r in own)
        assert one.remote_paths == (tuple(r.file_path for r in own) if is_done else ())
    assert [replace(one, remote_paths=()) for one in found] == list(parts)
    everything = with_files(parts, receipts)
    assert {one.name: one.remote_paths for one in everything} == files_of_parts(receipts)


def test_of_a_slice_that_two_attempts_wrote_one_file_is_named() -> None:
    """A worker that was lost wrote it, and another one again."""
    twice = [receipt(0, of("a", 5)), receipt(0, of("a", 5), attempt="1-b")]

    (found,) = with_files((part("a", 5),), twice)

    assert found.remote_paths == ("/lake/0-0-a.parquet",)
