"""Where a stream's end is clean, and where it is an error: however the bytes arrive."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from urllib3 import HTTPHeaderDict
from urllib3.exceptions import ProtocolError

from catalog.clickhouse.connection import ClickHouseError
from catalog.clickhouse.server.client import (
    HELD_BYTES,
    ServerClient,
    ServerStream,
    error_of_response,
)
from catalog.clickhouse.server.settings import Host, ServerSettings
from tableformat.errors import SourceError
from tests.services.faulty_http import FaultyHttp, chunked

HOST = Host("https", "ch1", 8443)
TAG = "dngjzjnxkvlwkeua"
TEXT = b"Code: 395. DB::Exception: boom in the middle: while executing. (X) (version 26.9.2.1)"
BLOCK = b"\r\n__exception__\r\n%b\r\n%b\n%d %b\r\n__exception__\r\n" % (
    TAG.encode(),
    TEXT,
    len(TEXT) + 1,
    TAG.encode(),
)
OLD = b"Code: 395, e.displayText() = DB::Exception: boom, e.what() = DB::Exception\n"
ROWS = st.binary(max_size=200) | st.integers(0, 3 * HELD_BYTES).map(lambda n: b"r" * n)
CUTS = st.lists(st.integers(1, 5000), max_size=20)


class Body:
    """What urllib3 hands over of a response: pieces, and then perhaps that the connection ended."""

    def __init__(self, body: bytes, cuts: list[int], *, ends: bool, **headers: str) -> None:
        self.headers = HTTPHeaderDict({name.replace("_", "-"): v for name, v in headers.items()})
        self._body, self._cuts, self._ends = body, cuts, ends

    def stream(self, _size: int, *, decode_content: bool) -> Iterator[bytes]:
        assert not decode_content
        rest = self._body
        for cut in self._cuts:
            if rest[:cut]:
                yield rest[:cut]
            rest = rest[cut:]
        if rest:
            yield rest
        if not self._ends:
            message = "the connection ended"
            raise ProtocolError(message)


def stream_of(body: Body) -> ServerStream:
    return ServerStream(body, ServerSettings((HOST,)), HOST)  # type: ignore[arg-type]


@given(ROWS, CUTS, st.booleans(), st.booleans())
def test_an_error_with_the_tag_of_its_response_is_never_data(
    rows: bytes,
    cuts: list[int],
    ends: bool,  # noqa: FBT001
    packed: bool,  # noqa: FBT001
) -> None:
    """From 25.11: wherever HTTP and compression cut it, and even where a proxy mends the end."""
    body = rows + BLOCK
    encoding = {"Content_Encoding": "gzip"} if packed else {}
    sent = gzip.compress(body) if packed else body
    stream = stream_of(Body(sent, cuts, ends=ends, X_ClickHouse_Exception_Tag=TAG, **encoding))
    received: list[bytes] = []

    with pytest.raises(ClickHouseError, match=r"at https://ch1:8443: boom in the middle") as raised:
        received.extend(stream.chunks())
    assert raised.value.code == 395
    assert rows.startswith(b"".join(received)), "no byte of the error is handed out as data"
    assert not stream.is_complete


@given(ROWS, CUTS, st.sampled_from([b"", b"\r\n__exception__\r\n" + TEXT, OLD]))
def test_a_connection_that_ends_is_an_error_whatever_came(
    rows: bytes, cuts: list[int], rest: bytes
) -> None:
    """From 24.11 to 25.10 the text stands there; a proxy that cuts says nothing."""
    stream = stream_of(Body(rows + rest, cuts, ends=False))

    with pytest.raises(SourceError) as raised:
        list(stream.chunks())
    assert ("boom" in str(raised.value)) == bool(rest)
    assert not stream.is_complete


@given(ROWS, CUTS, st.booleans())
def test_rows_that_look_like_an_error_are_rows(rows: bytes, cuts: list[int], packed: bool) -> None:  # noqa: FBT001
    """A column may hold log lines of a ClickHouse: the reader of the format decides."""
    body = rows + OLD + TEXT
    encoding = {"Content_Encoding": "gzip"} if packed else {}
    sent = gzip.compress(body) if packed else body
    stream = stream_of(Body(sent, cuts, ends=True, X_ClickHouse_Exception_Tag=TAG, **encoding))

    assert b"".join(stream.chunks()) == body
    assert stream.is_complete
    assert isinstance(stream.error_at_end, ClickHouseError)
    assert stream.error_at_end.code == 395


@given(st.binary(max_size=300), CUTS)
def test_other_rows_say_nothing_at_their_end(rows: bytes, cuts: list[int]) -> None:
    stream = stream_of(Body(rows + OLD + b"\0", cuts, ends=True))

    assert b"".join(stream.chunks()) == rows + OLD + b"\0"
    assert stream.error_at_end is None


def test_an_error_of_keeper_is_clickhouses_own() -> None:
    """Old servers have no header for it, and it is of no class of ClickHouse's database."""
    body = OLD.replace(b"DB::", b"Coordination::").replace(b"395", b"999")

    error = error_of_response(ServerSettings((HOST,)), HOST, 500, {}, body)

    assert isinstance(error, ClickHouseError)
    assert (error.code, error.reason) == (999, "boom")


def test_the_tag_of_another_response_is_data() -> None:
    """A table may hold what an earlier response held."""
    stream = stream_of(Body(b"rows" + BLOCK, [], ends=True, X_ClickHouse_Exception_Tag="other"))

    assert b"".join(stream.chunks()) == b"rows" + BLOCK


def test_a_text_longer_than_what_is_kept_back_is_an_error_all_the_same() -> None:
    long = BLOCK.replace(TEXT, TEXT + b"x" * 2 * HELD_BYTES)
    stream = stream_of(Body(b"rows" + long, [], ends=True, X_ClickHouse_Exception_Tag=TAG))

    with pytest.raises(ClickHouseError, match=r"xxx"):
        list(stream.chunks())


def test_an_error_after_a_compressed_body_is_found_uncompressed() -> None:
    sent = gzip.compress(b"rows")[:-8] + TEXT
    stream = stream_of(Body(sent, [len(sent) - len(TEXT)], ends=False, Content_Encoding="gzip"))

    with pytest.raises(ClickHouseError, match=r"boom in the middle"):
        list(stream.chunks())


WHOLE = chunked([b"rows", b"more" * 50, b"x"])


@settings(max_examples=50)
@given(st.integers(1, len(WHOLE) - 5))
def test_no_beginning_of_a_response_is_a_whole_one(cut: int) -> None:
    """Wherever a connection ends, in bytes on the wire: the chunk of size 0 alone says all came."""
    with FaultyHttp(WHOLE[:cut]) as server:
        client = ServerClient(ServerSettings((server.host,)), server.host)
        with client, pytest.raises(SourceError, match=r"Cannot re"):
            client.query("SELECT 1")


def test_a_whole_response_is_complete() -> None:
    with FaultyHttp(WHOLE) as server:
        client = ServerClient(ServerSettings((server.host,)), server.host)
        with client:
            assert client.query("SELECT 1") == b"rows" + b"more" * 50 + b"x"
