"""FINAL of engines that make one row of those of a sorting key: where it hangs on their order.

SummingMergeTree, AggregatingMergeTree and CoalescingMergeTree compute a value from those of a key's
rows, or take one of them. Data files do not say which row was inserted first, so a merge is done
only where every order gives the same. Of each column it does where all values of a key are one
value, whatever the engine makes of it; and where ClickHouse computes it by a function that does not
see the order, which is named here (`SummingSortedAlgorithm` and `AggregatingSortedAlgorithm` say
which columns it computes). Values are one value where their bytes are: 0 and -0 are two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum as Words
from typing import Final

from tableformat.mergetree.expression import Call, Expression
from tableformat.mergetree.expression_text import (
    columns_of,
    parse_expression,
    parse_partition_key,
    parse_sorting_key,
)
from tableformat.mergetree.table import Column, Engine, MergeTreeTable
from tableformat.mergetree.type_text import parse_type
from tableformat.mergetree.types import (
    AggregateFunction,
    Array,
    DataType,
    DateTime,
    DateTime64,
    Decimal,
    Enum,
    FixedString,
    LowCardinality,
    Map,
    Nullable,
    Simple,
    SimpleAggregateFunction,
    Time64,
    Tuple,
)

__all__ = ["AGGREGATING", "COALESCING", "SUMMING", "Hangs", "MergedColumn", "merged_columns"]

SUMMING: Final = "SummingMergeTree"
AGGREGATING: Final = "AggregatingMergeTree"
COALESCING: Final = "CoalescingMergeTree"
_INTEGER: Final = re.compile(r"U?Int(8|16|32|64|128|256)\Z")
_FLOATS: Final = {"Float32": 24, "Float64": 53, "BFloat16": 8}
_SCALARS: Final = ("Bool", "String", "Date", "Date32", "Time", "UUID", "IPv4", "IPv6")
_SUMS: Final = ("sum", "sumWithOverflow")
_BOUNDS: Final = ("min", "max")
_BITS: Final = ("groupBitAnd", "groupBitOr", "groupBitXor")
_SOME: Final = ("any", "anyLast", "any_last", "first_value", "last_value")
_OF_MAPS: Final = ("sumMap", "minMap", "maxMap")
_OF_KEY: Final = ("ID", "Key", "Type")
_AGGREGATED: Final = (AggregateFunction, SimpleAggregateFunction)
_STATE: Final = re.compile(r"(?P<function>\w+)(?:, (?P<of>.+))?\Z", re.DOTALL)


class Hangs(Words):
    """Where it hangs on the order of rows what a merge leaves in a column."""

    ON_VALUES = "one of their values is kept, and they are different"
    ON_SOME_VALUES = "one of their values that are not NULL is kept, and they are different"
    ON_ADDITION = "floating point numbers are added, and another order gives another sum"
    ON_BOUNDS = "of 0 and -0, and of what is no number, the first is kept"
    ON_WHAT_IS_LOST = "ClickHouse adds Bool as numbers, and the lake only holds true and false"
    NEVER = ""


@dataclass(frozen=True, slots=True)
class MergedColumn:
    """A stored column of a table whose engine computes values, and where that hangs on the order.

    `computed`: a merge may leave a value that no row had, or that of another row than the one of
    which the other columns are.
    """

    column: Column
    hangs: Hangs
    computed: bool

    @property
    def digits(self) -> int:
        """How many binary digits its numbers have, where they are floating point numbers."""
        of = self.column.type
        plain = _plain(of.of if isinstance(of, SimpleAggregateFunction) else of)
        return _FLOATS.get(plain.name, 0) if isinstance(plain, Simple) else 0


def merged_columns(table: MergeTreeTable) -> tuple[MergedColumn, ...]:
    """Return what the engine of a table makes of its stored columns, () where it computes none.

    Raises:
        UsageError: the text of a key cannot be read.
    """
    engine = table.engine
    if engine.family not in (SUMMING, AGGREGATING, COALESCING):
        return ()
    keys = _names_of_keys(engine)
    named = frozenset(_named(parse_expression(f"tuple({engine.arguments})")))
    maps = _maps(table.stored_columns, keys) if engine.family == SUMMING else {}
    return tuple(
        maps.get(column.name) or _merged(column, engine.family, keys, named)
        for column in table.stored_columns
    )


def _merged(
    column: Column, family: str, keys: frozenset[str], named: frozenset[str]
) -> MergedColumn:
    """Return what is made of a column that is not of a map.

    AggregatingMergeTree also computes what a key only reads: then all values are to be one.
    """
    if any(f"{name}.".startswith(f"{column.name}.") for name in keys):
        kept = family != AGGREGATING or not isinstance(column.type, _AGGREGATED)
        return MergedColumn(column, Hangs.ON_VALUES, computed=not kept)
    if family != AGGREGATING and named and column.name not in named:
        return MergedColumn(column, Hangs.ON_VALUES, computed=False)
    match column.type:
        case SimpleAggregateFunction(function, of):
            return MergedColumn(column, _of_function(function, of), computed=True)
        case AggregateFunction(arguments):
            return MergedColumn(column, _of_state(arguments), computed=True)
        case of if family == SUMMING and _is_summed(of):
            return MergedColumn(column, _of_sum(of), computed=True)
        case of if family == COALESCING:
            return MergedColumn(column, _of_some(of), computed=True)
        case _:
            return MergedColumn(column, Hangs.ON_VALUES, computed=False)


def _maps(columns: tuple[Column, ...], keys: frozenset[str]) -> dict[str, MergedColumn]:
    """Return what SummingMergeTree sums by a key: Nested structures whose names end in Map."""
    found: dict[str, list[Column]] = {}
    for column in columns:
        structure, dot, _ = column.name.partition(".")
        if dot and structure.endswith("Map") and isinstance(column.type, Array):
            found.setdefault(structure, []).append(column)
    made: dict[str, MergedColumn] = {}
    for structure, members in found.items():
        if any(name == structure or name.startswith(f"{structure}.") for name in keys):
            continue
        of_key, *of_value = members
        exact = (
            bool(of_value)
            and _is_map_key(_element(of_key))
            and all(m.name.count(".") == 1 and _is_exact(_element(m)) for m in of_value)
            # A key of several columns: what comes to zero is dropped on the way.
            and not any(m.name.endswith(_OF_KEY) for m in of_value)
        )
        hangs = Hangs.NEVER if exact else Hangs.ON_VALUES
        made |= {m.name: MergedColumn(m, hangs, computed=True) for m in members}
    return made


def _of_function(function: str, of: DataType) -> Hangs:
    """Return where SimpleAggregateFunction hangs on the order."""
    plain = _plain(of)
    if function in _SUMS and _is_summed(plain):
        return _of_sum(plain)
    if function in _BOUNDS and _is_float(plain):
        return Hangs.ON_BOUNDS
    if function in _BOUNDS and (_is_exact(plain) or _is_scalar(plain)):
        return Hangs.NEVER
    if function in _BITS and _is_exact(plain):
        return Hangs.NEVER
    if function in _OF_MAPS and _is_exact_map(of):
        return Hangs.NEVER
    return _of_some(of) if function in _SOME else Hangs.ON_VALUES


def _of_some(of: DataType) -> Hangs:
    """Return where the first or the last value does; NULL is none."""
    inner = of.of if isinstance(of, LowCardinality) else of
    return Hangs.ON_SOME_VALUES if isinstance(inner, Nullable) else Hangs.ON_VALUES


def _of_state(arguments: str) -> Hangs:
    """Return where a state of an aggregate function does: equal ones are merged in any order."""
    found = _STATE.match(arguments)
    if found is None:
        return Hangs.ON_VALUES
    function, of = found["function"], found["of"]
    if function == "count":
        return Hangs.NEVER
    exact = of is not None and _is_exact(_plain(parse_type(of)))
    return Hangs.NEVER if exact and function in (*_SUMS, *_BOUNDS, *_BITS) else Hangs.ON_VALUES


def _of_sum(of: DataType) -> Hangs:
    plain = _plain(of)
    if plain == Simple("Bool"):
        return Hangs.ON_WHAT_IS_LOST
    return Hangs.ON_ADDITION if _is_float(plain) else Hangs.NEVER


def _is_exact_map(of: DataType) -> bool:
    match of:
        case Map(key, value):
            return _is_map_key(key) and _is_exact(value)
        case Tuple(((_, Array(key)), (_, Array(value)))):
            return _is_map_key(key) and _is_exact(value)
        case _:
            return False


def _is_map_key(of: DataType) -> bool:
    return isinstance(of, FixedString) or of == Simple("String") or _is_integer(of)


def _is_summed(of: DataType) -> bool:
    """Whether SummingMergeTree adds values of a type, not only where it is told to."""
    plain = _plain(of)
    return _is_exact(plain) or _is_float(plain) or plain == Simple("Bool")


def _is_exact(of: DataType) -> bool:
    """Whether sums of a type are the same in any order; those that are too large begin anew."""
    return isinstance(of, Decimal) or _is_integer(of)


def _is_integer(of: DataType) -> bool:
    return isinstance(of, Simple) and bool(_INTEGER.match(of.name))


def _is_float(of: DataType) -> bool:
    return isinstance(of, Simple) and of.name in _FLOATS


def _is_scalar(of: DataType) -> bool:
    simple = isinstance(of, Simple) and (of.name in _SCALARS or of.name.startswith("Interval"))
    return simple or isinstance(of, FixedString | DateTime | DateTime64 | Time64 | Enum)


def _plain(of: DataType) -> DataType:
    while isinstance(of, Nullable | LowCardinality):
        of = of.of
    return of


def _element(column: Column) -> DataType:
    return column.type.of if isinstance(column.type, Array) else column.type


def _names_of_keys(engine: Engine) -> frozenset[str]:
    sorting = (key.expression for key in parse_sorting_key(engine.order_by or engine.primary_key))
    every = (*sorting, *parse_partition_key(engine.partition_by))
    return frozenset[str]().union(*(columns_of(one) for one in every))


def _named(given: Expression) -> Iterator[str]:
    """Yield the columns that an engine names: `(a, b)`, or `a`."""
    if isinstance(given, Call):
        for one in given.arguments:
            yield from _named(one)
    else:
        yield from columns_of(given)
