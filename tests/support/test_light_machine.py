"""Tests' files are in memory where there is room, and nothing of a run that is over stays there."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.source_files import ROOT
from tests.support import light_machine
from tests.support.light_machine import place_in_memory, raised

WELL = "def test_well(tmp_path): (tmp_path / 'a').touch(); assert TOP in str(tmp_path)\n"


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take any machine for one with room."""
    monkeypatch.setattr(light_machine, "_FREE_BYTES", 0)
    monkeypatch.setattr(light_machine, "_AVAILABLE_BYTES", 0)


@pytest.mark.usefixtures("roomy")
def test_a_directory_that_others_can_pass_but_not_list_is_made(tmp_path: Path) -> None:
    """A server that runs as another user has its files below it."""
    made = place_in_memory(tmp_path)

    assert made is not None
    assert made.parent == tmp_path
    assert made.stat().st_mode & 0o777 == 0o711


@pytest.mark.usefixtures("roomy")
def test_what_runs_that_are_over_left_goes_and_what_others_use_stays(tmp_path: Path) -> None:
    """Harm prevented: memory that fills with every run that failed; files that go while in use."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    over, running = (
        tmp_path / f"mergeberg-tests-{pid}-abcdefgh" for pid in (ended.pid, os.getppid())
    )
    for directory in (over, running, tmp_path / "of others"):
        directory.mkdir()
        (directory / "file").touch()

    place_in_memory(tmp_path)

    assert not over.exists()
    assert (running / "file").exists()
    assert (tmp_path / "of others" / "file").exists()


def test_a_machine_without_room_or_without_such_a_place_takes_its_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a run that ends a small machine's memory."""
    assert place_in_memory(tmp_path / "none") is None
    monkeypatch.setattr(light_machine, "_FREE_BYTES", 1 << 60)
    assert place_in_memory(tmp_path) is None
    monkeypatch.setattr(light_machine, "_FREE_BYTES", 0)
    monkeypatch.setattr(light_machine, "_AVAILABLE_BYTES", 1 << 60)
    assert place_in_memory(tmp_path) is None
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("limits", "set_to"),
    [
        ((256, resource.RLIM_INFINITY), (1024, resource.RLIM_INFINITY)),
        ((256, 4096), (1024, 4096)),
        ((256, 512), (512, 512)),
        ((512, 512), None),
        ((1024, 4096), None),
        ((20_000, 20_000), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_a_run_may_open_as_many_files_as_elsewhere(
    limits: tuple[int, int], set_to: tuple[int, int] | None
) -> None:
    """Harm prevented: on macOS, where 256 are usual, any test may be the one that fails."""
    assert raised(limits) == set_to


def test_a_place_that_the_user_names_is_used(tmp_path: Path) -> None:
    """TMPDIR is how a user says where temporary files are."""
    named = tmp_path / "named"
    named.mkdir()
    (tmp_path / "test_it.py").write_text(f"TOP = {str(named)!r}\n{WELL}")

    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.support.light_machine",
            "-p",
            "no:cacheprovider",
        ],
        check=False,
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(named), "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        text=True,
    )

    assert ended.returncode == 0, ended.stdout
    assert [*named.glob("pytest-of-*/pytest-0/test_well0/a")] != []
