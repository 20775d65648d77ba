"""Exports out of open chdb sessions, in a process of their own: the tests' one never loads chdb.

    python -m tests.support.session_exports DIRECTORY

A user's program: one process with Spark and with sessions. What came of each step is printed as
one JSON object, by the step's name; `tests/spark_ext/test_session_source.py` looks at it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from chdb import session as chdb
from pyspark.sql import SparkSession

import spark_ext
from catalog.clickhouse.session import ChdbSession
from catalog.iceberg.catalogs import open_catalog
from spark_ext import ExportedPartition, SessionTable
from tableformat.errors import TableFormatError
from tests.requirement_statements.statements import TEMPORARY
from tests.support.local_spark import local_spark
from tests.support.own_process import RESULTS

__all__: list[str] = []

# Without types of its own.
_SESSION: Final[Any] = chdb.Session
_KEY: Final = "ENGINE = MergeTree PARTITION BY p ORDER BY k"
_ROWS: Final = "SELECT toUInt8(number % 2) AS p, number AS k FROM numbers"

StepResult = dict[str, Any]


def _rows(session: ChdbSession, sql: str) -> list[list[Any]]:
    result = session.query(sql, "JSONCompactEachRow").bytes()
    return [json.loads(line) for line in result.splitlines()]


def _run(session: ChdbSession, *statements: str) -> None:
    for sql in statements:
        session.query(sql, "Null")


def _standing(session: ChdbSession) -> list[list[Any]]:
    """Return what a user sees of a session: where it is, what is set in it, what it holds."""
    tables = (
        "SELECT groupArray((database, name)) FROM (SELECT database, name FROM system.tables"
        " WHERE lower(database) NOT IN ('system', 'information_schema') ORDER BY ALL)"
    )
    settings = "SELECT groupArray((name, value)) FROM system.settings WHERE changed"
    return _rows(session, f"SELECT currentDatabase(), ({tables}), ({settings})")


def _tried(export: Callable[[], tuple[ExportedPartition, ...]]) -> StepResult:
    """Return the result of an export, or its error."""
    try:
        return {"exported": [asdict(one) for one in export()]}
    except TableFormatError as error:
        return {"error": type(error).__name__, "message": error.message, "code": error.code}


class _Program:
    """The session with tables that everybody sees, and one of its own; its lake is empty."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.results: dict[str, Any] = {}
        spark.conf.set("spark.mergeberg.warehouse", str(root / "warehouse"))

    def export(self, step: str, to: str, source: SessionTable | str, **how: Any) -> None:
        """Export one partition, or all where none is named."""
        one = how.keys() & {"partition_id", "partition"}
        function = spark_ext.export_partition if one else spark_ext.export_partitions
        self.results[step] = _tried(lambda: function(self.spark, f"lake.n.{to}", source, **how))

    def lake(self, step: str, table: str) -> None:
        """Tell which numbers are in a lake table."""
        opened = open_catalog("lake", warehouse=self.root / "warehouse").catalog
        found = opened.load_table(("n", table)).scan().to_arrow().column("k").to_pylist()
        self.results[step] = sorted(int(number) for number in found)

    @contextmanager
    def unchanged(self, step: str, session: ChdbSession) -> Iterator[None]:
        """Tell whether a session is afterwards what it was."""
        before = _standing(session)
        yield
        after = _standing(session)
        self.results[step] = {"before": before, "after": after}


def _tables(program: _Program) -> None:
    """Export tables that everybody sees, and open their directory by its path afterwards."""
    session = _SESSION(str(program.root / "clickhouse"))
    _run(
        session,
        "CREATE DATABASE db",
        f"CREATE TABLE db.t {_KEY} AS {_ROWS}(6)",
        f"INSERT INTO db.t {_ROWS}(6, 4)",
        "CREATE TABLE db.log ENGINE = Log AS SELECT 1 AS a",
        "USE db",
        # Who asked in this session would be shown one part of several.
        "SET limit = 1, max_threads = 3",
    )
    with program.unchanged("session", session):
        program.export("first", "t", SessionTable(session, "db.t"), partition_id="1", verify=True)
        program.export("second", "t", SessionTable(session, "t"), partition="1")
        program.export("rehearsed", "t", SessionTable(session, "`db`.t"), dry_run=True)
        program.export("nothing", "t", SessionTable(session, "db.nothing"))
        program.export("log", "t", SessionTable(session, "db.log"))
        program.export("cluster", "t", SessionTable(session, "db.t"), cluster="c")
        program.export("at once", "t", SessionTable(session, "db.t"), wait=False)
    table = SessionTable(session, "db.t")
    session.close()
    program.export("closed", "t", table)
    program.results["closed table"] = _tried(lambda: (SessionTable(session, "db.t"), ())[1])
    program.spark.conf.set("spark.mergeberg.source.ch", f"chdb:{program.root / 'clickhouse'}")
    program.export("by path", "t", "ch.db.t", partition_id="1")
    program.export("the rest by path", "t", "ch.db.t")
    program.lake("lake", "t")


