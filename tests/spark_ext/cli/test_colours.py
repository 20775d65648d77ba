"""Words have colours on a terminal, and nowhere else unless they are asked for."""

from __future__ import annotations

import io

import pytest

from spark_ext.cli.output import TextOutput
from tableformat.export.outcome import Outcome, Status

GREEN, RED, END = "\x1b[32m", "\x1b[31m", "\x1b[0m"


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def printed(screen: io.StringIO) -> str:
    output = TextOutput(screen, io.StringIO())
    output.finished(Outcome("202401", Status.COMMITTED, "lake.n.t", rows=1, data_files=1))
    output.say("partition 202402: differs: 1 row")
    output.table(["partition", "status"], [{"partition": "202403", "status": "FAILED"}])
    return screen.getvalue()


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_on_a_terminal_the_word_for_what_became_of_a_partition_is_coloured() -> None:
    lines = printed(Screen()).splitlines()

    assert lines[0].startswith(f"partition 202401: {GREEN}exported{END} · 1 row · 1 file")
    assert lines[1] == f"partition 202402: {RED}differs{END}: 1 row"
    assert lines[3] == f"202403     {RED}FAILED{END}"


def test_elsewhere_and_with_no_color_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in printed(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in printed(Screen())


def test_force_color_colours_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert GREEN in printed(io.StringIO())
