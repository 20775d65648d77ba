"""Every statement of SRS-016 runs as it stands in Spark SQL, and by `spark_ext.sql`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_ext
from catalog.clickhouse.embedded import EmbeddedConnection
from spark_ext.engine.runner import SparkWriter
from tableformat.export.ports import Writing
from tests.requirement_statements.statements import (
    CANCELLATION,
    EXPORTS,
    QUERIES,
    Step,
    exports_into,
)
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
# What a tree says of an export that would replace its rows.
_REFUSED: Final = "the tree holds 2 rows of it"


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
    if step.ends == "refused":
        with pytest.raises(Exception, match=_REFUSED):
            run(statement).collect()
        return step.ends
    if isinstance(step.ends, int):
        with pytest.raises(Exception, match=_MESSAGES[step.ends]):
            run(statement).collect()
        return step.ends
    return ", ".join(sorted({row.status for row in run(statement).collect()}))


def run_exports(
    spark: SparkSession,
    namespace: str,
    interface: str,
    steps: tuple[Step, ...] = EXPORTS.steps,
) -> list[tuple[str, object, object]]:
    """Run the exports of the document with a namespace of their own; return what each ends with."""
    spark.sql(f"CREATE NAMESPACE lake.{namespace}")
    spark.sql(f"USE lake.{namespace}")

    def run(statement: str) -> DataFrame:
        # The document's `database` of the destination is a namespace.
        bound = statement.replace("default.destination_table", f"{namespace}.destination_table")
        return spark.sql(bound) if interface == "Spark SQL" else spark_ext.sql(spark, bound)

    return [(s, step.ends, ended(step, s, run)) for step in steps for s in step.statements]


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


@pytest.mark.parametrize("interface", ["Spark SQL", "spark_ext.sql"])
def test_they_run_with_a_tree_of_hive_directories_as_destination(
    spark: SparkSession, tmp_path: Path, interface: str
) -> None:
    """Settings.ForceExport is refused in a tree, without a second setting."""
    namespace = "of_sql" if interface == "Spark SQL" else "of_python"
    tree = exports_into(str(tmp_path / "tree"))

    found = run_exports(spark, namespace, interface, tree)

    assert [(s, end) for s, ends, end in found if end != ends] == []
    assert len(list((tmp_path / "tree" / "p=2020").glob("*.parquet"))) == 2


def test_the_kill_of_the_requirement_ends_the_export_that_it_names(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QueryCancellation: `<query_id>` is that of the export, which is writing."""
    export, kill = CANCELLATION
    spark.sql("CREATE NAMESPACE lake.killed")
    spark.sql("USE lake.killed")
    shown = (
        "SELECT DISTINCT query_id, status FROM mergeberg.system.replicated_partition_exports "
        "WHERE destination_table = 'lake.killed.destination_table'"
    )
    ended: list[str] = []
    write = SparkWriter.write

    def killing(writer: SparkWriter, *given: Any, **named: Any) -> Writing:
        ((query_id, _),) = spark.sql(shown).collect()
        killed = spark.sql(kill.text.replace("<query_id>", query_id)).collect()
        ended.extend(row.status for row in killed)
        return write(writer, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(SparkWriter, "write", killing)
        with pytest.raises(Exception, match="was killed"):
            spark.sql(export).collect()

    assert ended == [kill.ends]
    assert [row.status for row in spark.sql(shown).collect()] == ["KILLED"]
    assert [row.status for row in spark.sql(export).collect()] == ["committed"]


@pytest.fixture(scope="module")
def exported(spark: SparkSession) -> SparkSession:
    """Run the exports once, for the tests that look at their rows in the system tables."""
    run_exports(spark, "listed", "Spark SQL")
    return spark


@pytest.mark.parametrize("of", QUERIES)
def test_the_system_tables_of_the_requirement_have_rows(exported: SparkSession, of: str) -> None:
    """Exports are listed by partition, and none runs."""
    exported.sql("USE mergeberg")

    found = exported.sql(QUERIES[of]).collect()

    assert bool(found) == ("IN_PROGRESS" not in QUERIES[of])
