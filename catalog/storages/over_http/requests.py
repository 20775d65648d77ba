"""Sends requests to an object store over HTTP, with retries, and classifies their failures.

- `ObjectClient` is the contract of a store whose objects appear whole; each method is one
  request.
- `Client` and `connections` hold connections to one endpoint for any number of threads. They
  never retry.
- `Requests` retries while the store is away (`catalog/retry.py`).
- `RefusalError`, `ChangedError` and `LoginError` describe failures; `Store` turns one into an
  error that says whether a retry may help and what to do.
- `Content` holds the bytes of an object, which can be sent more than once, with their MD5.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import IO, Any, Final, Protocol, Self, TypeVar
from urllib.parse import quote, urlencode

from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError, NameResolutionError, SSLError
from urllib3.response import BaseHTTPResponse

from catalog.network import TlsNames, is_in_clear, tls_context
from catalog.retry import Failed, repeated
from catalog.storages.access import ALLOW_INSECURE, CA_FILE, Place
from tableformat.errors import (
    DeniedError,
    DestinationError,
    EndedCredentialsError,
    LastingError,
    MissingError,
)
from tableformat.messages import Option
from tableformat.storage import StoredObject

__all__ = [
    "FAILURES",
    "UNAUTHORIZED",
    "Access",
    "ChangedError",
    "Client",
    "Content",
    "ForeignResponseError",
    "LoginError",
    "ObjectClient",
    "Reachable",
    "RefusalError",
    "Requests",
    "Signed",
    "Store",
    "check_is_stores",
    "connections",
    "error_text",
    "is_transient",
    "missing_object",
    "verified",
]

UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_PRECONDITION_FAILED: Final = 412
_OVERLOAD_ERRORS: Final = (408, 429)
_SERVER_ERROR: Final = 500
_NOT_IMPLEMENTED: Final = 501
_LONGEST_TEXT: Final = 300
_NO_TLS: Final = "WRONG_VERSION_NUMBER"
"""OpenSSL's reason for a response that is not TLS."""


class RefusalError(Exception):
    """A server responded with an error: a status, a reason and a text."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        """Keep the status and the reason, with one line of the text."""
        self.status, self.reason = status, reason
        summary = " ".join(text.split())[:_LONGEST_TEXT]
        super().__init__(f"{status} {reason}".strip() + f": {summary}")

    @property
    def is_missing(self) -> bool:
        """Whether the object, or its container, does not exist."""
        return self.status == _NOT_FOUND

    @property
    def is_taken(self) -> bool:
        """Whether an object of that name exists."""
        return self.status == _PRECONDITION_FAILED

    @property
    def is_transient(self) -> bool:
        """Whether a retry may succeed: the server is down or overloaded."""
        over = self.status >= _SERVER_ERROR and self.status != _NOT_IMPLEMENTED
        return over or self.status in _OVERLOAD_ERRORS

    @property
    def is_unauthenticated(self) -> bool:
        """Whether the credentials are wrong or have expired."""
        return self.status == UNAUTHORIZED

    @property
    def is_denied(self) -> bool:
        """Whether these credentials do not allow the request."""
        return self.status == _FORBIDDEN and not self.is_unauthenticated


class ChangedError(Exception):
    """The received bytes are not those that were stored."""


class LoginError(Exception):
    """The client cannot authenticate; `is_transient` says whether a retry may succeed."""

    def __init__(self, summary: str, *, is_transient: bool) -> None:
        """Keep the reason."""
        self.is_transient = is_transient
        super().__init__(summary)


class ForeignResponseError(Exception):
    """A success that is not the store's, such as the page of a proxy: nothing was done or read."""

    def __init__(self, response: BaseHTTPResponse) -> None:
        """Keep what came instead."""
        of = response.headers.get("Content-Type", "no type")
        super().__init__(f"{response.status}: something else than the store responded, with {of}")


FAILURES: Final = (RefusalError, ChangedError, LoginError, ForeignResponseError, HTTPError)
"""The exceptions of a request."""


