"""Decides which rows OPTIMIZE TABLE … FINAL or DEDUPLICATE keeps; refuses ambiguous merges.

A data file does not record the order in which rows were inserted. So mergeberg merges the rows of
a partition only if every order gives the same result.

* `RowMerge` (Replacing, Collapsing and VersionedCollapsingMergeTree, and DEDUPLICATE) keeps some
  rows unchanged. The query of `ambiguous_rows` returns a row if the result depends on the order.
* `MergedColumn` (Summing, Aggregating and CoalescingMergeTree): the engine computes a value from
  the rows of a sorting key, or takes one of them. `merged_columns` says where the result depends
  on the order. It never does if all values of a key are equal, or if ClickHouse uses a function
  that ignores the order (see ClickHouse's `SummingSortedAlgorithm` and
  `AggregatingSortedAlgorithm`).
* `OrderCheck` is the SQL check of these columns on the data (`ambiguous_values`).

Two rows have the same key if ClickHouse's merge compares them as equal. Two values are equal if
their RowBinary bytes are equal, so 0 and -0 differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum as Words
from typing import Final

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import UnsupportedError
from tableformat.mergetree.expression import Call, Expression, Literal, columns_of, qualify
from tableformat.mergetree.expression_parser import (
    parse_expression,
    parse_partition_key,
    parse_sorting_key,
)
from tableformat.mergetree.row_change import without_default
from tableformat.mergetree.table import Column, Engine, MergeTreeTable
from tableformat.mergetree.table_settings import is_on
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
    parse_type,
)
from tableformat.mergetree.wire_types import qualified
from tableformat.names import SOURCE_ALIAS, quote_identifier

__all__ = [
    "AGGREGATING",
    "COALESCING",
    "SUMMING",
    "MergedColumn",
    "OrderCheck",
    "OrderDependence",
    "RowMerge",
    "ambiguous_rows",
    "ambiguous_values",
    "columns_of_merge",
    "deciding_columns",
    "deduplication_advice",
    "merged_columns",
    "order_checks",
    "refuse_merge",
    "row_hash",
]

SUMMING: Final = "SummingMergeTree"
AGGREGATING: Final = "AggregatingMergeTree"
COALESCING: Final = "CoalescingMergeTree"
_INTEGER: Final = re.compile(r"U?Int(8|16|32|64|128|256)\Z")
_FLOATS: Final = {"Float32": 24, "Float64": 53, "BFloat16": 8}
_SCALARS: Final = ("Bool", "String", "Date", "Date32", "Time", "UUID", "IPv4", "IPv6")
_SUMS: Final = ("sum", "sumWithOverflow")
_BOUNDS: Final = ("min", "max")
_BITS: Final = ("groupBitAnd", "groupBitOr", "groupBitXor")
_ANY_VALUE: Final = ("any", "anyLast", "any_last", "first_value", "last_value")
_MAP_SUMS: Final = ("sumMap", "minMap", "maxMap")
_KEY_SUFFIXES: Final = ("ID", "Key", "Type")
_AGGREGATED: Final = (AggregateFunction, SimpleAggregateFunction)
_STATE: Final = re.compile(r"(?P<function>\w+)(?:, (?P<of>.+))?\Z", re.DOTALL)


class OrderDependence(Words):
    """Why the merged value of a column may depend on the order of rows."""

    ON_VALUES = "one of their values is kept, and they are different"
    ON_NON_NULL_VALUES = "one of their values that are not NULL is kept, and they are different"
    ON_ADDITION = "floating point numbers are added, and another order gives another sum"
    ON_BOUNDS = "of 0 and -0, and of several NaN, the first is kept"
    ON_LOST_NUMBERS = "ClickHouse adds Bool as numbers, and the lake only holds true and false"
    NEVER = ""


@dataclass(frozen=True, slots=True)
class MergedColumn:
    """A stored column of a table whose engine computes values.

    `dependence` says why the result may depend on the order of rows. `computed`: a merge may
    produce a value that no row had, or that comes from another row than the values of the other
    columns.
    """

    column: Column
    dependence: OrderDependence
    computed: bool

    @property
    def digits(self) -> int:
        """How many binary digits its floating point numbers have; 0 for other types."""
        of = self.column.type
        plain = _plain(of.of if isinstance(of, SimpleAggregateFunction) else of)
        return _FLOATS.get(plain.name, 0) if isinstance(plain, Simple) else 0


def merged_columns(table: MergeTreeTable) -> tuple[MergedColumn, ...]:
    """Return how a table's engine merges its stored columns, () if it computes none.

    Raises:
        UsageError: a key cannot be parsed.
    """
    engine = table.engine
    if engine.family not in (SUMMING, AGGREGATING, COALESCING):
        return ()
    keys = _names_of_keys(engine)
    named = frozenset(_named_columns(parse_expression(f"tuple({engine.arguments})")))
    maps = _maps(table.stored_columns, keys) if engine.family == SUMMING else {}
    return tuple(
        maps.get(column.name) or _merged(column, engine.family, keys, named)
        for column in table.stored_columns
    )


def _merged(
    column: Column, family: str, keys: frozenset[str], named: frozenset[str]
) -> MergedColumn:
    """Return how a column that is not part of a map is merged.

    AggregatingMergeTree also computes columns that a key only reads; their values must be equal.
    """
    if any(f"{name}.".startswith(f"{column.name}.") for name in keys):
        kept = family != AGGREGATING or not isinstance(column.type, _AGGREGATED)
        return MergedColumn(column, OrderDependence.ON_VALUES, computed=not kept)
    if family != AGGREGATING and named and column.name not in named:
        return MergedColumn(column, OrderDependence.ON_VALUES, computed=False)
    match column.type:
        case SimpleAggregateFunction(function, of):
            return MergedColumn(column, _dependence_of_function(function, of), computed=True)
        case AggregateFunction(arguments):
            return MergedColumn(column, _dependence_of_state(arguments), computed=True)
        case of if family == SUMMING and _is_summed(of):
            return MergedColumn(column, _dependence_of_sum(of), computed=True)
        case of if family == COALESCING:
            return MergedColumn(column, _dependence_of_any_value(of), computed=True)
        case _:
            return MergedColumn(column, OrderDependence.ON_VALUES, computed=False)


def _maps(columns: tuple[Column, ...], keys: frozenset[str]) -> dict[str, MergedColumn]:
    """Return the columns that SummingMergeTree sums by key: Nested structures named ...Map."""
    found: dict[str, list[Column]] = {}
    for column in columns:
        structure, dot, _ = column.name.partition(".")
        if dot and structure.endswith("Map") and isinstance(column.type, Array):
            found.setdefault(structure, []).append(column)
    merged: dict[str, MergedColumn] = {}
    for structure, members in found.items():
        if any(name == structure or name.startswith(f"{structure}.") for name in keys):
            continue
        key, *values = members
        exact = (
            bool(values)
            and _is_map_key(_element(key))
            and all(m.name.count(".") == 1 and _is_exact(_element(m)) for m in values)
            # With a key of several columns, intermediate sums of zero are dropped.
            and not any(m.name.endswith(_KEY_SUFFIXES) for m in values)
        )
        dependence = OrderDependence.NEVER if exact else OrderDependence.ON_VALUES
        merged |= {m.name: MergedColumn(m, dependence, computed=True) for m in members}
    return merged


def _dependence_of_function(function: str, of: DataType) -> OrderDependence:
    """Return the order dependence of a SimpleAggregateFunction."""
    plain = _plain(of)
    if function in _SUMS and _is_summed(plain):
        return _dependence_of_sum(plain)
    if function in _BOUNDS and _is_float(plain):
        return OrderDependence.ON_BOUNDS
    if function in _BOUNDS and (_is_exact(plain) or _is_scalar(plain)):
        return OrderDependence.NEVER
    if function in _BITS and _is_exact(plain):
        return OrderDependence.NEVER
    if function in _MAP_SUMS and _is_exact_map(of):
        return OrderDependence.NEVER
    return _dependence_of_any_value(of) if function in _ANY_VALUE else OrderDependence.ON_VALUES


def _dependence_of_any_value(of: DataType) -> OrderDependence:
    """Return the order dependence of the first or last value; NULL is not a value."""
    inner = of.of if isinstance(of, LowCardinality) else of
    return (
        OrderDependence.ON_NON_NULL_VALUES
        if isinstance(inner, Nullable)
        else OrderDependence.ON_VALUES
    )


def _dependence_of_state(arguments: str) -> OrderDependence:
    """Return the order dependence of an aggregate function's state; equal states have none."""
    found = _STATE.match(arguments)
    if found is None:
        return OrderDependence.ON_VALUES
    function, of = found["function"], found["of"]
    if function == "count":
        return OrderDependence.NEVER
    exact = of is not None and _is_exact(_plain(parse_type(of)))
    return (
        OrderDependence.NEVER
        if exact and function in (*_SUMS, *_BOUNDS, *_BITS)
        else OrderDependence.ON_VALUES
    )


