"""The proof that a partition belongs to one Iceberg partition, against ClickHouse and PyIceberg."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal as Number
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import IcebergType, IntegerType, LongType

from tableformat.errors import RefusedError
from tableformat.iceberg.partition_proof import (
    Disproved,
    Proved,
    directory,
    partition_values,
    probe,
    prove,
    value_texts,
)
from tableformat.iceberg.partition_spec import DerivedSpec, derive_spec
from tableformat.iceberg.schema import MappedColumns, map_columns
from tableformat.iceberg.spec_fields import SpecField, parse_spec
from tableformat.mergetree.types import (
    DataType,
    DateTime,
    DateTime64,
    Decimal,
    Enum,
    FixedString,
    LowCardinality,
    Nullable,
    Simple,
)
from tableformat.messages import plain
from tableformat.names import PartitionId
from tableformat.source import ProbedValue
from tests.strategies.mapping import Sample, column_of, table_of, type_samples
from tests.support.embedded_clickhouse import EmbeddedClickHouse

ID = PartitionId("202401")
TIMES: list[DataType] = [
    Simple("Date"),
    Simple("Date32"),
    DateTime("UTC"),
    DateTime("Asia/Tokyo"),
    DateTime64(3, "America/New_York"),
    DateTime64(6, "Asia/Kolkata"),
    DateTime64(9, "UTC"),
    Nullable(DateTime64(0, "UTC")),
]
NUMBERS: list[DataType] = [
    *(Simple(n) for n in ("Int8", "Int32", "Int64", "UInt8", "UInt32", "UInt64")),
    Decimal(9, 2),
    Decimal(18, 4),
    Nullable(Simple("Int64")),
]
TEXTS: list[DataType] = [Simple("String"), LowCardinality(Simple("String")), Enum(8, (("ä", 1),))]
CASES = [
    *((t, of) for of in TIMES for t in ("identity", "year", "month", "day", "hour", "bucket")),
    *((t, of) for of in NUMBERS + TEXTS for t in ("identity", "truncate", "bucket")),
    *((t, of) for of in (Simple("UUID"), Decimal(38, 10)) for t in ("bucket",)),
    *((t, of) for of in (FixedString(5), Simple("Bool"), Decimal(30, 2)) for t in ("identity",)),
]


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[EmbeddedClickHouse]:
    with EmbeddedClickHouse() as started:
        yield started


def columns_of(of: DataType, **conversions: str) -> MappedColumns:
    return map_columns(table_of(column_of("c", of)), conversions)


def field_of(transform: str) -> SpecField:
    return SpecField("c", transform, {"truncate": 7, "bucket": 16}.get(transform), "c")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_clickhouse_computes_the_value_that_iceberg_computes(
    clickhouse: EmbeddedClickHouse, data: st.DataObject
) -> None:
    """A partition value that a reader would not compute itself hides the rows from its filters."""
    transform, of = data.draw(
        st.sampled_from([c for c in CASES if not (c[0] == "hour" and str(c[1])[13:17] == "Date")])
    )
    columns = columns_of(of)
    field = field_of(transform)
    if not field.iceberg.can_transform(columns.columns[0].type):
        return
    sample: Sample = data.draw(type_samples(of, rows=5))
    asked = probe(field, columns)

    texts = clickhouse.rows(
        f"SELECT {asked.text_sql} FROM (SELECT {asked.sql} AS v FROM "
        f"(SELECT arrayElement([{', '.join(sample.sql)}], number + 1) AS c FROM numbers(5))"
        " AS __src)"
    )

    iceberg = field.iceberg.transform(columns.columns[0].type)
    for (text,), value in zip(texts, sample.seen, strict=True):
        probed = ProbedValue(text, text, int(text is None))
        wanted = None if value is None else iceberg(internal(value))
        proved = prove(field, columns, probed, ID, key="k")
        if _beyond(wanted, columns.columns[0].type):
            assert isinstance(proved, Disproved)
        else:
            assert proved == Proved(wanted)


def _beyond(value: Any, of: IcebergType) -> bool:
    """Whether a value exceeds its type: below the minimum there is no truncation."""
    if not (isinstance(of, IntegerType | LongType) and isinstance(value, int)):
        return False
    return value < -(2**31 if isinstance(of, IntegerType) else 2**63)


@pytest.mark.parametrize("of", ["Int32", "Int64"])
def test_a_truncation_that_wraps_around_is_disproved(
    clickhouse: EmbeddedClickHouse, of: str
) -> None:
    """Harm prevented: the least numbers stand in the partition of the greatest ones."""
    columns = columns_of(Simple(of))
    field = field_of("truncate")
    asked = probe(field, columns)
    least = f"CAST({-(2 ** (int(of[3:]) - 1))} AS {of})"

    ((text,),) = clickhouse.rows(
        f"SELECT {asked.text_sql} FROM (SELECT {asked.sql} AS v FROM (SELECT {least} AS c)"
        " AS __src)"
    )
    proved = prove(field, columns, ProbedValue(text, text, 0), ID, key="k")

    assert isinstance(proved, Disproved)
    assert "cannot hold" in proved.why


def internal(value: Any) -> Any:
    if hasattr(value, "toordinal"):
        return value.toordinal() - 719_163
    return value


def test_a_key_that_follows_another_zone_is_disproved_with_both_values(
    clickhouse: EmbeddedClickHouse,
) -> None:
    """The part of a Tokyo month that is another UTC month would be hidden from every filter."""
    columns = columns_of(DateTime("Asia/Tokyo"))
    field = field_of("month")
    asked = probe(field, columns)
    clickhouse.run(
        "CREATE TABLE tokyo (c DateTime('Asia/Tokyo')) ENGINE = MergeTree PARTITION BY toYYYYMM(c) "
        "ORDER BY c",
        "INSERT INTO tokyo VALUES ('2024-01-01 00:00:00'), ('2024-01-31 12:00:00')",
    )
    ((least, greatest, nulls),) = clickhouse.rows(
        f"WITH {asked.sql} AS x SELECT {asked.text_sql.replace('v', 'min(x)')}, "
        f"{asked.text_sql.replace('v', 'max(x)')}, countIf(x IS NULL) FROM tokyo AS __src "
        "WHERE _partition_id = '202401'"
    )

    proof = prove(field, columns, ProbedValue(least, greatest, nulls), ID, key="toYYYYMM(c)")

    assert isinstance(proof, Disproved)
    assert "partition 202401" in proof.why
    assert "PARTITION BY toYYYYMM(c)" in proof.why
    assert "2023-12 and 2024-01" in proof.why
    assert "--partition-spec" in plain(proof.why)


def test_a_partition_with_null_and_values_is_disproved() -> None:
    columns = columns_of(Nullable(Simple("Int32")))

    proof = prove(field_of("identity"), columns, ProbedValue("5", "5", 3), ID, key="c")

    assert isinstance(proof, Disproved)
    assert "NULL and 5" in proof.why


def test_a_partition_of_nulls_has_the_value_null() -> None:
    columns = columns_of(Nullable(Simple("Int32")))

    proof = prove(field_of("identity"), columns, ProbedValue(None, None, 3), ID, key="c")

    assert proof == Proved(None)


def test_a_partition_value_that_is_no_text_is_refused() -> None:
    columns = columns_of(Simple("String"))

    proof = prove(field_of("identity"), columns, ProbedValue("68C3", "68C3", 0), ID, key="c")

    assert isinstance(proof, Disproved)
    assert "0x68C3" in proof.why


def test_every_field_that_is_disproved_is_named_at_once() -> None:
    table = table_of(column_of("a", Simple("Int32")), column_of("b", Simple("Int32")))
    columns = map_columns(table)
    spec = DerivedSpec(parse_spec("a, b", columns), "(a, b)")

    with pytest.raises(RefusedError, match=r"(?s)values of a, .*values of b, ") as refused:
        partition_values(spec, columns, (ProbedValue("1", "2", 0), ProbedValue("1", "3", 0)), ID)

    assert refused.value.code == 36


def test_values_directories_and_receipt_texts_of_a_partition() -> None:
    table = table_of(
        column_of("ts", DateTime("UTC")),
        column_of("region", Nullable(Simple("String"))),
        column_of("n", Decimal(5, 2)),
        partition_by="(toYYYYMM(ts), region, n)",
    )
    columns = map_columns(table)
    spec = derive_spec(table, columns)
    probed = (
        ProbedValue("648", "648", 0),
        ProbedValue("612F62", "612F62", 0),
        ProbedValue("1.5", "1.5", 0),
    )

    values = partition_values(spec, columns, probed, ID)

    assert values == (648, "a/b", Number("1.50"))
    assert directory(spec, columns, values) == "ts_month=2024-01/region=a%2Fb/n=1.50"
    assert value_texts(spec, columns, values) == ("648", "a/b", "1.50")


@given(text=st.text(min_size=1, max_size=400))
def test_a_directory_name_always_fits_a_file_system(text: str) -> None:
    """A path component of more than 255 bytes cannot be created."""
    table = table_of(column_of("c", Simple("String")), partition_by="c")
    columns = map_columns(table)

    made = directory(derive_spec(table, columns), columns, (text,))

    assert len(made.encode()) <= 255
    assert "/" not in made
