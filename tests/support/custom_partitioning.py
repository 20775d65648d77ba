"""The examples of ClickHouse's documentation of partitions: tests 00502_custom_partitioning_*.

Five tables, what is inserted into each, and the statements about its partitions, in order. There
they are run on a MergeTree table (`local`) and on two replicas (`replicated_zookeeper`), which
merge one partition more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["EXAMPLES", "Example"]


@dataclass(frozen=True)
class Example:
    """A table by its columns and keys, what is inserted, and what is done.

    So many rows are `left`. `spec` divides the lake table, where it cannot be derived; `replicated`
    is only done where there are replicas.
    """

    name: str
    columns: str
    keys: str
    inserts: tuple[str, ...]
    statements: tuple[str, ...]
    left: int
    spec: str | None = None
    replicated: tuple[str, ...] = ()


EXAMPLES: Final = (
    Example(
        "not_partitioned",
        "x UInt8",
        "ORDER BY x",
        ("(1), (2), (3)", "(4), (5)"),
        (
            "OPTIMIZE TABLE {} PARTITION tuple() FINAL",
            "ALTER TABLE {} DETACH PARTITION ID 'all'",
        ),
        left=0,
    ),
    Example(
        "partitioned_by_week",
        "d Date, x UInt8",
        "PARTITION BY toMonday(d) ORDER BY x",
        # The third is of another week than the first two.
        (
            "('2000-01-01', 1), ('2000-01-02', 2), ('2000-01-03', 3)",
            "('2000-01-03', 4), ('2000-01-03', 5)",
        ),
        (
            "OPTIMIZE TABLE {} PARTITION '2000-01-03' FINAL",
            "ALTER TABLE {} DROP PARTITION '1999-12-27'",
        ),
        left=3,
        spec="month(d)",
    ),
    Example(
        "partitioned_by_tuple",
        "d Date, x UInt8, y UInt8",
        "PARTITION BY (d, x) ORDER BY x",
        (
            "('2000-01-01', 1, 1), ('2000-01-01', 2, 2), ('2000-01-02', 1, 3)",
            "('2000-01-02', 1, 4), ('2000-01-01', 1, 5)",
        ),
        (
            "OPTIMIZE TABLE {} PARTITION ('2000-01-01', 1) FINAL",
            "OPTIMIZE TABLE {} PARTITION ('2000-01-02', 1) FINAL",
            "ALTER TABLE {} DETACH PARTITION ID '20000101-1'",
        ),
        left=3,
    ),
    Example(
        "partitioned_by_string",
        "s String, x UInt8",
        "PARTITION BY s ORDER BY x",
        ("('aaa', 1), ('aaa', 2), ('bbb', 3)", "('bbb', 4), ('aaa', 5)"),
        ("OPTIMIZE TABLE {} PARTITION 'aaa' FINAL", "ALTER TABLE {} DROP PARTITION 'bbb'"),
        left=3,
    ),
    Example(
        "without_fixed_size_columns",
        "s String",
        "PARTITION BY length(s) ORDER BY s",
        ("('a'), ('aa'), ('b'), ('cc')",),
        ("ALTER TABLE {} DROP PARTITION 1",),
        left=2,
        spec="unpartitioned",
        replicated=("OPTIMIZE TABLE {} PARTITION 1 FINAL",),
    ),
)
