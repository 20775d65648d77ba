"""Random partition keys over random rows in real tables: refused, or divided as Iceberg divides."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, event, given, reject, settings
from hypothesis import strategies as st

from tableformat.errors import RefusedError
from tableformat.iceberg.key_functions import MATRIX
from tableformat.iceberg.partition_proof import probe
from tableformat.iceberg.partition_spec import derive_spec
from tableformat.iceberg.schema import MappedColumns, map_columns
from tableformat.iceberg.spec_fields import SpecField
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import (
    DataType,
    DateTime,
    DateTime64,
    Decimal,
    LowCardinality,
    Nullable,
    Simple,
)
from tests.properties.key_texts import UNKNOWN, spellings
from tests.strategies.mapping import column_of, table_of, type_samples
from tests.support.embedded_clickhouse import EmbeddedClickHouse

ROWS = 14
TIMES: list[DataType] = [
    Simple("Date"),
    Simple("Date32"),
    DateTime("UTC"),
    DateTime("Asia/Tokyo"),
    DateTime("America/New_York"),
    Nullable(DateTime("UTC")),
    LowCardinality(DateTime("UTC")),
    DateTime64(3, "UTC"),
    DateTime64(6, "Asia/Kolkata"),
]
OTHERS: list[DataType] = [
    *(Simple(n) for n in ("Int8", "UInt8", "Int32", "UInt64", "String", "UUID", "Bool")),
    Nullable(Simple("Int16")),
    LowCardinality(Simple("String")),
    Decimal(9, 2),
]
_DAYS_TO_2106 = 49_673
# Wrong argument types, NULL where none may be, a number or a time that the function does not take.
_REFUSED_BY_CLICKHOUSE = (6, 27, 36, 38, 41, 43, 53, 69, 70, 321, 349, 407)
NOT_HERE = ("icebergYear", "icebergMonth", "icebergDay", "icebergHour")
TIMED = [s for row in MATRIX if row not in NOT_HERE for s in spellings(row)]
PARTS = [
    f"{part}({{c}})" for part in ("toMonth", "toDayOfMonth", "toHour", "toQuarter", "toMonday")
]
COUNTED = [
    *("intDiv({c}, 10)", "{c} - {c} % 7", "{c} - pmod({c}, 7)", "icebergTruncate(3, {c})"),
    *("bitShiftRight({c}, 2)", "substringUTF8({c}, 1, 2)", "left({c}, 2)", "{c} DIV 4 * 4"),
    *("icebergBucket(4, {c})", "toString({c})", "icebergBucket(4, CAST({c} AS Decimal(20, 0)))"),
]
WRAPPED = ["toTimezone({c}, 'UTC')", "toDate({c})", "toDate32({c})", "toDateTime({c}, 'UTC')"]


def expressions(column: str, functions: list[str]) -> st.SearchStrategy[str]:
    """Expressions over one column: mostly one function, sometimes of another one."""
    plain = st.just(column)
    inner = st.one_of(
        plain, plain, st.sampled_from(WRAPPED).map(lambda text: text.replace("{c}", column))
    )
    outer = st.builds(
        lambda text, operand: text.replace("{c}", operand),
        st.sampled_from([*functions, *functions, *UNKNOWN]),
        inner,
    )
    return st.one_of(plain, outer, outer, outer)


KEYS = st.lists(
    st.one_of(expressions("t", TIMED), expressions("t", PARTS + TIMED), expressions("v", COUNTED)),
    min_size=1,
    max_size=3,
).map(lambda members: f"({', '.join(members)})" if len(members) > 1 else members[0])


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[EmbeddedClickHouse]:
    with EmbeddedClickHouse() as started:
        started.run(
            "SET allow_suspicious_low_cardinality_types = 1",
            "SET max_partitions_per_insert_block = 0",
        )
        yield started


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_key_is_refused_or_partitions_and_values_correspond_one_to_one(
    clickhouse: EmbeddedClickHouse, data: st.DataObject
) -> None:
    """A partition in two Iceberg partitions cannot be exported; two in one replace each other."""
    types = {"t": data.draw(st.sampled_from(TIMES)), "v": data.draw(st.sampled_from(OTHERS))}
    key = data.draw(KEYS)
    table = table_of(*(column_of(n, of) for n, of in types.items()), partition_by=key)
    columns = map_columns(table)
    try:
        spec = derive_spec(table, columns)
    except RefusedError:
        event("refused")
        return
    samples = {n: data.draw(type_samples(of, rows=ROWS)).sql for n, of in types.items()}
    _create(clickhouse, table, samples)
    event("exact" if not spec.notes else "exact from 1970 to 2105")

    rows = _values(clickhouse, (SpecField("t", "day"), *spec.fields), columns)
    if spec.notes:
        rows = [row for row in rows if row[1] is None or 0 <= int(row[1]) < _DAYS_TO_2106]
    by_partition: dict[str, set[tuple[str | None, ...]]] = {}
    for partition, _, *value in rows:
        by_partition.setdefault(str(partition), set()).add(tuple(value))
    assert {p: v for p, v in by_partition.items() if len(v) != 1} == {}
    assert len({value for (value,) in by_partition.values()}) == len(by_partition)


def _create(
    clickhouse: EmbeddedClickHouse, table: MergeTreeTable, samples: dict[str, tuple[str, ...]]
) -> None:
    declared = ", ".join(f"{c.name} {c.type_text}" for c in table.columns)
    selected = ", ".join(
        f"arrayElement([{', '.join(sql)}], number + 1) AS {n}" for n, sql in samples.items()
    )
    clickhouse.run("DROP TABLE IF EXISTS keyed SYNC")
    try:
        clickhouse.run(
            f"CREATE TABLE keyed ({declared}) ENGINE = MergeTree "
            f"PARTITION BY {table.engine.partition_by} ORDER BY tuple() "
            "SETTINGS allow_nullable_key = 1",
            f"INSERT INTO keyed SELECT {selected} FROM numbers({ROWS})",
        )
    except RuntimeError as error:
        # No such key, or none for such a value: a table with it cannot be exported either.
        if any(f"Code: {code}." in str(error) for code in _REFUSED_BY_CLICKHOUSE):
            event("refused by ClickHouse")
            reject()
        raise


def _values(
    clickhouse: EmbeddedClickHouse, fields: tuple[SpecField, ...], columns: MappedColumns
) -> list[tuple[str | None, ...]]:
    """Return the partition of every row, and the texts of the fields' probes."""
    asked = [probe(f, columns) for f in fields]
    texts = ", ".join(
        f"arrayElement(arrayMap(v -> {p.text_sql}, [{p.sql}]), 1) AS p{i}"
        for i, p in enumerate(asked)
    )
    return clickhouse.rows(f"SELECT _partition_id AS p, {texts} FROM keyed AS __src")
