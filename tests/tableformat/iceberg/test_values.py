"""Partition values and bounds read back as they were written."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
    UUIDType,
)

from tableformat.errors import UnsupportedError, UsageError
from tableformat.iceberg.values import from_hex, from_text, to_hex, to_text

VALUES: st.SearchStrategy[tuple[Any, Any]] = st.one_of(
    st.tuples(st.just(BooleanType()), st.booleans()),
    st.tuples(st.just(IntegerType()), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just(LongType()), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(DateType()), st.integers(-719_162, 2_932_896)),
    st.tuples(
        st.just(TimestamptzType()),
        st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
    ),
    st.tuples(st.just(StringType()), st.text()),
    st.tuples(st.just(BinaryType()), st.binary()),
    st.tuples(st.just(FixedType(4)), st.binary(min_size=4, max_size=4)),
    st.tuples(
        st.just(DecimalType(38, 10)),
        st.integers(-(10**38) + 1, 10**38 - 1).map(
            lambda n: Decimal((int(n < 0), tuple(int(d) for d in str(abs(n))), -10))
        ),
    ),
)


@given(case=VALUES)
def test_the_text_of_a_value_reads_back_as_the_value(case: tuple[IcebergType, Any]) -> None:
    """Receipts carry the text; a resumed job must find the same partition."""
    of, value = case

    again = from_text(to_text(value, of), of)

    assert again == value
    assert type(again) is type(value)


@given(case=VALUES)
def test_the_bytes_of_a_bound_read_back_as_the_value(case: tuple[PrimitiveType, Any]) -> None:
    of, value = case

    assert from_hex(to_hex(value, of), of) == value


@pytest.mark.parametrize(
    ("of", "value", "text"),
    [
        (BooleanType(), True, "true"),
        (DateType(), -1, "1969-12-31"),
        (TimestamptzType(), -1, "1969-12-31T23:59:59.999999+00:00"),
        (DecimalType(5, 2), Decimal("-1.50"), "-1.50"),
        (DecimalType(38, 30), Decimal("0E-30"), f"0.{'0' * 30}"),
        (BinaryType(), b"\xff\x00", "ff00"),
        (StringType(), "", ""),
        (StringType(), None, None),
    ],
)
def test_the_text_is_icebergs_json_form_without_quotes(
    of: IcebergType, value: Any, text: str | None
) -> None:
    assert to_text(value, of) == text


def test_a_date_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="outside the years 1 to 9999"):
        to_text(10**7, DateType())


@pytest.mark.parametrize("of", [UUIDType(), DoubleType()])
def test_a_type_that_never_partitions_has_no_text(of: IcebergType) -> None:
    with pytest.raises(UnsupportedError, match="no such form"):
        to_text(1.5, of)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="no such text form"):
        from_text("1.5", of)


@pytest.mark.parametrize(
    ("of", "text"), [(LongType(), "x"), (DateType(), "2024"), (DecimalType(5, 2), "one")]
)
def test_a_text_that_is_none_is_refused(of: IcebergType, text: str) -> None:
    with pytest.raises(UsageError, match=f"Cannot read '{text}'"):
        from_text(text, of)
