"""A table's conversions are permanent, and so is what its values mean."""

from __future__ import annotations

import pytest
from hypothesis import given as given_examples
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from tableformat.errors import RefusedError
from tableformat.iceberg.existing_table import (
    ExistingTable,
    check_existing,
    conversions_in_force,
)
from tableformat.iceberg.partition_spec import DerivedSpec
from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.schema import TypeMapping, map_columns, meanings
from tableformat.iceberg.schema_evolution import evolve
from tableformat.mergetree.conversions import parse_conversion
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import DataType, DateTime64, Simple, parse_type
from tableformat.messages import plain
from tests.strategies.mapping import column_of, table_of
from tests.strategies.types import data_types

MADE = table_of(
    column_of("a", Simple("UInt64")),
    column_of("s", Simple("String")),
    column_of("t", DateTime64(9, "UTC")),
)
REMEMBERED = RememberedSource(MADE, {"a": "long", "t": "truncate"})


def in_force(given: dict[str, str], table: MergeTreeTable = MADE) -> dict[str, str]:
    return dict(conversions_in_force("db.t to lake.n.t", table, given, REMEMBERED))


def test_what_is_left_out_is_as_the_table_was_made() -> None:
    assert in_force({}) == {"a": "long", "t": "truncate"}
    assert in_force({"a": "long"}) == {"a": "long", "t": "truncate"}


def test_a_new_or_foreign_table_has_only_the_given_conversions() -> None:
    assert conversions_in_force("db.t", MADE, {"s": "binary"}, None) == {"s": "binary"}


def test_a_default_conversion_may_be_named() -> None:
    """String is text by default, too."""
    assert in_force({"s": "string"})["s"] == "string"


def test_finer_times_may_be_cut_off_in_a_table_that_was_made_for_whole_ones() -> None:
    """The refusal of a partition with nanoseconds offers just that; whole values stay the same."""
    made = RememberedSource(MADE, {})

    found = conversions_in_force("db.t", MADE, {"t": "truncate"}, made)

    assert dict(found) == {"t": "truncate"}


def test_a_column_that_the_table_does_not_have_yet_may_be_converted() -> None:
    more = table_of(*MADE.columns, column_of("new", Simple("String")))

    assert in_force({"new": "binary"}, more)["new"] == "binary"


def test_what_the_source_no_longer_has_or_has_as_another_type_is_left_out() -> None:
    """The comparison of structures then decides whether the column fits."""
    assert in_force({}, table_of(column_of("a", Simple("Int64")))) == {}


def test_all_that_contradicts_is_refused_at_once_with_both_words() -> None:
    """Harm prevented: whole nanoseconds in one file and cut ones in the next, under one name."""
    with pytest.raises(RefusedError, match="2 reasons") as refused:
        in_force({"s": "binary", "t": "string"})

    assert refused.value.code == 36
    assert (
        "--convert s=binary was given, but the destination's column s was created without"
        in str(refused.value)
    )
    assert "column t was created with --convert t=truncate; leave it out" in str(refused.value)


def of_types(given: dict[str, str], **columns: str) -> dict[str, str]:
    """Return the conversions of a new table's columns, each of a type."""
    made = table_of(*(column_of(name, parse_type(text)) for name, text in columns.items()))
    return dict(conversions_in_force("db.t", made, given, None))


@pytest.mark.parametrize(
    "text",
    [
        "UInt64",
        "Nullable(UInt64)",
        "LowCardinality(UInt64)",
        "Array(Nullable(UInt64))",
        "Map(String, UInt64)",
        "Map(UInt64, Array(UInt64))",
        "Tuple(a UInt8, b UInt64)",
        "Nested(a UInt64)",
        "Variant(String, UInt64)",
        "SimpleAggregateFunction(sum, UInt64)",
    ],
)
def test_the_conversion_of_a_type_is_one_of_each_column_that_has_it(text: str) -> None:
    """Harm prevented: the number in an array is a decimal for ever, and nobody asked for that."""
    assert of_types({"UInt64": "long"}, c=text, other="Int64") == {"c": "long"}


@pytest.mark.parametrize("text", ["Int64", "AggregateFunction(sum, UInt64)", "String"])
def test_a_column_without_the_type_is_left_alone(text: str) -> None:
    assert of_types({"UInt64": "long"}, c=text) == {}


