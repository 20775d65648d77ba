"""One process of a chaos run: exports everything, again and again, until it is killed.

    python -m tests.chaos.worker DIRECTORY SEED [RUNS]

Its leases end after a second, and every owner counts as living, so that a paused process loses its
partitions to another one, as on several hosts. What was interrupted is given up after two seconds.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sys
from dataclasses import replace
from pathlib import Path

from tableformat.errors import TableFormatError
from tableformat.export import leases
from tableformat.export.job import export
from tableformat.export.request import ExportOptions
from tableformat.ledger import Owner
from tests.chaos.world import World, clock, quiet
from tests.support.scenarios import ALL, ports_of

_ABANDONED_TTL = 2


def main() -> None:
    """Export until killed, or so many times."""
    directory, seed = Path(sys.argv[1]), int(sys.argv[2])
    left = int(sys.argv[3]) if len(sys.argv) > 3 else sys.maxsize
    world, chance = World(directory), random.Random(seed)  # noqa: S311  chaos, no secret
    name, me = f"worker-{seed}", Owner(socket.gethostname(), os.getpid(), str(seed))
    quiet()
    leases.LEASE_SECONDS, leases.RENEW_SECONDS = 1.0, 0.2  # type: ignore[misc]
    while left:
        left -= 1
        request = replace(
            ALL,
            options=ExportOptions(force=chance.random() < 0.1, manifest_ttl=1),
            commit_every=chance.choice((1, 7, 100)),
            abandoned_ttl=_ABANDONED_TTL,
        )
        begun = clock()
        ports = replace(
            ports_of(world.front, world.source(), clock=clock, alive=True),
            owner=me,
            job=name,
            job_is_alive=lambda _: True,
        )
        with contextlib.closing(ports.ledger):
            try:
                for outcome in export(request, ports, slots=1):
                    world.log(name, outcome, begun)
            except TableFormatError as error:
                world.log_error(name, error)
        world.log_wait(name, begun)


if __name__ == "__main__":
    main()
