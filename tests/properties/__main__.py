"""The long run: `python -m tests.properties --tables 5000 --seed N [--way arrow]` (or `make soak`).

Prints what it met and how fast, and fails at the first table that a claim does not hold for, made
as small as it can be. At the end it makes a table for each family of types and conversion that it
has not drawn.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tableformat.names import TableName
from tests.properties.column_types import CONVERSIONS, FAMILIES, not_among
from tests.properties.many_tables import ManyTables, Way
from tests.properties.table_check import Seen, check_table, statements
from tests.strategies.tables import ColumnDefinition, TableDefinition, tables

_SHOWN_EVERY: Final = 250
_PHASES: Final = (Phase.generate, Phase.shrink)


class _Failing:
    """Remembers the table that was tried last: when the run fails, the smallest that fails."""

    table: TableDefinition | None = None


def main() -> int:
    """Run, tell, and return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--way", type=Way, choices=Way, default=Way.FILES)
    given_by_user = parser.parse_args()
    number = given_by_user.seed if given_by_user.seed is not None else random.randrange(2**32)  # noqa: S311
    _say(f"seed {number}, {given_by_user.tables} tables")
    seen, failing, start = Seen(), _Failing(), time.monotonic()
    error: Exception | None = None
    with ManyTables(way=given_by_user.way) as opened:
        begun = time.monotonic()

        def one(table: TableDefinition) -> None:
            failing.table = table
            check_table(opened, table, seen)
            if seen.outcomes["tables"] % _SHOWN_EVERY == 0:
                _say(_speed(seen, begun))

        try:
            _property(one, tables(), given_by_user.tables, number)
            for of, word in [*not_among(seen.families, seen.conversions)]:
                column = ColumnDefinition("wanted", of, conversion=word)
                _property(one, tables(wanted=column), 1, number)
        except Exception as found:  # noqa: BLE001  whatever it is, it is printed with its table
            error = found
        _say(_speed(seen, begun))
    _show(seen)
    _say(
        f"{time.monotonic() - start:.0f} s in all, {_cores():.0f} s of processor time, so "
        f"{seen.outcomes['tables'] / _cores():.1f} tables a second of one core"
    )
    if error is not None and failing.table is not None:
        _show_failure(failing.table, error)
        return 1
    assert seen.families.keys() >= FAMILIES
    assert seen.conversions.keys() >= CONVERSIONS
    return 0


def _property(
    one: Callable[[TableDefinition], None],
    drawn: st.SearchStrategy[TableDefinition],
    count: int,
    number: int,
) -> None:
    seed(number)(
        settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=_PHASES,
            suppress_health_check=list(HealthCheck),
        )(given(table=drawn)(one))
    )()


def _speed(seen: Seen, begun: float) -> str:
    count, wall = seen.outcomes["tables"], time.monotonic() - begun
    slowest = sorted(seen.seconds.items(), key=lambda item: -item[1])
    shares = ", ".join(f"{what} {spent / wall:.0%}" for what, spent in slowest)
    return f"{count} tables in {wall:.0f} s, {count / wall:.1f} a second ({shares})"


def _cores() -> float:
    """Return the seconds of processor time of this process and of those that it ended."""
    own, others = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def _show(seen: Seen) -> None:
    for what, found in (
        ("types", seen.families),
        (
            "conversions",
            Counter({f"{of} as {word}": n for (of, word), n in seen.conversions.items()}),
        ),
        ("outcomes", seen.outcomes),
    ):
        _say(f"{what}: " + ", ".join(f"{name} {count}" for name, count in sorted(found.items())))


def _show_failure(table: TableDefinition, error: Exception) -> None:
    _say(f"\nWRONG: {type(error).__name__}: {error}\n")
    # A group shows only here which claims did not hold.
    _say("".join(traceback.format_exception(error, limit=-3)))
    for sql in statements(table, TableName("db", "t")):
        _say(f"{sql};")
    _say(f"conversions {table.conversions}, partition spec {table.partition_spec}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
