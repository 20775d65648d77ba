"""What a request to a store fails with: whether to go on, and the error that says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from urllib3.exceptions import HTTPError, NameResolutionError, SSLError

from catalog.storages.given import ALLOW_INSECURE, CA_FILE
from tableformat.errors import (
    DestinationError,
    EndedCredentialsError,
    LastingError,
    MissingError,
)

__all__ = [
    "FAILURES",
    "NOBODY",
    "ChangedError",
    "LoginError",
    "RefusalError",
    "Store",
    "gone",
    "is_transient",
    "said_of",
]

NOBODY: Final = 401
_NOT_FOUND: Final = 404
_TAKEN: Final = 412
_OVERLOADED: Final = (408, 429)
_OF_SERVERS: Final = 500
_NOT_IMPLEMENTED: Final = 501
_LONGEST_SAID: Final = 300
_NO_TLS: Final = "WRONG_VERSION_NUMBER"
"""OpenSSL's word for an answer that is no TLS at all."""


class RefusalError(Exception):
    """A server did not answer that it did what was asked: its status, a reason and a text."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        """Remember it, with so much of the text as fits into a line."""
        self.status, self.reason = status, reason
        said = " ".join(text.split())[:_LONGEST_SAID]
        super().__init__(f"{status} {reason}".strip() + f": {said}")

    @property
    def is_missing(self) -> bool:
        """Whether there is no such object, or nothing that it could be in."""
        return self.status == _NOT_FOUND

    @property
    def is_taken(self) -> bool:
        """Whether there is an object of that name."""
        return self.status == _TAKEN

    @property
    def is_transient(self) -> bool:
        """Whether the request may succeed later: the server is away or overloaded."""
        over = self.status >= _OF_SERVERS and self.status != _NOT_IMPLEMENTED
        return over or self.status in _OVERLOADED

    @property
    def is_of_nobody(self) -> bool:
        """Whether the credentials are wrong, or have ended."""
        return self.status == NOBODY


class ChangedError(Exception):
    """The bytes that came are not those that were stored."""


class LoginError(Exception):
    """Nobody can be named; `is_transient` tells whether that may change by itself."""

    def __init__(self, said: str, *, is_transient: bool) -> None:
        """Say why."""
        self.is_transient = is_transient
        super().__init__(said)


FAILURES: Final = (RefusalError, ChangedError, LoginError, HTTPError)
"""What a request raises."""


@dataclass(frozen=True, slots=True)
class Store:
    """A kind of store, as messages have it: its name, and what to do about what it answers.

    `endpoint` is the property that names a server. `advice` is by status, for what is known; it
    begins a sentence, without a capital. `login` is said where nobody can be named.
    """

    name: str
    endpoint: str
    login: str
    advice: Mapping[int, str] = field(default_factory=dict)

    def failure(
        self, what: str, location: str, said: str, error: Exception, *, waited: float, lent: bool
    ) -> DestinationError:
        """Return the error of a request.

        It is one that lasts where the server has refused for good, and where it was waited for in
        vain.

        Args:
            what: what was tried, as it follows "Cannot".
            location: of the object.
            said: what the request failed with, in a line without secrets.
            error: what it raised.
            waited: for how many seconds an outage is waited for.
            lent: whether loading the table anew may bring other credentials.
        """
        message = f"Cannot {what} {location}: {said.rstrip('. ')}."
        if is_transient(error):
            return LastingError(
                f"{message} The storage did not recover within {waited:g} s (--retry-for). Check "
                "it and the network; finished files are kept, and it is safe to run again."
            )
        known = self._advice(error)
        kind: type[DestinationError] = LastingError
        if isinstance(error, RefusalError) and error.is_of_nobody and lent:
            kind = EndedCredentialsError
        elif known is None:
            kind = DestinationError
        advice = known or f"check {self.endpoint}, and rights and limits of the store"
        return kind(f"{message} {advice[:1].upper()}{advice[1:]}; it is safe to run again.")

    def _advice(self, error: Exception) -> str | None:
        if isinstance(error, RefusalError):
            return self.advice.get(NOBODY if error.is_of_nobody else error.status)
        if isinstance(error, LoginError):
            return self.login
        if _NO_TLS in (_tls_said(error) or ""):
            return (
                "the server speaks http there: name its https port, or write http:// in "
                f"{self.endpoint} and allow it ({ALLOW_INSECURE}: true)"
            )
        return (
            f"name the authority that signed the certificate of {self.name}'s endpoint, a PEM "
            f"file, as {CA_FILE} of the catalog or in SSL_CERT_FILE"
        )


def is_transient(error: Exception) -> bool:
    """Whether a request may succeed later: the server is away, overloaded, or was cut off."""
    if isinstance(error, RefusalError | LoginError):
        return error.is_transient
    said = _tls_said(error)
    # A certificate that is not trusted stays so, and so does a server without TLS; a connection
    # that was cut does not.
    return said is None or ("CERTIFICATE" not in said and _NO_TLS not in said)


def gone(location: str) -> MissingError:
    """Return the error of reading an object that is not there."""
    return MissingError(
        f"Cannot read {location}: there is no such object. It was removed or moved away: put it "
        "back from a copy or an older version."
    )


def said_of(error: Exception) -> str:
    """Return what a request failed with, in one line; secrets may stand in it."""
    if isinstance(error, RefusalError | LoginError | ChangedError):
        return str(error)
    if isinstance(error, NameResolutionError):
        return f"the host cannot be found: {error}"
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _tls_said(error: Exception) -> str | None:
    """Return what TLS failed with, in capitals, None where it did not."""
    return str(error).upper() if isinstance(error, SSLError) else None
