"""A process with a ledger in Keeper of its own; it performs its input, line by line.

    python -m tests.support.keeper_child URI NAME

`take SECONDS`, `renew SECONDS` of the lease `k`; `draw COUNT` epochs, one by one; `raise COUNT`
times or more the time to live of the row that is there, until somebody else came between once.
Each has one line of JSON as its result.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import closing
from dataclasses import asdict, replace

from catalog.ledgers.keeper.address import parse_keeper
from catalog.ledgers.keeper.ledger import KeeperLedger
from tableformat.ledger import Lease, Owner, Row
from tests.support.keeper_ledgers import a_row


def raised(ledger: KeeperLedger) -> bool:
    """Add 1 to the time to live by compare-and-set; return whether nobody came between."""
    row = ledger.read(a_row().key.hash)
    assert row is not None
    return isinstance(ledger.write(replace(row, ttl=row.ttl + 1)), Row)


def raised_until_refused(ledger: KeeperLedger, count: int) -> int:
    """Do that until it succeeded `count` times and was refused once; return the successes."""
    outcomes: Counter[bool] = Counter()
    while outcomes[True] < count or not outcomes[False]:
        outcomes[raised(ledger)] += 1
    return outcomes[True]


def run(ledger: KeeperLedger, owner: Owner) -> None:
    """Do what the lines of the input say."""
    lease: Lease | None = None
    for line in sys.stdin:
        what, number = line.split()
        result: object
        match what:
            case "take" | "renew":
                seconds = float(number)
                found = (
                    ledger.renew(lease, seconds)
                    if what == "renew" and lease is not None
                    else ledger.take_lease("k", owner, seconds)
                )
                lease = found if isinstance(found, Lease) else lease
                result = [type(found).__name__, asdict(found.owner)]
            case "draw":
                result = [ledger.next_epoch() for _ in range(int(number))]
            case "raise":
                result = raised_until_refused(ledger, int(number))
            case _:
                raise AssertionError(line)
        sys.stdout.write(f"{json.dumps(result)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with closing(KeeperLedger(parse_keeper(sys.argv[1], environment={}))) as made:
        run(made, Owner("host", 1, sys.argv[2]))
