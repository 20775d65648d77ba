"""Rows in ZooKeeper: of any size, in nodes of a bounded size, and damaged ones."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catalog.ledgers.keeper.address import KeeperAddress, KeeperPaths
from catalog.ledgers.keeper.rows import KeeperRows, sealed
from catalog.ledgers.keeper.session import AttemptError, KeeperSession
from tableformat.errors import LedgerError
from tableformat.history import MOST_EVENTS, Counter, Event, EventKind
from tableformat.ledger import Row, Stale, State
from tests.services.zookeeper import ZooKeeper
from tests.support.keeper_ledgers import (
    ME,
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
EVENT = Event(
    1, EventKind.EXPORT_PARTITION, "db.t", "lake.n.t", "202401", "", "committed",
    counter=Counter.EXPORTS, parts=2,
)  # fmt: skip


def written(row: Row | Stale) -> Row:
    assert isinstance(row, Row)
    return row


def paths_of(address: KeeperAddress, identity: str) -> KeeperPaths:
    return KeeperPaths(address.chroot, identity)


def test_a_ledger_keeps_its_identity_and_rows_when_it_is_opened_again(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: an export that is forgotten is exported twice."""
    address = address_of(zookeeper_server.address)
    with opened(address) as first:
        row = written(first.write(a_row()))
        identity = first.identity

    zookeeper_server.kill()
    zookeeper_server.start()

    with opened(address) as again:
        assert (again.identity, again.read(KEY)) == (identity, row)
        assert row == replace(a_row(), version=1)


