"""What the properties of a lake table say about the expiry of its snapshots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.errors import RefusedError
from tableformat.iceberg.properties import Retention, refuse_kept_files, retention_of
from tableformat.names import LakeName

AGE, KEEPS = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
TABLE = LakeName("lake", ("n",), "t")
GIVEN = st.none() | st.integers(0, 10**15)
SET = st.none() | st.integers(1, 10**15)


@given(age=GIVEN, keeps=st.none() | st.integers(1, 100), set_age=SET, set_keeps=SET)
def test_the_user_goes_before_the_owner_and_both_before_the_default(
    age: int | None, keeps: int | None, set_age: int | None, set_keeps: int | None
) -> None:
    both = {AGE: set_age, KEEPS: set_keeps}
    properties = {key: str(value) for key, value in both.items() if value is not None}

    found = retention_of(properties, TABLE, age=age, keeps=keeps)

    ages, numbers = (age, set_age, 7 * 86_400_000), (keeps, set_keeps, 1)
    first = [next(one for one in of if one is not None) for of in (ages, numbers)]
    assert found == Retention(*first)


@pytest.mark.parametrize("key", [AGE, KEEPS, "history.expire.max-ref-age-ms"])
@pytest.mark.parametrize("text", ["0", "-1", "5 days", "", "1e9"])
@pytest.mark.parametrize("given", [None, 5])
def test_a_value_that_is_no_number_is_refused_by_name(
    key: str, text: str, given: int | None
) -> None:
    """Harm prevented: a mistake of the owner becomes a week, and what should stay expires.

    Iceberg's procedure fails on such a value even if it is called with another one.
    """
    with pytest.raises(RefusedError, match=key):
        retention_of({key: text}, TABLE, age=given, keeps=given)


@pytest.mark.parametrize("text", ["false", "FALSE", "", "1", "yes"])
def test_whatever_iceberg_takes_for_false_keeps_the_files(text: str) -> None:
    """Harm prevented: files go to which another table refers."""
    with pytest.raises(RefusedError, match=r"gc\.enabled .* or do something else\.$"):
        refuse_kept_files({"gc.enabled": text}, TABLE, "do something else")


@pytest.mark.parametrize("properties", [{}, {"gc.enabled": "true"}, {"gc.enabled": "True"}])
def test_else_files_may_go(properties: dict[str, str]) -> None:
    refuse_kept_files(properties, TABLE, "do something else")
