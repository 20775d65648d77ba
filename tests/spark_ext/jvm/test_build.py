"""The jar: what it is made of, and that anybody who makes it gets the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ext.jvm.build import compile_sources, find_compiler, inputs_digest, is_current, write_jar
from spark_ext.jvm.jar import JAR, MANIFEST, RESOURCE, made_of, render_resource
from spark_ext.procedures.declarations import Column, Procedure
from spark_ext.sql.dispatch import PROCEDURES, TABLES
from tableformat.errors import NotFoundError, UsageError
from tests.repository.source_files import ROOT
from tests.support.declared_for_tests import CRASH, ECHO, REFUSE, STATE

SOURCES = sorted((ROOT / "spark_ext/jvm/src").rglob("*.java"))


def test_the_jar_is_made_of_what_is_here_now() -> None:
    """Java would know other procedures than Python, and would say so only when one is called."""
    assert is_current(), "make it anew: python -m spark_ext.jvm.build"


def test_every_build_has_the_same_bytes(tmp_path: Path) -> None:
    """So a jar can be compared with its sources by anybody."""
    compile_sources(SOURCES, tmp_path / "classes")
    classes = {
        path.relative_to(tmp_path / "classes").as_posix(): path.read_bytes()
        for path in (tmp_path / "classes").rglob("*.class")
    }
    resource = render_resource(PROCEDURES.values(), TABLES.values()).encode()
    write_jar(tmp_path / JAR.name, classes | {RESOURCE: resource}, inputs_digest())

    assert (tmp_path / JAR.name).read_bytes() == JAR.read_bytes()


def test_a_mistake_in_the_sources_is_reported_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "Wrong.java").write_text("class Wrong { int a = true; }")

    with pytest.raises(UsageError, match=r"Wrong\.java .*\(at line 1\)"):
        compile_sources([tmp_path / "Wrong.java"], tmp_path / "classes")


def test_another_compiler_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ecj.jar").write_bytes(b"another")

    with pytest.raises(NotFoundError, match="its SHA-256 is"):
        find_compiler({"MERGEBERG_ECJ": str(tmp_path / "ecj.jar")})


@given(st.permutations([ECHO, REFUSE, CRASH, *PROCEDURES.values()]))
def test_the_resource_does_not_depend_on_the_order(procedures: list[Procedure]) -> None:
    text = render_resource(procedures, [STATE])

    assert text == render_resource([ECHO, REFUSE, CRASH, *PROCEDURES.values()], [STATE])
    assert {one["name"] for one in json.loads(text)["procedures"]} == {p.name for p in procedures}
    assert text.isascii()


@given(name=st.text(), comment=st.text(), default=st.none() | st.text())
def test_every_word_of_a_declaration_is_in_the_resource(
    name: str, comment: str, default: str | None
) -> None:
    parameter = ECHO.parameters[0].__class__(name, "INT", comment, default)
    declared = Procedure(name, comment, (parameter,), (Column(name, "INT", comment),), ECHO.run)

    (read,) = json.loads(render_resource([declared], []))["procedures"]

    assert (read["name"], read["description"]) == (name, comment)
    assert read["parameters"][0].get("default") == default
    assert read["columns"] == [{"name": name, "type": "INT", "comment": comment}]


@given(st.dictionaries(st.from_regex(r"[a-z]{1,9}\.class", fullmatch=True), st.binary()))
def test_a_jar_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, bytes]
) -> None:
    path = tmp_path_factory.mktemp("jar") / "a.jar"
    write_jar(path, entries, "ab" * 32)

    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert {name: archive.read(name) for name in entries} == entries
    assert names == [MANIFEST, *sorted(entries)]
    assert made_of(path) == "ab" * 32
    assert [entry.name for entry in path.parent.iterdir()] == ["a.jar"]


def test_what_is_no_jar_of_ours_was_made_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")

    assert made_of(tmp_path / "empty") is None
    assert made_of(tmp_path / "absent") is None


def hatch(directory: Path, target: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build as pip does; nothing of this environment but hatchling is on the way."""
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", "dist"],
        cwd=directory,
        env=os.environ | environment,
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_wheel_from_the_sdist_has_the_jar_of_the_sdist(tmp_path: Path) -> None:
    """Who installs from source needs neither Java nor a compiler."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (sdist,) = tmp_path.glob("*.tar.gz")
    subprocess.run(["tar", "--extract", "--file", sdist], cwd=tmp_path, check=True)
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    shutil.rmtree(unpacked / "spark_ext/jvm/src")

    built = hatch(unpacked, "wheel", JAVA_HOME="/nowhere", PATH="/nowhere")

    assert built.returncode == 0, built.stderr
    (wheel,) = (unpacked / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("spark_ext/jvm/mergeberg-spark.jar") == JAR.read_bytes()

    (unpacked / "spark_ext/jvm/mergeberg-spark.jar").unlink()
    assert "this sdist has no spark_ext/jvm/mergeberg-spark.jar" in hatch(unpacked, "wheel").stderr
    assert hatch(unpacked, "wheel", MERGEBERG_NO_JAR="1").returncode == 0


def test_a_checkout_in_which_the_jar_cannot_be_made_builds_nothing(tmp_path: Path) -> None:
    """A wheel without it would fail at the first statement, at the user's."""
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for package in ("tableformat", "catalog"):
        (tmp_path / package).mkdir()
    shutil.copytree(ROOT / "spark_ext", tmp_path / "spark_ext")
    (tmp_path / "spark_ext/jvm/mergeberg-spark.jar").unlink()

    built = hatch(tmp_path, "wheel")

    assert built.returncode != 0
    assert "Cannot build mergeberg: the jar for Spark was not made." in built.stderr
    assert "MERGEBERG_NO_JAR=1" in built.stderr
