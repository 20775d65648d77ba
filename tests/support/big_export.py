"""An export of some seconds in a process of its own, which a test can stop from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from tests.repository.source_files import ROOT

__all__ = ["ROWS", "assert_exported_once", "fill", "start", "until_it_writes"]

ROWS = 3_000_000


def fill(directory: Path) -> None:
    """Make a ClickHouse directory with the table db.big."""
    with EmbeddedConnection(directory, create=True) as connection:
        connection.command("CREATE DATABASE db")
        connection.command(
            "CREATE TABLE db.big (id UInt32, a String, b String) ENGINE = MergeTree ORDER BY id"
        )
        connection.command(
            "INSERT INTO db.big SELECT number, hex(cityHash64(number)), hex(cityHash64(number, 1))"
            f" FROM numbers({ROWS})"
        )


def start(directory: Path, *options: str) -> subprocess.Popen[str]:
    """Begin to export db.big into lake.n.big."""
    # A shell may have started the tests in its background, where Ctrl-C is ignored.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heard}; from spark_ext.cli.main import run; run()"
    export = ["export", "db.big", "--all", "--to", "lake.n.big", "--master", "local[2]", *options]
    return subprocess.Popen(
        [sys.executable, "-c", code, *export],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until_it_writes(export: subprocess.Popen[str]) -> None:
    """Wait until files are being written."""
    assert export.stderr is not None
    assert any("writing" in line for line in export.stderr)


def assert_exported_once(warehouse: Path) -> None:
    """Check that main holds every row once."""
    lake = open_catalog("lake", warehouse=warehouse).catalog
    ids = lake.load_table("n.big").scan(selected_fields=("id",)).to_arrow()["id"]
    assert (len(ids), len(ids.unique())) == (ROWS, ROWS)
