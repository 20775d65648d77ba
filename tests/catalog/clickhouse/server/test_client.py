"""Every response is complete, or an error that names in one line the host and what came."""

from __future__ import annotations

import contextlib
import gzip
import logging
import socket
from collections.abc import Callable
from dataclasses import replace

import pytest

from catalog.clickhouse.connection import ClickHouseError
from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.settings import Host, ServerSettings
from tableformat.errors import SourceError
from tests.services.faulty_http import (
    CUT,
    OURS,
    RESET,
    SILENT,
    FaultyHttp,
    Response,
    chunked,
    response_of,
)

HIDDEN = "pa55-w0rd-of-mine"
Asking = Callable[..., tuple[FaultyHttp, ServerClient]]

NEW = b"Code: 60. DB::Exception: Unknown table x. (UNKNOWN_TABLE) (version 26.9.2.1 (official))"
OLD = b"Code: 60, e.displayText() = DB::Exception: Unknown table x, e.what() = DB::Exception"
CODE = {"X-ClickHouse-Exception-Code": "60"}
HTML = {"Content-Type": "text/html; charset=utf-8"}
PACKED = gzip.compress(b"rows" * 1000)
GZIP = {"Content-Encoding": "gzip"}

REFUSED: dict[str, Response] = {
    "the status and the header of a new server": response_of(
        NEW, status="404 Not Found", headers=CODE
    ),
    "the status and the text of an old server": response_of(OLD, status="500 Error"),
    "an old server that does not name itself": response_of(OLD, status="500 Error", ours=False),
    "status 200 and the code in a header": response_of(NEW, headers=CODE),
    "the code in a header, and a compressed text": response_of(NEW, headers=CODE, compress=True),
    "an error and chunks": chunked([NEW], headers=CODE),
}
NOT_CLICKHOUSE: dict[str, tuple[Response, str]] = {
    "a page to log in": (
        response_of(b"<html><h1>Sign in</h1></html>", headers=HTML, ours=False),
        r"program responded, HTTP 200, text/html, a response without .*'Sign in'\. Check host",
    ),
    "a proxy without a server behind it": (
        response_of(b"<h1>Bad Gateway</h1>", status="502 Bad Gateway", headers=HTML, ours=False),
        r"another program responded, HTTP 502, text/html, an error of its own: 'Bad Gateway'",
    ),
    "an empty answer of something else": (
        response_of(ours=False),
        r"HTTP 200, no type, a response wit",
    ),
    "a way elsewhere": (
        response_of(
            status="302 Found", ours=False, headers={"Location": "https://sso.example/a?k=hidden"}
        ),
        r"it redirects to https://sso\.example \(HTTP 302\)\. Name the server itself",
    ),
    "a way elsewhere with somebody's password in it": (
        response_of(status="302 Found", ours=False, headers={"Location": "https://u:hidden@sso/a"}),
        r"it redirects to https://sso \(HTTP 302\)",
    ),
    "a way elsewhere of its own": (
        response_of(status="301 Moved", headers={"Location": "/play"}),
        r"it redirects \(HTTP 301\)",
    ),
    "the port of the native protocol": (
        b"HTTP/1.0 400 Bad Request\r\n\r\nPort 9000 is for clickhouse-client program.\r\n",
        r"HTTP 400, no type, an error of its own: 'Port 9000 is for clickhouse-client program",
    ),
    "a status that no query has": (
        response_of(b"rows", status="206 Partial"),
        r"another program respond",
    ),
}
CUT_OFF: dict[str, Response] = {
    "the last chunk is missing": chunked([b"rows"], end=False),
    "cut within a chunk": chunked([b"rows" * 100], end=False)[:-30],
    "shorter than its length": response_of(b"rows", headers={"Content-Length": "5"}),
    "compressed, and cut where HTTP ends well": response_of(PACKED[:-5], headers=GZIP),
    "compressed, and followed by something": response_of(PACKED + b"rows", headers=GZIP),
    "said to be compressed, and is not": response_of(b"rows", headers=GZIP),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_error_of_clickhouse_keeps_its_code_and_reason(asking: Asking, case: str) -> None:
    server, client = asking(REFUSED[case])

    with pytest.raises(ClickHouseError, match=r"Unknown table x") as raised:
        client.query("SELECT 1")

    assert raised.value.code == 60
    assert raised.value.reason in ("Unknown table x. (UNKNOWN_TABLE)", "Unknown table x")
    assert f"in ClickHouse at {server.host.url}: " in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("case", NOT_CLICKHOUSE)
def test_a_response_of_another_program_is_never_read_as_rows(asking: Asking, case: str) -> None:
    """A page of a proxy has status 200, too."""
    response, message = NOT_CLICKHOUSE[case]
    server, client = asking(response)

    with pytest.raises(SourceError, match=message) as raised:
        client.query("SELECT 1", repeat=True)

    assert f"Cannot read from ClickHouse at {server.host.url}: " in str(raised.value)
    assert "hidden" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(server.requests) == 1


@pytest.mark.parametrize("case", CUT_OFF)
def test_a_response_that_breaks_off_is_an_error(asking: Asking, case: str) -> None:
    """Half of the rows look like all of them."""
    server, client = asking(CUT_OFF[case])

    with pytest.raises(SourceError, match=r"its response breaks off after \d+ bytes") as raised:
        client.query("SELECT 1")
    assert server.host.url in str(raised.value)
    with client.stream("SELECT 1") as stream:
        with pytest.raises(SourceError, match=r"breaks off"):
            list(stream.chunks())
        assert not stream.is_complete


@pytest.mark.parametrize(
    ("response", "what"),
    [
        (b"HTTP/1.1 200 OK\r\nX-ClickHouse-Query-Id: 1\r\n\r\nrows", "no length"),
        (response_of(b"rows", headers={"Content-Encoding": "br"}), "Content-Encoding 'br'"),
    ],
)
def test_a_response_without_a_visible_end_is_refused(
    asking: Asking, response: bytes, what: str
) -> None:
    """Without a length it ends when either side ends the connection."""
    with pytest.raises(SourceError, match=rf"{what}, so it may be incomplete"):
        asking(response)[1].query("SELECT 1")


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (RESET, r"it closed the connection before it responded.*may not have been executed"),
        (CUT, r"it closed the connection before it responded.*whether it expects https"),
        (b"\x15\x03\x01\x00\x02\x02\x46", r"the program there does not speak HTTP. Check the p"),
        (b"HTTP/1.1 200 OK\r\nX-Click", r"a response without ClickHouse's headers"),
        (b"HTTP/1.1 200 OK\r\nX-ClickHouse-Format: TSV\r\nContent-Le", r"has no length"),
    ],
)
def test_no_response_is_an_error_that_names_what_to_check(
    asking: Asking, response: Response, message: str
) -> None:
    server, client = asking(response)

    with pytest.raises(SourceError, match=message) as raised:
        client.query("INSERT INTO t VALUES (1)")

    assert server.host.url in str(raised.value)
    assert len(server.requests) == 1


