"""Names are read as ClickHouse reads them, and what is printed can be read again."""

from __future__ import annotations

import posixpath
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.errors import RefusedError, UsageError
from tableformat.names import (
    HiveName,
    LakeName,
    PartitionId,
    PartName,
    TableName,
    TransactionId,
    check_new_table,
    new_transaction_id,
    shown_location,
    split_identifiers,
)

_PART = st.text(min_size=1, max_size=12)


@given(database=_PART, name=_PART)
def test_any_clickhouse_table_name_survives_being_printed(database: str, name: str) -> None:
    """Harm prevented: the command that a message tells to run next names another table."""
    table = TableName(database, name)

    assert TableName.parse(str(table)) == table
    assert TableName.parse(table.sql) == table


@given(parts=st.lists(_PART, min_size=3, max_size=5))
def test_any_lake_name_survives_being_printed(parts: list[str]) -> None:
    """Harm prevented: an export into a namespace of another name."""
    name = LakeName(parts[0], tuple(parts[1:-1]), parts[-1])

    assert LakeName.parse(str(name)) == name


_LED_AWAY = (
    "",
    ".",
    "..",
    "/",
    "a/b",
    "../x",
    "a\\b",
    "a\0b",
    "a?b",
    "a#b",
    "\n",
    "\x7f",
    "\ud800",
)


@pytest.mark.parametrize("part", _LED_AWAY)
def test_no_table_is_made_whose_name_leads_to_another_place(part: str) -> None:
    """Harm prevented: the files of a table lie outside of the warehouse, or in another table."""
    for name in (LakeName("lake", ("n",), part), LakeName("lake", ("n", part), "t")):
        with pytest.raises(RefusedError, match="files would be outside the table's location"):
            check_new_table(name)


@given(name=_PART)
def test_a_name_that_is_no_path_names_a_directory(name: str) -> None:
    try:
        check_new_table(LakeName("lake", ("n",), name))
    except RefusedError:
        return
    path = urlsplit(f"file:///wh/n/{name}").path

    assert posixpath.normpath(path) == path == f"/wh/n/{name}"


def test_trees_and_usual_names_are_made() -> None:
    check_new_table(HiveName.at("/data/a?b"))
    check_new_table(LakeName("lake", ("a b", "ä", "x.y"), "t%20 -:*..u"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("db.t", ("db", "t")),
        ("t", ("t",)),
        ("`my db`.`t.1`", ("my db", "t.1")),
        ('"d""b".t', ('d"b', "t")),
        (r"`a\`b\nc`", ("a`b\nc",)),
        ("`a``b`", ("a`b",)),
        ("таблица.t-1", ("таблица", "t-1")),
    ],
)
def test_names_are_split_as_clickhouse_does(text: str, parts: tuple[str, ...]) -> None:
    """Harm prevented: a quoted dot is taken for a separator."""
    assert split_identifiers(text) == parts


@pytest.mark.parametrize(
    "text", ["", ".", "db.", ".t", "db..t", "`db.t", "``", "d b.t", "db.t;", "db.t(1)", "'db'.t"]
)
def test_malformed_names_are_refused_with_their_text(text: str) -> None:
    """Harm prevented: a typing error becomes the name of a new table."""
    with pytest.raises(UsageError, match="Cannot read the name") as caught:
        split_identifiers(text)

    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["a.b.c", "a.b.c.d"])
def test_a_clickhouse_table_has_at_most_two_parts(text: str) -> None:
    """Harm prevented: a lake name is taken for a source."""
    with pytest.raises(UsageError, match=r"Write database\.table"):
        TableName.parse(text)


@pytest.mark.parametrize("text", ["t", "db.t"])
def test_a_destination_has_at_least_three_parts(text: str) -> None:
    """Harm prevented: a ClickHouse table is taken for a destination."""
    with pytest.raises(UsageError, match=r"catalog\.namespace\.table"):
        LakeName.parse(text)


@pytest.mark.parametrize("uri", ["/a/tree", "file:///a b/tree", "s3://b/t.r.e", "relative"])
def test_a_tree_is_named_by_its_uri_without_a_slash_at_the_end(uri: str) -> None:
    """Harm prevented: one tree has two names, or is taken for a table of a catalog."""
    name = LakeName.parse(f"hive:{uri}/")

    assert isinstance(name, HiveName)
    assert (name.uri, str(name)) == (uri, f"hive:{uri}")
    assert LakeName.parse(str(name)) == name != LakeName("hive", (), uri)


