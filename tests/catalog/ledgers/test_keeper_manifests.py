"""Manifests in ZooKeeper: each below its row, and removed with it."""

from __future__ import annotations

from dataclasses import replace

from kazoo.client import KazooClient

from catalog.ledgers.keeper.address import KeeperAddress, KeeperPaths
from tableformat.ledger import Row, Stale, State
from tableformat.ledger_text import manifest, parse_manifest
from tests.services.zookeeper import ZooKeeper
from tests.support.keeper_ledgers import (
    a_row,
    address_of,
    landed,
    many_parts,
    nodes_below,
    opened,
    peeking,
)

KEY = a_row().key.hash
LARGE = replace(a_row(), claim=replace(a_row().claim, parts=many_parts(1200)))


def written(row: Row | Stale) -> Row:
    assert isinstance(row, Row)
    return row


def paths_of(address: KeeperAddress, identity: str) -> KeeperPaths:
    return KeeperPaths(address.chroot, identity)


def manifests_below(client: KazooClient, paths: KeeperPaths) -> dict[str, str]:
    """Return the documents in the nodes below a row, by their names."""
    row = paths.row(KEY)
    return {name: client.get(f"{row}/{name}")[0].decode() for name in client.get_children(row)}


def test_a_node_of_its_own_has_the_manifest_of_the_row_as_it_is_printed(
    zookeeper_server: ZooKeeper,
) -> None:
    """The node has nothing else, so tools can read it; it is removed with the row."""
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        paths = paths_of(address, ledger.identity)
        first = written(ledger.write(a_row()))
        assert manifests_below(client, paths) == {"manifest-1": manifest(a_row())}
        assert isinstance(ledger.write(replace(a_row(), last_error="of another")), Stale)
        assert manifests_below(client, paths) == {"manifest-1": manifest(a_row())}

        second = written(ledger.write(replace(first, state=State.COMPLETED, landed=(landed(7),))))

        assert manifests_below(client, paths) == {"manifest-1": manifest(second)}
        assert ledger.remove(second) is None
        assert KEY not in str(nodes_below(client, address.chroot))


def test_a_manifest_of_many_parts_leaves_some_out_and_says_how_many(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: a node that Keeper refuses, and with it the row."""
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        written(ledger.write(LARGE))

        (text,) = manifests_below(client, paths_of(address, ledger.identity)).values()

        stored = parse_manifest(text)
        assert len(text) <= 256 * 1024
        assert len(stored.parts) > 400
        assert len(stored.parts) + stored.parts_left_out == 1200


def test_the_pieces_of_a_row_are_removed_with_it(zookeeper_server: ZooKeeper) -> None:
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        row = written(ledger.write(LARGE))
        assert any("/bodies/" in path for path in nodes_below(client, address.chroot))

        assert ledger.remove(row) is None

        assert KEY not in str(nodes_below(client, address.chroot))
        assert written(ledger.write(LARGE)) == row


def test_a_row_that_has_no_manifest_yet_gets_one_with_its_next_write(
    zookeeper_server: ZooKeeper,
) -> None:
    """Of an earlier release; a writer of another row of the key stays refused."""
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        row = written(ledger.write(a_row()))
        paths = paths_of(address, ledger.identity)
        client.delete(paths.manifest(KEY, row.created))

        assert ledger.write(replace(row, created=2)) == Stale(1)
        second = written(ledger.write(replace(row, last_error="it failed")))

        assert manifests_below(client, paths) == {"manifest-1": manifest(second)}
