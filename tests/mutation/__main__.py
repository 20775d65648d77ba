"""Mutates the code behind requirements, and names those whose tests stay green.

    python -m tests.mutation --reach [--ids REGEX]     measure which functions each named test calls
    python -m tests.mutation [--ids REGEX] [--share 3/8] [--mutants 3] [--seed 1]

For each requirement of conformance/requirements.toml some functions are chosen that its named tests
call, rather those that most of them call and few other tests. One mutant of each is made in a
working tree of its own, and the requirement's tests that call the function run there. A mutant is
caught when one of them fails, and then the next requirement follows. It survives when they pass
although they run the mistake; a mistake that they do not run says nothing, and another one is made.
The run fails when all mutants of a requirement survive.
docs/contributing/tests.md says why the project has this program.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from conformance.requirements import Proved, Requirement, load_requirements
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.reach import load_reach

_ROOT: Final = Path(__file__).resolve().parents[2]
_REACH: Final = _ROOT / ".readers" / "reach"
_SECONDS: Final = 900
_TRIES: Final = 4
# For each mutant that is asked for: tests do not run most lines of what they call.
_FAILED: Final = (1, 2, 4)
# Exit codes of pytest: tests failed, interrupted by a collection error, or nothing to import.


class Result(Enum):
    """What the tests of a requirement did with a mutant."""

    CAUGHT = "caught  "
    SURVIVED = "SURVIVED"
    NOT_RUN = "not run "


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutant of a function, and what the tests of a requirement did with it."""

    requirement: str
    function: str
    mutant: Mutant
    result: Result
    tests: int
    seconds: float

    def __str__(self) -> str:
        path, _, name = self.function.partition(":")
        return (
            f"{self.result.value} {self.requirement}\n    {path} {name} {self.mutant}\n"
            f"    {self.tests} tests, {self.seconds:.0f} s"
        )


def main() -> int:
    """Run, print a line for each mutant and a summary; return 1 if a requirement's all survive."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--reach", action="store_true")
    parser.add_argument("--ids", default="", help="only requirements whose id this matches")
    parser.add_argument("--share", default="1/1", help="the K-th of N parts of the list, K/N")
    parser.add_argument("--mutants", type=int, default=3, help="at most, of each requirement")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    wanted = [one for one in load_requirements().all if re.search(given.ids, one.id)]
    if given.reach:
        return _measure_reach(wanted)
    reach = load_reach(_REACH)
    if not reach:
        _say("Cannot mutate: no test is measured. Run python -m tests.mutation --reach first.")
        return 2
    number, _, of = given.share.partition("/")
    wanted = [one for i, one in enumerate(wanted) if i % int(of) == int(number) - 1]
    trials: list[Trial] = []
    with _tree() as tree:
        for one in wanted:
            for trial in _trials(one, reach, tree, given.mutants, given.seed):
                trials.append(trial)
                _say(str(trial))
    return _summary(wanted, trials)


def _trials(
    one: Requirement,
    reach: Mapping[str, frozenset[str]],
    tree: Path,
    count: int,
    seed: int,
) -> Iterator[Trial]:
    tests = _tests_of(one)
    choice = random.Random(f"{seed} {one.id}")  # noqa: S311  a choice that can be made again
    left = count
    for function in _functions(one, reach, choice, _TRIES * count):
        path = tree / function.partition(":")[0]
        source = path.read_text(encoding="utf-8")
        mutant = choice.choice(mutants_of(source, function.partition(":")[2]))
        chosen = sorted(t for t in tests if function in reach.get(t, frozenset()))
        begun = time.monotonic()
        ran = tree.parent / "ran"
        ran.unlink(missing_ok=True)
        path.write_text(mutant.marked(str(ran)), encoding="utf-8")
        try:
            fails = _fails(chosen, tree)
        finally:
            path.write_text(source, encoding="utf-8")
        result = Result.CAUGHT if fails else Result.SURVIVED if ran.exists() else Result.NOT_RUN
        yield Trial(one.id, function, mutant, result, len(chosen), time.monotonic() - begun)
        left -= result is Result.SURVIVED
        if result is Result.CAUGHT or not left:
            return


def _functions(
    one: Requirement, reach: Mapping[str, frozenset[str]], choice: random.Random, count: int
) -> list[str]:
    """Return functions that the tests of a requirement call.

    The likelier, the more of these tests call a function, and the fewer others do: what the
    requirement is about, not what its tests happen to need.
    """
    tests = {t for t in _tests_of(one) if t in reach}
    callers: dict[str, set[str]] = {}
    for test, called in reach.items():
        for function in called:
            callers.setdefault(function, set()).add(test)
    able = sorted(f for f in set().union(*(reach[t] for t in tests)) if _has_mutants(f))
    found: list[str] = []
    while able and len(found) < count:
        (name,) = choice.choices(able, [likelihood(callers[f], tests) for f in able])
        able.remove(name)
        found.append(name)
    return found


def likelihood(callers: AbstractSet[str], tests: AbstractSet[str]) -> float:
    """Return how likely a function is chosen for a requirement, above 0 to 1.

    Args:
        callers: all named tests that call the function, at least one of `tests`.
        tests: the named tests of the requirement.
    """
    both = len(callers & tests)
    return math.pow(both / len(tests), 2) * math.pow(both / len(callers), 2)


@functools.cache
def _has_mutants(function: str) -> bool:
    path, _, name = function.partition(":")
    try:
        return bool(mutants_of((_ROOT / path).read_text(encoding="utf-8"), name))
    except (LookupError, OSError):
        # It was made while it ran, or moved since the tests were measured.
        return False


def _tests_of(one: Requirement) -> tuple[str, ...]:
    shares = (share for _, share in one.owners)
    return tuple(t for share in shares if isinstance(share, Proved) for t in share.tests)


def _fails(tests: Sequence[str], tree: Path) -> bool:
    """Whether a test fails in a tree; one that does not end fails too."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode in _FAILED


@contextmanager
def _tree() -> Iterator[Path]:
    """Return a working tree of the last commit, with the packages and servers of this one."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-mutation-") as root:
        tree = Path(root) / "main"
        git = ("git", "-C", str(_ROOT), "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), "HEAD"], check=True)
        try:
            for name in (".venv", ".readers"):
                (tree / name).symlink_to(_ROOT / name)
            for jar in _ROOT.glob("spark_ext/jvm/*.jar"):
                (tree / jar.relative_to(_ROOT)).symlink_to(jar)
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _measure_reach(wanted: Sequence[Requirement]) -> int:
    """Run the tests that requirements name, and write down what each calls."""
    for old in _REACH.glob("*.json"):
        old.unlink()
    tests = sorted({test for one in wanted for test in _tests_of(one)})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutation.reach"]
    at_once = ["--numprocesses", "3", "--dist", "loadfile", "--reach", str(_REACH)]
    return subprocess.run([*command, *at_once, *tests], cwd=_ROOT, check=False).returncode


def _summary(wanted: Sequence[Requirement], trials: Sequence[Trial]) -> int:
    caught = {trial.requirement for trial in trials if trial.result is Result.CAUGHT}
    tried = {trial.requirement for trial in trials}
    green = sorted(tried - caught)
    counts = Counter(trial.result for trial in trials)
    _say(
        f"{len(tried)} of {len(wanted)} requirements tried, {len(trials)} mutants: "
        f"{counts[Result.CAUGHT]} caught, {counts[Result.SURVIVED]} survived, "
        f"{counts[Result.NOT_RUN]} not run"
    )
    for name in green:
        _say(f"all mutants survived: {name}")
    return int(bool(green))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
