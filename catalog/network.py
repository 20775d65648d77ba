"""Holds helpers for networks: host parsing, plain-text checks, masking, time-outs and TLS.

- `named_host` and `is_port` parse `HOST` and `HOST:PORT` of server addresses.
- `is_this_machine` and `is_in_clear` decide whether traffic leaves this machine without TLS.
- `tls_context` creates a TLS context that trusts only the authorities that the user names.
- `without_secret` removes the password and secret options of any address, also a malformed one,
  before a message shows it; `shown_address` also those of an address without `://`.
- `TimeOuts` bounds connecting, reading and retries.
- `INSECURE` and `is_true` serve settings that are environment variables.
- `some` shortens a list of names for a message of one line.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from tableformat.errors import UsageError
from tableformat.names import names_secret

__all__ = [
    "DEFAULT_TIME_OUTS",
    "INSECURE",
    "TimeOuts",
    "TlsNames",
    "has_options_before_host",
    "holds_secret",
    "is_in_clear",
    "is_port",
    "is_this_machine",
    "is_true",
    "named_host",
    "show_certificate",
    "shown_address",
    "some",
    "tls_context",
    "without_secret",
]

_HIGHEST_PORT: Final = 65_535
_HOST: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")


def named_host(text: str, default_port: int) -> tuple[str, int] | None:
    """Return name and port, None for any other text; an IPv6 address keeps its brackets."""
    found = _HOST.fullmatch(text)
    port = int(found["port"] or default_port) if found else 0
    return (found["name"].lower(), port) if found and is_port(port) else None


def is_port(number: int) -> bool:
    """Whether a number is a valid port."""
    return 0 < number <= _HIGHEST_PORT


def is_this_machine(host: str) -> bool:
    """Whether a host's name alone says that it is this machine, so that no data leaves it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_in_clear(url: str) -> bool:
    """Whether requests to a URL leave this machine without TLS."""
    found = urlsplit(url)
    return found.scheme == "http" and not is_this_machine(found.hostname or "")


_HARMLESS: Final = re.compile(r"(connect-timeout|read-timeout|compress)=[0-9.]{1,10}")
_OPTIONS: Final = re.compile(r"\?.*=", re.DOTALL)
_BEHIND: Final = re.compile(r"[:/?#@]")


def without_secret(text: str) -> str:
    """Return a text without the secrets of the address that it is, or ends with.

    Works for malformed addresses and other kinds, too, such as `clickhouse://user:password@host`.
    The path is kept. Of the options, an HTTP address keeps only known harmless ones; another
    address loses those whose names are those of secrets.
    """
    begin, mark, rest = text.partition("://")
    if not mark:
        return text
    before, at, place = rest.rpartition("@")
    if has_options_before_host(before):
        return f"{begin}{mark}{_BEHIND.split(before, maxsplit=1)[0]}"
    user = before.partition(":")[0]
    place, question, options = place.partition("?")
    is_shown = _HARMLESS.fullmatch if begin.lower().endswith(("http", "https")) else _is_harmless
    shown = [one for one in options.split("&") if is_shown(one)]
    return f"{begin}{mark}{user}{at}{place}" + (question + "&".join(shown) if shown else "")


_OF_FILES: Final = ("chdb", "parts", "sqlite")
"""The kinds of sources and ledgers whose address is a path, which may have any characters."""


def shown_address(text: str) -> str:
    """Return the address of a source or ledger without its secrets, also one without `://`.

    Without `://`, the first word before a colon is shown, as a kind or a user; a source may have a
    name and = before its address.
    """
    if "://" in text:
        return without_secret(text)
    first, _, rest = text.partition(":")
    if first.rpartition("=")[2] in _OF_FILES:
        return text
    if "@" in rest:
        text = f"{first}@{rest.rpartition('@')[2]}"
    place, question, options = text.partition("?")
    shown = [one for one in options.split("&") if _is_harmless(one)]
    return place + (question + "&".join(shown) if shown else "")


def holds_secret(setting: str) -> bool:
    """Whether the name of a setting, NAME=VALUE, is that of a secret."""
    return not _is_harmless(setting)


def has_options_before_host(before: str) -> bool:
    """Whether the text before the last @ of an address has options, so that no host follows.

    The @ then belongs to the value of an option, which may be a secret.
    """
    return _OPTIONS.search(before) is not None


def _is_harmless(option: str) -> bool:
    name, equals, _ = option.partition("=")
    return not (equals and names_secret(name))


@dataclass(frozen=True, slots=True)
class TimeOuts:
    """Limits in seconds: to connect, to wait for a response, and to retry.

    `retry_for` limits the retries of a request to an object store that is unavailable.
    """

    connect: float = 10.0
    read: float = 60.0
    retry_for: float = 900.0


DEFAULT_TIME_OUTS: Final = TimeOuts()


INSECURE: Final = "MERGEBERG_ALLOW_INSECURE"
"""The environment variable that allows connections without TLS."""
_TRUE: Final = ("true", "1", "t", "yes", "y", "on")


def is_true(value: Any) -> bool:
    """Whether the value of a property means yes; a YAML file may give another type than text."""
    return str(value).lower() in _TRUE


def some(names: Iterable[str], *, most: int = 3) -> str:
    """Return the first names as a text, followed by the number of the others."""
    held = list(names)
    more = f" and {len(held) - most} more" if len(held) > most else ""
    return ", ".join(held[:most]) + more


@dataclass(frozen=True, slots=True)
class TlsNames:
    """The words of messages: the action after "Cannot ", and the settings that name the files."""

    doing: str
    ca: str
    certificate: str
    key: str


def tls_context(
    names: TlsNames, *, ca_file: Path | None = None, ca: str | None = None
) -> ssl.SSLContext:
    """Return a TLS context that verifies a server's certificate and host name.

    Args:
        names: the words of messages.
        ca_file: a PEM file with the trusted authorities.
        ca: their PEM text, instead. Without both, the authorities of the system are trusted.

    Raises:
        UsageError: the authorities cannot be used.
    """
    try:
        # With explicit authorities it does not load those of the system.
        return ssl.create_default_context(cafile=ca_file, cadata=ca)
    except (ssl.SSLError, OSError) as error:
        message = (
            f"Cannot {names.doing}: the certificate of an authority is damaged or cannot be read. "
            f"Correct the file that {names.ca} names."
        )
        raise UsageError(message) from error


def show_certificate(
    context: ssl.SSLContext, names: TlsNames, certificate: Path, key: Path | None = None
) -> None:
    """Add a client certificate to a context; its key may be in the same file.

    Raises:
        UsageError: the certificate or its key cannot be used.
    """
    try:
        context.load_cert_chain(certificate, keyfile=key, password=partial(_no_pass_phrase, names))
    except (ssl.SSLError, OSError) as error:
        message = (
            f"Cannot {names.doing}: the client certificate or its key is damaged or cannot be "
            "read, or the key is another certificate's. Correct the files that "
            f"{names.certificate} and {names.key} name."
        )
        raise UsageError(message) from error


def _no_pass_phrase(names: TlsNames) -> NoReturn:
    # Without a password function OpenSSL would ask the terminal, and wait.
    message = (
        f"Cannot {names.doing}: the key of the client certificate is protected by a pass phrase. "
        "Give a key without one, in a file that only its owner may read (openssl pkey -in KEY "
        "-out NEW)."
    )
    raise UsageError(message)
