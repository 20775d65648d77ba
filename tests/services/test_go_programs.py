"""Programs in Go are built once, whole or not at all; without one its tests fail."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.source_files import ROOT
from tests.services.go_programs import main, place_of, program_file
from tests.services.server_process import wait_until

pytestmark = pytest.mark.nightly

SERVICES = ROOT / "requirements" / "services"
# Builds what is missing, and says that it comes to the lock, behind its look at what is there.
REPORTS_LOCKS = """
import fcntl, pathlib, sys
from tests.services.go_programs import main

locks = fcntl.flock

def told(lock, kind):
    pathlib.Path(sys.argv[1]).touch()
    locks(lock, kind)

fcntl.flock = told
sys.exit(main())
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where programs are to be, which has none."""
    made = tmp_path / "programs"
    made.mkdir()
    monkeypatch.setenv("MERGEBERG_SERVICES", str(made))
    return made


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", ["fake-gcs-server", "minio", "toxiproxy"])
def test_a_program_that_is_not_there_fails_its_tests(name: str) -> None:
    with pytest.raises(AssertionError, match=f"there is no {name} .* run `make services`"):
        program_file(name)


def test_a_program_of_other_modules_is_another_one(root: Path, tmp_path: Path) -> None:
    """Harm prevented: after a change of a version the tests go on with the earlier one."""
    services = tmp_path / "services"
    shutil.copytree(SERVICES, services)
    place_all(root)
    assert program_file("minio", services) == program_file("minio")

    with (services / "minio" / "go.sum").open("a") as sums:
        sums.write("\n")

    with pytest.raises(AssertionError, match="there is no minio"):
        program_file("minio", services)


def test_a_build_that_waited_for_another_does_not_build_again(root: Path, tmp_path: Path) -> None:
    """Harm prevented: two working trees build at once, into one directory."""
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = subprocess.Popen(
            [sys.executable, "-c", REPORTS_LOCKS, str(tmp_path / "waits")],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            text=True,
        )
        try:
            wait_until((tmp_path / "waits").exists, "it waited for the one that builds")
            place_all(root)
            lock.close()
            output, _ = waiting.communicate(timeout=30)
        finally:
            waiting.kill()
            waiting.wait()

    assert (waiting.returncode, output) == (0, "")
    assert sorted(file.name.rpartition("-")[0] for file in root.iterdir()) == [
        *("", "fake-gcs-server", "minio", "toxiproxy")
    ]


def test_what_could_not_be_built_leaves_nothing(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    services = tmp_path / "services"
    shutil.copytree(SERVICES, services)
    (services / "services.lock").write_text("./no-such-file.whl --hash=sha256:00\n")

    assert main(services) == 1

    assert "Cannot build the services of the tests: " in capfd.readouterr().err
    assert [file.name for file in root.iterdir()] == [".lock"]


def place_all(root: Path) -> None:
    """Put an empty file where each program is expected."""
    for modules in SERVICES.glob("*/go.mod"):
        place = place_of(modules.parent)
        assert place.parent == root
        place.touch()
