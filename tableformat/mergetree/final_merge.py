"""Decides which rows OPTIMIZE TABLE … FINAL or DEDUPLICATE keeps; refuses ambiguous merges.

A data file does not record the order in which rows were inserted. So mergeberg merges the rows of
a partition only if every order gives the same result.

* `RowMerge` (Replacing, Collapsing and VersionedCollapsingMergeTree, and DEDUPLICATE) keeps some
  rows unchanged. The query of `unclear_rows` returns a row if the result depends on the order.
* `MergedColumn` (Summing, Aggregating and CoalescingMergeTree): the engine computes a value from
  the rows of a sorting key, or takes one of them. `merged_columns` says where the result depends
  on the order. It never does if all values of a key are equal, or if ClickHouse uses a function
  that ignores the order (see ClickHouse's `SummingSortedAlgorithm` and
  `AggregatingSortedAlgorithm`).
* `Question` is the SQL check of these columns on the data (`unclear_values`).

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
from tableformat.mergetree.expression import Call, Expression, Literal
from tableformat.mergetree.expression_text import (
    columns_of,
    parse_expression,
    parse_partition_key,
    parse_sorting_key,
    qualify,
)
from tableformat.mergetree.row_change import without_default
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
from tableformat.mergetree.wire_types import qualified
from tableformat.names import SOURCE_ALIAS, quote_identifier

__all__ = [
    "AGGREGATING",
    "COALESCING",
    "SUMMING",
    "Hangs",
    "MergedColumn",
    "Question",
    "RowMerge",
    "columns_of_merge",
    "merged_columns",
    "questions",
    "refuse_merge",
    "row_hash",
    "telling_columns",
    "unclear_rows",
    "unclear_values",
    "way_round",
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


_ROW: Final = "mergeberg_value_"
# Numbers that are multiples of 2 ** -n are looked for, by n.
_FRACTIONS: Final = (0, 4, 10, 20)
_MINUS_ZERO: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Question:
    """Whether it hangs on the order what is left of columns that hang on the same."""

    columns: tuple[MergedColumn, ...]
    hangs: Hangs

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(one.column.name for one in self.columns)

    @property
    def apart(self) -> tuple[Question, ...]:
        """The same of each column."""
        return tuple(Question((one,), self.hangs) for one in self.columns)

    @property
    def of_row(self) -> str:
        """What is asked of a row."""
        same = row_hash(self.names)
        value = qualified(self.names[0])
        match self.hangs:
            case Hangs.ON_SOME_VALUES:
                return f"if(isNull({value}), NULL, {same})"
            case Hangs.ON_ADDITION | Hangs.ON_BOUNDS:
                return f"tuple({same}, toFloat64(ifNull({value}, 0)), isNotNull({value}))"
            case _:
                return same

    def of_key(self, row: str) -> str:
        """Return what is true where it hangs on the order of the rows of a key.

        Args:
            row: the name of what `of_row` gives.
        """
        one, number = f"tupleElement({row}, 1)", f"tupleElement({row}, 2)"
        match self.hangs:
            case Hangs.NEVER:
                return "0"
            case Hangs.ON_WHAT_IS_LOST:
                return "1"
            case Hangs.ON_VALUES:
                return f"min({row}) != max({row})"
            case Hangs.ON_SOME_VALUES:
                return f"ifNull(min({row}) != max({row}), 0)"
            case Hangs.ON_BOUNDS:
                odd = f"isNaN({number}) OR reinterpretAsUInt64({number}) = {_MINUS_ZERO}"
                return f"min({one}) != max({one}) AND countIf({odd}) > 0"
            case Hangs.ON_ADDITION:
                two = f"countIf(tupleElement({row}, 3)) <= 2"
                exact = " OR ".join((two, *_exact(number, self.columns[0].digits)))
                no_number = f"countIf(isNaN({number})) > 0"
                return f"min({one}) != max({one}) AND ({no_number} OR NOT ({exact}))"


def questions(columns: Sequence[MergedColumn]) -> tuple[Question, ...]:
    """Return what is to be asked of columns: of most of them together, so that rows stay small."""
    same = tuple(one for one in columns if one.hangs is Hangs.ON_VALUES)
    others = (
        Question((one,), one.hangs)
        for one in columns
        if one.hangs not in (Hangs.ON_VALUES, Hangs.NEVER)
    )
    return (*((Question(same, Hangs.ON_VALUES),) if same else ()), *others)


def unclear_values(asked: Sequence[Question], engine: Engine, table: str) -> str:
    """Return a query with one row: for each question whether it does, of any key.

    Args:
        asked: at least one.
        engine: of the table.
        table: the rows, as they stand after FROM.
    """
    sorting = parse_sorting_key(engine.order_by or engine.primary_key)
    # Qualified, so that no name of ours takes the place of a column's.
    key = ", ".join(qualify(one.expression) for one in sorting) or "tuple()"
    of_rows = ", ".join(f"{one.of_row} AS {_ROW}{i}" for i, one in enumerate(asked))
    of_keys = ", ".join(f"{one.of_key(f'{_ROW}{i}')} AS {_ROW}{i}_" for i, one in enumerate(asked))
    every = ", ".join(f"max({_ROW}{i}_)" for i in range(len(asked)))
    return (
        f"SELECT {every} FROM (SELECT {of_keys} FROM"
        f" (SELECT dense_rank() OVER (ORDER BY {key}) AS {_KEY}, {of_rows}"
        f" FROM {table} AS {SOURCE_ALIAS}) GROUP BY {_KEY} HAVING count() > 1)"
    )


def row_hash(names: Sequence[str]) -> str:
    """Return SQL of a hash of what columns hold, byte by byte."""
    values = ", ".join(qualified(name) for name in names)
    return f"sipHash128(formatRow('RowBinary', {values}))"


def _exact(number: str, digits: int) -> Iterator[str]:
    """Yield conditions under which no addition rounds, in whatever order.

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
_OF_TUPLES: Final = "allow_tuple_element_aggregation"
_KEY: Final = "mergeberg_key"
_VERSION: Final = "mergeberg_version"
_SIGN: Final = "mergeberg_sign"
_COUNT: Final = "mergeberg_rows"
_SAME: Final = "mergeberg_same"


