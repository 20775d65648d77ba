"""Processes that export from one host, and what they reported."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.world import Report, World
from tests.services.packets.networks import Host

__all__ = ["IN_MAIN", "Group", "became"]

IN_MAIN: Final = frozenset(("committed", "replaced", "unchanged", "already_exported"))
"""Outcomes that say that all rows of a partition are in main."""
_LOOK_SECONDS: Final = 0.1
_TLS: Final = "BAD_RECORD_MAC"
"""OpenSSL's word for bytes that are not those that were sent."""


@dataclass(frozen=True, slots=True)
class Group:
    """Exporters of one host; each writes its outcomes to a log of its own."""

    host: Host
    world: World
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, seed: int) -> None:
        """Start one more."""
        self.processes[f"worker-{seed}"] = self.host.run(*self.world.command(seed))

    def stop(self) -> None:
        """End them all."""
        for process in self.processes.values():
            process.kill()
            process.wait()

    def reports(self) -> list[Report]:
        """Return all of their outcomes."""
        return [report for name in self.processes for report in self.world.reports(name)]

    def has_exported(self, content: dict[str, list[int]], since: int) -> bool:
        """Whether in runs since a time (milliseconds) they reported all of it as in main."""
        exported = {
            (report.partition_id, report.rows)
            for report in self.reports()
            if report.begun >= since and report.status in IN_MAIN
        }
        return exported >= {(partition, sum(rows)) for partition, rows in content.items()}

    def runs(self) -> dict[str, int]:
        """Return how many runs each of them has ended."""
        return {name: len(self.world.waits(name)) for name in self.processes}

    def have_all_run_since(self, before: dict[str, int]) -> bool:
        """Whether each of them has ended a run more; not those that died."""
        died = self.died()
        return all(runs > before[name] or name in died for name, runs in self.runs().items())

    def errors(self) -> Counter[str]:
        """Return how many runs an error ended, and how many of them because TLS found a change."""
        texts = [text for name in self.processes for text in self.world.errors(name)]
        return Counter({"in all": len(texts), "by TLS": sum(_TLS in text for text in texts)})

    def statuses(self) -> Counter[str]:
        """Return how often they reported each status."""
        return Counter(report.status for report in self.reports())

    def died(self) -> list[str]:
        """Return those that ended by themselves, which none should."""
        return [name for name, process in self.processes.items() if process.poll() is not None]


def became(is_so: Callable[[], bool], seconds: float) -> bool:
    """Return whether something was so within a time, as soon as it was."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
