"""The ledger in ZooKeeper while servers, connections and processes end, stand still and lie."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from catalog.ledgers.keeper.address import KeeperAddress
from catalog.ledgers.keeper.ledger import KeeperLedger
from tableformat.errors import LedgerError
from tableformat.history import Counter, Event, EventKind
from tableformat.ledger import Lease, LeaseHeld, Row
from tests.services.relay import relay
from tests.services.server_process import free_port, wait_until
from tests.services.zookeeper import ZooKeeper, zookeeper_ensemble
from tests.support.keeper_child import raised
from tests.support.keeper_ledgers import ME, SOMEBODY, a_row, address_of, landed, many_parts, opened
from tests.support.time_bounds import ENDS_WITHIN

KEY = a_row().key.hash
LARGE = replace(a_row(), claim=replace(a_row().claim, parts=many_parts(1200)))
EVENTS = tuple(
    Event(
        n, EventKind.EXPORT_PARTITION, "db.t", "lake.n.t", "202401", f"p{n}", "committed",
        counter=Counter.EXPORTS, parts=1,
    )
    for n in range(3)
)  # fmt: skip
ROOT = Path(__file__).parents[2]


@contextmanager
def child(address: KeeperAddress, name: str) -> Iterator[tuple[int, Callable[[str], object]]]:
    """Run a process with the ledger; tell it what to do by the function."""
    command = [sys.executable, "-m", "tests.support.keeper_child", address.shown, name]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, responses = process.stdin, process.stdout

        def send(line: str) -> object:
            requests.write(f"{line}\n")
            requests.flush()
            return json.loads(responses.readline())

        try:
            yield process.pid, send
        finally:
            process.kill()


def test_a_server_that_ends_and_comes_back_is_waited_for(zookeeper_server: ZooKeeper) -> None:
    """Harm prevented: a restart of Keeper fails every export that runs (KeeperInterruption)."""
    address = address_of(zookeeper_server.address)
    with opened(address, session_seconds=2.0) as ledger, ThreadPoolExecutor(1) as threads:
        row = ledger.write(LARGE)
        assert isinstance(row, Row)
        zookeeper_server.kill()
        writing = threads.submit(ledger.write, replace(row, updated=2))
        assert not writing.done()
        zookeeper_server.start()

        assert writing.result() == replace(row, updated=2, version=2) == ledger.read(KEY)


def test_a_server_that_stalls_longer_than_a_session_lives_is_waited_for(
    zookeeper_server: ZooKeeper,
) -> None:
    address = address_of(zookeeper_server.address)
    with opened(address, session_seconds=2.0) as ledger, ThreadPoolExecutor(2) as threads:
        lease, epoch = ledger.take_lease("k", ME, 3600), ledger.next_epoch()
        assert isinstance(lease, Lease)
        zookeeper_server.pause()
        drawing = threads.submit(ledger.next_epoch)
        renewing = threads.submit(ledger.renew, lease, 3600)
        # The client gives the connection up after two thirds of a session.
        wait_until(lambda: _last_warning(ledger) != "", "the silence was noticed")
        zookeeper_server.resume()

        assert drawing.result() > epoch
        assert isinstance(renewing.result(), Lease)
        found = ledger.holder("k")
        assert found is not None
        assert found.owner == ME


def _last_warning(ledger: KeeperLedger) -> str:
    connection = ledger._session._connection
    assert connection is not None
    return connection.last_warning


def sockets() -> int:
    """Return how many sockets this process has open."""
    found = 0
    for name in os.listdir("/dev/fd"):  # noqa: PTH208  one of them is of the listing itself
        with suppress(OSError):
            found += stat.S_ISSOCK(os.fstat(int(name)).st_mode)
    return found


@pytest.mark.parametrize("trouble", ["nobody listens", "silence", "no server of that name"])
def test_an_operation_ends_in_time_and_leaves_nothing(
    zookeeper_server: ZooKeeper, trouble: str
) -> None:
    """Harm prevented: a command hangs; or threads that nobody ends keep it from ending."""
    place = {
        "nobody listens": f"127.0.0.1:{free_port()}",
        "no server of that name": "nowhere.invalid:1",
    }.get(trouble, zookeeper_server.address)
    address = replace(address_of("127.0.0.1:1"), hosts=(place,), seconds=2.0)
    threads, open_sockets = set(threading.enumerate()), sockets()
    ledger = KeeperLedger(address)
    if trouble == "silence":
        zookeeper_server.pause()

    for attempt in (lambda: ledger.write(a_row()), lambda: ledger.read(KEY)):
        began = time.monotonic()
        with pytest.raises(LedgerError, match=r"of the ledger keeper://.*, for 2 s\. Check that"):
            attempt()
        assert time.monotonic() - began < ENDS_WITHIN
    began = time.monotonic()
    ledger.close()

    assert time.monotonic() - began < ENDS_WITHIN
    assert set(threading.enumerate()) <= threads
    assert sockets() <= open_sockets


@pytest.mark.soak
def test_a_ledger_waited_for_in_vain_is_not_waited_for_as_long_again(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: a command of many partitions that waits a minute for each of its steps."""
    ledger = KeeperLedger(replace(address_of(zookeeper_server.address), seconds=4.0))
    messages = []

    for _ in range(2):
        zookeeper_server.kill()
        for _ in range(2):
            with pytest.raises(LedgerError) as raised:
                ledger.read(KEY)
            messages.append(str(raised.value).partition(". Check")[0].rpartition(", ")[2])
        zookeeper_server.start()
        wait_until(lambda: responds(ledger), "the ledger was there again")

    ledger.close()
    assert messages == ["for 4 s", "for 2 s"] * 2


