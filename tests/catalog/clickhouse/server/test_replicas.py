"""Which replica serves a job, and what of a replica's queue belongs to a partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.server.replicas import is_part_of
from tableformat.names import PartitionId

_BLOCKS = st.integers(0, 10**9)
_IDS = st.one_of(
    st.integers(200001, 209912).map(str),
    st.from_regex(r"[0-9a-f]{32}|all|[0-9]{8}|-?[0-9]-[0-9]", fullmatch=True),
)


@given(_IDS, _BLOCKS, _BLOCKS, st.integers(0, 99), st.none() | _BLOCKS)
def test_a_part_is_of_the_partition_that_its_name_begins_with(
    one: str, first: int, last: int, level: int, mutation: int | None
) -> None:
    """With or without the number of a mutation."""
    end = "" if mutation is None else f"_{mutation}"

    assert is_part_of(f"{one}_{first}_{last}_{level}{end}", PartitionId(one))


@given(st.integers(2000, 2099), st.integers(1, 12), st.integers(1, 28), st.integers(1, 28), _BLOCKS)
def test_a_part_of_the_old_syntax_is_of_its_month(
    year: int, month: int, first: int, last: int, block: int
) -> None:
    """Its name begins with two days; the month is the partition."""
    id_ = f"{year}{month:02}"
    part = f"{id_}{first:02}_{id_}{last:02}_{block}_{block}_0"
    other = f"{year}{month % 12 + 1:02}"

    assert is_part_of(part, PartitionId(id_))
    assert not is_part_of(part, PartitionId(other))


def test_a_part_of_a_partition_with_a_longer_id_is_not_of_it() -> None:
    """2024 is no prefix of 202401."""
    assert not is_part_of("202401_1_1_0", PartitionId("2024"))
    assert not is_part_of("20240101_1_1_0", PartitionId("202401"))
