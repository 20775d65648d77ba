"""With --strict an existing lake table has to have the same columns in the same order."""

from __future__ import annotations

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    IntegerType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from tableformat.iceberg.existing_table import ExistingTable, check_existing
from tableformat.iceberg.partition_spec import derive_spec
from tableformat.iceberg.schema import map_columns
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import parse_type
from tableformat.messages import plain
from tests.strategies.mapping import table_of


def field(number: int, name: str, of: IcebergType) -> NestedField:
    return NestedField(number, name, of, required=False)


def strictly(columns: dict[str, str], *lake: NestedField) -> tuple[str, ...]:
    table = table_of(*(Column(n, parse_type(t), t) for n, t in columns.items()))
    mapped = map_columns(table)
    spec = derive_spec(table, mapped)
    there = ExistingTable("lake.n.t", Schema(*lake), UNPARTITIONED_PARTITION_SPEC, 2)
    assert check_existing(there, mapped, spec) == ()
    return tuple(map(plain, check_existing(there, mapped, spec, strict=True)))


def test_strict_refuses_another_order_and_columns_of_the_destination_alone() -> None:
    """Harm prevented: rows are read by position in tables that count as equal."""
    a, b, more = (field(n, name, IntegerType()) for n, name in enumerate(("a", "b", "more"), 1))
    ours = {"a": "Int32", "b": "Int32"}

    way = ", which --strict refuses; leave --strict out to allow it"
    alone = "column more is in the destination alone"
    order = "the columns are a, b in the source, and b, a in the destination, in this order"

    assert strictly(ours, a, b) == ()
    assert strictly(ours, more, b, a) == tuple(
        f"Tables have different structure: {text}{way}" for text in (alone, order)
    )


def test_strict_looks_into_tuples_arrays_and_maps() -> None:
    def pair(first: int) -> StructType:
        return StructType(field(first, "y", IntegerType()), field(first + 1, "x", IntegerType()))

    ours = {
        "t": "Tuple(x Int32, y Int32)",
        "l": "Array(Tuple(x Int32, y Int32))",
        "m": "Map(String, Tuple(x Int32, y Int32))",
    }
    lake = (
        field(1, "t", pair(7)),
        field(2, "l", ListType(3, pair(9), element_required=False)),
        field(4, "m", MapType(5, StringType(), 6, pair(11), value_required=False)),
    )

    found = strictly(ours, *lake)

    assert [text.split(" are ")[0].split(": ")[1] for text in found] == [
        "the members of t", "the members of l.element", "the members of m.value",
    ]  # fmt: skip
