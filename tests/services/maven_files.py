"""Files of a repository of Maven, each with its digest, fetched once into a directory.

Ivy fetches them, which Spark carries and fetches its own packages with.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

import pyspark

from spark_ext.java import find_java
from tableformat.errors import SourceError

__all__ = ["MavenFile", "check", "fetch"]

# A Java from PyPI trusts its own list of authorities; the system's may have more of them.
_SYSTEM_AUTHORITIES: Final = Path("/etc/ssl/certs/java/cacerts")
_TAIL: Final = 2000


@dataclass(frozen=True, slots=True)
class MavenFile:
    """One file of a release; `kind` is how its name ends, `classifier` what stands before that."""

    group: str
    name: str
    version: str
    kind: str
    sha256: str
    classifier: str = ""

    @property
    def file(self) -> str:
        """The name that it has in a directory."""
        stem = "-".join(filter(None, (self.name, self.version, self.classifier)))
        return f"{stem}.{self.kind}"


def fetch(files: Sequence[MavenFile], folder: Path) -> None:
    """Fetch what is not there yet; each file appears whole and as it should be, or not at all.

    Raises:
        SourceError: one cannot be had, or is another one.
    """
    missing = [one for one in files if not (folder / one.file).is_file()]
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetched-", dir=folder) as directory:
        made = Path(directory)
        said = _ivy(made, missing)
        for one in missing:
            if not (made / one.file).is_file():
                message = (
                    f"Cannot fetch {one.group}:{one.name}:{one.version}: {said}. Check the network "
                    "and run again."
                )
                raise SourceError(message)
            check(made, one)
            (made / one.file).replace(folder / one.file)


def check(folder: Path, one: MavenFile) -> None:
    """Check that a file is what is meant.

    Raises:
        SourceError: it is another one.
    """
    with (folder / one.file).open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != one.sha256:
        message = (
            f"Cannot use {folder / one.file}: its SHA-256 is {found}, not {one.sha256}. Remove it "
            "and run again."
        )
        raise SourceError(message)


def _ivy(made: Path, files: Sequence[MavenFile]) -> str:
    """Let Ivy put files into a directory, none but these; return the end of what it said."""
    # Of two dependencies on one release Ivy takes the first.
    releases: dict[tuple[str, str, str], list[MavenFile]] = {}
    for one in files:
        releases.setdefault((one.group, one.name, one.version), []).append(one)
    wanted = made / "ivy.xml"
    wanted.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="tests" module="files"/><dependencies>'
        + "".join(_dependency(*release, found) for release, found in releases.items())
        + "</dependencies></ivy-module>"
    )
    (ivy,) = (Path(pyspark.__file__).resolve().parent / "jars").glob("ivy-*.jar")
    trusted = f"-Djavax.net.ssl.trustStore={_SYSTEM_AUTHORITIES}"
    command: list[str | Path] = [
        find_java(os.environ).home / "bin" / "java",
        *((trusted,) if _SYSTEM_AUTHORITIES.exists() else ()),
        *("-jar", ivy, "-ivy", wanted, "-cache", made / "cache", "-confs", "default"),
        *("-retrieve", f"{made}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    done = subprocess.run(
        command, capture_output=True, check=False, stdin=subprocess.DEVNULL, text=True
    )
    return " ".join(f"{done.stdout}{done.stderr}"[-_TAIL:].split()) or "Ivy said nothing"


def _dependency(group: str, name: str, version: str, files: Sequence[MavenFile]) -> str:
    release = f"org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)}"
    artifacts = "".join(map(_artifact, files))
    return f'<dependency {release} transitive="false">{artifacts}</dependency>'


def _artifact(one: MavenFile) -> str:
    name, kind = quoteattr(one.name), quoteattr(one.kind)
    classifier = f" m:classifier={quoteattr(one.classifier)}" if one.classifier else ""
    return f"<artifact name={name} type={kind} ext={kind}{classifier}/>"
