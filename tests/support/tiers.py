"""Which command runs a test: `make check`, `make test`, `make test-all` or `make soak`.

A plugin of pytest, loaded by pyproject.toml. `--tier check|test|all|soak` runs a tier; each of the
first three also runs those before it. Without the option everything but soak is run, so that a file
can be named by hand. The page docs/contributing/tests.md says what each tier is for.

A test belongs to the first tier of this list that fits:

1. soak: it is marked `soak`.
2. all: it is marked `nightly`, or needs a server that is compiled or installed first.
3. test: it is marked `representative` or `pinned`.
4. all: a case costs more than `MOST_OF_TEST`.
5. all: the cases of its test cost more than that together, and at this commit others are in turn.
6. test: it is marked `spark`, needs a server that `make check` does not fetch, or it or its file
   costs more than `make check` has time for: all cases of a test together.
7. check.

`tests/durations.json` says what a test costs.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from tests.support.durations import Durations, function_of, load_durations
from tests.support.measured import MOST

__all__ = [
    "Selection", "Tier", "check_nightly", "dear_files_first", "in_turn", "share_of",
    "share_of_commit", "tiers_of",
]  # fmt: skip

T = TypeVar("T")

MOST_OF_CHECK: Final = 0.22
"""CPU seconds that all cases of a test may cost in `make check`."""
MOST_AROUND_CHECK: Final = 0.5
"""CPU seconds that the fixtures of its file may cost."""
MOST_OF_TEST: Final = 1.1
"""CPU seconds that all cases of a test may cost in `make test`."""
DEAR_FILE: Final = 5.0
"""CPU seconds of a file that one of several processes begins before all cheaper ones."""
TURNS: Final = 8
"""Of so many cases of an enumeration `make test` tries one."""
_ROOM: Final = 10
# A busy machine, the first call of a library and one dear case among cheap ones cost several times
# the mean.
NIGHTLY_FIXTURES: Final = frozenset(
    (
        *("minio_server", "minio_server_of_session"),
        *("gs_server_of_session", "abfs_server_of_session", "hdfs_of_session"),
        *("old_servers", "old_pair_of_session"),
    )
)
"""Fixtures of servers that only `make test-all` compiles or installs."""
FETCHED_FIXTURES: Final = frozenset(("s3_server", "s3_server_of_session"))
"""Fixtures of servers that `make test` fetches, and `make check` does not."""
_TIER_VARIABLE: Final = "MERGEBERG_TESTS_TIER"
# Names the tier to all processes of a run.
_SHARE_VARIABLE: Final = "MERGEBERG_TESTS_SHARE"
# Names the share to all processes of a run.
_OF_SEVERAL: Final = "PYTEST_XDIST_WORKER"
# Set in each of several processes that run tests.
_COMMANDS: Final = {"check": "make test", "test": "make test-all"}
_ROOT: Final = Path(__file__).resolve().parents[2]


class Tier(IntEnum):
    """The command that runs a test first."""

    CHECK = 0
    TEST = 1
    ALL = 2
    SOAK = 3


def tiers_of(
    items: Sequence[pytest.Item], durations: Durations, share: str
) -> dict[pytest.Item, Tier]:
    """Return the tier of each test.

    Args:
        items: all tests of a run, so that of the cases of one test one is in turn.
        durations: what tests cost.
        share: whose turn it is, as `share_of_commit` returns it.
    """
    found = {item: _tier_of(item, durations) for item in items}
    cases: dict[str, list[pytest.Item]] = {}
    for item, tier in found.items():
        if tier <= Tier.TEST and not _stays(item):
            cases.setdefault(function_of(item.nodeid), []).append(item)
    for of_one in cases.values():
        # All cases have the same mean; one of them may cost all that its test may.
        cost = _cost_of(of_one[0], durations)
        if cost * len(of_one) > MOST_OF_CHECK:
            found |= {item: Tier.TEST for item in of_one if found[item] is Tier.CHECK}
        if cost * len(of_one) > MOST_OF_TEST:
            of_one.sort(key=lambda item: _digest(share, item.nodeid))
            found |= dict.fromkeys(of_one[max(1, int(MOST_OF_TEST / cost)) :], Tier.ALL)
    return found


def _tier_of(item: pytest.Item, durations: Durations) -> Tier:
    if item.get_closest_marker("soak"):
        return Tier.SOAK
    needed = set(getattr(item, "fixturenames", ()))
    if item.get_closest_marker("nightly") or needed & NIGHTLY_FIXTURES:
        return Tier.ALL
    cost = _cost_of(item, durations)
    if cost > MOST_OF_TEST and not _stays(item):
        return Tier.ALL
    around = durations.around(item.nodeid)
    if item.get_closest_marker("spark") or needed & FETCHED_FIXTURES:
        return Tier.TEST
    if cost > MOST_OF_CHECK or around > MOST_AROUND_CHECK:
        return Tier.TEST
    return Tier.CHECK


def _cost_of(item: pytest.Item, durations: Durations) -> float:
    """Return the CPU seconds of a case in `make test`."""
    cost = durations.of(item.nodeid)
    return cost / TURNS if item.get_closest_marker("enumeration") else cost


def _most_of(item: pytest.Item, tier: Tier) -> float:
    """Return the CPU seconds above which a test belongs to a later tier; 0 for no bound."""
    if tier > Tier.TEST or _stays(item):
        return 0.0
    most = _ROOM * (MOST_OF_CHECK if tier is Tier.CHECK else MOST_OF_TEST)
    return most * TURNS if item.get_closest_marker("enumeration") else most


def _stays(item: pytest.Item) -> bool:
    """Tell whether `make test` runs a test whatever it costs."""
    return any(item.get_closest_marker(name) for name in ("representative", "pinned"))


def in_turn(share: str, case: str, turns: int = TURNS) -> bool:
    """Tell whether a case is one of those that `make test` runs for a share.

    Args:
        share: a commit, or any text that stands for one.
        case: names the case.
        turns: of so many cases about one is in turn.
    """
    return _digest(share, case) % turns == 0


def _digest(share: str, case: str) -> int:
    digest = hashlib.sha256(f"{share}\0{case}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


def share_of(cases: Iterable[T]) -> list[T]:
    """Return those cases of an enumeration that the test that runs now is to try.

    All of them, but in `make check` and `make test` about one of `TURNS`, the first of them at
    least. Which ones goes by the commit, by the test and by the case's `repr`.

    Args:
        cases: values whose `repr` names them.
    """
    every = list(cases)
    if os.environ.get(_TIER_VARIABLE) not in _COMMANDS:
        return every
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    share = os.environ[_SHARE_VARIABLE]
    return [case for case in every if in_turn(share, f"{test} {case!r}")] or every[:1]


def dear_files_first(items: Sequence[pytest.Item], durations: Durations) -> list[pytest.Item]:
    """Return tests with those of the dearest files first; the other files keep their order.

    A process that begins a dear file last works alone at the end, while the others have nothing.
    """
    costs: dict[str, float] = {}
    for item in items:
        file = _file_of(item)
        costs[file] = costs.get(file, durations.around(file)) + _cost_of(item, durations)
    return sorted(items, key=lambda item: min(-costs[_file_of(item)], -DEAR_FILE))


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def share_of_commit() -> str:
    """Return the commit that is checked out, so that the same commit runs the same cases.

    Where there is no repository, as in an unpacked archive, all runs take the same share.
    """
    asked = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        ended = subprocess.run(asked, cwd=_ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "no commit"
    return ended.stdout.strip()


def check_nightly(server: str) -> None:
    """Fail where a test of `make check` or `make test` needs what only `make test-all` installs.

    It fails also on a machine that has the server: the next one may not have it.
    """
    tier = os.environ.get(_TIER_VARIABLE)
    assert tier not in _COMMANDS, (
        f"{server} is installed by make test-all alone: mark the tests that need it `nightly`"
    )


class Selection:
    """Leaves out what belongs to a later command, and says so at the end."""

    def __init__(self, tier: Tier | None, share: str) -> None:
        self._tier, self.share = tier, share
        self.left: Counter[str] = Counter()
        """How many cases of each test function were left to another command than `make soak`."""
        self.soaking: set[str] = set()
        """Test functions of which some case is left to `make soak`."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        kept: list[pytest.Item] = []
        left: list[pytest.Item] = []
        durations = load_durations()
        for item, tier in tiers_of(items, durations, self.share).items():
            item.stash[MOST] = _most_of(item, tier)
            (kept if self._runs(tier) else left).append(item)
            if tier is Tier.SOAK:
                self.soaking.add(function_of(item.nodeid))
            elif not self._runs(tier):
                self.left[function_of(item.nodeid)] += 1
        # The plugin that shuffles has done so before.
        items[:] = dear_files_first(kept, durations) if _OF_SEVERAL in os.environ else kept
        if left:
            config.hook.pytest_deselected(items=left)

    def _runs(self, tier: Tier) -> bool:
        if self._tier is Tier.SOAK or tier is Tier.SOAK:
            return tier is self._tier
        return self._tier is None or tier <= self._tier

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["left"], output["soaking"] = dict(self.left), sorted(self.soaking)
        result = yield
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None and output is None and (line := self._last_line()):
            # After the line with the counts, which is pytest's last one.
            terminal.write_line(line)
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a process left out: each collects all tests, and leaves out the same."""
        output = getattr(node, "workeroutput", {})
        self.left = self.left or Counter(output.get("left", {}))
        self.soaking |= set(output.get("soaking", ()))

    def _last_line(self) -> str:
        if self._tier not in (Tier.CHECK, Tier.TEST) or not self.left:
            return ""
        name = self._tier.name.lower()
        return (
            f"make {name} left out {self.left.total():,} tests, by the share {self.share}; "
            f"run them with: {_COMMANDS[name]}"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    names = [tier.name.lower() for tier in Tier]
    parser.addoption("--tier", choices=names, help="the tests of this command")
    parser.addoption("--share", help="run the rotating tests that were in turn at this commit")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Select, in each process of a run alike."""
    name: str | None = config.getoption("tier")
    tier = None if name is None else Tier[name.upper()]
    if tier is not None:
        os.environ[_TIER_VARIABLE] = tier.name.lower()
    share = os.environ[_SHARE_VARIABLE] = config.getoption("share") or share_of_commit()
    config.pluginmanager.register(Selection(tier, share), "tiers")
