"""What the tests cost is written down from the runs that measured it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.repository.source_files import ROOT
from tests.support.durations import Durations, by_folder, dump_durations, load_durations, main

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
