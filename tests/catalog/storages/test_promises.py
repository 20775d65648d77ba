"""Every storage keeps the promises of `conformance.suites.storage`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.storages.local import LocalStorage
from catalog.storages.s3.storage import S3Storage
from conformance.suites.storage import Place, storage_promises
from tests.s3_places import access_to
from tests.services.minio import MinIO

_STORE: list[tuple[MinIO, str]] = []
_DIRECTORY: list[Path] = []


@pytest.fixture(autouse=True, scope="module")
def places(minio_server_of_session: MinIO) -> Iterator[None]:
    """Run an object store with a bucket, and make a directory."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-files-") as directory:
        _STORE.append((minio_server_of_session, minio_server_of_session.make_bucket()))
        _DIRECTORY.append(Path(directory))
        yield
    _STORE.clear()
    _DIRECTORY.clear()


def in_s3(name: str) -> Place:
    store, bucket = _STORE[0]
    return S3Storage(access_to(store)), f"s3://{bucket}/lake/{name}"


def in_files(name: str) -> Place:
    return LocalStorage(), f"file://{_DIRECTORY[0]}/{name}"


TestS3 = storage_promises(in_s3)
TestLocal = storage_promises(in_files)
