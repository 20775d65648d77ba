"""Tables that others made, or have changed since: the rows arrive as in a table of our own.

B.4; SRS-016 SchemaCompatibility, DestinationSupport. ClickHouse, task code, catalog and PyIceberg
as the other writer are the real ones.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.avro.file import AvroFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import DayTransform, IdentityTransform, MonthTransform
from pyiceberg.typedef import Record
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from tableformat.errors import RefusedError
from tableformat.iceberg.schema import map_columns
from tableformat.mergetree.types import render_type
from tableformat.names import TableName
from tests.strategies.existing import mutated_schemas
from tests.strategies.mapping import Sample, samples
from tests.support.real_export import RealExport
from tests.support.strangers_lake import (
    COLUMNS,
    ROWS,
    events,
    lake_schema,
    make,
    make_with_ids,
    month,
    statuses,
)

TYPES = "SET allow_suspicious_low_cardinality_types = 1, enable_time_time64_type = 1"


def rows_like(exports: RealExport, name: TableName, like: Schema) -> list[str]:
    """Return all rows of a lake table, each as text, with the fields that another schema has."""
    rows = exports.lake(name).scan().to_arrow().to_pylist()
    wanted = {f.name: f.field_type for f in like.fields}
    return sorted(repr({n: _like(row[n], of) for n, of in wanted.items()}) for row in rows)


def _like(value: Any, of: Any) -> Any:
    match value, of:
        case dict(), StructType():
            return {f.name: _like(value[f.name], f.field_type) for f in of.fields}
        case list(), ListType():
            return [_like(v, of.element_type) for v in value]
        case list(), _:
            return [(_like(k, of.key_type), _like(v, of.value_type)) for k, v in value]
        case float(), _ if math.isnan(value):
            return "nan"
        case _:
            return value


def filled(exports: RealExport, found: list[Sample]) -> TableName:
    """Make a ClickHouse table with a column for each sample."""
    columns = ", ".join(f"c{i} {render_type(s.type)}" for i, s in enumerate(found))
    name = exports.clickhouse.table("ENGINE = MergeTree ORDER BY k", f"k UInt32, {columns}")
    values = ", ".join(f"arrayElement([{', '.join(s.sql)}], number + 1)" for s in found)
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} SELECT number, {values} FROM numbers({len(found[0].sql)})"
    )
    return name


@pytest.mark.representative
@settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture,
    ],
)  # fmt: skip
@given(data=st.data(), found=st.lists(samples(), min_size=5, max_size=12))
def test_a_strangers_table_that_fits_gets_the_same_rows_as_one_of_our_own(
    exports: RealExport, data: st.DataObject, found: list[Sample]
) -> None:
    """Harm prevented: values in other columns, because order or ids of the table are its own."""
    exports.clickhouse.command(TYPES)
    name = filled(exports, found)
    copy = exports.clickhouse.copy(name)
    ours = map_columns(exports.clickhouse.source.describe(name)).schema
    lake = data.draw(mutated_schemas(ours, forbidden=False, first_id=50))
    make_with_ids(exports, copy, lake.schema)

    assert statuses(exports, name) == ["committed"]
    assert statuses(exports, copy) == ["committed"]

    assert exports.lake(copy).schema().as_struct() == lake.schema.as_struct()
    assert rows_like(exports, copy, ours) == rows_like(exports, name, ours)
    assert len(rows_like(exports, copy, ours)) == 3


def test_a_table_that_evolved_keeps_its_old_specs_rows_and_ids(exports: RealExport) -> None:
    """The current names and the current spec decide; what others wrote before stays readable."""
    name = events(exports)
    schema = lake_schema(NestedField(5, "old", StringType()), NestedField(6, "gone", LongType()))
    day = PartitionSpec(PartitionField(4, 1000, DayTransform(), "ts_day"))
    table = make(exports, name, schema, partition_spec=day)
    theirs = pa.Table.from_pylist(
        [{"s": "theirs", "id": 100, "ts": datetime(2023, 5, 5, tzinfo=UTC), "gone": 9}],
        schema=table.schema().as_arrow(),
    )
    table.append(theirs)
    with table.update_schema() as update:
        update.delete_column("gone")
        update.rename_column("s", "renamed")
    with table.update_schema() as update:
        update.rename_column("old", "s")
        update.add_column("gone", StringType())
        update.move_first("id")
    with table.update_spec() as spec:
        spec.remove_field("ts_day")
        spec.add_field("ts", MonthTransform(), "ts_month")
    ids = {f.name: f.field_id for f in table.schema().fields}

    assert statuses(exports, name, alongside=True) == ["committed"] * 2

    assert sorted(exports.in_lake(name, COLUMNS), key=str) == sorted(
        [*ROWS, (100, None, None)], key=str
    )
    after = exports.lake(name)
    assert {f.name: f.field_id for f in after.schema().fields} == ids
    assert {spec_id: len(s.fields) for spec_id, s in after.specs().items()} == {0: 1, 1: 1}
    assert sorted(f.spec_id for f in exports.data_files(name)) == [0, 1, 1]
    rows = after.scan().to_arrow()
    assert rows.filter(pc.field("id") == 100)["renamed"].to_pylist() == ["theirs"]
    assert rows["gone"].null_count == 6
    in_january = "ts > '2024-01-01T00:00:00+00:00' and ts < '2024-02-01T00:00:00+00:00'"
    january = after.scan(row_filter=in_january)
    assert len(list(january.plan_files())) == 1
    assert len(january.to_arrow()) == 3


def test_a_table_upgraded_from_version_1_may_have_fields_that_divide_nothing(
    exports: RealExport,
) -> None:
    """Version 1 cannot forget a partition field; without its column it has no values."""
    name = events(exports)
    schema = lake_schema(NestedField(5, "region", StringType()))
    spec = PartitionSpec(
        PartitionField(5, 1000, IdentityTransform(), "region"),
        PartitionField(4, 1001, MonthTransform(), "ts_month"),
    )
    table = make(exports, name, schema, partition_spec=spec, properties={"format-version": "1"})
    upgrade = r"SET TBLPROPERTIES \('format-version'='2'\)"
    with pytest.raises(RefusedError, match=upgrade) as refused:
        exports.run(name)
    with table.update_spec() as update:
        update.remove_field("region")
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)

    assert refused.value.code == 48
    assert statuses(exports, name) == ["committed"] * 2
    assert exports.in_lake(name, COLUMNS) == ROWS
    assert [f.partition[0] for f in exports.data_files(name)] == [None, None]
    assert len({f.partition[1] for f in exports.data_files(name)}) == 2
    with exports.lake(name).update_schema() as change:
        change.delete_column("region")
    with pytest.raises(RefusedError, match="the column of its partition field region") as refused:
        exports.run(name)
    assert refused.value.code == 48


def test_a_removed_field_of_a_required_column_has_no_values(exports: RealExport) -> None:
    """Harm prevented: PyIceberg writes the field as required, and fails in every export."""
    name = events(exports)
    spec = PartitionSpec(
        PartitionField(3, 1000, IdentityTransform(), "id"),
        PartitionField(4, 1001, MonthTransform(), "ts_month"),
    )
    earlier = {"format-version": "1"}
    table = make(exports, name, lake_schema(), partition_spec=spec, properties=earlier)
    with table.update_spec() as update:
        update.remove_field("id")
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)

    assert statuses(exports, name) == ["committed"] * 2
    # It writes entries that leave and entries that stay, too.
    assert statuses(exports, name, force=True) == ["replaced"] * 2

    assert exports.in_lake(name, COLUMNS) == ROWS
    assert [f.partition[0] for f in exports.data_files(name)] == [None, None]
    after = exports.lake(name)
    snapshot = after.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(after.io):
        with AvroFile[Record](after.io.new_input(manifest.manifest_path)) as file:
            header = file.header.meta["schema"]
        assert Schema.model_validate_json(header) == after.schema()


def test_another_spec_is_used_when_it_is_named_and_proved(exports: RealExport) -> None:
    """Without the name it is another partition key, and nothing is changed."""
    name = events(exports)
    table = make(exports, name, lake_schema())

    with pytest.raises(RefusedError, match="Tables have different partition key") as refused:
        exports.run(name)

    assert refused.value.code == 36
    assert exports.lake(name).metadata_location == table.metadata_location
    assert statuses(exports, name, partition_spec="unpartitioned") == ["committed"] * 2
    assert exports.in_lake(name, COLUMNS) == ROWS


@pytest.mark.parametrize(
    ("column", "direction", "claimed"),
    [
        ("id", SortDirection.ASC, [1, 1]),
        ("id", SortDirection.DESC, [None, None]),
        ("s", SortDirection.ASC, [None, None]),
    ],
)
def test_files_claim_the_tables_sort_order_only_when_it_is_true(
    exports: RealExport, column: str, direction: SortDirection, claimed: list[int | None]
) -> None:
    """Harm prevented: a reader that skips rows because of an order that they do not have."""
    name = events(exports)
    schema = lake_schema()
    source = schema.find_field(column).field_id
    order = SortOrder(
        SortField(source, IdentityTransform(), direction, NullOrder.NULLS_FIRST)
        if direction is SortDirection.DESC
        else SortField(source, IdentityTransform(), direction, NullOrder.NULLS_LAST)
    )
    make(exports, name, schema, partition_spec=month(schema), sort_order=order)

    assert statuses(exports, name) == ["committed"] * 2

    files = exports.data_files(name)
    assert [f.sort_order_id for f in files] == claimed
    footer = pq.read_metadata(urlparse(files[0].file_path).path)
    (sorted_by,) = footer.row_group(0).sorting_columns
    assert footer.schema.column(sorted_by.column_index).name == "id"
    assert not sorted_by.descending


def test_settings_identifier_fields_and_documents_of_others_stay_as_they_are(
    exports: RealExport,
) -> None:
    """Harm prevented: another engine's table works differently after an export."""
    name = events(exports)
    schema = Schema(*lake_schema().fields, identifier_field_ids=[3])
    theirs = {
        "write.parquet.compression-codec": "gzip",
        "write.metadata.metrics.default": "none",
        "write.distribution-mode": "hash",
        "commit.retry.num-retries": "9",
        "owner": "somebody",
    }
    make(exports, name, schema, partition_spec=month(schema), properties=theirs)
    before = exports.lake(name)

    assert statuses(exports, name) == ["committed"] * 2

    after = exports.lake(name)
    assert {k: v for k, v in after.properties.items() if not k.startswith("mergeberg.")} == (
        before.properties
    )
    assert [k for k in after.properties if k.startswith("mergeberg.source.")] == []
    assert (after.schemas(), after.specs(), after.sort_orders()) == (
        before.schemas(), before.specs(), before.sort_orders(),
    )  # fmt: skip
    assert after.schema().identifier_field_ids == [before.schema().find_field("id").field_id]
    assert exports.in_lake(name, COLUMNS) == ROWS
