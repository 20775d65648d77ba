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

from catalog.network import is_in_clear
from catalog.retry import Failed, repeated
from catalog.storages.access import ALLOW_INSECURE, CA_FILE, Place
from catalog.tls import TlsNames, tls_context
from tableformat.errors import DestinationError, EndedCredentialsError, LastingError, MissingError
from tableformat.storage import StoredObject

__all__ = [
    "FAILURES",
    "NOBODY",
    "Access",
    "ChangedError",
    "Client",
    "Content",
    "LoginError",
    "ObjectClient",
    "Reachable",
    "RefusalError",
    "Requests",
    "Signed",
    "Store",
    "connections",
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


_PIECE: Final = 256 * 1024


class Content:
    """The bytes of an object, which can be sent more than once; `md5` is in base64."""

    def __init__(self, file: IO[bytes], size: int, md5: bytes) -> None:
        """Take a file that can be read from its beginning, its bytes and their digest."""
        self._file, self.size, self.md5 = file, size, base64.b64encode(md5).decode()

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Make it of bytes."""
        return cls(io.BytesIO(data), len(data), hashlib.md5(data, usedforsecurity=False).digest())

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes, from the beginning."""
        self._file.seek(0)
        while piece := self._file.read(_PIECE):
            yield piece


class ObjectClient(Protocol):
    """Speaks to a store; each is one request, and raises what a request raises."""

    def insert(self, place: Place, content: Content) -> None:
        """Store an object, in place of one that is there."""
        ...

    def insert_new(self, place: Place, content: Content, writer: str) -> None:
        """Store an object with the mark of its writer.

        Raises:
            RefusalError: `is_taken` when there is one.
        """
        ...

    def writer(self, place: Place) -> str:
        """Return the mark of an object's writer, '' without one."""
        ...

    def size(self, place: Place) -> int:
        """Return an object's bytes."""
        ...

    def chunks(self, place: Place) -> AbstractContextManager[Iterator[bytes]]:
        """Open an object's bytes; at their end they are those that were stored.

        Raises:
            ChangedError: they are others.
        """
        ...

    def below(self, place: Place) -> Iterator[StoredObject]:
        """Yield the objects below a directory, by as many requests as it takes."""
        ...

    def remove(self, place: Place) -> None:
        """Remove an object."""
        ...

    def check_root(self, place: Place) -> None:
        """Fail when it is the whole bucket that is not there; it must not be taken for empty."""
        ...


T = TypeVar("T")
_LOGGER: Final = logging.getLogger(__name__)


class Access(Protocol):
    """What is known of a store before it is asked: a value, equal for equal connections."""

    @property
    def endpoint(self) -> str:
        """The address of the server."""
        ...

    @property
    def retry_for(self) -> float:
        """Seconds for which a request goes on that meets an outage."""
        ...

    @property
    def is_lent(self) -> bool:
        """Whether credentials may be of a catalog that lends others later."""
        ...

    def masked(self, text: str) -> str:
        """Return a text without the secrets that may stand in it."""
        ...

    def __hash__(self) -> int:
        """Return the same for equal ones."""
        ...


@dataclass(frozen=True, slots=True)
class Requests:
    """Asks as `access` says, by what `opened` makes of it.

    Once `stopped` is set, nothing is tried again.
    """

    access: Access
    store: Store
    opened: Callable[[Any], ObjectClient]
    stopped: Event = field(default_factory=Event, compare=False)

    @property
    def client(self) -> ObjectClient:
        """One for each access, shared by the threads of a process."""
        return _client(self.opened, self.access, os.getpid())

    def ask(self, what: str, location: str, request: Callable[[ObjectClient], T]) -> T:
        """Return what a request of the client returns; it may be sent more than once.

        Args:
            what: what is tried, as it follows "Cannot".
            location: of the object, for messages.
            request: asks the client.

        Raises:
            DestinationError: it is refused, or the server stays away for too long.
        """

        def failed(error: Exception) -> Failed:
            said, waited = self.access.masked(said_of(error)), self.access.retry_for
            raised = self.store.failure(
                what, location, said, error, waited=waited, lent=self.access.is_lent
            )
            return Failed(said, is_transient(error), raised)

        return repeated(
            lambda: request(self.client),
            doing=f"{what} {location}",
            failures=FAILURES,
            failed=failed,
            retry_for=self.access.retry_for,
            stopped=self.stopped,
        )


# The process is part of the key: a connection must not be shared with a fork.
@functools.lru_cache(maxsize=16)
def _client(
    opened: Callable[[Any], ObjectClient],
    access: Access,
    process: int,  # noqa: ARG001  see above
) -> ObjectClient:
    if is_in_clear(access.endpoint):
        _tell_of_http(access.endpoint)
    return opened(access)


@functools.cache
def _tell_of_http(endpoint: str) -> None:
    """Warn of what was allowed, once in a process, whoever named it: the catalog, a table ..."""
    _LOGGER.warning(
        "%s is not encrypted: everybody on the way reads and can change the rows.", endpoint
    )


_CONNECTIONS: Final = 32
_FAILED: Final = 300

Signed = Callable[[str, str, Mapping[str, str], Mapping[str, str]], Mapping[str, str]]
"""Returns the headers of a request that say who asks, by its method, path, query and headers."""


class Reachable(Protocol):
    """How a store is reached: its endpoint, a PEM text of authorities, and bounds in seconds."""

    @property
    def endpoint(self) -> str:
        """The address of the server."""
        ...

    @property
    def ca(self) -> str | None:
        """The authorities to trust, None for those of the system."""
        ...

    @property
    def connect_timeout(self) -> float:
        """Seconds until a connection stands."""
        ...

    @property
    def read_timeout(self) -> float:
        """Seconds without a byte of an answer."""
        ...


def connections(name: str, access: Reachable) -> PoolManager:
    """Prepare connections; nothing is sent yet.

    Args:
        name: of the store, for messages.
        access: how it is reached.

    Raises:
        UsageError: the authorities cannot be used.
    """
    names = TlsNames(f"use {name}", "mergeberg.ca-file", "", "")
    context = tls_context(names, ca=access.ca) if access.endpoint.startswith("https:") else None
    bounds = Timeout(connect=access.connect_timeout, read=access.read_timeout)
    return PoolManager(maxsize=_CONNECTIONS, timeout=bounds, retries=False, ssl_context=context)


class Client:
    """Asks one endpoint."""

    def __init__(
        self,
        pool: PoolManager,
        endpoint: str,
        signed: Signed,
        refusal: Callable[[int, Mapping[str, str], bytes], RefusalError],
    ) -> None:
        """Prepare to speak to it.

        Args:
            pool: connections.
            endpoint: what paths are below.
            signed: says who asks.
            refusal: reads an answer that is no success: its status, headers and body.
        """
        self._pool, self._endpoint, self._signed, self._refusal = pool, endpoint, signed, refusal

    @contextmanager
    def answer(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterable[bytes] | None = None,
    ) -> Iterator[BaseHTTPResponse]:
        """Open the answer to a request, whose body is not read yet; it is a success.

        Raises:
            RefusalError: the server refused it.
            LoginError: nobody can be named.
            HTTPError: there is no whole answer.
        """
        query, headers = query or {}, headers or {}
        signed = self._signed(method, path, query, headers)
        question = f"?{urlencode(query, quote_via=quote)}" if query else ""
        response = self._pool.request(
            method,
            f"{self._endpoint}{path}{question}",
            headers={**signed, **headers, "User-Agent": "mergeberg"},
            body=body,
            redirect=False,
            preload_content=False,
            decode_content=False,
        )
        try:
            self._judge(response)
            yield response
        except BaseException:
            response.close()
            raise
        finally:
            response.release_conn()

    def _judge(self, response: BaseHTTPResponse) -> None:
        if response.status >= _FAILED:
            raise self._refusal(response.status, response.headers, response.read())

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterable[bytes] | None = None,
    ) -> tuple[Mapping[str, str], bytes]:
        """Return headers and body of the whole answer to a request.

        Raises:
            RefusalError: the server refused it.
            LoginError: nobody can be named.
            HTTPError: there is no whole answer.
        """
        with self.answer(method, path, query=query, headers=headers, body=body) as response:
            return response.headers, response.read()
