"""Connections to one endpoint of a store, for any number of threads; nothing is tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol
from urllib.parse import quote, urlencode

from urllib3 import PoolManager, Timeout
from urllib3.response import BaseHTTPResponse

from catalog.storages.over_http.failures import RefusalError
from catalog.tls import TlsNames, tls_context

__all__ = ["Client", "Reachable", "Signed", "connections"]

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
