"""The page tells of the model what TLC found, and `make test` asks of it what is quick."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model import configurations
from tests.model.checker import Finding
from tests.model.configurations import FOLDER, OK, Configuration, read_configurations
from tests.model.results import (
    PAGE,
    Result,
    difference,
    read_results,
    result_of,
    table,
    with_results,
)

ALL = read_configurations()
RECORDED = read_results(PAGE.read_text(encoding="utf-8"))
ONE = Configuration("one", "Export", "what", OK, {}, ("NoTwice",), ends=False, in_test=False)

FINDINGS = st.builds(
    Finding,
    st.sampled_from((OK, "NoTwice")),
    states=st.integers(1, 10**8),
    depth=st.integers(1, 99),
    trace=st.just(""),
    seconds=st.floats(0, 1000),
)


def page_of(tmp_path: Path, finding: Finding) -> Path:
    """Make a page that tells a result of the configuration `ONE`."""
    page = tmp_path / "results.md"
    page.write_text(table([ONE], {ONE.name: result_of(finding, ONE)}), encoding="utf-8")
    return page


@given(st.dictionaries(st.sampled_from([c.name for c in ALL]), FINDINGS))
def test_what_the_page_shows_is_what_was_found(findings: dict[str, Finding]) -> None:
    results = {name: result_of(finding, ONE) for name, finding in findings.items()}
    shown = table(ALL, results)

    assert read_results(shown) == results
    assert table(ALL, read_results(shown)) == shown


def test_the_page_shows_every_configuration_as_it_is() -> None:
    """A new or changed question must be run, and its result written down."""
    page = PAGE.read_text(encoding="utf-8")

    assert {name: result.found for name, result in RECORDED.items()} == {
        c.name: c.finds for c in ALL
    }
    assert with_results(page, ALL, RECORDED) == page


def test_only_the_table_is_rewritten() -> None:
    page = PAGE.read_text(encoding="utf-8")
    written = with_results(page, ALL, {"ok-move": Result(OK, 12_345, 6, 7.8, "0f")})
    table_of_now = table(ALL, RECORDED)

    assert "| ok | 12,345 | 6 | 7.8 | `0f` |\n" in written
    assert written.replace(table(ALL, read_results(written)), table_of_now) == page


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="Cannot write the table of results: the page lacks"):
        with_results("# The model\n", ALL, {})


@given(finding=FINDINGS, seconds=st.floats(0, 1000))
def test_the_time_that_it_took_is_no_difference(
    tmp_path_factory: pytest.TempPathFactory, finding: Finding, seconds: float
) -> None:
    page = page_of(tmp_path_factory.mktemp("page"), finding)
    expected = replace(ONE, finds=finding.found)

    assert difference(replace(finding, seconds=seconds), expected, page) == ""


def test_other_states_than_those_of_the_page_are_a_difference(tmp_path: Path) -> None:
    """The model was changed, and nobody has looked at all of it since."""
    page = page_of(tmp_path, Finding(OK, 1000, 20, ""))

    assert difference(Finding(OK, 1000, 20, ""), ONE, page) == ""
    for other in (Finding(OK, 1001, 20, ""), Finding(OK, 1000, 21, "")):
        assert "results.md tells ok after 1,000 states, depth 20, found" in difference(
            other, ONE, page
        )
    assert "results.md tells None" in difference(
        Finding(OK, 1000, 20, ""), replace(ONE, name="two"), page
    )


def test_another_result_is_reported_before_the_page_is_read(tmp_path: Path) -> None:
    found = difference(Finding("NoTwice", 10, 2, ""), ONE, tmp_path / "none.md")

    assert found == "expected ok, found NoTwice after 10 states, depth 2"


def test_the_page_describes_the_current_model() -> None:
    """Harm prevented: a rule of the model was changed, and what was found before is believed."""
    assert {c.name: RECORDED[c.name].of for c in ALL} == {c.name: c.digest() for c in ALL}


@pytest.mark.parametrize("module", ["Export", "Group", "Statement"])
def test_a_digest_is_of_all_that_is_asked(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: one that overlooks a module, or a constant, vouches for another model."""
    one = next(c for c in ALL if c.module == module)
    for file in FOLDER.glob("*.tla"):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(configurations, "FOLDER", tmp_path)
    before = one.digest()
    assert before == RECORDED[one.name].of

    changed = {file.stem for file in tmp_path.glob("*.tla") if _matters(one, file)}

    assert changed == {"Export": {"World", "State", "Owner", "Export"}}.get(module, {module})
    assert replace(one, constants={**one.constants, "NSrc": 99}).digest() != before
    assert replace(one, invariants=("NoTwice", "Once")).digest() != before


def _matters(one: Configuration, file: Path) -> bool:
    """Whether another text in a module is another digest."""
    text, before = file.read_text(encoding="utf-8"), one.digest()
    file.write_text(f"{text}\n", encoding="utf-8")
    matters = one.digest() != before
    file.write_text(text, encoding="utf-8")
    return matters


def test_make_test_asks_what_is_quick() -> None:
    """Of every module a world in which all holds, and failures that are found at once."""
    tested = [c for c in ALL if c.in_test]

    for kind in (True, False):
        assert {c.module for c in tested if (c.finds == OK) is kind} == {c.module for c in ALL}
    assert sum(RECORDED[c.name].seconds for c in tested) < 60
