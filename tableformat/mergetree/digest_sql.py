"""Builds the SQL of a digest (docs/spec/digest.md): one aggregating pass in constant memory.

It defines which bytes of a value are hashed, and parses the result. Both sides use the same
functions, so a value has the same hash in a part (as its wire type) and in a file (as the type
that a Parquet column is read as, where everything is Nullable). A file does not distinguish a NULL
array from an empty one, nor a NULL tuple from a tuple of NULLs; both have the same hash, and NULLs
are counted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tableformat.digest import Bound, ColumnDigest, Digest
from tableformat.errors import InternalError
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import (
    Array,
    DataType,
    DateTime64,
    Decimal,
    FixedString,
    Map,
    Nullable,
    Simple,
    Tuple,
    render_type,
)
from tableformat.mergetree.wire_types import qualified, wire_expression, wire_type

__all__ = [
    "DigestColumn",
    "Tally",
    "digest_sql",
    "digest_type",
    "empty_digest",
    "in_order",
    "read_digest",
    "rows_sql",
    "source_columns",
]

_INTEGERS: Final = frozenset({"Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32"})
_FLOATS: Final = frozenset({"Float32", "Float64"})
_NAN: Final = "toUInt64(0x7ff8000000000000)"
_PREFIX: Final = 64
_FIGURES: Final = 4
_TALLIES: Final = 2


@dataclass(frozen=True, slots=True)
class DigestColumn:
    """A column to digest: `sql` computes its value of the ClickHouse type `type`.

    `canonical` is the text of its canonical type, the same on both sides.
    """

    name: str
    sql: str
    type: DataType
    canonical: str


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of non-NULL values inside a column, and their sum, for a second reader.

    The sum is modulo 2 ** 64; `docs/spec/digest.md` defines it for each type.
    """

    values: int
    total: int


def source_columns(
    columns: Sequence[Column], conversions: Mapping[str, str]
) -> tuple[DigestColumn, ...]:
    """Return the digest columns of a MergeTree table's exported columns, sorted by name.

    Args:
        columns: stored columns that `iceberg.schema.map_columns` has accepted.
        conversions: `--convert` by column name.

    Raises:
        InternalError: a column's type has no mapping.
    """
    found = []
    for column in columns:
        conversion = conversions.get(column.name, "")
        wire = wire_type(column.type, conversion=conversion)
        sql = wire_expression(qualified(column.name), column.type, conversion=conversion)
        # The expression may yield an encoding of the wire type, such as LowCardinality.
        cast = f"CAST({sql} AS {render_type(wire)})"
        found.append(DigestColumn(column.name, cast, wire, render_type(digest_type(wire))))
    return in_order(found)


def in_order(columns: Sequence[DigestColumn]) -> tuple[DigestColumn, ...]:
    """Return the columns in the order in which rows are hashed: by the bytes of their names."""
    return tuple(sorted(columns, key=lambda c: c.name.encode("utf-8", "surrogateescape")))


def digest_type(of: DataType) -> DataType:
    """Return the canonical type of a wire type, which ignores width and nullability.

    Raises:
        InternalError: it is no wire type.
    """
    match of:
        case Nullable(inner):
            return digest_type(inner)
        case Simple(name) if name in _INTEGERS or name == "UInt64":
            return Simple("Int64")
        case Simple(name) if name in _FLOATS:
            return Simple("Float64")
        case Simple("Bool" | "String" | "Date32"):
            return of
        case Simple("UUID"):
            return FixedString(16)
        case Decimal(_, scale):
            return Decimal(38, scale)
        case FixedString():
            return of
        case DateTime64(6, "UTC"):
            return of
        case Array(inner):
            return Array(digest_type(inner))
        case Map(key, value):
            return Map(digest_type(key), digest_type(value))
        case Tuple(elements):
            return Tuple(tuple((name, digest_type(inner)) for name, inner in elements))
        case _:
            message = (
                f"Cannot digest a value of the type {of!r}: it is no wire type. This is a bug, "
                "please report it."
            )
            raise InternalError(message)


def digest_sql(columns: Sequence[DigestColumn], table: str, *, group: str, tallies: bool) -> str:
    """Return the query of a digest, one row for each value of `group`, which is the first column.

    Args:
        columns: at least one, in order.
        table: the text after FROM, WHERE included.
        group: the SQL to group rows by.
        tallies: whether to add the tallies of a second reader.
    """
    values = ", ".join(f"{c.sql} AS {_name('v', i)}" for i, c in enumerate(columns))
    hashes = ", ".join(
        f"{_hash(_name('v', i), c.type)} AS {_name('h', i)}" for i, c in enumerate(columns)
    )
    row = f"sipHash64({', '.join(_name('h', i) for i in range(len(columns)))})"
    figures = [
        figure for i, c in enumerate(columns) for figure in _figures(i, c.type, tallies=tallies)
    ]
    return (
        f"SELECT mergeberg_group, count(), sum({row}), {', '.join(figures)} FROM"
        f" (SELECT *, {hashes} FROM"
        f" (SELECT {group} AS mergeberg_group, {values} FROM {table}))"
        " GROUP BY mergeberg_group"
    )


