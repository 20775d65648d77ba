"""Data files are digested as they are: by field id, NULLs included, by two readers that agree.

docs/spec/digest.md. Files are written as an export writes them; ClickHouse and pyarrow are real.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from catalog.clickhouse.capabilities import probe_capabilities
from catalog.clickhouse.connection import ClickHouseError
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.rows.digests import FileDigests, digest_partitions
from catalog.rewriting import second_reader
from tableformat.digest import Digest
from tableformat.errors import DestinationError, UnsupportedError
from tableformat.iceberg.read_columns import FilesToDigest
from tableformat.mergetree.digest_sql import (
    DigestColumn,
    digest_type,
    empty_digest,
    source_columns,
)
from tableformat.mergetree.types import parse_type, render_type
from tableformat.names import PartitionId, TableName
from tests.strategies.mapping import Sample, column_of, samples
from tests.support.digested_files import ALLOWED, SAMPLE_ROWS, digested, in_main
from tests.support.embedded_clickhouse import EmbeddedClickHouse

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[EmbeddedClickHouse]:
    with EmbeddedClickHouse() as started:
        started.run(*(f"SET {name} = 1" for name in ALLOWED))
        yield started


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedConnection]:
    with EmbeddedConnection(tmp_path_factory.mktemp("clickhouse"), create=True) as opened:
        for name in ALLOWED:
            opened.command(f"SET {name} = 1")
        yield opened


@pytest.fixture(scope="module")
def digests() -> Iterator[FileDigests]:
    with FileDigests() as opened:
        yield opened


@settings(max_examples=25)
@given(columns=st.lists(samples(rows=SAMPLE_ROWS), min_size=1, max_size=4), cuts=st.integers(1, 3))
def test_files_of_any_types_have_the_digest_of_the_values_that_were_exported(
    clickhouse: EmbeddedClickHouse,
    connection: EmbeddedConnection,
    digests: FileDigests,
    tmp_path_factory: pytest.TempPathFactory,
    columns: list[Sample],
    cuts: int,
) -> None:
    """Harm prevented: a value that one side hashes otherwise, so that a good table is wrong."""
    directory = tmp_path_factory.mktemp("files")
    files, expected = digested(clickhouse, connection, columns, cuts, directory)

    assert expected.differences(digests.digest(files)) == ()


def wanted(**types: str) -> tuple[DigestColumn, ...]:
    return tuple(
        DigestColumn(name, "", parse_type(of), render_type(digest_type(parse_type(of))))
        for name, of in types.items()
    )


def field(name: str, of: pa.DataType, number: int | None) -> pa.Field:
    metadata = {} if number is None else {"PARQUET:field_id": str(number)}
    return pa.field(name, of, metadata=metadata)


def file(path: Path, *columns: tuple[pa.Field, list[Any]]) -> str:
    """Write a file; return its location."""
    arrays = [pa.array(values, of.type) for of, values in columns]
    name = path / f"{next(NUMBERS)}.parquet"
    pq.write_table(pa.table(arrays, pa.schema([of for of, _ in columns])), name)
    return f"file://{name}"


STRUCT = StructType(
    NestedField(3, "x", IntegerType(), required=False),
    NestedField(4, "y", StringType(), required=False),
)
SCHEMA = Schema(
    NestedField(1, "n", LongType(), required=True),
    NestedField(2, "t", STRUCT, required=True),
    NestedField(5, "l", ListType(6, StringType(), element_required=True), required=True),
)
ALL = wanted(l="Array(String)", n="Int64", t="Tuple(x Nullable(Int32), y Nullable(String))")


def digest_of(digests: FileDigests, *locations: str) -> Digest:
    return digests.digest(FilesToDigest(tuple(map(in_main, locations)), SCHEMA, ALL))


def test_columns_and_members_are_found_by_their_ids(digests: FileDigests, tmp_path: Path) -> None:
    """Harm prevented: a renamed or reordered member is taken for another one of the same type."""
    struct = pa.struct([field("x", pa.int32(), 3), field("y", pa.string(), 4)])
    other = pa.struct([field("b", pa.string(), 4), field("more", pa.int8(), 9),
                       field("a", pa.int32(), 3)])  # fmt: skip
    strings = pa.list_(field("element", pa.string(), 6))
    one = file(
        tmp_path,
        (field("n", pa.int64(), 1), [1, 2]),
        (field("t", struct, 2), [{"x": 1, "y": "a"}, {"x": None, "y": None}]),
        (field("l", strings, 5), [["a", "b"], []]),
    )
    renamed = file(
        tmp_path,
        (field("list", pa.list_(field("item", pa.string(), 6)), 5), [["a", "b"], []]),
        (field("n", pa.string(), 8), ["not", "this"]),
        (field("m", pa.int32(), 1), [1, 2]),
        (
            field("s", other, 2),
            [{"b": "a", "more": 1, "a": 1}, {"b": None, "more": 1, "a": None}],
        ),
    )

    assert digest_of(digests, one) == digest_of(digests, renamed)


def test_a_digest_of_many_columns_is_put_together_of_several_queries(
    connection: EmbeddedConnection,
    digests: FileDigests,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is that of one query, which would take minutes for thousands of columns."""
    connection.command(
        "CREATE TABLE default.many (n Int64, l Array(String), s Nullable(String), u UInt64)"
        " ENGINE = MergeTree PARTITION BY n % 2 ORDER BY n"
    )
    connection.command(
        "INSERT INTO default.many SELECT number, [toString(number)], if(number % 3 = 0, NULL, 'x'),"
        " number FROM numbers(20)"
    )
    table = TableName("default", "many")
    ids = (PartitionId("0"), PartitionId("1"), PartitionId("7"))
    columns = source_columns(
        tuple(
            column_of(name, parse_type(of))
            for name, of in (
                ("n", "Int64"), ("l", "Array(String)"), ("s", "Nullable(String)"), ("u", "UInt64"),
            )
        ),
        {},
    )  # fmt: skip
    capabilities = probe_capabilities(connection)
    strings = pa.list_(field("element", pa.string(), 6))
    struct = pa.struct([field("x", pa.int32(), 3), field("y", pa.string(), 4)])
    written = file(
        tmp_path,
        (field("n", pa.int64(), 1), [1, 2]),
        (field("t", struct, 2), [{"x": 1, "y": "a"}, {"x": None, "y": None}]),
        (field("l", strings, 5), [["a", "b"], []]),
    )

    def found() -> tuple[dict[str, Digest], Digest]:
        of_table = digest_partitions(connection, capabilities, table, ids, columns)
        return of_table, digest_of(digests, written)

    at_once = found()
    monkeypatch.setattr("catalog.clickhouse.rows.digests._OF_A_QUERY", 1)

    assert found() == at_once
    assert [at_once[0][one].rows for one in ("0", "1", "7")] == [10, 10, 0]


