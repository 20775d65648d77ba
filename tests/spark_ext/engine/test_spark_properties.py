"""Spark's own files of settings mean the same to us as to Java."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_ext.engine.session import (
    parse_properties,
    read_defaults,
    render_properties,
    write_properties,
)
from tableformat.errors import UsageError
from tests.support.spark_jar import jvm_with_jar

NAMES = st.text(st.sampled_from("spark.aZ0-_=:#! \\\n\té€"), min_size=1, max_size=8)
VALUES = st.text(max_size=12) | st.text(st.sampled_from("\\ #!=:\n\r\t\fuab"), max_size=12)
FILES = st.text(st.sampled_from("ab=: \t\f\\\n\r#!tnrf"), max_size=40)


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with jvm_with_jar() as machine:
        yield machine


def as_java_reads(jvm: Any, text: str) -> dict[str, str]:
    properties = jvm.java.util.Properties()
    properties.load(jvm.java.io.StringReader(text))
    # Py4J ends an iteration by an error, which PySpark cannot tell of where no session runs.
    names = properties.stringPropertyNames().toArray()
    return {name: properties.getProperty(name) for name in names}


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_what_is_written_is_read_again(settings: dict[str, str]) -> None:
    assert parse_properties(render_properties(settings)) == settings


@pytest.mark.spark
@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_java_reads_what_is_written(jvm: Any, settings: dict[str, str]) -> None:
    """A password with a backslash in it reaches the server as it was typed."""
    assert as_java_reads(jvm, render_properties(settings)) == settings


@pytest.mark.spark
@given(FILES)
@example("spark.a b\\\n   c\n# d\n\n!e\nspark.f:g=h")
@example("a\\u0041 \\u00e9\\\\")
@example("\\\n#x\n=y")
def test_a_file_means_what_it_means_to_java(jvm: Any, text: str) -> None:
    # Of a file that ends with a lone backslash Java makes an empty name, which is no setting.
    ours, theirs = parse_properties(text), as_java_reads(jvm, text)
    assert {n: v for n, v in ours.items() if n} == {n: v for n, v in theirs.items() if n}


def test_settings_of_spark_are_taken_without_blanks_around_them(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.a   b \n# spark.c d\nother.e f\n")

    assert read_defaults(tmp_path) == {"spark.a": "b"}


def test_no_file_is_no_settings(tmp_path: Path) -> None:
    assert read_defaults(tmp_path) == {}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").mkdir()

    with pytest.raises(
        UsageError, match=r"Cannot read Spark's settings .*spark-defaults\.conf: Is"
    ):
        read_defaults(tmp_path)


def test_only_its_owner_can_open_what_is_written(tmp_path: Path) -> None:
    """Settings may be secret."""
    write_properties(tmp_path / "f", {"spark.x.password": "secret"})

    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600
