"""Both ends of a run, where nothing disturbs it: all is exported once, and in the end judged."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tableformat.export.gc import Sweeping
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Row
from tests.chaos.cleaner import cleaning
from tests.chaos.judge import Judge
from tests.chaos.world import Report, World, clock
from tests.support.explained import unexplained
from tests.support.scenarios import ledger_rows, pyiceberg, state

__all__ = ["Verdict", "begin", "counted", "end", "say"]

_QUIET_RUNS: Final = 6
_CLEANINGS: Final = 2
_MOST_SHOWN: Final = 20
_SETTLED: Final = frozenset(("committed", "replaced", "unchanged", "already_exported"))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the processes reported, what was cleaned up, and all that is wrong."""

    reports: Counter[str]
    longest_wait: float
    removed: Counter[str]
    left: int
    """How many files nothing explained before the last cleaning."""
    versions: int
    wrong: tuple[str, ...]

    def show(self) -> None:
        """Print it."""
        say(f"answers: {counted(self.reports)}; longest wait {self.longest_wait:.1f} s")
        cleaned = f"cleaned up: {counted(self.removed)}"
        say(f"{cleaned}; {self.left} files unexplained before the last time")
        kinds = Counter(text.partition(":")[0] for text in self.wrong)
        say(f"versions {self.versions}, wrong {len(self.wrong)}: {counted(kinds)}")
        for text in self.wrong[:_MOST_SHOWN]:
            say(f"WRONG {text}")


def begin(world: World) -> None:
    """Export everything once; what other engines append would be refused before that."""
    _run(world, 0)
    statuses = {report.partition_id: report.status for report in world.reports()}
    assert statuses == dict.fromkeys(world.content(), "committed"), statuses
    # For the judge, who reads every version of the table: by default old ones are deleted.
    with pyiceberg(world.directory).transaction() as transaction:
        transaction.set_properties(
            {
                "write.metadata.delete-after-commit.enabled": "false",
                "write.metadata.previous-versions-max": "1000000",
            }
        )


def end(world: World) -> Verdict:
    """Run quietly until everything is settled, clean up, and judge."""
    # The leases of ended processes have expired then.
    time.sleep(1.2)
    for n in range(_QUIET_RUNS):
        _run(world, n + 1)
        time.sleep(1.1)
    left = len(unexplained(world.directory))
    for n in range(_CLEANINGS):
        _run(world, n, program="cleaner")
    keys = {r.key.partition_id: r.key.hash for r in ledger_rows(world.directory)}
    judge = Judge(state(world.directory).metadata_location, keys, world.removed.io())
    versions = judge.read()
    reports = world.reports()
    wrong = [*judge.wrong, *(f"false: {a}" for a in judge.false_reports(reports, versions))]
    if missing := judge.dangling(table_of(state(world.directory)).metadata, world.locations()):
        wrong.append(f"dangling: {missing} files")
    wrong += _unexplained(world)
    wrong += _lost(world, reports, judge.rows_in(versions[-1]))
    statuses = Counter(a.status for a in reports)
    removed = Counter(_kind(Path(name)) for name in world.removed.names())
    return Verdict(statuses, world.longest_wait(), removed, left, len(versions), tuple(wrong))


def _run(world: World, seed: int, program: str = "worker") -> None:
    subprocess.run(world.command(seed, "1", program=program), check=False)


def _lost(world: World, reports: list[Report], there: dict[str, int]) -> Iterator[str]:
    """Yield the partitions that are not whole, or that no last report calls whole."""
    last = _last_reports([a for a in reports if a.status != "killed"])
    for partition, rows in world.content().items():
        report, found = last.get(partition), there.get(partition, 0)
        if report is None:
            yield f"not settled: nobody was told of {partition}"
        elif report.status == "refused" and "main was moved away from it" in report.message:
            continue
        elif report.status not in _SETTLED:
            yield f"not settled: {report}"
        elif found != sum(rows):
            yield f"lost: {partition} has {found} of {sum(rows)} rows: {report}"


def _unexplained(world: World) -> Iterator[str]:
    """Yield what nothing explains, with what `gc` says of it and the ledger of its key."""
    found = unexplained(world.directory)
    with cleaning(world) as (of, held):
        garbage = Sweeping(of, held, of.ports.ledger.holder, 0, clock()).find() if found else ()
    why = {one.location: one.why for one in garbage}
    rows = {r.key.hash: _briefly(r) for r in ledger_rows(world.directory)}
    for path in found:
        reasons = [text for location, text in why.items() if location.endswith(f"/{path}")]
        of_it = [text for key, text in rows.items() if key in path]
        yield f"unexplained: {path}: {[*reasons, *of_it]}"


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


def _last_reports(reports: list[Report]) -> dict[str, Report]:
    return {a.partition_id: a for a in sorted(reports, key=lambda a: a.ended)}


def counted(of: Counter[str]) -> str:
    """Return how often each kind happened, as text."""
    return ", ".join(f"{name} {number}" for name, number in sorted(of.items()))


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
