"""Every function that the installed ClickHouse has is one that may be called, or is refused."""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path

import pytest

from tableformat.clickhouse_codes import NOT_IMPLEMENTED, UNKNOWN_FUNCTION
from tableformat.errors import UnsupportedError
from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal
from tableformat.mergetree.expression_parser import parse_expression
from tableformat.mergetree.row_functions import (
    ALLOWED,
    ALSO_TABLE_FUNCTIONS,
    LISTED_FROM,
    REFUSED,
    calls_outside,
    refuse_outside,
)
from tests.tableformat.mergetree.clickhouse_process import ClickHouse, QueryError

OUTSIDE = (
    *("ai", "catboost", "currentd", "currentu", "dict", "file", "getmacro", "getserver"),
    *("getsetting", "hascolumnintable", "hostname", "joinget", "region", "server", "sleep"),
    *("tcpport", "zookeeper"),
)
"""How names of functions begin that read more than their arguments."""
CONTENT = b"what only the operator reads"
GIVEN = (
    *("'{path}'", "'{path}', '{path}'", "1, '{path}'", "now(), '{path}'", "['{path}']"),
    *("'x', '{path}', '{path}'", "'http://{host}/x'", "'{host}', 'd', 't', 'c'"),
)
"""Arguments of functions: of each at least one."""
FUNCTIONS, TABLE_FUNCTIONS, CALLABLE = 1_885, 94, 1_416


def refused(expression: Expression) -> str:
    """Return the reason against an expression, '' if it may be evaluated."""
    try:
        refuse_outside("run it", expression, "Compute it first.")
    except UnsupportedError as error:
        return error.message
    return ""


def response_to(clickhouse: ClickHouse, sql: str) -> tuple[str, bool]:
    """Return ClickHouse's response, and whether it is an error."""
    try:
        return str(clickhouse.rows(sql)), False
    except QueryError as error:
        return str(error), True


def test_every_function_of_the_engine_is_listed_once(clickhouse: ClickHouse) -> None:
    """A new function is refused until it is reviewed and added to ALLOWED."""
    rows = clickhouse.rows("SELECT name, is_aggregate FROM system.functions")
    names = {name.lower() for name, _ in rows}

    assert clickhouse.text("SELECT version()").startswith(f"{LISTED_FROM}.")
    assert names - ALLOWED - REFUSED.keys() == set()
    assert (ALLOWED | REFUSED.keys()) - names == set()
    assert ALLOWED & REFUSED.keys() == set()
    assert not [name for name, aggregate in rows if aggregate and name.lower() in ALLOWED]
    assert len(rows) == FUNCTIONS


def test_each_of_them_is_refused_unless_it_may_be_called(clickhouse: ClickHouse) -> None:
    names = [name for (name,) in clickhouse.rows("SELECT name FROM system.functions")]
    called = [name for name in names if not refused(Call(name, (ColumnName("k"), Literal(1))))]
    within = [name for name in names if not refused(parse_expression(f"upper(`{name}`(k))"))]

    assert (len(names), len(called)) == (FUNCTIONS, CALLABLE)
    assert called == within == [name for name in names if name.lower() in ALLOWED]
    assert not [name for name in called if name.lower().startswith(OUTSIDE)]


def test_no_table_function_may_follow_in(clickhouse: ClickHouse) -> None:
    """ClickHouse reads a name after IN as a table function, even if it is a function."""
    names = [name for (name,) in clickhouse.rows("SELECT name FROM system.table_functions")]

    assert len(names) == TABLE_FUNCTIONS
    assert {name.lower() for name in names} & ALLOWED == ALSO_TABLE_FUNCTIONS
    for name in names:
        for text in ("k IN `{}`(1)", "k NOT IN (`{}`('x'))", "nullIn(k, `{}`('x'))"):
            assert f"the function {name} " in refused(parse_expression(text.format(name))) or (
                f"reads {name}(…) as a table" in refused(parse_expression(text.format(name)))
            )


@pytest.mark.parametrize("name", ["functionOfTomorrow", "fileOfTomorrow", "table", "*", "x y"])
def test_a_function_of_a_newer_clickhouse_is_refused(name: str) -> None:
    (call,) = calls_outside(Call(name, ()))

    assert (call.function, call.code) == (name, UNKNOWN_FUNCTION)
    assert f"the function {name} is not listed among those" in refused(Call(name, ()))


@pytest.mark.parametrize(
    "text",
    [
        "k IN system.zeros",
        "k NOT IN t",
        "k IN (`/etc/passwd`)",
        "nullIn(k, t)",
        "notIn(k, `t`)",
        "arrayFilter(x -> x IN y, a)",
    ],
)
def test_a_name_after_in_is_that_of_a_table(text: str) -> None:
    (call,) = calls_outside(parse_expression(text))

    assert call.code == NOT_IMPLEMENTED
    assert "as a table" in call.why


@pytest.mark.parametrize(
    "text",
    [
        "k IN (1, 2)",
        "k NOT IN ('a')",
        "(k, s) IN ((1, 'a'), (2, 'b'))",
        "k IN (toDate('2024-01-01'), today())",
        "k IN [1, 2]",
        "s LIKE 'a%' AND t.a > 1 ? x.1 : arr[1]",
        "arrayMap((x, y) -> x + y, a, b)",
        "CASE WHEN a THEN CAST(b AS String) ELSE 'x'::String END",
        "d + INTERVAL 1 DAY",
        "decodeURLComponent(domain(s))",
        "generateUUIDv4()",
    ],
)
def test_what_computes_with_the_row_is_evaluated(text: str) -> None:
    assert list(calls_outside(parse_expression(text))) == []


@pytest.mark.representative
def test_what_may_be_called_opens_no_file_and_no_connection(
    clickhouse: ClickHouse, tmp_path: Path
) -> None:
    """Each is called with a path and an address, among others; a pipe detects a reader."""
    path = tmp_path / "secret"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    os.write(pipe, CONTENT)
    names = [
        name
        for (name,) in clickhouse.rows("SELECT name FROM system.functions")
        if name.lower() in ALLOWED
    ]
    succeeded, calls = set[str](), 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        host = "{}:{}".format(*listener.getsockname())
        for name, given in itertools.product(names, GIVEN):
            calls += 1
            arguments = given.format(path=path, host=host)
            response, failed = response_to(clickhouse, f"SELECT toString(`{name}`({arguments}))")
            assert CONTENT.decode() not in response
            succeeded |= set() if failed else {name}
        with pytest.raises(BlockingIOError):
            listener.accept()
    left = os.read(pipe, 2 * len(CONTENT))
    os.close(pipe)

    assert left == CONTENT
    assert (len(names), calls) == (CALLABLE, CALLABLE * len(GIVEN))
    assert len(succeeded) > CALLABLE // 4
