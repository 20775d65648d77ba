"""What the tests cost is written down from the runs that measured it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.repository.source_files import ROOT
from tests.support.durations import (
    Cost,
    Durations,
    by_folder,
    dump_durations,
    load_durations,
    main,
    slowness,
)
from tests.support.measured import Costs

HERE = Path(__file__).relative_to(ROOT).as_posix()


def test_a_test_that_a_run_left_out_keeps_what_is_known_of_it() -> None:
    before = Durations({"a.py::test_left_out": 3.0, "a.py::test_again": 9.0, "b.py::test": 1.0}, {})

    found = json.loads(dump_durations({"a.py::test_again[1]": (2.0, 0.5)}, {}, before))

    assert found["tests"] == {
        "a.py::test_again": 0.5,
        "a.py::test_left_out": 3.0,
        "b.py::test": 1.0,
    }


def test_a_test_that_became_cheap_is_listed_no_more() -> None:
    before = Durations({"a.py::test": 3.0}, {"a.py": 2.0})

    found = json.loads(dump_durations({"a.py::test": (0.1, 0.01)}, {"a.py": (0.0, 0.01)}, before))

    assert found == {"files": {}, "tests": {}}


def test_many_cheap_cases_are_listed_by_what_they_cost_together() -> None:
    """Harm prevented: `make check` runs hundreds of cases that are cheap one by one."""
    costs = {f"a.py::test[{number}]": (0.1, 0.004) for number in range(50)}

    assert json.loads(dump_durations(costs, {}))["tests"] == {"a.py::test": 0.004}


def test_tests_of_files_that_are_gone_are_not_kept(tmp_path: Path) -> None:
    measured, written = tmp_path / "measured.json", tmp_path / "durations.json"
    measured.write_text(json.dumps({"tests": {}, "shared": {}}))
    written.write_text(
        json.dumps({"tests": {"gone.py::test": 1.0, f"{HERE}::x": 2.0}, "files": {}})
    )

    main(measured, written)

    assert load_durations(written).tests == {f"{HERE}::x": 2.0}


def test_the_table_counts_cases_and_seconds_by_folder() -> None:
    costs = {"tests/a/test_x.py::test[1]": (1.0, 0.5), "tests/a/b/test_y.py::test": (1.0, 0.25)}

    assert by_folder(costs) == [("tests/a", 2, 0.75)]


def listed(count: int) -> Durations:
    return Durations({f"a.py::test_{n}": 0.1 + n % 7 for n in range(count)}, {})


def costs_of(known: Durations, slower: float) -> dict[str, Cost]:
    return {name: (0.0, cost * slower) for name, cost in known.tests.items()}


@given(st.floats(1, 20), st.integers(0, 40), st.floats(1, 1000))
def test_tests_that_became_dearer_do_not_look_like_a_slow_machine(
    slower: float, dearer: int, times: float
) -> None:
    known = listed(100)
    tests = costs_of(known, slower)
    tests |= {f"a.py::test_{n}": (0.0, tests[f"a.py::test_{n}"][1] * times) for n in range(dearer)}

    assert slowness(tests, known) == pytest.approx(slower)


def test_few_tests_say_nothing_of_the_machine() -> None:
    """Harm prevented: one test that became dearer, run alone, excuses itself."""
    known = listed(99)

    assert slowness(costs_of(known, 4), known) == 1.0


def test_a_fast_machine_leaves_the_bounds_as_they_are() -> None:
    assert slowness(costs_of(listed(100), 0.25), listed(100)) == 1.0


def test_what_a_slow_machine_measured_is_listed_as_before() -> None:
    """Harm prevented: half of `make test` goes to a later command, because a machine was slow."""
    known = listed(100)

    found = json.loads(dump_durations(costs_of(known, 4), {"a.py": (0.0, 8.0)}, known))

    assert found["tests"] == pytest.approx(dict(known.tests), abs=0.001)
    assert found["files"] == {"a.py": 2.0}


def report(name: str, cpu: float, most: float) -> pytest.TestReport:
    """Return what a process reports of a test that took this CPU time."""
    cost = [(0.0, cpu), {}, most]
    return pytest.TestReport(
        name, ("", 0, ""), {}, "passed", None, "teardown", user_properties=[("cost", cost)]
    )


def test_a_slow_machine_raises_the_bound_for_all_and_hides_no_dear_test() -> None:
    """Harm prevented: `make test-all` is red on a slow machine, and no test became dearer."""
    known = listed(100)
    costs = Costs(None, known)
    for name, (_, cpu) in costs_of(known, 4).items():
        costs.pytest_runtest_logreport(report(name, cpu, 10.0))
    costs.pytest_runtest_logreport(report("a.py::test_new", 41.0, 10.0))
    costs.pytest_runtest_logreport(report("a.py::test_without_bound", 99.0, 0.0))

    assert costs.slower() == ["a.py::test_new: 41.0 CPU s, at most 40.0"]
