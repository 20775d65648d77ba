"""Ctrl-C while files are written: the command ends soon, leaves nothing behind, goes on later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg import open_catalog
from catalog.ledgers.embedded import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from tableformat.ledger import State
from tests.repository.source_files import ROOT

ROWS = 3_000_000


def fill(directory: Path) -> None:
    with EmbeddedConnection(directory, create=True) as connection:
        connection.command("CREATE DATABASE db")
        connection.command(
            "CREATE TABLE db.big (id UInt32, a String, b String) ENGINE = MergeTree ORDER BY id"
        )
        connection.command(
            "INSERT INTO db.big SELECT number, hex(cityHash64(number)), hex(cityHash64(number, 1))"
            f" FROM numbers({ROWS})"
        )


def start(directory: Path) -> subprocess.Popen[str]:
    # A shell may have started the tests in its background, where Ctrl-C is ignored.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heard}; from spark_ext.cli.main import run; run()"
    export = ["export", "db.big", "--all", "--to", "lake.n.big", "--master", "local[2]"]
    return subprocess.Popen(
        [sys.executable, "-c", code, *export],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.spark
@pytest.mark.slow
def test_ctrl_c_ends_an_export_soon_and_the_same_command_exports_everything_once(
    tmp_path: Path,
) -> None:
    """Harm prevented: a stopped export that holds its partition, or whose rows come twice later."""
    fill(tmp_path / "clickhouse")
    export = start(tmp_path)
    assert export.stderr is not None
    assert any("writing" in line for line in export.stderr)

    stopped = time.monotonic()
    export.send_signal(signal.SIGINT)
    out, err = export.communicate()
    stopping = time.monotonic() - stopped

    assert (export.returncode, out) == (130, "")
    assert "Cannot finish: it was interrupted." in err
    assert "Next: mergeberg export db.big --all" in err
    ledger = SqliteLedger(tmp_path / "warehouse" / LEDGER_FILE)
    (row,) = ledger.rows()
    assert (row.state, row.last_error) == (State.RUNNING, "interrupted")
    assert ledger.holder(row.key.hash) is None
    with EmbeddedConnection(tmp_path / "clickhouse") as connection:
        staging = "SELECT name FROM system.tables WHERE database = 'mergeberg_staging'"
        assert connection.rows(staging) == ()

    began = time.monotonic()
    again = start(tmp_path)
    out, err = again.communicate()
    whole = time.monotonic() - began

    assert again.returncode == 0, err
    assert "exported" in out
    assert stopping < whole / 2, "nobody waits for the files that were being written"
    lake = open_catalog("lake", warehouse=tmp_path / "warehouse").catalog
    ids = lake.load_table("n.big").scan(selected_fields=("id",)).to_arrow()["id"]
    assert (len(ids), len(ids.unique())) == (ROWS, ROWS)