def _dependence_of_sum(of: DataType) -> OrderDependence:
    plain = _plain(of)
    if plain == Simple("Bool"):
        return OrderDependence.ON_LOST_NUMBERS
    return OrderDependence.ON_ADDITION if _is_float(plain) else OrderDependence.NEVER


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
    """Whether SummingMergeTree sums a type by default."""
    plain = _plain(of)
    return _is_exact(plain) or _is_float(plain) or plain == Simple("Bool")


def _is_exact(of: DataType) -> bool:
    """Whether sums of a type do not depend on the order; overflow wraps around."""
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


def _named_columns(given: Expression) -> Iterator[str]:
    """Yield the columns in an engine's argument: `(a, b)`, or `a`."""
    if isinstance(given, Call):
        for one in given.arguments:
            yield from _named_columns(one)
    else:
        yield from columns_of(given)


_ROW: Final = "mergeberg_value_"
# The check tries multiples of 2 ** -n, for these n.
_FRACTIONS: Final = (0, 4, 10, 20)
_MINUS_ZERO: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class OrderCheck:
    """Checks whether merged values depend on the order of rows, for columns of one dependence."""

    columns: tuple[MergedColumn, ...]
    dependence: OrderDependence

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(one.column.name for one in self.columns)

    @property
    def by_column(self) -> tuple[OrderCheck, ...]:
        """The same check for each column alone."""
        return tuple(OrderCheck((one,), self.dependence) for one in self.columns)

    @property
    def row_sql(self) -> str:
        """The SQL that is evaluated for each row."""
        same = row_hash(self.names)
        value = qualified(self.names[0])
        match self.dependence:
            case OrderDependence.ON_NON_NULL_VALUES:
                return f"if(isNull({value}), NULL, {same})"
            case OrderDependence.ON_ADDITION | OrderDependence.ON_BOUNDS:
                return f"tuple({same}, toFloat64(ifNull({value}, 0)), isNotNull({value}))"
            case _:
                return same

    def key_sql(self, row: str) -> str:
        """Return the SQL that is true for a key whose merged value depends on the order of rows.

        Args:
            row: the name of the result of `row_sql`.
        """
        one, number = f"tupleElement({row}, 1)", f"tupleElement({row}, 2)"
        match self.dependence:
            case OrderDependence.NEVER:
                return "0"
            case OrderDependence.ON_LOST_NUMBERS:
                return "1"
            case OrderDependence.ON_VALUES:
                return f"min({row}) != max({row})"
            case OrderDependence.ON_NON_NULL_VALUES:
                return f"ifNull(min({row}) != max({row}), 0)"
            case OrderDependence.ON_BOUNDS:
                special = f"isNaN({number}) OR reinterpretAsUInt64({number}) = {_MINUS_ZERO}"
                return f"min({one}) != max({one}) AND countIf({special}) > 0"
            case OrderDependence.ON_ADDITION:
                two = f"countIf(tupleElement({row}, 3)) <= 2"
                exact = " OR ".join((two, *_exact(number, self.columns[0].digits)))
                no_number = f"countIf(isNaN({number})) > 0"
                return f"min({one}) != max({one}) AND ({no_number} OR NOT ({exact}))"


