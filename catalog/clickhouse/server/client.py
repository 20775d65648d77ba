r"""Sends statements over HTTP to one server of any version; a response is complete or an error.

The statement is the POST body, settings and query id are in the URL, credentials in headers. A
statement is sent once; a query that its caller declares repeatable is retried if no response
arrived.

ClickHouse sends status 200 before it has the rows. Errors arrive in these forms (18.16 to 26.9):

1. Nothing sent yet (always with wait_end_of_query): status 4xx or 5xx, the text in the body, its
   number there or in X-ClickHouse-Exception-Code.
2. Headers sent early: status 200, that header, the text in the body.
3. From 25.11: the last chunk is missing, and the body ends with a text that carries the tag of
   X-ClickHouse-Exception-Tag:
     \r\n__exception__\r\n<tag>\r\n<text>\n<length> <tag>\r\n__exception__\r\n
4. 24.11 to 25.10: `\r\n__exception__\r\n<text>`, and the last chunk is missing.
5. Before: the text alone after the rows, and HTTP ends normally.

A response needs a length or chunks and has to reach its end; a tag of its own header is an error. A
text as in 5 may be data: the client keeps it, and it counts only if the reader of the format finds
the rows incomplete (docs/reference/source-server.md, "When an answer is complete").

A host that refuses, drops or times out a connection raises `SourceGoneError`, and another replica
may continue. Bad TLS, another protocol and broken compression are other errors.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import time
import urllib.parse
import zlib
from collections.abc import Callable, Iterator, Mapping
from http.client import BadStatusLine, RemoteDisconnected
from typing import Any, Final

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
)
from urllib3.response import BaseHTTPResponse

from catalog.clickhouse.connection import ClickHouseError, large_query_settings
from catalog.clickhouse.server.settings import ClientCertificate, Host, ServerSettings
from catalog.network import TlsNames, show_certificate, tls_context
from catalog.processes import Closing, ScratchDirectory
from tableformat.clickhouse_codes import (
    ACCESS_DENIED,
    AUTHENTICATION_FAILED,
    REQUIRED_PASSWORD,
    TOO_MANY_SIMULTANEOUS_QUERIES,
    UNKNOWN_FUNCTION,
    UNKNOWN_IDENTIFIER,
    UNKNOWN_TABLE,
    UNKNOWN_USER,
    WRONG_PASSWORD,
)
from tableformat.errors import SourceError, SourceGoneError
from tableformat.messages import Option

__all__ = [
    "HELD_BYTES",
    "LOGIN_REFUSED",
    "NOT_SHOWN",
    "ServerClient",
    "ServerStream",
    "Settings",
    "broke_off",
    "could_be_repeated",
    "error_of_response",
    "may_be_complete",
    "no_response",
    "refused",
    "server_tls",
    "tagged_error",
    "untagged_error",
    "wrong_length",
]

HELD_BYTES: Final = 65_536
"""Bytes at the end of a body that are searched for an error; its text has about 16 KiB at most."""
NOT_SHOWN: Final = (ACCESS_DENIED, UNKNOWN_TABLE, UNKNOWN_IDENTIFIER, UNKNOWN_FUNCTION)
"""Codes of a query that the user may not run, or that the version does not support."""
LOGIN_REFUSED: Final = (
    UNKNOWN_USER,
    WRONG_PASSWORD,
    REQUIRED_PASSWORD,
    AUTHENTICATION_FAILED,
)
"""Codes by which a server refuses every query of this user."""
_OK: Final = 200
_SHUTS_DOWN: Final = re.compile(r"Server shutdown is called|[Ss]erver is shutting down")
_CODE: Final = "X-ClickHouse-Exception-Code"
_MARK: Final = b"__exception__\r\n"
# Errors of Keeper have another exception class.
_TEXT: Final = re.compile(
    rb"Code: \d+(?:, e\.displayText\(\) =|\.) (?:DB|Coordination)::Exception: "
)
_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_SHOWN: Final = 200
_PLACE: Final = re.compile(r"(?P<scheme>[a-z]+://)(?:[^/?#]*@)?(?P<host>[^/?#@]+)")


def refused(settings: ServerSettings, host: Host, text: str, code: int | None) -> SourceError:
    """Return the error for ClickHouse's error text, with the code of a response header."""
    masked = settings.credentials.masked(text)
    if code is not None and "Code: " not in masked:
        masked = f"Code: {code}. DB::Exception: {masked}"
    error = ClickHouseError(masked, place=f"ClickHouse at {host.url}")
    if error.code in LOGIN_REFUSED:
        message = (
            f"Cannot log in to ClickHouse at {host.url} as {settings.credentials.shown}: "
            f"{error.reason}. Check {settings.credentials.to_check}."
        )
        return SourceError(message, code=error.code)
    if _SHUTS_DOWN.search(error.reason):
        return SourceGoneError(error.message, code=error.code, why=error.reason)
    return error


