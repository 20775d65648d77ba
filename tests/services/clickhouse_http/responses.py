"""How a response goes to the client: held back, in chunks, compressed, with a fault on request.

As ClickHouse's HTTP interface does it: nothing is sent before `buffer` bytes are there, so that a
query that fails early gets a status; one that fails later cannot be, and the response's
end says it, as `BrokenStream` has it.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import zlib
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Final, Protocol

import pyarrow as pa

from tests.services.clickhouse_http.faults import BrokenStream, Fault, Kind

__all__ = ["BUFFER", "EndedError", "Response", "cut_off", "encoding_of", "status_of"]

BUFFER: Final = 1 << 20
"""What a server holds back, when the request does not say otherwise."""

_ENCODINGS: Final = ("zstd", "lz4", "gzip", "deflate")
"""In the order in which a server prefers them."""

_STATUS: Final = {
    HTTPStatus.UNAUTHORIZED: (194,),
    HTTPStatus.FORBIDDEN: (192, 193, 497, 512, 516),
    HTTPStatus.BAD_REQUEST: (6, 26, 27, 36, 38, 41, 43, 44, 53, 62, 72, 117, 427, 675, 676, 677),
    HTTPStatus.NOT_FOUND: (46, 47, 50, 56, 60, 63, 73, 78, 81, 115, 336, 511),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: (66,),
    HTTPStatus.NOT_IMPLEMENTED: (48,),
    HTTPStatus.SERVICE_UNAVAILABLE: (76, 209, 439),
    HTTPStatus.REQUEST_TIMEOUT: (159,),
}


class EndedError(Exception):
    """The response ended early, on purpose; the query need not go on."""


class _Encoder(Protocol):
    def add(self, piece: bytes) -> bytes: ...

    def flush(self) -> bytes: ...

    def finish(self) -> bytes: ...


class _Plain:
    def add(self, piece: bytes) -> bytes:
        return piece

    def flush(self) -> bytes:
        return b""

    finish = flush


class _Zlib:
    def __init__(self, bits: int) -> None:
        self._zlib = zlib.compressobj(1, zlib.DEFLATED, bits)

    def add(self, piece: bytes) -> bytes:
        return self._zlib.compress(piece)

    def flush(self) -> bytes:
        return self._zlib.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        return self._zlib.flush()


class _Arrow:
    """Through Arrow, which has what the standard library has not."""

    def __init__(self, name: str) -> None:
        self._held = io.BytesIO()
        self._to = pa.CompressedOutputStream(pa.PythonFile(self._held, "w"), name)

    def add(self, piece: bytes) -> bytes:
        self._to.write(piece)
        return self._taken()

    def flush(self) -> bytes:
        self._to.flush()
        return self._taken()

    def finish(self) -> bytes:
        held = self._held
        # Closing the stream closes what is below it, and its last bytes with that.
        held.close = lambda: None  # type: ignore[method-assign]
        self._to.close()
        return self._taken()

    def _taken(self) -> bytes:
        taken = self._held.getvalue()
        self._held.seek(0)
        self._held.truncate()
        return taken


def encoding_of(accepted: str) -> str:
    """Return the encoding that a server chooses from an Accept-Encoding; '' for none."""
    return next((name for name in _ENCODINGS if name in accepted), "")


def status_of(code: int) -> HTTPStatus:
    """Return the status of ClickHouse's response to an error."""
    found = (status for status, codes in _STATUS.items() if code in codes)
    return next(found, HTTPStatus.INTERNAL_SERVER_ERROR)


def cut_off(exchange: BaseHTTPRequestHandler) -> None:
    """End the connection as it is."""
    exchange.close_connection = True
    exchange.wfile.flush()
    exchange.connection.shutdown(socket.SHUT_RDWR)


