"""The identity of a partition's content: what a merge explains, and what it does not."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.export.content import Content, added_parts, content_of, is_merged
from tableformat.ledger import Claim, ExportedPart, Landed, Record
from tableformat.mergetree.table import Column, MergeTreeTable, Part
from tableformat.mergetree.types import Simple
from tableformat.names import PartitionId, PartName
from tests.support import fakes

ONE = PartitionId("202401")
INT = Simple("Int64")


def part(low: int, high: int, level: int, rows: int, mutation: int | None = None) -> ExportedPart:
    """Return a part; its hash is one of a new part."""
    name = str(PartName(ONE, low, high, level, mutation))
    return ExportedPart(name, f"hash of {name}, {rows}", rows, low, high, low)


def exported(*parts: ExportedPart) -> Claim:
    return Claim(1, "5001", "", 0, parts=parts)


def content(*parts: ExportedPart, explains: bool = True, columns: str = "") -> Content:
    return Content("other", parts, merge_explains=explains, columns=columns)


@st.composite
def merges(draw: st.DrawFn) -> tuple[list[ExportedPart], list[ExportedPart]]:
    """Return parts, and the parts that some merges of neighbours make of them."""
    mutation = draw(st.none() | st.integers(100, 103))
    sizes = draw(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 3)), min_size=1, max_size=8))
    parts = [part(n, n, level, rows, mutation) for n, (rows, level) in enumerate(sizes, start=1)]
    now = list(parts)
    for _ in range(draw(st.integers(0, 4))):
        first = draw(st.integers(0, len(now) - 1))
        last = draw(st.integers(first, len(now) - 1))
        names = [PartName.parse(one.name) for one in now[first : last + 1]]
        rows = sum(one.rows for one in now[first : last + 1])
        level = max(name.level for name in names) + 1
        now[first : last + 1] = [part(names[0].low, names[-1].high, level, rows, mutation)]
    return parts, now


@given(merges())
def test_what_merges_make_of_a_partition_is_the_same_partition(
    found: tuple[list[ExportedPart], list[ExportedPart]],
) -> None:
    parts, now = found
    assert is_merged(exported(*parts), content(*now))


@given(merges(), st.data())
def test_a_part_more_or_less_is_no_merge(
    found: tuple[list[ExportedPart], list[ExportedPart]], data: st.DataObject
) -> None:
    """Harm prevented: inserted rows, or rows that a user dropped, count as exported."""
    parts, now = found
    left = data.draw(st.sampled_from(now))

    assert not is_merged(exported(*parts), content(*(one for one in now if one != left)))
    assert not is_merged(exported(*parts), content(*now, part(90, 90, 0, 4)))


@given(merges(), st.data())
def test_a_part_with_other_rows_is_no_merge(
    found: tuple[list[ExportedPart], list[ExportedPart]], data: st.DataObject
) -> None:
    parts, now = found
    number = data.draw(st.integers(0, len(now) - 1))
    now[number] = replace(now[number], rows=now[number].rows + 1)

    assert not is_merged(exported(*parts), content(*now))


EXPORTED = exported(part(1, 1, 0, 7), part(2, 2, 0, 5))


@pytest.mark.parametrize(
    ("case", "before", "now"),
    [
        (
            "a part took the name of an exported one, after the table was emptied",
            EXPORTED,
            content(replace(part(1, 1, 0, 7), hash_of_all_files="new"), part(2, 2, 0, 5)),
        ),
        (
            "the merged part took the name of the exported one",
            exported(part(1, 2, 1, 12)),
            content(replace(part(1, 2, 1, 12), hash_of_all_files="new")),
        ),
        (
            "parts of lower levels, with the same blocks",
            exported(part(1, 2, 1, 12)),
            content(part(1, 1, 0, 7), part(2, 2, 0, 5)),
        ),
        ("the same level", exported(part(1, 1, 1, 7)), content(part(1, 1, 1, 7, mutation=4))),
        ("a mutation", EXPORTED, content(part(1, 2, 1, 12, mutation=4))),
        ("other columns", replace(EXPORTED, columns="a"), content(part(1, 2, 1, 12), columns="b")),
        (
            "an engine whose merges change rows",
            EXPORTED,
            content(part(1, 2, 1, 12), explains=False),
        ),
        (
            "names that are no names of parts",
            exported(replace(part(1, 1, 0, 7), name="x")),
            content(replace(part(1, 1, 0, 7), name="y", hash_of_all_files="new")),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_merge_explains(case: str, before: Claim, now: Content) -> None:
    """Harm prevented: rows that were never exported are called exported."""
    assert not is_merged(before, now), case


@pytest.mark.parametrize(
    ("then", "explains"),
    [
        (fakes.TABLE, True),
        (replace(fakes.TABLE, has_ttl_columns=True), False),
        (replace(fakes.TABLE, engine=replace(fakes.TABLE.engine, ttl="n + INTERVAL 1 DAY")), False),
    ],
)
def test_a_merge_under_a_ttl_that_was_removed_explains_nothing(
    then: MergeTreeTable, *, explains: bool
) -> None:
    """Harm prevented: values that a TTL cleared stay in the lake as those of the source."""
    before = content_of(then, (fakes.part("all_1_1_0", 4), fakes.part("all_2_2_0", 3)))
    claim = Claim(1, "5001", "", 0, parts=before.parts, columns=before.columns)

    assert is_merged(claim, content_of(fakes.TABLE, (fakes.part("all_1_2_1", 7),))) is explains


@st.composite
def grown(draw: st.DrawFn) -> tuple[list[Part], list[Part]]:
    """Return parts of a partition, and parts that it gets later; some are equal but for a name."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=8))
    made = [
        replace(
            fakes.part(f"all_{n}_{n}_0", rows, content=f"hash of {rows}"),
            min_block=n,
            max_block=n,
        )
        for n, rows in enumerate(sizes, start=1)
    ]
    cut = draw(st.integers(1, len(made) - 1))
    return made[:cut], made[cut:]