@pytest.mark.parametrize("text", ["hive:", "hive:///"])
def test_a_tree_has_a_uri(text: str) -> None:
    with pytest.raises(UsageError, match="names no directory"):
        LakeName.parse(text)


@pytest.mark.parametrize("text", ["", "2024 01", "a/b", "'x'", "ü", "x" * 600])
def test_malformed_partition_ids_are_refused(text: str) -> None:
    """Harm prevented: a partition id reaches SQL or a path unchecked."""
    with pytest.raises(UsageError, match="as a partition id"):
        PartitionId(text)


@given(
    partition=st.from_regex(r"[A-Za-z0-9-]{1,20}", fullmatch=True),
    low=st.integers(0, 10**9),
    high=st.integers(0, 10**9),
    level=st.integers(0, 99),
    mutation=st.none() | st.integers(0, 10**9),
)
def test_part_names_survive_being_printed(
    partition: str, low: int, high: int, level: int, mutation: int | None
) -> None:
    """Harm prevented: a mutation is taken for a level."""
    name = PartName(PartitionId(partition), low, high, level, mutation)

    assert PartName.parse(str(name)) == name


@given(now=st.integers(0, 2**41 - 1), machine=st.integers(0, 1023), sequence=st.integers(0, 4095))
def test_a_transaction_id_is_a_snowflake(now: int, machine: int, sequence: int) -> None:
    """Harm prevented: two transactions of different moments, machines or numbers are one."""
    made = new_transaction_id(now, machine, sequence)
    value = int(made.value)

    assert (value >> 22, value >> 12 & 1023, value & 4095) == (now, machine, sequence)
    assert value < 2**63
    assert made.milliseconds == now


def test_a_transaction_id_is_a_number() -> None:
    """Harm prevented: something else stands in file names."""
    with pytest.raises(UsageError, match="as a transaction id"):
        TransactionId("../../x")


HIDDEN = "pa55-w0rd-of-mine"


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        (f"s3://k:{HIDDEN}@bucket/x", "s3://k@bucket/x"),
        (f"hive:s3://k:a/{HIDDEN}@bucket/x", "hive:s3://k@bucket/x"),
        (f"s3://k:a?{HIDDEN}@bucket/x", "s3://k@bucket/x"),
        (f"s3://k:{HIDDEN}/x", "s3://k"),
        (f"file://u:{HIDDEN}@h/x", "file://u@h/x"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
        ("abfss://container@account.dfs.core.windows.net/x:y@z", None),
        ("hdfs://nn1:8020,nn2:8020/a@b", None),
        ("hdfs://user@nn1:8020/a@b", None),
        ("hdfs://[::1]:8020/a@b", None),
        ("file:///a:b@c", None),
        ("/a:b@c", None),
        (
            f"abfss://c@a.dfs.core.windows.net/x?sv=1&sig={HIDDEN}",
            "abfss://c@a.dfs.core.windows.net/x",
        ),
        (f"hive:s3://b/x?X-Amz-Signature={HIDDEN}", "hive:s3://b/x"),
        (f"s3://k:{HIDDEN}@b/x?token={HIDDEN}#y", "s3://k@b/x"),
        (f"gs://b/x#sig={HIDDEN}", "gs://b/x"),
        ("s3://b/x?design=1", None),
        ("file:///x?key=1", None),
        ("/x?key=1", None),
        ("lake.n.`s3://a:b@c`", None),
        ("parts:/a:b@c?ddl=s3://x:y@z", None),
    ],
)
def test_a_location_is_shown_without_its_login(location: str, shown: str | None) -> None:
    """Harm prevented: a secret in a message, or the path of another directory."""
    assert shown_location(location) == (shown or location)


@given(st.text(max_size=20), st.text(st.characters(exclude_characters="@"), max_size=20))
def test_no_password_of_a_location_is_shown(before: str, after: str) -> None:
    assert HIDDEN not in shown_location(f"s3://k:{before.strip('0123456789')}{HIDDEN}@b/{after}")


def test_the_name_of_a_tree_has_no_login() -> None:
    """A login in it would be in the ledger and in every message about the tree."""
    for refused, why in (
        (f"s3://k:{HIDDEN}@bucket/x", "a login"),
        (f"file://u:{HIDDEN}@h/x", "a login"),
        (f"abfss://c@a.dfs.core.windows.net/x?sig={HIDDEN}", "a secret in the options"),
    ):
        with pytest.raises(UsageError, match=f"it has {why}") as error:
            LakeName.parse(f"hive:{refused}")
        assert HIDDEN not in str(error.value)
