"""One process of a chaos run: exports everything, again and again, until it is killed.

    python -m tests.chaos.worker DIRECTORY URI SEED [RUNS]

Its leases end after a second, and every owner counts as living, so that a paused process loses its
partitions to another one, as on several hosts. What was interrupted is given up after two seconds.
"""

from __future__ import annotations

import contextlib
import random
import sys
from dataclasses import replace
from pathlib import Path

from catalog.bounded_rest import TimeOuts
from catalog.iceberg import LOCAL_CATALOG, OpenedCatalog
from tableformat.errors import TableFormatError
from tableformat.export import expired, leases
from tableformat.export.claim import Wish
from tableformat.export.job import export
from tests.chaos.world import World, clock
from tests.scenarios import ALL, ports_of

_EXPIRES_AFTER = 2_000
_TIME_OUTS = TimeOuts(connect=5.0, read=0.5)


def main() -> None:
    """Export until killed, or so many times."""
    directory, uri, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    left = int(sys.argv[4]) if len(sys.argv) > 4 else sys.maxsize
    world, chance = World(directory), random.Random(seed)  # noqa: S311  chaos, no secret
    leases.LEASE_SECONDS, leases.RENEW_SECONDS = 1.0, 0.2  # type: ignore[misc]
    expired.EXPIRES_AFTER = _EXPIRES_AFTER  # type: ignore[misc]
    lake = opened(uri)
    while left:
        left -= 1
        request = replace(
            ALL,
            wish=Wish(force=chance.random() < 0.1, ttl=1),
            commit_every=chance.choice((1, 7, 100)),
        )
        begun = clock()
        ports = replace(
            ports_of(directory, world.source(), clock=clock, alive=True),
            lake=lake,
            job=f"worker-{seed}",
            job_is_alive=lambda _: True,
        )
        with contextlib.closing(ports.ledger), contextlib.suppress(TableFormatError):
            for outcome in export(request, ports, slots=1):
                world.log(f"worker-{seed}", outcome, begun)


def opened(uri: str) -> OpenedCatalog:
    """Open the catalog that lies, as every process of a chaos run does."""
    return OpenedCatalog(LOCAL_CATALOG, None, {"type": "rest", "uri": uri}, _TIME_OUTS)


if __name__ == "__main__":
    main()
