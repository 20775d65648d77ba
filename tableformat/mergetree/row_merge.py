"""OPTIMIZE TABLE: which rows a merge of all rows of a partition leaves, and what it reads for that.

Merges that leave some of the rows as they are are here: those of ReplacingMergeTree,
CollapsingMergeTree and VersionedCollapsingMergeTree, and DEDUPLICATE; those that compute values are
`value_merge.py`. What is left must not hang on the order in which rows were inserted, of which data
files say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from tableformat.mergetree.unclear_values import row_hash
from tableformat.mergetree.value_merge import AGGREGATING, COALESCING, SUMMING
from tableformat.names import SOURCE_ALIAS, quote_identifier

__all__ = [
    "RowMerge",
    "columns_of_merge",
    "refuse_merge",
    "telling_columns",
    "unclear_rows",
    "way_round",
]

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
