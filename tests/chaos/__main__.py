"""Chaos: processes that export, clean up and cancel, kills, a catalog that lies, operators.

Then the truth, and what is left when everything was cleaned up.

    python -m tests.chaos --minutes 10 --workers 4 --partitions 60 --seed 7 [--far]

Far, ledger and lake are in services, which are also killed and cut off (`setting.py`). Prints
what was done and what the judge found, and ends with 1 when anything is wrong. Part of `make soak`.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException

from tests.chaos.ends import begin, counted, end, say
from tests.chaos.setting import Setting, far, local
from tests.chaos.world import World, quiet
from tests.lying_catalog.faults import WAITING, Asked, every_fault
from tests.support.scenarios import pyiceberg, state

_LIES: Final = [
    *(f for f in every_fault() if f.kind not in WAITING),
    *every_fault(Asked.LOAD),
]
_ROUND_SECONDS: Final = 0.8
_MOST_GROWN: Final = 6


@dataclass
class _Chaos:
    """What happens, and how often it did."""

    world: World
    setting: Setting
    chance: random.Random
    most: int
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    cleaner: subprocess.Popen[bytes] | None = None
    done: Counter[str] = field(default_factory=Counter)

    def begin(self) -> None:
        """Export everything, with nothing in the way."""
        self.setting.calm(self.world)
        begin(self.world)
        self.setting.rough(self.world)

    def start(self) -> None:
        """Start workers until there are enough, and one that cleans up and cancels."""
        self.workers = [p for p in self.workers if p.poll() is None]
        while len(self.workers) < self.most:
            self.workers.append(self.run(self.chance.randrange(10**9)))
        if self.cleaner is None or self.cleaner.poll() is not None:
            self.cleaner = self.run(self.chance.randrange(10**9), program="cleaner")

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        """All that run, or did until a moment ago."""
        return [*self.workers, *([self.cleaner] if self.cleaner is not None else [])]

    def run(self, seed: int, program: str = "worker") -> subprocess.Popen[bytes]:
        """Start one process."""
        return subprocess.Popen(self.world.command(seed, program=program))

    def act(self) -> None:
        """Do one act that may happen."""
        acts = (
            (6, self.kill), (2, self.pause), (3, self.grow), (8, self.lie), (3, self.deliver),
            (1, self.append), (1, self.expire), (1, self.move_main), *self.setting.acts,
        )  # fmt: skip
        act = self.chance.choices([a for _, a in acts], [w for w, _ in acts])[0]
        try:
            act()
            self.done[act.__name__] += 1
        except (CommitFailedException, ValueError, AssertionError):
            # An operator who came too late, or too early, as they do.
            self.done[f"{act.__name__} in vain"] += 1

    def kill(self) -> None:
        """Kill a process without notice."""
        process = self.chance.choice(self.processes)
        process.kill()
        process.wait()

    def pause(self) -> None:
        """Stop a process for longer than its leases live."""
        process = self.chance.choice(self.processes)
        process.send_signal(signal.SIGSTOP)
        time.sleep(2.0)
        process.send_signal(signal.SIGCONT)

    def grow(self) -> None:
        """Insert into a few partitions of the source."""
        content = self.world.content()
        for partition in self.chance.sample(sorted(content), self.chance.randint(1, _MOST_GROWN)):
            content[partition].append(self.chance.randint(1, 9))
        self.world.write(content)

    def lie(self) -> None:
        """Put lies on the catalog's list."""
        self.setting.catalog.lie(*self.chance.choices(_LIES, k=self.chance.randint(1, 4)))

    def deliver(self) -> None:
        """Let a request arrive that its client gave up long ago."""
        late = self.setting.catalog.held
        for held in self.chance.sample(late, min(2, len(late))):
            held.apply()

    def append(self) -> None:
        """Append rows as another engine does."""
        table = pyiceberg(self.world.directory)
        table.append(pa.table([pa.array([1, 2, 3])], table.schema().as_arrow()))

    def expire(self) -> None:
        """Expire a few of the oldest snapshots that no reference holds."""
        table = pyiceberg(self.world.directory)
        main = state(self.world.directory).main
        old = [s.snapshot_id for s in table.metadata.snapshots[:-20] if s.snapshot_id != main]
        table.maintenance.expire_snapshots().by_ids(old[1:6]).commit()

    def move_main(self) -> None:
        """Roll main back a little, and forward again: what an operator does who looks around."""
        table = pyiceberg(self.world.directory)
        before = state(self.world.directory).main
        back = self.chance.choice(table.metadata.snapshots[-4:]).snapshot_id
        table.manage_snapshots().set_current_snapshot(snapshot_id=back).commit()
        now = state(self.world.directory)
        if now.main == back and before is not None:
            pyiceberg(self.world.directory).manage_snapshots().set_current_snapshot(
                snapshot_id=before
            ).commit()

    def stop(self) -> None:
        """End every worker."""
        for process in self.processes:
            process.kill()
            process.wait()


def main() -> int:
    """Run, judge, tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--partitions", type=int, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--far", action="store_true", help="over Keeper, REST and S3")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(10**6)  # noqa: S311  chaos
    say(f"seed {seed}, {given.workers} workers, {given.partitions} partitions")
    quiet()
    with tempfile.TemporaryDirectory(prefix="mergeberg-chaos-") as name:
        world, chance = World(Path(name)), random.Random(seed)  # noqa: S311  chaos
        world.write({f"p{n}": [chance.randint(1, 9)] for n in range(given.partitions)})
        with far(world, chance) if given.far else local(world) as setting:
            chaos = _Chaos(world, setting, chance, given.workers)
            try:
                chaos.begin()
                ends = time.monotonic() + given.minutes * 60
                while time.monotonic() < ends:
                    chaos.start()
                    time.sleep(chance.uniform(0, _ROUND_SECONDS))
                    chaos.act()
            finally:
                chaos.stop()
            return _judged(chaos)


def _judged(chaos: _Chaos) -> int:
    """Let everything arrive that is under way, run quietly, and look."""
    chaos.setting.calm(chaos.world)
    for held in chaos.setting.catalog.held:
        held.apply()
    verdict = end(chaos.world)
    lies = Counter(str(f.kind) for f in chaos.setting.catalog.served)
    say(f"happened: {counted(chaos.done)}")
    say(f"lies: {counted(lies)}")
    verdict.show()
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
