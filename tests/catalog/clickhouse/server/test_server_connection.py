"""Rows and statements over HTTP: no digit is lost, and no row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.clickhouse.connection import (
    JSON_SETTINGS,
    PLAIN_SETTINGS,
    ClickHouseError,
    Connection,
)
from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.settings import ServerSettings
from tableformat.errors import SourceError
from tests.services.faulty_http import FaultyHttp, Response, response_of

Asking = Callable[..., tuple[FaultyHttp, ServerClient]]


def document(
    rows: Iterable[Iterable[Any]], *types: str, count: int | None = None, **more: Any
) -> bytes:
    """Return what JSONCompact makes of rows."""
    data = [list(row) for row in rows]
    meta = [{"name": f"c{at}", "type": name} for at, name in enumerate(types)]
    body = {"meta": meta, "data": data, "rows": len(data) if count is None else count, **more}
    return json.dumps(body, ensure_ascii=False).encode()


def known(**other: str) -> Response:
    """Return what a server says of its settings: as they should be, but for some."""
    wanted = dict((*JSON_SETTINGS, *PLAIN_SETTINGS)) | other
    return settings_of(wanted)


def settings_of(values: Mapping[str, str], *, changed: str = "") -> Response:
    """Return the answer of a server; it shows no other value of the one that is `changed`."""
    row = [list(values), list(values.values()), [int(name == changed) for name in values]]
    return response_of(document([row], "Array(String)", "Array(String)", "Array(UInt8)"))


# As 18.16 says it.
OLD = settings_of({"output_format_json_quote_64bit_integers": "1", "extremes": "0"})


def rows_of(asking: Asking, *responses: Response) -> tuple[tuple[object, ...], ...]:
    return ServerConnection(asking(*responses)[1]).rows("SELECT 1")


def test_rows_arrive_as_they_are(asking: Asking) -> None:
    big = 2**256 - 1
    body = document([(big, "ä\n", None, [1, "2"])], "UInt256", "String", "Nothing", "Array(String)")
    server, client = asking(known(), response_of(body))
    connection: Connection = ServerConnection(client)

    assert connection.rows("SELECT 1 -- the end") == ((big, "ä\n", None, [1, "2"]),)
    assert server.requests[-1].body == b"SELECT 1 -- the end\nFORMAT JSONCompact"
    assert connection.address == server.host.url


def test_settings_are_asked_for_once_and_only_those_that_differ_are_sent(asking: Asking) -> None:
    """A user's profile may break a query off at a limit, or hide rows, without an error."""
    other = known(result_overflow_mode="break", limit="10", apply_deleted_mask="0")
    server, client = asking(other, response_of(document([], "UInt8")))
    connection = ServerConnection(client)

    assert connection.rows("SELECT 1") == connection.rows("SELECT 2") == ()
    assert len(server.requests) == 3
    wanted = {"result_overflow_mode": "throw", "limit": "0", "apply_deleted_mask": "1"}
    assert server.requests[-1].parameters == {**wanted, "wait_end_of_query": "1"}
    assert dict(connection.settings) == wanted


def test_a_limit_that_its_own_query_does_not_show_is_undone(asking: Asking) -> None:
    """ClickHouse 26.9 shows `limit = 0` to a query that the profile's limit cuts."""
    shown = dict((*JSON_SETTINGS, *PLAIN_SETTINGS))
    _, client = asking(settings_of(shown, changed="limit"), response_of(document([], "UInt8")))

    assert ServerConnection(client).settings == (("limit", "0"),)


def test_a_server_is_sent_no_setting_that_it_does_not_know(asking: Asking) -> None:
    """It would refuse the query."""
    server, client = asking(OLD, response_of(document([(1,)], "UInt64")))

    assert ServerConnection(client).rows("SELECT 1") == ((1,),)
    assert server.requests[-1].parameters == {
        "output_format_json_quote_64bit_integers": "0",
        "wait_end_of_query": "1",
    }


def test_a_profile_that_changes_every_result_is_refused(asking: Asking) -> None:
    """An `offset` in the profile takes the only row; without it no setting would be undone."""
    with pytest.raises(SourceError, match=r"returned 0 rows, .* Remove offset, filter, select"):
        rows_of(asking, response_of(document([], "Array(String)", "Array(String)")))


