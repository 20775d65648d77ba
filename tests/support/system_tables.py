"""System tables without Spark: their rows by column, each value checked against its column."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from spark_ext.procedures.declarations import Call, SystemTable, Value

__all__ = ["asked", "session_of", "typed"]

_NO_SPARK = cast("SparkSession", None)


def session_of(warehouse: Path, ledger: Path | None = None) -> dict[str, str]:
    """Return the settings of a session that exports into the built-in catalog."""
    conf = {"spark.mergeberg.warehouse": str(warehouse)}
    return conf | ({} if ledger is None else {"spark.mergeberg.ledger": f"sqlite:{ledger}"})


def asked(table: SystemTable, conf: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows of a table as a session sees them, by column; times as `datetime`."""
    rows = table.run(Call(_NO_SPARK, "lake", {}, conf))
    return [typed(table, row) for row in rows]


def typed(table: SystemTable, row: tuple[Value, ...]) -> dict[str, Any]:
    """Return a row by column, after a look whether Java could read each value."""
    return {
        column.name: _read(value, column.type)
        for column, value in zip(table.columns, row, strict=True)
    }


def _read(value: Value, kind: str) -> object:
    if value is None:
        return None
    match kind:
        case "STRING":
            assert isinstance(value, str)
        case "BIGINT":
            assert isinstance(value, int)
            assert -(2**63) <= value < 2**63
        case "BOOLEAN":
            assert isinstance(value, bool)
        case "TIMESTAMP":
            assert isinstance(value, str)
            at = datetime.fromisoformat(value)
            assert at.tzinfo is not None
            return at
        case "ARRAY<STRING>":
            assert isinstance(value, tuple)
            assert all(isinstance(one, str) for one in value)
        case _:
            message = f"{kind} is no type of a system table's column"
            raise AssertionError(message)
    return value
