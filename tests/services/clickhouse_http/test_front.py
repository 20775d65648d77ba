"""The front behaves as a ClickHouse server, so that what holds on it holds on a server."""

from __future__ import annotations

import io
import socket
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

import pyarrow as pa
import pytest
import urllib3

from tests.services.clickhouse_front import ClickHouseFront, clickhouse_front
from tests.services.clickhouse_http import faults
from tests.services.clickhouse_http.faults import BrokenStream, Fault
from tests.services.server_process import wait_until

_FAILS_LATE: Final = "SELECT throwIf(number = 900000), number FROM numbers(1000000) FORMAT TSV"
_ENDLESS: Final = "SELECT number FROM system.numbers FORMAT Native"
_LONG: Final = (
    "SELECT sum(sleepEachRow(0.01)) FROM numbers(100000) SETTINGS max_block_size = 10,"
    " function_sleep_max_microseconds_per_block = 0"
)
_NONE: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Client:
    """Any client: what it sends arrives as it is, what comes is shown as it came."""

    front: ClickHouseFront
    http: urllib3.PoolManager

    def open(
        self, sql: str, headers: Mapping[str, str] = _NONE, **parameters: str
    ) -> urllib3.BaseHTTPResponse:
        return self.http.request(
            "POST",
            f"{self.front.url}/?{urlencode(parameters)}",
            body=sql,
            headers=headers,
            preload_content=False,
            decode_content=False,
        )

    def ask(self, sql: str, headers: Mapping[str, str] = _NONE, **parameters: str) -> bytes:
        response = self.open(sql, headers, **parameters)
        body = response.read()
        assert response.status == HTTPStatus.OK, body
        return body

    def refused(self, sql: str, headers: Mapping[str, str] = _NONE, **parameters: str) -> str:
        """Return status, code and text of a refusal."""
        response = self.open(sql, headers, **parameters)
        code = response.headers["X-ClickHouse-Exception-Code"]
        return f"{response.status} {code} {response.read().decode()}"


@pytest.fixture
def client(newest_server: ClickHouseFront) -> Iterator[Client]:
    with urllib3.PoolManager(retries=False, maxsize=8, timeout=60) as http:
        yield Client(newest_server, http)


def received(response: urllib3.BaseHTTPResponse) -> tuple[bytes, bool]:
    """Return what came of a body, and whether its end is clean."""
    held = b""
    try:
        for piece in response.stream(1 << 16):
            held += piece
    except urllib3.exceptions.ProtocolError:
        return held, False
    return held, True


def test_a_response_has_the_format_of_the_statement_or_of_the_request(client: Client) -> None:
    assert client.ask("SELECT 1, 'a'") == b"1\ta\n"
    assert client.ask("SELECT 1 AS x FORMAT JSONEachRow") == b'{"x":1}\n'
    assert client.ask("SELECT 1 AS x", default_format="JSONCompactEachRow") == b"[1]\n"
    assert client.ask("", query="SELECT 1 SETTINGS max_threads = 1 FORMAT CSV") == b"1\n"


def test_an_early_error_has_a_status_a_code_and_the_engines_text(client: Client) -> None:
    assert client.refused("SELECT * FROM nowhere.t").startswith("404 81 Code: 81. DB::Exception: ")
    assert client.refused("SELEKT 1").startswith("400 62 Code: 62. DB::Exception: Syntax error")
    assert client.refused("SELECT 1", nonsense="1").startswith("404 115 ")
    assert client.refused("SELECT throwIf(1)").endswith(
        "(FUNCTION_THROW_IF_VALUE_IS_NON_ZERO) (version 26.9.2.1 (official build))\n"
    )


def test_a_late_failure_is_a_block_with_the_tag_of_the_response(client: Client) -> None:
    response = client.open(_FAILS_LATE, buffer_size="1000")
    tag = response.headers["X-ClickHouse-Exception-Tag"].encode()
    body, is_clean = received(response)

    assert response.status == HTTPStatus.OK
    assert not is_clean
    start, end = b"\r\n__exception__\r\n%s\r\n" % tag, b" %s\r\n__exception__\r\n" % tag
    block = body[body.index(start) + len(start) : body.index(end)]
    text, _, size = block.rpartition(b"\n")
    assert text.startswith(b"Code: 395. DB::Exception: ")
    assert int(size) == len(text) + 1
    assert body.endswith(end)


def test_a_late_failure_may_have_the_form_of_old_servers(client: Client) -> None:
    client.front.break_streams(BrokenStream.APPENDED)

    body, is_clean = received(client.open(_FAILS_LATE, buffer_size="1000"))

    assert is_clean
    assert b"\nCode: 395. DB::Exception: " in body[-400:]


def test_a_query_that_fails_late_may_just_end(client: Client) -> None:
    client.front.break_streams(BrokenStream.CUT)

    body, is_clean = received(client.open(_FAILS_LATE, buffer_size="1000"))

    assert not is_clean
    assert b"Code:" not in body


