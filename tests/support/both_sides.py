"""The same tables in ClickHouse and in a lake, and the same statements for both of them.

A statement is written for ClickHouse, with tables of the database `db`; the lake table of the same
name gets the same text.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from catalog.clickhouse.connection import ClickHouseError
from spark_ext.procedures.declarations import SystemTable
from spark_ext.system_tables import DETACHED_PARTS, PARTS
from tableformat.errors import TableFormatError
from tableformat.export.outcome import Status
from tableformat.export.slices import FileFormat
from tableformat.names import TableName
from tests.support.real_export import RealExport
from tests.support.session_without_spark import NoSpark, Row
from tests.support.system_tables import asked, session_of

__all__ = ["DONE", "UNMERGED", "BothSides"]

DONE: Final = "done"
UNMERGED: Final = "max_bytes_to_merge_at_max_space_in_pool = 1"
"""Nothing merges the parts of a table behind the back of a test; OPTIMIZE FINAL still does."""
_FORMAT: Final = FileFormat()
_NOT_DONE: Final = (
    Status.FAILED,
    Status.IN_PROGRESS,
    Status.KILLED,
    Status.REFUSED,
    Status.UNKNOWN,
)


class BothSides:
    """A ClickHouse, a warehouse, and the statements to both."""

    def __init__(self, exports: RealExport) -> None:
        self.exports = exports
        self.session = NoSpark(session_of(exports.warehouse))

    def make(self, name: str, definition: str, *rows: str) -> None:
        """Make a table in ClickHouse, of columns and clauses, with one part for each of `rows`."""
        self.exports.clickhouse.command(f"CREATE TABLE db.{name} {definition}")
        for one in rows:
            self.exports.clickhouse.command(f"INSERT INTO db.{name} {one}")

    def export(
        self,
        name: str,
        *,
        spec: str | None = None,
        target: int | None = None,
        evolve_schema: bool = False,
    ) -> None:
        """Bring a table to the lake; `target` are the bytes of a data file."""
        size = _FORMAT if target is None else FileFormat(target_file_bytes=target)
        table = TableName("db", name)
        outcomes = self.exports.run(
            table, partition_spec=spec, file_format=size, evolve_schema=evolve_schema
        )
        allowed = (Status.COMMITTED, Status.EMPTY, Status.ALREADY_EXPORTED)
        assert {one.status for one in outcomes} <= {*allowed}, outcomes

    def there(self, statement: str) -> str:
        """Run a statement in ClickHouse; return what it ended with."""
        try:
            self.exports.clickhouse.command(statement)
        except ClickHouseError as error:
            return f"code {error.code}"
        return DONE

    def here(self, statement: str) -> str:
        """Run it on the lake table; return what it ended with."""
        try:
            rows = self.run_in_lake(statement)
        except TableFormatError as error:
            return f"code {error.code}"
        found = [row["status"] for row in rows if Status(row["status"]) in _NOT_DONE]
        return ", ".join(found) or DONE

    def run_in_lake(self, statement: str) -> list[Row]:
        """Run it on the lake table; return its rows."""
        text = statement.replace("db.", "lake.n.")
        return self.session.call("execute_alter", statement=text)

    def assert_same_rows(self, *names: str) -> list[tuple[str, ...]]:
        """Check that ClickHouse and PyIceberg show the same rows of tables; return the last's."""
        found: list[tuple[str, ...]] = []
        for name in names:
            table = TableName("db", name)
            columns = [field.name for field in self.exports.lake(table).schema().fields]
            there = self.exports.clickhouse.rows(f"SELECT {', '.join(columns)} FROM {table.sql}")
            lake = self.exports.lake(table).scan().to_arrow().to_pylist()
            found = sorted(tuple(str(one[column]) for column in columns) for one in lake)
            assert found == sorted(tuple(map(str, row)) for row in there), name
        return found

    def largest_part(self, name: str) -> int:
        """Return the bytes of the largest part: files of this size hold one part each."""
        ((found,),) = self.exports.clickhouse.rows(
            "SELECT toString(max(bytes_on_disk)) FROM system.parts"
            f" WHERE database = 'db' AND table = '{name}' AND active"
        )
        return int(str(found))

    def parts_there(self, name: str, *, detached: bool = False) -> Counter[str]:
        """Return how many parts each partition has, as ClickHouse lists them."""
        found = self.exports.clickhouse.rows(
            f"SELECT partition_id FROM system.{'detached_' * detached}parts"
            f" WHERE database = 'db' AND table = '{name}'{'' if detached else ' AND active'}"
        )
        return Counter(str(one) for (one,) in found)

    def parts_here(self, name: str, *, detached: bool = False) -> Counter[str]:
        """Return how many parts each partition has, as the lake's own system tables list them."""
        listed: SystemTable = DETACHED_PARTS if detached else PARTS
        rows = asked(listed, self.session.settings)
        return Counter(row["partition_id"] for row in rows if row["table"] == f"lake.n.{name}")