@dataclass(frozen=True, slots=True)
class Store:
    """A kind of store, as messages show it: its name, and the advice for its errors.

    `endpoint` is the property that names a server. `advice` is by status; each text begins a
    sentence, without a capital. `login` is the advice if the client cannot authenticate.
    """

    name: str
    endpoint: str
    login: str
    advice: Mapping[int, str] = field(default_factory=dict)

    def failure(
        self,
        what: str,
        location: str,
        summary: str,
        error: Exception,
        *,
        waited: float,
        vended: bool,
    ) -> DestinationError:
        """Return the error of a request.

        It is a LastingError if the server refused for good, or did not recover in time.

        Args:
            what: the action as it follows "Cannot " in the message.
            location: of the object.
            summary: the request's failure, in a line without secrets.
            error: the exception of the request.
            waited: how long the request was retried, in seconds.
            vended: whether the credentials may be vended by a catalog.
        """
        message = f"Cannot {what} {location}: {summary.rstrip('. ')}."
        if is_transient(error):
            return LastingError(
                f"{message} The storage did not recover within {waited:g} s ({Option.RETRY_FOR}). "
                "Check it and the network; finished files are kept, and it is safe to run again."
            )
        known = self._advice(error)
        kind: type[DestinationError] = LastingError
        if isinstance(error, RefusalError) and error.is_unauthenticated and vended:
            kind = EndedCredentialsError
        elif isinstance(error, RefusalError) and error.is_denied:
            kind = DeniedError
        elif known is None:
            kind = DestinationError
        advice = known or f"check {self.endpoint}, and rights and limits of the store"
        return kind(f"{message} {advice[:1].upper()}{advice[1:]}; it is safe to run again.")

    def _advice(self, error: Exception) -> str | None:
        if isinstance(error, RefusalError):
            return self.advice.get(UNAUTHORIZED if error.is_unauthenticated else error.status)
        if isinstance(error, LoginError):
            return self.login
        if _NO_TLS in (_tls_error(error) or ""):
            return (
                "the server speaks http there: name its https port, or write http:// in "
                f"{self.endpoint} and allow it ({ALLOW_INSECURE}: true)"
            )
        return (
            f"name the authority that signed the certificate of {self.name}'s endpoint, a PEM "
            f"file, as {CA_FILE} of the catalog or in SSL_CERT_FILE"
        )


def is_transient(error: Exception) -> bool:
    """Whether a retry may succeed: the server is down, overloaded, or the connection broke."""
    if isinstance(error, RefusalError | LoginError):
        return error.is_transient
    summary = _tls_error(error)
    # An untrusted certificate or a server without TLS lasts; a broken connection does not.
    return summary is None or ("CERTIFICATE" not in summary and _NO_TLS not in summary)


def missing_object(location: str) -> MissingError:
    """Return the error for reading a missing object."""
    return MissingError(
        f"Cannot read {location}: there is no such object. It was removed or moved away: put it "
        "back from a copy or an older version."
    )


def error_text(error: Exception) -> str:
    """Return a request's failure as one line, which may have secrets."""
    if isinstance(error, RefusalError | LoginError | ChangedError | ForeignResponseError):
        return str(error)
    if isinstance(error, NameResolutionError):
        return f"the host cannot be found: {error}"
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _tls_error(error: Exception) -> str | None:
    """Return the TLS error in capitals, None for other errors."""
    return str(error).upper() if isinstance(error, SSLError) else None


_PIECE: Final = 256 * 1024
_CHUNK: Final = 1024 * 1024


def verified(response: BaseHTTPResponse, md5: str | None) -> Iterator[bytes]:
    """Yield the bytes of a response, and verify them at the end.

    Args:
        response: with the whole object as its body.
        md5: of the stored object, in base64; None if it has none, then HTTP verifies its length.

    Raises:
        ChangedError: they are not those that were stored.
    """
    digest = hashlib.md5(usedforsecurity=False)
    for chunk in response.stream(_CHUNK):
        digest.update(chunk)
        yield chunk
    if md5 and base64.b64decode(md5) != digest.digest():
        raise ChangedError("its bytes are not those that were stored")