def test_the_late_error_of_a_compressed_response_is_compressed_with_it(client: Client) -> None:
    asked = {"enable_http_compression": "1", "buffer_size": "1000"}

    body, is_clean = received(client.open(_FAILS_LATE, {"Accept-Encoding": "gzip"}, **asked))

    assert not is_clean
    unpacked = zlib.decompressobj(31).decompress(body)
    assert unpacked.endswith(b"\r\n__exception__\r\n")


@pytest.mark.parametrize(
    ("encoding", "unpack"),
    [
        ("gzip", lambda body: zlib.decompress(body, 31)),
        ("deflate", zlib.decompress),
        ("zstd", lambda body: pa.CompressedInputStream(io.BytesIO(body), "zstd").read()),
        ("lz4", lambda body: pa.CompressedInputStream(io.BytesIO(body), "lz4").read()),
    ],
)
def test_responses_are_compressed_when_the_client_requests_it(
    client: Client, encoding: str, unpack: Callable[[bytes], bytes]
) -> None:
    sql, accepts = "SELECT number FROM numbers(300000)", {"Accept-Encoding": encoding}

    response = client.open(sql, accepts, enable_http_compression="1")

    assert response.headers["Content-Encoding"] == encoding
    body = response.read()
    plain = client.ask(sql, accepts)
    assert len(body) < len(plain)
    assert unpack(body) == plain


def test_an_arrow_stream_is_one_stream_and_comes_while_the_query_runs(client: Client) -> None:
    response = client.open("SELECT number FROM system.numbers LIMIT 1000000 FORMAT ArrowStream")
    with pa.ipc.open_stream(response) as reader:
        batches = list(reader)

    assert len(batches) > 1
    assert sum(batch.num_rows for batch in batches) == 1_000_000
    endless = client.open(_ENDLESS)
    assert len(endless.read(1 << 20)) == 1 << 20
    endless.close()


def test_a_query_is_found_and_ended_by_its_id(client: Client) -> None:
    responses: list[str] = []
    thread = threading.Thread(
        target=lambda: responses.append(client.refused(_LONG, query_id="mine"))
    )
    thread.start()
    running = "SELECT count() FROM system.processes WHERE query_id = 'mine'"
    wait_until(lambda: client.ask(running) == b"1\n", "the query runs")

    assert client.refused("SELECT 1", query_id="mine").startswith("500 216 ")
    assert client.ask("KILL QUERY WHERE query_id = 'mine' SYNC").startswith(b"finished\t")
    thread.join(30)
    assert responses[0].startswith("500 394 Code: 394. DB::Exception: Query was cancelled")
    assert client.ask("SELECT 1", query_id="mine") == b"1\n"


def test_the_query_of_a_client_that_went_away_ends(client: Client) -> None:
    asked = f"POST /?query_id=left HTTP/1.1\r\nContent-Length: {len(_ENDLESS)}\r\n\r\n{_ENDLESS}"
    with socket.create_connection(("127.0.0.1", client.front.port)) as one:
        one.sendall(asked.encode())
        assert one.recv(1000)
    running = "SELECT count() FROM system.processes WHERE query_id = 'left'"

    wait_until(lambda: client.ask(running) == b"0\n", "nobody's query has ended")


def test_a_named_session_keeps_temporary_tables_and_no_settings_of_a_request(
    client: Client,
) -> None:
    client.ask("CREATE TEMPORARY TABLE x (a UInt8)", session_id="s")
    client.ask("INSERT INTO x VALUES (7)", session_id="s", max_threads="1")

    assert client.ask("SELECT a FROM x", session_id="s") == b"7\n"
    assert client.refused("SELECT a FROM x").startswith("404 60 ")
    ask = "SELECT getSetting('max_block_size')"
    assert client.ask(ask, session_id="s", max_block_size="5") == b"5\n"
    assert client.ask(ask, session_id="s") != b"5\n"
    assert client.refused("SELECT 1", session_id="other", session_check="1").startswith("500 372 ")


def test_a_session_serves_one_request_at_a_time(client: Client) -> None:
    thread = threading.Thread(
        target=lambda: client.refused(_LONG, session_id="busy", query_id="holds")
    )
    thread.start()
    running = "SELECT count() FROM system.processes WHERE query_id = 'holds'"
    wait_until(lambda: client.ask(running) == b"1\n", "the session is busy")

    assert client.refused("SELECT 1", session_id="busy").startswith("500 373 ")
    client.ask("KILL QUERY WHERE query_id = 'holds' SYNC")
    thread.join(30)


def test_parameters_settings_and_the_database_come_with_the_request(client: Client) -> None:
    client.front.commands("CREATE DATABASE db", "CREATE TABLE db.t (a UInt8) ENGINE = Memory")

    assert client.ask("SELECT {a:UInt8} + 1", param_a="4") == b"5\n"
    assert client.ask("SELECT count() FROM t", database="db") == b"0\n"
    assert client.ask("SELECT 1", database="db", max_result_rows="1") == b"1\n"
    refused = client.refused("SELECT number FROM numbers(9)", max_result_rows="1")
    assert refused.startswith("500 396 ")