def responds(ledger: KeeperLedger) -> bool:
    with suppress(LedgerError):
        ledger.read(KEY)
        return True
    return False


def test_a_ledger_is_closed_at_once_when_the_server_stands_still(
    zookeeper_server: ZooKeeper,
) -> None:
    threads, open_sockets = set(threading.enumerate()), sockets()
    ledger = KeeperLedger(address_of(zookeeper_server.address))
    ledger.write(a_row())
    zookeeper_server.pause()
    began = time.monotonic()
    ledger.close()

    assert time.monotonic() - began < ENDS_WITHIN
    assert set(threading.enumerate()) <= threads
    assert sockets() <= open_sockets


Losing = Callable[[], AbstractContextManager[None]]
"""While it is open, a response is lost."""


def _written(ledger: KeeperLedger, losing: Losing) -> None:
    row = ledger.read(KEY)
    base = LARGE if row is None else row
    number = base.updated + 1
    new = replace(base, updated=number, landed=(*base.landed, landed(number)))
    with losing():
        written = ledger.write(new)
    assert isinstance(written, Row)
    assert ledger.read(KEY) == written == replace(new, version=base.version + 1)
    assert ledger.highest_landed("destination") == number


def _drawn(ledger: KeeperLedger, losing: Losing) -> None:
    before = ledger.highest_epoch()
    with losing():
        drawn = ledger.next_epoch(3)
    assert drawn > before
    assert ledger.highest_epoch() == drawn + 2


def _leased(ledger: KeeperLedger, losing: Losing) -> None:
    with losing():
        lease = ledger.take_lease("k", ME, 3600)
        assert isinstance(lease, Lease)
        renewed = ledger.renew(lease, 3600)
        assert isinstance(renewed, Lease)
        assert isinstance(ledger.take_lease("k", SOMEBODY, 3600), LeaseHeld)
        ledger.release(renewed)
    assert ledger.holder("k") is None


def _noted(ledger: KeeperLedger, losing: Losing) -> None:
    before = ledger.counters()[Counter.EXPORTS]
    noted = ledger.events(None, 10_000)
    with losing():
        ledger.note(EVENTS)
    assert ledger.counters()[Counter.EXPORTS] == before + len(EVENTS)
    assert ledger.events(None, 10_000) == (*reversed(EVENTS), *noted)


