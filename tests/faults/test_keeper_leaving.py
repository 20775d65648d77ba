"""A process that leaves while Keeper is silent leaves soon, and gets a response if there is one."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from catalog.ledgers.keeper.ledger import KeeperLedger
from tableformat.errors import LedgerError
from tableformat.ledger import Lease
from tests.services.zookeeper import ZooKeeper
from tests.support.keeper_ledgers import ME, a_row, address_of, opened
from tests.support.time_bounds import ENDS_WITHIN

KEY = a_row().key.hash


def test_a_process_that_leaves_waits_a_bounded_time_for_its_requests(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: what an interruption still notes is waited for a minute each."""
    ledger = KeeperLedger(replace(address_of(zookeeper_server.address), seconds=60.0))
    ledger.write(a_row())
    zookeeper_server.pause()
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ledger.read, KEY)
        ledger.leave()
        for _ in range(20):
            with pytest.raises(LedgerError, match="Check that its servers run"):
                ledger.read(KEY)
        with pytest.raises(LedgerError, match="Check that its servers run"):
            asked.result()
    ledger.close()

    assert time.monotonic() - began < ENDS_WITHIN


def test_a_process_that_leaves_still_gets_its_response(zookeeper_server: ZooKeeper) -> None:
    """Harm prevented: nobody hears that it was interrupted, and its leases stay."""
    with opened(address_of(zookeeper_server.address)) as ledger:
        ledger.write(a_row())
        lease = ledger.take_lease(KEY, ME, 60.0)
        assert isinstance(lease, Lease)
        ledger.leave()

        row = ledger.read(KEY)
        assert row is not None
        ledger.write(replace(row, last_error="interrupted"))
        ledger.release(lease)

        assert ledger.holder(KEY) is None
        after = ledger.read(KEY)
        assert after is not None
        assert after.last_error == "interrupted"
