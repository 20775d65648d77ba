"""Computes the same measures with ClickHouse, PyIceberg and DuckDB, and compares them.

ClickHouse reads its parts; the other two read the lake table. ClickHouse and DuckDB run the same
SQL. PyIceberg scans the table, and PyArrow computes the sums.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from catalog.clickhouse.connection import Connection
from spark_ext.demo.directory import INSTALL, DemoError
from tableformat.errors import DestinationError
from tableformat.names import quote_string

__all__ = [
    "DuckDB",
    "Measures",
    "differences",
    "find_duckdb",
    "query_clickhouse",
    "query_duckdb",
    "query_pyiceberg",
    "question",
]

Measures = dict[str, int | Decimal | None]
"""The values that a reader computed, by name of the measure."""

_MEASURES: Final = {
    "events": "count(*)",
    "visitors": "count(DISTINCT user_id)",
    "days": "count(DISTINCT CAST(ts AS DATE))",
    "tags": "sum(length(tags))",
    "coupons": "count(coupon)",
    "revenue": "sum(CASE WHEN event = 'order' THEN price * quantity END)",
}
_COLUMNS: Final = ("user_id", "ts", "tags", "coupon", "event", "price", "quantity")


@dataclass(frozen=True, slots=True)
class DuckDB:
    """The module of DuckDB, and the files of its Iceberg extensions in the order of loading."""

    module: Any
    extensions: tuple[Path, ...]


def question(source: str) -> tuple[str, ...]:
    """Return the query of all measures over a table or table function, as lines."""
    width = max(map(len, _MEASURES.values()))
    lines = [f"{sql.ljust(width)} AS {name}" for name, sql in _MEASURES.items()]
    select = [
        f"{'SELECT' if number == 0 else '':<6} {line}{',' if number < len(lines) - 1 else ''}"
        for number, line in enumerate(lines)
    ]
    return (*select, f"FROM   {source}")


def find_duckdb() -> DuckDB:
    """Find DuckDB and its extensions, which are installed as Python packages.

    Raises:
        DemoError: DuckDB or an extension is not installed.
    """
    try:
        import duckdb
    except ImportError:
        raise _missing("duckdb") from None
    extensions = []
    for name in ("avro", "iceberg"):
        package = importlib.util.find_spec(f"duckdb_extension_{name}")
        folders = (package.submodule_search_locations if package else None) or ()
        file = f"extensions/v{duckdb.__version__}/{name}.duckdb_extension"
        found = next((p for f in folders if (p := Path(f) / file).is_file()), None)
        if found is None:
            raise _missing(f"DuckDB's extension {name} for version {duckdb.__version__}")
        extensions.append(found)
    return DuckDB(duckdb, tuple(extensions))


def query_clickhouse(clickhouse: Connection, table: str) -> Measures:
    """Compute the measures with ClickHouse.

    Raises:
        ClickHouseError: ClickHouse refused the query.
        SourceError: ClickHouse ended.
    """
    (row,) = clickhouse.rows(" ".join(question(table)))
    # ClickHouse returns Decimals as text.
    values = (Decimal(v) if isinstance(v, str) else v for v in row)
    return dict(zip(_MEASURES, values, strict=True))  # type: ignore[arg-type]


def query_duckdb(duckdb: DuckDB, table: Table) -> Measures:
    """Compute the measures with DuckDB, which gets only the path of the table's metadata file.

    Raises:
        DestinationError: DuckDB cannot read the table.
    """
    settings = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    try:
        with duckdb.module.connect(config=settings) as session:
            session.execute("SET TimeZone = 'UTC'")
            session.execute("SET enable_progress_bar = false")
            for extension in duckdb.extensions:
                session.execute(f"LOAD {quote_string(str(extension))}")
            source = f"iceberg_scan({quote_string(table.metadata_location)})"
            row = session.execute(" ".join(question(source))).fetchone()
    except duckdb.module.Error as error:
        raise _unreadable("DuckDB", table, error) from error
    return dict(zip(_MEASURES, row, strict=True))


def query_pyiceberg(table: Table) -> Measures:
    """Compute the measures with a scan of PyIceberg, batch by batch.

    Raises:
        DestinationError: PyIceberg cannot read the table.
    """
    events = tags = coupons = 0
    revenue: Decimal | None = None
    visitors: list[Any] = []
    days: list[Any] = []
    try:
        for batch in table.scan(selected_fields=_COLUMNS).to_arrow_batch_reader():
            events += batch.num_rows
            visitors.append(pc.unique(batch["user_id"]))
            days.append(pc.unique(pc.cast(batch["ts"], pa.date32())))
            tags += pc.sum(pc.list_value_length(batch["tags"])).as_py() or 0
            coupons += batch.num_rows - batch["coupon"].null_count
            orders = batch.filter(pc.equal(batch["event"], "order"))
            quantities = pc.cast(orders["quantity"], pa.decimal128(10, 0))
            paid = pc.sum(pc.multiply(orders["price"], quantities)).as_py()
            revenue = paid if revenue is None else revenue + (paid or 0)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable("PyIceberg", table, error) from error
    return {
        "events": events,
        "visitors": _distinct(visitors),
        "days": _distinct(days),
        "tags": tags,
        "coupons": coupons,
        "revenue": revenue,
    }


def differences(results: Mapping[str, Measures]) -> tuple[str, ...]:
    """Return a sentence for each measure that differs between the readers."""
    return tuple(
        f"{measure} is " + ", ".join(f"{r.get(measure)} in {who}" for who, r in results.items())
        for measure in _MEASURES
        if len({result.get(measure) for result in results.values()}) > 1
    )


def _distinct(found: list[Any]) -> int:
    return len(pa.chunked_array(found).unique()) if found else 0


def _missing(what: str) -> DemoError:
    message = (
        f"Cannot run the demo: {what} is not installed, and the demo reads the lake with it. "
        f"Install what the demo needs: {INSTALL}"
    )
    return DemoError(message, next_command=INSTALL)


def _unreadable(who: str, table: Table, error: Exception) -> DestinationError:
    return DestinationError(
        f"Cannot read {'.'.join(table.name())} with {who}: {type(error).__name__}: {error}. "
        "Check the files under the demo's warehouse, or remove the demo and run it again."
    )
