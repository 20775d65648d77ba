"""Manifest entries of files: counts are exact, and no bound hides a row."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotNaN,
    NotNull,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
    UUIDType,
)

from tableformat.errors import InternalError
from tableformat.iceberg.arrow_schema import file_schema
from tableformat.iceberg.values import data_file
from tableformat.parquet.writer import FileFormat, WrittenFile, write_file
from tableformat.receipt import ColumnStatistics, Receipt
from tests.strategies.rows import LAKE_SCHEMA, ROWS, VALUES, arrow_table, internal
from tests.support.lake_statements import attach, detach, in_files, running
from tests.support.scenarios import pyiceberg

UNPARTITIONED = PartitionSpec(spec_id=0)
NAMES = [field.name for field in LAKE_SCHEMA.fields]


class MemorySink:
    """Keeps one file in memory."""

    def __init__(self) -> None:
        self.data = io.BytesIO()

    def write(self, data: bytes, /) -> None:
        self.data.write(data)

    def commit(self) -> None:
        """Nothing to do."""

    def abort(self) -> None:
        """Nothing to do."""


def write(table: pa.Table, sink: MemorySink | None = None, group: int = 1_000_000) -> WrittenFile:
    fmt = FileFormat(row_group_rows=group)
    target = sink or MemorySink()
    return write_file(
        table.to_batches(), target, table.schema, fmt, (), convert=lambda given: given
    )


def write_rows(rows: list[dict[str, Any]], group: int = 1_000_000) -> WrittenFile:
    return write(arrow_table(rows, file_schema(LAKE_SCHEMA), NAMES), group=group)


def receipt(written: WrittenFile, path: str = "file:///f.parquet") -> Receipt:
    return Receipt(
        key="k" * 26,
        transaction_id="1",
        epoch=1,
        slice_number=0,
        attempt="0-x",
        ranges=(),
        file_path=path,
        file_bytes=written.bytes,
        sha256=written.sha256,
        rows=written.rows,
        rows_expected=written.rows,
        partition=(),
        spec_id=0,
        sort_order_id=None,
        split_offsets=written.split_offsets,
        columns=written.columns,
        seconds=0.0,
        peak_memory=0,
    )


def statistics(written: WrittenFile, field_id: int) -> ColumnStatistics:
    return next(c for c in written.columns if c.field_id == field_id)


def value_of(row: dict[str, Any], name: str) -> Any:
    """Return a column's value; members of structs by a dotted name that is no column's."""
    if name in row:
        return row[name]
    outer, _, member = name.partition(".")
    return None if row[outer] is None else row[outer][member]


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


COLUMNS = {**VALUES, "inner.x": VALUES["double"], "inner.s": VALUES["text"]}
FLOATING = ("double", "float", "inner.x")
TEXTUAL = ("text", "inner.s", "n.dotted")
Matches = Callable[[Any], bool]


def _in_one(name: str, value: Any) -> BooleanExpression:
    return In(term=Reference(name), values={value})


COMPARISONS: tuple[tuple[Any, Callable[[Any, Any], bool]], ...] = (
    (EqualTo, lambda v, x: v == x),
    (NotEqualTo, lambda v, x: v != x),
    (LessThan, lambda v, x: v < x),
    (LessThanOrEqual, lambda v, x: v <= x),
    (GreaterThan, lambda v, x: v > x),
    (GreaterThanOrEqual, lambda v, x: v >= x),
    (_in_one, lambda v, x: v == x),
)


def conditions(name: str, rows: Sequence[dict[str, Any]]) -> st.SearchStrategy[Any]:
    """Conditions on one column, most of them about values that are there."""
    present = [v for row in rows if (v := value_of(row, name)) is not None and not is_nan(v)]
    values = COLUMNS[name].filter(lambda v: not is_nan(v))
    pool = st.one_of(st.sampled_from(present), values) if present else values
    return st.tuples(pool, st.sampled_from(COMPARISONS)).map(
        lambda drawn: (
            drawn[1][0](name, drawn[0]),
            lambda v: (
                v is not None and not is_nan(v) and drawn[1][1](internal(v), internal(drawn[0]))
            ),
        )
    )


def unary(name: str) -> list[tuple[BooleanExpression, Matches]]:
    found: list[tuple[BooleanExpression, Matches]] = [
        (IsNull(term=Reference(name)), lambda v: v is None),
        (NotNull(term=Reference(name)), lambda v: v is not None),
    ]
    if name in FLOATING:
        found += [
            (IsNaN(term=Reference(name)), is_nan),
            (NotNaN(term=Reference(name)), lambda v: v is not None and not is_nan(v)),
        ]
    return found


@settings(deadline=None, max_examples=150)
@given(rows=st.lists(ROWS, min_size=1, max_size=12), group=st.integers(1, 12), data=st.data())
def test_no_reader_skips_a_file_that_holds_a_matching_row(
    rows: list[dict[str, Any]], group: int, data: st.DataObject
) -> None:
    """A bound that is too tight loses rows silently, in every engine that prunes."""
    file = data_file(receipt(write_rows(rows, group)), LAKE_SCHEMA, UNPARTITIONED)

    for name in COLUMNS:
        values = [value_of(row, name) for row in rows]
        drawn = [data.draw(conditions(name, rows)), *unary(name)]
        if name in TEXTUAL:
            texts = [v for v in values if v is not None] or ["a"]
            prefix = data.draw(st.sampled_from(texts))[: data.draw(st.integers(1, 20))] or "a"
            drawn.append(
                (StartsWith(term=Reference(name), value=literal(prefix)), _starts_with(prefix))
            )
        for expression, matches in drawn:
            # PyIceberg takes an infinite 64-bit literal for one beyond every 32-bit number.
            if name == "float" and any(map(math.isinf, _floats_of(expression))):
                continue
            if any(matches(v) for v in values):
                kept = _InclusiveMetricsEvaluator(LAKE_SCHEMA, expression).eval(file)
                assert kept, f"{expression} hides one of {values}"


def _floats_of(expression: Any) -> list[float]:
    one = getattr(expression, "literal", None)
    several = getattr(expression, "literals", ())
    return [x.value for x in (one, *several) if x is not None and isinstance(x.value, float)]


def _starts_with(prefix: str) -> Matches:
    return lambda v: v is not None and v.startswith(prefix)


@settings(deadline=None, max_examples=100)
@given(rows=st.lists(ROWS, max_size=12), group=st.integers(1, 12))
def test_counts_are_exact(rows: list[dict[str, Any]], group: int) -> None:
    written = write_rows(rows, group)

    for name in COLUMNS:
        field = LAKE_SCHEMA.find_field(name)
        found = statistics(written, field.field_id)
        values = [value_of(row, name) for row in rows]
        assert found.values == len(rows)
        assert found.nulls == sum(v is None for v in values)
        assert found.nans == (sum(map(is_nan, values)) if name in FLOATING else None)
    elements = [v for row in rows for v in row["many"] or ()]
    assert statistics(written, 20).nans == sum(map(is_nan, elements))
    assert (statistics(written, 20).lower, statistics(written, 20).upper) == (None, None)


@settings(deadline=None, max_examples=100)
@given(rows=st.lists(ROWS, min_size=1, max_size=12), group=st.integers(1, 12))
def test_bounds_are_icebergs_bytes_of_the_least_and_greatest_value(
    rows: list[dict[str, Any]], group: int
) -> None:
    """Where nothing is cut, a bound is the value itself: pruning is as good as it can be."""
    written = write_rows(rows, group)

    for name in set(COLUMNS) - {*TEXTUAL, "bytes", "id"}:
        values = [value_of(row, name) for row in rows]
        present = [internal(v) for v in values if v is not None and not is_nan(v)]
        found = statistics(written, LAKE_SCHEMA.find_field(name).field_id)
        kind = LAKE_SCHEMA.find_field(name).field_type
        assert isinstance(kind, PrimitiveType)
        low, high = (min(present), max(present)) if present else (None, None)
        if name in FLOATING and present:
            low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
        assert found.lower == (None if low is None else to_bytes(kind, low).hex())
        assert found.upper == (None if high is None else to_bytes(kind, high).hex())


def test_a_uuid_has_no_bounds_in_the_manifest_and_none_in_the_file() -> None:
    """Harm prevented: Iceberg's Java library leaves out files with UUIDs from 8000… on."""
    fields = (NestedField(1, "id", UUIDType()), NestedField(2, "n", LongType()))
    schema = file_schema(Schema(*fields))
    ids = pa.array([b"\x01" * 16, None, b"\xff" * 16], pa.binary(16))
    columns = [pa.ExtensionArray.from_storage(pa.uuid(), ids), pa.array([1, 2, 3])]
    sink = MemorySink()
    written = write(pa.table(columns, schema=schema), sink)

    found = written.columns[0]
    assert (found.lower, found.upper, found.values, found.nulls) == (None, None, 3, 1)
    group = pq.read_metadata(pa.BufferReader(sink.data.getvalue())).row_group(0)
    assert group.column(0).statistics is None
    assert group.column(1).statistics.max == 3


