"""Generated tables of many partitions through a real Spark session, one Spark job for a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from pyspark.sql import SparkSession

from spark_ext.engine.runner import SparkWriter
from tests.properties.many_tables import ManyTables
from tests.properties.table_check import Seen, check_table
from tests.properties.table_keys import PartitionKey
from tests.strategies.tables import TableDefinition, tables
from tests.support.local_spark import SPARK_MARKS
from tests.support.spark_application import SparkApplication

pytestmark = SPARK_MARKS


@pytest.fixture(scope="module")
def spark(spark_application: SparkApplication) -> Iterator[SparkSession]:
    with spark_application.session() as session:
        yield session


@pytest.fixture(scope="module")
def opened(spark: SparkSession) -> Iterator[ManyTables]:
    with ManyTables(SparkWriter(spark)) as found:
        yield found


@pytest.mark.soak
@settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)
@given(table=tables(most_rows=12))
def test_a_partition_for_every_row_is_as_right_as_one_for_all(
    opened: ManyTables, table: TableDefinition
) -> None:
    """Up to 36 partitions are slices of one job: none gets the rows of another."""
    assume(not table.refused or table.refused == table.partition.refused)

    check_table(opened, replace(table, partition=PartitionKey("n"), refused=()), Seen())