def may_be_complete(status: int, headers: Mapping[str, str]) -> bool:
    """Whether status and headers are those of a ClickHouse response that may be complete."""
    return _is_ours(headers) and status == _OK and not headers.get(_CODE)


def error_of_response(
    settings: ServerSettings, host: Host, status: int, headers: Mapping[str, str], body: bytes
) -> SourceError:
    """Return the error for a response, from its headers and the beginning of its body."""
    code = headers.get(_CODE, "")
    text = body.decode("utf-8", "replace")
    if _TEXT.search(body) or (code and _is_ours(headers)):
        return refused(settings, host, text, int(code) if code.isdigit() else None)
    location = headers.get("Location")
    if location is not None:
        # Only scheme and host, because the rest of a foreign address may be a secret.
        place = _PLACE.match(location)
        where = f" to {place['scheme']}{place['host']}" if place else ""
        why = f"it redirects{where} (HTTP {status}). Name the server itself in {Option.SOURCE}"
        return SourceError(_cannot_read(host, why), why=why)
    kind = headers.get("Content-Type", "no type").partition(";")[0]
    excerpt = " ".join(re.sub(r"<[^>]*>", " ", settings.credentials.masked(text)).split())[:_SHOWN]
    what = "a response without ClickHouse's headers" if status == _OK else "an error of its own"
    why = (
        f"another program responded, HTTP {status}, {kind}, "
        f"{what}{f': {excerpt!r}' if excerpt else ''}. Check host and port, and proxies in between"
    )
    return SourceError(_cannot_read(host, why), why=why)


def _is_ours(headers: Mapping[str, str]) -> bool:
    return any(name.lower().startswith("x-clickhouse-") for name in headers)


def wrong_length(headers: Mapping[str, str]) -> bool:
    """Whether the headers do not show where the response ends."""
    chunked = "chunked" in headers.get("Transfer-Encoding", "").lower()
    return not chunked and not headers.get("Content-Length", "").isdigit()


def tagged_error(held: bytes, tag: str) -> str | None:
    """Return the error text with the response's own tag (form 3), from the end of the body."""
    if not tag:
        return None
    own = tag.encode()
    begin = held.rfind(_MARK + own + b"\r\n")
    end = re.search(rb"\n?\d+ " + re.escape(own) + rb"\r\n" + _MARK + rb"\Z", held)
    if begin < 0 and end is None:
        return None
    start = begin + len(_MARK) + len(own) + 2 if begin >= 0 else 0
    return held[start : end.start() if end else len(held)].decode("utf-8", "replace").strip()


def untagged_error(held: bytes) -> str | None:
    """Return the possible error text (forms 3 to 5) at the end of the body."""
    for found in reversed(tuple(_TEXT.finditer(held))):
        text = held[found.start() :]
        if not _BINARY.search(text):
            return text.decode("utf-8", "replace").strip()
    return None


# OpenSSL's X509_V_ERR_... codes: not yet valid, expired, another host name, another address.
_NOT_YET: Final = 9
_EXPIRED: Final = 10
_OTHER_NAME: Final = (62, 64)
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_ALERT: Final = re.compile(r"ALERT_(?P<what>[A-Z_]+)")


