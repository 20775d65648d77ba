"""What is put down for a moment is nobody else's, and goes: also when its process was killed."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import OwnClickHouse
from catalog.processes import ScratchDirectory
from tests.services.server_process import wait_until

LEAVES_THEM = """
import os
from catalog.clickhouse.embedded import OwnClickHouse
from catalog.processes import ScratchDirectory
clickhouse, secret = OwnClickHouse("rows"), ScratchDirectory("secret")
(secret.path / "key.pem").write_text("...")
print(clickhouse.directory, secret.path, flush=True)
os._exit(1)
"""


@pytest.fixture(autouse=True)
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make directories in one of the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_nobody_else_can_open_it_and_nothing_of_it_stays(below: Path) -> None:
    with ScratchDirectory("x") as made:
        (made.path / "file").write_text("...")
        assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
        assert made.path.parent == below

    assert list(below.iterdir()) == []
    made.close()


def test_a_clickhouse_of_ours_computes_and_leaves_nothing(below: Path) -> None:
    with OwnClickHouse("x") as clickhouse:
        assert clickhouse.rows("SELECT 1") == ((1,),)
        (clickhouse.directory / "file").write_text("...")

    assert list(below.iterdir()) == []
    clickhouse.close()


def test_what_a_killed_process_left_goes_with_the_next_of_its_purpose() -> None:
    """Rows and keys would stay on the disk for as long as the host runs."""
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_THEM], capture_output=True, text=True, check=False
    )
    rows, secret = (Path(left) for left in done.stdout.split())
    # The ClickHouse that it started removes its own directory, at once or a moment later.
    assert secret.exists()

    with ScratchDirectory("secret") as mine, ScratchDirectory("secret") as other:
        assert not secret.exists()
        assert mine.path != other.path
        assert mine.path.exists()

    def swept() -> bool:
        with OwnClickHouse("rows"):
            return not rows.exists()

    wait_until(swept, "the killed process's ClickHouse has ended too")


def test_what_has_another_name_is_not_ours(below: Path) -> None:
    (below / "mergeberg-x-of_somebody-else").mkdir()

    with ScratchDirectory("x"):
        pass

    assert [path.name for path in below.iterdir()] == ["mergeberg-x-of_somebody-else"]


ENDS = """
import os, sys
from catalog.processes import ScratchDirectory, at_end, finish
scratch = ScratchDirectory("x")
(scratch.path / "file").write_text("...")
at_end(lambda: print("first registered"))
at_end(lambda: open("/nowhere/at/all"))
at_end(scratch.close)
at_end(scratch.close)
"""


@pytest.mark.parametrize("end", ["sys.exit(3)", "finish(); sys.stdout.flush(); os._exit(3)"])
def test_what_lasts_as_long_as_the_process_goes_with_its_end(below: Path, end: str) -> None:
    """The command line skips the interpreter's shutdown, and so everything of `atexit`."""
    done = subprocess.run(
        [sys.executable, "-c", ENDS + end], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr, done.returncode) == ("first registered\n", "", 3)
    assert list(below.iterdir()) == []