def test_decimals_are_text_in_every_format(asking: Asking) -> None:
    """As a float 0.1234567890123456789 would be another number."""
    digits = "0.1234567890123456789"
    body = document(
        [(7, "D", 1.5, ["D"])], "UInt64", "Decimal(38, 19)", "Float64", "Array(Decimal)"
    )
    old = response_of(body.replace(b'"D"', digits.encode()))

    assert rows_of(asking, OLD, old) == ((7, digits, 1.5, [digits]),)
    assert rows_of(asking, known(), response_of(body)) == ((7, "D", 1.5, ["D"]),)


def test_bytes_that_are_no_utf8_are_kept(asking: Asking) -> None:
    """JSONCompact says U+FFFD for them: another value than the one that is there."""
    damaged = response_of(document([("\ufffdA", 1)], "String", "UInt8"))
    server, client = asking(known(), damaged, response_of(b'["\xffA",1]\n["\xef\xbf\xbd",2]\n'))

    assert ServerConnection(client).rows("SELECT s") == (("\udcffA", 1), ("\ufffd", 2))
    assert server.requests[-1].body == b"SELECT s\nFORMAT JSONCompactEachRow"
    for body, message in (
        (b'["\xffA",1]\n["\xff"', r"ends within a line"),
        (b'["\xffA"]\n', r"has a row of another length"),
        (b"x\n", r"has a line that is no JSON"),
    ):
        with pytest.raises(SourceError, match=message):
            rows_of(asking, known(), damaged, response_of(body))


def test_decimals_in_rows_with_bytes_that_are_no_utf8_keep_their_digits(asking: Asking) -> None:
    """A server that knows the format of bytes, and not yet decimals as text."""
    digits = "0.1234567890123456789"
    damaged = response_of(document([("\ufffd", 1.5, 0.5)], "String", "Decimal(38, 19)", "Float64"))
    lines = response_of(f'["\ufffd",{digits},0.5]\n'.encode())

    assert rows_of(asking, OLD, damaged, lines) == (("\ufffd", digits, 0.5),)


def test_the_oldest_server_cannot_say_such_bytes(asking: Asking) -> None:
    """A text that is not the one in the table is worse than none."""
    damaged = response_of(document([("\ufffdA",)], "String"))
    unknown = response_of(
        b"Code: 73, e.displayText() = DB::Exception: Unknown format JSONCompactEachRow",
        status="500 Error",
    )

    with pytest.raises(SourceError, match=r"is not UTF-8.*Use a newer version"):
        rows_of(asking, OLD, damaged, unknown)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", r"its response is empty, but rows were requested\. Check proxies"),
        (b"[]", r"of 2 bytes is no JSON document"),
        (b'{"meta": []}', r"of 12 bytes is no JSON document"),
        (b"1\t2\n", r"of 4 bytes is no JSON document"),
        (document([(1,)], "UInt8", count=2), r"states 2 rows and has 1"),
        (document([(1, 2)], "UInt8"), r"states 1 rows and has 1"),
        (document([], "UInt8", exception="Code: 241. DB::Exception: Memory limit"), r"Memory li"),
        (
            document([(1,)], "UInt8")[:-9] + b"Code: 241. DB::Exception: Memory limit exceeded",
            r"Memory limit exceeded",
        ),
    ],
)
def test_a_response_without_all_rows_is_an_error(asking: Asking, body: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        rows_of(asking, known(), response_of(body))


@settings(max_examples=30)
@given(st.data())
def test_no_beginning_of_a_document_is_taken_for_the_document(data: st.DataObject) -> None:
    """A proxy may cut, and say the length of what it has left."""
    rows = data.draw(st.lists(st.tuples(st.integers(), st.text(max_size=5)), max_size=5))
    whole = document(rows, "Int256", "String")
    cut = data.draw(st.integers(0, len(whole) - 1))
    with FaultyHttp(known(), response_of(whole[:cut])) as server:
        client = ServerClient(ServerSettings((server.host,)), server.host)
        with client, pytest.raises(SourceError, match=r"Cannot read from ClickHouse"):
            ServerConnection(client).rows("SELECT 1")


def test_a_statement_is_sent_once_and_its_failure_is_reported(asking: Asking) -> None:
    server, client = asking(known(limit="5"), response_of(b""))
    with ServerConnection(client) as connection:
        connection.command("CREATE TABLE t")
    assert [request.body for request in server.requests[1:]] == [b"CREATE TABLE t"]
    assert server.requests[-1].parameters == {"limit": "0", "wait_end_of_query": "1"}

    late = response_of(b"Code: 241, e.displayText() = DB::Exception: Memory limit exceeded")
    with pytest.raises(ClickHouseError, match=r"Memory limit exceeded") as raised:
        ServerConnection(asking(known(), late)[1]).command("OPTIMIZE TABLE t")
    assert raised.value.code == 241
