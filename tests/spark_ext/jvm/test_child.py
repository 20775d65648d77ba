"""A child process serves calls where no Python is the driver; its errors are errors of SQL, too."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_ext.set_up import register
from tests.support.local_spark import SPARK_MARKS
from tests.support.spark_application import (
    ICEBERG,
    MERGEBERG,
    SparkApplication,
    lake_settings,
)

pytestmark = SPARK_MARKS

PYTHON = "spark.mergeberg.python"


@pytest.fixture(scope="module")
def spark(
    spark_application: SparkApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    lake = lake_settings(tmp_path_factory.mktemp("child"))
    with spark_application.session(lake, (MERGEBERG, ICEBERG)) as session:
        jvm: Any = session._jvm
        jvm.mergeberg.spark.PyBridge.register(None)
        yield session


@pytest.fixture
def python(spark: SparkSession) -> Iterator[Any]:
    """Yield what names the child's interpreter; undone afterwards."""
    context: Any = spark.sparkContext._jsc.sc()
    before = context.conf().get(PYTHON)
    yield lambda name: context.conf().set(PYTHON, str(name))
    context.conf().set(PYTHON, before)


def refused(spark: SparkSession) -> AnalysisException:
    with pytest.raises(AnalysisException) as caught:
        spark.sql("CALL lake.system.parts('nope.db.t')")
    return caught.value


def test_what_the_child_refuses_is_one_line_with_its_state(spark: SparkSession) -> None:
    error = refused(spark)

    assert str(error).startswith("Cannot find the source 'nope'")
    assert len(str(error).splitlines()) == 1
    assert error.getSqlState() == "42P01"


def test_a_process_with_too_many_open_files_gets_results_and_a_warning(
    spark: SparkSession, python: Any
) -> None:
    """Harm prevented: Py4J's server ends there, and Java waits for its response for ever."""
    gateway: Any = spark.sparkContext._gateway
    python("/only/a/child/needs/it")
    try:
        # As if Spark had not been called back before.
        gateway._callback_server = None
        with contextlib.ExitStack() as files:
            for _ in range(1100):
                files.enter_context(Path(os.devnull).open())
            with pytest.warns(RuntimeWarning, match="This process has more than 1024 open files"):
                register(spark)
            by_child = refused(spark)
        register(spark)
        by_driver = refused(spark)
    finally:
        gateway.jvm.mergeberg.spark.PyBridge.register(None)

    assert "Cannot start Python" in str(by_child)
    assert str(by_driver).startswith("Cannot find the source 'nope'")


def test_an_interpreter_that_is_not_there_is_named(spark: SparkSession, python: Any) -> None:
    python("/nowhere/python")

    error = refused(spark)

    assert "Cannot start Python" in str(error)
    assert "/nowhere/python" in str(error)
    assert f"Set {PYTHON} to the Python in which mergeberg is installed." in str(error)


def test_an_interpreter_without_mergeberg_is_named_with_what_it_says(
    spark: SparkSession, python: Any, tmp_path: Path
) -> None:
    """`python3` of a server's PATH is often another than the one that has the packages."""
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    python(bare)

    error = refused(spark)

    assert "No module named" in str(error)
    assert f"Set {PYTHON}" in str(error)
    assert error.getSqlState() == "58000"


class Running:
    """A statement on a thread of the JVM, as a server's are."""

    def __init__(self, spark: SparkSession) -> None:
        """Run in a session."""
        self._spark = spark
        self.state: str | None = None

    def run(self) -> None:
        """Run it, and keep how it ended."""
        self.state = refused(self._spark).getSqlState()

    class Java:
        """What Py4J asks of an object that Java calls."""

        implements = ["java.lang.Runnable"]  # noqa: RUF012  Py4J wants a list


def cancelled(spark: SparkSession, alive: Path) -> str | None:
    """Cancel a statement once its child wrote so to a pipe; return the state that it ends with.

    Who had the pipe open has ended by then, without another word.
    """
    statement = Running(spark)
    jvm: Any = spark._jvm
    register(spark)
    jvm.mergeberg.spark.PyBridge.register(None)
    thread = jvm.java.lang.Thread(statement)
    thread.start()
    with alive.open() as pipe:
        assert pipe.readline() == "begun\n"
        thread.interrupt()
        assert pipe.read() == ""
    thread.join()
    return statement.state


def test_the_child_of_a_cancelled_statement_ends(
    spark: SparkSession, python: Any, tmp_path: Path
) -> None:
    """It would go on exporting what nobody wants any more."""
    os.mkfifo(tmp_path / "alive")
    endless = tmp_path / "endless"
    endless.write_text(f"#!/bin/sh\nexec 3>{tmp_path}/alive\necho begun >&3\nexec sleep 600\n")
    endless.chmod(0o755)
    python(endless)

    assert cancelled(spark, tmp_path / "alive") == "57014"


WORKING = """
import threading
import spark_ext.jvm.child

def work(batches):
    yield from batches
    with open({fifo!r}, "w") as alive:
        print("begun", file=alive, flush=True)
        threading.Event().wait(40)
        alive.write("over")

def respond(request, session):
    context = session.sparkContext
    def job():
        context.setJobGroup("ours", "as an export's", interruptOnCancel=True)
        session.range(0, 1, 1, 1).mapInArrow(work, "id long").collect()
    threading.Thread(target=job, daemon=True).start()
    try:
        threading.Event().wait()
    except BaseException:
        context.cancelJobGroup("ours")
        raise

spark_ext.jvm.child.respond = respond
spark_ext.jvm.child.main()
"""


def test_the_spark_job_of_a_cancelled_statement_ends_with_it(
    spark: SparkSession, python: Any, tmp_path: Path
) -> None:
    """Harm prevented: a cancelled export of hours keeps the cluster; its child cannot say stop."""
    fifo, working, child = tmp_path / "alive", tmp_path / "working.py", tmp_path / "child"
    os.mkfifo(fifo)
    working.write_text(WORKING.format(fifo=str(fifo)))
    child.write_text(f"#!/bin/sh\nexec {sys.executable} {working}\n")
    child.chmod(0o755)
    python(child)

    assert cancelled(spark, fifo) == "57014"


def test_a_child_ends_with_its_parent() -> None:
    """An orphan would go on exporting, with nobody to hear of it."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import spark_ext.jvm.child as c; c._end_with_parent()"],
        stdin=subprocess.PIPE,
    )
    assert child.stdin is not None
    child.stdin.close()

    assert child.wait(timeout=60) == -signal.SIGTERM


INTERRUPTED = """
import threading
import spark_ext.jvm.child

spark_ext.jvm.child._be_interrupted_once()
try:
    print("working", flush=True)
    threading.Event().wait()
except KeyboardInterrupt:
    print("tidying", flush=True)
    input()
    print("tidied", flush=True)
"""


def test_a_child_that_gets_two_signals_to_end_ends_in_order() -> None:
    """Harm prevented: the second word interrupts the cancelling of Spark's job, which goes on."""
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    for state in ("working", "tidying"):
        assert child.stdout.readline() == f"{state}\n"
        child.send_signal(signal.SIGTERM)
    rest, _ = child.communicate("go on\n", timeout=60)

    assert (rest, child.returncode) == ("tidied\n", 0)
