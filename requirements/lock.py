"""Writes the locks of the Python that runs it: every package at one version, with its hashes.

One lock per Python, because the packages that are needed differ with it. Run it as `make lock`, or
`make lock PYTHON=python3.12` for another; `make lock-readers` writes readers/readers.lock,
connect/connect.lock, services/services.lock, node/node.lock and older-spark/older-spark.lock, of
which there is one each, because their packages are the same for every Python. It makes an
environment of its own, because it must not depend on the lock that it writes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_TOOLS = ("pip==26.2", "pip-tools==7.6.2")
# pip-tools loads every file of every release to hash it, gigabytes for us, although the index says
# the hashes. This takes the index at its word where it gives a SHA-256.
_COMPILE = """\
from piptools.repositories import PyPIRepository
from piptools.scripts.compile import cli

load_and_hash = PyPIRepository._get_file_hash


def said_or_computed(repository, link):
    if link.hash_name == "sha256" and link.hash:
        return f"sha256:{link.hash}"
    return load_and_hash(repository, link)


PyPIRepository._get_file_hash = said_or_computed
cli()
"""
_OPTIONS = (
    "--generate-hashes",
    "--strip-extras",
    "--allow-unsafe",
    "--quiet",
    # Where packages come from is the business of the machine, never of the lock.
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-emit-trusted-host",
    "--no-emit-options",
    "--no-header",
    "--no-annotate",
)


def main() -> None:
    """Resolve the extra `dev`, or what is named, and write requirements/py3XX.lock, or its lock."""
    if sys.argv[1:]:
        name = f"{sys.argv[1]}/{sys.argv[1]}.lock"
        what = [f"requirements/{sys.argv[1]}/{sys.argv[1]}.in"]
    else:
        name = f"py{sys.version_info.major}{sys.version_info.minor}.lock"
        what = ["--extra=dev", "pyproject.toml"]
    # Local wheels would put hashes into the lock that nobody else can have.
    environ = {key: value for key, value in os.environ.items() if key != "PIP_FIND_LINKS"}
    with tempfile.TemporaryDirectory(prefix="mergeberg-lock-") as directory:
        venv.create(directory, with_pip=True)
        python = str(Path(directory, "bin", "python"))
        install = [python, "-m", "pip", "install", "--quiet", *_TOOLS]
        subprocess.run(install, check=True, env=environ)
        output = str(Path(directory, "packages.lock"))
        command = [python, "-c", _COMPILE, *_OPTIONS, f"--output-file={output}", *what]
        subprocess.run(command, check=True, env=environ, cwd=_ROOT)
        lines = Path(output).read_text(encoding="utf-8").splitlines(keepends=True)
    # The extras name one another, so the project itself is among what was resolved.
    kept = [line for line in lines if not line.startswith(("#", "mergeberg @"))]
    Path(_ROOT, "requirements", name).write_text("".join(kept).lstrip(), encoding="utf-8")


if __name__ == "__main__":
    main()