def check_is_stores(response: BaseHTTPResponse, mark: str) -> None:
    """Check that a successful response is the store's.

    Args:
        response: with the headers.
        mark: what the name of one of them begins with, in small letters.

    Raises:
        ForeignResponseError: it is not.
    """
    if not any(name.lower().startswith(mark) for name in response.headers):
        raise ForeignResponseError(response)


class Content:
    """The bytes of an object, which can be sent more than once; `md5` is in base64."""

    def __init__(self, file: IO[bytes], size: int, md5: bytes) -> None:
        """Keep a file that can be read from the start, its size and its digest."""
        self._file, self.size, self.md5 = file, size, base64.b64encode(md5).decode()

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Return the content of bytes in memory."""
        return cls(io.BytesIO(data), len(data), hashlib.md5(data, usedforsecurity=False).digest())

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes from the start."""
        self._file.seek(0)
        while piece := self._file.read(_PIECE):
            yield piece


class ObjectClient(Protocol):
    """The requests of a store. Each method is one request and raises `FAILURES`."""

    def insert(self, place: Place, content: Content) -> None:
        """Store an object; an existing one is replaced."""
        ...

    def insert_new(self, place: Place, content: Content, writer: str) -> None:
        """Store an object with its writer's mark.

        Raises:
            RefusalError: `is_taken` if an object exists.
        """
        ...

    def writer(self, place: Place) -> str:
        """Return the mark of an object's writer, '' if it has none."""
        ...

    def size(self, place: Place) -> int:
        """Return an object's size in bytes."""
        ...

    def chunks(self, place: Place) -> AbstractContextManager[Iterator[bytes]]:
        """Open an object's bytes, which are verified at the end.

        Raises:
            ChangedError: they are not those that were stored.
        """
        ...

    def below(self, place: Place) -> Iterator[StoredObject]:
        """Yield the objects below a directory, with as many requests as needed."""
        ...

    def remove(self, place: Place) -> None:
        """Remove an object."""
        ...

    def check_root(self, place: Place) -> None:
        """Raise if the bucket itself is missing, which must not read as an empty one."""
        ...


T = TypeVar("T")
_LOGGER: Final = logging.getLogger(__name__)


class Access(Protocol):
    """The settings of a store: a value, equal for equal connections."""

    @property
    def endpoint(self) -> str:
        """The server's address."""
        ...

    @property
    def retry_for(self) -> float:
        """Seconds for which a request is retried during an outage."""
        ...

    @property
    def is_vended(self) -> bool:
        """Whether a catalog may have vended the credentials, and may vend new ones."""
        ...

    def masked(self, text: str) -> str:
        """Return a text with its secrets masked."""
        ...

    def __hash__(self) -> int:
        """Return an equal hash for equal values."""
        ...


@dataclass(frozen=True, slots=True)
class Requests:
    """Sends requests to the store of `access`, through a client that `opened` creates.

    Once `stopped` is set, no request is retried.
    """

    access: Access
    store: Store
    opened: Callable[[Any], ObjectClient]
    stopped: Event = field(default_factory=Event, compare=False)

    @property
    def client(self) -> ObjectClient:
        """The client, one for each access, shared by the threads of a process."""
        return _client(self.opened, self.access, os.getpid())

    def run(self, what: str, location: str, request: Callable[[ObjectClient], T]) -> T:
        """Run a request, with retries; return its result.

        Args:
            what: the action as it follows "Cannot " in the message.
            location: of the object, for messages.
            request: sends the request through the client; it may run more than once.

        Raises:
            DestinationError: the request is refused, or the server does not recover in time.
        """

        def failed(error: Exception) -> Failed:
            summary, waited = self.access.masked(error_text(error)), self.access.retry_for
            raised = self.store.failure(
                what, location, summary, error, waited=waited, vended=self.access.is_vended
            )
            return Failed(summary, is_transient(error), raised)

        return repeated(
            lambda: request(self.client),
            doing=f"{what} {location}",
            failures=FAILURES,
            failed=failed,
            retry_for=self.access.retry_for,
            stopped=self.stopped,
        )


