"""The examples on the reference pages print what the pages show.

Every example begins with the same lake: two partitions of `lake.analytics.events`, one partition
of `lake.archive.events` and one of `lake.staging.events`, each exported from a table of one source.
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
from pathlib import Path

import pytest
from pyiceberg.manifest import clear_manifest_cache

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from spark_ext.actions import export_ports
from spark_ext.cli.main import invoke
from tableformat.names import LakeName
from tests.support.child_writer import ChildWriter
from tests.support.typed_pages import REFERENCE

_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIES = re.compile(
    r"(?<=snapshot )\d+|(?<=snapshot_id_)\d+|[\d.,]+(?= KiB| bytes)|[\d.,]+ (?:s|min)$",
    re.MULTILINE,
)
"""What differs from run to run: ids of snapshots, sizes and seconds."""
_COLUMNS = """(day Date, user_id UInt64, price Decimal(9, 2), coupon String DEFAULT 'none',
    INDEX by_user user_id TYPE bloom_filter) ENGINE = MergeTree
    PARTITION BY toYYYYMM(day) ORDER BY user_id"""
_ROWS = "number, 10, if(number % 3, 'none', 'free')"
_SOURCE = (
    "CREATE DATABASE db",
    *(f"CREATE TABLE db.{name} {_COLUMNS}" for name in ("events", "archived", "staged")),
    f"INSERT INTO db.events SELECT toDate('2024-01-01') + number % 31, {_ROWS} FROM numbers(310)",
    f"INSERT INTO db.events SELECT toDate('2024-02-01') + number % 29, {_ROWS} FROM numbers(290)",
    f"INSERT INTO db.archived SELECT toDate('2023-12-01') + number % 31, {_ROWS} FROM numbers(62)",
    f"INSERT INTO db.staged SELECT toDate('2024-01-01') + number % 31, {_ROWS} FROM numbers(31)",
)
_EXPORTS = {
    "db.events": "lake.analytics.events",
    "db.archived": "lake.archive.events",
    "db.staged": "lake.staging.events",
}


def examples() -> dict[str, list[tuple[str, str]]]:
    """Return, by page, the commands of its examples and what the page shows of each."""
    found = {}
    for page in sorted(REFERENCE.rglob("*.md")):
        shown = "".join(_CONSOLE.findall(page.read_text(encoding="utf-8")))
        parts = re.split(r"^\$ mergeberg ", shown, flags=re.MULTILINE)
        assert parts[0] == ""
        found[page.relative_to(REFERENCE).as_posix()] = [
            (c, text) for part in parts[1:] for c, _, text in [part.partition("\n")]
        ]
    return {name: commands for name, commands in found.items() if commands}


def run(command: str) -> tuple[int, str, str]:
    """Run a command in the current directory; return the exit code and both outputs."""
    out, err = io.StringIO(), io.StringIO()
    code = invoke(shlex.split(command), out, err)
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def lake(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a directory with the source and the lake, without a Spark."""
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "begin", lambda _: None)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "done", lambda _: True)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "result", lambda _: None)
    monkeypatch.setattr(export_ports, "SparkWriter", lambda *_: ChildWriter(lambda *_: None))
    monkeypatch.setenv("PYICEBERG_HOME", str(saved))
    data, kept = saved / "data", saved / "kept"
    if not kept.exists():
        data.mkdir()
        monkeypatch.chdir(data)
        with EmbeddedConnection(data / "clickhouse", create=True) as connection:
            for sql in _SOURCE:
                connection.command(sql)
        for source, destination in _EXPORTS.items():
            code, _, err = run(f"export {source} --all --to {destination} --target-file-size 1KiB")
            assert code == 0, err
        table = open_catalog("lake", warehouse=data / "warehouse").table(
            LakeName.parse("lake.analytics.events")
        )
        assert table is not None
        with table.loaded.transaction() as transaction:
            transaction.set_properties({"mergeberg.disk.cold": f"file://{data}/cold"})
        shutil.copytree(data, kept, symlinks=True)
    else:
        shutil.rmtree(data)
        shutil.copytree(kept, data, symlinks=True)
        monkeypatch.chdir(data)
    # PyIceberg keeps manifests by their paths, and here one path has several.
    clear_manifest_cache()


@pytest.mark.parametrize("page", examples())
def test_an_example_prints_what_its_page_shows(lake: None, page: str) -> None:
    """Notes and progress, which go to standard error, are not on the pages."""
    assert lake is None
    for command, shown in examples()[page]:
        code, out, err = run(command)

        assert code == 0, err
        assert _VARIES.sub("…", out.strip("\n")) == _VARIES.sub("…", shown.strip("\n"))
