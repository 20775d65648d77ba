"""Runs commands, and writes which functions of the product each of them enters, in this order.

    python -m tests.repository.tracer commands|call DIRECTORY

is a child process of `structure.py`, because it starts Spark. It needs Java, and `call` needs
Iceberg's runtime for Spark. Only the process of the command is looked at, not Spark's tasks.
Importing a module counts nothing: every module is imported before.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from pyspark.sql import SparkSession

import spark_ext
from catalog.clickhouse.embedded import EmbeddedConnection
from spark_ext.cli.main import invoke
from tests.repository.source_files import ROOT, source_files
from tests.repository.structure import ENTERED
from tests.support.iceberg_runtime import SQLITE_DRIVER, runtime_settings
from tests.support.iceberg_spark import catalog_settings

__all__ = ["TRACED"]

_TRACED: Final = ("tableformat", "catalog", "spark_ext")
_TABLE: Final = (
    "CREATE DATABASE db",
    "CREATE TABLE db.t (d Date, n UInt32) ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY n",
    "INSERT INTO db.t SELECT '2024-01-31', number FROM numbers(10)",
)
_WAREHOUSE: Final = ("--warehouse", "warehouse")

Entered = dict[str, list[tuple[str, str]]]


@contextmanager
def _tracing(into: list[tuple[str, str]]) -> Iterator[None]:
    """Append each function of the product that is entered meanwhile, once."""
    codes: dict[CodeType, None] = {}

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.setdefault(frame.f_code)

    threading.setprofile(see)
    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    into.extend(_named(code) for code in tuple(codes) if _is_function_of_ours(code))


def _is_function_of_ours(code: CodeType) -> bool:
    # The body of a module or a class is no function, and its variables are no fast ones.
    path = Path(code.co_filename)
    inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in _TRACED
    return inside and bool(code.co_flags & inspect.CO_OPTIMIZED)


def _named(code: CodeType) -> tuple[str, str]:
    return Path(code.co_filename).relative_to(ROOT).as_posix(), code.co_qualname


def _import_all() -> None:
    for file in source_files(*_TRACED):
        if not file.path.endswith("__main__.py"):
            importlib.import_module(file.path.removesuffix(".py").replace("/", "."))


def _fill(clickhouse: Path) -> None:
    with EmbeddedConnection(clickhouse, create=True) as connection:
        for sql in _TABLE:
            connection.command(sql)


def _commands(directory: Path) -> Entered:
    """Export a partition and detach it, on the command line."""
    source = ["--source", f"chdb:{directory / 'clickhouse'}"]
    found: Entered = {}
    for name, args in (
        ("export", ["export", "db.t", "--all", *source, "--to", "lake.n.t", *_WAREHOUSE]),
        ("detach", ["detach", "lake.n.t", "--partition-id", "202401", *_WAREHOUSE]),
    ):
        with _tracing(found.setdefault(name, [])):
            code = invoke(args, sys.stdout, sys.stderr)
        if code != 0:
            sys.exit(f"{name} ended with {code}")
    return found


def _call(directory: Path) -> Entered:
    """Export a partition by CALL, in a Spark session of its own."""
    conf = {
        **runtime_settings("1g", SQLITE_DRIVER),
        **catalog_settings(
            "lake",
            type="jdbc",
            uri=f"jdbc:sqlite:{directory}/lake.db",
            jdbc__schema_version="V1",
            warehouse=f"file:{directory}/warehouse",
        ),
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.mergeberg.source.ch": f"chdb:{directory}/clickhouse",
        "spark.mergeberg.ledger": f"sqlite:{directory}/ledger.db",
    }
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = spark_ext.configure(builder).getOrCreate()
    found: Entered = {"call": []}
    with _tracing(found["call"]):
        rows = spark.sql(
            "CALL lake.system.export_partition("
            "table => 'n.t', source => 'ch.db.t', partition_id => '202401')"
        ).collect()
    spark.stop()
    if [row.status for row in rows] != ["committed"]:
        sys.exit(f"the CALL returned {rows}")
    return found


TRACED: Final[Mapping[str, Callable[[Path], Entered]]] = {"commands": _commands, "call": _call}


def main(what: str, directory: Path) -> None:
    """Fill a table, run commands in a directory, and write what they entered."""
    _fill(directory / "clickhouse")
    _import_all()
    found = TRACED[what](directory)
    (directory / ENTERED).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
