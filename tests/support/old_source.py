"""Tables on the pair of old servers, and the source that reads them through a replica."""

from __future__ import annotations

import itertools
from typing import Final

from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.settings import parse_server
from catalog.clickhouse.source import ClickHouseSource
from tableformat.names import PartitionId, TableName
from tableformat.source import SourceSnapshot
from tests.services.old_clickhouse import OldPair

__all__ = ["COLUMNS", "KEYS", "OldSource"]

_NUMBERS: Final = itertools.count(1)
COLUMNS: Final = (
    "d Date, k UInt64, s String, n Nullable(Int32), m UInt64 MATERIALIZED k * 2,"
    " e Enum8('a' = 1, 'b' = 2), arr Array(String)"
)
KEYS: Final = "PARTITION BY toYYYYMM(d) ORDER BY (k, s)"
_PLAIN: Final = f"ENGINE = MergeTree {KEYS}"
_ROWS: Final = (
    "SELECT toDate('2024-01-01') + number % 60, number, toString(number),"
    " if(number % 3 = 0, NULL, number), if(number % 2 = 0, 'a', 'b'), [toString(number)]"
    " FROM numbers({first}, {rows})"
)


class OldSource:
    """A source over one replica, and tables for it."""

    def __init__(self, pair: OldPair, number: int = 1) -> None:
        self.pair, self.number = pair, number
        self.source = self.through(number)

    def through(self, number: int) -> ClickHouseSource:
        """Return a source over a replica."""
        return ClickHouseSource(lambda _: self.connection(number))

    def connection(self, number: int = 1) -> ServerConnection:
        """Return a connection to a replica."""
        settings = parse_server(self.pair.url(number), environment={}, allow_insecure=True)
        return ServerConnection(ServerClient(settings, settings.hosts[0]))

    def query(self, sql: str) -> str:
        return self.pair.query(self.number, sql)

    def replicated(self, engine: str = "ReplicatedMergeTree") -> TableName:
        """Make an empty table on both replicas."""
        name = TableName("db", f"t{next(_NUMBERS)}")
        for number in (1, 2):
            self.pair.query(number, "CREATE DATABASE IF NOT EXISTS db")
            self.pair.query(
                number,
                f"CREATE TABLE {name.sql} ({COLUMNS}) ENGINE = {engine}("
                f"'/tables/{{shard}}/{name.name}', '{{replica}}') {KEYS}",
            )
        return name

    def table(
        self, clauses: str = f"ENGINE = MergeTree {KEYS}", columns: str = COLUMNS
    ) -> TableName:
        """Make an empty table on this replica; `clauses` are all from ENGINE on."""
        name = TableName("db", f"t{next(_NUMBERS)}")
        self.query("CREATE DATABASE IF NOT EXISTS db")
        self.query(f"CREATE TABLE {name.sql} ({columns}) {clauses}")
        return name

    def insert(self, name: TableName, first: int = 0, rows: int = 1000) -> None:
        """Insert rows into January and February of 2024."""
        self.query(
            f"INSERT INTO {name.sql} (d, k, s, n, e, arr) {_ROWS.format(first=first, rows=rows)}"
        )

    def snapshot(self, name: TableName, *partition_ids: str, job: str = "job") -> SourceSnapshot:
        """Freeze partitions, both when none is named."""
        wanted = tuple(PartitionId(one) for one in partition_ids or ("202401", "202402"))
        return self.source.snapshot(self.source.describe(name), wanted, job=job)

    def staging_tables(self) -> list[str]:
        found = self.query(
            "SELECT name FROM system.tables WHERE database = 'mergeberg_staging' ORDER BY name"
        )
        return found.split()