def rows_sql(columns: Sequence[DigestColumn], table: str, *, group: str) -> str:
    """Return the query of the row count and the checksum, one row for each value of `group`."""
    values = ", ".join(f"{c.sql} AS {_name('v', i)}" for i, c in enumerate(columns))
    row = f"sipHash64({', '.join(_hash(_name('v', i), c.type) for i, c in enumerate(columns))})"
    return (
        f"SELECT mergeberg_group, count(), sum({row}) FROM"
        f" (SELECT {group} AS mergeberg_group, {values} FROM {table})"
        " GROUP BY mergeberg_group"
    )


def read_digest(
    columns: Sequence[DigestColumn], row: Sequence[object], *, tallies: bool
) -> tuple[Digest, tuple[Tally, ...]]:
    """Parse one row of the result of `digest_sql`, without its group.

    Raises:
        InternalError: a figure has another form.
    """
    rows, checksum, *rest = row
    each = _FIGURES + (_TALLIES if tallies else 0)
    found, counted = [], []
    for i, column in enumerate(columns):
        nulls, summed, least, greatest, *more = rest[i * each : (i + 1) * each]
        bounds = (_bound(least, column.canonical), _bound(greatest, column.canonical))
        found.append(
            ColumnDigest(column.name, column.canonical, _whole(nulls), *bounds, _whole(summed))
        )
        counted.extend([Tally(_whole(more[0]), _whole(more[1]))] if more else [])
    return Digest(_whole(rows), _whole(checksum), tuple(found)), tuple(counted)


def empty_digest(columns: Sequence[DigestColumn]) -> Digest:
    """Return the digest of zero rows."""
    return Digest(0, 0, tuple(ColumnDigest(c.name, c.canonical, 0, None, None, 0) for c in columns))


def _figures(number: int, of: DataType, *, tallies: bool) -> list[str]:
    """Return the aggregates of one column, in the order in which `read_digest` parses them."""
    value, hashed = _name("v", number), _name("h", number)
    plain = of.of if isinstance(of, Nullable) else of
    bounds = (_bound_sql(choose, value, plain) for choose in ("min", "max"))
    figures = [f"sum({_nulls(value, of)})", f"sum({hashed})", *bounds]
    if tallies:
        figures += [f"sum({_values(value, of)})", f"sum({_total(value, of)})"]
    return figures


def _bound_sql(choose: str, value: str, of: DataType) -> str:
    """Return the least (`min`) or greatest (`max`) value as integer or hex; NULL for none."""
    match of:
        case Array() | Map() | Tuple():
            return "NULL"
        case Simple(name) if name in _FLOATS:
            # NaN has no order; adding zero turns -0 into 0.
            bound = f"{choose}OrNullIf({value} + 0., NOT isNaN({value}))"
            return f"reinterpretAsUInt64(toFloat64({bound}))"
        case Simple("String") | FixedString():
            return f"hex({choose}OrNull(substring({value}, 1, {_PREFIX})))"
        case Simple("UUID"):
            return f"hex({choose}OrNull(UUIDToNum({value})))"
        case Decimal(_, scale):
            wide = render_type(Nullable(Decimal(38, scale)))
            return f"reinterpret(CAST({choose}OrNull({value}) AS {wide}), 'Int128')"
        case DateTime64():
            return f"toUnixTimestamp64Micro({choose}OrNull({value}))"
        case _:
            # Int128: in Int64 the greatest values of UInt64 would be negative.
            return f"toInt128({choose}OrNull({value}))"


def _hash(value: str, of: DataType, depth: int = 0) -> str:
    """Return the SQL of a value's 64-bit hash; 0 for a NULL that is no array, tuple or map."""
    match of:
        case Nullable(Tuple() as inner):
            inside = _hash(f"assumeNotNull({value})", inner, depth)
            return f"if(isNull({value}), {_hash_of_null(inner)}, {inside})"
        case Nullable(inner):
            inside = _hash(f"assumeNotNull({value})", inner, depth)
            return f"if(isNull({value}), toUInt64(0), {inside})"
        case Array(inner):
            x, n = _element(depth)
            each = f"sipHash64(toUInt64({n}), {_hash(x, inner, depth + 1)})"
            listed = f"arraySum(({x}, {n}) -> {each}, {value}, arrayEnumerate({value}))"
            return f"sipHash64(toUInt64(length({value})), toUInt64({listed}))"
        case Map(key, item):
            return _hash(_entries(value, of), Array(Tuple(((None, key), (None, item)))), depth)
        case Tuple(elements):
            inside = ", ".join(
                _hash(f"tupleElement({value}, {i})", inner, depth)
                for i, (_, inner) in enumerate(elements, start=1)
            )
            return f"sipHash64({inside})"
        case Simple(name) if name in _FLOATS:
            return f"sipHash64({_float_bits(value)})"
        case Simple("UUID"):
            return f"sipHash64(UUIDToNum({value}))"
        case Simple("String" | "UInt64") | FixedString():
            return f"sipHash64({value})"
        case _:
            return f"sipHash64({_integer(value, of)})"