@dataclass(frozen=True, slots=True)
class RowMerge:
    """OPTIMIZE as it stands behind the name of the table, without PARTITION.

    `merges`: rows of one sorting key are merged as the engine does it (FINAL). `duplicates` are the
    columns by which rows are the same, () where all of them are left.
    """

    command: str
    merges: bool = False
    duplicates: tuple[str, ...] = ()

    @property
    def leaves_all(self) -> bool:
        """Whether no row goes."""
        return not self.merges and not self.duplicates

    @property
    def words(self) -> str:
        """What stands behind OPTIMIZE TABLE and a name, so that the rows of all parts meet."""
        by = ", ".join(quote_identifier(name) for name in self.duplicates)
        return f"FINAL DEDUPLICATE BY {by}" if by else "FINAL"


def refuse_merge(merge: RowMerge, engine: Engine) -> None:
    """Refuse a merge that hangs on more than the rows.

    Raises:
        UnsupportedError: the engine's does (code 48).
    """
    if not merge.merges:
        return
    if engine.family not in _MERGED:
        why = f"what {engine.family} leaves hangs on the server's configuration and on the time"
    elif engine.family in _COMPUTE and dict(engine.settings).get(_OF_TUPLES, "0") != "0":
        why = f"how members of tuples are merged ({_OF_TUPLES}) is not there for lake tables"
    else:
        return
    message = (
        f"Cannot run {merge.command}: {why}. Run it in ClickHouse and export the partition again, "
        "or leave FINAL out."
    )
    raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def columns_of_merge(merge: RowMerge, table: MergeTreeTable) -> tuple[Column, ...]:
    """Return the stored columns that a merge is given, without defaults.

    They are those of `telling_columns`; all of an engine that computes values, and of one where it
    counts that rows are the same.

    Raises:
        UsageError: the text of a key cannot be read.
    """
    every = merge.merges and table.engine.family in (_COLLAPSING, *_COMPUTE)
    found = table.stored_columns if every else telling_columns(merge, table)
    return tuple(without_default(c) for c in found)


