"""The name of a data file says whose it is."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.file_names import (
    PathLayout,
    data_file_name,
    data_file_path,
    directory_without_hash,
    exported_by,
    is_of_key,
    is_of_transaction,
)
from tableformat.ledger import Key

KEYS = st.builds(Key, st.text(), st.text(), st.text()).map(lambda key: key.hash)
# The second form is what tasks write: Spark's number of the attempt, and what makes it unique.
ATTEMPTS = st.from_regex(r"[0-9a-z]{1,20}|[0-9]{1,3}-[0-9a-f]{12}", fullmatch=True)


@given(
    key=KEYS,
    transaction=st.integers(0, 2**63),
    number=st.integers(0, 10**6),
    attempt=ATTEMPTS,
    first=st.booleans(),
)
def test_a_name_has_key_and_transaction_begun_or_finished(
    key: str, transaction: int, number: int, attempt: str, *, first: bool
) -> None:
    """Harm prevented: a file is taken for another export's, and removed with it."""
    name = data_file_name(key, str(transaction), number, attempt, transaction_first=first)

    assert name.startswith(f"{transaction if first else key}-")
    for path in (name, f"file:///t/data/x=1/{name}", f"/t/.{name}.inprogress"):
        assert exported_by(path) == (key, str(transaction))
    assert is_of_key(name, key)
    assert is_of_transaction(f"/t/{name}", key, str(transaction))
    assert not is_of_key(name, "a" * 26)
    assert not is_of_transaction(name, key, f"{transaction}0")


@pytest.mark.parametrize(
    "path",
    [
        "part-00000-5b1.parquet",
        "00000-0-5d2f7b1e.parquet",
        f"{'a' * 26}-12-0-x.parquet.crc",
        f"{'a' * 25}-12-0-x.parquet",
        f"{'a' * 26}-x-0-x.parquet",
        f"12-{'a' * 25}-0-x.parquet",
        f"12-{'a' * 26}-x-x.parquet",
        f"{'a' * 26}-12-0-x.parquet/part",
        "",
    ],
)
def test_what_others_named_is_nobody_s(path: str) -> None:
    """Harm prevented: another engine's file is judged as one of ours."""
    assert exported_by(path) is None


@given(
    st.sampled_from(["s3://lake/n/t/data", "/mnt/cold/", "file:///w/data"]),
    st.sampled_from(["", "p=1", "p=1/q=a%2Fb", "0101=1/0011/0000/11110000"]),
    KEYS,
    st.sampled_from(PathLayout),
)
def test_a_directory_is_found_again_in_each_layout(
    place: str, directory: str, key: str, layout: PathLayout
) -> None:
    """Harm prevented: a file that replaces another one is stored below the hash of that one."""
    name = data_file_name(key, "12", 0, "1-a")

    path = data_file_path(place, directory, name, layout)

    below = path.removeprefix(f"{place.rstrip('/')}/").removesuffix(name).rstrip("/")
    assert path.startswith(f"{place.rstrip('/')}/")
    assert directory_without_hash(below) == ("" if layout is PathLayout.HASH else directory)
    assert exported_by(path) == (key, "12")
    has_hash = re.match("[01]{4}/[01]{4}/[01]{4}/[01]{8}", below) is not None
    assert has_hash is (layout is not PathLayout.PARTITION)


def test_hashes_spread_the_files_of_one_partition() -> None:
    """Harm prevented: the requests for all files of a partition meet one limit of the store."""
    key = "a" * 26
    names = (data_file_name(key, "12", number, "1-a") for number in range(1600))
    paths = (data_file_path("s3://b", "p=1", name, PathLayout.HASH) for name in names)

    first = Counter(path.removeprefix("s3://b/")[:4] for path in paths)

    assert len(first) == 16
    assert max(first.values()) < 200


@pytest.mark.parametrize(
    ("properties", "tree", "layout"),
    [
        ({}, "", PathLayout.PARTITION),
        ({"enabled": "true"}, "", PathLayout.HASH_AND_PARTITION),
        ({"enabled": "TRUE", "partitioned-paths": "true"}, "", PathLayout.HASH_AND_PARTITION),
        ({"enabled": "true", "partitioned-paths": "False"}, "", PathLayout.HASH),
        ({"enabled": "false", "partitioned-paths": "false"}, "", PathLayout.PARTITION),
        ({"enabled": "maybe"}, "", PathLayout.PARTITION),
        ({"enabled": "true"}, "/lake/t", PathLayout.PARTITION),
    ],
)
def test_the_owner_chooses_the_layout_as_in_iceberg(
    properties: dict[str, str], tree: str, layout: PathLayout
) -> None:
    named = {f"write.object-storage.{name}": value for name, value in properties.items()}
    assert PathLayout.of(named, tree) is layout
