"""Gets a server for tests out of Debian's packages.

    python -m tests.services.debian_packages TO NAME...

The packages, and those of what they depend on that this machine lacks, are fetched by name with
apt-get and unpacked below a directory. Nothing is installed, and root is not needed. A machine
whose package lists are missing or old gets lists of its own for it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["main", "unpack"]


def unpack(names: list[str], to: Path) -> str:
    """Unpack packages into a new directory that takes the place of `to`; say what went wrong."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return "this machine has no apt-get and dpkg"
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="packages-", dir=to.parent) as scratch:
        made = Path(scratch)
        (made / "archives" / "partial").mkdir(parents=True)
        (made / "lists" / "partial").mkdir(parents=True)
        own_lists = ["-o", f"Dir::State::lists={made}/lists"]
        problem = _download(made, names, [])
        if problem:
            problem = _apt(made, "update", *own_lists) or _download(made, names, own_lists)
        if problem:
            return problem
        for package in sorted((made / "archives").glob("*.deb")):
            problem = _run("dpkg", "-x", str(package), str(made / "root"))
            if problem:
                return problem
        shutil.rmtree(to, ignore_errors=True)
        (made / "root").rename(to)
    return ""


def main(arguments: list[str]) -> int:
    """Unpack what the command line names; one line and status 1 when it cannot be."""
    to, *names = arguments
    problem = unpack(names, Path(to).absolute())
    if problem:
        sys.stderr.write(f"Cannot get {' and '.join(names)} for the tests: {problem}\n")
    return 1 if problem else 0


def _download(made: Path, names: list[str], options: list[str]) -> str:
    # Those that are asked for are wanted even where they are installed.
    words = ("--yes", "--no-install-recommends", "--reinstall", "--download-only")
    return _apt(made, "install", *options, *words, *names)


def _apt(made: Path, *words: str) -> str:
    """Run apt-get with a cache of its own, and without the machine's locks."""
    settings = (f"Dir::Cache={made}", "Debug::NoLocking=1", "APT::Sandbox::User=root")
    return _run("apt-get", "-q", *(w for s in settings for w in ("-o", s)), *words)


def _run(*words: str) -> str:
    """Return '' or, in one line, the output of a program that failed."""
    ended = subprocess.run(words, check=False, capture_output=True, text=True)
    if ended.returncode == 0:
        return ""
    lines = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
    return " ".join(lines[-3:]) or f"{words[0]} ended with status {ended.returncode}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
