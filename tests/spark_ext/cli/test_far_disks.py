"""An embedded ClickHouse with parts on disks whose files no task can open, as encrypted ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tests.support.far_disks import far_source
from tests.wrong.places import Places

COMMANDS = (("check",), ("export", "--all", "--dry-run"), ("export", "--all"))


@pytest.mark.parametrize("policy", ["secret", "objects"])
def test_check_and_the_dry_run_promise_what_the_run_does(
    places: Places, tmp_path: Path, policy: str
) -> None:
    """Harm prevented: a night is planned on a promise that the run does not keep."""
    at = ("--to", f"lake.n.{policy}", "--source", far_source(tmp_path, policy))

    for command, *more in COMMANDS:
        code, out, err = places.run(command, "db.t", *more, *at)

        assert code == 0, (command, out, err)
        assert "refused" not in out + err
        if command == "check" or "--dry-run" in more:
            kept = "of old parts and copies are kept while the export runs"
            assert f"source disk {tmp_path / 'clickhouse'}/: up to" in out + err
            assert kept in out + err


def test_check_and_the_dry_run_refuse_what_the_run_refuses(places: Places, tmp_path: Path) -> None:
    """Harm prevented: a night is planned on a promise that the run does not keep."""
    at = ("--to", "lake.n.nowhere", "--source", far_source(tmp_path, "default"))

    for command, *more in COMMANDS:
        code, out, err = places.run(command, "db.t", *more, *at)

        assert code == 3, (command, out, err)
        for one in ("1", "2"):
            part = f"Cannot export partition {one} of db.t: its part {one}_{one}_{one}_0 is on"
            assert (
                f"{part} the disk 'default' of type ObjectStorage, and ClickHouse cannot copy it"
                in out + err
            ), command


def test_the_dry_run_refuses_a_partition_with_an_unfinished_mutation(places: Places) -> None:
    """As the run does: a clone would drop what the mutation still has to do."""
    with EmbeddedConnection(places.clickhouse) as connection:
        connection.command(
            "CREATE OR REPLACE TABLE db.mutated (p UInt8, id Int64) ENGINE = MergeTree"
            " PARTITION BY p ORDER BY id"
        )
        connection.command("INSERT INTO db.mutated VALUES (1, 1)")
        connection.command("SYSTEM STOP MERGES db.mutated")
        later = "SETTINGS mutations_sync = 0, alter_sync = 0"
        connection.command(f"ALTER TABLE db.mutated DELETE WHERE throwIf(id = 1) {later}")

    code, out, err = places.run(
        "export", "db.mutated", "--all", "--to", "lake.n.mutated", "--dry-run"
    )

    assert code == 3, (out, err)
    assert "refused" in out
    assert "mutation" in out
