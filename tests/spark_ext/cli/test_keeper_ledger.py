"""The command line with its ledger in ZooKeeper, as a user gives it."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from catalog.iceberg.catalogs import open_catalog
from catalog.ledgers.memory import milliseconds
from tableformat.names import TransactionId
from tests.services.zookeeper import ZooKeeper
from tests.support.keeper_ledgers import new_chroot
from tests.wrong.places import Places

AN_HOUR = 3_600_000
WHERE = ("--partition-id", "202401", "--to", "lake.n.in_keeper")
PASSWORD = "w0rd-of-the-ledger"  # noqa: S105 - of nobody


def test_a_partition_is_exported_once_and_found_again(
    places: Places, zookeeper_server: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a ledger that works in tests only, through what no user can say."""
    monkeypatch.setenv("MERGEBERG_LEDGER_PASSWORD", PASSWORD)
    chroot = new_chroot()
    uri = f"keeper://exporter@{zookeeper_server.address}{chroot}"
    ledger = ("--ledger", uri)
    places.reads_parts = True

    nothing = places.outcomes("exports", "list", *ledger)
    (planned,) = places.outcomes("export", "db.events", *WHERE, "--dry-run", *ledger)[:1]
    client = KazooClient(zookeeper_server.address, auth_data=[("digest", f"exporter:{PASSWORD}")])
    client.start()
    try:
        is_made_by_looking = client.exists(chroot) is not None
        (first,) = places.outcomes("export", "db.events", *WHERE, *ledger)
        (again,) = places.outcomes("export", "db.events", *WHERE, *ledger)
        (listed,) = places.outcomes("exports", "list", *ledger)
        (rights, _) = client.get_acls(f"{chroot}/mergeberg/v1")
    finally:
        client.stop()
        client.close()
    shown = places.run("exports", "show", "203001", *ledger)

    assert (nothing, is_made_by_looking) == ([], False)
    assert planned["partition_id"] == "202401"
    assert (first["status"], again["status"]) == ("committed", "already_exported")
    made = TransactionId(str(first["transaction_id"])).milliseconds
    assert abs(made - milliseconds()) < AN_HOUR, "it is a snowflake, which begins with the time"
    assert (listed["partition_id"], listed["status"]) == ("202401", "COMPLETED")
    assert {one.id.scheme for one in rights} == {"digest"}
    table = open_catalog("lake", warehouse=places.warehouse).catalog.load_table("n.in_keeper")
    assert table.scan().to_arrow().num_rows == first["rows"]
    message = str(shown)
    assert f"the ledger {uri} has none" in message
    assert PASSWORD not in message


def test_a_keeper_that_does_not_respond_is_one_line(places: Places) -> None:
    """Harm prevented: a command hangs, or shows a traceback, when Keeper is away."""
    result = places.run("exports", "list", "--ledger", "keeper://127.0.0.1:1/x?timeout=1")

    assert "of the ledger keeper://127.0.0.1:1/x?timeout=1: " in str(result)
    assert "for 1 s. Check that its servers run" in str(result)
