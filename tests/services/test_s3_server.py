"""Every S3 server of the tests does what tests of ours take for granted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, SSLError

from tests.services.certificates import Authority
from tests.services.minio import MinIO
from tests.services.s3_server import Account, S3Server

_WRITERS: Final = 16
_ROUNDS: Final = 5


def _put(client: Any, bucket: str, key: str, data: bytes) -> None:
    client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")


def _complete(client: Any, bucket: str, key: str, data: bytes) -> None:
    named = {"Bucket": bucket, "Key": key}
    named["UploadId"] = client.create_multipart_upload(**named)["UploadId"]
    tag = client.upload_part(**named, PartNumber=1, Body=data)["ETag"]
    parts = [{"PartNumber": 1, "ETag": tag}]
    client.complete_multipart_upload(**named, MultipartUpload={"Parts": parts}, IfNoneMatch="*")


def _close_afterwards(request: Any, **_: Any) -> None:
    request.headers["Connection"] = "close"


class Promises:
    """A class of tests has the fixture `store`."""

    @pytest.mark.parametrize(
        ("account", "message"),
        [
            (Account("administrator", "another secret"), "SignatureDoesNotMatch"),
            (Account("nobody", "administrator's secret"), "InvalidAccessKeyId"),
        ],
        ids=["wrong secret", "unknown key"],
    )
    def test_wrong_credentials_are_refused(
        self, store: S3Server, account: Account, message: str
    ) -> None:
        with pytest.raises(ClientError, match=message):
            store.client(account).list_buckets()

    def test_a_client_of_another_authority_gets_no_connection(
        self, store: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Harm prevented: the tests of TLS would pass without anybody checking a certificate."""
        monkeypatch.setattr(store, "ca_file", Authority(tmp_path).file)

        with pytest.raises(SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            store.client().list_buckets()

    @pytest.mark.parametrize("write", [_put, _complete])
    def test_a_name_is_taken_once(
        self, store: S3Server, write: Callable[[Any, str, str, bytes], None]
    ) -> None:
        """Harm prevented: put-if-absent of ours is built on a promise that no store keeps."""
        client, bucket = store.client(), store.make_bucket()
        client.put_object(Bucket=bucket, Key="k", Body=b"first")

        with pytest.raises(ClientError, match="PreconditionFailed"):
            write(client, bucket, "k", b"second")
        assert client.get_object(Bucket=bucket, Key="k")["Body"].read() == b"first"

    @pytest.mark.parametrize("write", [_put, _complete])
    def test_of_many_who_take_a_name_at_once_one_does(
        self, store: S3Server, write: Callable[[Any, str, str, bytes], None]
    ) -> None:
        """Harm prevented: a store that looks first and writes then lets two win, now and again."""
        client, bucket = store.client(), store.make_bucket()
        # S3Proxy closes a connection after some refusals; a request that is sent on it then gets no
        # answer, and this client does not ask twice.
        client.meta.events.register("before-send.s3", _close_afterwards)
        contents = [bytes([n]) * 1000 for n in range(_WRITERS)]

        def won(key: str, data: bytes) -> bool:
            try:
                write(client, bucket, key, data)
            except ClientError as error:
                assert error.response["Error"]["Code"] == "PreconditionFailed"  # noqa: PT017
                return False
            return True

        with ThreadPoolExecutor(_WRITERS) as writers:
            for key in map(str, range(_ROUNDS)):
                winners = list(writers.map(won, [key] * _WRITERS, contents))
                assert sum(winners) == 1
                stored = client.get_object(Bucket=bucket, Key=key)["Body"].read()
                assert stored == contents[winners.index(True)]

    def test_bytes_that_changed_on_their_way_are_refused(self, store: S3Server) -> None:
        """Harm prevented: the checksums that are sent are compared by nobody."""
        client, bucket = store.client(), store.make_bucket()
        of_others = "AAAAAA=="
        upload = client.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm="CRC32")
        part = {"UploadId": upload["UploadId"], "PartNumber": 1}

        for send, more in ((client.put_object, {}), (client.upload_part, part)):
            with pytest.raises(ClientError, match=r"BadDigest|ChecksumMismatch"):
                send(Bucket=bucket, Key="k", Body=b"v", ChecksumCRC32=of_others, **more)

        assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 0

    def test_what_was_stored_outlives_its_end(self, store: S3Server) -> None:
        client, bucket = store.client(), store.make_bucket()
        client.put_object(Bucket=bucket, Key="k", Body=b"v", Metadata={"of": "whom"})

        store.kill()
        with pytest.raises(EndpointConnectionError):
            client.list_buckets()
        store.start()

        found = client.get_object(Bucket=bucket, Key="k")
        assert (found["Body"].read(), found["Metadata"]) == (b"v", {"of": "whom"})


class TestMinIO(Promises):
    """The one that is compiled."""

    @pytest.fixture
    def store(self, minio_server: MinIO) -> S3Server:
        return minio_server


@pytest.mark.spark
class TestS3Proxy(Promises):
    """The one that nothing is compiled for."""

    @pytest.fixture
    def store(self, s3_server: S3Server) -> S3Server:
        return s3_server
