"""Our parser together with Iceberg's: nothing that Spark or Iceberg accept is changed.

In both orders of the extensions, and where a session with Iceberg's was enabled afterwards.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_ext.set_up import enable
from spark_ext.sql.dispatch import PROCEDURES
from tests.support.local_spark import SPARK_MARKS
from tests.support.spark_application import (
    ICEBERG,
    MERGEBERG,
    SparkApplication,
    lake_settings,
)
from tests.support.spark_jar import Driver
from tests.support.statements_of_others import PARSED, RUN

pytestmark = SPARK_MARKS

# Ids of columns, objects, and the label that Spark makes up for BEGIN ... END.
_EACH_TIME = re.compile(r"#\d+|@[0-9a-f]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

ORDERS = {
    "ours first": (MERGEBERG, ICEBERG),
    "Iceberg first": (ICEBERG, MERGEBERG),
    "enabled": (ICEBERG,),
    "Iceberg": (ICEBERG,),
}
WITH_US = ("ours first", "Iceberg first", "enabled")


@pytest.fixture(scope="module")
def sessions(
    spark_application: SparkApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, SparkSession]]:
    directory = tmp_path_factory.mktemp("beside")
    with spark_application.session(extensions=(MERGEBERG, ICEBERG)):
        made = {
            name: spark_application.further_session(
                lake_settings(directory / name.replace(" ", "-")), extensions
            )
            for name, extensions in ORDERS.items()
        }
        enable(made["enabled"])
        yield made


def parsed(session: SparkSession, text: str) -> str:
    """Return the plan of a text, or the error, without numbers that differ each time."""
    parser: Any = session._jsparkSession.sessionState().sqlParser()
    try:
        text_of_plan = str(parser.parsePlan(text).treeString())
    except PySparkException as refused:
        text_of_plan = f"{type(refused).__name__}: {refused}"
    return _EACH_TIME.sub("", text_of_plan)


def ran(session: SparkSession, text: str) -> object:
    """Return the rows of a statement, or the first line of the error."""
    try:
        return [tuple(row) for row in session.sql(text).collect()]
    except Exception as refused:  # noqa: BLE001  Iceberg's own errors come in many classes
        return f"{type(refused).__name__}: {str(refused).splitlines()[0]}"


@pytest.mark.parametrize("name", WITH_US)
def test_every_statement_of_others_is_read_as_without_us(
    sessions: dict[str, SparkSession], name: str
) -> None:
    differences = {
        text: (theirs, ours)
        for text in PARSED
        if (ours := parsed(sessions[name], text)) != (theirs := parsed(sessions["Iceberg"], text))
    }

    assert len(PARSED) > 60
    assert differences == {}


def test_icebergs_statements_run_alike_in_both_orders_and_when_enabled(
    sessions: dict[str, SparkSession],
) -> None:
    """Iceberg looks for its own parser in a session, which ours may hide."""
    results = {name: [ran(session, text) for text in RUN] for name, session in sessions.items()}

    assert [name for name in WITH_US if results[name] != results["Iceberg"]] == []
    assert [row for row in results["Iceberg"] if isinstance(row, str)] == []


@pytest.mark.parametrize("name", WITH_US)
def test_ours_work_in_both_orders_and_when_enabled(
    sessions: dict[str, SparkSession], name: str
) -> None:
    driver = Driver(
        {
            "partitions": lambda _: {"rows": [["1", "1", 2, None, 3, 4, None, None, None]]},
            "execute_alter": lambda _: {"rows": []},
        }
    )
    jvm: Any = sessions[name]._jvm
    jvm.mergeberg.spark.PyBridge.register(driver)

    row = ("1", "1", 2, None, 3, 4, None, None, None)
    assert ran(sessions[name], "CALL lake.system.partitions('ch.db.t')") == [row]
    assert ran(sessions[name], "ALTER TABLE db.t DROP PARTITION 1") == []
    assert [request["call"] for request in driver.taken()] == ["partitions", "execute_alter"]


def test_without_us_there_is_nothing_of_ours(sessions: dict[str, SparkSession]) -> None:
    """So the comparison above compares with the others alone."""
    assert "ParseException" in str(ran(sessions["Iceberg"], "ALTER TABLE db.t DROP PARTITION 1"))
    assert "FAILED_TO_LOAD" in str(ran(sessions["Iceberg"], "CALL lake.system.partitions('t')"))
    assert set(PROCEDURES) >= {"partitions", "execute_alter"}


def test_reading_a_statement_costs_no_time_that_anybody_notices(
    sessions: dict[str, SparkSession], record_property: Any
) -> None:
    def median(session: SparkSession) -> float:
        parser: Any = session._jsparkSession.sessionState().sqlParser()
        took = []
        for _ in range(100):
            began = time.perf_counter()
            parser.parsePlan("SELECT a, b FROM lake.db.t WHERE a > 1")
            took.append(time.perf_counter() - began)
        return statistics.median(took)

    median(sessions["ours first"])
    costs = {name: median(session) for name, session in sessions.items()}
    record_property("milliseconds", {name: round(cost * 1000, 3) for name, cost in costs.items()})

    assert costs["ours first"] < costs["Iceberg"] + 0.01


def test_a_lake_of_a_session_is_its_own(sessions: dict[str, SparkSession]) -> None:
    places = {session.conf.get("spark.sql.catalog.lake.warehouse") for session in sessions.values()}

    assert len(places) == len(sessions)
    assert all(Path(str(place)).name == "lake" for place in places)