def could_be_repeated(error: HTTPError) -> bool:
    """Whether a request may be sent again: the connection failed before any response arrived.

    True does not mean that the statement was not executed.
    """
    if isinstance(error, NameResolutionError):
        return False
    if isinstance(error, NewConnectionError):
        return isinstance(_cause(error, OSError), ConnectionError)
    return any(_cause(error, kind) is not None for kind in (ConnectionError, ssl.SSLEOFError))


def no_response(settings: ServerSettings, host: Host, error: HTTPError) -> SourceError:
    """Return the error for a request without a response, or with incomplete headers."""
    secure = _cause(error, ssl.SSLError)
    if isinstance(secure, ssl.SSLError):
        return _of(host, _tls(secure))
    if isinstance(error, NameResolutionError):
        return _gone(
            host, f"no address is known for the name {host.name}. Check the name in {Option.SOURCE}"
        )
    reason = _cause(error, OSError)
    if isinstance(error, NewConnectionError):
        detail = (reason.strerror if isinstance(reason, OSError) else None) or "no connection"
        return _gone(
            host,
            f"{detail}. Check that the server runs and listens on port {host.port} (usually 8443 "
            "for https, 8123 for http)",
        )
    if isinstance(error, ConnectTimeoutError):
        return _gone(
            host,
            f"it accepted no connection within {settings.connect_timeout:g} s. Check the address "
            f"and firewalls in between, or add ?connect-timeout=SECONDS to {Option.SOURCE}",
        )
    if isinstance(error, ReadTimeoutError):
        if "handshake" in str(reason):
            return _gone(
                host,
                f"TLS did not begin within {settings.connect_timeout:g} s. Check that this is the "
                "server's port for https (usually 8443)",
            )
        return _gone(host, _silent(settings))
    also = "" if host.is_secure else ", and whether it expects https on this port"
    if isinstance(_cause(error, BadStatusLine), BadStatusLine) and not isinstance(
        _cause(error, RemoteDisconnected), RemoteDisconnected
    ):
        return _of(host, f"the program there does not speak HTTP. Check the port{also}")
    return (_gone if isinstance(reason, OSError) else _of)(
        host,
        "it closed the connection before it responded; the statement may or may not have been "
        f"executed. Check that the server runs{also}",
        ", and run again",
    )


def broke_off(settings: ServerSettings, host: Host, error: Exception, received: int) -> SourceError:
    """Return the error for a response that began and did not end."""
    if _cause(error, ReadTimeoutError) or _cause(error, TimeoutError):
        return _gone(host, f"after {received} bytes of a response {_silent(settings)}")
    why = (
        f"its response breaks off after {received} bytes. The server or a proxy in between closed "
        "the connection"
    )
    kind = SourceError if isinstance(error, zlib.error) else SourceGoneError
    return kind(_cannot_read(host, f"{why}; run again"), why=why)


def _silent(settings: ServerSettings) -> str:
    return (
        f"it sent nothing for {settings.read_timeout:g} s; the statement may still run there. "
        f"Check system.processes, or add ?read-timeout=SECONDS to {Option.SOURCE}"
    )


def _tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        detail = error.verify_message.rstrip(".")
        if error.verify_code == _EXPIRED:
            return "its certificate has expired. Renew it on the server, and check the clock here"
        if error.verify_code == _NOT_YET:
            return "its certificate is not valid yet. Check the clocks of both sides"
        if error.verify_code in _OTHER_NAME:
            return (
                f"its certificate was issued for another host name ({detail}). Use a name that the "
                "certificate has"
            )
        return (
            f"its certificate is not signed by a trusted authority ({detail}). Name the "
            "authority's certificate in MERGEBERG_SOURCE_CA_FILE"
        )
    reason = error.reason or ""
    if any(word in reason for word in _NOT_TLS):
        return (
            f"it does not speak TLS on this port ({reason}). Use its port for https (usually 8443)"
        )
    alert = _ALERT.search(reason)
    if alert or isinstance(error, ssl.SSLEOFError):
        detail = alert["what"].lower().replace("_", " ") if alert else "it gave no reason"
        return (
            f"it ended the connection over TLS ({detail}). If it wants a client certificate, name "
            "one of its own authority in MERGEBERG_SOURCE_CERTIFICATE and MERGEBERG_SOURCE_KEY"
        )
    return f"TLS failed ({reason or type(error).__name__}). Check the port and the server's log"


