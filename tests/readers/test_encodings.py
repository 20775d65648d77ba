"""Which encodings of Parquet each reader reads is what is recorded, and the page shows it."""

from __future__ import annotations

import pytest

from catalog.iceberg.catalogs import open_catalog
from tests.readers import encodings, recorded
from tests.readers.each_engine import each_engine
from tests.readers.encodings import (
    ENCODINGS,
    VERSIONS,
    Encoded,
    OfEncodings,
    cell,
    make_encoded,
    read_encodings,
)
from tests.readers.engines import ENGINES, Engine, Reader
from tests.readers.parquet_pages import data_pages

RECORDED = encodings.load()
WRITTEN_BY_EXPORTS = ("PLAIN", "RLE_DICTIONARY")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Encoded, ...]:
    warehouse = tmp_path_factory.mktemp("encodings")
    return make_encoded(open_catalog("lake", warehouse=warehouse).catalog)


@each_engine()
@pytest.mark.timeout(900)
@pytest.mark.nightly
def test_a_reader_reads_the_encodings_that_the_page_names(
    tables: tuple[Encoded, ...], engine: Engine
) -> None:
    """Harm prevented: a writer is given an encoding that readers of the table do not know."""
    with Reader(engine) as reader:
        found = read_encodings(reader, tables)

    assert found == RECORDED[engine.name]


def test_every_page_has_the_encoding_and_version_that_it_is_named_after(
    tables: tuple[Encoded, ...],
) -> None:
    """Harm prevented: a reader is said to read what no file had."""
    assert len(tables) == len(ENCODINGS) * len(VERSIONS)
    for table in tables:
        encoding, _, version = table.name.partition(" ")
        for name in ENCODINGS[encoding]:
            pages = [page for page in data_pages(table.path) if page.column == name]
            kinds = {(page.encoding, f"{page.version}.0") for page in pages}
            assert kinds == {(encoding, version)}, (table.name, name)
            assert len(pages) > 1, (table.name, name)


def test_every_reader_of_files_is_recorded_with_its_version() -> None:
    """Harm prevented: a matrix of one release under the name of another."""
    versions = {name: of.version for name, of in recorded.load().items()}

    assert list(RECORDED) == [engine.name for engine in ENGINES if engine.of_files]
    assert {name: of.version for name, of in RECORDED.items()} == {
        name: versions[name] for name in RECORDED
    }


@pytest.mark.parametrize("encoding", WRITTEN_BY_EXPORTS)
def test_every_reader_reads_what_exports_write(encoding: str) -> None:
    assert {cell(of, encoding) for of in RECORDED.values()} == {"yes"}


def test_what_is_not_read_is_an_error_and_never_a_wrong_value() -> None:
    """Harm prevented: the page says that a reader refuses what it reads wrongly."""
    results = [
        result
        for of in RECORDED.values()
        for wrong in of.wrong.values()
        for result in wrong.values()
    ]

    assert results
    assert [result for result in results if "error" not in result] == []


def test_the_matrix_names_versions_and_columns_that_are_not_read() -> None:
    both = {"string": {"error": "unknown"}, "fixed": {"error": "unknown"}}
    of = OfEncodings(
        "1",
        {
            "DELTA_BYTE_ARRAY 1.0": both,
            "DELTA_BYTE_ARRAY 2.0": both,
            "DELTA_BINARY_PACKED 2.0": {"date": {"1": "1970-01-01"}},
            "BYTE_STREAM_SPLIT 1.0": {"int": {"error": "unknown"}},
            "BYTE_STREAM_SPLIT 2.0": {"int": {"error": "unknown"}},
        },
    )

    assert cell(of, "DELTA_BYTE_ARRAY") == "**no**"
    assert cell(of, "DELTA_BINARY_PACKED") == "v2: not date"
    assert cell(of, "BYTE_STREAM_SPLIT") == "not int"
    assert cell(of, "PLAIN") == "yes"
