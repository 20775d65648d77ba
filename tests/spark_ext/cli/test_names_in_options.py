"""Names in options are read as all names are: in backticks or double quotes, or bare."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_ext.cli.option_values import conversions, pairs
from spark_ext.sql.messages import in_call
from tableformat.errors import UsageError
from tableformat.messages import convert
from tableformat.names import (
    LakeName,
    TableName,
    option_name,
    quote_identifier,
    quote_string,
    written_name,
)
from tests.wrong.places import Places

_NAME = st.text(min_size=1, max_size=12)


@given(name=_NAME, quote=st.sampled_from([quote_identifier, option_name]))
def test_any_column_can_be_named(name: str, quote: object) -> None:
    """Harm prevented: a column with = in its name cannot be exported at all."""
    assert callable(quote)

    assert conversions((f"{quote(name)}=binary",)) == {name: "binary"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=binary", ("a", "binary")),
        ("`a=b`=binary", ("a=b", "binary")),
        ('"a=b"=binary', ("a=b", "binary")),
        ("`a``b`=x=y", ("a`b", "x=y")),
        ("n.a=binary", ("n.a", "binary")),
        ("my col=decimal(38,2)", ("my col", "decimal(38,2)")),
        ("`a", None),
        ("`a`", None),
        ("`a`x=y", None),
        ("`a`=", None),
        ("=y", None),
        ("a", None),
    ],
)
def test_a_name_ends_where_its_quotes_do(text: str, found: tuple[str, str] | None) -> None:
    if found is None:
        with pytest.raises(UsageError, match="it is not NAME=VALUE"):
            pairs("--convert", (text,))
    else:
        assert pairs("--hive-column", (text,)) == dict([found])


@given(name=_NAME)
@example(name="--older-than")
@example(name="`--all`")
def test_advice_in_sql_names_the_column_as_it_is(name: str) -> None:
    advice = in_call(f"export the bytes with {convert(option_name(name), 'binary')}")

    plain = not any(c.isspace() or c in "=`" for c in name)
    if plain or option_name(name) != name:
        assert advice == f"export the bytes with `convert => map({quote_string(name)}, 'binary')`"


@given(database=_NAME, name=_NAME)
def test_a_table_is_found_however_it_is_quoted(database: str, name: str) -> None:
    table = TableName(database, name)
    quoted = f"{quote_identifier(database)}.{quote_identifier(name)}"

    assert written_name(quoted) == written_name(str(table)) == str(table)
    lake = LakeName("lake", (database,), name)
    assert written_name(str(lake)) == str(lake)


def test_exports_are_shown_of_a_table_in_quotes(places: Places) -> None:
    places.clickhouse_run(
        "CREATE DATABASE `my-db`",
        "CREATE TABLE `my-db`.t (id Int64, `a=b` String) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO `my-db`.t VALUES (1, unhex('ff'))",
    )
    places.reads_parts = True
    words = ("export", '"my-db".t', "--all", "--to")
    refused = places.run(*words, "lake.n.quoted")
    (done,) = places.outcomes(*words, "lake.n.bytes_quoted", "--convert", "`a=b`=binary")

    assert "--convert '`a=b`=binary'" in refused[2] + refused[1]
    assert done["status"] == "committed"
    for name in ('"my-db".t', "`my-db`.t"):
        assert places.run("exports", "show", "all", "--table", name)[0] == 0
        assert places.outcomes("exports", "log", "--table", name)
    assert places.run("exports", "show", "all", "--table", "my_db.t")[0] == 3
