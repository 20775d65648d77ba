"""Programs written in Go that tests run, built once for a machine.

    python -m tests.services.go_programs

A directory below requirements/services is a program: its go.mod names the package, under `tool`,
and with go.sum every module at one version, with its checksum. The Go that builds them is a package
of requirements/services/services.lock, whether a machine has one or not. A user who sets GOPATH and
GOCACHE keeps what a build fetches and makes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.services import programs
from tests.services.programs import SERVICES, main_of, make_missing, present, unpacked

__all__ = ["build", "main", "place_of", "program_file"]

_LOCK: Final = "services.lock"


def program_file(name: str, services: Path = SERVICES) -> Path:
    """Return where a program is; fail when it is not built."""
    return present(name, place_of(services / name))


def place_of(module: Path) -> Path:
    """Return where the program of a directory is, or will be: its name says all it is made of."""
    parts = (module / "go.mod", module / "go.sum", module.parent / _LOCK)
    return programs.place_of(module.name, parts)


def build(services: Path = SERVICES) -> Sequence[str]:
    """Build those programs that are not there.

    Args:
        services: a directory of a lock that has Go, and of one directory for each program.

    Returns:
        The names of those that it built.

    Raises:
        CalledProcessError: one cannot be built; its output is on the standard error.
    """

    def make(missing: Sequence[str], scratch: Path) -> None:
        unpacked(services / _LOCK, scratch)
        for name in missing:
            _build(scratch / "go" / "bin" / "go", services / name, scratch)

    modules = sorted(file.parent for file in services.glob("*/go.mod"))
    return make_missing({module.name: place_of(module) for module in modules}, make)


def main(services: Path = SERVICES) -> int:
    """Build what is missing; one line and status 1 when it cannot be."""
    return main_of(partial(build, services))


def _build(go: Path, module: Path, scratch: Path) -> None:
    made, place = scratch / f"{module.name}.made", place_of(module)
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
