"""Real processes that export over Keeper, a REST catalog and S3: at once, and killed.

A short part of `python -m tests.chaos --far` and `python -m tests.partition` (`make soak`).
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.ledgers.memory import milliseconds
from tableformat.ledger import Ledger
from tests.chaos.world import World
from tests.places.far import FarPlace
from tests.places.found import place_at
from tests.places.services import FarServices
from tests.services.minio import MinIO
from tests.services.server_process import wait_until
from tests.services.zookeeper import ZooKeeper
from tests.support.scenarios import ledger_rows, rows_by_key

pytestmark = pytest.mark.nightly

CONTENT = {f"p{n}": [n, 7] for n in range(1, 13)}
ROWS = {partition: sum(parts) for partition, parts in CONTENT.items()}
IN_MAIN = {"committed", "replaced", "unchanged", "already_exported"}
SECONDS = 120


@pytest.fixture
def world(zookeeper_server: ZooKeeper, minio_server: MinIO, tmp_path: Path) -> Iterator[World]:
    """Return a world whose processes have sessions that end after a second of silence."""
    services, made = FarServices(zookeeper_server, minio_server), World(tmp_path)
    with services.settled(tmp_path):
        place = place_at(tmp_path)
        assert isinstance(place, FarPlace)
        replace(place, ledger_uri=f"{place.ledger_uri}?session-timeout=1").name_in(tmp_path)
        made.front.symlink_to(tmp_path)
        made.write(CONTENT)
        yield made


def check_exported_once(world: World, last: str) -> None:
    """Check that main has every partition once, and that the last process reported that."""
    held, rows = rows_by_key(world.directory), ledger_rows(world.directory)
    assert {r.key.partition_id: held[r.key.hash] for r in rows} == ROWS
    assert held.total() == sum(ROWS.values())
    assert {report.partition_id: report.rows for report in world.reports(last)} == ROWS
    assert {report.status for report in world.reports(last)} <= IN_MAIN


def test_processes_at_once_and_one_afterwards_export_every_partition_once(world: World) -> None:
    """Harm prevented: each host exports what another one exports already.

    On a slow machine leases of a second are lost, so that nobody may end what is left to the last.
    """
    at_once = [subprocess.Popen(world.command(number, "1")) for number in range(1, 4)]
    try:
        ended = [process.wait(SECONDS) for process in at_once]
    finally:
        for process in at_once:
            process.kill()
            process.wait()

    subprocess.run(world.command(4, "1"), check=True, timeout=SECONDS)

    assert ended == [0, 0, 0]
    assert world.errors() == []
    assert {report.partition_id for report in world.reports()} == set(ROWS)
    assert {len(row.landed) for row in ledger_rows(world.directory)} == {1}
    check_exported_once(world, "worker-4")


def is_in_the_middle(ledger: Ledger) -> bool:
    """Whether somebody has a lease of a partition that is claimed."""
    return any(ledger.holder(row.key.hash) is not None for row in ledger.rows())


def test_after_a_kill_and_the_sessions_end_the_next_process_exports_once(
    zookeeper_server: ZooKeeper, world: World
) -> None:
    """Harm prevented: what holds while a dead process's leases are there does not without them."""
    with contextlib.closing(place_at(world.directory).ledger(milliseconds)) as ledger:
        assert ledger.identity
        others = zookeeper_server.sessions
        killed = subprocess.Popen(world.command(1))
        try:
            wait_until(lambda: is_in_the_middle(ledger), "it was in the middle", seconds=SECONDS)
            theirs = zookeeper_server.sessions - others
        finally:
            killed.kill()
            killed.wait()
        assert theirs
        wait_until(lambda: not theirs & zookeeper_server.sessions, "its session was over")

    subprocess.run(world.command(2, "1"), check=True, timeout=SECONDS)

    check_exported_once(world, "worker-2")