def test_the_client_waits_for_a_silent_server_until_the_time_out() -> None:
    with FaultyHttp(SILENT) as server:
        settings = ServerSettings((server.host,), read_timeout=0.1)
        with (
            ServerClient(settings, server.host) as client,
            pytest.raises(
                SourceError, match=r"it sent nothing for 0\.1 s; the statement may still"
            ),
        ):
            client.query("SELECT 1", repeat=True)
        assert len(server.requests) == 1


def test_the_client_waits_for_a_stopped_response_until_the_time_out() -> None:
    def stop(connection: object) -> None:
        connection.sendall(chunked([b"rows"], end=False))  # type: ignore[attr-defined]
        SILENT(connection)  # type: ignore[arg-type]

    with FaultyHttp(stop) as server:
        settings = ServerSettings((server.host,), read_timeout=0.1)
        with (
            ServerClient(settings, server.host) as client,
            pytest.raises(
                SourceError, match=r"after 4 bytes of a response it sent nothing for 0\.1 s"
            ),
        ):
            client.query("SELECT 1")


def test_a_server_that_is_not_there_is_named() -> None:
    with FaultyHttp(response_of()) as server:
        gone = server.host
    unknown = Host("https", "no-such-host.invalid", 8443)
    for host, message in (
        (gone, rf"{gone.url}: Connection refused\. Check that the server runs and listens on port"),
        (unknown, r"no address is known for the name no-such-host\.invalid\. Check the name in"),
    ):
        pauses: list[float] = []
        client = ServerClient(ServerSettings((host,)), host, pause=pauses.append)
        with pytest.raises(SourceError, match=message):
            client.query("SELECT 1", repeat=True)
        assert len(pauses) == (3 if host == gone else 0)


def test_a_statement_is_a_body_and_nothing_secret_is_in_the_address(asking: Asking) -> None:
    """Addresses are logged by servers and proxies."""
    server, client = asking(response_of(b"rows"))

    response = client.query("SELECT 'ä\udcff'", settings=(("a", "b&c=ü"),), query_id="job-1")

    assert response == b"rows"
    (request,) = server.requests
    assert (request.method, request.body) == ("POST", b"SELECT '\xc3\xa4\xff'")
    assert request.parameters == {"a": "b&c=ü", "query_id": "job-1", "wait_end_of_query": "1"}
    assert request.headers["x-clickhouse-user"] == "exporter"
    assert request.headers["x-clickhouse-key"] == HIDDEN
    assert HIDDEN not in request.path


def test_compression_is_asked_for_where_it_is_wanted(asking: Asking) -> None:
    server, client = asking(response_of(b"rows" * 1000, compress=True), compress=True)

    assert client.query("SELECT 1") == b"rows" * 1000
    assert server.requests[0].headers["accept-encoding"] == "gzip"
    assert server.requests[0].parameters["enable_http_compression"] == "1"
    plain, other = asking(response_of(PACKED + gzip.compress(b"more"), headers=GZIP))
    assert other.query("SELECT 1") == b"rows" * 1000 + b"more"
    assert plain.requests[0].headers["accept-encoding"] == "identity"


