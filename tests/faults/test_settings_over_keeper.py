"""What is already there, the TTL, force and files of others mean the same over a ledger in Keeper.

Into an Iceberg table, and into a tree of Hive directories; tests/faults/test_state_table.py has
every state of an export over a ledger on this machine.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from catalog.ledgers.keeper.ledger import KeeperLedger
from tableformat.export.job import ExportRequest
from tableformat.export.request import ExportOptions
from tableformat.history import Counter
from tableformat.ledger import Row
from tests.enumeration.scenarios import World
from tests.enumeration.trees import TreeWorld
from tests.faults.test_operator_actions import FOREIGN, append
from tests.services.zookeeper import ZooKeeper
from tests.support.keeper_ledgers import new_chroot
from tests.support.lake import make_table
from tests.support.scenarios import ALL, parts_of, rows_by_key

YEAR = 365 * 86_400_000
INTO = {"table": World, "tree": TreeWorld}


class Kept:
    """A destination whose ledger is in Keeper; each command is a new process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_tree = isinstance(world, TreeWorld)
        self.request: ExportRequest = ALL
        if isinstance(world, TreeWorld):
            self.request = replace(ALL, to=world.to)

    def statuses(self, options: ExportOptions) -> dict[str, str]:
        """Export with these options; return the status of each partition."""
        ran = self.world.run(replace(self.request, options=options))
        assert ran.error is None
        return {o.partition_id: o.status.value for o in ran.outcomes}

    def ledger(self) -> KeeperLedger:
        opened = self.world.place.ledger(self.world.clock)
        assert isinstance(opened, KeeperLedger)
        return opened

    def rows(self) -> dict[str, Row]:
        ledger = self.ledger()
        found = {row.key.partition_id: row for row in ledger.rows()}
        ledger.close()
        return found

    def duplicates(self) -> int:
        ledger = self.ledger()
        counted = ledger.counters()[Counter.DUPLICATED]
        ledger.close()
        return counted

    def assert_once(self, rows: int) -> None:
        """Check how many rows there are, where readers look."""
        if isinstance(self.world, TreeWorld):
            commits = self.world.tree.commit_files()
            assert sum(file.rows for one in commits for file in one.files) == rows
        else:
            assert rows_by_key(self.world.directory).total() == rows


@pytest.fixture(params=[*INTO.values()], ids=[*INTO])
def kept(request: pytest.FixtureRequest, zookeeper_server: ZooKeeper, tmp_path: Path) -> Kept:
    (tmp_path / "ledger").write_text(f"keeper://{zookeeper_server.address}{new_chroot()}")
    return Kept(request.param(tmp_path))


def every(status: str) -> dict[str, str]:
    return {"p1": status, "p2": status}


def test_the_ttl_ends_the_refusal_alone_and_zero_never_does(kept: Kept) -> None:
    """Harm prevented: when the refusal is over, what is there comes twice, or goes."""
    assert kept.statuses(ExportOptions(manifest_ttl=180)) == every("committed")
    assert kept.statuses(ExportOptions(manifest_ttl=180)) == every("already_exported")
    before = kept.rows()

    kept.world.now += 180_001
    assert kept.statuses(ExportOptions(manifest_ttl=0)) == every("unchanged")
    kept.assert_once(15)
    after = kept.rows()
    assert {p: r.claim.epoch for p, r in after.items()} == {
        p: r.claim.epoch for p, r in before.items()
    }


def test_for_ever_is_for_ever(kept: Kept) -> None:
    assert kept.statuses(ExportOptions(manifest_ttl=0)) == every("committed")

    kept.world.now += YEAR

    assert kept.statuses(ExportOptions(manifest_ttl=180)) == every("already_exported")
    kept.assert_once(15)


def test_other_content_is_refused_within_the_ttl_and_counted(kept: Kept) -> None:
    """Harm prevented: a table that was changed meanwhile is exported a second time."""
    kept.statuses(ExportOptions(manifest_ttl=180))
    counted = kept.duplicates()
    kept.world.source.by_id["p1"] = parts_of("p1", 7, 5, 2)

    assert kept.statuses(ExportOptions(manifest_ttl=180)) == {
        "p1": "refused",
        "p2": "already_exported",
    }

    assert kept.duplicates() > counted
    kept.assert_once(15)


def test_force_replaces_a_partition_and_one_more_word_a_directory(kept: Kept) -> None:
    """Harm prevented: rows twice; or readers of directories that see old and new files at once."""
    kept.statuses(ExportOptions(manifest_ttl=180))
    before = kept.rows()
    kept.world.source.by_id["p1"] = parts_of("p1", 7, 5, 2)

    forced = kept.statuses(ExportOptions(manifest_ttl=180, force=True))

    assert forced == every("refused" if kept.is_tree else "replaced")
    kept.assert_once(15 if kept.is_tree else 17)
    after = kept.rows()
    for partition, row in after.items():
        grown = row.claim.epoch > before[partition].claim.epoch
        assert grown is not kept.is_tree
        assert len(row.landed) == (1 if kept.is_tree else 2)
    if kept.is_tree:
        assert kept.statuses(
            ExportOptions(manifest_ttl=180, force=True, replace_partition=True)
        ) == every("replaced")
        kept.assert_once(17)


def test_files_of_others_are_refused_and_with_the_setting_left_alone(kept: Kept) -> None:
    """Harm prevented: rows of somebody else are doubled, or removed, because nobody asked."""
    if isinstance(kept.world, TreeWorld):
        directory = Path(kept.world.to.uri.removeprefix("file://"))
        directory.mkdir()
        theirs = directory / "theirs.parquet"
        theirs.write_bytes(b"rows")
        assert kept.statuses(ExportOptions(manifest_ttl=180)) == every("refused")
        assert kept.statuses(
            ExportOptions(manifest_ttl=180, overwrite_file_if_exists=True)
        ) == every("committed")
        assert theirs.read_bytes() == b"rows"
        kept.assert_once(15)
    else:
        make_table(kept.world.directory / "warehouse")
        append(kept.world.directory)
        assert kept.statuses(ExportOptions(manifest_ttl=180)) == every("refused")
        kept.assert_once(FOREIGN)
        assert kept.statuses(
            ExportOptions(manifest_ttl=180, overwrite_file_if_exists=True)
        ) == every("committed")
        kept.assert_once(FOREIGN + 15)
    assert kept.statuses(ExportOptions(manifest_ttl=180)) == every("already_exported")
