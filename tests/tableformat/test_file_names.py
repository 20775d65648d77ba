"""The name of a data file says whose it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.file_names import data_file_name, exported_by, is_of_key, is_of_transaction
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
