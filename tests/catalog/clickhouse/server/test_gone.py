"""Which failures say that a host is gone, so that another replica may go on, and which do not."""

from __future__ import annotations

import ssl
import zlib
from http.client import BadStatusLine, IncompleteRead, RemoteDisconnected
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
    SSLError,
)

from catalog.clickhouse.server.client import broke_off, error_of_response, no_response, refused
from catalog.clickhouse.server.settings import parse_server
from tableformat.errors import SourceError, SourceGoneError

SETTINGS: Final = parse_server("https://ch1", environment={})
HOST: Final = SETTINGS.hosts[0]


def caused(error: HTTPError, cause: Exception) -> HTTPError:
    error.__cause__ = cause
    return error


def tls(kind: type[ssl.SSLError], reason: str | None) -> ssl.SSLError:
    """Return an error as OpenSSL's has it."""
    error = kind(1, reason or "EOF occurred in violation of protocol")
    error.reason = reason  # type: ignore[assignment]
    return error


def expired() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("certificate has expired")
    error.verify_code, error.verify_message = 10, "certificate has expired"
    return error


UNREACHABLE: Final[dict[str, tuple[HTTPError, bool]]] = {
    "refused": (
        caused(NewConnectionError(None, "x"), ConnectionRefusedError(111, "Connection refused")),  # type: ignore[arg-type]
        True,
    ),
    "no way there": (
        caused(NewConnectionError(None, "x"), OSError(113, "No route to host")),  # type: ignore[arg-type]
        True,
    ),
    "no such name any more": (NameResolutionError("ch1", None, OSError()), True),  # type: ignore[arg-type]
    "no connection in time": (ConnectTimeoutError(None, "timed out"), True),
    "silent": (ReadTimeoutError(None, "/", "Read timed out."), True),  # type: ignore[arg-type]
    "silent in the handshake": (
        caused(
            ReadTimeoutError(None, "/", "Read timed out."),  # type: ignore[arg-type]
            TimeoutError("_ssl.c:999: The handshake operation timed out"),
        ),
        True,
    ),
    "reset": (ProtocolError("x", ConnectionResetError(104, "Connection reset by peer")), True),
    "ended": (ProtocolError("x", RemoteDisconnected("Remote end closed connection")), True),
    "broken pipe": (ProtocolError("x", BrokenPipeError(32, "Broken pipe")), True),
    "no HTTP": (ProtocolError("x", BadStatusLine("220 ftp")), False),
    "an expired certificate": (SSLError(expired()), False),
    "no TLS": (SSLError(tls(ssl.SSLError, "WRONG_VERSION_NUMBER")), False),
    "TLS that ends": (SSLError(tls(ssl.SSLEOFError, None)), False),
}
BROKE_OFF: Final[dict[str, tuple[Exception, bool]]] = {
    "cut": (ProtocolError("x", IncompleteRead(b"")), True),
    "reset": (ProtocolError("x", ConnectionResetError(104, "Connection reset by peer")), True),
    "silent": (ReadTimeoutError(None, "/", "Read timed out."), True),  # type: ignore[arg-type]
    "damaged": (zlib.error("Error -3 while decompressing data: incorrect data check"), False),
}


@pytest.mark.parametrize("what", UNREACHABLE)
def test_a_failed_request_means_an_unreachable_host_unless_it_responds(what: str) -> None:
    error, gone = UNREACHABLE[what]
    assert isinstance(no_response(SETTINGS, HOST, error), SourceGoneError) is gone


@pytest.mark.parametrize("what", BROKE_OFF)
def test_a_response_that_breaks_off_means_an_unreachable_host(what: str) -> None:
    error, gone = BROKE_OFF[what]
    assert isinstance(broke_off(SETTINGS, HOST, error, 7), SourceGoneError) is gone


@pytest.mark.parametrize(
    "message",
    [
        "Code: 236. DB::Exception: Server shutdown is called. (ABORTED)",
        "Code: 236. DB::Exception: Cannot start merge because the server is shutting down. (X)",
    ],
)
def test_a_server_that_says_that_it_shuts_down_is_gone(message: str) -> None:
    error = refused(SETTINGS, HOST, message, None)

    assert isinstance(error, SourceGoneError)
    assert error.code == 236


@given(st.integers(1, 1200), st.text(st.characters(exclude_characters="\n"), max_size=60))
def test_nothing_else_that_a_server_says_is(code: int, text: str) -> None:
    """Wrong passwords, missing rights, dropped tables, damage, limits: they have their numbers."""
    error = refused(SETTINGS, HOST, f"Code: {code}. DB::Exception: {text}.", code)
    assert not isinstance(error, SourceGoneError)


@given(st.integers(200, 599))
def test_nothing_that_a_proxy_says_is(status: int) -> None:
    error = error_of_response(SETTINGS, HOST, status, {"Content-Type": "text/html"}, b"<h1>No</h1>")
    assert isinstance(error, SourceError)
    assert not isinstance(error, SourceGoneError)
