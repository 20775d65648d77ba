"""`python -m tests.model` fails where the model does, and keeps the page true."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.model import __main__ as command
from tests.model.checker import CannotCheckError, Finding
from tests.model.configurations import OK, Configuration, read_configurations
from tests.model.results import PAGE, Result, read_results

HOLDS = Finding(OK, 123_456, 17, "", 2.25)
BREAKS = Finding("NoTwice", 12, 3, "State 1: everybody is idle\n", 0.5)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page of our own, as it is now."""
    copy = tmp_path / "results.md"
    copy.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(command, "PAGE", copy)
    return copy


def checker_finds(monkeypatch: pytest.MonkeyPatch, finding: Finding) -> None:
    """Let TLC say this, whatever it is asked."""

    def check(_asked: Configuration) -> Finding:
        return finding

    monkeypatch.setattr(command, "check", check)


def test_what_was_found_is_written_and_then_expected(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checker_finds(monkeypatch, HOLDS)

    assert command.main(["ok-move", "--page"]) == 0
    move = next(c for c in read_configurations() if c.name == "ok-move")
    written = read_results(page.read_text(encoding="utf-8"))["ok-move"]
    assert written == Result(OK, 123_456, 17, 2.2, move.digest())

    assert command.main(["ok-move"]) == 0
    checker_finds(monkeypatch, replace(HOLDS, states=123_457))
    assert command.main(["ok-move"]) == 1
    assert "0 passed, 1 failed" in capsys.readouterr().out


def test_what_was_not_expected_is_shown_and_never_written(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a broken protocol would be on the page as if it were meant."""
    before = page.read_text(encoding="utf-8")
    checker_finds(monkeypatch, BREAKS)

    assert command.main(["ok-move", "--page"]) == 1

    shown = capsys.readouterr().out
    assert "expected ok, found NoTwice after 12 states, depth 3" in shown
    assert "State 1: everybody is idle" in shown
    assert page.read_text(encoding="utf-8") == before


def test_a_missing_result_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(_asked: Configuration) -> Finding:
        message = "Cannot check ok-move: TLC ended with 150."
        raise CannotCheckError(message)

    monkeypatch.setattr(command, "check", check)

    assert command.main(["ok-move", "ok-kill"]) == 1
    assert "0 passed, 2 failed" in capsys.readouterr().out


def test_a_question_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(["ok-mvoe"])

    assert "there is no configuration ok-mvoe" in capsys.readouterr().err
