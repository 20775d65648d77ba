"""Asks whether the values that a merge leaves hang on the order of rows, in ClickHouse's SQL.

Rows are of one key as a merge compares them (`row_merge.py`); values are one value where their
bytes are (RowBinary), so that 0 and -0 are two. The rules are those of `value_merge.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tableformat.mergetree.expression_text import parse_sorting_key, qualify
from tableformat.mergetree.table import Engine
from tableformat.mergetree.value_merge import Hangs, MergedColumn
from tableformat.mergetree.wire_types import qualified
from tableformat.names import SOURCE_ALIAS

__all__ = ["Question", "questions", "row_hash", "unclear_values"]

_KEY: Final = "mergeberg_key"
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