def order_checks(columns: Sequence[MergedColumn]) -> tuple[OrderCheck, ...]:
    """Return the checks of columns; most columns share one check, which keeps its rows small."""
    same = tuple(one for one in columns if one.dependence is OrderDependence.ON_VALUES)
    others = (
        OrderCheck((one,), one.dependence)
        for one in columns
        if one.dependence not in (OrderDependence.ON_VALUES, OrderDependence.NEVER)
    )
    return (*((OrderCheck(same, OrderDependence.ON_VALUES),) if same else ()), *others)


def ambiguous_values(checks: Sequence[OrderCheck], engine: Engine, table: str) -> str:
    """Return a query with one row: for each check whether it is true for any key.

    Args:
        checks: at least one.
        engine: of the table.
        table: the rows, as the text after FROM.
    """
    sorting = parse_sorting_key(engine.order_by or engine.primary_key)
    # Qualified, so that our aliases do not hide columns.
    key = ", ".join(qualify(one.expression) for one in sorting) or "tuple()"
    of_rows = ", ".join(f"{one.row_sql} AS {_ROW}{i}" for i, one in enumerate(checks))
    of_keys = ", ".join(
        f"{one.key_sql(f'{_ROW}{i}')} AS {_ROW}{i}_" for i, one in enumerate(checks)
    )
    every = ", ".join(f"max({_ROW}{i}_)" for i in range(len(checks)))
    return (
        f"SELECT {every} FROM (SELECT {of_keys} FROM"
        f" (SELECT dense_rank() OVER (ORDER BY {key}) AS {_KEY}, {of_rows}"
        f" FROM {table} AS {SOURCE_ALIAS}) GROUP BY {_KEY} HAVING count() > 1)"
    )


