"""A MinIO does what tests of ours take for granted, beyond what every S3 server of them does."""

from __future__ import annotations

from typing import Final

import pytest
from botocore.exceptions import ClientError

from tests.services.minio import READ_ONLY, MinIO

_PART: Final = 5 << 20
"""Bytes that every part of an upload but the last must have at least."""


def test_a_reader_may_read_its_bucket_and_nothing_else(minio_server: MinIO) -> None:
    """Harm prevented: a test of missing rights passes because of something else."""
    store, administrator = minio_server, minio_server.client()
    mine, another = store.make_bucket(), store.make_bucket()
    administrator.put_object(Bucket=mine, Key="k", Body=b"v")
    reader = store.client(store.account(*READ_ONLY, bucket=mine))

    assert reader.get_object(Bucket=mine, Key="k")["Body"].read() == b"v"
    assert reader.list_objects_v2(Bucket=mine)["KeyCount"] == 1
    with pytest.raises(ClientError, match="AccessDenied"):
        reader.put_object(Bucket=mine, Key="k", Body=b"w")
    with pytest.raises(ClientError, match="AccessDenied"):
        reader.delete_object(Bucket=mine, Key="k")
    with pytest.raises(ClientError, match="AccessDenied"):
        reader.list_objects_v2(Bucket=another)
    assert administrator.get_object(Bucket=mine, Key="k")["Body"].read() == b"v"


def test_a_copy_is_made_by_the_server(minio_server: MinIO) -> None:
    """Harm prevented: parts of tables on S3 are copied by way of this machine, or half."""
    client, bucket = minio_server.client(), minio_server.make_bucket()
    content = bytes(range(256)) * (_PART // 256) + b"."
    source = {"Bucket": bucket, "Key": "k"}
    client.put_object(**source, Body=content, ChecksumAlgorithm="SHA256")

    client.copy_object(Bucket=bucket, Key="whole", CopySource=source)
    upload = client.create_multipart_upload(Bucket=bucket, Key="parts")["UploadId"]
    of_upload = {"Bucket": bucket, "Key": "parts", "UploadId": upload}
    made = [
        client.upload_part_copy(
            **of_upload, PartNumber=number, CopySource=source, CopySourceRange=f"bytes={span}"
        )["CopyPartResult"]["ETag"]
        for number, span in enumerate((f"0-{_PART - 1}", f"{_PART}-{_PART}"), 1)
    ]
    parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(made, 1)]
    client.complete_multipart_upload(**of_upload, MultipartUpload={"Parts": parts})

    for name in ("whole", "parts"):
        assert client.get_object(Bucket=bucket, Key=name)["Body"].read() == content
    with pytest.raises(ClientError, match="NoSuchKey"):
        client.copy_object(Bucket=bucket, Key="k2", CopySource={"Bucket": bucket, "Key": "none"})
