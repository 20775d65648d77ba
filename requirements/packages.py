"""Installs the packages of requirements/, and resolves them anew, by uv.

    python requirements/packages.py install LOCK ENVIRONMENT
    python requirements/packages.py lock NAME...

The first installs exactly what a lock has into an environment, which is made where there is none.
The second writes locks: dev.lock from the extra `dev` of pyproject.toml, any other NAME/NAME.lock
from NAME/NAME.in. A lock holds for every supported Python and system: markers say what each takes.

uv (installer/installer.lock) is beside the Python that runs this. It takes packages from where pip
is set up to take them: whoever has an index, a proxy or an authority of their own has told pip.
"""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["install", "lock", "main", "settings"]

_HERE: Final = Path(__file__).resolve().parent
_PROJECT: Final = _HERE.parent / "pyproject.toml"
_BUILD: Final = _HERE / "build" / "build.lock"
_DEV: Final = "dev"
# What pip calls it, what uv calls it, and what stands between several.
_OF_PIP: Final = (
    ("cert", "SSL_CERT_FILE", " "),
    ("client-cert", "SSL_CLIENT_CERT", " "),
    ("default-timeout", "UV_HTTP_TIMEOUT", " "),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("index-url", "UV_DEFAULT_INDEX", " "),
    ("proxy", "ALL_PROXY", " "),
    ("timeout", "UV_HTTP_TIMEOUT", " "),
    ("trusted-host", "UV_INSECURE_HOST", " "),
)
# Later ones go before: the file of pip, its section for `pip install`, and the environment.
_SECTIONS: Final = ("global", "install", ":env:")
_ALWAYS: Final = {
    # pip trusts the authorities of the machine, too.
    "UV_SYSTEM_CERTS": "1",
    # Of several indexes pip takes the file that fits, and not the first index that has the name.
    "UV_INDEX_STRATEGY": "unsafe-best-match",
    # The Python that runs this is the one that is meant.
    "UV_PYTHON_DOWNLOADS": "never",
}
_INSTALL: Final = (
    "--quiet",
    # A lock has everything; to resolve, uv would load PySpark twice.
    "--no-deps",
    "--require-hashes",
    "--build-constraints",
    str(_BUILD),
    # Its 400 MB are jars, which deflating makes no smaller: half of the time of its build.
    "--config-settings-package",
    "pyspark:--build-option=--compression=stored",
)
# It replaces a file of chdb-core. pip installs what a package depends on before the package; uv
# installs all at once.
_LAST: Final = ("--reinstall-package", "chdb")
_LOCK: Final = (
    "--quiet",
    "--universal",
    "--generate-hashes",
    "--no-header",
    "--no-annotate",
    # The extras name one another, so the project itself is among what is resolved.
    "--no-emit-package",
    "mergeberg",
)


def settings(said: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which uv does as pip would.

    Args:
        said: by `pip config list`.
        environ: what is there already goes before.
    """
    told: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in said.splitlines():
        key, _, text = line.partition("=")
        section, _, name = key.partition(".")
        if section in told:
            told[section][name.replace("_", "-")] = str(ast.literal_eval(text))
    of_pip = {name: text for section in _SECTIONS for name, text in told[section].items()}
    found = {
        variable: between.join(parts)
        for name, variable, between in _OF_PIP
        if (parts := [part for part in of_pip.get(name, "").split() if _holds(name, part)])
    }
    return _ALWAYS | found | dict(environ)


def _holds(name: str, part: str) -> bool:
    """Whether a part of a setting is one: pip leaves out directories that are not there."""
    return name != "find-links" or "://" in part or Path(part).exists()


def install(lock_file: Path, environment: Path) -> None:
    """Install what a lock has.

    Raises:
        CalledProcessError: it cannot be; uv has said why.
    """
    python = environment / "bin" / "python"
    if not python.exists():
        _uv("venv", "--quiet", "--python", sys.executable, str(environment))
    to = ("--python", str(python))
    for order in ((), _LAST):
        _uv("pip", "install", *_INSTALL, *to, *order, "--requirement", str(lock_file))
    _uv("pip", "check", "--quiet", *to)


def lock(name: str) -> None:
    """Write a lock; what it has now stays where it can.

    Raises:
        CalledProcessError: it cannot be resolved; uv has said why.
    """
    if name == _DEV:
        file, what = _HERE / "dev.lock", ["--extra", _DEV, _PROJECT.name]
    else:
        file = _HERE / name / f"{name}.lock"
        what = [str(file.with_suffix(".in").relative_to(_PROJECT.parent))]
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
    oldest = project["requires-python"].split(",")[0].removeprefix(">=")
    with tempfile.TemporaryDirectory(prefix="mergeberg-lock-") as directory:
        made = Path(directory, file.name)
        if file.exists():
            made.write_bytes(file.read_bytes())
        to = ("--python-version", oldest, "--output-file", str(made))
        # A directory of wheels has hashes that nobody else can have.
        _uv("pip", "compile", *_LOCK, *to, *what, without=("UV_FIND_LINKS",))
        file.write_bytes(made.read_bytes())


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; return the exit code."""
    try:
        match arguments:
            case ["install", lock_file, environment]:
                install(Path(lock_file).absolute(), Path(environment).absolute())
            case ["lock", *names] if names:
                for name in names:
                    lock(name)
            case _:
                sys.stderr.write(f"{__doc__}")
                return 2
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


def _uv(*words: str, without: Sequence[str] = ()) -> None:
    """Run uv in the project's directory."""
    environ = {n: text for n, text in settings(_of_pip(), os.environ).items() if n not in without}
    program = Path(sys.executable).with_name("uv")
    subprocess.run([program, *words], check=True, env=environ, cwd=_PROJECT.parent)


@functools.cache
def _of_pip() -> str:
    command = (sys.executable, "-m", "pip", "config", "list")
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
