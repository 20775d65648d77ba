"""The conversions, their text, and the types that take them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.mergetree.conversions import (
    DEFAULT,
    Conversion,
    Handling,
    WireValue,
    parse_conversion,
)
from tableformat.mergetree.types import (
    DataType,
    LowCardinality,
    Nullable,
    Simple,
    parse_type,
    rebuild,
    render_type,
)
from tableformat.mergetree.wire_types import (
    alternatives_of,
    conversions_of,
    find_value,
    takes,
    without_low_cardinality,
)
from tests.strategies.types import data_types

conversions = st.one_of(
    st.sampled_from(["", "string", "binary", "long", "truncate", "finalize", "state", "json"]),
    st.sampled_from(["struct", "wkb", "nonsense"]),
    st.tuples(st.integers(0, 99), st.integers(0, 99)).map(lambda d: f"decimal({d[0]},{d[1]})"),
)


@given(text=conversions)
def test_a_conversion_has_one_text(text: str) -> None:
    """It is kept as text with the lake table, and must mean the same in the next run."""
    conversion = parse_conversion(text)

    assert str(conversion) == text
    assert parse_conversion(f" {conversion} ") == conversion


@pytest.mark.parametrize(
    ("text", "conversion"),
    [
        ("decimal(38, 0)", Conversion("decimal", (38, 0))),
        ("decimal( 12 ,3 )", Conversion("decimal", (12, 3))),
        ("decimal", Conversion("decimal")),
        ("decimal(38)", Conversion("decimal(38)")),
        ("Decimal(38,0)", Conversion("Decimal(38,0)")),
        ("", DEFAULT),
    ],
)
def test_a_conversion_is_read_as_it_is_written(text: str, conversion: Conversion) -> None:
    assert parse_conversion(text) == conversion


@given(of=data_types, text=conversions)
def test_every_type_is_a_value_or_taken_apart_or_refused(of: DataType, text: str) -> None:
    """A conversion that a type does not take changes nothing about it."""
    conversion = parse_conversion(text)

    found = find_value(of, conversion)

    assert isinstance(found, WireValue | Handling)
    if not takes(of, conversion):
        assert found == find_value(of)
    elif conversion.digits is None:
        assert text in conversions_of(of)
    else:
        assert any(offered.startswith("decimal(") for offered in conversions_of(of))


@given(of=data_types)
def test_no_type_without_values_of_its_own_takes_a_conversion(of: DataType) -> None:
    """A container passes a conversion to its elements and must not apply it twice."""
    if find_value(of) is Handling.BY_ELEMENT and not alternatives_of(of):
        assert conversions_of(of) == ()


@given(of=data_types)
def test_low_cardinality_is_taken_off_at_every_depth_and_nothing_else(of: DataType) -> None:
    plain = without_low_cardinality(of)

    assert "LowCardinality" not in repr(plain)
    assert rebuild(plain, lambda inner: inner) == plain
    if "LowCardinality" not in repr(of):
        assert plain == of


def test_alternatives_of_a_variant_keep_their_order_and_get_own_names() -> None:
    of = parse_type("Variant(Array(String), Array(Nullable(String)), DateTime64(3))")
    named = alternatives_of(of)

    assert [name for name, _ in named] == ["Array_String", "Array_Nullable_String", "DateTime64_3"]
    assert [render_type(inner) for _, inner in named] == [
        "Array(String)",
        "Array(Nullable(String))",
        "DateTime64(3)",
    ]


@pytest.mark.parametrize("of", [Nullable(Simple("UUID")), LowCardinality(Simple("UUID"))])
def test_a_wrapper_takes_no_conversion_itself(of: DataType) -> None:
    assert not takes(of, parse_conversion("binary"))
    assert takes(of.of, parse_conversion("binary"))  # type: ignore[union-attr]