class Response:
    """The response to one request."""

    def __init__(
        self,
        exchange: BaseHTTPRequestHandler,
        headers: Mapping[str, str],
        *,
        tag: str,
        encoding: str = "",
        buffer: int | None = BUFFER,
        fault: Fault | None = None,
        broken: BrokenStream = BrokenStream.BLOCK,
    ) -> None:
        """Prepare; `buffer` None holds the whole response back."""
        self._exchange, self._headers, self._tag = exchange, dict(headers), tag
        self._encoding, self._buffer, self._fault = encoding, buffer, fault
        self._broken = broken
        self._encoder = _encoder(encoding)
        self._held = bytearray()
        self._passed = 0
        self._started = False

    def write(self, piece: bytes) -> None:
        """Take the next bytes of the response.

        Raises:
            EndedError: a fault ended the response.
        """
        fault = self._fault
        if fault is not None and self._passed + len(piece) > fault.at:
            if fault.kind is Kind.FLIP:
                self._fault = None
                at = fault.at - self._passed
                piece = piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :]
            elif not self._keeps_all:
                self._take(piece[: fault.at - self._passed])
                self._perform(fault)
                raise EndedError
        self._take(piece)

    def finish(self) -> None:
        """End the response.

        Raises:
            EndedError: a fault ended the response.
        """
        if self._fault is not None and self._fault.kind is not Kind.FLIP:
            self._perform(self._fault)
            raise EndedError
        self._end()

    def refuse(self, code: int, text: str) -> None:
        """End the response with an error."""
        if not self._started:
            headers = {"X-ClickHouse-Exception-Code": str(code)}
            if code == 194:
                headers["WWW-Authenticate"] = 'Basic realm="ClickHouse server HTTP API"'
            self._held[:] = f"{text}\n".encode()
            self._headers |= headers | {"Content-Type": "text/plain; charset=UTF-8"}
            self._send_whole(status_of(code))
            return
        match self._broken:
            case BrokenStream.BLOCK:
                message, marker = f"{text}\n".encode(), b"__exception__"
                tag = self._tag.encode()
                self._send_chunk(self._encoder.add(bytes(self._held)) + self._encoder.flush())
                block = b"\r\n%s\r\n%s\r\n%s%d %s\r\n%s\r\n"
                block %= (marker, tag, message, len(message), tag, marker)
                self._send_chunk(self._encoder.add(block) + self._encoder.flush())
                cut_off(self._exchange)
            case BrokenStream.APPENDED:
                self._held += f"{text}\n".encode()
                self._end()
            case BrokenStream.CUT:
                cut_off(self._exchange)

    def _take(self, piece: bytes) -> None:
        self._passed += len(piece)
        self._held += piece
        if self._buffer is not None and not self._keeps_all and len(self._held) >= self._buffer:
            self._send_held()

    @property
    def _keeps_all(self) -> bool:
        """Whether a fault happens when the whole response is there."""
        return self._fault is not None and self._fault.kind in {Kind.LENGTH, Kind.LOST}

    def _perform(self, fault: Fault) -> None:
        match fault.kind:
            case Kind.CUT:
                self._send_held()
                self._send_chunk(self._encoder.flush())
                cut_off(self._exchange)
            case Kind.LOST:
                cut_off(self._exchange)
            case Kind.DEATH:
                if fault.at:
                    self._send_held()
                os.kill(os.getpid(), signal.SIGKILL)
            case Kind.TAIL:
                self._held += fault.text.encode()
                self._end(in_chunks=True)
            case Kind.SHORT:
                self._end(in_chunks=True)
            case Kind.LENGTH:
                self._send_whole(HTTPStatus.OK, more=fault.at)
                cut_off(self._exchange)
            case _:
                message = f"{fault.kind} does not happen in a body"
                raise AssertionError(message)

    def _end(self, *, in_chunks: bool = False) -> None:
        if not self._started and not in_chunks:
            self._send_whole(HTTPStatus.OK)
            return
        self._send_held()
        self._send_chunk(self._encoder.finish())
        self._exchange.wfile.write(b"0\r\n\r\n")

    def _send_whole(self, status: HTTPStatus, *, more: int = 0) -> None:
        body = bytes(self._held)
        if self._encoding and body:
            body = self._encoder.add(body) + self._encoder.finish()
            self._headers["Content-Encoding"] = self._encoding
        self._headers["Content-Length"] = str(len(body) + more)
        self._send_headers(status)
        self._exchange.wfile.write(body)

    def _send_held(self) -> None:
        if not self._started:
            self._headers["Transfer-Encoding"] = "chunked"
            if self._encoding:
                self._headers["Content-Encoding"] = self._encoding
            self._send_headers(HTTPStatus.OK)
        self._send_chunk(self._encoder.add(bytes(self._held)))
        self._held.clear()

    def _send_headers(self, status: HTTPStatus) -> None:
        self._started = True
        self._exchange.send_response(status)
        for name, value in self._headers.items():
            self._exchange.send_header(name, value)
        self._exchange.end_headers()

    def _send_chunk(self, piece: bytes) -> None:
        if piece:
            self._exchange.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))


def _encoder(encoding: str) -> _Encoder:
    match encoding:
        case "":
            return _Plain()
        case "gzip":
            return _Zlib(31)
        case "deflate":
            return _Zlib(15)
        case _:
            return _Arrow(encoding)
