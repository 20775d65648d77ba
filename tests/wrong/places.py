"""A ClickHouse directory and a warehouse with everything that can be named wrongly."""

from __future__ import annotations

import gc
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, MonthTransform
from pyiceberg.types import BinaryType, LongType, NestedField, StringType, TimestamptzType

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from spark_ext.cli.main import invoke
from tableformat.export.ports import SliceWriter, Writing
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.iceberg.properties import table_properties
from tableformat.iceberg.schema import map_columns
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import DateTime, Simple
from tests.strategies.mapping import column_of, table_of
from tests.support.child_writer import ChildWriter
from tests.support.scenarios import RealFiles

_EVENTS = "(ts DateTime('UTC'), id Int64, s String) ENGINE = MergeTree PARTITION BY toYYYYMM(ts)"
_ROWS = "SELECT toDateTime('2024-01-31', 'UTC') + number * 86400, number, toString(number)"
_NAMES = ("events", "other", "changing", "shrinking")
_SQL = """
    CREATE TABLE db.log (id Int64) ENGINE = Log;
    CREATE TABLE db.berlin (ts DateTime('Europe/Berlin'), id Int64) ENGINE = MergeTree
        PARTITION BY toYYYYMM(ts) ORDER BY id;
    CREATE TABLE db.odd (id Int64, a AggregateFunction(sum, Int64), v Tuple(),
        e Enum8('x' = 1)) ENGINE = MergeTree ORDER BY id;
    CREATE TABLE db.enum (id Int64, e Enum8('x' = 1)) ENGINE = MergeTree ORDER BY id;
    CREATE TABLE db.bad (p UInt8, s String, d Decimal(4, 2), t DateTime64(9, 'UTC'),
        u DateTime64(0, 'UTC'), m Map(String, Int64)) ENGINE = MergeTree PARTITION BY p ORDER BY p;
    INSERT INTO db.bad SELECT 1, unhex('FF'), 1, 0, 0, map();
    INSERT INTO db.bad SELECT 2, '', reinterpret(toInt32(123456), 'Decimal(4, 2)'), 0, 0, map();
    INSERT INTO db.bad
        SELECT 3, '', 1, toDateTime64('2024-01-01 00:00:00.000000001', 9, 'UTC'), 0, map();
    INSERT INTO db.bad
        SELECT 4, '', 1, 0, reinterpret(toInt64(9e18), 'DateTime64(0, \\'UTC\\')'), map();
    INSERT INTO db.bad SELECT 5, '', 1, 0, 0, map('k', 1, 'k', 2);
    CREATE TABLE db.damaged (id Int64, s String) ENGINE = MergeTree ORDER BY id
        SETTINGS min_bytes_for_wide_part = 0;
    INSERT INTO db.damaged SELECT number, toString(number) FROM numbers(1000)
"""
STATEMENTS = (
    *(f"CREATE TABLE db.{name} {_EVENTS} ORDER BY id" for name in _NAMES),
    *(f"INSERT INTO db.{name} {_ROWS} FROM numbers(3)" for name in _NAMES),
    *_SQL.split(";"),
)


@dataclass
class _Meddled(RealFiles):
    """A writer whose files nobody reads; something happens once it writes all of them."""

    before: Callable[[WritePlan, tuple[SliceTask, ...]], None] = field(default=lambda *_: None)

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],  # noqa: ARG002  all slices have begun by then
    ) -> Writing:
        self.before(plan, tasks)
        return super().write(plan, tasks, on_rows=on_rows, should_stop=lambda: False)


