"""Every storage keeps the promises of `conformance.suites.storage`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.storages.abfs.storage import AbfsStorage
from catalog.storages.gs.storage import GsStorage
from catalog.storages.hdfs.storage import HdfsStorage
from catalog.storages.local import LocalStorage
from catalog.storages.s3.storage import S3Storage
from conformance.suites.storage import Place, storage_promises
from tests.s3_places import access_to
from tests.services.azurite import Azurite
from tests.services.fake_gcs import FakeGcs
from tests.services.hdfs import Hdfs
from tests.services.minio import MinIO

_STORE: list[tuple[MinIO, str]] = []
_GS: list[tuple[FakeGcs, str]] = []
_ABFS: list[tuple[Azurite, str]] = []
_HDFS: list[tuple[Hdfs, str]] = []
_DIRECTORY: list[Path] = []


@pytest.fixture(autouse=True, scope="module")
def places(
    minio_server_of_session: MinIO,
    gs_server_of_session: FakeGcs,
    abfs_server_of_session: Azurite,
    hdfs_of_session: Hdfs,
) -> Iterator[None]:
    """Run stores, each with a place of its own for these, and make a directory."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-files-") as directory:
        _STORE.append((minio_server_of_session, minio_server_of_session.make_bucket()))
        _GS.append((gs_server_of_session, gs_server_of_session.make_bucket()))
        _ABFS.append((abfs_server_of_session, abfs_server_of_session.make_container()))
        _HDFS.append((hdfs_of_session, hdfs_of_session.make_directory()))
        _DIRECTORY.append(Path(directory))
        yield
    _STORE.clear()
    _GS.clear()
    _ABFS.clear()
    _HDFS.clear()
    _DIRECTORY.clear()


def in_s3(name: str) -> Place:
    store, bucket = _STORE[0]
    return S3Storage(access_to(store)), f"s3://{bucket}/lake/{name}"


def in_gs(name: str) -> Place:
    store, bucket = _GS[0]
    return GsStorage(store.access()), f"gs://{bucket}/lake/{name}"


def in_abfs(name: str) -> Place:
    store, container = _ABFS[0]
    return AbfsStorage(store.access()), f"{store.location(container)}/lake/{name}"


def in_hdfs(name: str) -> Place:
    store, directory = _HDFS[0]
    return HdfsStorage(store.access()), f"{directory}/{name}"


def in_files(name: str) -> Place:
    return LocalStorage(), f"file://{_DIRECTORY[0]}/{name}"


TestS3 = storage_promises(in_s3, copies=True)
TestGs = storage_promises(in_gs, begun_is_seen=False)
TestAbfs = storage_promises(in_abfs, begun_is_seen=False, refused=("back\\slash",))
TestHdfs = storage_promises(in_hdfs, begun_is_seen=False, refused=("a:b",), many=2 * Hdfs.lists + 3)
TestLocal = storage_promises(in_files, copies=True)