def text_bounds(values: list[str]) -> tuple[str | None, str | None]:
    schema = Schema(NestedField(1, "s", StringType()))
    found = write(pa.table([pa.array(values)], schema=file_schema(schema))).columns[0]
    return (
        None if found.lower is None else bytes.fromhex(found.lower).decode(),
        None if found.upper is None else bytes.fromhex(found.upper).decode(),
    )


@pytest.mark.parametrize(
    ("value", "lower", "upper"),
    [
        ("a" * 16, "a" * 16, "a" * 16),
        ("a" * 17, "a" * 16, "a" * 15 + "b"),
        ("é" * 17, "é" * 16, "é" * 15 + "ê"),
        ("a" * 15 + "\U0010ffff" * 2, "a" * 15 + "\U0010ffff", "a" * 14 + "b"),
        ("a" * 15 + "\ud7ff" * 2, "a" * 15 + "\ud7ff", "a" * 15 + "\ue000"),
        ("\U0010ffff" * 17, "\U0010ffff" * 16, None),
    ],
)
def test_long_text_is_cut_by_code_points_and_rounded_up(
    value: str, lower: str, upper: str | None
) -> None:
    assert text_bounds([value]) == (lower, upper)


def test_very_long_values_still_have_bounds() -> None:
    """Parquet omits limits above 4 kB, but users filter by long log lines."""
    assert text_bounds(["b" + "x" * 10_000, "a" * 10_000, "c"]) == ("a" * 16, "c")


