"""Asks ClickHouse, PyIceberg and DuckDB the same question, each in its own way.

ClickHouse answers from its parts; the other two read the lake table. ClickHouse and DuckDB run the
same SQL, PyIceberg scans and pyarrow adds up.
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
    "Answer",
    "DuckDB",
    "ask_clickhouse",
    "ask_duckdb",
    "ask_pyiceberg",
    "differences",
    "find_duckdb",
    "question",
]

Answer = dict[str, int | Decimal | None]
"""What a reader found, by measure."""

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
    """DuckDB's module, and the extensions with which it reads Iceberg, in the order of loading."""

    module: Any
    extensions: tuple[Path, ...]


def question(source: str) -> tuple[str, ...]:
    """Return the query over a table or table function, one line per measure."""
    width = max(map(len, _MEASURES.values()))
    lines = [f"{sql.ljust(width)} AS {name}" for name, sql in _MEASURES.items()]
    select = [
        f"{'SELECT' if number == 0 else '':<6} {line}{',' if number < len(lines) - 1 else ''}"
        for number, line in enumerate(lines)
    ]
    return (*select, f"FROM   {source}")


def find_duckdb() -> DuckDB:
    """Find DuckDB and its extensions, all of them installed as Python packages.

    Raises:
        DemoError: one is not installed.
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


def ask_clickhouse(clickhouse: Connection, table: str) -> Answer:
    """Return ClickHouse's answer.

    Raises:
        ClickHouseError: ClickHouse refused.
        SourceError: ClickHouse ended.
    """
    (row,) = clickhouse.rows(" ".join(question(table)))
    # Decimals arrive as text.
    values = (Decimal(v) if isinstance(v, str) else v for v in row)
    return dict(zip(_MEASURES, values, strict=True))  # type: ignore[arg-type]


def ask_duckdb(duckdb: DuckDB, table: Table) -> Answer:
    """Return DuckDB's answer, from the table's metadata file and nothing else of ours.

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


def ask_pyiceberg(table: Table) -> Answer:
    """Return the answer of PyIceberg's scan, batch by batch.

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


def differences(answers: Mapping[str, Answer]) -> tuple[str, ...]:
    """Return a sentence for each measure that the readers do not agree on; none when all do."""
    return tuple(
        f"{measure} is " + ", ".join(f"{a.get(measure)} in {who}" for who, a in answers.items())
        for measure in _MEASURES
        if len({answer.get(measure) for answer in answers.values()}) > 1
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
        "Check the files under the demo's warehouse, or remove the demo and run it anew."
    )
