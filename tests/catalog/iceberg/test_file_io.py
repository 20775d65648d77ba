"""PyIceberg's metadata goes through the same storage as data files in S3."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from catalog.iceberg.catalogs import OpenedCatalog
from catalog.network import TimeOuts
from catalog.storages.s3.access import S3Access
from catalog.storages.s3.storage import S3Storage
from tableformat.errors import DestinationError
from tableformat.names import LakeName
from tests.services.minio import MinIO
from tests.support.s3_places import access_to, properties_of

SCHEMA = Schema(NestedField(1, "n", LongType(), required=False))
NAME = LakeName("far", ("n",), "t")


class Lake:
    """A catalog in a file whose warehouse is a bucket of its own."""

    def __init__(self, store: MinIO, directory: Path) -> None:
        self.bucket = store.make_bucket()
        self.storage = S3Storage(access_to(store))
        properties = {
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": f"s3://{self.bucket}/wh",
            **properties_of(store),
        }
        self.opened = OpenedCatalog("far", None, properties, TimeOuts(retry_for=1))

    @property
    def catalog(self) -> Catalog:
        return self.opened.catalog

    @property
    def io(self) -> FileIO:
        self.make_table()
        found = self.opened.table(NAME)
        assert found is not None
        return found.loaded.io

    def make_table(self) -> None:
        self.catalog.create_namespace_if_not_exists("n")
        self.catalog.create_table_if_not_exists("n.t", SCHEMA)


@pytest.fixture
def lake(minio_server: MinIO, tmp_path: Path) -> Lake:
    return Lake(minio_server, tmp_path)


def test_an_object_appears_when_its_stream_is_closed_and_nothing_failed(lake: Lake) -> None:
    """Harm prevented: PyArrow publishes the bytes before an exception."""
    location = f"s3://{lake.bucket}/x.json"
    file = lake.io.new_output(location)

    def fail() -> None:
        with file.create() as stream:
            stream.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    forgotten = file.create()
    forgotten.write(b"half")
    del forgotten
    assert not file.exists()

    with file.create() as stream:
        stream.write(b"whole")
    assert file.to_input_file().open().read() == b"whole"
    assert len(file) == 5


def test_metadata_is_not_replaced_that_must_not_be(lake: Lake) -> None:
    location = f"s3://{lake.bucket}/x.json"
    lake.storage.put(location, b"theirs")
    stream = lake.io.new_output(location).create(overwrite=False)
    stream.write(b"mine")

    with pytest.raises(FileExistsError):
        stream.close()

    assert lake.storage.read(location) == b"theirs"
    with lake.io.new_output(location).create(overwrite=True) as other:
        other.write(b"mine")
    assert lake.storage.read(location) == b"mine"


def test_no_table_property_changes_the_storage(lake: Lake) -> None:
    """Harm prevented: a user who may change a table's properties redirects its rows."""
    lake.catalog.create_namespace("n")
    made = lake.catalog.create_table("n.t", SCHEMA, properties={"s3.region": "elsewhere"})

    def region(location: str) -> str | None:
        access = lake.opened.storages.access(location)
        return access.region if isinstance(access, S3Access) else None

    assert lake.opened.table(NAME) is not None
    assert region(f"{made.location()}/data/f") == "us-east-1"


def test_files_of_this_host_are_written_read_and_removed(lake: Lake, tmp_path: Path) -> None:
    location = f"file://{tmp_path}/x"
    with lake.io.new_output(location).create() as stream:
        stream.write(b"x")

    assert lake.io.new_input(location).open().read() == b"x"
    lake.io.delete(location)
    assert not (tmp_path / "x").exists()


def test_a_failed_deletion_is_the_error_that_pyiceberg_expects(lake: Lake) -> None:
    with pytest.raises(OSError, match="Cannot delete s3://not-there/x: NoSuchBucket"):
        lake.io.delete("s3://not-there/x")


def test_the_storage_says_itself_why_a_table_cannot_be_loaded(
    lake: Lake, minio_server: MinIO
) -> None:
    lake.make_table()
    minio_server.kill()

    with pytest.raises(DestinationError) as caught:
        lake.opened.table(NAME)

    assert caught.value.message.startswith(f"Cannot read s3://{lake.bucket}/wh/n/t/metadata/")
    assert "did not recover within 1 s" in caught.value.message


def test_pyiceberg_appends_and_reads_rows_through_it(lake: Lake) -> None:
    """Harm prevented: our catalog can read a table and not write it."""
    lake.make_table()
    table = lake.catalog.load_table("n.t")

    table.append(pa.table({"n": [1, 2, 3]}))

    assert lake.catalog.load_table("n.t").scan().to_arrow()["n"].to_pylist() == [1, 2, 3]