def telling_columns(merge: RowMerge, table: MergeTreeTable) -> tuple[Column, ...]:
    """Return the stored columns that say in which order rows stand and which of them are left.

    A name in a key may be that of a member of a column.

    Raises:
        UsageError: the text of a key cannot be read.
    """
    engine = table.engine
    keys = [key.expression for key in parse_sorting_key(engine.order_by or engine.primary_key)]
    if not merge.leaves_all:
        keys += [*parse_partition_key(engine.partition_by), *_arguments(engine)]
    used = frozenset(merge.duplicates).union(*(columns_of(one) for one in keys))
    return tuple(
        c for c in table.stored_columns if any(f"{name}.".startswith(f"{c.name}.") for name in used)
    )


def unclear_rows(
    merge: RowMerge, engine: Engine, table: str, columns: Sequence[Column] = ()
) -> str:
    """Return a query that has a row where it hangs on the order of insertion which rows are left.

    Of ReplacingMergeTree it does where two rows of a key have its latest version; of
    VersionedCollapsingMergeTree where rows of one key and version are more than one of each sign.
    Of CollapsingMergeTree where a key has as many rows of one sign as of the other: they go, or the
    first and the last stay; and where those of the more frequent sign are different. '' where it
    never does, or values are computed. Rows are of one key as a merge compares them (and a window,
    but no GROUP BY): 0 and -0 are, and so is all that is no number.

    Args:
        merge: what is to be done.
        engine: of the table.
        table: the rows, as they stand after FROM.
        columns: all that are stored, for CollapsingMergeTree.
    """
    if not merge.merges or engine.family in (_PLAIN, *_COMPUTE):
        return ""
    sorting = parse_sorting_key(engine.order_by or engine.primary_key)
    # Qualified, so that no name of ours takes the place of a column's.
    key = [qualify(one.expression) for one in sorting]
    given = [qualify(one) for one in _arguments(engine)]
    rows = f"{table} AS {SOURCE_ALIAS}"
    if engine.family == _VERSIONED:
        sign, version = given
        of_key = _over("dense_rank", [*key, version])
        ones = ", ".join(f"countIf({_SIGN} = {one})" for one in (1, -1))
        return (
            f"SELECT 1 FROM (SELECT {of_key} AS {_KEY}, {sign} AS {_SIGN} FROM {rows})"
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


def way_round(engine: Engine) -> str:
    """Return what helps where rows are alike, '' where each of them counts."""
    if engine.family != _REPLACING:
        return ""
    return "; where such rows are the same in all columns, run OPTIMIZE TABLE … DEDUPLICATE first"


def _unclear_pairs(key: list[str], sign: str, rows: str, columns: Sequence[Column]) -> str:
    of_row = f"{_over('dense_rank', key)} AS {_KEY}, {sign} AS {_SIGN}"
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
        f"SELECT 1 FROM (SELECT {of_row}, {same} FROM {rows}) GROUP BY {_KEY}"
        f" HAVING count() > 1 AND NOT ({clear}) LIMIT 1"
    )


def _over(rank: str, order: list[str]) -> str:
    """Return a number that rows have together which a merge takes for equal."""
    return f"{rank}() OVER (ORDER BY {', '.join(order) or 'tuple()'})"


def _arguments(engine: Engine) -> tuple[Expression, ...]:
    """Return the columns that an engine names, without what its replication does."""
    given = parse_expression(f"tuple({engine.arguments})")
    arguments = given.arguments if isinstance(given, Call) else ()
    return tuple(a for a in arguments if not isinstance(a, Literal))
