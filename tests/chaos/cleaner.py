"""One process of a chaos run that cleans up and cancels at random moments, until it is killed.

    python -m tests.chaos.cleaner DIRECTORY SEED [RUNS]

With a number of runs it only cleans up, so often. As for the workers, leases end after a second and
every owner counts as living.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tableformat.effects import Direct
from tableformat.errors import TableFormatError
from tableformat.export import leases
from tableformat.export.cleanup import Cleaning
from tableformat.export.commit import Ports
from tableformat.export.gc import Sweeping
from tableformat.export.give_up import GivenUp, kill
from tableformat.export.leases import Leases
from tableformat.export.outcome import Outcome, Status
from tableformat.ledger import State
from tests.chaos.world import World, clock, quiet
from tests.support.scenarios import TO, ports_of

_LONGEST_PAUSE = 1.5
_CANCELS = 0.4


def main() -> None:
    """Clean up and cancel until killed, or clean up so many times."""
    directory, seed = Path(sys.argv[1]), int(sys.argv[2])
    world, chance = World(directory), random.Random(seed)  # noqa: S311  chaos, no secret
    quiet()
    leases.LEASE_SECONDS, leases.RENEW_SECONDS = 1.0, 0.2  # type: ignore[misc]
    if len(sys.argv) > 3:
        for _ in range(int(sys.argv[3])):
            clean(world)
        return
    while True:
        time.sleep(chance.uniform(0, _LONGEST_PAUSE))
        # What the catalog lies about is an error, and the next turn comes.
        with contextlib.suppress(TableFormatError):
            if chance.random() < _CANCELS:
                cancel(world, chance, f"cleaner-{seed}")
            else:
                clean(world)


def clean(world: World) -> None:
    """Do what `mergeberg gc --yes` does."""
    with cleaning(world) as (of, held):
        Sweeping(of, held, of.ports.ledger.holder, 0, clock()).sweep()


def cancel(world: World, chance: random.Random, name: str) -> None:
    """Do what `mergeberg exports cancel` does to a running export; log the outcome."""
    with cleaning(world) as (of, held):
        running = [r for r in of.ports.ledger.rows() if r.state is State.RUNNING]
        if not running:
            return
        row, begun = chance.choice(running), clock()
        held.take_over(row.key.hash)
        ended = kill(of.ports, row.key.hash, state=State.KILLED)
        if isinstance(ended, GivenUp):
            killed = ended.row.claim.transaction_id
            outcome = Outcome(row.key.partition_id, Status.KILLED, str(TO), killed)
            world.log(name, outcome, begun)
            of.clean(row.key.hash)


@contextlib.contextmanager
def cleaning(world: World) -> Iterator[tuple[Cleaning, Leases]]:
    """Open everything as the commands do."""
    ports = ports_of(world.front, world.source(), clock=clock, alive=True)
    table = ports.lake.table(TO)
    assert table is not None
    location = table.load().location
    held = Leases(ports.ledger, ports.owner, effects=Direct(), is_alive=ports.is_alive)
    acts = Ports(Direct(), table, ports.ledger, clock, lambda _: time.sleep(0.05))
    with contextlib.closing(ports.ledger), held:
        yield Cleaning(acts, world.removed.storage, location), held


if __name__ == "__main__":
    main()
