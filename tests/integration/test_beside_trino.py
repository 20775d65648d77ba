"""A real Trino keeps house beside exports: it optimizes, expires snapshots and removes orphans."""

from __future__ import annotations

import contextlib
import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec
from urllib.parse import urlsplit

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.rows.digests import FileDigests
from catalog.ledgers.uris import open_ledger
from spark_ext.operations.operate import operate, operation_of
from spark_ext.operations.tables import OtherTables, SessionExports
from spark_ext.sql.grammar import parse_statement
from spark_ext.sql.statements import Alter
from tableformat.export.slices import FileFormat
from tableformat.messages import plain
from tableformat.names import LakeName, TableName
from tests.readers.far import far_catalog
from tests.services.minio import MinIO
from tests.services.trino import trino
from tests.support.real_export import RealExport

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

KEYS = "PARTITION BY p ORDER BY k"
_NO_AGE = "lake.expire_snapshots_min_retention=0s,lake.remove_orphan_files_min_retention=0s"
"""Trino keeps what is younger than a week, unless its session says otherwise."""


def asked(port: int, sql: str) -> list[list[Any]]:
    """Return the rows that Trino reads."""
    headers = {
        "X-Trino-User": "tests",
        "X-Trino-Catalog": "lake",
        "X-Trino-Schema": "n",
        "X-Trino-Session": _NO_AGE,
    }
    rows: list[list[Any]] = []
    with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("POST", "/v1/statement", sql, headers)
        response = json.load(connection.getresponse())
        while "nextUri" in response:
            connection.request("GET", urlsplit(response["nextUri"]).path, headers=headers)
            response = json.load(connection.getresponse())
            rows += response.get("data", [])
    assert "error" not in response, response["error"]["message"]
    return rows


def altered(exports: RealExport, name: LakeName, command: str) -> list[str]:
    """Run a statement on the lake table; return what became of each partition."""
    read = parse_statement(f"ALTER TABLE {name} {command}")
    assert isinstance(read, Alter)
    lake = exports.catalog("lake")
    no_exports = create_autospec(SessionExports, instance=True)
    others = OtherTables(lambda _: name, lambda _: lake, no_exports)
    ledger = open_ledger(exports.ledger, local_warehouse=None)
    try:
        done = operate(operation_of(read), name, lake, ledger, lambda _: None, others)
        return [outcome.status.value for outcome in done]
    finally:
        ledger.close()


def test_what_is_detached_outlives_trinos_expiry_and_removal_of_orphans(
    minio_server_of_session: MinIO, tmp_path: Path
) -> None:
    """Harm prevented: rows that were put aside are gone after a night's housekeeping."""
    table, name = TableName("db", "t"), LakeName("lake", ("n",), "t")
    with (
        EmbeddedConnection(tmp_path / "clickhouse", create=True) as connection,
        far_catalog(minio_server_of_session, tmp_path) as far,
        trino(minio_server_of_session, far.store.catalog) as server,
    ):
        exports = RealExport(connection, tmp_path, far=far.properties)
        for sql in (
            f"CREATE TABLE {table.sql} (p UInt8, k UInt32) ENGINE = MergeTree {KEYS}",
            f"INSERT INTO {table.sql} SELECT number % 2, number FROM numbers(10)",
        ):
            connection.command(sql)
        exports.run(table)
        assert altered(exports, name, "DETACH PARTITION ID '0'") == ["detached"]
        found = exports.lake(table)
        orphan = f"{found.location()}/data/orphan.parquet"
        storage = exports.catalog("lake").storages(orphan)
        storage.put(orphan, b"nobody refers to it")
        before = len(found.metadata.snapshots)

        for act in ("expire_snapshots", "remove_orphan_files"):
            asked(server.port, f"ALTER TABLE t EXECUTE {act}(retention_threshold => '0s')")

        assert len(exports.lake(table).metadata.snapshots) < before
        assert orphan not in {one.location for one in storage.list(found.location())}
        at = "SELECT k FROM t FOR VERSION AS OF 'detached' ORDER BY k"
        assert asked(server.port, at) == [[0], [2], [4], [6], [8]]
        assert asked(server.port, "SELECT count(*) FROM t") == [[5]]
        assert altered(exports, name, "ATTACH PARTITION ID '0'") == ["attached"]
        assert asked(server.port, "SELECT count(*) FROM t") == [[10]]


def test_what_trino_optimized_is_exported_and_a_change_replaces_it(
    minio_server_of_session: MinIO, tmp_path: Path
) -> None:
    """Harm prevented: after a night's compaction a partition is exported twice, or never again."""
    table, name = TableName("db", "t"), LakeName("lake", ("n",), "t")
    counts = "SELECT count(*), sum(k) FROM t"
    with (
        EmbeddedConnection(tmp_path / "clickhouse", create=True) as connection,
        far_catalog(minio_server_of_session, tmp_path) as far,
        trino(minio_server_of_session, far.store.catalog) as server,
    ):
        exports = RealExport(connection, tmp_path, far=far.properties)
        for sql in (
            f"CREATE TABLE {table.sql} (p UInt8, k UInt32) ENGINE = MergeTree {KEYS}",
            f"SYSTEM STOP MERGES {table.sql}",
            *(f"INSERT INTO {table.sql} SELECT 0, number FROM numbers(1000)" for _ in range(3)),
        ):
            connection.command(sql)
        exports.run(table, file_format=FileFormat(target_file_bytes=2_000), verify=True)
        before = {file.file_path for file in exports.data_files(table)}
        assert len(before) > 1

        asked(server.port, "ALTER TABLE t EXECUTE optimize")

        after = {file.file_path for file in exports.data_files(table)}
        assert len(after) == 1
        assert not before & after
        (again,) = exports.run(table)
        assert (again.status.value, again.rows) == ("already_exported", 3000)
        assert "their files were rewritten by snapshot" in plain(again.message)
        with FileDigests(exports.catalog("lake").storages) as digests:
            (compared,) = exports.verify(table, digests)
        assert compared.verdict.value == "equal", compared
        assert asked(server.port, counts) == [[3000, 3 * 499_500]]
        assert len(exports.in_lake(table, "p, k")) == 3000

        connection.command(f"INSERT INTO {table.sql} VALUES (0, 7)")
        (replaced,) = exports.run(table, force=True)
        assert (replaced.status.value, replaced.left_rows) == ("replaced", 3000)
        assert asked(server.port, counts) == [[3001, 3 * 499_500 + 7]]
        asked(server.port, "ALTER TABLE t EXECUTE optimize(file_size_threshold => '1GB')")
        assert altered(exports, name, "DETACH PARTITION ID '0'") == ["detached"]
        assert asked(server.port, "SELECT count(*) FROM t") == [[0]]
        assert altered(exports, name, "ATTACH PARTITION ID '0'") == ["attached"]
        assert asked(server.port, counts) == [[3001, 3 * 499_500 + 7]]
