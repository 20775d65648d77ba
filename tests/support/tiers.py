"""Which command runs a test: `make check`, `make test`, `make test-all` or `make soak`.

A plugin of pytest, loaded by pyproject.toml. `--tier check|test|all|soak` runs a tier; each of the
first three also runs those before it. Without the option everything but soak is run, so that a file
can be named by hand. The page docs/contributing/tests.md says what each tier is for.

A test belongs to the first tier of this list that fits:

1. soak: it is marked `soak`.
2. all: it is marked `nightly`, or needs a server that is compiled or installed first.
3. all: it is marked `rotating`, and this commit is not its turn.
4. all: it costs more than `MOST_OF_TEST`.
5. test: it is marked `spark`, or it or its file costs more than `make check` has time for.
6. check.

`tests/durations.json` says what a test costs.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections import Counter
from collections.abc import Generator
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.durations import Durations, function_of, load_durations

__all__ = ["Selection", "Tier", "check_nightly", "in_turn", "share_of_commit", "tier_of"]

MOST_OF_CHECK: Final = 1.0
"""Seconds that a test of `make check` may cost."""
MOST_AROUND_CHECK: Final = 3.0
"""Seconds that the fixtures of its file may cost."""
MOST_OF_TEST: Final = 20.0
"""Seconds that a test of `make test` may cost."""
TURNS: Final = 8
"""A case of an enumeration is run by `make test` for one commit of so many."""
NIGHTLY_FIXTURES: Final = frozenset(
    (
        *("minio_server", "minio_server_of_session"),
        *("gs_server_of_session", "abfs_server_of_session", "hdfs_of_session"),
        *("old_servers", "old_pair_of_session"),
    )
)
"""Fixtures of servers that only `make test-all` compiles or installs."""
_TIER_VARIABLE: Final = "MERGEBERG_TESTS_TIER"
# Names the tier to all processes of a run.
_COMMANDS: Final = {"check": "make test", "test": "make test-all"}
_ROOT: Final = Path(__file__).resolve().parents[2]


class Tier(IntEnum):
    """The command that runs a test first."""

    CHECK = 0
    TEST = 1
    ALL = 2
    SOAK = 3


def tier_of(item: pytest.Item, durations: Durations, share: str) -> Tier:
    """Return the tier of a test.

    Args:
        item: the test.
        durations: what tests cost.
        share: whose turn it is, as `share_of_commit` returns it.
    """
    if item.get_closest_marker("soak"):
        return Tier.SOAK
    needed = set(getattr(item, "fixturenames", ()))
    if item.get_closest_marker("nightly") or needed & NIGHTLY_FIXTURES:
        return Tier.ALL
    pinned = item.get_closest_marker("pinned") is not None
    if item.get_closest_marker("rotating") and not pinned and not in_turn(share, item.nodeid):
        return Tier.ALL
    cost = durations.of(item.nodeid)
    if cost > MOST_OF_TEST:
        return Tier.ALL
    around = durations.around(item.nodeid)
    if item.get_closest_marker("spark") or cost > MOST_OF_CHECK or around > MOST_AROUND_CHECK:
        return Tier.TEST
    return Tier.CHECK


def in_turn(share: str, case: str, turns: int = TURNS) -> bool:
    """Tell whether a case is one of those that `make test` runs for a share.

    Args:
        share: a commit, or any text that stands for one.
        case: names the case.
        turns: of so many cases about one is in turn.
    """
    digest = hashlib.sha256(f"{share}\0{case}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % turns == 0


def share_of_commit() -> str:
    """Return the commit that is checked out, so that the same commit runs the same cases.

    Where there is no repository, as in an unpacked archive, all runs take the same share.
    """
    asked = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        said = subprocess.run(asked, cwd=_ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "no commit"
    return said.stdout.strip()


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
        """How many cases of each test function were left out."""
        self.soaking: set[str] = set()
        """Test functions of which some case is left to `make soak`."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        durations = load_durations()
        kept, left = [], []
        for item in items:
            tier = tier_of(item, durations, self.share)
            (kept if self._runs(tier) else left).append(item)
            if tier is Tier.SOAK:
                self.soaking.add(function_of(item.nodeid))
        self.left.update(function_of(item.nodeid) for item in left)
        items[:] = kept
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
        if terminal is not None and output is None and (line := self._said()):
            # After the line with the counts, which is pytest's last one.
            terminal.write_line(line)
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a process left out: each collects all tests, and leaves out the same."""
        output = getattr(node, "workeroutput", {})
        self.left = self.left or Counter(output.get("left", {}))
        self.soaking |= set(output.get("soaking", ()))

    def _said(self) -> str:
        if self._tier not in (Tier.CHECK, Tier.TEST) or not self.left:
            return ""
        name = self._tier.name.lower()
        of = f", those in turn at {self.share} kept" if self._tier is Tier.TEST else ""
        return (
            f"make {name} left out {self.left.total():,} tests of {len(self.left):,} functions"
            f"{of}; {_COMMANDS[name]} runs them"
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
    share = config.getoption("share") or share_of_commit()
    config.pluginmanager.register(Selection(tier, share), "tiers")
