"""What the model is asked is read and written rightly, and nothing in it is without a meaning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.checker import CannotCheckError, parse
from tests.model.configurations import FOLDER, OK, Configuration, modules, read_configurations

ALL = read_configurations()
NAMES = st.text("abcdefghij0123456789", min_size=1, max_size=5)
VALUES = st.one_of(st.booleans(), st.integers(0, 99), NAMES, st.lists(NAMES, max_size=3))

TOML = """
[constants]
Owners = ["o1"]
[invariants]
always = ["NoTwice"]
[configurations.one]
shows = "something"
finds = "ok"
"""


def asked(constants: dict[str, object], *, ends: bool = False) -> Configuration:
    return Configuration("one", "Export", "", OK, constants, ("NoTwice",), ends=ends, in_test=False)


def value(text: str) -> object:
    """Read a value of TLA+, as written for a configuration."""
    if text in ("TRUE", "FALSE"):
        return text == "TRUE"
    if text.startswith("{"):
        return re.findall(r'"([^"]*)"', text)
    return text[1:-1] if text.startswith('"') else int(text)


@given(st.dictionaries(st.from_regex(r"[A-I][a-z]{1,5}", fullmatch=True), VALUES, max_size=4))
def test_every_constant_is_written_with_its_value(constants: dict[str, object]) -> None:
    """A value that TLC reads otherwise would check another protocol than the file says."""
    _, _, lines = asked(constants).text().partition("CONSTANTS\n")
    read = {
        name: value(text)
        for name, _, text in (line.strip().partition(" = ") for line in lines.splitlines())
    }

    assert read == constants


def test_a_job_is_an_operator_and_the_end_a_property() -> None:
    text = asked({"Jobs": "JobsA"}, ends=True).text()

    assert "  Jobs <- JobsA\n" in text
    assert text.startswith("SPECIFICATION Fair\nINVARIANT NoTwice\nPROPERTY Ends\n")


@pytest.mark.parametrize("wrong", ["set.MaxAtt = 1", 'note = "x"'])
def test_a_misspelt_name_is_refused(tmp_path: Path, wrong: str) -> None:
    """It would silently leave the rule in its place, and an expected failure would be none."""
    (tmp_path / "Export.toml").write_text(f"{TOML}{wrong}\n")

    with pytest.raises(
        ValueError, match=r"Cannot read one of Export.toml: it has no (MaxAtt|note)"
    ):
        read_configurations(tmp_path)


def test_every_rule_is_taken_away_somewhere() -> None:
    """A rule that no configuration breaks has not been shown to be needed."""
    usual = {c.name: c for c in ALL}["ok-move"].constants
    rules = list(usual)[list(usual).index("UseMark") :]
    changed = {r for c in ALL if c.module == "Export" for r in rules if c.constants[r] != usual[r]}

    assert set(rules) - changed == set()


def test_every_invariant_is_defined_and_every_failure_expects_one() -> None:
    text = {m.stem: m.read_text(encoding="utf-8") for m in FOLDER.glob("*.tla")}

    for one in ALL:
        for invariant in one.invariants:
            defined = "".join(text[name] for name in modules(one.module))
            assert re.search(rf"^{invariant} ==", defined, re.MULTILINE), one.name
        if one.finds != OK:
            assert one.invariants == (one.finds,), one.name


@given(states=st.integers(1, 10**7), depth=st.integers(1, 99))
def test_the_output_of_tlc_is_parsed(states: int, depth: int) -> None:
    numbers = (
        f"{states + 5} states generated, {states} distinct states found, 0 states left on queue.\n"
        f"The depth of the complete state graph search is {depth}.\n"
    )
    holds = parse("one", 0, f"Model checking completed. No error has been found.\n{numbers}")
    fails = parse("one", 12, f"Error: Invariant NoTwice is violated.\nState 1\n{numbers}")

    assert (holds.found, holds.states, holds.depth, holds.trace) == (OK, states, depth, "")
    assert (fails.found, fails.states, fails.depth) == ("NoTwice", states, depth)
    assert "State 1" in fails.trace


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, ""),
        (11, "Error: Deadlock reached."),
        (12, "Model checking completed. No error has been found."),
        (0, "Error: Invariant NoTwice is violated."),
        (150, "***Parse Error***"),
    ],
)
def test_output_without_a_result_is_an_error(status: int, text: str) -> None:
    """A stuck owner, a broken module or too little memory must never pass for a result."""
    with pytest.raises(CannotCheckError, match=f"Cannot check one: TLC ended with {status}"):
        parse("one", status, text)
