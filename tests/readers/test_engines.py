"""A reader's process: it is asked again after it died, and its output is reported."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.readers.engines import Engine, Matches, Reader
from tests.readers.parquet_pages import chunks, data_pages

NOWHERE = "file:///nowhere/metadata/x.metadata.json"


def test_a_reader_that_dies_says_so_and_is_asked_again() -> None:
    """Harm prevented: garbage that ends one reader ends all tests, or hides their results."""
    with Reader(Engine("gone", "nothing_of_that_name", "nothing")) as reader:
        results = [reader.read(NOWHERE, ["id"]) for _ in range(2)]

    for result in results:
        assert "the process ended with 1" in result.error
        assert "nothing_of_that_name" in result.error


def test_an_error_of_a_reader_is_its_result() -> None:
    with Reader(Engine("DuckDB", "duckdb", "nothing")) as reader:
        result = reader.read(NOWHERE, ["id"])
        (found,) = reader.matching(NOWHERE, [["null", "id"]])

    assert result.error.startswith("FileNotFoundError")
    assert found == Matches(error=result.error)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 500),
    group=st.integers(1, 500),
    page=st.integers(1, 100),
    dictionary=st.booleans(),
    version=st.sampled_from(["1.0", "2.0"]),
)
def test_pages_are_found_where_they_are(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    group: int,
    page: int,
    dictionary: bool,  # noqa: FBT001  Hypothesis hands it over by name
    version: str,
) -> None:
    """Harm prevented: poison misses the bytes that it is meant for, and proves nothing."""
    path = Path(tmp_path_factory.mktemp("pages")) / "file.parquet"
    table = pa.table({"n": list(range(rows)), "s": [str(i % 7) for i in range(rows)]})
    pq.write_table(
        table,
        path,
        row_group_size=group,
        max_rows_per_page=page,
        use_dictionary=dictionary,
        data_page_version=version,
        write_page_checksum=True,
    )

    found = list(data_pages(path))

    assert all(0 < span.rows <= page for span in found)
    for chunk in chunks(path):
        inside = [s for s in found if (s.group, s.column) == (chunk.group, chunk.column)]
        assert sum(span.rows for span in inside) == chunk.rows
        assert inside[-1].end == chunk.end
        assert all(chunk.start <= span.start < span.end <= chunk.end for span in inside)
