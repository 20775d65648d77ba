"""Vended credentials of a table are used below it, until a later load brings other keys."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from catalog.iceberg.catalogs import OpenedCatalog
from catalog.iceberg.table import IcebergTable
from catalog.network import TimeOuts
from catalog.storages.s3.access import S3Access
from tableformat.committer import Commit
from tableformat.errors import DestinationError
from tableformat.names import LakeName
from tests.services.minio import MinIO
from tests.services.rest_server import RestServer
from tests.services.vending_catalog import LendingCatalog

SCHEMA = Schema(NestedField(1, "n", LongType(), required=False))
TIME_OUTS = TimeOuts(connect=5, read=30, retry_for=1)


class Lake:
    """A table in a catalog that vends credentials; the configuration has no key at all."""

    def __init__(self, lender: LendingCatalog) -> None:
        self.lender = lender
        self.name = LakeName("far", (f"n{secrets.token_hex(4)}",), "t")
        self.opened = OpenedCatalog("far", None, lender.properties, TIME_OUTS)
        self.table: IcebergTable = self.opened.create(
            self.name,
            schema=SCHEMA,
            spec=UNPARTITIONED_PARTITION_SPEC,
            order=UNSORTED_SORT_ORDER,
            properties={},
        )

    @property
    def location(self) -> str:
        return self.table.loaded.location()

    def access(self, location: str) -> S3Access:
        found = self.opened.storages.access(location)
        assert isinstance(found, S3Access)
        return found

    def put(self, name: str) -> None:
        """Write an object below the table, as a task does."""
        location = f"{self.location}/data/{name}"
        self.opened.storages(location).put(location, b"x")


@pytest.fixture
def lake(
    rest_server_of_session: RestServer,
    minio_server: MinIO,  # noqa: ARG001  which is mended after each test
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lake]:
    """Yield a table to a test, on a machine that has no credentials of its own."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with LendingCatalog(rest_server_of_session) as lender:
        yield Lake(lender)


def test_vended_credentials_are_used_below_the_table_alone(lake: Lake) -> None:
    """Harm prevented: one table's keys, and where its store is, are used for another's files."""
    vended = lake.lender.vended[-1]

    below = lake.access(f"{lake.location}/data/f")
    outside = lake.access(f"{lake.location}-2/data/f")

    assert (below.access_key, below.secret_key, below.token) == (
        vended.access_key,
        vended.secret_key,
        vended.token,
    )
    assert below.endpoint is not None
    assert (outside.access_key, outside.token, outside.endpoint) == (None, None, None)
    assert below.ca == outside.ca
    lake.put("f")
    with pytest.raises(DestinationError, match=r"AccessDenied.*Grant s3:ListBucket"):
        lake.opened.storages(lake.location).put(f"{lake.location}-2/f", b"x")


def test_expired_credentials_are_reported_and_the_next_load_has_new_ones(
    lake: Lake, minio_server: MinIO
) -> None:
    """MinIO says of them what it says of a key that never was."""
    lake.put("before")
    minio_server.end_accounts()

    with pytest.raises(DestinationError) as caught:
        lake.put("between")

    assert "InvalidAccessKeyId" in caught.value.message
    assert caught.value.message.endswith(
        "The credentials have expired: get new ones (a catalog that vends them renews them); "
        "finished files are kept; it is safe to run again."
    )
    old = lake.lender.vended[-1]
    lake.table.load()
    assert (
        lake.access(lake.location).access_key == lake.lender.vended[-1].access_key != old.access_key
    )
    lake.put("after")


def test_a_commit_uses_those_of_its_own_load(lake: Lake, minio_server: MinIO) -> None:
    """Harm prevented: an hour's export cannot commit, or leaves what it staged in vain."""
    minio_server.end_accounts()
    state = lake.table.load()
    commit = Commit((), state.layout, "ledger")
    in_vain, staged = (lake.table.stage(state, commit) for _ in range(2))

    assert lake.table.send(state, staged, commit, ()).applied
    after = lake.table.load()
    assert after.main == staged.snapshot_id
    minio_server.end_accounts()
    after = lake.table.load()
    assert not lake.table.in_use(after, in_vain)
    lake.table.discard(in_vain)
    left = {one.location for one in lake.opened.storages(lake.location).list(lake.location)}
    assert not {*in_vain.files} & left
    assert {*staged.files} <= left
