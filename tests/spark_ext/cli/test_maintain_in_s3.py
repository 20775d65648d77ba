"""`mergeberg maintain` on a table in an object store, with the real Spark and Iceberg."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.rows.digests import FileDigests
from spark_ext.cli.main import invoke
from spark_ext.operations.maintenance import Task
from tableformat.export.slices import FileFormat
from tableformat.names import TableName
from tests.readers.far import far_catalog
from tests.services.java_trust import trusting
from tests.services.minio import MinIO
from tests.support.iceberg_runtime import AMAZON_CLIENT, joined, runtime_settings
from tests.support.iceberg_spark import iceberg_spark
from tests.support.local_spark import SPARK_MARKS
from tests.support.real_export import RealExport

pytestmark = SPARK_MARKS

TABLE = TableName("db", "t")
KEYS = "PARTITION BY p ORDER BY k"
CREATE = f"CREATE TABLE {TABLE.sql} (p UInt8, k UInt32) ENGINE = MergeTree {KEYS}"


def test_maintenance_in_an_object_store_keeps_exports_in_force(
    minio_server_of_session: MinIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: what is safe in local files removes or loses something in a bucket."""
    with (
        EmbeddedConnection(tmp_path / "clickhouse", create=True) as connection,
        far_catalog(minio_server_of_session, tmp_path) as far,
    ):
        exports = RealExport(connection, tmp_path, far=far.properties)
        for sql in (
            CREATE,
            f"SYSTEM STOP MERGES {TABLE.sql}",
            *(f"INSERT INTO {TABLE.sql} SELECT 0, number FROM numbers(1000)" for _ in range(3)),
        ):
            connection.command(sql)
        exports.run(TABLE, file_format=FileFormat(target_file_bytes=2_000), verify=True)
        before = len(exports.data_files(TABLE))
        for name, text in far.properties.items():
            variable = name.upper().replace(".", "__").replace("-", "_")
            monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{variable}", text)
        trusted = " ".join(trusting(Path(far.store.trust_store)))
        conf = {"spark.driver.extraJavaOptions": trusted, **far.store.spark_catalog}
        out, err = io.StringIO(), io.StringIO()
        words = ("--ledger", f"sqlite:{tmp_path}/ledger.db", "--older-than", "0s", "--yes")

        with iceberg_spark(tmp_path, joined(runtime_settings("1g", AMAZON_CLIENT), conf)):
            code = invoke(["maintain", "lake.n.t", *words, "--json"], out, err)

        assert code == 0, out.getvalue() + err.getvalue()
        done = {one["task"]: one for one in map(json.loads, out.getvalue().splitlines())}
        assert [*done] == [*(task.value for task in Task), "rows"]
        assert (done["compact"]["count"], done["compact"]["files"]) == (1, before)
        assert done["snapshots"]["status"] == "done"
        assert (done["rows"]["rows"], done["rows"]["partitions"]) == (3000, 1)
        assert len(exports.lake(TABLE).metadata.snapshots) == len(exports.data_files(TABLE)) == 1
        (again,) = exports.run(TABLE)
        assert (again.status.value, again.rows) == ("already_exported", 3000)
        with FileDigests(exports.catalog("lake").storages) as digests:
            (compared,) = exports.verify(TABLE, digests)
        assert compared.verdict.value == "equal", compared
        assert exports.in_lake(TABLE, "p, k") == exports.in_source(TABLE, "p, k")
