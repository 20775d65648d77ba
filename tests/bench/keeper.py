"""What an exported partition costs a ledger in Keeper: requests of each step, and the largest node.

python -m tests.bench.keeper

Prints the table of docs/spec/keeper-ledger.md. A claim is the lease, the epoch, the row read and
written; settling is the row written and the lease given back. Nothing is measured in seconds.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Final

from catalog.ledgers.keeper.ledger import KeeperLedger
from tableformat.ledger import Lease, Record, Row, State
from tests.services.zookeeper import ZooKeeper, zookeeper
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

__all__ = ["PARTS", "Cost", "measure_keeper", "table"]

PARTS: Final = (1, 100, 10_000)
_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one partition: bytes of the largest node, and requests of each step."""

    parts: int
    greatest_node: int
    claim: int
    read: int
    settle: int


def measure_keeper(server: ZooKeeper, parts: int) -> Cost:
    """Measure a partition of so many parts, in a ledger that is there already.

    Raises:
        LedgerError: the server does not respond.
    """
    address = address_of(server.address)
    with opened(address) as ledger, peeking(address) as client:
        _written(ledger, a_row("before"))
        row = a_row(str(parts))
        start = ledger.requests
        lease = ledger.take_lease(row.key.hash, ME, _SECONDS)
        assert isinstance(lease, Lease)
        ledger.next_epoch()
        assert ledger.read(row.key.hash) is None
        claimed = _written(ledger, replace(row, claim=replace(row.claim, parts=many_parts(parts))))
        after_claim = ledger.requests
        assert ledger.read(row.key.hash) == claimed
        after_read = ledger.requests
        one = landed(5)
        done = Record(one, claimed.claim.parts, 1, 1, 180)
        _written(ledger, replace(claimed, state=State.COMPLETED, landed=(one,), done=done))
        ledger.release(lease)
        settled = ledger.requests
        sizes = [len(data) for data in nodes_below(client, address.chroot).values()]
        return Cost(
            parts,
            max(sizes),
            claim=after_claim - start,
            read=after_read - after_claim,
            settle=settled - after_read,
        )


def table(costs: list[Cost]) -> str:
    """Return the costs as the table of the page."""
    heads = [f"{c.parts:,} part{'s' if c.parts > 1 else ''}" for c in costs]
    rows = (
        ("greatest node, bytes", [c.greatest_node for c in costs]),
        ("requests of a claim (lease, epoch, row read, row written)", [c.claim for c in costs]),
        ("requests of a read of the row", [c.read for c in costs]),
        (
            "requests of its settling (row written, lease given back)",
            [c.settle for c in costs],
        ),
    )
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---|' * len(costs)}"]
    lines += [f"| {name} | {' | '.join(f'{n:,}' for n in figures)} |" for name, figures in rows]
    return "\n".join(lines)


def _written(ledger: KeeperLedger, row: Row) -> Row:
    made = ledger.write(row)
    assert isinstance(made, Row)
    return made


if __name__ == "__main__":
    with zookeeper() as running:
        sys.stdout.write(f"{table([measure_keeper(running, parts) for parts in PARTS])}\n")
