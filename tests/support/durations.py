"""What tests cost, as tests/durations.json has it, and the rule that a test stays within its tier.

The file lists the test functions that cost something, by their worst case, and the files whose
fixtures do. What it does not list is cheap, or new: `make test-all` measures every test, and fails
where one costs more than its tier allows. `make durations` writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.measured import Cost

__all__ = ["DURATIONS", "Durations", "function_of", "load_durations"]

DURATIONS: Final = Path(__file__).resolve().parents[1] / "durations.json"
"""The file."""
_LEAST: Final = 0.2
"""Seconds below which nothing is listed."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds, the larger of wall time and CPU time."""

    tests: Mapping[str, float] = field(default_factory=dict)
    """`path::function`, and what its worst case cost."""
    files: Mapping[str, float] = field(default_factory=dict)
    """`path`, and what its fixtures of a wider scope than one test cost."""

    def of(self, nodeid: str) -> float:
        """Return what a test costs, 0 where nothing is known."""
        return self.tests.get(function_of(nodeid), 0.0)

    def around(self, nodeid: str) -> float:
        """Return what the fixtures of its file cost."""
        return self.files.get(nodeid.partition("::")[0], 0.0)


def function_of(nodeid: str) -> str:
    """Return the id of a test without its case: `path::name` or `path::Class::name`."""
    return nodeid.partition("[")[0]


def load_durations(path: Path = DURATIONS) -> Durations:
    """Read the file; nothing is known where there is none."""
    if not path.exists():
        return Durations()
    found = json.loads(path.read_text(encoding="utf-8"))
    return Durations(found["tests"], found["files"])


def dump_durations(tests: Mapping[str, Cost], shared: Mapping[str, Cost]) -> str:
    """Return the text of the file.

    Args:
        tests: what each case cost.
        shared: what fixtures cost, by file or by `session: name`.
    """
    worst: dict[str, float] = {}
    for nodeid, cost in tests.items():
        name = function_of(nodeid)
        worst[name] = max(worst.get(name, 0.0), *cost)
    files = {name: max(cost) for name, cost in shared.items() if name.endswith(".py")}
    found = {"files": _listed(files), "tests": _listed(worst)}
    return json.dumps(found, indent=0, sort_keys=True) + "\n"


def _listed(costs: Mapping[str, float]) -> dict[str, float]:
    return {name: round(cost, 1) for name, cost in costs.items() if cost >= _LEAST}