def _temporary(program: _Program) -> None:
    """Export temporary tables of a session without a directory of its own."""
    session = _SESSION()
    definition = "(p UInt8, k UInt64, s String DEFAULT 'x' CODEC(ZSTD(3)), INDEX i k TYPE minmax)"
    _run(
        session,
        f"CREATE TEMPORARY TABLE `my (own)` {definition} {_KEY}",
        f"INSERT INTO `my (own)` (p, k) {_ROWS}(20)",
        f"INSERT INTO `my (own)` (p, k) {_ROWS}(20, 5)",
        "CREATE TABLE t ENGINE = MergeTree ORDER BY tuple() AS SELECT 1 AS hidden",
        f"CREATE TEMPORARY TABLE t (p UInt8, k UInt64) {_KEY}",
        f"INSERT INTO t {_ROWS}(4)",
        "CREATE TEMPORARY TABLE memory (k UInt64)",
        "SET limit = 1",
    )
    with program.unchanged("temporary session", session):
        program.export("temporary", "own", SessionTable(session, "`my (own)`"), verify=True)
        program.export("temporary again", "own", SessionTable(session, "`my (own)`"))
        program.export("temporary first", "both", SessionTable(session, "t"), partition="1")
        program.export("unknown value", "own", SessionTable(session, "t"), partition="7")
        program.export("memory", "own", SessionTable(session, "memory"))
    program.lake("temporary lake", "own")
    _run(
        session,
        "SET limit = 0",
        "DROP TEMPORARY TABLE t",
        f"CREATE TEMPORARY TABLE t (p UInt8, k UInt64) {_KEY}",
        f"INSERT INTO t {_ROWS}(4)",
    )
    again = SessionTable(session, "t")
    program.export("made again", "both", again, partition="1")
    program.export("others", "both", again, partition="1", overwrite_file_if_exists=True)
    gone = SessionTable(session, "`my (own)`").named()
    _run(session, "DROP TEMPORARY TABLE `my (own)`")
    source = gone.open()
    program.results["gone"] = _tried(lambda: (source.describe(gone.table), ())[1])
    source.close()
    try:
        _run(
            session,
            f"CREATE TEMPORARY TABLE r (p UInt8) {_KEY.replace('Merge', 'ReplicatedMerge')}",
        )
    except RuntimeError as error:
        program.results["replicated"] = str(error)
    session.close()


def _attached(program: _Program) -> None:
    """Attach and replace partitions from a temporary table, which is made again between."""
    session = _SESSION()
    definition = f"CREATE TEMPORARY TABLE mine (p UInt8, k UInt64) {_KEY}"
    _run(session, definition, f"INSERT INTO mine {_ROWS}(4)")
    mine = {"mine": SessionTable(session, "mine")}

    def tried(step: str, statement: str) -> None:
        try:
            found = spark_ext.sql(program.spark, statement, tables=mine)
            program.results[step] = [
                [row.partition_id, row.status, row.rows] for row in found.collect()
            ]
        except TableFormatError as error:
            program.results[step] = {"message": error.message, "code": error.code}

    program.export("the first of it", "from_session", mine["mine"], partition="0")
    with program.unchanged("session behind FROM", session):
        tried("attached", "ALTER TABLE lake.n.from_session ATTACH PARTITION 1 FROM mine")
        tried("attached again", "ALTER TABLE lake.n.from_session ATTACH PARTITION 1 FROM mine")
    _run(session, "DROP TEMPORARY TABLE mine", definition, f"INSERT INTO mine {_ROWS}(4, 6)")
    tried("attached anew", "ALTER TABLE lake.n.from_session ATTACH PARTITION 1 FROM mine")
    tried("replaced", "ALTER TABLE lake.n.from_session REPLACE PARTITION 1 FROM mine")
    tried("of Spark", "SELECT 1")
    session.close()
    program.lake("lake of statements", "from_session")


def _as_the_requirement(program: _Program) -> None:
    """Give the statements of a temporary table, whose engine ClickHouse refuses as it stands."""
    session = _SESSION()
    create, insert, statement = TEMPORARY
    try:
        _run(session, create)
    except RuntimeError as error:
        program.results["requirement's engine"] = str(error)
    engine = "ReplicatedMergeTree('/clickhouse/tables/{shard}/temp_table', '{replica}')"
    _run(session, create.replace(engine, "MergeTree"), insert)
    given = {"temp_table": SessionTable(session, "temp_table")}
    bound = statement.replace("destination_table", "lake.n.of_temporary")

    def tried(step: str, text: str, tables: Mapping[str, SessionTable]) -> None:
        try:
            rows = spark_ext.sql(program.spark, text, tables=tables).collect()
            program.results[step] = [[row.partition_id, row.status, row.rows] for row in rows]
        except TableFormatError as error:
            program.results[step] = {"message": error.message, "code": error.code}

    temporary = bound.replace("ALTER TABLE", "ALTER TEMPORARY TABLE")
    tried("requirement", bound, given)
    tried("requirement, said to be temporary", temporary, given)
    tried("temporary without a session", temporary, {})
    tried("without waiting", f"{bound}, export_merge_tree_partition_wait = 0", given)
    tried("another statement", "ALTER TABLE temp_table DROP PARTITION 2020", given)
    session.close()


def _wrong(program: _Program) -> None:
    """Give what is no table of a session."""
    session = _SESSION()
    program.results["no session"] = _tried(lambda: (SessionTable(3, "t"), ())[1])  # type: ignore[arg-type]
    program.results["three parts"] = _tried(lambda: (SessionTable(session, "ch.db.t"), ())[1])
    program.results["shown"] = repr(SessionTable(session, "db.t"))
    session.close()


def _main(root: Path) -> None:
    with local_spark() as spark:
        program = _Program(spark, root)
        _tables(program)
        _temporary(program)
        _attached(program)
        _as_the_requirement(program)
        _wrong(program)
    (root / RESULTS).write_text(json.dumps(program.results))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