def _of(host: Host, why: str, then: str = "") -> SourceError:
    return SourceError(_cannot_reach(host, f"{why}{then}"), why=why)


def _gone(host: Host, why: str, then: str = "") -> SourceGoneError:
    return SourceGoneError(_cannot_reach(host, f"{why}{then}"), why=why)


def _cannot_read(host: Host, why: str) -> str:
    return f"Cannot read from ClickHouse at {host.url}: {why}."


def _cannot_reach(host: Host, why: str) -> str:
    return f"Cannot reach ClickHouse at {host.url}: {why}."


def _cause(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    """Return the first exception of a class among an error, its arguments and its causes."""
    seen: list[BaseException] = []
    waiting: list[BaseException] = [error]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, kind):
            return one
        seen.append(one)
        more = (*one.args, one.__cause__, one.__context__, getattr(one, "reason", None))
        waiting += [m for m in more if isinstance(m, BaseException) and m not in seen]
    return None


def server_tls(settings: ServerSettings) -> ssl.SSLContext:
    """Return a TLS context that verifies the server, with the client certificate if there is one.

    Raises:
        UsageError: an authority, a certificate or a key cannot be used.
    """
    names = TlsNames(
        f"read the source {settings.shown}",
        "MERGEBERG_SOURCE_CA_FILE or ca-file",
        "MERGEBERG_SOURCE_CERTIFICATE",
        "MERGEBERG_SOURCE_KEY",
    )
    context = tls_context(names, ca=settings.tls.ca)
    if settings.credentials.certificate is not None:
        _show(context, names, settings.credentials.certificate)
    return context


def _show(context: ssl.SSLContext, names: TlsNames, certificate: ClientCertificate) -> None:
    """Add a client certificate through a temporary file, because the library takes only files."""
    with ScratchDirectory("tls") as scratch:
        file = scratch.path / "certificate.pem"
        # Created with these permissions, so that no other user can ever read it.
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(f"{certificate.key.reveal()}\n{certificate.certificate}\n")
        show_certificate(context, names, file)


Settings = tuple[tuple[str, str], ...]

