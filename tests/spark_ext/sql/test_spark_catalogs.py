"""A catalog that is configured for Spark only: what Spark makes in it, an export finds and fills.

With the real Iceberg, over each kind of catalog that tests can run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from catalog.iceberg.spark_setting_table import find_setting
from catalog.iceberg.table import IcebergTable
from spark_ext.sql.catalogs import names_of, open_named, open_session_ledger, settings_of
from tableformat.errors import UsageError
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome
from tableformat.export.request import AllPartitions, ExportOptions
from tableformat.names import LakeName, TableName
from tests.lying_catalog.server import LyingCatalog
from tests.services.postgres import postgres
from tests.services.postgres_relay import Relay
from tests.support.iceberg_runtime import runtime_jar
from tests.support.iceberg_spark import catalog_settings
from tests.support.java_constants import text_constants
from tests.support.local_spark import SPARK_MARKS
from tests.support.scenarios import Partitions, ports_of, statuses
from tests.support.spark_application import SparkApplication

pytestmark = SPARK_MARKS

CATALOGS = ("in_file", "in_postgresql", "served")
CLASSES = (
    "CatalogProperties",
    "rest.RESTCatalogProperties",
    "rest.auth.AuthProperties",
    "rest.auth.OAuth2Properties",
    "rest.HTTPClient",
    "jdbc.JdbcUtil",
    "aws.AwsProperties",
    "aws.AwsClientProperties",
    "aws.HttpClientProperties",
    "aws.s3.S3FileIOProperties",
)
NO_SETTINGS = (
    "DEFAULT$|QUERY_PARAMETER|TOKEN_TYPE|S3_TAG|SCAN_PLAN_ID|REFERENCED_BY"
    "|(KMS_TYPE|KMS_IMPL|AUTH_TYPE|MANAGER_IMPL|SSE_TYPE|CLIENT_TYPE)_|DSSE_TYPE"
)
"""Fields that hold values, or names of other objects."""


@dataclass(frozen=True)
class Session:
    """A session, and the directory of its catalogs."""

    spark: SparkSession
    directory: Path

    @property
    def conf(self) -> dict[str, str]:
        return settings_of(self.spark)

    def sql(self, text: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in self.spark.sql(text).collect()]

    def table(self, name: LakeName) -> IcebergTable:
        found = open_named(name.catalog, self.conf).table(name)
        assert found is not None
        return found

    def export(self, to: LakeName, source: Partitions) -> list[Outcome]:
        """Export into a catalog as the session has it."""
        lake = open_named(to.catalog, self.conf)
        ledger = open_session_ledger(self.conf, to.catalog)
        ports = replace(ports_of(self.directory, source), lake=lake, ledger=ledger)
        request = ExportRequest(TableName("db", "t"), to, AllPartitions(), ExportOptions(), {})
        outcomes = [*export(request, ports, slots=1)]
        ledger.close()
        return outcomes


@pytest.fixture(scope="module")
def session(
    spark_application: SparkApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    """Start a session that knows three catalogs, and nothing of ours but the ledger."""
    made = tmp_path_factory.mktemp("catalogs")
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("PYICEBERG_HOME", str(made))
        server = stack.enter_context(postgres())
        account = server.account()
        relay = stack.enter_context(Relay(server.socket))
        rest = stack.enter_context(LyingCatalog(made / "served"))
        conf = {
            **catalog_settings(
                "in_file",
                type="jdbc",
                uri=f"jdbc:sqlite:{made}/lake file.db",
                jdbc__schema_version="V1",
                warehouse=f"file:{made}/in-file",
                cache_enabled="false",
            ),
            **catalog_settings(
                "in_postgresql",
                catalog_impl="org.apache.iceberg.jdbc.JdbcCatalog",
                uri=f"jdbc:postgresql://127.0.0.1:{relay.port}/postgres?sslmode=disable&gssEncMode=disable",
                jdbc__user=account,
                jdbc__password="p@ss:/%word",  # noqa: S106  it lets everybody in
                warehouse=f"{made}/in-postgresql",
                cache_enabled="false",
                table_default__write__parquet__compression_codec="zstd",
            ),
            **catalog_settings("served", type="rest", uri=rest.uri, cache_enabled="false"),
            "spark.mergeberg.ledger": f"sqlite:{made}/ledger.db",
        }
        spark = stack.enter_context(spark_application.session(conf))
        yield Session(spark, made)


@pytest.mark.parametrize("catalog", CATALOGS)
def test_what_spark_makes_is_found_filled_and_read_by_spark(session: Session, catalog: str) -> None:
    """Nothing is configured a second time."""
    to = LakeName(catalog, ("n",), "t")
    session.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.n")
    session.sql(f"CREATE TABLE {to} (n BIGINT NOT NULL) USING iceberg")
    made = session.table(to).load()

    source = Partitions()
    assert statuses(session.export(to, source)) == ["committed"] * 2

    rows = sum(source.rows.values())
    assert session.sql(f"SELECT count(*) FROM {to}") == [(rows,)]
    assert session.table(to).load().layout.table_uuid == made.layout.table_uuid
    session.sql(f"INSERT INTO {to} VALUES (1000)")
    assert session.sql(f"SELECT count(*), max(n) FROM {to}") == [(rows + 1, 1000)]
    assert len(session.table(to).paths_in_main(session.table(to).load())) == 3
    assert {s.value for s in (o.status for o in session.export(to, source))} <= {
        "unchanged",
        "already_exported",
    }


@pytest.mark.parametrize("catalog", CATALOGS)
def test_what_an_export_makes_is_found_by_spark(session: Session, catalog: str) -> None:
    to = LakeName(catalog, ("made",), "by_us")

    session.export(to, Partitions())

    assert session.sql(f"SELECT count(*) FROM {to}") == [(15,)]
    location = session.table(to).load().location
    assert location.startswith("file:///"), location
    assert session.sql(f"DESCRIBE EXTENDED {to}")[0][0] == "n"
    session.sql(f"DELETE FROM {to} WHERE n < 3")
    assert session.sql(f"SELECT count(*) FROM {to} WHERE n < 3") == [(0,)]


def test_a_table_that_lies_where_hadoop_says_so_is_filled_there(session: Session) -> None:
    """Hadoop writes file:/path; taken for a relative path, files would lie somewhere else."""
    to = LakeName("in_file", ("n",), "placed")
    place = session.directory / "elsewhere" / "placed"
    session.sql("CREATE NAMESPACE IF NOT EXISTS in_file.n")
    session.sql(f"CREATE TABLE {to} (n BIGINT NOT NULL) USING iceberg LOCATION 'file:{place}'")

    session.export(to, Partitions())

    assert session.sql(f"SELECT count(*) FROM {to}") == [(15,)]
    files = [one[0] for one in session.sql(f"SELECT file_path FROM {to}.files")]
    assert all(str(one).startswith(f"file:{place}/") for one in files), files
    assert [*place.rglob("*.parquet")]
    assert not Path("file:").exists()


def test_a_session_without_the_catalog_has_the_built_in_one(session: Session) -> None:
    conf = session.conf | {"spark.mergeberg.warehouse": str(session.directory / "built-in")}

    opened = open_named("lake", conf)

    assert opened.local_warehouse == session.directory / "built-in"


def test_names_are_looked_up_where_the_session_stands(session: Session) -> None:
    session.sql("CREATE NAMESPACE IF NOT EXISTS in_file.n")
    session.sql("CREATE TABLE in_file.n.`odd``name` (n BIGINT) USING iceberg")
    conf = session.conf | {"spark.mergeberg.source.ch": "chdb:/nowhere"}
    session.sql("USE in_file.n")
    try:
        names = names_of(session.spark, conf)
    finally:
        session.sql("USE spark_catalog.default")

    assert names.current == ("in_file", "n")
    assert names.catalogs == {"lake", *CATALOGS}
    assert names.others == {"spark_catalog"}
    assert names.lake(("t",)) == LakeName("in_file", ("n",), "t")
    assert names.table_exists(("in_file", "n", "odd`name"))
    assert not names.table_exists(("in_file", "n", "other"))
    with pytest.raises(UsageError, match="the catalog 'spark_catalog' is no Iceberg catalog"):
        names_of(session.spark, conf).lake(("n", "t"))


@pytest.mark.usefixtures("session")
def test_every_setting_that_iceberg_has_is_in_the_table() -> None:
    """Harm prevented: a setting of the pinned release that is refused as if nobody knew it."""
    names = declared_names()

    assert {"uri", "jdbc.schema-version", "s3.endpoint", "table-default.x"} <= names
    assert {name for name in names if find_setting(name) is None} == set()


def declared_names() -> set[str]:
    """Return the names of settings that Iceberg's own classes declare; a prefix ends with x."""
    constants = (
        (field, text)
        for one in CLASSES
        for field, text in text_constants(runtime_jar(), f"org.apache.iceberg.{one}").items()
    )
    return {
        f"{text}x" if text.endswith(".") else text
        for field, text in constants
        if re.fullmatch(r"uri|type|[a-z0-9]+([.-][a-z0-9_]+)+[.]?", text)
        and not re.search(NO_SETTINGS, field)
    }
