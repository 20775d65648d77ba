"""spark-sql and PySpark, as their pages say it; spark-sql on each Java that Spark runs on."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from spark_ext.engine.java import SUPPORTED, Java, find_java
from spark_ext.set_up import settings
from tests.support.iceberg_runtime import VERSION, local_repository
from tests.support.interfaces import EVENTS, Interfaces, blocks, reads_as

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.nightly]


@pytest.fixture
def interfaces(tmp_path_factory: pytest.TempPathFactory) -> Interfaces:
    """Make the places and the configuration of the page."""
    return Interfaces.made(tmp_path_factory.mktemp("doors"), {"spark.master": "local[2]"})


def javas() -> list[Java]:
    """Return the machine's Java and the one of the extra, the same twice if there is one only."""
    return [find_java(os.environ), find_java({})]


def test_both_javas_are_what_spark_runs_on() -> None:
    assert {java.version for java in javas()} <= set(SUPPORTED)
    assert find_java({}).version == 21


def test_spark_sql_exports_and_shows_errors(interfaces: Interfaces) -> None:
    assert_as_the_page_says(interfaces, javas()[:1])


@pytest.mark.soak
def test_spark_sql_exports_on_one_java_and_finds_it_done_on_the_other(
    interfaces: Interfaces,
) -> None:
    assert_as_the_page_says(interfaces, javas())


def assert_as_the_page_says(interfaces: Interfaces, on: list[Java]) -> None:
    """Run the statements of the page on one Java after the other, and read what each prints."""
    (statements,) = blocks("spark-sql.md", "sql")
    (interfaces.root / "statements.sql").write_text(interfaces.written(statements))
    command = shlex.split(blocks("spark-sql.md", "sh")[-1])

    for java, expected in zip(on, blocks("spark-sql.md", "text"), strict=False):
        ended = interfaces.run(command, java.home)

        assert reads_as(expected).fullmatch(ended.out.strip()), (java, ended)
        refused = blocks("spark-sql.md", "error")[0].strip()
        assert refused in ended.err.splitlines(), ended.err
        assert ended.code == 1
    assert interfaces.numbers("analytics.events", "n") == EVENTS


def test_a_program_exports_with_packages_that_spark_fetches(tmp_path: Path) -> None:
    """The other interfaces have these jars without fetching them."""
    local_repository(tmp_path / "maven")
    (page,) = blocks("spark-sql.md", "properties")
    (packages,) = (line.split()[1] for line in page.splitlines() if "spark.jars.packages" in line)
    fetching = {
        "spark.jars": settings()["spark.jars"],
        "spark.jars.ivy": str(tmp_path / "ivy"),
        "spark.jars.packages": packages,
        "spark.master": "local[2]",
    }
    interfaces = Interfaces.made(tmp_path, fetching)
    (program,) = blocks("pyspark.md", "python")

    ended = interfaces.run([sys.executable, "-c", program])

    assert reads_as(blocks("pyspark.md", "text")[0]).fullmatch(ended.out.strip()), ended
    assert ended.code == 0
    assert interfaces.numbers("analytics.visits", "n") == EVENTS
    assert len([*(tmp_path / "ivy" / "jars").iterdir()]) == len(packages.split(","))


def test_the_page_names_the_iceberg_that_is_tested() -> None:
    (settings,) = blocks("spark-sql.md", "properties")

    assert f"iceberg-spark-runtime-4.1_2.13:{VERSION}," in settings
