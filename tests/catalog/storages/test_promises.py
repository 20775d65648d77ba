"""Every storage keeps the promises of `conformance.suites.storage`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.storages.abfs.store import AbfsStorage
from catalog.storages.gs.store import GsStorage
from catalog.storages.hdfs.store import HdfsStorage
from catalog.storages.local import LocalStorage
from catalog.storages.s3.storage import S3Storage
from conformance.suites.storage import Place, storage_promises
from tests.services.azurite import Azurite
from tests.services.fake_gcs import FakeGcs
from tests.services.hdfs import Hdfs
from tests.services.minio import MinIO
from tests.services.s3_server import S3Server
from tests.support.s3_places import access_to

_MINIO: list[tuple[S3Server, str]] = []
_S3: list[tuple[S3Server, str]] = []
_GS: list[tuple[FakeGcs, str]] = []
_ABFS: list[tuple[Azurite, str]] = []
_HDFS: list[tuple[Hdfs, str]] = []
_DIRECTORY: list[Path] = []


# Each kind runs its own server alone, so that those run that need nothing compiled.


@pytest.fixture(scope="module")
def minio_place(minio_server_of_session: MinIO) -> Iterator[None]:
    """Make a bucket of a MinIO for these tests."""
    _MINIO.append((minio_server_of_session, minio_server_of_session.make_bucket()))
    yield
    _MINIO.clear()


@pytest.fixture(scope="module")
def s3_place(s3_server_of_session: S3Server) -> Iterator[None]:
    """Make a bucket of the S3 server that nothing is compiled for."""
    _S3.append((s3_server_of_session, s3_server_of_session.make_bucket()))
    yield
    _S3.clear()


@pytest.fixture(scope="module")
def gs_place(gs_server_of_session: FakeGcs) -> Iterator[None]:
    """Make a bucket of Google Cloud Storage."""
    _GS.append((gs_server_of_session, gs_server_of_session.make_bucket()))
    yield
    _GS.clear()


@pytest.fixture(scope="module")
def abfs_place(abfs_server_of_session: Azurite) -> Iterator[None]:
    """Make a container of Azure."""
    _ABFS.append((abfs_server_of_session, abfs_server_of_session.make_container()))
    yield
    _ABFS.clear()


@pytest.fixture(scope="module")
def hdfs_place(hdfs_of_session: Hdfs) -> Iterator[None]:
    """Make a directory of Hadoop's."""
    _HDFS.append((hdfs_of_session, hdfs_of_session.make_directory()))
    yield
    _HDFS.clear()


@pytest.fixture(scope="module")
def local_place() -> Iterator[None]:
    """Make a directory of this machine."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-files-") as directory:
        _DIRECTORY.append(Path(directory))
        yield
    _DIRECTORY.clear()


def in_minio(name: str) -> Place:
    return _in_bucket(*_MINIO[0], name)


def in_s3(name: str) -> Place:
    return _in_bucket(*_S3[0], name)


def _in_bucket(store: S3Server, bucket: str, name: str) -> Place:
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


needs = pytest.mark.usefixtures

TestMinIO = needs("minio_place")(storage_promises(in_minio, copies=True))
TestS3 = pytest.mark.spark(needs("s3_place")(storage_promises(in_s3, copies=True)))
TestGs = needs("gs_place")(storage_promises(in_gs, begun_is_seen=False))
TestAbfs = needs("abfs_place")(
    storage_promises(in_abfs, begun_is_seen=False, refused=("back\\slash",))
)
TestHdfs = needs("hdfs_place")(
    storage_promises(in_hdfs, begun_is_seen=False, refused=("a:b",), many=2 * Hdfs.lists + 3)
)
TestLocal = needs("local_place")(storage_promises(in_files, copies=True))
