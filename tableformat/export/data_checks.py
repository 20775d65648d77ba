"""Class C of the mapping: what ClickHouse allows in the data and Iceberg does not.

The list is types.md section 3.

Some of it no Arrow validation sees, and is asked before a slice is written (`always`): a map with a
key twice, an instant with digits finer than microseconds. The rest fails when a file is written
(strings that are not UTF-8, decimals with more digits than their type, numbers beyond long,
instants that microseconds cannot count to); then the check finds the column's rows and shows one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tableformat.export.slices import DataCheck
from tableformat.iceberg.schema import MappedColumn, MappedColumns
from tableformat.mergetree.types import (
    Array,
    DataType,
    DateTime64,
    Decimal,
    LowCardinality,
    Map,
    Nullable,
    Simple,
    Tuple,
)
from tableformat.mergetree.wire_types import qualified

__all__ = ["data_checks"]

_GREATEST_PRECISION: Final = 38
_MICROSECONDS: Final = 6
_GREATEST_LONG: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Rule:
    """A condition on single values: its SQL over one value, and what to say when it is broken."""

    what: str
    way_round: str
    always: bool


_UTF8: Final = _Rule(
    "not valid UTF-8", "export the bytes with --convert {column}=binary", always=False
)
_LONG: Final = _Rule(
    "greater than 9223372036854775807, the greatest long",
    "leave --convert {column}=long out: UInt64 is decimal(20,0) by default",
    always=False,
)
_DIGITS: Final = _Rule(
    "of more digits than its Decimal type allows",
    "correct the rows, or ALTER TABLE … MODIFY COLUMN to a Decimal of more digits",
    always=False,
)
_RANGE: Final = _Rule(
    "outside the instants that 64 bits of microseconds hold", "correct the rows", always=False
)
_FINER: Final = _Rule(
    "not whole microseconds, the finest that the lake keeps",
    "round them in ClickHouse, or keep the column as DateTime64(6)",
    always=True,
)
_TWICE: Final = _Rule(
    "a Map that holds a key twice, which readers answer differently",
    "keep one of the two in ClickHouse",
    always=True,
)


def data_checks(columns: MappedColumns) -> tuple[DataCheck, ...]:
    """Return the checks that the columns need; those with `always` are to be run beforehand."""
    return tuple(check for column in columns.columns for check in _of_column(column))


def _of_column(column: MappedColumn) -> Iterator[DataCheck]:
    sql = qualified(column.name)
    plain = _without_wrappers(column.source.type)
    sample = (
        f"hex(substring({sql}, 1, 32))"
        if plain == Simple("String")
        else f"hex(substring(toString({sql}), 1, 64))"
        if _holds_text(plain)
        else f"substring(toString({sql}), 1, 200)"
    )
    for rule in (_UTF8, _LONG, _DIGITS, _RANGE, _FINER, _TWICE):
        bad = _bad(rule, sql, column.source.type, column.conversion, depth=0)
        if bad:
            yield DataCheck(
                column=column.name,
                what=rule.what,
                bad_sql=bad,
                sample_sql=sample,
                way_round=rule.way_round.format(column=column.name),
                always=rule.always,
            )


def _bad(rule: _Rule, sql: str, of: DataType, conversion: str, *, depth: int) -> str:
    """Return SQL that is true when `sql` breaks a rule anywhere inside, '' when it cannot."""
    match of:
        case LowCardinality(inner):
            return _bad(rule, sql, inner, conversion, depth=depth)
        case Nullable(inner):
            bad = _bad(rule, sql, inner, conversion, depth=depth)
            # Not every function of a NULL is NULL: splitByChar gives an array of an empty text.
            return f"(isNotNull({sql}) AND ifNull({bad}, 0))" if bad else ""
        case Array(inner):
            return _any_element(rule, sql, inner, conversion, depth)
        case Tuple(elements):
            parts = (
                _bad(rule, f"tupleElement({sql}, {i})", inner, conversion, depth=depth)
                for i, (_, inner) in enumerate(elements, start=1)
            )
            return _either(*parts)
        case Map(key, value):
            twice = f"length(mapKeys({sql})) != length(arrayDistinct(mapKeys({sql})))"
            return _either(
                twice if rule is _TWICE else "",
                _any_element(rule, f"mapKeys({sql})", key, conversion, depth),
                _any_element(rule, f"mapValues({sql})", value, conversion, depth),
            )
        case _:
            return _bad_leaf(rule, sql, of, conversion)


def _any_element(rule: _Rule, sql: str, inner: DataType, conversion: str, depth: int) -> str:
    element = f"x{depth}"
    bad = _bad(rule, element, inner, conversion, depth=depth + 1)
    return f"arrayExists({element} -> {bad}, {sql})" if bad else ""


def _either(*conditions: str) -> str:
    present = [c for c in conditions if c]
    return f"({' OR '.join(present)})" if len(present) > 1 else "".join(present)


def _bad_leaf(rule: _Rule, sql: str, of: DataType, conversion: str) -> str:
    match of:
        case Simple("String") if rule is _UTF8 and conversion != "binary":
            return f"NOT isValidUTF8({sql})"
        case Simple("UInt64") if rule is _LONG and conversion == "long":
            return f"{sql} > {_GREATEST_LONG}"
        case Decimal(precision, scale) if rule is _DIGITS and precision <= _GREATEST_PRECISION:
            # Compared as text: a literal of that size has no type of its own in every server
            # version.
            whole = f"splitByChar('.', replaceOne(toString({sql}), '-', ''))[1]"
            return (
                f"length({whole}) > {precision - scale}" if precision > scale else f"{whole} != '0'"
            )
        case DateTime64(precision, _) if rule is _RANGE and precision < _MICROSECONDS:
            greatest = _GREATEST_LONG // 10 ** (_MICROSECONDS - precision)
            ticks = f"reinterpretAsInt64({sql})"
            return f"({ticks} > {greatest} OR {ticks} < -{greatest})"
        case DateTime64(precision, _) if rule is _FINER and precision > _MICROSECONDS:
            return f"reinterpretAsInt64({sql}) % {10 ** (precision - _MICROSECONDS)} != 0"
        case _:
            return ""


def _without_wrappers(of: DataType) -> DataType:
    while isinstance(of, Nullable | LowCardinality):
        of = of.of
    return of


def _holds_text(of: DataType) -> bool:
    match of:
        case Nullable(inner) | LowCardinality(inner) | Array(inner):
            return _holds_text(inner)
        case Tuple(elements):
            return any(_holds_text(inner) for _, inner in elements)
        case Map(key, value):
            return _holds_text(key) or _holds_text(value)
        case _:
            return of == Simple("String")
