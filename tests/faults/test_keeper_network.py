"""A ledger in a real ZooKeeper, and what a network does to it: exactly once, and never a lie.

The runs ask it through Toxiproxy; `run` of `tests/support/scenarios.py` checks each outcome that
says "exported" against main as it is then, and asks the ledger itself.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import open_ledger
from tableformat.effects import Effects, Step
from tableformat.errors import LedgerError
from tableformat.export.ports import JobPorts
from tests.services.keeper_relay import keeper_relay
from tests.services.server_process import wait_until
from tests.services.toxiproxy import FROM_SERVER, TO_SERVER, Proxy, Toxiproxy, toxiproxy
from tests.services.zookeeper import ZooKeeper, zookeeper_ensemble
from tests.support.keeper_ledgers import new_chroot
from tests.support.scenarios import (
    AtStep,
    Partitions,
    assert_exported_once,
    parts_of,
    ports_of,
    rows_in_main,
    run,
    statuses,
)
from tests.support.server_trouble import Trouble
from tests.support.time_bounds import ENDS_WITHIN

pytestmark = pytest.mark.nightly

SESSION: Final = "session-timeout=1"
"""After so many seconds the servers take a silent client for dead: the fewest that they grant."""
STEPS: Final = (Step.TAKE_LEASE, Step.CLAIM, Step.SETTLE, Step.RELEASE_LEASE)
"""Where the job asks the ledger for what others must see."""


@dataclass(frozen=True)
class KeptExport:
    """Exports whose ledger is behind a proxy; what is looked at goes round it."""

    directory: Path
    proxy: Proxy
    chroot: str

    def ports(
        self, source: Partitions, *, effects: Effects | None = None, patience: float = 30.0
    ) -> JobPorts:
        """Return the ports of a new process, which waits some seconds for its ledger."""
        uri = f"keeper://{self.proxy.address}{self.chroot}?timeout={patience}&{SESSION}"
        return ports_through(uri, self.directory, source, effects)


def ports_through(
    uri: str, directory: Path, source: Partitions, effects: Effects | None = None
) -> JobPorts:
    """Return the ports of a new process that has a ledger."""
    # Keeper's own clock bounds the leases, so that the job's must be that one too.
    ports = ports_of(directory, source, effects=effects, clock=milliseconds)
    return replace(ports, ledger=open_ledger(uri, local_warehouse=None))


@pytest.fixture(scope="module")
def proxies() -> Iterator[Toxiproxy]:
    with toxiproxy() as server:
        yield server


@pytest.fixture
def kept(zookeeper_server: ZooKeeper, proxies: Toxiproxy, tmp_path: Path) -> KeptExport:
    """Return a new ledger and an empty warehouse."""
    proxy, chroot = proxies.before(zookeeper_server.port), new_chroot()
    (tmp_path / "ledger").write_text(f"keeper://{zookeeper_server.address}{chroot}")
    return KeptExport(tmp_path, proxy, chroot)


def loses_responses(proxy: Proxy) -> None:
    """Let what is asked be carried out, and nobody hear of it."""
    proxy.timeout(streams=FROM_SERVER)


def loses_requests(proxy: Proxy) -> None:
    """Let nothing arrive there, without anybody noticing at once."""
    proxy.timeout(streams=TO_SERVER)


def is_down(proxy: Proxy) -> None:
    """End the connection and refuse another one."""
    proxy.down()


FAULTS: Final = (loses_responses, loses_requests, is_down)


def named(fault: object) -> str:
    """Return a fault's name, or a step's, in words."""
    return str(getattr(fault, "__name__", fault)).replace("_", " ")


class Outage:
    """A fault of so many seconds, from the moment in which it is called."""

    def __init__(self, proxy: Proxy, fault: Callable[[Proxy], None], seconds: float) -> None:
        self._proxy, self._fault = proxy, fault
        self._end = threading.Timer(seconds, proxy.heal)
        self.happened = False

    def __call__(self) -> None:
        self.happened = True
        self._fault(self._proxy)
        self._end.start()

    def wait(self) -> None:
        """Return when it is over."""
        self._end.join()


@pytest.mark.parametrize("step", STEPS, ids=named)
@pytest.mark.parametrize("fault", FAULTS, ids=named)
def test_a_ledger_that_is_away_for_a_moment(
    kept: KeptExport, fault: Callable[[Proxy], None], step: Step
) -> None:
    """Harm prevented: a lost response is taken for "not done", and the export is made twice."""
    source = Partitions()
    outage = Outage(kept.proxy, fault, 0.3)
    ports = kept.ports(source, effects=AtStep(step, outage))

    first = statuses(run(kept.directory, source, ports=ports))

    assert outage.happened
    outage.wait()
    assert first == ["committed"] * 2
    assert_exported_once(kept.directory, source)
    again = statuses(run(kept.directory, source, ports=kept.ports(source)))
    assert again == ["already_exported"] * 2


@pytest.mark.parametrize("step", [Step.CLAIM, Step.SETTLE], ids=named)
def test_a_ledger_that_is_away_for_longer_than_a_session_lives(
    kept: KeptExport, step: Step
) -> None:
    """Harm prevented: what was ephemeral is gone, and the export goes on as if it were there."""
    source = Partitions()
    outage = Outage(kept.proxy, is_down, 4.0)
    ports = kept.ports(source, effects=AtStep(step, outage))

    first = statuses(run(kept.directory, source, ports=ports))

    assert outage.happened
    assert first == ["committed"] * 2
    assert_exported_once(kept.directory, source)


@pytest.mark.parametrize("step", STEPS, ids=named)
def test_a_ledger_that_stays_away(kept: KeptExport, step: Step) -> None:
    """Harm prevented: an export that waits for ever, or one that says less than what to do."""
    source = Partitions()
    effects = AtStep(step, kept.proxy.down)

    with pytest.raises(LedgerError) as raised:
        run(kept.directory, source, ports=kept.ports(source, effects=effects, patience=0.5))

    assert f"the ledger keeper://{kept.proxy.address}{kept.chroot}" in str(raised.value)
    assert "for 0.5 s. Check that its servers run" in str(raised.value)
    kept.proxy.heal()
    run(kept.directory, source, ports=kept.ports(source))
    assert_exported_once(kept.directory, source)
    assert rows_in_main(kept.directory) == sum(source.rows.values())


@pytest.mark.parametrize("fault", [loses_responses, loses_requests], ids=named)
def test_an_interrupted_process_leaves_soon_while_the_ledger_is_silent(
    kept: KeptExport, fault: Callable[[Proxy], None]
) -> None:
    """Harm prevented: Ctrl-C, or the end of the grace, is obeyed a minute later, or by SIGKILL."""
    source, notes = Partitions(), list[str]()

    def interrupted() -> None:
        fault(kept.proxy)
        raise KeyboardInterrupt

    ports = kept.ports(source, effects=AtStep(Step.WRITE_FILES, interrupted), patience=60)
    ports.observer.note = notes.append  # type: ignore[method-assign,assignment]
    began = time.monotonic()

    with pytest.raises(KeyboardInterrupt):
        run(kept.directory, source, ports=ports)

    assert time.monotonic() - began < ENDS_WITHIN
    (left,) = (note for note in notes if "could not release" in note)
    assert left.startswith("could not release 2 leases, which expire within 60 s: Can")
    kept.proxy.heal()
    wait_until(
        lambda: (
            statuses(run(kept.directory, source, ports=kept.ports(source))) == ["committed"] * 2
        ),
        "the leases ended by themselves",
    )
    assert_exported_once(kept.directory, source)


def test_a_slow_ledger(kept: KeptExport) -> None:
    source = Partitions()
    kept.proxy.latency(0.03)

    first = statuses(run(kept.directory, source, ports=kept.ports(source)))

    assert first == ["committed"] * 2
    assert_exported_once(kept.directory, source)


def test_every_change_whose_response_is_lost(zookeeper_server: ZooKeeper, tmp_path: Path) -> None:
    """Harm prevented: what was carried out is taken for "not done", at any of the changes."""
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5)})
    with keeper_relay(zookeeper_server.port) as relay:
        for number in itertools.count(1):
            directory, chroot = tmp_path / str(number), new_chroot()
            directory.mkdir()
            (directory / "ledger").write_text(f"keeper://{zookeeper_server.address}{chroot}")
            relay.lose_response(number)
            uri = f"keeper://127.0.0.1:{relay.port}{chroot}?{SESSION}"

            first = statuses(run(directory, source, ports=ports_through(uri, directory, source)))

            assert first == ["committed"], f"change {number}"
            assert_exported_once(directory, source)
            if not relay.happened:
                break

    assert number > 10


def test_an_ensemble_that_loses_its_leader(tmp_path: Path) -> None:
    """Harm prevented: what the last leader promised is asked of one that has not heard it."""
    source = Partitions()
    with zookeeper_ensemble() as servers:
        for step in (Step.CLAIM, Step.SETTLE):
            directory = tmp_path / step.name
            directory.mkdir()
            uri = f"keeper://{servers.address}{new_chroot()}"
            (directory / "ledger").write_text(uri)
            leader = servers.leader()
            lost = AtStep(step, leader.kill)

            first = run(directory, source, ports=ports_through(uri, directory, source, lost))

            assert servers.leader() is not leader
            assert statuses(first) == ["committed"] * 2
            assert_exported_once(directory, source)
            servers.start()


def test_the_command_whose_ledger_goes_away_while_it_writes(
    newest: Trouble, kept: KeptExport
) -> None:
    """Harm prevented: what was written for hours is lost with the ledger."""
    name = newest.filled("t")
    proxy = kept.proxy
    ledger = ("--ledger", f"keeper://{proxy.address}{kept.chroot}?timeout=1&{SESSION}")
    newest.while_writing(proxy.down)

    result = newest.export(name, *ledger)

    newest.assert_stopped(
        result, 4, f"the ledger {ledger[1]}", "for 1 s. Check that its servers run"
    )
    assert newest.in_lake(name) == []
    written = newest.files()
    proxy.heal()
    newest.assert_exported_once(name, *ledger)
    assert newest.files() == written
    assert "already exported" in newest.export(name, *ledger).out


def test_the_command_whose_ledger_is_back_before_it_commits(
    newest: Trouble, kept: KeptExport
) -> None:
    name = newest.filled("t")
    outage = Outage(kept.proxy, is_down, 4.0)
    newest.while_writing(outage)

    uri = f"keeper://{kept.proxy.address}{kept.chroot}?{SESSION}"
    newest.assert_exported_once(name, "--ledger", uri)

    assert outage.happened
