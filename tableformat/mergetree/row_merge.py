"""OPTIMIZE TABLE: which rows a merge of all rows of a partition leaves, and what it reads for that.

Only merges that leave some of the rows as they are are here: those of ReplacingMergeTree and
VersionedCollapsingMergeTree, and DEDUPLICATE. Which rows are left must not hang on the order in
which they were inserted, of which data files say nothing.
"""

from __future__ import annotations

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
from tableformat.names import SOURCE_ALIAS, quote_identifier

__all__ = ["RowMerge", "columns_of_merge", "refuse_merge", "unclear_rows"]

_PLAIN: Final = "MergeTree"
_REPLACING: Final = "ReplacingMergeTree"
_VERSIONED: Final = "VersionedCollapsingMergeTree"
_KEY: Final = "mergeberg_key"
_VERSION: Final = "mergeberg_version"
_SIGN: Final = "mergeberg_sign"
_COUNT: Final = "mergeberg_rows"


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
    """Refuse a merge that makes other rows of rows, or one that needs their order.

    Raises:
        UnsupportedError: the engine does (code 48).
    """
    if merge.merges and engine.family not in (_PLAIN, _REPLACING, _VERSIONED):
        message = (
            f"Cannot run {merge.command}: how {engine.family} merges rows is not there yet for "
            "lake tables. Run it in ClickHouse and export the partition again, or leave FINAL out."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def columns_of_merge(merge: RowMerge, table: MergeTreeTable) -> tuple[Column, ...]:
    """Return the stored columns that say in which order rows stand and which are left.

    Without defaults. A name in a key may be that of a member of a column.

    Raises:
        UsageError: the text of a key cannot be read.
    """
    engine = table.engine
    keys = [key.expression for key in parse_sorting_key(engine.order_by or engine.primary_key)]
    if not merge.leaves_all:
        keys += [*parse_partition_key(engine.partition_by), *_arguments(engine)]
    used = frozenset(merge.duplicates).union(*(columns_of(one) for one in keys))
    return tuple(
        without_default(c)
        for c in table.stored_columns
        if any(f"{name}.".startswith(f"{c.name}.") for name in used)
    )


def unclear_rows(merge: RowMerge, engine: Engine, table: str) -> str:
    """Return a query that has a row where it hangs on the order of insertion which rows are left.

    Of ReplacingMergeTree it does where two rows of a key have its latest version; of
    VersionedCollapsingMergeTree where rows of one key and version are more than one of each sign.
    '' where it never does. Rows are of one key as a merge compares them (and a window, but no GROUP
    BY): 0 and -0 are, and so is all that is no number.

    Args:
        merge: what is to be done.
        engine: of the table.
        table: the rows, as they stand after FROM.
    """
    if not merge.merges or engine.family == _PLAIN:
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
    latest = [f"{one} DESC NULLS FIRST" for one in given[:1]]
    ranks = f"{_over('dense_rank', key)} AS {_KEY}, {_over('rank', [*key, *latest])} AS {_VERSION}"
    counted = (
        f"SELECT {_KEY}, {_VERSION}, count() AS {_COUNT} FROM (SELECT {ranks} FROM {rows})"
        f" GROUP BY {_KEY}, {_VERSION}"
    )
    return (
        f"SELECT 1 FROM ({counted}) GROUP BY {_KEY} HAVING argMin({_COUNT}, {_VERSION}) > 1 LIMIT 1"
    )


def _over(rank: str, order: list[str]) -> str:
    """Return a number that rows have together which a merge takes for equal."""
    return f"{rank}() OVER (ORDER BY {', '.join(order) or 'tuple()'})"


def _arguments(engine: Engine) -> tuple[Expression, ...]:
    """Return the columns that an engine names, without what its replication does."""
    given = parse_expression(f"tuple({engine.arguments})")
    arguments = given.arguments if isinstance(given, Call) else ()
    return tuple(a for a in arguments if not isinstance(a, Literal))
