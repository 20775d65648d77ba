"""The wheel in an empty environment: spark-sql, and a notebook's session that is there already."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pyspark
import pytest

from spark_ext.engine.java import find_java
from tests.repository.source_files import ROOT
from tests.support.quick_java import JAVA_VARIABLES

pytestmark = pytest.mark.spark

MAKE_EVENTS = """
import sys, chdb.session
session = chdb.session.Session(sys.argv[1])
session.query("CREATE DATABASE db")
session.query("CREATE TABLE db.events ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY n AS "
              "SELECT toDate('2024-01-01') + number % 60 AS d, number AS n FROM numbers(1000)")
session.close()
"""

STATEMENTS = """
CALL lake.system.partitions(table => 'ch.db.events');
EXPLAIN CALL lake.system.partitions(table => 'nope.db.events');
SELECT count(*) AS procedures FROM VALUES (1), (2);
ALTER TABLE lake.db.t FREEZE;
"""

ENABLED = """
spark = builder.getOrCreate()
spark_ext.enable(spark)
spark_ext.enable(spark)
"""

CONFIGURED = """
spark = spark_ext.configure(builder).getOrCreate()
"""

NOTEBOOK = """
import sys
from pyspark.sql import SparkSession
import spark_ext
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
{started}
spark.conf.set("spark.mergeberg.source.ch", "chdb:" + sys.argv[1])
answer = spark.sql("CALL lake.system.partitions('ch.db.events')")
print("ROWS", [tuple(row) for row in answer.collect()])
print("FROM", spark_ext.__file__)
try:
    spark.sql("ALTER TABLE lake.db.t FREEZE")
except Exception as refused:
    print("REFUSED", type(refused).__name__, refused)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with nothing of ours but the wheel; it uses other packages of ours."""
    directory = tmp_path_factory.mktemp("environment")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", directory], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    venv.create(directory / "venv", with_pip=False)
    packages = directory / "venv" / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    (packages / "lent.pth").write_text(f"{Path(pyspark.__file__).parent.parent}\n")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", packages, wheel], check=True, capture_output=True)
    return directory / "venv"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a table of two partitions in an embedded ClickHouse."""
    directory = tmp_path_factory.mktemp("clickhouse") / "data"
    subprocess.run([sys.executable, "-c", MAKE_EVENTS, directory], check=True)
    return directory


def surroundings(environment: Path) -> dict[str, str]:
    """Return the variables of a user who activated the environment."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        **JAVA_VARIABLES,
        "PATH": f"{environment / 'bin'}:/usr/bin:/bin",
        "JAVA_HOME": str(find_java(os.environ).home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
    }


@pytest.mark.representative
def test_spark_sql_runs_a_call_and_shows_a_refusal_in_one_line(
    environment: Path, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "statements.sql").write_text(STATEMENTS)
    printed = subprocess.run(
        [environment / "bin" / "python", "-m", "spark_ext"],
        env=surroundings(environment),
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )

    ended = subprocess.run(
        [
            Path(pyspark.__file__).parent / "bin" / "spark-sql",
            *("--master", "local[1]", "--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.sql.catalogImplementation=in-memory"),
            *("--conf", f"spark.mergeberg.source.ch=chdb:{data}"),
            *printed.stdout.split(),
            *("-f", tmp_path / "statements.sql"),
        ],
        env=surroundings(environment),
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )

    assert str(environment) in printed.stdout
    assert "202401\t202401\t1\tNULL\t527\t" in ended.stdout, ended.stderr
    assert "202402\t202402\t1\tNULL\t473\t" in ended.stdout
    assert "Call lake.system.partitions(nope.db.events, " in ended.stdout
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("Cannot find the lake table lake.db.t: ")
    assert last.endswith("SQLSTATE: 42P01")
    assert ended.returncode == 1


@pytest.mark.parametrize("started", [CONFIGURED, ENABLED], ids=["configured", "enabled"])
def test_a_session_is_configured_or_enabled_while_it_runs(
    environment: Path, data: Path, tmp_path: Path, started: str
) -> None:
    ended = subprocess.run(
        [environment / "bin" / "python", "-c", NOTEBOOK.format(started=started), data],
        env=surroundings(environment),
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )

    assert "ROWS [('202401', '202401', 1, None, 527, " in ended.stdout, ended.stderr
    assert f"FROM {environment}" in ended.stdout
    assert "REFUSED AnalysisException Cannot find the lake table lake.db.t: " in ended.stdout