def record_of(table: MergeTreeTable, parts: list[Part]) -> Record:
    """Return the record of an export of these parts."""
    found = content_of(table, tuple(parts))
    landed = Landed(1, "5001", found.fingerprint, 1, 1, found.rows, 1)
    return Record(landed, found.parts, 1, 1, 180, columns=found.columns)


@given(grown(), st.randoms(use_true_random=False))
def test_the_parts_that_came_since_an_export_are_found(
    found: tuple[list[Part], list[Part]], order: Random
) -> None:
    before, later = found
    now = [*before, *later]
    order.shuffle(now)

    added = added_parts(record_of(fakes.TABLE, before), content_of(fakes.TABLE, tuple(now)))

    assert {p.name for p in added} == {p.name for p in later}


@given(grown(), st.data())
def test_no_part_is_new_beside_one_that_changed(
    found: tuple[list[Part], list[Part]], data: st.DataObject
) -> None:
    """Harm prevented: rows of a part that was merged, mutated or dropped stay in the lake."""
    before, later = found
    at = data.draw(st.integers(0, len(before) - 1))
    changed = replace(before[at], **data.draw(st.sampled_from(CHANGES)))
    kept = data.draw(st.booleans())
    now = [*before[:at], *([changed] if kept else []), *before[at + 1 :], *later]

    done = record_of(fakes.TABLE, before)

    assert added_parts(done, content_of(fakes.TABLE, tuple(now))) == ()


CHANGES: tuple[dict[str, Any], ...] = (
    {"name": "all_1_9_1"},
    {"name": "all_1_1_0_12"},
    {"hash_of_all_files": "another"},
    {"rows": 9},
    {"patches": ("patch-1",)},
)


def test_no_part_is_new_where_the_columns_or_what_they_lack_changed() -> None:
    """Harm prevented: one partition with values by two definitions of a column."""
    one, two = fakes.part("all_1_1_0", 3), fakes.part("all_2_2_0", 4)
    more = replace(fakes.TABLE, columns=(*fakes.TABLE.columns, Column("m", INT, "Int64")))
    done = record_of(fakes.TABLE, [one])

    assert added_parts(done, content_of(fakes.TABLE, (one, two))) != ()
    assert added_parts(done, content_of(more, (one, two))) == ()
    lacking = replace(one, lacks=("m",))
    assert added_parts(record_of(more, [one]), content_of(more, (lacking, two))) == ()
    assert added_parts(replace(done, columns=""), content_of(fakes.TABLE, (one, two))) == ()
    assert added_parts(replace(done, parts=()), content_of(fakes.TABLE, (one, two))) == ()
