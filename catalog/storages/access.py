"""Reads storage settings from catalog or table properties and from the environment.

Two properties are ours, alongside those that PyIceberg has for each storage:

    mergeberg.ca-file          a PEM file with the authorities to trust, before SSL_CERT_FILE
    mergeberg.allow-insecure   true: http is allowed; also MERGEBERG_ALLOW_INSECURE

`Place` splits a location, which is literal, into bucket and key. Functions that refuse something
take the name of the storage for their messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from catalog.network import INSECURE
from tableformat.errors import DestinationError, NotFoundError, RefusedError, UsageError

__all__ = [
    "ALLOW_INSECURE",
    "CA_FILE",
    "Place",
    "authorities",
    "exists_error",
    "refuse_http",
    "seconds_of",
    "text_of",
    "without",
]

CA_FILE: Final = "mergeberg.ca-file"
ALLOW_INSECURE: Final = "mergeberg.allow-insecure"
_MASK: Final = "***"
# Shorter secrets occur in texts by chance, and masking them would reveal them.
_SHORTEST_MASKED: Final = 4


def text_of(properties: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of these properties that is set, as text.

    Values from a YAML file may have other types.
    """
    values = (properties.get(name) for name in names)
    return next((str(value) for value in values if value not in (None, "")), None)


def seconds_of(storage: str, properties: Mapping[str, Any], name: str, default: float) -> float:
    """Return a number of seconds.

    Raises:
        UsageError: the value is no number above 0.
    """
    given = text_of(properties, name)
    try:
        seconds = default if given is None else float(given)
    except ValueError:
        seconds = 0.0
    if seconds > 0:
        return seconds
    message = f"Cannot use {storage}: {name} is no number of seconds above 0. Write for example 30."
    raise UsageError(message)


def authorities(
    storage: str, properties: Mapping[str, Any], environment: Mapping[str, str]
) -> str | None:
    """Return the PEM text of the authorities to trust, None if none are named.

    It is read here, because executors get the text.

    Raises:
        NotFoundError: the named file cannot be read.
    """
    given = text_of(properties, CA_FILE)
    name, path = (CA_FILE, given) if given else ("SSL_CERT_FILE", environment.get("SSL_CERT_FILE"))
    if not path:
        return None
    try:
        return Path(path).expanduser().read_text(encoding="ascii", errors="ignore")
    except OSError as error:
        message = (
            f"Cannot use {storage}: {name} names {path}, which cannot be read: {error.strerror}. "
            "Name a PEM file with the certificates of the authorities to trust."
        )
        raise NotFoundError(message) from error


def refuse_http(storage: str, endpoint: str) -> RefusedError:
    """Return the refusal of an http endpoint that is not allowed."""
    message = (
        f"Cannot use the {storage} endpoint {endpoint}: over http anyone on the network can read "
        "and change the rows. Use https, or allow it in the catalog's configuration, next to the "
        f"endpoint ({ALLOW_INSECURE}: true), or by {INSECURE}=1."
    )
    return RefusedError(message)


def exists_error(location: str) -> DestinationError:
    """Return the error for an existing object with the name of a new one."""
    return DestinationError(
        f"Cannot write {location}: there is another object of that name, which is kept. Run "
        "it again: names are new each time."
    )


def without(text: str, *secrets: str | None) -> str:
    """Return a text with its secrets masked."""
    for secret in secrets:
        if secret and len(secret) >= _SHORTEST_MASKED:
            text = text.replace(secret, _MASK)
    return text


_LOCATION: Final = re.compile(r"(?P<head>[a-z0-9]+://)(?P<bucket>[^/]+)/(?P<key>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """An object; with a key that ends with a slash, everything below a directory."""

    head: str
    bucket: str
    key: str

    @classmethod
    def of(cls, location: str) -> Self:
        """Parse a location.

        Raises:
            UsageError: it has no bucket or no key.
        """
        found = _LOCATION.fullmatch(location)
        if found is None:
            scheme = location.partition(":")[0]
            message = f"Cannot use {location}: it names no object. Write {scheme}://BUCKET/KEY."
            raise UsageError(message)
        return cls(found["head"], found["bucket"], found["key"])

    @classmethod
    def below(cls, location: str) -> Self:
        """Parse the location of a directory; a whole bucket is one, too.

        Raises:
            UsageError: it has no bucket.
        """
        return cls.of(f"{location.rstrip('/')}/")

    def location(self, key: str) -> str:
        """Return the location of another key in the bucket."""
        return f"{self.head}{self.bucket}/{key}"