def row_hash(names: Sequence[str]) -> str:
    """Return the SQL of a hash of the bytes of columns."""
    values = ", ".join(qualified(name) for name in names)
    return f"sipHash128(formatRow('RowBinary', {values}))"


def _exact(number: str, digits: int) -> Iterator[str]:
    """Yield conditions under which no addition rounds, in any order.

    All numbers are multiples of 2 ** -n, and no sum has more digits than the type.
    """
    for n in _FRACTIONS:
        scaled = f"{number} * {1 << n}"
        yield (
            f"countIf({scaled} != trunc({scaled})) = 0"
            f" AND sum(abs({number})) * {1 << n} <= {1 << digits}"
        )


_PLAIN: Final = "MergeTree"
_REPLACING: Final = "ReplacingMergeTree"
_COLLAPSING: Final = "CollapsingMergeTree"
_VERSIONED: Final = "VersionedCollapsingMergeTree"
_COMPUTE: Final = (SUMMING, AGGREGATING, COALESCING)
_MERGED: Final = (_PLAIN, _REPLACING, _COLLAPSING, _VERSIONED, *_COMPUTE)
_TUPLE_AGGREGATION: Final = "allow_tuple_element_aggregation"
_KEY: Final = "mergeberg_key"
_VERSION: Final = "mergeberg_version"
_SIGN: Final = "mergeberg_sign"
_COUNT: Final = "mergeberg_rows"
_SAME: Final = "mergeberg_same"


@dataclass(frozen=True, slots=True)
class RowMerge:
    """The clauses of OPTIMIZE after the table's name, without PARTITION.

    `merges`: rows of one sorting key are merged as the engine merges them (FINAL). `duplicates` are
    the columns of DEDUPLICATE, () without it.
    """

    command: str
    merges: bool = False
    duplicates: tuple[str, ...] = ()

    @property
    def leaves_all(self) -> bool:
        """Whether every row is kept."""
        return not self.merges and not self.duplicates

    @property
    def words(self) -> str:
        """The clauses after OPTIMIZE TABLE and a name that merge the rows of all parts."""
        by = ", ".join(quote_identifier(name) for name in self.duplicates)
        return f"FINAL DEDUPLICATE BY {by}" if by else "FINAL"


def refuse_merge(merge: RowMerge, engine: Engine) -> None:
    """Refuse a merge whose result depends on more than the rows.

    Raises:
        UnsupportedError: the engine's result does (code 48).
    """
    if not merge.merges:
        return
    if engine.family not in _MERGED:
        why = (
            f"the rows that {engine.family} keeps depend on the server's configuration and on the "
            "time"
        )
    elif engine.family in _COMPUTE and is_on(engine.settings, _TUPLE_AGGREGATION):
        why = (
            f"merging the members of tuples ({_TUPLE_AGGREGATION}) is not supported for lake tables"
        )
    else:
        return
    message = (
        f"Cannot run {merge.command}: {why}. Run it in ClickHouse and export the partition again, "
        "or leave FINAL out."
    )
    raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def columns_of_merge(merge: RowMerge, table: MergeTreeTable) -> tuple[Column, ...]:
    """Return the stored columns that a merge needs, without defaults.

    These are `deciding_columns`; for engines that compute values or compare whole rows, all
    columns.

    Raises:
        UsageError: a key cannot be parsed.
    """
    every = merge.merges and table.engine.family in (_COLLAPSING, *_COMPUTE)
    found = table.stored_columns if every else deciding_columns(merge, table)
    return tuple(without_default(c) for c in found)


def deciding_columns(merge: RowMerge, table: MergeTreeTable) -> tuple[Column, ...]:
    """Return the stored columns that decide the order of rows and which rows are kept.

    A name in a key may be a member of a column.

    Raises:
        UsageError: a key cannot be parsed.
    """
    engine = table.engine
    keys = [key.expression for key in parse_sorting_key(engine.order_by or engine.primary_key)]
    if not merge.leaves_all:
        keys += [*parse_partition_key(engine.partition_by), *_arguments(engine)]
    used = frozenset(merge.duplicates).union(*(columns_of(one) for one in keys))
    return tuple(
        c for c in table.stored_columns if any(f"{name}.".startswith(f"{c.name}.") for name in used)
    )


