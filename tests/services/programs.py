"""Programs that tests run and no registry has ready: made once for a machine, whole or not at all.

Of what making one fetches and needs, gigabytes, the program alone is kept: below
~/.cache/mergeberg/services, or where MERGEBERG_SERVICES says, under a name that is a digest of all
that it is made of.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.support.tiers import check_nightly

__all__ = ["SERVICES", "main_of", "make_missing", "place_of", "present", "root", "unpacked"]

SERVICES: Final = Path(__file__).resolve().parents[2] / "requirements" / "services"


def root() -> Path:
    """Return the directory of all programs."""
    named = os.environ.get("MERGEBERG_SERVICES")
    return Path(named).absolute() if named else Path.home() / ".cache" / "mergeberg" / "services"


def place_of(name: str, parts: Sequence[Path]) -> Path:
    """Return where a program is, or will be, by the files that say what it is made of."""
    digest = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()
    return root() / f"{name}-{digest[:12]}"


def present(name: str, place: Path) -> Path:
    """Return a place; fail when nothing is there, or when this run is not to need it."""
    check_nightly(name)
    assert place.exists(), f"there is no {name} for the tests: run `make services`"
    return place


def make_missing(
    places: dict[str, Path], make: Callable[[Sequence[str], Path], None]
) -> Sequence[str]:
    """Make the programs that are not there; of two processes one does, and the other waits.

    Args:
        places: where they will be, by name.
        make: makes those that are named, with a directory for what is not kept.

    Returns:
        The names of those that it made.

    Raises:
        CalledProcessError: one cannot be made; its output is on the standard error.
    """
    if all(place.exists() for place in places.values()):
        return ()
    root().mkdir(parents=True, exist_ok=True)
    with (root() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = tuple(name for name, place in places.items() if not place.exists())
        # Of one name, so that what a killed build left goes with the next.
        scratch = root() / "building"
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            if missing:
                scratch.mkdir()
                make(missing, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return missing


def unpacked(lock: Path, into: Path) -> None:
    """Unpack the packages of a lock of Python's index into a directory."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    where = ("--target", str(into), "--no-deps", "--require-hashes")
    subprocess.run([*pip, *where, "--requirement", str(lock)], check=True)


def main_of(build: Callable[[], Sequence[str]]) -> int:
    """Make what is missing; one line and status 1 when it cannot be."""
    try:
        built = build()
    except (subprocess.CalledProcessError, OSError) as error:
        sys.stderr.write(f"Cannot build the services of the tests: {error}\n")
        return 1
    if built:
        sys.stdout.write(f"built {' and '.join(built)} in {root()}\n")
    return 0