def test_of_two_sessions_that_write_one_version_the_later_one_is_stale(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: a process that was held up overwrites what its successor has settled."""
    address = address_of(zookeeper_server.address)
    with opened(address) as first, opened(address) as second:
        before = written(first.write(a_row()))
        settled = written(second.write(replace(before, state=State.KILLED)))

        result = first.write(replace(before, claim=replace(before.claim, parts=many_parts(2))))

        assert result == Stale(settled.version)
        assert second.read(KEY) == first.read(KEY) == settled


def test_reading_never_makes_a_ledger_and_writing_makes_what_is_missing(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: a mistyped --ledger creates an empty ledger (LegacyTables)."""
    address = address_of(zookeeper_server.address)
    address = replace(address, chroot=f"{address.chroot}/team/lake")
    with opened(address) as ledger, peeking(address) as client:
        assert (ledger.is_made(), ledger.highest_epoch(), list(ledger.rows())) == (False, 0, [])
        assert (ledger.read(KEY), ledger.holder(KEY)) == (None, None)
        assert (ledger.events(None, 10), set(ledger.counters().values())) == ((), {0})
        assert ledger.highest_landed("destination") == 0
        ledger.release()
        assert client.exists(address.chroot) is None

        assert ledger.identity
        assert ledger.is_made()
        assert client.get_children(address.chroot) == ["mergeberg"]


def test_what_else_is_below_the_path_is_left_alone(zookeeper_server: ZooKeeper) -> None:
    """Harm prevented: the nodes of a replicated table are changed by its export (LegacyTables)."""
    address = address_of(zookeeper_server.address)
    with peeking(address) as client, opened(address) as ledger:
        client.create(f"{address.chroot}/replicas/r1", b"of the source", makepath=True)
        before = client.get(f"{address.chroot}/replicas/r1")

        ledger.write(LARGE)

        assert client.get(f"{address.chroot}/replicas/r1") == before
        assert sorted(client.get_children(address.chroot)) == ["mergeberg", "replicas"]


@pytest.mark.parametrize("layouts", [["v2"], ["v1", "v2"], []])
def test_another_layout_is_refused_by_name(zookeeper_server: ZooKeeper, layouts: list[str]) -> None:
    """Harm prevented: a release misreads the layout of a newer one."""
    address = address_of(zookeeper_server.address)
    with peeking(address) as client, opened(address) as ledger:
        client.ensure_path(f"{address.chroot}/mergeberg")
        for layout in layouts:
            client.create(f"{address.chroot}/mergeberg/{layout}")
        message = f"{address.chroot}/mergeberg has the layout {', '.join(layouts) or 'none'}, this"

        with pytest.raises(LedgerError, match=message):
            ledger.read(KEY)
        with pytest.raises(LedgerError, match=message):
            ledger.write(a_row())


@pytest.mark.parametrize("is_recreated", [False, True])
def test_a_ledger_that_was_removed_is_not_written_any_more(
    zookeeper_server: ZooKeeper, *, is_recreated: bool
) -> None:
    """Harm prevented: rows of a ledger that the table knows go into one that it does not know."""
    address = address_of(zookeeper_server.address)
    with peeking(address) as client, opened(address) as ours, opened(address) as other:
        row = written(ours.write(a_row()))
        client.delete(f"{address.chroot}/mergeberg", recursive=True)
        if is_recreated:
            assert other.identity != ours.identity

        for attempt in (
            lambda: ours.write(row),
            lambda: ours.write(a_row("202402")),
            lambda: ours.write(LARGE),
            ours.next_epoch,
            ours.rows,
            lambda: ours.read(KEY),
            lambda: ours.take_lease(KEY, ME, 60),
            lambda: ours.note((EVENT,)),
            lambda: ours.highest_landed("destination"),
        ):
            with pytest.raises(
                LedgerError, match="it was removed, or another release took it over"
            ):
                attempt()
        assert client.exists(f"{address.chroot}/mergeberg/v1/rows/{KEY}") is None


@given(
    parts=st.integers(0, 1000),
    error=st.one_of(st.text(max_size=100), st.sampled_from(["x" * 65_000, "é" * 300_000])),
)
@example(parts=6000, error="")
@settings(max_examples=15, deadline=None)
def test_a_row_of_any_size_comes_back(
    zookeeper_of_session: ZooKeeper, parts: int, error: str
) -> None:
    """Harm prevented: the record of a partition with many parts is truncated or mixed up."""
    with opened(address_of(zookeeper_of_session.address)) as ledger:
        small = written(ledger.write(a_row(last_error="before")))
        large = written(
            ledger.write(
                replace(
                    small, last_error=error, claim=replace(small.claim, parts=many_parts(parts))
                )
            )
        )

        assert ledger.read(KEY) == large
        assert written(ledger.write(replace(large, claim=small.claim))) == ledger.read(KEY)


def test_ten_thousand_parts_make_no_large_node_and_no_large_request(
    zookeeper_server: ZooKeeper, record_property: Callable[[str, object], None]
) -> None:
    """Harm prevented: a partition of many parts cannot be exported, or Keeper is overwhelmed."""
    address = address_of(zookeeper_server.address)
    counted = {}
    for count in (1, 100, 10_000):
        row = a_row(str(count))
        with opened(address) as ledger, peeking(address) as client:
            assert ledger.identity
            before = ledger.requests
            claimed = written(
                ledger.write(replace(row, claim=replace(row.claim, parts=many_parts(count))))
            )
            assert ledger.read(row.key.hash) == claimed
            again = written(ledger.write(replace(claimed, state=State.COMPLETED)))
            assert ledger.read(row.key.hash) == again
            sizes = {path: len(data) for path, data in nodes_below(client, address.chroot).items()}
            counted[count] = (ledger.requests - before, max(sizes.values()))
    record_property("requests and greatest node of two writes and two reads", str(counted))

    assert max(greatest for _, greatest in counted.values()) < 512 * 1024
    assert counted[1][0] <= 20
    assert counted[100][0] <= 20
    assert counted[10_000][0] <= 40


def test_bodies_of_versions_before_are_removed_and_those_of_the_next_are_not(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: Keeper fills up, or the body of a row being written is removed."""
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        first = written(ledger.write(LARGE))
        bodies = paths_of(address, ledger.identity).bodies(KEY)
        # Left by writers that ended before they moved the row: of this version, and of the next.
        client.create(f"{bodies}/0000000001-dead-0000")
        client.create(f"{bodies}/0000000002-late-0000")
        client.create(f"{bodies}/0000000003-next-0000")

        second = written(ledger.write(replace(first, updated=2)))

        left = {name.partition("-")[0] for name in client.get_children(bodies)}
        assert left == {"0000000002", "0000000003"}
        assert "0000000002-late-0000" not in client.get_children(bodies)
        assert ledger.read(KEY) == second
        written(ledger.write(replace(second, claim=a_row().claim)))
        assert client.get_children(bodies) == []


def test_a_reader_meets_no_half_row_while_a_writer_replaces_it(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: pieces that a writer has just removed are taken for damage."""
    address = address_of(zookeeper_server.address)
    done = threading.Event()
    with opened(address) as writer, opened(address) as reader, ThreadPoolExecutor(1) as threads:
        row = written(writer.write(LARGE))

        def read_on() -> list[int]:
            seen = []
            while not done.is_set():
                found = reader.read(KEY)
                assert found is not None
                assert found.claim.parts == LARGE.claim.parts
                seen.append(found.version)
            return seen

        reading = threads.submit(read_on)
        try:
            for number in range(8):
                row = written(writer.write(replace(row, updated=number)))
        finally:
            done.set()
        seen = reading.result()

    assert seen == sorted(seen)
    assert len(set(seen)) > 1


def test_a_piece_that_a_writer_has_removed_is_no_damage(zookeeper_server: ZooKeeper) -> None:
    """Harm prevented: as above; here the row moves on just before its pieces are read."""
    address = address_of(zookeeper_server.address)
    session = KeeperSession(address)
    with opened(address) as writer, closing(session):
        row = written(writer.write(LARGE))
        rows = KeeperRows(session, paths_of(address, writer.identity))

        def late() -> AttemptError:
            (head,) = rows._heads([KEY])
            assert head is not None
            written(writer.write(row))
            with pytest.raises(
                AttemptError, match="other processes keep writing the row"
            ) as caught:
                rows._body(KEY, head)
            return caught.value

        assert session.within("read", late).retryable


def test_every_damaged_node_is_an_error_that_names_it(zookeeper_server: ZooKeeper) -> None:
    """Harm prevented: a damaged row is taken for none, and its rows are exported again."""
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        small = a_row("small", landed=(landed(7),))
        assert isinstance(ledger.write_all((LARGE, small))[1], Row)
        ledger.next_epoch()
        ledger.take_lease(KEY, ME, 3600)
        ledger.note((EVENT,))
        nodes = nodes_below(client, f"{address.chroot}/mergeberg")
        # Nothing is decided on manifests.
        manifests = {path for path in nodes if "/manifest-" in path}
        filled = {path: data for path, data in nodes.items() if data and path not in manifests}
        folders = {path.rpartition("/")[0].rpartition("/")[2] for path in filled}
        assert {"v1", "rows", KEY, "leases", "events", "landed"} <= folders

        for path, data in filled.items():
            middle = len(data) * 2 // 3
            flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
            # The last two have a checksum that agrees.
            for wrong in (b"", b"{}", flipped, data[:-1], sealed(b"{}"), sealed(b"[1]\n[1]")):
                client.set(path, wrong)
                with pytest.raises(LedgerError, match=path):
                    _read_all(ledger, small.key.hash)
            client.set(path, data)
        _read_all(ledger, small.key.hash)


def _read_all(ledger: object, small: str) -> None:
    for ask, arguments in (
        ("read", (KEY,)),
        ("read", (small,)),
        ("highest_epoch", ()),
        ("highest_landed", ("destination",)),
        ("holder", (KEY,)),
        ("events", (None, 10)),
        ("counters", ()),
    ):
        getattr(ledger, ask)(*arguments)


def test_a_missing_piece_is_an_error_that_names_it(zookeeper_server: ZooKeeper) -> None:
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        row = written(ledger.write(LARGE))
        bodies = paths_of(address, ledger.identity).bodies(KEY)
        (piece, *_) = client.get_children(bodies)
        client.delete(f"{bodies}/{piece}")

        with pytest.raises(LedgerError, match=f"the node {bodies}/{piece} is damaged"):
            ledger.read(KEY)
        with pytest.raises(LedgerError, match=f"the node {bodies}/{piece} is damaged"):
            ledger.rows()

        client.delete(bodies, recursive=True)
        client.delete(bodies.rpartition("/")[0])
        with pytest.raises(LedgerError, match="the nodes of its large rows cannot be written"):
            ledger.write(row)


def test_a_row_in_the_place_of_another_is_refused(zookeeper_server: ZooKeeper) -> None:
    """Harm prevented: one partition's record is used for another."""
    address = address_of(zookeeper_server.address)
    with opened(address) as ledger, peeking(address) as client:
        ledger.write_all((a_row(), a_row("202402")))
        paths = paths_of(address, ledger.identity)
        other = paths.row(a_row("202402").key.hash)
        client.set(paths.row(KEY), client.get(other)[0])

        with pytest.raises(LedgerError, match=f"the node {paths.row(KEY)} .* row of another key"):
            ledger.read(KEY)


def test_events_of_many_parts_are_cut_and_bounded(zookeeper_server: ZooKeeper) -> None:
    """Harm prevented: an unread log fills Keeper."""
    address = address_of(zookeeper_server.address)
    many = tuple(replace(EVENT, time=n, part_name=f"202401_{n}_{n}_0") for n in range(12_000))
    with opened(address) as ledger, peeking(address) as client:
        ledger.note(many)
        assert ledger.events(None, 20_000) == tuple(reversed(many))[:MOST_EVENTS]
        assert ledger.events(11_998, 5) == tuple(reversed(many))[:2]
        assert ledger.counters()[Counter.EXPORTS] == 24_000
        events = paths_of(address, ledger.identity).events
        assert max(len(data) for data in nodes_below(client, events).values()) < 512 * 1024

    with opened(address, most_events=10) as ledger, peeking(address) as client:
        for n in range(40):
            ledger.note((replace(EVENT, time=n),))
        assert len(client.get_children(events)) < 25
        assert [event.time for event in ledger.events(None, 100)] == list(range(39, 29, -1))
