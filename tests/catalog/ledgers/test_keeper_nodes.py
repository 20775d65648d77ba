"""A ledger in ZooKeeper with removed nodes or with foreign nodes."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from kazoo.client import KazooClient

from catalog.ledgers.keeper.address import KeeperAddress, KeeperPaths
from catalog.ledgers.keeper.leases import KeeperLeases
from catalog.ledgers.keeper.rows import sealed, unsealed
from catalog.ledgers.keeper.session import KeeperSession
from catalog.ledgers.memory import milliseconds
from tableformat.errors import LedgerError
from tableformat.history import RUNNING_EXPORTS, Event, EventKind
from tableformat.ledger import Lease, LeaseHeld, Row
from tests.services.zookeeper import ZooKeeper
from tests.support.keeper_ledgers import (
    ME,
    SOMEBODY,
    a_row,
    address_of,
    landed,
    many_parts,
    opened,
    peeking,
)

KEY = a_row().key.hash
EVENT = Event(1, EventKind.EXPORT_PARTITION, "db.t", "lake.n.t", "202401", "", "committed")


def paths_of(address: KeeperAddress, identity: str) -> KeeperPaths:
    return KeeperPaths(address.chroot, identity)


def written(ledger: object, row: Row) -> Row:
    made = ledger.write(row)  # type: ignore[attr-defined]
    assert isinstance(made, Row)
    return made


def test_leases_can_be_taken_after_all_were_removed(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: after an administrator frees stuck leases, exports retry for ever."""
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        assert isinstance(ledger.take_lease(KEY, SOMEBODY, 60), Lease)
        client.delete(paths_of(address, ledger.identity).leases, recursive=True)

        assert ledger.counters()[RUNNING_EXPORTS] == 0
        assert ledger.holder(KEY) is None
        ledger.release(Lease(KEY, SOMEBODY, 0))
        taken = ledger.take_leases((KEY, "k"), ME, 60)

        assert [type(one) for one in taken] == [Lease, Lease]
        assert isinstance(ledger.take_lease(KEY, SOMEBODY, 60), LeaseHeld)


def test_a_lease_that_went_with_its_session_and_its_folder_is_taken_again(
    zookeeper_server: ZooKeeper,
) -> None:
    address = address_of(zookeeper_server.address)
    session = KeeperSession(address)
    with opened(address) as ledger, peeking(address) as client, closing(session):
        paths = paths_of(address, ledger.identity)
        leases = KeeperLeases(session, paths, milliseconds)
        (lease,) = session.within("take", leases.take_attempt([KEY], ME, 60, None))
        assert isinstance(lease, Lease)
        # As after a time in which this process stood still.
        leases._sessions[KEY, ME] = 1
        client.delete(paths.leases, recursive=True)

        assert isinstance(session.within("renew", leases.renew_attempt(lease, 60)), Lease)


def test_a_missing_folder_of_rows_is_an_error_that_names_it(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: lost rows are reported as another run's claim."""
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        row = written(ledger, a_row())
        rows = paths_of(address, ledger.identity).rows
        client.delete(rows, recursive=True)

        for late in (row, a_row("202402")):
            with pytest.raises(LedgerError, match=f"the node {rows} is damaged .it is not there"):
                ledger.write(late)


def test_a_missing_folder_of_destinations_is_an_error_that_names_it(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: a write is tried again without end."""
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        folder = paths_of(address, ledger.identity).destinations
        client.delete(folder)
        rows = tuple(a_row(name, landed=(landed(7),)) for name in ("202401", "202402"))

        with pytest.raises(LedgerError, match=f"the node {folder} is damaged .it is not there"):
            ledger.write_all(rows)


def test_a_removed_sequence_number_of_a_destination_is_written_again(
    zookeeper_server: ZooKeeper,
) -> None:
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        row = written(ledger, a_row(landed=(landed(7),)))
        client.delete(paths_of(address, ledger.identity).landed("destination"))

        written(ledger, replace(row, updated=2))

        assert ledger.highest_landed("destination") == 7


def test_a_node_that_is_no_block_of_events_is_an_error_that_names_it(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: a stray node makes `exports list` a traceback."""
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        ledger.note((EVENT,))
        stray = f"{paths_of(address, ledger.identity).events}/notes"
        client.create(stray)

        with pytest.raises(
            LedgerError, match=f"{address.shown}: the node {stray} is no block of events. Remove it"
        ):
            ledger.events(None, 10)

        client.delete(stray)
        assert ledger.events(None, 10) == (EVENT,)


def test_a_node_that_is_no_piece_of_a_row_is_left_alone(zookeeper_server: ZooKeeper) -> None:
    """Harm prevented: a write that was made raises."""
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        row = a_row()
        large = written(ledger, replace(row, claim=replace(row.claim, parts=many_parts(1200))))
        bodies = paths_of(address, ledger.identity).bodies(KEY)
        client.create(f"{bodies}/notes")

        small = written(ledger, replace(large, claim=row.claim))

        assert ledger.read(KEY) == small
        assert client.get_children(bodies) == ["notes"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            b'{"format_version":19}',
            "it has format 19, this release reads 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17 and 18",
        ),
        (b"{}", "KeyError"),
        (b"\xff", "is damaged .UnicodeDecodeError"),
    ],
)
def test_an_unreadable_row_is_an_error_that_names_its_ledger(
    zookeeper_server: ZooKeeper, wrong: bytes, message: str
) -> None:
    """Harm prevented: a message that names a node, and not on which servers it is."""
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        ledger.write(a_row())
        path = paths_of(address, ledger.identity).row(KEY)
        _put_body(client, path, wrong)

        with pytest.raises(LedgerError, match=message) as raised:
            ledger.read(KEY)

        assert path in str(raised.value)
        assert f"the ledger {address.shown}" in str(raised.value)


def _put_body(client: KazooClient, path: str, body: bytes) -> None:
    """Replace the text after a row's head."""
    head = unsealed(client.get(path)[0], path).partition(b"\n")[0]
    client.set(path, sealed(head + b"\n" + body))


def test_an_error_names_a_few_of_many_rows(zookeeper_server: ZooKeeper) -> None:
    """Harm prevented: a message of 3,000 characters."""
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        rows = tuple(a_row(str(number)) for number in range(100))
        assert ledger.identity
        client.delete(f"{address.chroot}/mergeberg", recursive=True)

        with pytest.raises(
            LedgerError, match=r"Cannot write the rows .* and 97 more of the ledger"
        ):
            ledger.write_all(rows)


def test_many_rows_are_read_by_few_requests(zookeeper_server: ZooKeeper) -> None:
    """Harm prevented: looking at the rows of a group each second keeps Keeper busy."""
    with opened(address_of(zookeeper_server.address)) as ledger:
        rows = ledger.write_all(tuple(a_row(str(number)) for number in range(100)))
        before = ledger.requests

        found = ledger.read_all(tuple(a_row(str(number)).key.hash for number in range(100)))

        assert found == rows
        # A sync, whether it is this ledger, and one for each.
        assert ledger.requests - before == 102


@pytest.mark.parametrize("order", [1, -1])
def test_of_leases_of_one_key_that_of_the_holder_is_given_back(
    zookeeper_server: ZooKeeper, order: int
) -> None:
    """Harm prevented: a lease that was given back is held until it has run out."""
    with opened(address_of(zookeeper_server.address)) as ledger:
        assert isinstance(ledger.take_lease(KEY, ME, 60), Lease)

        ledger.release(*[Lease(KEY, owner, 0) for owner in (ME, SOMEBODY)][::order])

        assert ledger.holder(KEY) is None
