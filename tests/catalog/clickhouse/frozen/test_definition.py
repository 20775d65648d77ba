"""The statement that made a table, as people have it in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.frozen.definition import Definition, read_definition, unescaped
from tableformat.errors import NotFoundError, UnsupportedError, UsageError
from tableformat.mergetree.table import Engine
from tableformat.names import TableName
from tests.support.clickhouse_source import Clickhouse

_TAIL = "ENGINE = MergeTree ORDER BY k"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "t.sql"


def printed(text: str) -> str:
    """Return a text as the client prints it, tab-separated."""
    for character, escape in (
        *(("\\", "\\\\"), ("\n", "\\n"), ("\t", "\\t"), ("'", "\\'")),
        *(("\b", "\\b"), ("\f", "\\f"), ("\r", "\\r"), ("\0", "\\0")),
    ):
        text = text.replace(character, escape)
    return text


def read(reader: EmbeddedConnection, file: Path, text: str) -> Definition:
    file.write_text(text)
    return read_definition(reader, file)


@pytest.mark.parametrize(
    ("head", "database", "name", "uuid"),
    [
        ("CREATE TABLE db.t", "db", "t", ""),
        ("create table if not exists db.t on cluster 'c'", "db", "t", ""),
        ("CREATE TABLE `my db`.`a.b``c`", "my db", "a.b`c", ""),
        ("ATTACH TABLE t", "", "t", ""),
        (
            "ATTACH TABLE _ UUID '65439ec1-e3f9-4a45-b3f8-9faefb74e1bc'",
            "", "", "65439ec1-e3f9-4a45-b3f8-9faefb74e1bc",
        ),
        ("CREATE TABLE db.t UUID '00000000-0000-0000-0000-000000000000'", "db", "t", ""),
    ],
)  # fmt: skip
def test_names_are_read_from_every_head(
    reader: EmbeddedConnection, file: Path, head: str, database: str, name: str, uuid: str
) -> None:
    """SHOW CREATE TABLE, metadata files of both kinds of databases, and manual input."""
    found = read(reader, file, f"{head} (k UInt64) {_TAIL};\n")

    assert (found.database, found.name, found.uuid) == (database, name, uuid)


def test_the_clauses_of_the_engine_are_read(reader: EmbeddedConnection, file: Path) -> None:
    text = (
        "CREATE TABLE db.t (k UInt64, `the \\` key` String CODEC(ZSTD(1)) TTL d + toIntervalDay(1),"
        " d Date DEFAULT '2024-01-01', INDEX i k TYPE minmax) ENGINE ="
        " ReplicatedReplacingMergeTree('/x/{shard}/t', '{replica}', k) PARTITION BY toYYYYMM(d)"
        " ORDER BY (k, d) TTL d + toIntervalDay(7) SETTINGS index_granularity = 100"
        " COMMENT 'it''s a COMMENT'"
    )

    found = read(reader, file, text)

    assert found.engine == Engine(
        "ReplicatedReplacingMergeTree",
        "'/x/{shard}/t', '{replica}', k",
        "toYYYYMM(d)",
        "",
        "(k, d)",
        "",
        "d + toIntervalDay(7)",
        (("index_granularity", "100"),),
    )
    assert found.columns.startswith("`k` UInt64, `the \\` key` String CODEC(ZSTD(1)) TTL")
    assert found.columns.endswith("INDEX i k TYPE minmax GRANULARITY 1")


def test_what_the_client_prints_with_escapes_is_read(
    clickhouse: Clickhouse, reader: EmbeddedConnection, file: Path
) -> None:
    r"""`clickhouse-client -q "SHOW CREATE TABLE t" > t.sql` writes \n and \' into the file."""
    table = clickhouse.table(
        r"ENGINE = MergeTree PARTITION BY p ORDER BY k COMMENT 'it''s \\ a\nline'",
        r"p UInt8, k UInt64, s String DEFAULT 'it''s\t\\'",
    )
    ((shown,),) = clickhouse.rows(f"SHOW CREATE TABLE {table.sql}")
    plain = read(reader, file, str(shown))

    assert read(reader, file, printed(str(shown)) + "\n") == plain
    assert plain.name == table.name


@given(st.text())
def test_the_escapes_of_any_text_are_taken_away(text: str) -> None:
    assert unescaped(printed(text)) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", r"it is empty\. Give the output of SHOW CREATE TABLE"),
        ("CREATE TABLE t (k UInt64", "Syntax error"),
        ("SELECT 1", "found 'SELECT' at position 1 where CREATE or ATTACH is expected"),
        ("CREATE VIEW v AS SELECT 1", "found 'VIEW' at position 8 where TABLE is expected"),
        (f"CREATE TABLE t AS other {_TAIL}", r"where '\(' is expected"),
        (f"CREATE TABLE t (k UInt64) {_TAIL}; DROP TABLE t", "Syntax error"),
        ("x" * ((1 << 20) + 1), "it is larger than 1 MiB"),
    ],
)
def test_another_text_is_refused(
    reader: EmbeddedConnection, file: Path, text: str, why: str
) -> None:
    with pytest.raises(UsageError, match=rf"(?s)Cannot read the statement in .*{why}"):
        read(reader, file, text)


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ("Memory", "its engine is Memory"),
        ("Distributed('c', 'db', 't')", "its engine is Distributed"),
        ("MergeTree(d, (k, d), 8192)", r"MergeTree\(d, \(k, d\), 8192\) has no ORDER BY"),
    ],
)
def test_a_table_without_parts_that_open_is_refused(
    reader: EmbeddedConnection, file: Path, engine: str, why: str
) -> None:
    with pytest.raises(UnsupportedError, match=why):
        read(reader, file, f"CREATE TABLE db.t (k UInt64, d Date) ENGINE = {engine}")


def test_a_file_that_is_not_there_is_refused(reader: EmbeddedConnection, file: Path) -> None:
    with pytest.raises(NotFoundError, match=r"there is no such file. Write the output of SHOW"):
        read_definition(reader, file)


def test_a_file_of_other_bytes_is_refused(reader: EmbeddedConnection, file: Path) -> None:
    file.write_bytes(b"\xff\xfe")

    with pytest.raises(UsageError, match="can't decode byte 0xff"):
        read_definition(reader, file)


@pytest.mark.parametrize(("database", "name"), [("db", "t"), ("", "t"), ("db", ""), ("", "")])
def test_a_statement_is_that_of_a_table_unless_it_says_another(
    file: Path, database: str, name: str
) -> None:
    definition = Definition(database, name, "", "", Engine("MergeTree"))

    definition.check_name(TableName("db", "t"), file)
    for other in (TableName("db", "u"), TableName("other", "t")):
        if (name and other.name != name) or (database and other.database != database):
            with pytest.raises(NotFoundError, match=r"is that of (db|other)\.t|is that of db\.u"):
                definition.check_name(other, file)


def test_a_file_that_is_no_statement_is_not_read_to_its_end(
    reader: EmbeddedConnection, file: Path
) -> None:
    """Harm prevented: a data file that is named by mistake exhausts the memory."""
    with file.open("wb") as opened:
        opened.truncate(1 << 40)

    with pytest.raises(UsageError, match=r"it is larger than 1 MiB"):
        read_definition(reader, file)
