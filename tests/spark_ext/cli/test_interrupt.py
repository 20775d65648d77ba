"""Ctrl-C while files are written: the command ends soon, leaves nothing behind, goes on later."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from tableformat.ledger import State
from tests.support.big_export import assert_exported_once, fill, start, until_it_writes

pytestmark = pytest.mark.nightly


@pytest.mark.spark
def test_ctrl_c_ends_an_export_soon_and_the_same_command_exports_all_once(
    tmp_path: Path,
) -> None:
    """Harm prevented: a stopped export that holds its partition, or whose rows come twice later."""
    fill(tmp_path / "clickhouse")
    export = start(tmp_path)
    until_it_writes(export)

    stopped = time.monotonic()
    export.send_signal(signal.SIGINT)
    out, err = export.communicate()
    stopping = time.monotonic() - stopped

    assert (export.returncode, out) == (130, "")
    assert "Interrupted. Finished partitions are in the lake" in err
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
    assert_exported_once(tmp_path / "warehouse")