def test_a_columns_own_conversion_wins_and_default_is_none() -> None:
    given = {"UInt64": "long", "b": "string", "c": "default"}

    found = of_types(given, a="UInt64", b="UInt64", c="UInt64")

    assert found == {"a": "long", "b": "string", "c": "default"}


def test_a_name_that_is_both_a_column_and_a_type_is_the_column() -> None:
    """Harm prevented: a table with a column `UUID` gets all of its ids as text."""
    assert of_types({"UUID": "string"}, UUID="UUID", other="UUID") == {"UUID": "string"}


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("DateTime64", {"a", "b", "c"}),
        ("DateTime64(9)", {"b", "c"}),
        ("DateTime64(9, 'UTC')", {"c"}),
        ("DateTime64(3)", {"a"}),
    ],
)
def test_a_type_without_arguments_stands_for_all_of_its_name(name: str, there: set[str]) -> None:
    columns = {"a": "DateTime64(3)", "b": "DateTime64(9)", "c": "DateTime64(9, 'UTC')"}

    assert of_types({name: "long"}, **columns) == dict.fromkeys(there, "long")


@pytest.mark.parametrize(
    ("name", "how", "text"),
    [
        ("Enum", "long", "Enum16('a' = 1)"),
        ("Enum8", "long", "Enum8('a' = 1)"),
        ("Decimal", "decimal(20,2)", "Decimal(9, 2)"),
        ("Decimal(9, 2)", "decimal(20,2)", "Array(Decimal(9, 2))"),
        ("FixedString", "string", "FixedString(3)"),
        ("Variant", "json", "Variant(String, UInt64)"),
        ("AggregateFunction", "state", "AggregateFunction(sum, UInt64)"),
        ("IntervalDay", "long", "IntervalDay"),
        ("Nullable(UInt64)", "long", "Nullable(UInt64)"),
    ],
)
def test_every_type_with_a_conversion_may_be_named(name: str, how: str, text: str) -> None:
    assert of_types({name: how}, c=text) == {"c": how}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Tuple(UInt64, DateTime64(3))", "UInt64=long would also convert DateTime64(3) inside it"),
        ("Map(UInt64, Enum8('a' = 1))", "would also convert Enum8('a' = 1) inside it"),
    ],
)
def test_no_other_type_in_a_column_is_converted_unasked(text: str, message: str) -> None:
    """Harm prevented: `UInt64=long` makes ticks of a time."""
    with pytest.raises(RefusedError) as refused:
        of_types({"UInt64": "long"}, c=text)

    assert message in str(refused.value)
    assert "choose --convert c=HOW, or --convert c=default for none" in str(refused.value)
    assert of_types({"UInt64": "long", "c": "long"}, c=text) == {"c": "long"}


def test_a_type_that_has_the_conversion_by_default_stays_as_it_is() -> None:
    """A String is text in any case."""
    assert of_types({"UInt64": "string"}, c="Map(String, UInt64)") == {"c": "string"}


def test_types_of_one_column_are_converted_together_or_it_is_asked_which() -> None:
    both = "Tuple(UInt64, UUID)"

    found = of_types({"UInt64": "string", "UUID": "string"}, c=both)
    with pytest.raises(RefusedError, match="are different, and a column has one conversion"):
        of_types({"UInt64": "long", "UUID": "string"}, c=both)

    assert found == {"c": "string"}


def test_a_word_that_the_type_does_not_take_is_refused_with_those_it_takes() -> None:
    with pytest.raises(RefusedError, match=r"UInt64=lnog does not apply .*UInt64: long, string"):
        of_types({"UInt64": "lnog"}, c="UInt64")


def test_a_table_remembers_the_conversion_of_a_type_as_that_of_its_columns() -> None:
    assert in_force({"UInt64": "long"}) == {"a": "long", "t": "truncate"}
    assert in_force({"UInt64": "default", "a": "long"})["a"] == "long"


def test_the_conversion_of_a_type_contradicts_a_table_as_a_columns_does() -> None:
    """Harm prevented: the option is given every night, and the column is a decimal for ever."""
    given = {"UInt64": "string", "String": "binary"}

    with pytest.raises(RefusedError, match="2 reasons") as refused:
        in_force(given)

    text = str(refused.value)
    assert "--convert UInt64=string was given, but the destination's column a was created" in text
    assert "keep it with --convert a=long, or export to another destination" in text
    assert "keep it with --convert s=default, or export to another destination" in text
    assert in_force({**given, "a": "long", "s": "default"})["a"] == "long"