def lake_table(folder: Path, schema: Schema, spec: PartitionSpec) -> Any:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("ns")
    return catalog.create_table("ns.t", schema, partition_spec=spec)


def test_a_committed_file_is_pruned_and_read_by_another_reader(tmp_path: Path) -> None:
    """PyIceberg plans scans from our manifest entry and reads the rows back."""
    wanted = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "day", DateType()),
        NestedField(3, "ts", TimestamptzType()),
        NestedField(4, "amount", DecimalType(20, 0)),
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "day"),
        PartitionField(3, 1001, DayTransform(), "ts_day"),
    )
    table = lake_table(tmp_path, wanted, spec)
    schema, spec = table.schema(), table.spec()
    rows = [[1, 2, 3], [19723] * 3, [19723 * 86_400_000_000 + n for n in range(3)], [-5, 0, 7]]
    kinds = file_schema(schema)
    columns = [
        pa.array(rows[0]),
        pa.array(rows[1], pa.int32()).cast(pa.date32()),
        pa.array(rows[2], pa.int64()).cast(kinds.field("ts").type),
        pa.array(rows[3], pa.int64()).cast(pa.decimal128(20, 0)),
    ]
    sink = MemorySink()
    written = write(pa.Table.from_arrays(columns, schema=kinds), sink)
    path = tmp_path / "data.parquet"
    path.write_bytes(sink.data.getvalue())
    file_receipt = dataclasses.replace(
        receipt(written, f"file://{path}"), partition=("2024-01-01", "2024-01-01")
    )

    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(data_file(file_receipt, schema, spec))

    assert table.scan().to_arrow().column("id").to_pylist() == [1, 2, 3]
    assert table.scan("amount < 0").to_arrow().column("id").to_pylist() == [1]
    assert list(table.scan("id > 3").plan_files()) == []
    assert list(table.scan("day = '2024-01-02'").plan_files()) == []
    (planned,) = table.scan("ts >= '2024-01-01T00:00:00+00:00'").plan_files()
    assert planned.file.record_count == 3
    assert planned.file.split_offsets == list(written.split_offsets)
    assert tuple(planned.file.partition[i] for i in range(2)) == (19723, 19723)


def test_a_receipt_for_another_spec_is_never_committed() -> None:
    file_receipt = receipt(write_rows([]))
    with pytest.raises(InternalError, match="written for partition spec 0"):
        data_file(file_receipt, LAKE_SCHEMA, PartitionSpec(spec_id=1))


def test_figures_that_are_not_known_are_left_out() -> None:
    file_receipt = dataclasses.replace(receipt(write_rows([])), columns=(ColumnStatistics(1, 10),))
    file: DataFile = data_file(file_receipt, LAKE_SCHEMA, UNPARTITIONED)

    assert file.column_sizes == {1: 10}
    assert file.value_counts == {}
    assert file.lower_bounds == {}


def test_totals_are_left_out_after_a_snapshot_without_a_summary(tmp_path: Path) -> None:
    """Harm prevented: totals that begin at 0, which readers take for the rows of the table."""
    in_files(tmp_path)
    running(tmp_path).run(detach("p2"))
    path = Path(pyiceberg(tmp_path).metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    for snapshot in metadata["snapshots"]:
        # Version 1 does not require it, and an upgrade adds none.
        del snapshot["summary"]
    path.write_text(json.dumps(metadata))

    assert running(tmp_path).run(attach("p2")).rows == 3

    head = pyiceberg(tmp_path).current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert (head.summary["added-records"], head.summary.get("total-records")) == ("3", None)
