"""Named pipes: private, gone afterwards, and swept when their process could not do so."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from catalog.clickhouse.server.streams import named_pipe

LEAVES_ONE = """
import os
from catalog.clickhouse.server.streams import named_pipe
with named_pipe() as pipe:
    print(pipe, flush=True)
    os._exit(1)
"""


@pytest.fixture(autouse=True)
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make pipes in a directory of the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_nobody_else_can_open_a_pipe_and_nothing_of_it_stays(below: Path) -> None:
    with named_pipe() as pipe:
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert stat.S_IMODE(pipe.parent.stat().st_mode) == 0o700
        assert pipe.parent.parent == below

    assert list(below.iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_a_living_one_uses_stays(below: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_ONE], capture_output=True, text=True, check=False
    )
    left = Path(done.stdout.strip())
    assert left.exists()

    with named_pipe() as mine, named_pipe() as other:
        assert not left.exists()
        assert mine.exists()
        assert len(list(below.iterdir())) == 2
        assert other.parent != mine.parent
