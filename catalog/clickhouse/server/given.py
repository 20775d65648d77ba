"""What the user gave to log in with: address, environment and configuration file, in that order.

The first that names a thing decides it. A password belongs to the user that stands beside it: it is
not sent for the user of another place. Nothing here shows the value of a secret, nor a line of a
file that holds one.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from catalog.clickhouse.server.credentials import ClientCertificate, Credentials, Secret
from tableformat.errors import NotFoundError, RefusedError, UsageError

__all__ = [
    "PREFIX",
    "SECRETS",
    "Given",
    "choose",
    "in_environment",
    "in_file",
]

PREFIX: Final = "MERGEBERG_SOURCE_"
_NAMES: Final = ("user", "password", "token", "ca-file", "certificate", "key")
SECRETS: Final = (f"{PREFIX}PASSWORD", f"{PREFIX}TOKEN")
"""The variables of the environment that hold a secret of a source."""
_TABLE: Final = "source"
_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Given:
    """What one place gives; `place` names it for messages, the last three are paths."""

    place: str
    user: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    ca_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


def in_environment(environment: Mapping[str, str]) -> Given:
    """Return what environment variables give; an empty one gives nothing."""
    found = {name: environment.get(PREFIX + name.upper().replace("-", "_")) for name in _NAMES}
    return _given("the environment", {n: text for n, text in found.items() if text}, Path())


def in_file(path: Path) -> Given:
    """Return what the table `source` of a TOML file gives.

    Raises:
        NotFoundError: there is no such file.
        UsageError: it cannot be read, or has other names or values than it may have.
        RefusedError: it holds a secret, and others than its owner may read it.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            read = tomllib.loads(file.read().decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # Without its cause: that one shows what stands in the file.
        raise _unreadable(path, error) from None
    table = read.get(_TABLE, {})
    if not isinstance(table, dict):
        table = {_TABLE: table}
    wrong = sorted(name for name, value in table.items() if not _is_wanted(name, value))
    if wrong:
        message = (
            f"Cannot read the configuration {path}: [{_TABLE}] has {', '.join(wrong)}, and may "
            f"have {', '.join(_NAMES)}, each with a text. Correct the file."
        )
        raise UsageError(message)
    if ("password" in table or "token" in table) and mode & _OF_OTHERS:
        message = (
            f"Cannot use the configuration {path}: it holds a secret, and others than its owner "
            f"may open it (mode {stat.S_IMODE(mode):o}). Run: chmod 600 {path}"
        )
        raise RefusedError(message)
    return _given(f"the configuration {path}", table, path.parent)


def choose(layers: tuple[Given, ...]) -> tuple[Credentials, str | None]:
    """Return who logs in, and the authorities to trust (a PEM text), of what several places give.

    Raises:
        NotFoundError: a file that is named is not there.
        UsageError: what is given contradicts itself, or a file is not what it should be.
    """
    ca = next((_pem(one.ca_file, one.place, "CERTIFICATE") for one in layers if one.ca_file), None)
    certificate = next((_certificate(one) for one in layers if one.certificate or one.key), None)
    secret = next((one for one in layers if one.password or one.token), Given("nothing"))
    if secret.password and secret.token:
        message = (
            f"Cannot log in to ClickHouse: {secret.place} gives a password and an access token. "
            "Give one of the two."
        )
        raise UsageError(message)
    named = next((one for one in layers if one.user), secret)
    if secret.user not in (None, named.user):
        message = (
            f"Cannot log in to ClickHouse: {named.place} names the user '{named.user}', and the "
            f"secret in {secret.place} belongs to '{secret.user}'. Give both in one place."
        )
        raise UsageError(message)
    return Credentials(named.user, secret.password, secret.token, certificate), ca


def _given(place: str, texts: Mapping[str, str], directory: Path) -> Given:
    def secret(name: str) -> Secret | None:
        return Secret(texts[name]) if name in texts else None

    def path(name: str) -> Path | None:
        return directory / Path(texts[name]).expanduser() if name in texts else None

    return Given(
        place,
        texts.get("user"),
        secret("password"),
        secret("token"),
        path("ca-file"),
        path("certificate"),
        path("key"),
    )


def _is_wanted(name: str, value: Any) -> bool:
    return name in _NAMES and isinstance(value, str) and bool(value)


def _certificate(given: Given) -> ClientCertificate:
    """Read a certificate and its key, which may stand in the same file."""
    if given.certificate is None:
        message = (
            f"Cannot log in to ClickHouse: {given.place} gives the key of a client certificate and "
            "no certificate. Give both."
        )
        raise UsageError(message)
    certificate = _pem(given.certificate, given.place, "CERTIFICATE")
    key = _pem(given.key or given.certificate, given.place, "PRIVATE KEY")
    return ClientCertificate(certificate, Secret(key))


def _pem(path: Path, place: str, kind: str) -> str:
    """Read a PEM file in which something of a kind stands."""
    try:
        text = path.read_bytes().decode("ascii", "replace")
    except OSError as error:
        message = (
            f"Cannot read the file {path}, which {place} names: {error.strerror}. Correct the path."
        )
        raise NotFoundError(message) from None
    if not re.search(rf"-----BEGIN [A-Z ]*{kind}-----", text):
        what = "private key" if kind == "PRIVATE KEY" else "certificate"
        message = (
            f"Cannot use the file {path}, which {place} names: no {what} in the form PEM stands in "
            f"it (-----BEGIN {kind}-----). Name another file, or convert it with openssl."
        )
        raise UsageError(message)
    return text


def _unreadable(path: Path, error: Exception) -> UsageError:
    if isinstance(error, FileNotFoundError):
        message = f"Cannot read the configuration {path}: there is no such file. Correct its path."
        return NotFoundError(message)
    if isinstance(error, OSError):
        message = f"Cannot read the configuration {path}: {error.strerror}. Check its rights."
        return UsageError(message)
    line = re.search(r"line [0-9]+", str(error)) if not isinstance(error, UnicodeError) else None
    where = f" ({line[0]})" if line else ""
    return UsageError(
        f"Cannot read the configuration {path}: it is no TOML{where}. Write for example "
        '[source] and, in the next line, user = "exporter".'
    )