# The process id is part of the key: a forked child must not share connections.
@functools.lru_cache(maxsize=16)
def _client(
    opened: Callable[[Any], ObjectClient],
    access: Access,
    process: int,  # noqa: ARG001  see above
) -> ObjectClient:
    if is_in_clear(access.endpoint):
        _warn_of_http(access.endpoint)
    return opened(access)


@functools.cache
def _warn_of_http(endpoint: str) -> None:
    """Warn about an allowed http endpoint, once in a process."""
    _LOGGER.warning(
        "%s is not encrypted: anyone on the network can read and change the rows.", endpoint
    )


_CONNECTIONS: Final = 32
_FAILED: Final = 300

Signed = Callable[[str, str, Mapping[str, str], Mapping[str, str]], Mapping[str, str]]
"""Returns a request's authentication headers, from its method, path, query and headers."""


class Reachable(Protocol):
    """The connection settings of a store.

    `ca` is a PEM text of authorities; the time limits are in seconds.
    """

    @property
    def endpoint(self) -> str:
        """The server's address."""
        ...

    @property
    def ca(self) -> str | None:
        """The authorities to trust, None for the system's."""
        ...

    @property
    def connect_timeout(self) -> float:
        """Seconds to connect."""
        ...

    @property
    def read_timeout(self) -> float:
        """Seconds to wait for the next bytes of a response."""
        ...


def connections(name: str, access: Reachable) -> PoolManager:
    """Return a connection pool; nothing is sent yet.

    Args:
        name: of the store, for messages.
        access: the connection settings.

    Raises:
        UsageError: the authorities cannot be used.
    """
    names = TlsNames(f"use {name}", "mergeberg.ca-file", "", "")
    context = tls_context(names, ca=access.ca) if access.endpoint.startswith("https:") else None
    bounds = Timeout(connect=access.connect_timeout, read=access.read_timeout)
    return PoolManager(maxsize=_CONNECTIONS, timeout=bounds, retries=False, ssl_context=context)


class Client:
    """Sends requests to one endpoint, without retries."""

    def __init__(
        self,
        pool: PoolManager,
        endpoint: str,
        signed: Signed,
        refusal: Callable[[int, Mapping[str, str], bytes], RefusalError],
        mark: str = "",
    ) -> None:
        """Keep the settings.

        Args:
            pool: connections.
            endpoint: the base of all paths.
            signed: returns the authentication headers.
            refusal: parses an error response: its status, headers and body.
            mark: what a header of every response of the store begins with, '' for nothing.
        """
        self._pool, self._endpoint, self._signed, self._refusal = pool, endpoint, signed, refusal
        self._mark = mark

    @contextmanager
    def open_response(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterable[bytes] | None = None,
    ) -> Iterator[BaseHTTPResponse]:
        """Send a request and open its successful response, whose body is not read yet.

        Raises:
            RefusalError: the server refused it.
            LoginError: the client cannot authenticate.
            ForeignResponseError: something else than the store responded.
            HTTPError: there is no complete response.
        """
        query, headers = query or {}, headers or {}
        signed = self._signed(method, path, query, headers)
        query_string = f"?{urlencode(query, quote_via=quote)}" if query else ""
        response = self._pool.request(
            method,
            f"{self._endpoint}{path}{query_string}",
            headers={**signed, **headers, "User-Agent": "mergeberg"},
            body=body,
            redirect=False,
            preload_content=False,
            decode_content=False,
        )
        try:
            self._check(response)
            yield response
        except BaseException:
            response.close()
            raise
        finally:
            response.release_conn()

    def _check(self, response: BaseHTTPResponse) -> None:
        if response.status >= _FAILED:
            raise self._refusal(response.status, response.headers, response.read())
        check_is_stores(response, self._mark)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterable[bytes] | None = None,
    ) -> tuple[Mapping[str, str], bytes]:
        """Send a request; return headers and body of its response.

        Raises:
            RefusalError: the server refused it.
            LoginError: the client cannot authenticate.
            ForeignResponseError: something else than the store responded.
            HTTPError: there is no complete response.
        """
        with self.open_response(method, path, query=query, headers=headers, body=body) as response:
            return response.headers, response.read()