def refusals(
    before: DataType,
    now: DataType,
    conversion: str = "",
    *,
    remembers: bool = True,
    tree: bool = False,
) -> tuple[str, ...]:
    """Return what an export says of a column that had another type when the table was made.

    Args:
        before: the type with which the lake table was made.
        now: the type at the export.
        conversion: that of the lake table.
        remembers: whether the lake table stores its source.
        tree: whether it is a tree of Hive directories.
    """
    made, table = table_of(column_of("c", before)), table_of(column_of("c", now))
    given = {"c": conversion} if conversion else {}
    remembered = RememberedSource(made, given)
    there = map_columns(made, given)
    used = conversions_in_force("db.t", table, {}, remembered)
    mapped = map_columns(table, used)
    known = remembered if remembers else None
    existing = ExistingTable(
        "lake.n.t", there.schema, UNPARTITIONED_PARTITION_SPEC, 2, remembered=known, tree=tree
    )
    return tuple(map(plain, check_existing(existing, mapped, DerivedSpec((), ""))))


OTHER_MEANINGS = [
    ("DateTime64(9)", "DateTime64(3)", "long", "ticks of 10^-9 s since 1970"),
    ("DateTime64(3)", "DateTime64(9, 'UTC')", "long", "ticks of 10^-3 s since 1970"),
    ("DateTime64(3)", "Int64", "long", "ticks of 10^-3 s since 1970"),
    ("DateTime64(3)", "UInt64", "long", "ticks of 10^-3 s since 1970"),
    ("DateTime64(3)", "String", "string", "text of a DateTime64 in UTC"),
    ("Dynamic", "String", "string", "JSON text of a value of any type"),
    ("Dynamic", "JSON", "json", "JSON text of a value of any type"),
    ("Variant(String, UInt64)", "String", "string", "JSON text of a value of any type"),
    ("IntervalSecond", "IntervalMinute", "", "number of seconds"),
    ("IntervalMonth", "Int64", "", "number of months"),
    ("UUID", "FixedString(16)", "binary", "bytes of a UUID in network order"),
    ("UUID", "IPv6", "binary", "bytes of a UUID in network order"),
    ("AggregateFunction(sum, UInt64)", "AggregateFunction(avg, UInt64)", "state", "state of "),
    ("Int64", "IntervalSecond", "", "plain values of kind integer"),
]
SAME_MEANINGS = [
    ("UInt32", "UInt64", ""),
    ("UInt64", "UInt32", "long"),
    ("Int32", "Int16", ""),
    ("String", "FixedString(3)", "string"),
    ("FixedString(3)", "String", "string"),
    ("String", "LowCardinality(String)", ""),
    ("String", "Enum8('a' = 1)", ""),
    ("Enum8('a' = 1)", "Enum16('a' = 1, 'b' = 300)", ""),
    ("Enum16('a' = 1)", "Int16", "long"),
    ("IPv4", "UInt32", "long"),
    ("UUID", "String", "string"),
    ("JSON", "String", "json"),
    ("Dynamic", "Variant(String, UInt64)", "string"),
    ("DateTime64(9)", "DateTime64(3)", ""),
    ("DateTime64(9)", "DateTime64(3)", "string"),
    ("DateTime64(3)", "DateTime('UTC')", ""),
    ("DateTime64(9)", "DateTime64(9, 'Asia/Tokyo')", "long"),
    ("Time", "IntervalSecond", ""),
    ("Point", "Tuple(x Float64, y Float64)", ""),
]