def test_a_get_only_reads(client: Client) -> None:
    url = f"{client.front.url}/?{urlencode({'query': 'CREATE DATABASE never'})}"

    assert client.http.request("GET", url).headers["X-ClickHouse-Exception-Code"] == "164"
    assert client.http.request("GET", f"{client.front.url}/ping").data == b"Ok.\n"


@pytest.mark.parametrize(
    ("fault", "status", "body", "clean"),
    [
        (faults.PROXY_PAGE, 502, b"<html>", True),
        (faults.UNAVAILABLE, 503, b"Service Unavailable\n", True),
        (faults.EMPTY, 200, b"", True),
        (faults.short(4), 200, b"0\n1\n", True),
        (faults.tail("Code: 241, e.displayText() = gone", 4), 200, b"0\n1\nCode: 241", True),
        (faults.cut(4), 200, b"0\n1\n", False),
        (faults.flipped(2), 200, b"0\n0\n2\n", True),
        (faults.wrong_length(9), 200, b"0\n1\n2\n", False),
        (faults.wrong_length(-2), 200, b"0\n1\n2\n", True),
        (faults.TOO_MANY_QUERIES, 500, b"Code: 202. DB::Exception: Too many simul", True),
    ],
)
def test_one_request_meets_the_fault_that_waits_for_it(
    client: Client, fault: Fault, status: int, body: bytes, *, clean: bool
) -> None:
    sql = "SELECT number FROM numbers(50)"
    client.front.fail_next(fault, containing="numbers(50)")
    assert client.ask("SELECT 1") == b"1\n"

    response = client.open(sql)
    found, is_clean = received(response)

    assert (response.status, is_clean) == (status, clean)
    assert found.startswith(body)
    assert client.front.faults_left == 0
    # What came behind an announced length must not be taken for the next response.
    client.http.clear()
    assert client.ask(sql).endswith(b"\n49\n")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (faults.DROP, urllib3.exceptions.ProtocolError),
        (faults.SILENCE, urllib3.exceptions.ReadTimeoutError),
    ],
)
def test_a_request_may_have_no_response(
    client: Client, fault: Fault, error: type[Exception]
) -> None:
    client.front.fail_next(fault)

    with pytest.raises(error, match=r"Connection aborted|Read timed out"):
        client.http.request("POST", client.front.url, body="SELECT 1", timeout=0.3)
    assert client.ask("SELECT 1") == b"1\n"


def test_a_server_that_is_killed_comes_back_with_its_data_and_users(client: Client) -> None:
    front = client.front
    front.commands(
        "CREATE DATABASE db",
        "CREATE TABLE db.t (a UInt8) ENGINE = MergeTree ORDER BY a",
        "INSERT INTO db.t VALUES (1), (2)",
        "CREATE USER reader IDENTIFIED BY 'secret'",
        "GRANT SELECT ON db.* TO reader",
    )

    front.kill()
    with pytest.raises(urllib3.exceptions.NewConnectionError, match="Connection refused"):
        client.ask("SELECT 1")
    front.start()

    reader = {"X-ClickHouse-User": "reader", "X-ClickHouse-Key": "secret"}
    assert client.ask("SELECT count() FROM db.t", reader) == b"2\n"


@pytest.mark.parametrize("fault", [faults.LOST, faults.death(0)])
def test_a_statement_may_be_performed_without_a_response(client: Client, fault: Fault) -> None:
    client.front.fail_next(fault, containing="DATABASE done")

    with (
        client.front.revived(),
        pytest.raises(urllib3.exceptions.ProtocolError, match="Connection aborted"),
    ):
        client.ask("CREATE DATABASE done")

    assert client.ask("EXISTS DATABASE done") == b"1\n"


def test_a_server_may_die_during_a_response_and_come_back(client: Client) -> None:
    client.front.fail_next(faults.death(1000))

    with client.front.revived():
        body, is_clean = received(client.open("SELECT number FROM numbers(100000)"))

    assert not is_clean
    assert len(body) <= 1000
    assert client.ask("SELECT 1") == b"1\n"


def test_a_stopped_server_responds_to_no_client(client: Client) -> None:
    client.front.pause()

    with pytest.raises(urllib3.exceptions.ReadTimeoutError, match="Read timed out"):
        client.http.request("POST", client.front.url, body="SELECT 1", timeout=0.3)
    client.front.resume()
    assert client.ask("SELECT 1") == b"1\n"


def test_what_was_asked_is_remembered_without_passwords(client: Client) -> None:
    asked = {"user": "default", "password": "", "query_id": "q1", "max_threads": "1"}
    client.ask("SELECT 'remembered'", {"Accept-Encoding": "gzip"}, **asked)

    (request,) = client.front.requests("'remembered'")
    assert (request.method, request.query_id, request.accepts) == ("POST", "q1", "gzip")
    assert request.parameters == {"user": "default", "query_id": "q1", "max_threads": "1"}


def test_a_server_may_have_a_configuration_of_its_own() -> None:
    macros = "<macros><shard>7</shard></macros>"

    with clickhouse_front(config=macros) as front:
        assert front.rows("SELECT substitution FROM system.macros") == (("7",),)
