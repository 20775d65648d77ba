"""What the mutants of a function are, and what a test is seen to call."""

from __future__ import annotations

import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.mutation.__main__ import likelihood
from tests.mutation.mutants import mutants_of
from tests.mutation.reach import load_reach

ROOT = Path(__file__).resolve().parents[2]
SOURCE = textwrap.dedent(
    '''
    class Ledger:
        def read(self, key: str = "é", *, anew: bool = False) -> int | None:
            """Return one and not two."""
            if key == "é" and not anew:
                self.note(1)
                raise ValueError(key)
            return len(key) + 1


    def other() -> None:
        other()
    '''
)


def test_each_mutant_has_one_mistake_in_the_function_alone() -> None:
    found = {(one.before, one.after) for one in mutants_of(SOURCE, "Ledger.read")}

    assert found == {
        ('key == "é" and not anew', "(key == 'é' or not anew)"),
        ('key == "é"', "(key != 'é')"),
        ("not anew", "(anew)"),
        ("self.note(1)", "pass"),
        ("1", "2"),
        ("raise ValueError(key)", "pass"),
        ("return len(key) + 1", "return None"),
        ("len(key) + 1", "(len(key) - 1)"),
    }
    for one in mutants_of(SOURCE, "Ledger.read"):
        assert one.source.replace(one.after, one.before, 1) != SOURCE.replace("\n", "", 1)
        assert one.source.splitlines()[-2:] == SOURCE.splitlines()[-2:]


def test_a_mutant_shows_whether_its_mistake_ran(tmp_path: Path) -> None:
    """Harm prevented: a test counts as blind to a line that it does not run."""
    source = "def sign(n):\n    if n < 0:\n        return -1\n    return n + 1\n"
    ran = {}
    for number, one in enumerate(mutants_of(source, "sign")):
        path, marked, plain = (tmp_path / f"{number}{end}" for end in (".ran", ".py", "_plain.py"))
        marked.write_text(one.marked(str(path)), encoding="utf-8")
        plain.write_text(one.source, encoding="utf-8")
        results = [runpy.run_path(str(module))["sign"](4) for module in (marked, plain)]
        assert results[0] == results[1]
        ran[one.before] = path.exists()

    assert ran == {
        "n < 0": True,
        "0": True,
        "return -1": False,
        "1": True,
        "return n + 1": True,
        "n + 1": True,
    }


@pytest.mark.parametrize("value", ["None", "False", "0", '""', "()"])
def test_none_for_another_value_that_counts_as_false_is_no_mutant(value: str) -> None:
    found = mutants_of(f"def empty():\n    return {value}\n", "empty")

    assert all(one.after != "return None" for one in found)


def test_a_function_that_is_not_there_is_named() -> None:
    with pytest.raises(LookupError, match=r"no function Ledger\.write"):
        mutants_of(SOURCE, "Ledger.write")


def test_what_a_test_calls_is_written_down(tmp_path: Path) -> None:
    name = "tests/tableformat/test_names.py::test_a_clickhouse_table_has_at_most_two_parts"
    options = ("-p", "tests.mutation.reach", "--reach", str(tmp_path), "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", *options, name]

    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)

    found = load_reach(tmp_path)
    assert found.keys() == {name}
    assert "tableformat/names.py:TableName.parse" in found[name]


def test_a_function_is_the_likelier_the_more_it_belongs_to_a_requirement() -> None:
    """Harm prevented: the function that survives has nothing to do with the requirement."""
    tests = frozenset("abcd")
    own, shared, helper = {*"abcd"}, {*"abcdefgh"}, {"a"}

    assert likelihood(own, tests) == 1
    assert likelihood(own, tests) > likelihood(shared, tests) > likelihood(helper, tests) > 0
