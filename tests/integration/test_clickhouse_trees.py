"""Tables of ClickHouse as destinations: one over Hive directories is its tree."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from spark_ext.actions import export_ports
from spark_ext.cli.main import invoke
from tests.services.s3_server import S3Server
from tests.support.session_without_spark import NoSpark
from tests.support.store_kinds import AbfsPlace, GsPlace, HdfsPlace, S3ProxyPlace
from tests.support.store_places import Place, over
from tests.wrong.places import Places

HIVE = "format = 'Parquet', partition_strategy = 'hive'"
ACME = "'https://acme.blob.core.windows.net', 'box'"
ALLOWED = "SETTINGS allow_experimental_export_merge_tree_part = 1"


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of a bucket, which is reached as the environment says."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    monkeypatch.setenv("AWS_REGION", s3_server.region)
    monkeypatch.setenv("SSL_CERT_FILE", str(s3_server.ca_file))
    return f"{s3_server.endpoint}/{s3_server.make_bucket()}"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """Return places with db.plain and db.months, whose key is an expression."""
    made = Places(tmp_path, reads_parts=True)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "begin", lambda _: None)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "done", lambda _: True)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "result", lambda _: None)
    monkeypatch.setattr(export_ports, "SparkWriter", lambda *_: made.writer())
    with EmbeddedConnection(made.clickhouse, create=True) as connection:
        connection.command("CREATE DATABASE db")
        for name, key in (("plain", "d"), ("months", "toYYYYMM(d)")):
            connection.command(
                f"CREATE TABLE db.{name} (d Date, k UInt8) ENGINE = MergeTree "
                f"PARTITION BY {key} ORDER BY k"
            )
            connection.command(f"INSERT INTO db.{name} VALUES ('2024-01-31', 1), ('2024-03-01', 2)")
    return made


def over_directories(
    places: Places, engine: str, key: str, columns: str = "d Date, k UInt8"
) -> None:
    by = f"PARTITION BY {key}" if key else ""
    places.clickhouse_run(f"CREATE OR REPLACE TABLE db.tree ({columns}) ENGINE = {engine} {by}")


def export(places: Places, table: str, *more: str) -> tuple[int, str, str]:
    ledger = f"sqlite:{places.root}/ledger.db"
    words = ("export", f"db.{table}", "--all", "--to", "db.tree", "--ledger", ledger)
    return places.run(*words, *more)


def read(location: str) -> list[dict[str, object]]:
    out, err = io.StringIO(), io.StringIO()
    assert invoke(["read", f"hive:{location}", "--rows"], out, err) == 0, err.getvalue()
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_table_over_hive_directories_in_s3_is_its_tree(places: Places, bucket: str) -> None:
    """RQ…DestinationSupport: the same tree from the command line and from SQL."""
    over_directories(places, f"S3('{bucket}/a/plain/', 'key', 'secret', {HIVE})", "d")
    location = f"s3://{bucket.rsplit('/', 1)[-1]}/a/plain"
    ledger = f"sqlite:{places.root}/ledger.db"

    code, out, err = export(places, "plain")
    session = NoSpark(
        {
            "spark.mergeberg.source.ch": f"chdb:{places.clickhouse}",
            "spark.mergeberg.ledger": ledger,
        }
    )
    statement = f"ALTER TABLE ch.db.plain EXPORT PARTITION ALL TO TABLE ch.db.tree {ALLOWED}"
    again = session.call("execute_alter", statement=statement)

    assert (code, out.count("exported · 1 row")) == (0, 2), err
    assert [row["status"] for row in again] == ["already_exported"] * 2
    assert read(location) == [{"d": "2024-01-31", "k": 1}, {"d": "2024-03-01", "k": 2}]


def test_a_named_directory_is_a_column_of_the_table_over_the_tree(
    places: Places, bucket: str
) -> None:
    over_directories(places, f"S3('{bucket}/t', {HIVE})", "month", "d Date, k UInt8, month UInt32")

    refused, _, err = export(places, "months", "--json")
    code, out, stderr = export(places, "months", "--hive-column", "month=toYYYYMM(d)")

    assert (refused, json.loads(err.splitlines()[-1])["code"]) == (3, 122)
    assert (code, out.count("exported · 1 row")) == (0, 2), stderr
    assert [row["month"] for row in read(f"s3://{bucket.rsplit('/', 1)[-1]}/t")] == [202401, 202403]


def engine_over(place: Place) -> str:
    """Return the engine of a table over the directories of a tree in the place."""
    of_server, path = place.server, place.root.partition("://")[2].partition("/")[2]
    match place:
        case GsPlace():
            return f"GCS('{of_server.endpoint}/{place.bucket}/{path}/tree', {HIVE})"
        case AbfsPlace():
            connection = of_server.connection()
            how = "'Parquet', 'auto', 'hive'"
            return f"AzureBlobStorage('{connection}', '{place.container}', '{path}/tree', {how})"
        case HdfsPlace():
            return f"HDFS('{place.root}/tree/**/*.parquet', 'Parquet')"
        case _:
            in_bucket = place.root.removeprefix("s3://")
            return f"S3('{of_server.endpoint}/{in_bucket}/tree', 'key', 'secret', {HIVE})"


@over(S3ProxyPlace, GsPlace, AbfsPlace, HdfsPlace, representative=S3ProxyPlace)
def test_a_table_over_hive_directories_of_every_store_is_its_tree(
    places: Places, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a table of ClickHouse that nobody can export to, although its store is."""
    variables = place.variables | {"SSL_CERT_FILE": str(place.server.ca_file)}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    over_directories(places, engine_over(place), "d")

    code, out, err = export(places, "plain")

    assert (code, out.count("exported · 1 row")) == (0, 2), err
    assert read(f"{place.root}/tree") == [{"d": "2024-01-31", "k": 1}, {"d": "2024-03-01", "k": 2}]


