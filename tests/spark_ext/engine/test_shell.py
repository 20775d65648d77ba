"""What Spark's own shell is started with, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark_ext.engine.jars import ICEBERG, SQLITE, SparkHome
from spark_ext.engine.shell import Shell, ShellOptions
from spark_ext.jvm.jar import JAR
from tableformat.errors import DestinationError, RefusedError, UsageError
from tests.repository.source_files import ROOT

LAKE = "spark.sql.catalog.lake"


class Notes:
    """Nothing is to be fetched in these tests."""

    def note(self, text: str) -> None:
        raise AssertionError(text)


class Spark:
    """A Spark of scripts, with the pinned jars built in."""

    def __init__(self, root: Path) -> None:
        self.home = SparkHome(root / "spark")
        self.conf = root / "conf"
        for directory in ("spark/jars", "spark/bin", "conf", "tmp"):
            (root / directory).mkdir(parents=True)
        self.add_jar("spark-core_2.13-4.1.4.jar")
        self.environ = {
            "PATH": "/usr/bin:/bin",
            "SPARK_CONF_DIR": str(self.conf),
            "HOME": str(root),
            "TMPDIR": str(root / "tmp"),
            "OUT": str(root / "out"),
        }

    def add_jar(self, name: str) -> None:
        (self.home.path / "jars" / name).touch()

    def has_settings(self, text: str) -> None:
        (self.conf / "spark-defaults.conf").write_text(text)

    def is_program(self, name: str, script: str) -> None:
        program = self.home.program(name)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)

    def shell(self, wanted: ShellOptions | None = None) -> Shell:
        return Shell.made(wanted or ShellOptions(), self.home, self.environ)


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spark:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Spark(tmp_path)


def test_without_configuration_lake_and_source_are_those_of_other_commands(
    spark: Spark, tmp_path: Path
) -> None:
    """What a shell exports is found by `mergeberg exports list` in the same directory."""
    shell = spark.shell()

    assert shell.settings["spark.mergeberg.source.ch"] == "chdb:./clickhouse"
    assert shell.settings[f"{LAKE}.uri"] == f"jdbc:sqlite:{tmp_path}/warehouse/lake.db"
    assert shell.settings[f"{LAKE}.warehouse"] == f"file://{tmp_path}/warehouse"
    ledger = shell.settings["spark.mergeberg.ledger"]
    assert ledger == f"sqlite:{tmp_path}/warehouse/mergeberg-ledger.db"
    assert shell.settings["spark.master"] == "local[*]"
    assert shell.jars == (ICEBERG["4.1"], SQLITE)


def test_the_users_own_lake_is_left_as_it_is(spark: Spark) -> None:
    spark.has_settings(f"{LAKE} org.apache.iceberg.spark.SparkCatalog\n{LAKE}.type rest\n")

    shell = spark.shell()

    assert {n: t for n, t in shell.settings.items() if n.startswith(f"{LAKE}.")} == {
        f"{LAKE}.type": "rest"
    }
    assert "spark.mergeberg.ledger" not in shell.settings
    assert (shell.warehouse, shell.jars) == (None, (ICEBERG["4.1"],))


def test_a_lake_that_only_pyiceberg_has_is_not_made_twice(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: an export lands in one catalog, and SELECT reads another."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "https://catalog.example")

    assert spark.shell().lacks_lake


def test_the_command_wins_over_the_file_and_both_over_defaults(spark: Spark) -> None:
    spark.has_settings(
        "spark.master local[3]\nspark.ui.enabled true\nspark.mergeberg.source.old chdb:/old\n"
        "spark.mergeberg.warehouse /old\n"
    )
    options = ShellOptions({"new": "chdb:/new"}, {"spark.master": "x", "spark.a": "b"}, "local[1]")

    settings = spark.shell(options).settings

    assert settings["spark.master"] == "local[1]"
    assert (settings["spark.a"], settings["spark.ui.enabled"]) == ("b", "true")
    sources = {n for n in settings if n.startswith("spark.mergeberg.source.")}
    assert sources == {"spark.mergeberg.source.old", "spark.mergeberg.source.new"}
    assert settings[f"{LAKE}.warehouse"] == "file:///old"


def test_jars_and_extensions_of_the_user_stay_with_ours(spark: Spark) -> None:
    spark.has_settings("spark.jars /my.jar\nspark.sql.extensions my.Extensions\n")
    spark.add_jar("iceberg-spark-runtime-4.1_2.13-1.12.1.jar")
    spark.add_jar("sqlite-jdbc-3.0.jar")

    settings = spark.shell().with_jars(Notes()).settings

    assert settings["spark.jars"] == f"/my.jar,{JAR}"
    assert settings["spark.sql.extensions"].startswith("my.Extensions,mergeberg.spark.Extensions,")


def test_an_iceberg_that_the_user_names_is_enough(spark: Spark) -> None:
    conf = {"spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"}

    assert spark.shell(ShellOptions(conf=conf)).jars == (SQLITE,)


def test_hive_is_kept_only_where_it_is_configured(spark: Spark) -> None:
    """Else a shell leaves a metastore in the working directory."""
    assert spark.shell().settings["spark.sql.catalogImplementation"] == "in-memory"
    (spark.conf / "hive-site.xml").touch()
    assert "spark.sql.catalogImplementation" not in spark.shell().settings


@pytest.mark.parametrize(
    ("conf", "error", "message"),
    [
        ({"spark.mergeberg.ledgr": "x"}, UsageError, "Did you mean ledger"),
        ({"spark.mergeberg.source.a": "https://u:p@h"}, RefusedError, "has a password in it"),
    ],
)
def test_what_statements_would_refuse_is_refused_before_the_start(
    spark: Spark, conf: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        spark.shell(ShellOptions(conf=conf))


def test_a_directory_that_cannot_be_made_is_named(spark: Spark, tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("a file")

    with pytest.raises(
        DestinationError, match=r"Cannot create the directory .*/warehouse: .*exists"
    ):
        spark.shell().run([])


REPORTS = """
stat -c %a "$2" > "$OUT"; cat "$2" >> "$OUT"; echo "$2" >> "$OUT"; shift 2
for one in "$@"; do echo "<$one>" >> "$OUT"; done
"""


def test_arguments_are_passed_as_they_are_and_settings_in_a_file_that_goes(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of processes shows no setting, and nothing is left behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    spark.is_program("spark-sql", f"{REPORTS}exit 7")

    code = spark.shell(ShellOptions(conf={"spark.x.password": "a b\\"})).run(
        ["-e", "SELECT  'x'", ""]
    )

    mode, *settings = (tmp_path / "out").read_text().splitlines()
    assert (code, mode) == (7, "600")
    assert "spark.x.password=a\\ b\\\\" in settings
    assert settings[-3:] == ["<-e>", "<SELECT  'x'>", "<>"]
    assert Path(settings[-4]).parent.parent == tmp_path / "tmp"
    assert [*(tmp_path / "tmp").iterdir()] == []


def test_pyspark_is_another_program(spark: Spark) -> None:
    spark.is_program("pyspark", "exit 3")

    assert spark.shell().run([], python=True) == 3


@pytest.mark.parametrize(
    ("more", "ours"),
    [({}, 1), ({"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=x"}, 0)],
)
def test_logs_are_the_users_where_the_user_says_something_of_them(
    spark: Spark, tmp_path: Path, more: dict[str, str], ours: int
) -> None:
    spark.is_program("spark-sql", REPORTS)

    spark.shell(ShellOptions(conf=more)).run([])

    assert (tmp_path / "out").read_text().count("log4j2.properties") == ours


PROGRAM = """
import os, sys
from pathlib import Path
from spark_ext.engine.jars import SparkHome
from spark_ext.engine.shell import Shell, ShellOptions
sys.exit(Shell.made(ShellOptions(), SparkHome(Path(sys.argv[1])), os.environ).run([]))
"""


@pytest.mark.parametrize(
    ("sent", "script", "code"),
    [
        (signal.SIGTERM, "trap 'exit 9' TERM; echo here; while :; do read x; done", 9),
        (signal.SIGTERM, "echo here; exec sleep 60", 128 + signal.SIGTERM),
        (signal.SIGINT, "echo here; read x; exit 5", 5),
    ],
)
def test_a_shell_gets_the_signal_to_end_and_handles_ctrl_c(
    spark: Spark, tmp_path: Path, sent: signal.Signals, script: str, code: int
) -> None:
    """The terminal tells Ctrl-C to every process; the one that waits must not end by it."""
    spark.is_program("spark-sql", script)
    environ = {**spark.environ, "PYTHONPATH": str(ROOT), "PYICEBERG_HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, spark.home.path],
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(sent)
        process.communicate("\n", timeout=60)

    assert process.returncode == code
    assert [*(tmp_path / "tmp").iterdir()] == []
