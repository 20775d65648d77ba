"""Partition keys, sort keys and probes against ClickHouse and PyIceberg, over many values.

    python -m tests.properties.partition_sweep --values 20000 --seeds 3

For every column of `key_values.py`:

- a key that is derived divides the values as the spec does, one to one where it is called exact
  (where it is not, from 1970 to 2105); where it is called ordered, sorting by one sorts by the
  other;
- the probe of every field that a user may choose gives PyIceberg's value, or none where Iceberg has
  none.

`tests/properties/test_partition_sweep.py` runs a small part of it with every test run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from pyiceberg.types import DateType, IntegerType, LongType, TimestamptzType

from tableformat.errors import RefusedError
from tableformat.iceberg.partition_proof import Disproved, Proved, probe, prove
from tableformat.iceberg.partition_spec import DerivedSpec, derive_field, derive_spec
from tableformat.iceberg.schema import MappedColumns, map_columns
from tableformat.iceberg.spec_fields import TIME_TRANSFORMS, SpecField, why_not
from tableformat.mergetree.expression_parser import parse_partition_key
from tableformat.names import PartitionId
from tableformat.source import ProbedValue
from tests.properties.key_texts import key_texts
from tests.properties.key_values import KeyColumn, key_columns
from tests.strategies.mapping import column_of, table_of
from tests.support.embedded_clickhouse import EmbeddedClickHouse

__all__ = ["Sweep"]

_DAY = 86_400_000_000
_CERTAIN = (0, 49_673)
_LONGEST_QUERY = 100_000_000
_ID = PartitionId("all")


class Sweep:
    """One run over one ClickHouse; `found` are the mistakes, `counted` what was looked at."""

    def __init__(self, clickhouse: EmbeddedClickHouse) -> None:
        self._clickhouse = clickhouse
        clickhouse.run(
            f"SET max_query_size = {_LONGEST_QUERY}",
            "SET allow_suspicious_low_cardinality_types = 1",
        )
        names = clickhouse.rows("SELECT name FROM system.functions")
        self._functions = frozenset(name for (name,) in names)
        self.found: list[str] = []
        self.counted: Counter[str] = Counter()

    def run(
        self, seed: int, count: int, *, only: Callable[[KeyColumn], bool] = lambda _: True
    ) -> None:
        """Look at every column with values of this seed."""
        for column in filter(only, key_columns(seed, count)):
            made = table_of(column_of("c", column.type))
            columns = map_columns(made, {"c": column.conversion} if column.conversion else {})
            self._keys(column, columns)
            self._probes(column, columns)

    def _keys(self, column: KeyColumn, columns: MappedColumns) -> None:
        certain = column.kept(lambda value: _is_certain(value, columns))
        tried = [
            (key, _derived(key, column, columns)) for key in key_texts(column.type, self._functions)
        ]
        self.counted["keys"] += len(tried)
        self.counted["keys refused"] += sum(spec is None for _, spec in tried)
        exact = [(key, spec) for key, spec in tried if spec is not None and not spec.notes]
        other = [(key, spec) for key, spec in tried if spec is not None and spec.notes]
        self._divide(column, columns, exact)
        self._divide(certain, columns, other)

    def _divide(
        self, column: KeyColumn, columns: MappedColumns, keys: list[tuple[str, DerivedSpec]]
    ) -> None:
        if not keys or not column.texts:
            return
        self._create(column)
        # The rank tells partitions apart as the key's text would not: an hour may be shown twice.
        ranks = ", ".join(
            f"dense_rank() OVER (ORDER BY tuple({key})) AS r{i}" for i, (key, _) in enumerate(keys)
        )
        rows = self._clickhouse.arrow(f"SELECT {ranks} FROM v ORDER BY n").columns
        known: dict[str, list[tuple[Any, ...]]] = {}
        for i, (key, spec) in enumerate(keys):
            where = f"{column.name}: PARTITION BY {key} is {spec}"
            if (values := known.get(str(spec))) is None:
                values = known[str(spec)] = _iceberg(spec.fields, columns, column.values)
            ranked = rows[i].to_pylist()
            self.counted["values"] += len(values)
            self.found += _not_one_to_one(where, ranked, values)
            if _is_ordered(key, columns) and None not in {v for row in values for v in row}:
                self.found += _not_in_order(where, ranked, values)

    def _probes(self, column: KeyColumn, columns: MappedColumns) -> None:
        fields = [f for f in _choices() if not why_not(f, columns)]
        probes = [probe(f, columns) for f in fields]
        self._create(column)
        asked = ", ".join(
            f"(SELECT groupArray(tuple(t)) FROM (SELECT {p.text_sql} AS t FROM "
            f"(SELECT {p.sql} AS v, __src.n AS n FROM v AS __src ORDER BY n))) AS p{i}"
            for i, p in enumerate(probes)
        )
        if not asked:
            return
        (texts,) = self._clickhouse.rows(f"SELECT {asked}")
        for field, texts_of_field in zip(fields, texts, strict=True):
            self.counted["probed values"] += len(texts_of_field)
            wanted = _iceberg((field,), columns, column.values)
            for row, value, (iceberg,) in zip(texts_of_field, column.values, wanted, strict=True):
                text = next(iter(row.values()))
                where = f"{column.name}: {field} of {value!r} is {iceberg!r}"
                self.found += _wrong_probe(where, columns, field, text, iceberg)

    def _create(self, column: KeyColumn) -> None:
        self._clickhouse.run(
            "DROP TABLE IF EXISTS v",
            f"CREATE TABLE v ENGINE = Memory AS {column.select()}",
        )


def _choices() -> Iterator[SpecField]:
    yield from (SpecField("c", t) for t in ("identity", *TIME_TRANSFORMS))
    yield from (SpecField("c", "truncate", w) for w in (1, 7, 10, 256, 2**31 - 1))
    yield from (SpecField("c", "bucket", n) for n in (1, 16, 1000))


def _derived(key: str, column: KeyColumn, columns: MappedColumns) -> DerivedSpec | None:
    made = table_of(column_of("c", column.type), partition_by=key)
    parse_partition_key(key)
    try:
        return derive_spec(made, columns)
    except RefusedError:
        return None


def _is_ordered(key: str, columns: MappedColumns) -> bool:
    """Whether a key of one expression is also a sort key with the same order."""
    match parse_partition_key(key):
        case (one,):
            derived = derive_field(one, columns, "UTC")
            return not isinstance(derived, str) and derived.exact and derived.ordered
        case _:
            return False


def _is_certain(value: Any, columns: MappedColumns) -> bool:
    """Whether a time lies between 1970 and 2105."""
    match columns.columns[0].type:
        case DateType():
            return value is None or _CERTAIN[0] <= value < _CERTAIN[1]
        case TimestamptzType():
            return value is None or _CERTAIN[0] <= value // _DAY < _CERTAIN[1]
        case _:
            return True


def _iceberg(
    fields: tuple[SpecField, ...], columns: MappedColumns, values: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """Return PyIceberg's partition values of a column's values."""
    of = columns.columns[0].type
    transforms = [f.iceberg.transform(of) for f in fields]
    return [tuple(transform(value) for transform in transforms) for value in values]


def _not_one_to_one(where: str, keys: list[int], values: list[tuple[Any, ...]]) -> Iterator[str]:
    to_value: dict[int, tuple[Any, ...]] = {}
    to_key: dict[tuple[Any, ...], int] = {}
    for key, value in zip(keys, values, strict=True):
        if to_value.setdefault(key, value) != value:
            yield f"{where}, but the partition {key} holds {to_value[key]} and {value}"
            return
        if to_key.setdefault(value, key) != key:
            yield f"{where}, but {value} is in the partitions {to_key[value]} and {key}"
            return


def _not_in_order(where: str, ranks: list[int], values: list[tuple[Any, ...]]) -> Iterator[str]:
    rows = sorted(zip(ranks, values, strict=True), key=lambda row: row[0])
    for (_, (one,)), (_, (other,)) in pairwise(rows):
        if _comparable(one) > _comparable(other):
            yield f"{where}, but sorted by it {other!r} comes after {one!r}"
            return


def _comparable(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _wrong_probe(
    where: str, columns: MappedColumns, field: SpecField, text: str | None, wanted: Any
) -> Iterator[str]:
    proved = prove(field, columns, ProbedValue(text, text, int(text is None)), _ID, key="k")
    if isinstance(proved, Disproved):
        if not _has_no_value(wanted, columns, field):
            yield f"{where}, but {proved.why}"
    elif proved != Proved(wanted):
        yield f"{where}, not {proved.value!r}"


def _has_no_value(wanted: Any, columns: MappedColumns, field: SpecField) -> bool:
    """Whether a truncated number lies below its type's least one."""
    match columns.columns[0].type, wanted:
        case IntegerType(), int():
            return wanted < -(2**31)
        case LongType(), int():
            return wanted < -(2**63)
        case of, _:
            digits = getattr(of, "precision", None)
            return (
                digits is not None
                and field.transform == "truncate"
                and len(wanted.as_tuple().digits) > digits
            )


def main() -> int:
    """Run the whole sweep, tell what it found, and return 1 if that is anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=20_000, help="values per column")
    parser.add_argument("--seeds", type=int, default=3, help="how many, from --first-seed on")
    parser.add_argument("--first-seed", type=int, default=0)
    given = parser.parse_args()
    found: list[str] = []
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        start = time.monotonic()
        with EmbeddedClickHouse() as clickhouse:
            sweep = Sweep(clickhouse)
            sweep.run(seed, given.values)
        found += sweep.found
        counted = ", ".join(f"{n:,} {what}" for what, n in sorted(sweep.counted.items()))
        sys.stdout.write(
            f"seed {seed}: {counted}; {len(sweep.found)} mistakes; "
            f"{time.monotonic() - start:.0f} s\n"
        )
    sys.stdout.write("".join(f"{mistake}\n" for mistake in found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
