"""Every statement of SRS-016 runs as it stands in Spark SQL, and by `spark_ext.sql`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_ext
from catalog.clickhouse.embedded import EmbeddedConnection
from tests.requirement_statements.statements import EXPORTS, QUERIES, Step
from tests.support.iceberg_spark import catalog_settings
from tests.support.local_spark import SPARK_MARKS
from tests.support.spark_application import ICEBERG, MERGEBERG, SparkApplication

pytestmark = [
    *SPARK_MARKS,
    # INTO OUTFILE and FORMAT have no effect here.
    pytest.mark.filterwarnings("ignore:.* has no effect in Spark SQL"),
]

# What an error says, by ClickHouse's code of it.
_MESSAGES: Final[Mapping[int, str]] = {
    0: "Cannot export partition 2025 of default.source_table: it has no active parts",
    36: "Exporting to the same table is not allowed",
    48: "Destination storage MergeTree does not support MergeTree parts",
    344: "Exporting merge tree part is experimental",
}


@pytest.fixture(scope="module")
def spark(
    spark_application: SparkApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """Start a session with the tables of the requirement's statements in its only source."""
    root = tmp_path_factory.mktemp("requirement")
    with EmbeddedConnection(root / "clickhouse", create=True) as connection:
        for sql in EXPORTS.clickhouse:
            connection.command(sql)
    conf = {
        **catalog_settings(
            "lake",
            type="jdbc",
            uri=f"jdbc:sqlite:{root}/lake.db",
            jdbc__schema_version="V1",
            warehouse=f"file:{root}/warehouse",
        ),
        "spark.mergeberg.source.ch": f"chdb:{root}/clickhouse",
        "spark.mergeberg.ledger": f"sqlite:{root}/ledger.db",
    }
    with (
        pytest.MonkeyPatch.context() as patch,
        spark_application.session(conf, (MERGEBERG, ICEBERG)) as session,
    ):
        patch.setenv("PYICEBERG_HOME", str(root))
        yield session


def ended(step: Step, statement: str, run: Callable[[str], DataFrame]) -> str | int:
    """Run a statement; return what it ended with, as `Step.ends` has it."""
    if isinstance(step.ends, int):
        with pytest.raises(Exception, match=_MESSAGES[step.ends]):
            run(statement).collect()
        return step.ends
    return ", ".join(sorted({row.status for row in run(statement).collect()}))


def run_exports(
    spark: SparkSession, namespace: str, interface: str
) -> list[tuple[str, object, object]]:
    """Run the exports of the document with a namespace of their own; return what each ends with."""
    spark.sql(f"CREATE NAMESPACE lake.{namespace}")
    spark.sql(f"USE lake.{namespace}")

    def run(statement: str) -> DataFrame:
        # The document's `database` of the destination is a namespace.
        bound = statement.replace("default.destination_table", f"{namespace}.destination_table")
        return spark.sql(bound) if interface == "Spark SQL" else spark_ext.sql(spark, bound)

    return [(s, step.ends, ended(step, s, run)) for step in EXPORTS.steps for s in step.statements]


@pytest.mark.parametrize(
    ("interface", "namespace"), [("Spark SQL", "default"), ("spark_ext.sql", "n")]
)
def test_the_exports_of_the_requirement_run_as_they_stand(
    spark: SparkSession, interface: str, namespace: str
) -> None:
    """A destination that is named alone is of the current namespace."""
    found = run_exports(spark, namespace, interface)

    assert [(s, end) for s, ends, end in found if end != ends] == []
    rows = spark.sql(f"SELECT p, k, d FROM lake.{namespace}.destination_table").collect()
    assert sorted(map(tuple, rows)) == [(2020, "key1", 100), (2020, "key2", 200)]


@pytest.fixture(scope="module")
def exported(spark: SparkSession) -> SparkSession:
    """Run the exports once, for the tests that look at their rows in the system tables."""
    run_exports(spark, "listed", "Spark SQL")
    return spark


@pytest.mark.parametrize("of", QUERIES)
def test_the_system_tables_of_the_requirement_have_rows(exported: SparkSession, of: str) -> None:
    """Exports are listed by partition, and none runs."""
    found = exported.sql(QUERIES[of].replace("FROM system.", "FROM mergeberg.system.")).collect()

    assert bool(found) == ("IN_PROGRESS" not in QUERIES[of])