def _hash_of_null(of: DataType) -> str:
    """Return the hash of NULL as a file shows it: a tuple of NULLs, an empty array or map."""
    match of:
        case Tuple(elements):
            return f"sipHash64({', '.join(_hash_of_null(inner) for _, inner in elements)})"
        case Nullable(Tuple() as inner):
            return _hash_of_null(inner)
        case Array() | Map():
            return "sipHash64(toUInt64(0), toUInt64(0))"
        case _:
            return "toUInt64(0)"


def _nulls(value: str, of: DataType, depth: int = 0) -> str:
    """Return the SQL of the number of NULLs in a value, itself included."""
    match of:
        case Nullable(Tuple() as inner):
            inside = _nulls(f"assumeNotNull({value})", inner, depth)
            return f"if(isNull({value}), toUInt64(1), {inside})"
        case Nullable():
            return f"toUInt64(isNull({value}))"
        case _:
            return _inside(_nulls, "toUInt64(0)", value, of, depth)


def _values(value: str, of: DataType, depth: int = 0) -> str:
    """Return the SQL of the number of primitive, non-NULL values in a value."""
    match of:
        case Nullable(inner):
            inside = _values(f"assumeNotNull({value})", inner, depth)
            return f"if(isNull({value}), toUInt64(0), {inside})"
        case _:
            return _inside(_values, "toUInt64(1)", value, of, depth)


def _total(value: str, of: DataType, depth: int = 0) -> str:
    """Return the SQL of the sum over the values in a value, modulo 2 ** 64."""
    match of:
        case Nullable(inner):
            inside = _total(f"assumeNotNull({value})", inner, depth)
            return f"if(isNull({value}), toUInt64(0), {inside})"
        case Simple(name) if name in _FLOATS:
            return _inside(_total, _float_bits(value), value, of, depth)
        case Simple("String" | "UUID") | FixedString():
            length = "toUInt64(16)" if of == Simple("UUID") else f"toUInt64(length({value}))"
            return _inside(_total, length, value, of, depth)
        case Array() | Map() | Tuple():
            return _inside(_total, "", value, of, depth)
        case _:
            return f"toUInt64({_integer(value, of)})"


def _inside(
    measure: Callable[[str, DataType, int], str], plain: str, value: str, of: DataType, depth: int
) -> str:
    """Return the SQL of a measure summed over nested values; `plain` for a primitive value."""
    match of:
        case Array(inner):
            x, _ = _element(depth)
            return f"toUInt64(arraySum({x} -> {measure(x, inner, depth + 1)}, {value}))"
        case Map(key, item):
            listed = Array(Tuple(((None, key), (None, item))))
            return _inside(measure, plain, _entries(value, of), listed, depth)
        case Tuple(elements):
            inside = (
                measure(f"tupleElement({value}, {i})", inner, depth)
                for i, (_, inner) in enumerate(elements, start=1)
            )
            return f"({' + '.join(inside)})"
        case _:
            return plain


def _integer(value: str, of: DataType) -> str:
    """Return the integer of a value whose type is neither float nor bytes."""
    match of:
        case DateTime64():
            return f"toUnixTimestamp64Micro({value})"
        case Decimal(_, scale):
            return f"reinterpret(CAST({value} AS {render_type(Decimal(38, scale))}), 'Int128')"
        case _:
            return f"toInt64({value})"


def _float_bits(value: str) -> str:
    return f"if(isNaN({value}), {_NAN}, reinterpretAsUInt64(toFloat64({value})))"


def _entries(value: str, of: Map) -> str:
    pairs = Array(Tuple(((None, of.key), (None, of.value))))
    return f"CAST({value} AS {render_type(pairs)})"


def _element(depth: int) -> tuple[str, str]:
    """Return the names of an element and its index inside a lambda."""
    return f"mergeberg_x{depth}", f"mergeberg_n{depth}"


def _name(what: str, number: int) -> str:
    return f"mergeberg_{what}{number}"


def _bound(raw: object, canonical: str) -> Bound | None:
    if raw is None:
        return None
    if isinstance(raw, str):
        return bytes.fromhex(raw)
    number = _whole(raw)
    if canonical == "Float64":
        (value,) = struct.unpack("<d", struct.pack("<Q", number))
        return float(value)
    return number


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    message = f"A digest has the figure {value!r}; this is a bug, please report it."
    raise InternalError(message)
