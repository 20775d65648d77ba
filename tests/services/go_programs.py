"""Programs written in Go that tests run, built once for a machine.

    python -m tests.services.go_programs

A directory below requirements/services is a program: its go.mod names the package, under `tool`,
and with go.sum every module at one version, with its checksum. The Go that builds them is a package
of requirements/services/services.lock, whether a machine has one or not. Of what a build fetches
and makes, gigabytes, the program alone is kept: below ~/.cache/mergeberg/services, or where
MERGEBERG_SERVICES says. Whoever sets GOPATH and GOCACHE keeps those too.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["build", "main", "place_of", "program_file"]

_SERVICES: Final = Path(__file__).resolve().parents[2] / "requirements" / "services"
_LOCK: Final = "services.lock"


def program_file(name: str, services: Path = _SERVICES) -> Path:
    """Return where a program is; fail when it is not built."""
    file = place_of(services / name)
    assert file.is_file(), f"there is no {name} for the tests: run `make services`"
    return file


def place_of(module: Path) -> Path:
    """Return where the program of a directory is, or will be: its name says all it is made of."""
    parts = (module / "go.mod", module / "go.sum", module.parent / _LOCK)
    digest = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()
    return _root() / f"{module.name}-{digest[:12]}"


def build(services: Path = _SERVICES) -> list[str]:
    """Build those programs that are not there; of two processes one does, and the other waits.

    Args:
        services: a directory of a lock that has Go, and of one directory for each program.

    Returns:
        The names of those that it built.

    Raises:
        CalledProcessError: one cannot be built; what it said is on the standard error.
    """
    modules = sorted(file.parent for file in services.glob("*/go.mod"))
    if all(place_of(module).is_file() for module in modules):
        return []
    root = _root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [module for module in modules if not place_of(module).is_file()]
        # Of one name, so that what a killed build left goes with the next.
        scratch = root / "building"
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            if missing:
                scratch.mkdir()
                go = _unpacked_go(services, scratch)
            for module in missing:
                _build(go, module, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return [module.name for module in missing]


def main(services: Path = _SERVICES) -> int:
    """Build what is missing; one line and status 1 when it cannot be."""
    try:
        built = build(services)
    except (subprocess.CalledProcessError, OSError) as error:
        sys.stderr.write(f"Cannot build the services of the tests: {error}\n")
        return 1
    if built:
        sys.stdout.write(f"built {' and '.join(built)} in {_root()}\n")
    return 0


def _root() -> Path:
    named = os.environ.get("MERGEBERG_SERVICES")
    return Path(named).absolute() if named else Path.home() / ".cache" / "mergeberg" / "services"


def _unpacked_go(services: Path, scratch: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    where = ("--target", str(scratch), "--no-deps", "--require-hashes")
    subprocess.run([*pip, *where, "--requirement", str(services / _LOCK)], check=True)
    return scratch / "go" / "bin" / "go"


def _build(go: Path, module: Path, scratch: Path) -> None:
    made, place = scratch / module.name, place_of(module)
    settings = {
        "CGO_ENABLED": "0",
        # Without the first, what it fetched could not be removed.
        "GOFLAGS": "-modcacherw -trimpath -buildvcs=false",
        "GOROOT": str(go.parent.parent),
        # All checksums are in go.sum.
        "GOSUMDB": "off",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "TMPDIR": str(scratch),
    }
    caches = {"GOPATH": str(scratch / "path"), "GOCACHE": str(scratch / "cache")}
    # Without tables for a debugger, which are a third of it.
    words = ("build", "-C", str(module), "-ldflags=-s -w", "-o", str(made), "tool")
    subprocess.run([go, *words], check=True, env=caches | dict(os.environ) | settings)
    made.replace(place)


if __name__ == "__main__":
    sys.exit(main())