_PIECE: Final = 1_048_576
# The oldest servers close a connection after 3 s without a request. A statement sent just then is
# lost, and it is unknown whether it was executed.
_IDLE_SECONDS: Final = 1.0
_PAUSES: Final = (0.1, 0.4, 1.5)
_GZIP: Final = 31
# A statement may take minutes without a byte. Networks drop such connections, and a dead host sends
# nothing. Not every system has these options; macOS has another name for the first.
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
    """The body of one response; `chunks` is read once, to its end."""

    def __init__(self, response: BaseHTTPResponse, settings: ServerSettings, host: Host) -> None:
        """Keep a response whose headers are those of a complete response."""
        self._response, self._settings, self._host = response, settings, host
        self._tag = response.headers.get("X-ClickHouse-Exception-Tag", "")
        encoding = response.headers.get("Content-Encoding", "identity")
        self._gunzip = _Gunzip() if encoding == "gzip" else None
        self._held = b""
        self._received = 0
        self.is_complete = False
        """Whether the body was read to its end, and HTTP calls it whole."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the decompressed body without the text of a certain error.

        Raises:
            ClickHouseError: the body ends with an error that is certain.
            SourceError: the response breaks off.
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
    def error_at_end(self) -> SourceError | None:
        """The possible error at the end of the body, for a caller that misses rows."""
        text = untagged_error(self._held)
        return None if text is None else refused(self._settings, self._host, text, None)

    def _hold(self, content: bytes) -> bytes:
        """Keep the last bytes; return the bytes before them."""
        joined = self._held + content
        self._held = joined[-HELD_BYTES:]
        return joined[:-HELD_BYTES]

    def _broken(self, error: Exception, last: bytes) -> SourceError:
        # A compressed body may be followed by an uncompressed error.
        text = tagged_error(self._held, self._tag) or untagged_error(self._held)
        text = text or (untagged_error(last[-HELD_BYTES:]) if self._gunzip else None)
        if text is not None:
            return refused(self._settings, self._host, text, None)
        return broke_off(self._settings, self._host, error, self._received)


class ServerClient(Closing):
    """Connections to one server. One statement at a time, from any thread."""

    def __init__(
        self,
        settings: ServerSettings,
        host: Host,
        *,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep the settings; nothing is sent yet.

        Args:
            settings: the connection settings and credentials.
            host: one of the settings' hosts.
            pause: waits for a number of seconds before a query is sent again.
            clock: monotonic seconds.

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
        """Return a whole response, which the server holds back until the statement has ended.

        Args:
            sql: the statement.
            settings: for this statement.
            query_id: the query's id; None lets the server choose one.
            repeat: whether it is a query without side effects, which may be sent again.

        Raises:
            ClickHouseError: ClickHouse refused the statement, or it failed.
            SourceError: the response is missing or incomplete.
        """
        pauses = _PAUSES if repeat else ()
        parameters = (*settings, ("wait_end_of_query", "1"))
        for pause in pauses:
            try:
                return self._whole(sql, parameters, query_id)
            except _NoResponseError as error:
                if not error.could_be_repeated:
                    raise error.why from error
            except SourceError as error:
                if error.code != TOO_MANY_SIMULTANEOUS_QUERIES:
                    raise
            self._pause(pause)
        try:
            return self._whole(sql, parameters, query_id)
        except _NoResponseError as error:
            raise error.why from error

    @contextlib.contextmanager
    def stream(
        self, sql: str, *, settings: Settings = (), query_id: str | None = None
    ) -> Iterator[ServerStream]:
        """Open the response to a query; leaving the context before its end closes the connection.

        Raises:
            ClickHouseError: ClickHouse refused the query.
            SourceError: there is no response, or it is not ClickHouse's.
        """
        try:
            response = self._send(sql, settings, query_id)
        except _NoResponseError as error:
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
        """Close all idle connections; closing again does nothing."""
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
        """Send a statement, and check the headers of the response."""
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
            raise _NoResponseError(
                no_response(self.settings, self.host, error),
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
            raise error_of_response(self.settings, self.host, response.status, headers, begin)
        encoding = headers.get("Content-Encoding", "identity")
        if wrong_length(headers) or encoding not in ("identity", "gzip"):
            what = f"Content-Encoding {encoding!r}" if not wrong_length(headers) else "no length"
            why = f"its response has {what}, so it may be incomplete. Check proxies in between"
            raise SourceError(_cannot_read(self.host, why), why=why)

    def _new_pool(self) -> HTTPConnectionPool:
        timeout = Timeout(connect=self.settings.connect_timeout, read=self.settings.read_timeout)
        kept: dict[str, Any] = {"timeout": timeout, "maxsize": 4, "socket_options": _ALIVE}
        if self._tls is None:
            return HTTPConnectionPool(self.host.name, self.host.port, **kept)
        return HTTPSConnectionPool(self.host.name, self.host.port, ssl_context=self._tls, **kept)


class _NoResponseError(Exception):
    """No response arrived; `why` is the error for the caller."""

    def __init__(self, why: SourceError, *, could_be_repeated: bool) -> None:
        super().__init__(why.message)
        self.why, self.could_be_repeated = why, could_be_repeated


class _Gunzip:
    """Decompresses a body of one or several gzip members, and detects a missing end."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._begun = False

    def add(self, content: bytes) -> bytes:
        """Return the decompressed content.

        Raises:
            zlib.error: it is damaged, or other data follows the end.
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
    """Return the decompressed beginning of an error's body, as far as it can be read."""
    gunzip = _Gunzip() if response.headers.get("Content-Encoding") == "gzip" else None
    found = b""
    with contextlib.suppress(HTTPError, OSError, zlib.error):
        for piece in response.stream(HELD_BYTES, decode_content=False):
            found += gunzip.add(piece) if gunzip else piece
            if len(found) >= HELD_BYTES:
                break
    return found
