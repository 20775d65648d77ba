"""Digests as values: differences have both figures, and a kept digest is read back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.digest import Bound, ColumnDigest, Digest, KeptDigest, shown
from tableformat.errors import DestinationError, InternalError

INTEGERS = st.integers(-(2**127), 2**127)
BOUNDS: dict[str, st.SearchStrategy[Bound]] = {
    "Int64": INTEGERS,
    "Bool": st.integers(0, 1),
    "Date32": st.integers(-1_000_000, 4_000_000),
    "DateTime64(6, 'UTC')": st.integers(-(10**18), 10**18),
    "Decimal(38, 2)": INTEGERS,
    # Minus zero is a zero where values are compared.
    "Float64": st.floats(allow_nan=False).map(lambda f: f + 0.0),
    "String": st.binary(max_size=64),
    "FixedString(3)": st.binary(min_size=3, max_size=3),
}
CHECKSUMS = st.integers(0, 2**64 - 1)


@st.composite
def column_digests(draw: st.DrawFn, name: str) -> ColumnDigest:
    of = draw(st.sampled_from(sorted(BOUNDS)))
    bound = st.none() | BOUNDS[of]
    return ColumnDigest(
        name, of, draw(st.integers(0, 10**12)), draw(bound), draw(bound), draw(CHECKSUMS)
    )


@st.composite
def digests(draw: st.DrawFn) -> Digest:
    names = draw(st.lists(st.text(st.characters(codec="utf-8")), unique=True, max_size=4))
    columns = tuple(draw(column_digests(name)) for name in names)
    return Digest(draw(st.integers(0, 10**12)), draw(CHECKSUMS), columns)


KEPT = KeptDigest("db.t", "202401", "7", 0, Digest(3, 5, (ColumnDigest("n", "Int64", 1, 1, 2, 9),)))


@given(digest=digests(), taken=st.integers(0, 10**13))
def test_a_kept_digest_is_read_back_as_it_was(digest: Digest, taken: int) -> None:
    """Harm prevented: a comparison years later with other figures than those of the export."""
    kept = KeptDigest("db.t", "all", "123", taken, digest)

    assert KeptDigest.from_json(kept.to_json()) == kept
    assert kept.to_json().startswith('{\n "format_version": 1,')


@given(digest=digests())
def test_a_digest_does_not_differ_from_itself(digest: Digest) -> None:
    assert digest.differences(digest) == ()


@given(one=column_digests("c"), other=column_digests("c"))
def test_two_digests_differ_exactly_when_a_figure_does(
    one: ColumnDigest, other: ColumnDigest
) -> None:
    """Harm prevented: a difference without a name, or a name without a difference."""
    found = Digest(1, 0, (one,)).differences(Digest(1, 0, (other,)))

    assert bool(found) == (one != other)
    assert {d.column for d in found} <= {"c"}


def test_every_difference_is_reported_with_both_figures() -> None:
    of = "DateTime64(6, 'UTC')"
    expected = Digest(1_000, 1, (ColumnDigest("ts", of, 0, 0, 10**6, 1),))
    found = Digest(999, 2, (ColumnDigest("ts", of, 1, 1, 10**6, 2),))

    assert [str(d) for d in expected.differences(found)] == [
        "rows 1,000 in the source, 999 in the lake",
        "column ts: NULLs 0 in the source, 1 in the lake",
        (
            "column ts: least 1970-01-01 00:00:00.000000 in the source, "
            "1970-01-01 00:00:00.000001 in the lake"
        ),
        "column ts: checksum 0000000000000001 in the source, 0000000000000002 in the lake",
    ]


def test_values_in_other_rows_are_reported_although_each_column_agrees() -> None:
    digest = KEPT.digest

    (found,) = digest.differences(replace(digest, checksum=6))

    assert str(found).startswith("values are exchanged between rows: checksum 0000000000000005")


def test_a_column_on_one_side_only_and_another_type_are_differences() -> None:
    n = KEPT.digest.columns[0]
    other = replace(KEPT.digest, columns=(replace(n, name="m"), replace(n, type="Bool")))

    found = [str(d) for d in KEPT.digest.differences(other)]

    assert found == [
        "column n: type Int64 in the source, Bool in the lake",
        "column m: it is not in the source, is in the lake",
    ]
    assert KEPT.digest.differences(Digest(3, 5, ()))[0].column == "n"


@given(one=column_digests("c"), other=column_digests("c"), third=column_digests("c"))
def test_figures_of_files_are_put_together_in_any_order(
    one: ColumnDigest, other: ColumnDigest, third: ColumnDigest
) -> None:
    """Harm prevented: a digest that depends on how the rows were cut into files."""
    same = [
        Digest(n, n, (replace(c, type="Int64", least=n, greatest=n),))
        for n, c in enumerate((one, other, third))
    ]

    assert (same[0] + same[1]) + same[2] == same[2] + (same[1] + same[0])
    assert (same[0] + same[2]).columns[0].greatest == 2


def test_digests_of_other_columns_are_never_put_together() -> None:
    with pytest.raises(InternalError, match="other columns"):
        KEPT.digest + Digest(1, 1, ())


@pytest.mark.parametrize(
    ("bound", "of", "text"),
    [
        (None, "Int64", "none"),
        (-5, "Int64", "-5"),
        (1, "Bool", "true"),
        (-1, "Date32", "1969-12-31"),
        (9_999_999, "Date32", "9999999 days since 1970"),
        (10**18, "DateTime64(6, 'UTC')", "1000000000000000000 microseconds since 1970"),
        (-1250, "Decimal(38, 2)", "-12.50"),
        (7, "Decimal(38, 0)", "7"),
        (-(10**38) + 1, "Decimal(38, 37)", f"-9.{'9' * 37}"),
        (float("inf"), "Float64", "inf"),
        ("é'".encode(), "String", '"é\'"'),
        (b"\xff", "String", "0xff"),
        (b"ab", "FixedString(2)", "0x6162"),
    ],
)
def test_least_and_greatest_are_shown_as_people_write_them(
    bound: float | bytes | None, of: str, text: str
) -> None:
    assert shown(bound, of) == text


@pytest.mark.parametrize(
    "damage", ['{"format_version": 1}', "[]", "", '{"format_version":1,"rows":']
)
def test_a_damaged_digest_is_refused(damage: str) -> None:
    with pytest.raises(DestinationError, match=r"Cannot read a digest: .* damaged"):
        KeptDigest.from_json(damage)


def test_a_digest_of_a_newer_release_is_refused_by_its_format() -> None:
    newer = KEPT.to_json().replace('"format_version": 1', '"format_version": 2')

    with pytest.raises(DestinationError, match="digest of format 2: this release reads 1"):
        KeptDigest.from_json(newer)


def test_the_time_of_a_digest_is_shown() -> None:
    assert KEPT.time == "1970-01-01 00:00:00 UTC"
