"""The other jars that Spark needs are the pinned ones, or none."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from spark_ext.engine import jars as pinned_jars
from spark_ext.engine.jars import ICEBERG, SQLITE, Jar, SparkHome, fetch_jars, find_jar
from tableformat.errors import SourceError, UnsupportedError, UsageError
from tests.repository.source_files import ROOT

CONTENT = b"classes"
JAR = Jar("org.example", "thing_2.13", "1.0", hashlib.sha256(CONTENT).hexdigest())


def spark(root: Path, program: str) -> SparkHome:
    """Make a Spark whose spark-sql is a script; `$1 $2` are --properties-file and the file."""
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "spark-sql").write_text(f"#!/bin/sh\n{program}\n")
    (root / "bin" / "spark-sql").chmod(0o700)
    return SparkHome(root)


FETCHES = """
ivy=$(sed -n 's/^spark.jars.ivy=//p' "$2"); mkdir -p "$ivy/jars"
grep -q '^spark.jars.packages=org.example:thing_2.13:1.0$' "$2" || exit 3
grep -q '^spark.jars.repositories=https://repository.example$' "$2" || exit 4
printf {} > "$ivy/jars/org.example_thing_2.13-1.0.jar"
"""
CONF = {"spark.jars.repositories": "https://repository.example"}


def test_a_jar_is_kept_when_it_is_the_pinned_one(tmp_path: Path) -> None:
    """The second start needs no network."""
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    home = spark(tmp_path / "spark", FETCHES.format("classes"))

    (file,) = fetch_jars([JAR], home, environ, CONF)

    assert file == tmp_path / "cache" / "mergeberg" / "jars" / JAR.file
    assert find_jar(JAR, [tmp_path, file.parent]) == file
    assert [path.name for path in file.parent.iterdir()] == [JAR.file]


def test_another_content_is_not_used(tmp_path: Path) -> None:
    """Harm prevented: somebody else's code runs with the user's rights."""
    (tmp_path / JAR.file).write_bytes(b"others")
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    home = spark(tmp_path / "spark", FETCHES.format("others"))

    assert find_jar(JAR, [tmp_path]) is None
    with pytest.raises(
        SourceError, match=f"the downloaded file does not have the SHA-256 {JAR.sha256}"
    ):
        fetch_jars([JAR], home, environ, CONF)
    assert not (tmp_path / "cache").exists()


def test_without_network_the_message_says_what_to_do(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    program = (
        "printf ':::: ERRORS\\n\\tServer access error at url https://x (timed out)\\n'; exit 1"
    )
    message = (
        r"Cannot fetch org\.example:thing_2\.13:1\.0, which Spark needs once: Server access error "
        r"at url https://x \(timed out\)\. Connect to Maven Central; or name a repository .*; or "
        r"copy the jar to .*/\.cache/mergeberg/jars/org\.example_thing_2\.13-1\.0\.jar\."
    )

    with pytest.raises(SourceError, match=message):
        fetch_jars([JAR], spark(tmp_path / "spark", program), environ, {})


def test_a_spark_that_never_ends_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a build hangs behind a proxy that says nothing."""
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    monkeypatch.setattr(pinned_jars, "_SECONDS", 0.1)

    with pytest.raises(SourceError, match=r"spark-sql has not ended within 0\.1 seconds\. Connect"):
        fetch_jars([JAR], spark(tmp_path / "spark", "exec sleep 600"), environ, {})


def test_without_a_place_to_keep_them_nothing_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither XDG_CACHE_HOME nor HOME names a directory"):
        fetch_jars([JAR], spark(tmp_path, "exit 9"), {}, {})


@pytest.mark.parametrize(("version", "iceberg"), [("4.1.4", "1.12.0"), ("4.0.5", "1.11.0")])
def test_iceberg_fits_the_spark(tmp_path: Path, version: str, iceberg: str) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / f"spark-core_2.13-{version}.jar").touch()

    assert SparkHome(tmp_path).iceberg().version == iceberg


@pytest.mark.parametrize("version", ["3.5.6", "4.2.0", None])
def test_a_spark_without_a_fitting_iceberg_is_named(tmp_path: Path, version: str | None) -> None:
    """SPARK_HOME may be that of another Spark, and forgotten."""
    (tmp_path / "jars").mkdir()
    if version:
        (tmp_path / "jars" / f"spark-core_2.13-{version}.jar").touch()

    with pytest.raises(UnsupportedError, match=rf"is {version or 'of an unknown'}.*SPARK_HOME"):
        SparkHome(tmp_path).iceberg()


def test_the_pins_are_those_of_the_pages_and_the_java_side() -> None:
    page = (ROOT / "docs" / "how-to" / "spark-sql.md").read_text()
    java = (ROOT / "spark_ext/jvm/src/mergeberg/spark/Versions.java").read_text()

    assert f"{ICEBERG['4.1'].coordinates},{SQLITE.coordinates}" in page
    for of, jar in ICEBERG.items():
        assert f'{{"{of}.", "{jar.version[: jar.version.rindex(".") + 1]}"}}' in java
