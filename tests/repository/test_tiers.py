"""Each test belongs to one tier, and each tier's command runs it with those before it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.repository.source_files import ROOT
from tests.support import tiers
from tests.support.durations import Durations
from tests.support.tiers import (
    DEAR_FILE,
    MOST_OF_CHECK,
    MOST_OF_TEST,
    TURNS,
    Tier,
    check_nightly,
    dear_files_first,
    in_turn,
    tiers_of,
)

TESTS = """
import pytest

def test_cheap(): pass

@pytest.mark.spark
def test_of_spark(): pass

@pytest.mark.nightly
def test_elsewhere(): pass

@pytest.mark.parametrize("n", [
    pytest.param(1, marks=pytest.mark.pinned), pytest.param(2, marks=pytest.mark.soak)
])
def test_cases(n): pass

@pytest.fixture
def minio_server(): pass

def test_of_a_server(minio_server): pass

@pytest.fixture
def s3_server(): pass

def test_of_a_fetched_server(s3_server): pass
"""
CHECKED = {"test_cheap", "test_cases[1]"}
TESTED = CHECKED | {"test_of_spark", "test_of_a_fetched_server"}
ALL = TESTED | {"test_elsewhere", "test_of_a_server"}
SOAKED = {"test_cases[2]"}


def run(directory: Path, *options: str) -> tuple[set[str], str]:
    """Run the tests above; return the names of those that ran, and the last line of the output."""
    (directory / "test_a.py").write_text(TESTS)
    marks = ["spark", "nightly", "pinned", "soak"]
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n    " + "\n    ".join(marks))
    words = ["-p", "tests.support.tiers", "-p", "no:cacheprovider", "-p", "no:randomly", "-v"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *options, str(directory)],
        check=True,
        capture_output=True,
        cwd=ROOT,
        text=True,
    )
    lines = ended.stdout.splitlines()
    passed = [line.partition("::")[2].split()[0] for line in lines if "PASSED" in line]
    return set(passed), lines[-1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ALL),
        (["--tier", "check"], CHECKED),
        (["--tier", "test"], TESTED),
        (["--tier", "all"], ALL),
        (["--tier", "soak"], SOAKED),
    ],
)
def test_a_tier_runs_its_tests_and_those_before_it(
    tmp_path: Path, options: list[str], expected: set[str]
) -> None:
    """Harm prevented: a test that no command runs."""
    ran, _ = run(tmp_path, *options)

    assert ran == expected


@pytest.mark.parametrize(
    ("tier", "expected"),
    [
        ("check", "make check left out 4 tests, by the share "),
        ("test", "make test left out 2 tests, by the share "),
        ("all", "==="),
    ],
)
def test_the_last_line_says_what_was_left_out(tmp_path: Path, tier: str, expected: str) -> None:
    _, last = run(tmp_path, "--tier", tier)

    assert last.startswith(expected)


def test_the_last_line_is_right_when_several_processes_ran_the_tests(tmp_path: Path) -> None:
    _, last = run(tmp_path, "--tier", "test", "--numprocesses", "2", "--share", "4e3ca87")

    assert last == (
        "make test left out 2 tests, by the share 4e3ca87; run them with: make test-all"
    )


@given(st.text())
def test_of_eight_commits_about_one_runs_a_case(case: str) -> None:
    """Harm prevented: a case whose turn never comes."""
    turns = [in_turn(f"commit {number}", case) for number in range(100 * TURNS)]

    assert 40 <= sum(turns) <= 180


def test_at_one_commit_about_an_eighth_of_the_cases_runs() -> None:
    turns = [in_turn("4e3ca87", f"case {number}") for number in range(1_000 * TURNS)]

    assert 850 <= sum(turns) <= 1_150


@dataclass(frozen=True)
class Case:
    """What `tiers_of` asks of a test."""

    nodeid: str
    marks: frozenset[str] = frozenset()
    fixturenames: tuple[str, ...] = ()

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


def tiers_at(share: str, cost: float, cases: Sequence[Case]) -> dict[Case, Tier]:
    """Return the tiers of the cases of one test, each of which costs so much."""
    durations = Durations({"tests/test_a.py::test_it": cost})
    found = tiers_of(cast("Sequence[pytest.Item]", cases), durations, share)
    return cast("dict[Case, Tier]", found)


def cases_of(count: int, *marks: str) -> list[Case]:
    return [Case(f"tests/test_a.py::test_it[{n}]", frozenset(marks)) for n in range(count)]


@given(cost=st.floats(0.0, 3 * MOST_OF_TEST), count=st.integers(1, 40), share=st.text())
def test_the_cases_that_a_commit_runs_cost_no_more_than_a_test_may(
    cost: float, count: int, share: str
) -> None:
    tier_of = tiers_at(share, cost, cases_of(count))
    tried = [case for case, tier in tier_of.items() if tier <= Tier.TEST]

    assert bool(tried) is (cost <= MOST_OF_TEST)
    assert len(tried) * cost <= MOST_OF_TEST
    # One more would cost too much.
    assert len(tried) == count or (len(tried) + 1) * cost > MOST_OF_TEST


def test_cases_that_cost_too_much_together_are_left_to_make_test() -> None:
    cost = MOST_OF_CHECK / 10

    assert set(tiers_at("any", cost, cases_of(10)).values()) == {Tier.CHECK}
    assert set(tiers_at("any", cost, cases_of(11)).values()) == {Tier.TEST}


def test_the_dearest_files_are_begun_first_and_the_others_keep_their_order() -> None:
    """Harm prevented: one process works alone for minutes at the end."""
    cases = [Case(f"{file}.py::test[{n}]") for file in "cadb" for n in range(2)]
    durations = Durations({"b.py::test": DEAR_FILE, "a.py::test": 1.0}, {"d.py": DEAR_FILE + 1})

    found = dear_files_first(cast("Sequence[pytest.Item]", cases), durations)

    assert [item.nodeid[0] for item in found] == list("bbddccaa")
    assert [item.nodeid[-2] for item in found] == list("01010101")


@pytest.mark.parametrize("mark", ["representative", "pinned"])
def test_what_stands_for_its_kind_or_failed_once_runs_at_every_commit(mark: str) -> None:
    tier_of = tiers_at("any", 3 * MOST_OF_TEST, cases_of(20, mark))

    assert set(tier_of.values()) == {Tier.TEST}


def test_each_case_comes_at_some_commit() -> None:
    """Harm prevented: a case that no commit tries, because others always come first."""
    cases = cases_of(20)
    tried = {
        case
        for number in range(500)
        for case, tier in tiers_at(f"{number:x}", MOST_OF_TEST / 2, cases).items()
        if tier <= Tier.TEST
    }

    assert tried == set(cases)


def test_an_enumeration_costs_the_share_that_a_commit_tries() -> None:
    cost = MOST_OF_TEST * TURNS / 2

    assert set(tiers_at("any", cost, cases_of(2, "enumeration")).values()) == {Tier.TEST}
    assert set(tiers_at("any", cost, cases_of(2)).values()) == {Tier.ALL}


def test_a_server_of_a_later_tier_is_refused_although_the_machine_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(tiers._TIER_VARIABLE, "test")
    with pytest.raises(AssertionError, match="MinIO is installed by make test-all alone"):
        check_nightly("MinIO")

    monkeypatch.setenv(tiers._TIER_VARIABLE, "all")
    check_nightly("MinIO")


SLOW = """
import time
import pytest

def work():
    until = time.process_time() + 2.7
    while time.process_time() < until: pass

def test_slow_and_not_listed(): work()

@pytest.mark.nightly
def test_slow_elsewhere(): work()
"""


@pytest.mark.parametrize(("tier", "status"), [("all", 1), ("test", 0)])
def test_a_test_that_is_slower_than_its_tier_fails_the_whole_run(
    tmp_path: Path, tier: str, status: int
) -> None:
    (tmp_path / "test_a.py").write_text(SLOW)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    nightly\n")
    plugins = ["-p", "tests.support.measured", "-p", "tests.support.tiers", "-p", "no:randomly"]

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "--tier", tier, str(tmp_path)],
        check=False,
        capture_output=True,
        cwd=ROOT,
        text=True,
    )

    assert ended.returncode == status, ended.stdout
    named = [line.split(":")[2] for line in ended.stdout.splitlines() if "CPU s, at most" in line]
    assert named == ["test_slow_and_not_listed"] * status
