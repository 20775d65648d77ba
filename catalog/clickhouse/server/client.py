"""Statements over HTTP to one server, of any version: every answer is complete, or an error.

`answers.py` has the rule for what is complete. The statement is the body of a POST, settings and
query id stand in its address, who logs in stands in headers. A statement is sent once; a query that
its caller calls repeatable is sent again a few times where no answer came.
"""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.parse
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from catalog.clickhouse.connection import large_query_settings
from catalog.clickhouse.server.answers import (
    HELD_BYTES,
    error_of_answer,
    may_be_complete,
    refused,
    tagged_error,
    untagged_error,
    wrong_length,
)
from catalog.clickhouse.server.failures import broke_off, could_be_repeated, not_answered
from catalog.clickhouse.server.settings import Host, ServerSettings
from catalog.clickhouse.server.tls import server_tls
from catalog.closing import Closing
from tableformat.clickhouse_codes import TOO_MANY_SIMULTANEOUS_QUERIES
from tableformat.errors import SourceError

__all__ = ["ServerClient", "ServerStream", "Settings"]

Settings = tuple[tuple[str, str], ...]

_PIECE: Final = 1_048_576
# The oldest servers close a connection that was idle for 3 s: a statement that meets the closing is
# lost, and nobody knows whether it was performed.
_IDLE_SECONDS: Final = 1.0
_PAUSES: Final = (0.1, 0.4, 1.5)
_GZIP: Final = 31
# A statement may take minutes without a byte: a network forgets such a connection, and a machine
# that is gone says nothing. Not every system lets the seconds be chosen; macOS has another
# name for the first.
_ALIVE: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (
            *(("TCP_KEEPIDLE", 30), ("TCP_KEEPALIVE", 30)),
            *(("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)),
        )
        if hasattr(socket, name)
    ),
)


class ServerStream:
    """The body of one answer; `chunks` is read once, to its end."""

    def __init__(self, response: BaseHTTPResponse, settings: ServerSettings, host: Host) -> None:
        """Read the body of a response whose head is that of a complete answer."""
        self._response, self._settings, self._host = response, settings, host
        self._tag = response.headers.get("X-ClickHouse-Exception-Tag", "")
        encoding = response.headers.get("Content-Encoding", "identity")
        self._gunzip = _Gunzip() if encoding == "gzip" else None
        self._held = b""
        self._received = 0
        self.is_complete = False
        """Whether the body was read to its end, and HTTP calls it whole."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the body, decompressed; the text of an error is kept back where it is certain.

        Raises:
            ClickHouseError: the body ends with an error that is certain.
            SourceError: the answer breaks off.
        """
        last = b""
        try:
            for last in self._response.stream(_PIECE, decode_content=False):
                self._received += len(last)
                ready = self._hold(self._gunzip.add(last) if self._gunzip else last)
                if ready:
                    yield ready
            if self._gunzip:
                self._gunzip.end()
        except (HTTPError, OSError, zlib.error) as error:
            raise self._broken(error, last) from error
        text = tagged_error(self._held, self._tag)
        if text is not None:
            raise refused(self._settings, self._host, text, None)
        self.is_complete = True
        if self._held:
            yield self._held

    @property
    def said_at_end(self) -> SourceError | None:
        """What the last bytes say if they are an error: for who finds that rows are missing."""
        text = untagged_error(self._held)
        return None if text is None else refused(self._settings, self._host, text, None)

    def _hold(self, content: bytes) -> bytes:
        """Keep the end of what came so far, and return what is before it."""
        joined = self._held + content
        self._held = joined[-HELD_BYTES:]
        return joined[:-HELD_BYTES]

    def _broken(self, error: Exception, last: bytes) -> SourceError:
        # An error may follow a compressed body uncompressed.
        text = tagged_error(self._held, self._tag) or untagged_error(self._held)
        text = text or (untagged_error(last[-HELD_BYTES:]) if self._gunzip else None)
        if text is not None:
            return refused(self._settings, self._host, text, None)
        return broke_off(self._settings, self._host, error, self._received)


