"""Keys of pieces of partitions: each says which rows it is, wherever it goes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tableformat.names import Key

sources = st.text(st.characters(codec="utf-8"), min_size=1).map(lambda text: f"uuid:{text}")
ids = st.text("0123456789abcdef-", min_size=1)
keys = st.one_of(
    st.builds(Key, sources, ids, st.uuids().map(str)),
    st.builds(Key.of_lake, st.uuids().map(str), ids, st.uuids().map(str)),
)


@given(keys, ids, ids, st.uuids().map(str))
def test_a_piece_is_of_the_same_rows_wherever_it_goes(
    key: Key, first: str, second: str, third: str
) -> None:
    piece = key.within(first)

    assert (piece.partition_id, piece.destination) == (first, key.destination)
    assert piece.origin == key == key.origin
    assert piece.at(third).within(second) == key.at(third).within(second)
    assert piece.at(third).origin == key.at(third)


@given(keys, keys, ids)
def test_pieces_of_other_rows_are_other_keys(one: Key, other: Key, partition_id: str) -> None:
    """Harm prevented: a day that takes the place of another one of its month."""
    pieces = one.within(partition_id), other.within(partition_id)

    assert (pieces[0] == pieces[1]) == (one == other)
    assert pieces[0] != one


@given(keys, ids)
def test_a_piece_is_of_no_export_and_stays_what_it_is(key: Key, partition_id: str) -> None:
    piece = key.within(partition_id)

    assert (piece.is_of_export, piece.stays) == (False, True)
    assert key.stays == key.is_of_export
