"""Chaos: processes that export, clean up and cancel, kills, a catalog that lies, operators.

Then the truth, and what is left when everything was cleaned up.

    python -m tests.chaos --minutes 10 --workers 4 --partitions 60 --seed 7 [--far]

Far, ledger and lake are in services, which are killed and cut off besides (`setting.py`). Prints
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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException

from tableformat.export.sweeping import Sweeping
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Row
from tests.chaos.cleaner import cleaning
from tests.chaos.judge import Judge
from tests.chaos.setting import Setting, far, local
from tests.chaos.world import Answered, World, clock, quiet
from tests.explained import unexplained
from tests.lying_catalog.faults import WAITING, Asked, every_fault
from tests.scenarios import ledger_rows, pyiceberg, state

_LIES: Final = [
    *(f for f in every_fault() if f.kind not in WAITING),
    *every_fault(Asked.LOAD),
]
_ROUND_SECONDS: Final = 0.8
_MOST_GROWN: Final = 6
_QUIET_RUNS: Final = 6
_CLEANINGS: Final = 2
_MOST_TOLD: Final = 20


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
        """Export everything once; what other engines append would be refused before that."""
        self.setting.calm(self.world)
        self.run(0, "1").wait()
        told = {said.partition_id: said.status for said in self.world.answers()}
        assert told == dict.fromkeys(self.world.content(), "committed"), told
        self._keep_every_version()
        self.setting.rough(self.world)

    def _keep_every_version(self) -> None:
        """Let the judge read every version of the table: by default old ones are deleted."""
        with pyiceberg(self.world.directory).transaction() as transaction:
            transaction.set_properties(
                {
                    "write.metadata.delete-after-commit.enabled": "false",
                    "write.metadata.previous-versions-max": "1000000",
                }
            )

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

    def run(self, seed: int, *more: str, program: str = "worker") -> subprocess.Popen[bytes]:
        """Start one process."""
        words = [str(self.world.directory), str(seed), *more]
        return subprocess.Popen([sys.executable, "-m", f"tests.chaos.{program}", *words])

    def act(self) -> None:
        """Do one thing that may happen."""
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
    _say(f"seed {seed}, {given.workers} workers, {given.partitions} partitions")
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
    time.sleep(1.2)
    for n in range(_QUIET_RUNS):
        chaos.run(n + 1, "1").wait()
        time.sleep(1.1)
    world = chaos.world
    keys = {r.key.partition_id: r.key.hash for r in ledger_rows(world.directory)}
    before = len(unexplained(world.directory))
    for n in range(_CLEANINGS):
        chaos.run(n, "1", program="cleaner").wait()
    judge = Judge(state(world.directory).metadata_location, keys, world.removed.io())
    versions = judge.read()
    answers = world.answers()
    wrong = [*judge.wrong, *(f"false: {a}" for a in judge.false_answers(answers, versions))]
    if missing := judge.dangling(table_of(state(world.directory)).metadata, world.locations()):
        wrong.append(f"dangling: {missing} file(s)")
    wrong += _unexplained(world)
    last = _last_answers([a for a in answers if a.status != "killed"])
    there = judge.rows_in(versions[-1])
    for partition, rows in world.content().items():
        said, found = last.get(partition), there.get(partition, 0)
        if said is None:
            wrong.append(f"not settled: nobody was told of {partition}")
        elif said.status == "refused" and "main was moved away from it" in said.message:
            continue
        elif said.status not in {"committed", "replaced", "unchanged", "already_exported"}:
            wrong.append(f"not settled: {said}")
        elif found != sum(rows):
            wrong.append(f"lost: {partition} has {found} of {sum(rows)} rows: {said}")
    told = Counter(a.status for a in answers)
    lies = Counter(str(f.kind) for f in chaos.setting.catalog.told)
    _say(f"happened: {_counted(chaos.done)}")
    _say(f"lies: {_counted(lies)}")
    _say(f"answers: {_counted(told)}; longest wait {world.longest_wait():.1f} s")
    removed = Counter(_kind(Path(name)) for name in world.removed.names())
    _say(f"cleaned up: {_counted(removed)}; {before} file(s) unexplained before the last time")
    kinds = Counter(text.partition(":")[0] for text in wrong)
    _say(f"versions {len(versions)}, wrong {len(wrong)}: {_counted(kinds)}")
    for text in wrong[:_MOST_TOLD]:
        _say(f"WRONG {text}")
    return 1 if wrong else 0


def _unexplained(world: World) -> Iterator[str]:
    """Yield what nothing explains, with what `gc` says of it and the ledger of its key."""
    found = unexplained(world.directory)
    with cleaning(world) as (of, held):
        things = Sweeping(of, held, of.ports.ledger.holder, 0, clock()).find() if found else ()
    why = {one.location: one.why for one in things}
    rows = {r.key.hash: _briefly(r) for r in ledger_rows(world.directory)}
    for path in found:
        said = [text for location, text in why.items() if location.endswith(f"/{path}")]
        of_it = [text for key, text in rows.items() if key in path]
        yield f"unexplained: {path}: {[*said, *of_it]}"


def _briefly(row: Row) -> str:
    """Return how far the exports of a key are, each with its epoch."""
    old = [f"{c.transaction_id}@{c.epoch}" for c in row.old]
    landed = [f"{x.transaction_id}@{x.epoch} in {x.sequence_number}" for x in row.landed]
    claim = f"{row.claim.transaction_id}@{row.claim.epoch}"
    return f"{row.state} {claim}, old {old}, landed {landed}, {row.last_error!r}"


def _kind(path: Path) -> str:
    """Return what a file that was cleaned up is."""
    if "groups" in path.parts:
        return "list"
    ends = path.name.partition(".")[2]
    return "manifest" if ends == "avro" else ends


def _counted(of: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(of.items()))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _last_answers(answers: list[Answered]) -> dict[str, Answered]:
    return {a.partition_id: a for a in sorted(answers, key=lambda a: a.ended)}


if __name__ == "__main__":
    sys.exit(main())
