"""Copies inside S3: in ranges, with the same credentials, of the version that was read."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError

from catalog.storages.local import LocalStorage
from catalog.storages.s3 import storage as copying
from catalog.storages.s3.storage import S3Storage
from tableformat.errors import DestinationError
from tests.services.minio import MinIO
from tests.support.s3_places import access_to

_RANGE: Final = 5 * 1024 * 1024
"""The smallest that S3 takes but for the last."""


def test_a_large_object_is_copied_in_ranges(
    minio_server: MinIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: files of more than 5 GiB, which no single request copies, cannot be."""
    monkeypatch.setattr(copying, "RANGE_BYTES", _RANGE)
    storage, bucket = S3Storage(access_to(minio_server)), minio_server.make_bucket()
    content = os.urandom(2 * _RANGE + 17)
    storage.put(f"s3://{bucket}/a", content)

    assert storage.copy(storage, f"s3://{bucket}/a", f"s3://{bucket}/b")

    assert storage.read(f"s3://{bucket}/b") == content
    head = minio_server.client().head_object(Bucket=bucket, Key="b", PartNumber=1)
    assert head["PartsCount"] == 3


def test_only_one_server_with_one_identity_copies(minio_server: MinIO) -> None:
    """Harm prevented: one table's credentials are tried on another's files."""
    storage, bucket = S3Storage(access_to(minio_server)), minio_server.make_bucket()
    storage.put(f"s3://{bucket}/a", b"x")
    others = (
        S3Storage(replace(storage.access, access_key="somebody", secret_key="else")),  # noqa: S106
        S3Storage(replace(storage.access, endpoint="https://127.0.0.1:1")),
        LocalStorage(),
    )

    for other in others:
        assert not storage.copy(other, f"s3://{bucket}/a", f"s3://{bucket}/b")

    assert [one.location for one in storage.list(f"s3://{bucket}")] == [f"s3://{bucket}/a"]


class _Refusing:
    """A client whose server refuses to copy."""

    def __init__(self, client: Any, code: str) -> None:
        self._client, self._code = client, code

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def upload_part_copy(self, **_: object) -> None:
        response = {"Error": {"Code": self._code}, "ResponseMetadata": {"HTTPStatusCode": 501}}
        raise ClientError(response, "UploadPartCopy")


@pytest.mark.parametrize("code", ["NotImplemented", "PreconditionFailed"])
def test_a_server_that_does_not_copy_leaves_nothing(
    minio_server: MinIO, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """Harm prevented: an incomplete copy costs money, or a changed file is copied."""
    storage, bucket = S3Storage(access_to(minio_server)), minio_server.make_bucket()
    storage.put(f"s3://{bucket}/a", b"x")
    refusing = _Refusing(storage._requests.client, code)
    monkeypatch.setattr("catalog.storages.s3.requests._client", lambda *_: refusing)

    if code == "NotImplemented":
        assert not storage.copy(storage, f"s3://{bucket}/a", f"s3://{bucket}/b")
    else:
        with pytest.raises(DestinationError, match="another object has taken its name"):
            storage.copy(storage, f"s3://{bucket}/a", f"s3://{bucket}/b")

    assert storage.list_unfinished(f"s3://{bucket}") == ()
    assert [one.location for one in storage.list(f"s3://{bucket}")] == [f"s3://{bucket}/a"]
