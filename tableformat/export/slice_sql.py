"""Builds the SQL of a slice: its SELECT list, its ORDER BY, and the checks of its values.

`select_list` uses explicit expressions, never `SELECT *` (docs/reference/types.md has the types).
Every source column is qualified by `SOURCE_ALIAS`. Otherwise an alias equal to a key column would
take the key's place in ORDER BY, and ClickHouse would sort rows that it can read in order.

The checks find column values, at any depth, which the lake table cannot hold.
`mergetree/wire_types.py` defines the limits of each type (docs/reference/types.md, class C); this
module applies them to nested columns.

* Arrow does not detect some values: a map with a key twice, an instant with digits finer than
  microseconds. Their checks run before a slice is written (`always`).
* Other values fail when a file is written: strings that are not UTF-8, decimals with more digits
  than their type, numbers beyond long, instants outside the range of microseconds. Then the check
  counts the rows and shows one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tableformat.export.slices import DataCheck
from tableformat.iceberg.schema import MappedColumn, MappedColumns
from tableformat.mergetree.conversions import (
    DEFAULT,
    TWICE,
    Conversion,
    Handling,
    Limit,
    WireValue,
    parse_conversion,
)
from tableformat.mergetree.expression import qualify
from tableformat.mergetree.expression_parser import parse_sorting_key
from tableformat.mergetree.table import Column, Engine
from tableformat.mergetree.types import (
    AggregateFunction,
    Array,
    DataType,
    Dynamic,
    FixedString,
    Json,
    LowCardinality,
    Map,
    Nested,
    Nullable,
    Simple,
    SimpleAggregateFunction,
    Tuple,
)
from tableformat.mergetree.wire_types import (
    alternative_sql,
    alternatives_of,
    find_value,
    qualified,
    wire_expression,
)
from tableformat.names import option_name, quote_identifier
from tableformat.quantities import counted

__all__ = ["broken", "checks_sql", "data_checks", "order_by", "select_list"]

_Broken = dict[Limit, str]
_NO_CONVERSIONS: Final[Mapping[str, str]] = MappingProxyType({})


def select_list(columns: Iterable[Column], conversions: Mapping[str, str] = _NO_CONVERSIONS) -> str:
    """Return `expression AS column, ...` in the order of `columns`.

    Args:
        columns: stored columns that `iceberg.schema.map_columns` has accepted.
        conversions: `--convert` by column name.

    Raises:
        InternalError: a column's type has no mapping.
    """
    return ", ".join(
        f"{wire_expression(qualified(c.name), c.type, conversion=conversions.get(c.name, ''))}"
        f" AS {quote_identifier(c.name)}"
        for c in columns
    )


def order_by(engine: Engine) -> str:
    """Return the text after ORDER BY for the order of rows in parts, '' for none.

    A descending key needs NULLS FIRST, which is the order in parts; ORDER BY alone puts NULLs last
    in both directions. Without it ClickHouse would sort all rows again, into another order.

    Raises:
        UsageError: the key cannot be parsed.
    """
    return ", ".join(
        f"{qualify(key.expression)}{' DESC NULLS FIRST' if key.descending else ''}"
        for key in parse_sorting_key(engine.order_by or engine.primary_key)
    )


def data_checks(columns: MappedColumns) -> tuple[DataCheck, ...]:
    """Return the checks of all columns; those with `always` run before a slice is written."""
    return tuple(check for column in columns.columns for check in _of_column(column))


def checks_sql(checks: Sequence[DataCheck]) -> str:
    """Return the SELECT list of checks: for each the number of bad rows, and one bad value."""
    return ", ".join(
        f"countIf({check.bad_sql}), anyIf(toString({check.sample_sql}), {check.bad_sql})"
        for check in checks
    )


def broken(checks: Sequence[DataCheck], found: Sequence[object]) -> str:
    """Return the message for a result row of `checks_sql`, '' if there is no bad value."""
    return " ".join(
        f"column {check.column}: {check.what} in {counted(int(str(rows)), 'row')}, "
        f"for example {sample}. "
        f"{check.way_round[:1].upper()}{check.way_round[1:]}."
        for check, rows, sample in zip(checks, found[::2], found[1::2], strict=True)
        if rows
    )


def _of_column(column: MappedColumn) -> Iterator[DataCheck]:
    sql, of = qualified(column.name), column.source.type
    conversion = parse_conversion(column.conversion)
    for limit, bad in _broken(sql, of, conversion, depth=0).items():
        yield DataCheck(
            column=column.name,
            what=limit.what,
            bad_sql=bad,
            sample_sql=_sample(sql, of, conversion),
            way_round=limit.way_round.replace("{column}", option_name(column.name)),
            always=limit.always,
        )


def _broken(sql: str, of: DataType, conversion: Conversion, *, depth: int) -> _Broken:
    """Return, by limit, SQL that is true if a value inside `sql` is outside the limit."""
    found = find_value(of, conversion)
    if isinstance(found, WireValue):
        return {found.limit: found.bad.replace("{}", sql)} if found.limit else {}
    match of:
        case _ if found is Handling.REFUSED:
            return {}
        case LowCardinality(inner) | SimpleAggregateFunction(_, inner):
            return _broken(sql, inner, conversion, depth=depth)
        case Nullable(inner):
            # Not every function of a NULL is NULL: splitByChar gives an array of an empty text.
            return {
                limit: f"(isNotNull({sql}) AND ifNull({bad}, 0))"
                for limit, bad in _broken(sql, inner, conversion, depth=depth).items()
            }
        case Array(inner):
            return _any_element(sql, inner, conversion, depth)
        case Nested(elements):
            return _any_element(sql, Tuple(elements), conversion, depth)
        case Tuple(elements):
            return _either(
                _broken(f"tupleElement({sql}, {i})", inner, conversion, depth=depth)
                for i, (_, inner) in enumerate(elements, start=1)
            )
        case Map(key, value):
            return _either(
                [
                    {TWICE: _twice(sql, key, conversion)},
                    _any_element(f"mapKeys({sql})", key, conversion, depth),
                    _any_element(f"mapValues({sql})", value, conversion, depth),
                ]
            )
        case AggregateFunction(_, value) if value is not None:
            return _broken(f"finalizeAggregation({sql})", value, DEFAULT, depth=depth)
        case _:
            return _either(
                _broken(alternative_sql(sql, inner), _maybe(inner), conversion, depth=depth)
                for _, inner in alternatives_of(of)
            )


def _any_element(sql: str, inner: DataType, conversion: Conversion, depth: int) -> _Broken:
    element = f"x{depth}"
    return {
        limit: f"arrayExists({element} -> {bad}, {sql})"
        for limit, bad in _broken(element, inner, conversion, depth=depth + 1).items()
    }


def _either(parts: Iterable[_Broken]) -> _Broken:
    conditions: dict[Limit, list[str]] = {}
    for part in parts:
        for limit, bad in part.items():
            conditions.setdefault(limit, []).append(bad)
    return {
        limit: f"({' OR '.join(found)})" if len(found) > 1 else found[0]
        for limit, found in conditions.items()
    }


def _twice(sql: str, key: DataType, conversion: Conversion) -> str:
    keys = f"mapKeys({sql})"
    if conversion.word == "truncate":
        # Keys that differ in ClickHouse may be equal in the lake.
        keys = wire_expression(keys, Array(key), conversion=str(conversion))
    return f"length({keys}) != length(arrayDistinct({keys}))"


def _maybe(of: DataType) -> DataType:
    """Return the type of an alternative of a Variant: NULL or empty for rows of other types."""
    return of if isinstance(of, Array | Map | Nested | Nullable) else Nullable(of)


def _sample(sql: str, of: DataType, conversion: Conversion) -> str:
    """Return SQL that shows a value; values that may not be text are shown in hex."""
    while isinstance(of, Nullable | LowCardinality | SimpleAggregateFunction):
        of = of.of
    if isinstance(of, AggregateFunction) and of.value and conversion.word == "finalize":
        return _sample(f"finalizeAggregation({sql})", of.value, DEFAULT)
    if of == Simple("String"):
        return f"hex(substring({sql}, 1, 32))"
    if _holds_bytes(of):
        return f"hex(substring(toString({sql}), 1, 64))"
    return f"substring(toString({sql}), 1, 200)"


def _holds_bytes(of: DataType) -> bool:
    match of:
        case Nullable(inner) | LowCardinality(inner) | Array(inner):
            return _holds_bytes(inner)
        case SimpleAggregateFunction(_, inner):
            return _holds_bytes(inner)
        case Tuple(elements) | Nested(elements):
            return any(_holds_bytes(inner) for _, inner in elements)
        case Map(key, value):
            return _holds_bytes(key) or _holds_bytes(value)
        case FixedString() | AggregateFunction() | Json() | Dynamic():
            return True
        case _ if alternatives := alternatives_of(of):
            return any(_holds_bytes(inner) for _, inner in alternatives)
        case _:
            return of == Simple("String")