def test_connections_are_kept_while_they_are_used() -> None:
    """A new one costs a handshake; one that was idle may meet the server's closing of it."""
    now = 0.0
    with FaultyHttp(response_of(b"rows"), chunked([b"more"]), response_of(b"rows")) as server:
        settings = ServerSettings((server.host,))
        with ServerClient(settings, server.host, clock=lambda: now) as client:
            for _ in range(3):
                client.query("SELECT 1")
            assert server.connections == 1

            now += 2
            client.query("SELECT 1")
            assert server.connections == 2


def test_a_query_without_a_response_is_sent_again(asking: Asking) -> None:
    busy = response_of(
        b"Code: 202. DB::Exception: Too many simultaneous queries.",
        status="500 Error",
        headers={"X-ClickHouse-Exception-Code": "202"},
    )
    pauses: list[float] = []
    server, client = asking(RESET, CUT, busy, response_of(b"rows"), pauses=pauses)

    assert client.query("SELECT 1", repeat=True) == b"rows"
    assert len(server.requests) == 4
    assert pauses == [0.1, 0.4, 1.5]


def test_a_query_is_not_sent_again_for_ever(asking: Asking) -> None:
    server, client = asking(RESET)

    with pytest.raises(SourceError, match=r"closed the connection before it responded"):
        client.query("SELECT 1", repeat=True)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    "response", [RESET, CUT, response_of(NEW, headers=CODE), chunked([b"x"], end=False)]
)
def test_a_statement_is_sent_once(asking: Asking, response: Response) -> None:
    """Nobody knows whether the first one was performed: twice would be twice the rows."""
    server, client = asking(response)

    with pytest.raises(SourceError, match=r"Cannot"):
        client.query("ALTER TABLE t ATTACH PARTITION ID 'p' FROM s")
    assert len(server.requests) == 1


def test_what_a_proxy_sends_back_of_our_secret_is_not_shown(asking: Asking) -> None:
    for response in (
        response_of(b"you sent " + HIDDEN.encode(), ours=False),
        response_of(
            b"Code: 1. DB::Exception: " + HIDDEN.encode(), status="500 Error", headers=OURS
        ),
        response_of(b"Code: 516. DB::Exception: " + HIDDEN.encode(), status="403 Forbidden"),
        chunked([b"Code: 1. DB::Exception: " + HIDDEN.encode()], end=False),
    ):
        with pytest.raises(SourceError, match=r"\*\*\*") as raised:
            asking(response)[1].query("SELECT 1")
        assert HIDDEN not in repr(raised.value)


def test_no_log_of_any_library_shows_a_secret(
    asking: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for response in (
            response_of(b"rows"),
            RESET,
            response_of(NEW, headers=CODE),
            chunked([b"x"], end=False),
        ):
            with contextlib.suppress(SourceError):
                asking(response)[1].query("SELECT 1", repeat=True)

    assert "POST" in caplog.text
    assert HIDDEN not in caplog.text + repr([record.__dict__ for record in caplog.records])


def test_a_refused_login_says_who_and_what_to_check(asking: Asking) -> None:
    body = b"Code: 516. DB::Exception: exporter: Authentication failed. (AUTHENTICATION_FAILED)"
    server, client = asking(response_of(body, status="403 Forbidden"))

    with pytest.raises(SourceError, match=r"Check MERGEBERG_SOURCE_USER and MERG") as raised:
        client.query("SELECT 1")
    assert raised.value.code == 516
    assert f"Cannot log in to ClickHouse at {server.host.url} as the user 'exporter': exporter" in (
        str(raised.value)
    )


def test_a_stream_that_is_left_early_leaves_no_connection_behind(asking: Asking) -> None:
    """The next response would begin with the rest of this one."""
    server, client = asking(chunked([b"a" * 300_000] * 3), response_of(b"rows"))

    with client.stream("SELECT 1", query_id="q") as stream:
        assert next(stream.chunks()).startswith(b"a")
    assert client.query("SELECT 2") == b"rows"
    assert server.connections == 2
    assert "wait_end_of_query" not in server.requests[0].parameters


def test_a_network_does_not_forget_a_statement_that_takes_long(asking: Asking) -> None:
    """Without a byte for minutes it may; and a machine that is gone would be waited for."""
    _, client = asking(response_of(b"rows"))
    client.query("SELECT 1")

    assert client._pool.pool is not None
    (connection,) = (one for one in client._pool.pool.queue if one is not None)
    for level, option in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY),
    ):
        assert connection.sock.getsockopt(level, option) != 0


def test_a_closed_client_can_be_closed_again(asking: Asking) -> None:
    _, client = asking(response_of(b"rows"))

    client.close()
    client.close()

    assert replace(client.settings, compress=True).hosts == (client.host,)