def ambiguous_rows(
    merge: RowMerge, engine: Engine, table: str, columns: Sequence[Column] = ()
) -> str:
    """Return a query that has a row if the kept rows depend on the order of insertion.

    The result depends on the order for

    * ReplacingMergeTree, if two rows of a key have its latest version;
    * VersionedCollapsingMergeTree, if a key and version has several rows, except for one of each
      sign;
    * CollapsingMergeTree, if a key has as many rows of one sign as of the other (all are removed,
      or the first and the last are kept), or if the rows of the more frequent sign differ.

    The query is '' if the result never depends on the order, or if the engine computes values. Keys
    are equal if the merge compares them as equal. A window function does the same, GROUP BY does
    not: 0 and -0 are equal, and so are all NaN.

    Args:
        merge: the merge.
        engine: of the table.
        table: the rows, as the text after FROM.
        columns: all stored columns, for CollapsingMergeTree.
    """
    if not merge.merges or engine.family in (_PLAIN, *_COMPUTE):
        return ""
    sorting = parse_sorting_key(engine.order_by or engine.primary_key)
    # Qualified, so that our aliases do not hide columns.
    key = [qualify(one.expression) for one in sorting]
    given = [qualify(one) for one in _arguments(engine)]
    rows = f"{table} AS {SOURCE_ALIAS}"
    if engine.family == _VERSIONED:
        sign, version = given
        key_sql = _over("dense_rank", [*key, version])
        ones = ", ".join(f"countIf({_SIGN} = {one})" for one in (1, -1))
        return (
            f"SELECT 1 FROM (SELECT {key_sql} AS {_KEY}, {sign} AS {_SIGN} FROM {rows})"
            f" GROUP BY {_KEY} HAVING count() > 1 AND (count(), {ones}) != (2, 1, 1) LIMIT 1"
        )
    if engine.family == _COLLAPSING:
        return _unclear_pairs(key, given[0], rows, columns)
    latest = [f"{one} DESC NULLS FIRST" for one in given[:1]]
    ranks = f"{_over('dense_rank', key)} AS {_KEY}, {_over('rank', [*key, *latest])} AS {_VERSION}"
    counted = (
        f"SELECT {_KEY}, {_VERSION}, count() AS {_COUNT} FROM (SELECT {ranks} FROM {rows})"
        f" GROUP BY {_KEY}, {_VERSION}"
    )
    return (
        f"SELECT 1 FROM ({counted}) GROUP BY {_KEY} HAVING argMin({_COUNT}, {_VERSION}) > 1 LIMIT 1"
    )


def deduplication_advice(engine: Engine) -> str:
    """Return the remedy for rows that are alike, '' if each of them counts."""
    if engine.family != _REPLACING:
        return ""
    return "; where such rows are the same in all columns, run OPTIMIZE TABLE … DEDUPLICATE first"


def _unclear_pairs(key: list[str], sign: str, rows: str, columns: Sequence[Column]) -> str:
    row_sql = f"{_over('dense_rank', key)} AS {_KEY}, {sign} AS {_SIGN}"
    same = f"{row_hash([c.name for c in columns])} AS {_SAME}"
    one_of = {
        sign: f"minIf({_SAME}, {_SIGN} = {sign}) = maxIf({_SAME}, {_SIGN} = {sign})"
        for sign in (1, -1)
    }
    state, cancel = (f"countIf({_SIGN} = {sign})" for sign in (1, -1))
    clear = (
        f"{state} + {cancel} = count() AND"
        f" ({state} > {cancel} AND {one_of[1]} OR {cancel} > {state} AND {one_of[-1]})"
    )
    return (
        f"SELECT 1 FROM (SELECT {row_sql}, {same} FROM {rows}) GROUP BY {_KEY}"
        f" HAVING count() > 1 AND NOT ({clear}) LIMIT 1"
    )


def _over(rank: str, order: list[str]) -> str:
    """Return the SQL of a number that is equal for rows that a merge treats as equal."""
    return f"{rank}() OVER (ORDER BY {', '.join(order) or 'tuple()'})"


def _arguments(engine: Engine) -> tuple[Expression, ...]:
    """Return the columns in an engine's arguments, without those of replication."""
    given = parse_expression(f"tuple({engine.arguments})")
    arguments = given.arguments if isinstance(given, Call) else ()
    return tuple(a for a in arguments if not isinstance(a, Literal))