@pytest.mark.parametrize(
    ("engine", "key", "columns", "code", "why"),
    [
        ("S3('{b}/t', {hive})", "k", "d Date, k UInt8", 36, "Tables have different partition key"),
        ("S3('{b}/t', {hive})", "(d, k)", "d Date, k UInt8, n Int8", 122, "the source lacks n"),
        ("S3('{b}/t', {hive})", "d", "d Date, n UInt8", 122, "the destination lacks k"),
        ("S3('{b}/t', format = 'ORC', partition_strategy = 'hive')", "d", "d Date, k UInt8", 48,
         "storage S3 of the format ORC does not support"),
        ("S3('{b}/{{_partition_id}}.parquet', 'Parquet')", "d", "d Date, k UInt8", 48,
         "storage S3 does not support"),
        ("S3('https://else.lan/bucket/t', 'AKIA0', 'hush', {hive})", "d", "d Date, k UInt8", 48,
         "is not in the S3 that is reached from here"),
        ("HDFS('hdfs://h:9000/dir', 'Parquet')", "d", "d Date, k UInt8", 48, "storage HDFS does"),
        ("HDFS('hdfs://h:9000/dir/**/*.parquet', 'Parquet')", "", "d Date, k UInt8", 48,
         "storage HDFS does"),
        ("HDFS('hdfs://h:9000/dir/**/*.parquet', 'Parquet')", "k", "d Date, k UInt8", 36,
         "Tables have different partition key"),
        ("HDFS('hdfs://h:9000/dir/**/*.parquet', 'ORC')", "d", "d Date, k UInt8", 48,
         "storage HDFS of the format ORC does not support"),
        ("GCS('https://storage.googleapis.com/bucket/t', 'AKIA0', 'hush', {hive})", "k",
         "d Date, k UInt8", 36, "Tables have different partition key"),
        ("GCS('https://else.lan/bucket/t', 'AKIA0', 'hush', {hive})", "d", "d Date, k UInt8", 48,
         "is not in the Google Cloud Storage that is reached from here"),
        (f"AzureBlobStorage({ACME}, 't/{{{{_partition_id}}}}', 'acme', 'aHVzaA==', 'Parquet')",
         "d", "d Date, k UInt8", 48, "storage Azure does"),
        ("File('Parquet')", "", "d Date, k UInt8", 48, "storage File does not support"),
        ("Memory", "", "d Date, k UInt8", 48, "storage Memory does not support"),
    ],
)  # fmt: skip
def test_what_is_no_tree_that_fits_is_refused_and_nothing_is_written(
    places: Places, bucket: str, engine: str, key: str, columns: str, code: int, why: str
) -> None:
    over_directories(places, engine.format(b=bucket, hive=HIVE), key, columns)

    ended, out, err = export(places, "plain", "--json")

    error = json.loads(err.splitlines()[-1])
    assert (ended, out, error["code"]) == (3 if code != 48 else ended, "", code), err
    assert why in error["error"]
    assert "hive:URI" in error["error"] or code != 48
    assert "AKIA0" not in err
    assert not (places.root / "ledger.db").exists()