class ServerClient(Closing):
    """Connections to one server, for one statement at a time, in whatever thread."""

    def __init__(
        self,
        settings: ServerSettings,
        host: Host,
        *,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to speak to `host`; nothing is sent yet.

        Args:
            settings: how to speak, and who logs in.
            host: one of the settings' hosts.
            pause: waits so many seconds before a query is sent again.
            clock: seconds that only go on.

        Raises:
            UsageError: an authority, a certificate or a key cannot be used.
        """
        self.settings, self.host = settings, host
        self._pause, self._clock = pause, clock
        self._tls = server_tls(settings) if host.is_secure else None
        self._pool = self._new_pool()
        self._used = self._clock()

    def query(
        self,
        sql: str,
        *,
        settings: Settings = (),
        query_id: str | None = None,
        repeat: bool = False,
    ) -> bytes:
        """Return the whole answer; the server keeps it back until the statement has ended.

        Args:
            sql: the statement.
            settings: for this statement.
            query_id: by which the server knows it; its own choice when None.
            repeat: whether it is a query without any effect, which may be sent again.

        Raises:
            ClickHouseError: ClickHouse refused the statement, or it failed.
            SourceError: there is no whole answer.
        """
        pauses = _PAUSES if repeat else ()
        parameters = (*settings, ("wait_end_of_query", "1"))
        for pause in pauses:
            try:
                return self._whole(sql, parameters, query_id)
            except _NotAnsweredError as error:
                if not error.could_be_repeated:
                    raise error.why from error
            except SourceError as error:
                if error.code != TOO_MANY_SIMULTANEOUS_QUERIES:
                    raise
            self._pause(pause)
        try:
            return self._whole(sql, parameters, query_id)
        except _NotAnsweredError as error:
            raise error.why from error

    @contextlib.contextmanager
    def stream(
        self, sql: str, *, settings: Settings = (), query_id: str | None = None
    ) -> Iterator[ServerStream]:
        """Open the answer of a query; leaving the context before its end ends the connection.

        Raises:
            ClickHouseError: ClickHouse refused the query.
            SourceError: there is no answer, or it is not ClickHouse's.
        """
        try:
            response = self._send(sql, settings, query_id)
        except _NotAnsweredError as error:
            raise error.why from error
        stream = ServerStream(response, self.settings, self.host)
        try:
            yield stream
        finally:
            if stream.is_complete:
                response.release_conn()
            else:
                response.close()
            self._used = self._clock()

    def close(self) -> None:
        """End all connections that are not in use. Closing twice is the same as once."""
        self._pool.close()

    def _whole(self, sql: str, parameters: Settings, query_id: str | None) -> bytes:
        response = self._send(sql, parameters, query_id)
        stream = ServerStream(response, self.settings, self.host)
        try:
            return b"".join(stream.chunks())
        finally:
            if not stream.is_complete:
                response.close()
            self._used = self._clock()

    def _send(self, sql: str, parameters: Settings, query_id: str | None) -> BaseHTTPResponse:
        """Send a statement and judge the head of the answer."""
        if self._clock() - self._used > _IDLE_SECONDS:
            self._pool.close()
            self._pool = self._new_pool()
        headers = {
            "Content-Type": "text/plain; charset=UTF-8",
            "Accept-Encoding": "gzip" if self.settings.compress else "identity",
            "User-Agent": "mergeberg",
            **self.settings.credentials.headers(),
        }
        parameters = (*parameters, *large_query_settings(sql))
        if self.settings.compress:
            parameters = (*parameters, ("enable_http_compression", "1"))
        if query_id is not None:
            parameters = (*parameters, ("query_id", query_id))
        path = f"/?{urllib.parse.urlencode(parameters, errors='surrogateescape')}"
        try:
            response = self._pool.urlopen(
                "POST",
                path,
                body=sql.encode("utf-8", "surrogateescape"),
                headers=headers,
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
        except HTTPError as error:
            raise _NotAnsweredError(
                not_answered(self.settings, self.host, error),
                could_be_repeated=could_be_repeated(error),
            ) from error
        try:
            self._judge_head(response)
        except BaseException:
            response.close()
            raise
        return response

    def _judge_head(self, response: BaseHTTPResponse) -> None:
        headers = response.headers
        if not may_be_complete(response.status, headers):
            begin = _beginning(response)
            raise error_of_answer(self.settings, self.host, response.status, headers, begin)
        encoding = headers.get("Content-Encoding", "identity")
        if wrong_length(headers) or encoding not in ("identity", "gzip"):
            what = f"Content-Encoding {encoding!r}" if not wrong_length(headers) else "no length"
            message = (
                f"Cannot read from ClickHouse at {self.host.url}: its answer has {what}, so nobody "
                "can see whether it is whole. Check proxies on the way."
            )
            raise SourceError(message)

    def _new_pool(self) -> HTTPConnectionPool:
        timeout = Timeout(connect=self.settings.connect_timeout, read=self.settings.read_timeout)
        kept: dict[str, Any] = {"timeout": timeout, "maxsize": 4, "socket_options": _ALIVE}
        if self._tls is None:
            return HTTPConnectionPool(self.host.name, self.host.port, **kept)
        return HTTPSConnectionPool(self.host.name, self.host.port, ssl_context=self._tls, **kept)


class _NotAnsweredError(Exception):
    """No answer came: `why` is what the caller is told."""

    def __init__(self, why: SourceError, *, could_be_repeated: bool) -> None:
        super().__init__(why.message)
        self.why, self.could_be_repeated = why, could_be_repeated


class _Gunzip:
    """Decompresses a body of one or several gzip members, and knows whether it is whole."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._begun = False

    def add(self, content: bytes) -> bytes:
        """Return what `content` decompresses to.

        Raises:
            zlib.error: it is damaged, or something else follows the end.
        """
        found = []
        while content:
            if self._member.eof:
                self._member = zlib.decompressobj(_GZIP)
            self._begun = True
            found.append(self._member.decompress(content))
            content = self._member.unused_data
        return b"".join(found)

    def end(self) -> None:
        """Check that nothing is missing.

        Raises:
            zlib.error: the end is missing.
        """
        if self._begun and not self._member.eof:
            message = "the end of the compressed body is missing"
            raise zlib.error(message)


def _beginning(response: BaseHTTPResponse) -> bytes:
    """Return the beginning of the body of an error, decompressed; what breaks is left out."""
    gunzip = _Gunzip() if response.headers.get("Content-Encoding") == "gzip" else None
    found = b""
    with contextlib.suppress(HTTPError, OSError, zlib.error):
        for piece in response.stream(HELD_BYTES, decode_content=False):
            found += gunzip.add(piece) if gunzip else piece
            if len(found) >= HELD_BYTES:
                break
    return found