@dataclass
class Places:
    """Where everything is, and what the writer is and does before it writes."""

    root: Path
    before: Callable[[WritePlan, tuple[SliceTask, ...]], None] = field(default=lambda *_: None)
    reads_parts: bool = False

    def writer(self) -> SliceWriter:
        return ChildWriter(self.before) if self.reads_parts else _Meddled(before=self.before)

    @property
    def clickhouse(self) -> Path:
        return self.root / "clickhouse"

    @property
    def warehouse(self) -> Path:
        return self.root / "warehouse"

    def words(self, *words: str) -> list[str]:
        """Return a command line with the places that it is about."""
        places = ["--source", f"chdb:{self.clickhouse}", "--source-wait", "0.3"]
        options = [w for w in words if w.startswith("--")]
        given = list(words)
        if (
            words[0] in ("archive", "export", "check", "partitions", "parts", "verify")
            and "--source" not in options
        ):
            given += places
        if (
            words[0] in ("archive", "export", "check", "exports", "gc", "show", "verify")
            and "--warehouse" not in options
        ):
            given += ["--warehouse", str(self.warehouse)]
        return given

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run the command line; return the exit code and both outputs."""
        out, err = io.StringIO(), io.StringIO()
        code = invoke(self.words(*words), out, err)
        return code, out.getvalue(), err.getvalue()

    def files(self) -> dict[str, int]:
        """Return every file of both sides, SQLite's own side files left out, and its size."""
        # A ledger that an earlier test left open grows when it is closed, and that may be any time.
        gc.collect()
        return {
            str(path.relative_to(self.root)): path.stat().st_size
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
            and not path.name.endswith(("-wal", "-shm", "-journal"))
            and path.parent != self.clickhouse
            and "mergeberg_staging" not in path.name
        }

    def clickhouse_run(self, *statements: str) -> None:
        with EmbeddedConnection(self.clickhouse) as connection:
            for sql in statements:
                connection.command(sql)

    def outcomes(self, *words: str) -> list[dict[str, object]]:
        """Run a command for programs; return its objects but for the summary."""
        _, out, _ = self.run(*words, "--json")
        found = [json.loads(line) for line in out.splitlines()]
        return [one for one in found if "summary" not in one]


def _made_by_exports(events: MergeTreeTable) -> dict[str, dict[str, str]]:
    """Return the properties of lake tables of a table, by their names."""
    ours = table_properties(events, map_columns(events))
    s = replace(events.columns[2], default_kind="DEFAULT", default_expression="'?'")
    other = replace(events, columns=(*events.columns[:2], s))
    return {
        "ours": ours,
        "newer": ours | {"mergeberg.source.mapping-version": "9"},
        "starts": ours | {"mergeberg.source.partition-key": "toStartOfMonth(ts)"},
        "defaults": table_properties(other, map_columns(other)),
    }


def make_lake(warehouse: Path) -> None:
    catalog = open_catalog("lake", warehouse=warehouse).catalog
    catalog.create_namespace("n")
    columns = (
        NestedField(1, "ts", TimestamptzType(), required=True),
        NestedField(2, "id", LongType(), required=True),
        NestedField(3, "s", StringType(), required=True),
    )
    month = PartitionSpec(PartitionField(1, 1000, MonthTransform(), "ts_month"))
    day = PartitionSpec(PartitionField(1, 1000, DayTransform(), "ts_day"))
    old = {"format-version": "1"}
    catalog.create_table("n.v1", Schema(*columns), partition_spec=month, properties=old)
    # PyIceberg reads version 3 and does not write it.
    for name in ("v3", "variant"):
        third = catalog.create_table(f"n.{name}", Schema(*columns), partition_spec=month)
        metadata = Path(third.metadata_location.removeprefix("file://"))
        newer = json.loads(metadata.read_text()) | {"format-version": 3, "next-row-id": 0}
        if name == "variant":
            newer["schemas"][0]["fields"][2]["type"] = "variant"
        metadata.write_text(json.dumps(newer))
    catalog.create_table("n.by_day", Schema(*columns), partition_spec=day)
    events = table_of(
        column_of("ts", DateTime("UTC")),
        column_of("id", Simple("Int64")),
        column_of("s", Simple("String")),
        partition_by="toYYYYMM(ts)",
    )
    for name, properties in _made_by_exports(events).items():
        catalog.create_table(
            f"n.{name}", Schema(*columns), partition_spec=month, properties=properties
        )
    more = (columns[2], columns[0], columns[1], NestedField(4, "more", LongType()))
    catalog.create_table("n.order", Schema(*more), partition_spec=month)
    codec = {"write.parquet.compression-codec": "lzo"}
    catalog.create_table("n.codec", Schema(*columns), partition_spec=month, properties=codec)
    case = (*columns[:2], NestedField(3, "S", StringType()))
    catalog.create_table("n.case", Schema(*case), partition_spec=month)
    catalog.create_table("n.lacking", Schema(*columns[:2]), partition_spec=month)
    catalog.create_table(
        "n.bytes",
        Schema(*columns[:2], NestedField(3, "s", BinaryType())),
        partition_spec=month,
        properties=table_properties(events, map_columns(events, {"s": "binary"})),
    )
    catalog.create_table(
        "n.structure",
        Schema(
            NestedField(1, "ts", TimestamptzType(), required=True),
            NestedField(2, "id", StringType(), required=True),
            NestedField(3, "more", LongType(), required=True),
        ),
        partition_spec=month,
    )
