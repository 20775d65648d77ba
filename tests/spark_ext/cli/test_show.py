"""`mergeberg show`: what a lake table holds, and lines that readers run as they are."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from typing import Any

import pytest

from spark_ext.cli.commands.show import _clickhouse
from spark_ext.demo.readers import find_duckdb
from tests.wrong.places import Places


@pytest.fixture
def table(places: Places) -> str:
    """Return a lake table of two partitions and three rows."""
    places.reads_parts = True
    to = ("--to", "lake.n.looked")
    assert places.run("export", "db.events", "--all", *to)[0] == 0
    return to[1]


def shown(places: Places, table: str, *more: str) -> str:
    code, out, err = places.run("show", table, "--warehouse", str(places.warehouse), *more)
    assert code == 0, err
    return out


def result_of(lines: str) -> Any:
    """Run lines of Python; return the value of the last one."""
    tree = ast.parse(lines)
    last = tree.body.pop()
    assert isinstance(last, ast.Expr)
    names: dict[str, Any] = {}
    exec(compile(tree, "lines", "exec"), names)  # noqa: S102  what a person copies is run
    return eval(compile(ast.Expression(last.value), "line", "eval"), names)  # noqa: S307


def clickhouse_result(query: str) -> str:
    """Run a query as `clickhouse local` does; it reads files below its working directory."""
    program = "import sys, chdb; print(chdb.query(sys.argv[1]))"
    ended = subprocess.run(
        [sys.executable, "-c", program, query],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_it_says_where_the_table_is_and_what_it_holds(places: Places, table: str) -> None:
    out = shown(places, table)
    found = json.loads(shown(places, table, "--json"))

    assert out.startswith(f"table      {table} (Iceberg, format version 2)\n")
    assert f"\nlocation   {found['location']}\n" in out
    assert f"\nmetadata   {found['metadata_location']}\n" in out
    assert "\nholds      3 rows, 2 partitions, 2 files, " in out
    assert (found["rows"], found["partitions"], found["data_files"]) == (3, 2, 2)
    assert isinstance(found["snapshot_id"], str)
    assert [name for name in found["read"] if f"\n{name}\n  " not in out] == []


def test_the_lines_of_each_reader_here_return_rows(places: Places, table: str) -> None:
    """Harm prevented: iceberg_scan of a directory, which finds no version hint."""
    lines = json.loads(shown(places, table, "--json"))["read"]

    assert result_of(lines["PyIceberg"]).num_rows == 3
    assert clickhouse_result(lines["ClickHouse"]) == "3"
    duckdb = find_duckdb()
    with duckdb.module.connect() as session:
        for extension in duckdb.extensions:
            session.execute(f"LOAD '{extension}'")
        query = lines["DuckDB"].splitlines()[1]
        assert session.execute(query).fetchone() == (3,)
    assert lines["Spark"].endswith(f'-- -e "SELECT count(*) FROM {table}"')


def test_polars_is_given_the_metadata_file(places: Places, table: str) -> None:
    """It is not installed here; `make readers` asks it for every type in the same way."""
    found = json.loads(shown(places, table, "--json"))

    assert f"pl.scan_iceberg({found['metadata_location']!r})" in found["read"]["Polars"]


@pytest.mark.parametrize(
    ("location", "function"),
    [
        ("file:///lake/a%20b", "icebergLocal('/lake/a b')"),
        ("s3://bucket/lake/t", "icebergS3('s3://bucket/lake/t', 'KEY', 'SECRET')"),
        ("s3a://bucket/t", "icebergS3('s3://bucket/t', 'KEY', 'SECRET')"),
    ],
)
def test_clickhouse_has_a_function_for_each_storage(location: str, function: str) -> None:
    assert _clickhouse(location) == function


def test_a_table_that_is_not_there_is_refused(places: Places) -> None:
    code, out, err = places.run("show", "lake.n.nowhere", "--warehouse", str(places.warehouse))

    assert (code, out) == (3, "")
    assert err.startswith("Cannot show lake.n.nowhere: the catalog lake has no such table.")
