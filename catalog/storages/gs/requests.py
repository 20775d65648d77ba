"""One request after the other to Google Cloud Storage, each tried again while that is away."""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from urllib3 import PoolManager, Timeout
from urllib3.response import BaseHTTPResponse

from catalog.storages.gs.access import NAME, GsAccess
from catalog.storages.gs.failures import FAILURES, RefusalError, failure, is_transient, said_of
from catalog.storages.gs.login import Login, login_of
from catalog.storages.places import Place
from catalog.storages.repeating import Failed, repeated
from catalog.this_machine import is_in_clear
from catalog.tls import TlsNames, tls_context

__all__ = ["Client", "Requests", "bucket_path", "object_path"]

T = TypeVar("T")
_CONNECTIONS: Final = 32
_FAILED: Final = 300
_TLS: Final = TlsNames(f"use {NAME}", "mergeberg.ca-file", "", "")
_LOGGER: Final = logging.getLogger(__name__)


class Client:
    """Connections to one endpoint, for any number of threads. It tries nothing again."""

    def __init__(self, access: GsAccess) -> None:
        """Prepare to speak to it; nothing is sent yet.

        Raises:
            UsageError: the authorities cannot be used.
        """
        bounds = Timeout(connect=access.connect_timeout, read=access.read_timeout)
        context = tls_context(_TLS, ca=access.ca) if access.endpoint.startswith("https:") else None
        self._pool = PoolManager(
            maxsize=_CONNECTIONS, timeout=bounds, retries=False, ssl_context=context
        )
        self._endpoint = access.endpoint
        self._login: Login = login_of(access, self._pool)

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
        sent = {**self._login(), **(headers or {}), "User-Agent": "mergeberg"}
        question = f"?{urlencode(query, quote_via=quote)}" if query else ""
        response = self._pool.request(
            method,
            f"{self._endpoint}{path}{question}",
            headers=sent,
            body=body,
            redirect=False,
            preload_content=False,
            decode_content=False,
        )
        try:
            _judge(response)
            yield response
        except BaseException:
            response.close()
            raise
        finally:
            response.release_conn()

    def ask(self, method: str, path: str, **given: Any) -> Mapping[str, Any]:
        """Return the document that is the answer to a request; it takes what `answer` takes."""
        with self.answer(method, path, **given) as response:
            data = response.read()
        try:
            found = json.loads(data or b"{}")
        except ValueError as error:
            raise RefusalError(response.status, data) from error
        return found or {}


@dataclass(frozen=True, slots=True)
class Requests:
    """Asks as `access` says. Once `stopped` is set, nothing is tried again."""

    access: GsAccess
    stopped: Event = field(default_factory=Event, compare=False)

    @property
    def client(self) -> Client:
        """One for each access, shared by the threads of a process."""
        return _client(self.access, os.getpid())

    def ask(self, what: str, location: str, request: Callable[[Client], T]) -> T:
        """Return what a request of the client returns; it may be sent more than once.

        Args:
            what: what is tried, as it follows "Cannot".
            location: of the object, for messages.
            request: asks the client.

        Raises:
            DestinationError: it is refused, or the server stays away for too long.
        """

        def failed(error: Exception) -> Failed:
            said = self.access.masked(said_of(error))
            return Failed(said, is_transient(error), failure(what, location, error, self.access))

        return repeated(
            lambda: request(self.client),
            doing=f"{what} {location}",
            failures=FAILURES,
            failed=failed,
            retry_for=self.access.retry_for,
            stopped=self.stopped,
        )


def _judge(response: BaseHTTPResponse) -> None:
    if response.status >= _FAILED:
        raise RefusalError(response.status, response.read())


def bucket_path(place: Place) -> str:
    """Return the path of a bucket's objects."""
    return f"/storage/v1/b/{quote(place.bucket, safe='')}/o"


def object_path(place: Place) -> str:
    """Return the path of an object."""
    return f"{bucket_path(place)}/{quote(place.key, safe='')}"


# The process is part of the key: a connection must not be shared with a fork.
@functools.lru_cache(maxsize=16)
def _client(access: GsAccess, process: int) -> Client:  # noqa: ARG001  see above
    if is_in_clear(access.endpoint):
        _tell_of_http(access.endpoint)
    return Client(access)


@functools.cache
def _tell_of_http(endpoint: str) -> None:
    """Warn of what was allowed, once in a process, whoever named it: the catalog, a table ..."""
    _LOGGER.warning(
        "%s is not encrypted: everybody on the way reads and can change the rows.", endpoint
    )
