"""What tests cost, as tests/durations.json has it, and the rule that a test stays within its tier.

    python -m tests.support.durations MEASURED

writes the file from what `pytest --measure MEASURED` wrote. It lists the test functions whose cases
cost something together, by the mean of a case, and the files whose fixtures do. A test that the run
left out keeps its entry of the file, as long as its file is there. What the file does not list
is cheap, or new: `make test-all` measures every test, and fails where one costs more than its tier
allows. The seconds are those of the machine that measured first: what a slower one measures counts
less, by the median of what all listed tests cost there.

    python -m tests.support.durations MEASURED --table

prints how many tests of each folder that run ran, and their CPU seconds, and writes nothing.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["DURATIONS", "Cost", "Durations", "function_of", "load_durations", "slowness"]

Cost = tuple[float, float]
"""Wall seconds and CPU seconds."""

DURATIONS: Final = Path(__file__).resolve().parents[1] / "durations.json"
"""The file."""
_LEAST: Final = 0.1
"""Seconds below which nothing is listed."""
_ENOUGH: Final = 100
"""Of so many listed tests the median tells of the machine, and not of one of them."""


@dataclass(frozen=True, slots=True)
class Durations:
    """CPU seconds of a process and of all that it starts."""

    tests: Mapping[str, float] = field(default_factory=dict)
    """`path::function`, and what a case of it costs, in the mean."""
    files: Mapping[str, float] = field(default_factory=dict)
    """`path`, and what its fixtures of a wider scope than one test cost."""

    def of(self, nodeid: str) -> float:
        """Return what a case of a test costs, 0 where nothing is known."""
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


def slowness(tests: Mapping[str, Cost], known: Durations) -> float:
    """Return how many times as many CPU seconds as listed the tests of a run cost on this machine.

    It is the median over the listed tests: a few that became dearer do not change it. It is 1 for a
    run of few listed tests, and on a machine that is faster than the one that measured the file.

    Args:
        tests: what each case cost.
        known: what the file lists.
    """
    now = {name: cost for name, cost in _means(tests).items() if known.tests.get(name)}
    if len(now) < _ENOUGH:
        return 1.0
    return max(1.0, statistics.median(cost / known.tests[name] for name, cost in now.items()))


def dump_durations(
    tests: Mapping[str, Cost], shared: Mapping[str, Cost], before: Durations | None = None
) -> str:
    """Return the text of the file.

    Args:
        tests: what each case cost.
        shared: what fixtures cost, by file or by `session: name`.
        before: what is kept of tests and files that were not measured.
    """
    known = before or Durations()
    slower = slowness(tests, known)
    cases = Counter(map(function_of, tests))
    means = {name: cost / slower for name, cost in _means(tests).items()}
    listed = {n: round(cost, 3) for n, cost in means.items() if cost * cases[n] >= _LEAST}
    files = {name: cpu / slower for name, (_, cpu) in shared.items() if name.endswith(".py")}
    ran = {name.partition("::")[0] for name in means}
    kept_tests = {name: cost for name, cost in known.tests.items() if name not in means}
    kept_files = {name: cost for name, cost in known.files.items() if name not in ran}
    found = {"files": kept_files | _listed(files), "tests": kept_tests | listed}
    return json.dumps(found, indent=0, sort_keys=True) + "\n"


def _means(tests: Mapping[str, Cost]) -> dict[str, float]:
    """Return what a case of each test cost, in the mean."""
    cases: dict[str, list[float]] = {}
    for nodeid, (_, cpu) in tests.items():
        cases.setdefault(function_of(nodeid), []).append(cpu)
    return {name: sum(costs) / len(costs) for name, costs in cases.items()}


def by_folder(tests: Mapping[str, Cost]) -> list[tuple[str, int, float]]:
    """Return each folder below `tests/` with how many cases ran and their CPU seconds."""
    found: dict[str, list[float]] = {}
    for nodeid, (_, cpu) in tests.items():
        folder = "/".join(nodeid.partition("::")[0].split("/")[:3][:-1])
        found.setdefault(folder, []).append(cpu)
    return [(name, len(costs), sum(costs)) for name, costs in sorted(found.items())]


def _listed(costs: Mapping[str, float]) -> dict[str, float]:
    return {name: round(cost, 1) for name, cost in costs.items() if cost >= _LEAST}


def main(measured: Path, path: Path = DURATIONS) -> None:
    """Write the file from the costs of a run."""
    found = json.loads(measured.read_text(encoding="utf-8"))
    known = load_durations(path)
    before = Durations(_of_files_there(known.tests), _of_files_there(known.files))
    path.write_text(dump_durations(found["tests"], found["shared"], before), encoding="utf-8")


def _of_files_there(costs: Mapping[str, float]) -> dict[str, float]:
    root = DURATIONS.parents[1]
    return {name: c for name, c in costs.items() if (root / name.partition("::")[0]).is_file()}


def _print_table(measured: Path) -> None:
    rows = by_folder(json.loads(measured.read_text(encoding="utf-8"))["tests"])
    rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    for name, count, cpu in rows:
        sys.stdout.write(f"{name:<40}{count:>8,}{cpu:>10,.1f} s\n")


if __name__ == "__main__":
    if sys.argv[2:] == ["--table"]:
        _print_table(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]))