@pytest.mark.parametrize(("before", "now", "conversion", "held"), OTHER_MEANINGS)
@pytest.mark.parametrize(
    ("around", "place"),
    [
        ("{}", "c"),
        ("Array({})", "c.element"),
        ("Tuple(a UInt8, b Array({}))", "c.b.element"),
        ("Map(String, {})", "c.value"),
        ("Nested(a UInt8, b {})", "c.element.b"),
    ],
)
def test_values_of_two_meanings_are_refused_at_any_depth(
    before: str, now: str, conversion: str, held: str, around: str, place: str
) -> None:
    """Harm prevented: nanoseconds and milliseconds in one column of numbers."""
    types = (parse_type(around.format(before)), parse_type(around.format(now)))

    (text,) = refusals(*types, conversion)
    (of_tree,) = refusals(*types, conversion, tree=True)

    assert text.startswith(f"Tables have different structure: column {place} holds {held}")
    assert "in the destination, and the export would add " in text
    assert text.endswith("export to another table, or add a column of another name in ClickHouse")
    assert of_tree.split("; ") == [
        text.split("; ", maxsplit=1)[0],
        "export to another tree, or to an Iceberg table",
    ]
    assert refusals(types[0], types[0], conversion) == ()
    assert refusals(*types, conversion, remembers=False) == ()


@pytest.mark.parametrize(("before", "now", "conversion"), SAME_MEANINGS)
@pytest.mark.parametrize("around", ["{}", "Array({})", "Map(String, {})", "Tuple(a {})"])
def test_values_of_one_meaning_are_taken_whatever_the_type(
    before: str, now: str, conversion: str, around: str
) -> None:
    types = (parse_type(around.format(before)), parse_type(around.format(now)))

    assert [text for text in refusals(*types, conversion) if " holds " in text] == []


def test_a_type_that_does_not_fit_is_refused_once() -> None:
    (text,) = refusals(parse_type("DateTime64(3)"), parse_type("String"), "long")

    assert "is string for ClickHouse and long in the destination" in text


@pytest.mark.parametrize(
    ("before", "now"), [("Int64", "UInt64"), ("String", "UUID"), ("FixedString(16)", "UUID")]
)
def test_no_conversion_is_advised_that_the_table_was_made_without(before: str, now: str) -> None:
    """Harm prevented: the user follows the advice, and the next refusal says to undo it."""
    types = parse_type(before), parse_type(now)

    (text,) = refusals(*types, "")
    (of_stranger,) = refusals(*types, "", remembers=False)

    assert text.endswith("in the destination; export to another table")
    assert "; --convert c=" in of_stranger


def test_a_column_that_the_lake_no_longer_has_may_return_with_any_meaning() -> None:
    """Harm prevented: dropping the lake's column is no way out."""
    made = table_of(column_of("c", DateTime64(9, "UTC")), column_of("k", Simple("Int8")))
    source = table_of(column_of("c", DateTime64(3, "UTC")), made.columns[1])
    now = map_columns(source, {"c": "long"})
    lake = map_columns(table_of(column_of("k", Simple("Int8")))).schema
    grown = evolve(lake, UNPARTITIONED_PARTITION_SPEC, now, 1)
    assert grown is not None
    new = frozenset(grown.schema.field_ids) - frozenset(lake.field_ids)
    existing = ExistingTable(
        "lake.n.t",
        grown.schema,
        UNPARTITIONED_PARTITION_SPEC,
        2,
        remembered=RememberedSource(made, {"c": "long"}),
        new_fields=new,
    )

    assert check_existing(existing, now, DerivedSpec((), "")) == ()


@given_examples(
    of=data_types,
    conversion=st.sampled_from(["", "long", "string", "binary", "json", "struct", "wkb", "state"]),
)
def test_a_column_whose_type_stays_is_never_refused(of: DataType, conversion: str) -> None:
    mapping = TypeMapping(conversion)
    mapping.map(of)
    if mapping.refused or (conversion and not mapping.converted):
        return
    try:
        map_columns(table_of(column_of("c", of)), {"c": conversion} if conversion else {})
    except RefusedError:
        return

    assert refusals(of, of, conversion) == ()


def test_meanings_are_equal_or_not_in_any_order() -> None:
    """Two that one type agrees with agree with each other: the order of exports does not matter."""
    words = ["", "long", "string", "binary", "json", "struct", "wkb", "state"]
    names = {name for pair in (*OTHER_MEANINGS, *SAME_MEANINGS) for name in pair[:2]}
    each = [
        found[()]
        for name in sorted(names)
        for word in words
        if () in (found := meanings(parse_type(name), parse_conversion(word)))
    ]

    for one in each:
        assert not one.contradicts(one)
        for other in each:
            assert one.contradicts(other) == other.contradicts(one)
            if one.kind == other.kind and not one.contradicts(other):
                assert [one.contradicts(a) for a in each] == [other.contradicts(a) for a in each]
