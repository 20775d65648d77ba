"""Parts of a clone are identified by hash and rows, each exactly once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.snapshot.comparison import differences, paired, same_in_copies
from tableformat.mergetree.table import KeeperNode, KeeperUnavailable, Part
from tableformat.names import PartitionId
from tableformat.source import LeftPart
from tests.support.fakes import TABLE

# Few of each, so that equal parts are the rule.
contents = st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 2))
several = st.lists(contents, max_size=6)

Contents = list[tuple[str, int]]


def named(part: str, sizes: list[int]) -> str:
    """Return what stands for a hash where a server has none."""
    return f"name:{part}:sizes:{':'.join(map(str, sizes))}"


def copies(held: Contents) -> tuple[Part, ...]:
    """Return the parts of a staging table, in which they are numbered from 1."""
    return tuple(
        Part(
            f"p_{n}_{n}_0", PartitionId("p"), rows, 10, 40, content, "/d", f"/d/p_{n}_{n}_0",
            "Wide", n, n, 0, n, has_lightweight_delete=False,
        )
        for n, (content, rows) in enumerate(held, start=1)
    )  # fmt: skip


def originals(held: Contents) -> tuple[LeftPart, ...]:
    """Return the parts of a source, in which they are numbered from 100."""
    return tuple(LeftPart(f"p_{n}_{n}_0", *held[n - 100]) for n in range(100, 100 + len(held)))


@given(cloned=several, source=several)
def test_parts_pair_only_when_both_sides_hold_the_same_as_often(
    cloned: Contents, source: Contents
) -> None:
    """Harm prevented: a part that is missing, or there twice, goes unnoticed."""
    pairs = paired(copies(cloned), originals(source))

    assert (pairs is not None) == (Counter(cloned) == Counter(source))


@given(source=several, data=st.data())
def test_every_part_is_named_by_its_content_and_equal_ones_keep_their_order(
    source: Contents, data: st.DataObject
) -> None:
    cloned = data.draw(st.permutations(source))
    named = originals(source)

    pairs = paired(copies(cloned), named)

    assert pairs is not None
    assert tuple(pair.part for pair in pairs) == copies(cloned)
    assert [pair.visible_rows for pair in pairs] == [rows for _, rows in cloned]
    for content in set(source):
        expected = [p.source_name for p in named if (p.hash_of_all_files, p.rows) == content]
        assert expected == [
            pair.source_name
            for pair in pairs
            if (pair.part.hash_of_all_files, pair.part.rows) == content
        ]


@given(
    sizes=st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), max_size=4),
    other=st.data(),
)
def test_without_hashes_copies_pair_by_size_and_take_their_originals_names(
    sizes: list[list[int]], other: st.DataObject
) -> None:
    """A frozen part is known by the name of its source, which tells one content from another."""
    held = [(named(f"p_{n}_{n}_0", one), 1) for n, one in enumerate(sizes, start=1)]
    source = [(named(f"p_{n}_{n}_0_7", one), 1) for n, one in enumerate(sizes, start=100)]

    pairs = paired(copies(held), originals(source))

    assert pairs is not None
    assert [pair.part.hash_of_all_files for pair in pairs] == [text for text, _ in source]
    if sizes:
        changed = other.draw(st.integers(0, len(sizes) - 1))
        source[changed] = (named("p_1_1_0", [4, 4, 4, 4]), 1)
        assert paired(copies(held), originals(source)) is None


@given(sizes=st.lists(st.integers(0, 2**63), min_size=4, max_size=4))
def test_what_copies_have_in_common_is_all_but_the_name(sizes: list[int]) -> None:
    texts = {same_in_copies(named(part, sizes)) for part in ("202401_1_1_0", "all_9_9_1_12")}
    assert len(texts) == 1
    assert "all" not in texts.pop()
    assert same_in_copies("d60baa82") == "d60baa82"


HERE, THERE = KeeperNode(11, 1000), KeeperNode(98, 1000)


@pytest.mark.parametrize(
    ("planned", "found", "expected"),
    [
        (None, None, ""),
        (HERE, HERE, ""),
        (HERE, THERE, "its node in Keeper"),
        (HERE, None, "its node in Keeper"),
        (KeeperUnavailable("away"), HERE, "its node in Keeper"),
        (KeeperUnavailable("away"), KeeperUnavailable("away"), "its node in Keeper"),
    ],
)
def test_a_table_that_was_recreated_meanwhile_is_another_one(
    planned: KeeperNode | KeeperUnavailable | None,
    found: KeeperNode | KeeperUnavailable | None,
    expected: str,
) -> None:
    """Harm prevented: parts of a new table are frozen for the old one, which nobody could tell."""
    before, now = (replace(TABLE, keeper_node=node) for node in (planned, found))

    assert differences(before, now, copy=False) == expected
    assert differences(before, now, copy=True) == ""
