"""What Google Cloud Storage fails with: whether to go on, and the error that says what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from urllib3.exceptions import HTTPError, NameResolutionError, SSLError

from catalog.storages.given import ALLOW_INSECURE, CA_FILE
from catalog.storages.gs.access import ENDPOINT, NAME, GsAccess
from tableformat.errors import (
    DestinationError,
    EndedCredentialsError,
    LastingError,
    MissingError,
)

__all__ = [
    "FAILURES",
    "ChangedError",
    "LoginError",
    "RefusalError",
    "failure",
    "gone",
    "is_missing",
    "is_taken",
    "is_transient",
    "said_of",
]

_NOBODY: Final = 401
_NOT_FOUND: Final = 404
_TAKEN: Final = 412
_OVERLOADED: Final = (408, 429)
_RATE: Final = ("rateLimitExceeded", "userRateLimitExceeded")
_OF_SERVERS: Final = 500
_NOT_IMPLEMENTED: Final = 501
_NO_TLS: Final = "WRONG_VERSION_NUMBER"
"""OpenSSL's word for an answer that is no TLS at all."""
_UNKNOWN: Final = f"check {ENDPOINT}, and rights and limits of the bucket"
_ADVICE: Final[Mapping[int, str]] = {
    _NOBODY: (
        "the credentials are wrong or have ended: get new ones, which a catalog that lends them "
        "does by itself; finished files are kept"
    ),
    403: (
        "grant storage.objects.list, storage.objects.get, storage.objects.create and "
        "storage.objects.delete on the bucket (roles/storage.objectUser has them)"
    ),
    _NOT_FOUND: "make the bucket, or correct the location",
    _NOT_IMPLEMENTED: "the server lacks what an export needs; use another one",
}


class RefusalError(Exception):
    """A server did not answer that it did what was asked: its status, a reason and a text."""

    def __init__(self, status: int, body: bytes) -> None:
        """Read an answer; one that is not Google's form of an error is its own text."""
        self.status, self.reason, text = status, "", body.decode("utf-8", "replace")
        try:
            found: Any = json.loads(body)["error"]
            text = str(found["message"])
            self.reason = str(found["errors"][0]["reason"])
        except (ValueError, KeyError, IndexError, TypeError):
            pass
        super().__init__(f"{status} {self.reason}".strip() + f": {' '.join(text.split())[:300]}")


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


def is_missing(error: Exception) -> bool:
    """Whether a server answered that there is no such object, or no such bucket."""
    return isinstance(error, RefusalError) and error.status == _NOT_FOUND


def is_taken(error: Exception) -> bool:
    """Whether a server answered that there is an object of that name."""
    return isinstance(error, RefusalError) and error.status == _TAKEN


def is_transient(error: Exception) -> bool:
    """Whether a request may succeed later: the server is away, overloaded, or was cut off."""
    if isinstance(error, RefusalError):
        over = error.status >= _OF_SERVERS and error.status != _NOT_IMPLEMENTED
        # The bytes changed on their way: they are sent again.
        changed = error.status == 400 and "MD5" in str(error)  # noqa: PLR2004  a bad request
        return over or changed or error.status in _OVERLOADED or error.reason in _RATE
    if isinstance(error, LoginError):
        return error.is_transient
    said = _tls_said(error)
    # A certificate that is not trusted stays so, and so does a server without TLS; a connection
    # that was cut does not.
    return said is None or ("CERTIFICATE" not in said and _NO_TLS not in said)


def failure(what: str, location: str, error: Exception, access: GsAccess) -> DestinationError:
    """Return the error of a request; nothing in it is secret.

    It is one that lasts where the server has refused for good, and where it was waited for in vain.

    Args:
        what: what was tried, as it follows "Cannot".
        location: of the object.
        error: what the request raised.
        access: whose secrets do not show.
    """
    message = f"Cannot {what} {location}: {access.masked(said_of(error)).rstrip('. ')}."
    if is_transient(error):
        return LastingError(
            f"{message} The storage did not recover within {access.retry_for:g} s (--retry-for). "
            "Check it and the network; finished files are kept, and it is safe to run again."
        )
    advice = _advice(error)
    kind: type[DestinationError] = LastingError
    if isinstance(error, RefusalError) and error.status == _NOBODY and access.token is not None:
        kind = EndedCredentialsError
    elif advice == _UNKNOWN:
        kind = DestinationError
    return kind(f"{message} {advice[:1].upper()}{advice[1:]}; it is safe to run again.")


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


def _advice(error: Exception) -> str:
    if isinstance(error, RefusalError):
        return _ADVICE.get(error.status, _UNKNOWN)
    if isinstance(error, LoginError):
        return (
            "give a token (gcs.oauth2.token), or name a file of credentials in "
            "GOOGLE_APPLICATION_CREDENTIALS"
        )
    said = _tls_said(error) or ""
    if _NO_TLS in said:
        return (
            f"the server speaks http there: name its https port, or write http:// in {ENDPOINT} "
            f"and allow it ({ALLOW_INSECURE}: true)"
        )
    return (
        f"name the authority that signed the certificate of {NAME}'s endpoint, a PEM file, as "
        f"{CA_FILE} of the catalog or in SSL_CERT_FILE"
    )