def test_what_a_file_does_not_have_is_null(digests: FileDigests, tmp_path: Path) -> None:
    less = pa.struct([field("x", pa.int32(), 3)])
    older = file(tmp_path, (field("n", pa.int64(), 1), [1]), (field("t", less, 2), [{"x": 5}]))

    found = {c.name: c.nulls for c in digest_of(digests, older).columns}

    assert found == {"l": 1, "n": 0, "t": 1}


def test_no_files_are_no_rows(digests: FileDigests) -> None:
    assert digest_of(digests) == empty_digest(ALL)


def test_an_empty_file_has_no_rows(digests: FileDigests, tmp_path: Path) -> None:
    empty = file(tmp_path, (field("n", pa.int64(), 1), []))

    assert digest_of(digests, empty) == empty_digest(ALL)


def test_a_file_without_field_ids_is_refused(digests: FileDigests, tmp_path: Path) -> None:
    foreign = file(tmp_path, (field("n", pa.int64(), None), [1]))

    with pytest.raises(DestinationError, match="it has none, so that another program wrote it"):
        digest_of(digests, foreign)


def test_two_readers_that_do_not_agree_are_never_silent(
    digests: FileDigests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a reader's mistake is taken for the content of the file."""
    location = file(tmp_path, (field("n", pa.int64(), 1), [1, 2, 3]))
    real = second_reader._total

    monkeypatch.setattr(second_reader, "_total", lambda values, of: real(values, of) + 1)

    with pytest.raises(
        DestinationError, match=r"sum of column n: 6 by ClickHouse, 7 by pyarrow.*Report it"
    ):
        digest_of(digests, location)


def test_each_row_is_reported_once_when_both_readers_have_read_it(tmp_path: Path) -> None:
    """Harm prevented: a comparison of hours that says nothing, or that stands still at 100 %."""
    rows = 40_000
    location = file(tmp_path, (field("n", pa.int64(), 1), list(range(rows))))
    reported: list[int] = []

    with FileDigests(on_rows=reported.append) as digests:
        digest_of(digests, location, location)
        assert digests.seconds > 0

    half = len(reported) // 2
    assert sum(reported) == 2 * rows
    assert sum(reported[: half - 1]) == rows // 2, "the second reader, batch by batch"
    assert all(more > 0 for more in reported)


def test_a_file_that_one_reader_cannot_read_stops_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a command that goes on for minutes after its verdict is known."""
    location = file(tmp_path, (field("n", pa.int64(), 1), list(range(100))))
    begun, ended = threading.Event(), threading.Event()

    def endless(
        _path: Path, _columns: object, on_rows: Callable[[int], None] = lambda _: None
    ) -> None:
        begun.set()
        try:
            while True:
                on_rows(1)
        finally:
            ended.set()

    def refuse(*_: object) -> None:
        begun.wait()
        message = "Code: 117. DB::Exception: no such codec"
        raise ClickHouseError(message)

    monkeypatch.setattr("catalog.clickhouse.rows.digests.tally_file", endless)
    monkeypatch.setattr(FileDigests, "_file_digest", refuse)
    with (
        FileDigests() as digests,
        pytest.raises(DestinationError, match="the file cannot be read: no such codec"),
    ):
        digest_of(digests, location)

    assert ended.is_set()


def test_a_missing_file_is_named(digests: FileDigests, tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match=r"Cannot verify .*gone.parquet: the file cannot be"):
        digest_of(digests, f"{tmp_path}/gone.parquet")


def test_a_file_that_no_storage_serves_is_refused(digests: FileDigests) -> None:
    with pytest.raises(UnsupportedError, match=r"Cannot use oss://b/x.parquet: storage of the"):
        digest_of(digests, "oss://b/x.parquet")