@pytest.mark.parametrize(
    "done",
    [_written, _drawn, *(pytest.param(one, marks=pytest.mark.soak) for one in (_leased, _noted))],
)
def test_a_lost_response_is_repaired_wherever_it_is_lost(
    zookeeper_server: ZooKeeper, done: Callable[[KeeperLedger, Losing], None]
) -> None:
    """Harm prevented: a write that was made is made again, or taken for somebody else's."""
    with relay(zookeeper_server.port) as network:
        address = address_of(f"127.0.0.1:{network.port}")
        sizes: list[int] = []
        lost = 0

        @contextmanager
        def losing(cut: int | None) -> Iterator[None]:
            nonlocal lost
            before, connections = network.received, network.connections
            if cut is not None:
                network.cut_after(cut)
            yield
            sizes.append(network.received - before)
            lost += network.connections > connections

        with opened(address) as ledger:
            done(ledger, nullcontext)
            done(ledger, partial(losing, None))
            # Every response has a header of 20 bytes; that of a change is much longer.
            cuts = range(1, sizes[0], max(15, sizes[0] // 25))
            for cut in cuts:
                done(ledger, partial(losing, cut))

    assert len(cuts) > 5
    assert lost >= len(cuts) * 3 // 4


def test_a_ledger_is_created_once_although_the_response_is_lost(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: two identities of one ledger, so that its tables refuse it."""
    with relay(zookeeper_server.port) as network:
        # What the server says while one is made: some are lost before it, some after.
        for size in range(1, 700, 60):
            address = address_of(f"127.0.0.1:{network.port}")
            network.cut_after(size)
            with opened(address) as ledger, opened(address) as other:
                assert ledger.identity == other.identity


def test_the_lease_of_a_process_that_died_is_free(zookeeper_server: ZooKeeper) -> None:
    """Harm prevented: a partition waits a minute for a process that cannot come back."""
    address = replace(address_of(zookeeper_server.address), session_seconds=2.0)
    with opened(address) as ledger, child(address, "one") as (pid, send):
        assert send("take 3600") == ["Lease", {"host": "host", "pid": 1, "start": "one"}]
        assert isinstance(ledger.take_lease("k", SOMEBODY, 60), LeaseHeld)

        os.kill(pid, signal.SIGKILL)

        wait_until(lambda: ledger.holder("k") is None, "the lease was free")
        assert isinstance(ledger.take_lease("k", SOMEBODY, 60), Lease)


@pytest.mark.parametrize("other", [None, SOMEBODY])
def test_a_process_that_stood_still_learns_whose_its_lease_is(
    zookeeper_server: ZooKeeper, other: object
) -> None:
    """Harm prevented: two processes work on one partition, each sure that it is alone."""
    address = replace(address_of(zookeeper_server.address), session_seconds=2.0)
    with opened(address) as ledger, child(address, "one") as (pid, send):
        send("take 3600")
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: ledger.holder("k") is None, "the lease was free")
            if other is not None:
                assert isinstance(ledger.take_lease("k", SOMEBODY, 3600), Lease)
        finally:
            os.kill(pid, signal.SIGCONT)

        response = send("renew 3600")

        found = ledger.holder("k")
        assert found is not None
        assert response == (
            ["Lease", {"host": "host", "pid": 1, "start": "one"}]
            if other is None
            else ["LeaseHeld", {"host": "elsewhere", "pid": 2, "start": "then"}]
        )
        assert found.owner.start == ("one" if other is None else "then")


def test_processes_that_race_draw_each_epoch_once_and_lose_no_write(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: two exports have one epoch, or one write overwrites another unseen."""
    address = address_of(zookeeper_server.address)
    with (
        opened(address) as ledger,
        child(address, "one") as (_, first),
        child(address, "two") as (_, second),
        ThreadPoolExecutor(4) as threads,
    ):
        row = ledger.write(a_row(ttl=0))
        assert isinstance(row, Row)
        ours = [threads.submit(ledger.next_epoch, 2) for _ in range(20)]
        drawing = [threads.submit(send, "draw 40") for send in (first, second)]
        drawn = [epoch for one in drawing for epoch in _list(one.result())]
        pairs = [one.result() for one in ours]
        everything = [*drawn, *pairs, *(epoch + 1 for epoch in pairs)]
        assert sorted(everything) == list(range(1, 121))
        assert ledger.highest_epoch() == 120

        raising = [threads.submit(send, "raise 30") for send in (first, second)]
        successes = 0
        while not all(one.done() for one in raising):
            successes += raised(ledger)
        successes += sum(_int(one.result()) for one in raising)
        found = ledger.read(KEY)
        assert found is not None
        assert (found.ttl, found.version) == (successes, successes + 1)


def _list(response: object) -> list[int]:
    assert isinstance(response, list)
    return response


def _int(response: object) -> int:
    assert isinstance(response, int)
    return response


def test_threads_that_make_a_ledger_at_once_make_one(zookeeper_server: ZooKeeper) -> None:
    address = address_of(zookeeper_server.address)
    handles = [KeeperLedger(address) for _ in range(4)]
    try:
        with ThreadPoolExecutor(8) as threads:
            made = [threads.submit(lambda h: h.identity, handle) for handle in handles * 2]
            assert len({one.result() for one in made}) == 1
    finally:
        for handle in handles:
            handle.close()


def test_writes_go_on_when_the_leader_of_three_is_lost() -> None:
    """Harm prevented: what an ensemble is there for does not help."""
    with zookeeper_ensemble() as servers:
        address = address_of(servers.address)
        with opened(address) as ledger, opened(address) as reader:
            row = ledger.write(LARGE)
            for number in range(10):
                assert isinstance(row, Row)
                if number == 5:
                    servers.leader().kill()
                row = ledger.write(replace(row, updated=number))
                assert reader.read(KEY) == row
