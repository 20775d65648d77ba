"""The remote object stores: S3 by two servers, Google Cloud Storage, Azure and HDFS."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
from botocore.exceptions import ConnectionClosedError
from urllib3 import PoolManager
from urllib3.exceptions import ProtocolError
from urllib3.response import BaseHTTPResponse

from catalog.storages.abfs.access import ENDPOINT as ABFS_ENDPOINT
from catalog.storages.abfs.access import AbfsAccess
from catalog.storages.abfs.store import AbfsObjects, AbfsStorage
from catalog.storages.gs.access import ENDPOINT as GS_ENDPOINT
from catalog.storages.gs.store import GsObjects, GsStorage
from catalog.storages.hdfs.access import ENDPOINT as HDFS_ENDPOINT
from catalog.storages.hdfs.store import HdfsObjects, HdfsStorage
from catalog.storages.over_http.storage import ObjectStorage
from catalog.storages.s3.storage import S3Storage
from tests.services.azurite import ACCOUNT
from tests.services.minio import READ_ONLY, WRITER
from tests.services.s3_server import Account
from tests.support.s3_places import access_to, properties_of
from tests.support.store_places import Place, Step, flipped

__all__ = [
    "EVERY", "AbfsPlace", "GsPlace", "HdfsPlace", "HttpPlace", "MinIOPlace", "S3Place",
    "S3ProxyPlace",
]  # fmt: skip

Send = Callable[..., BaseHTTPResponse]
_PLAIN: Final = "http://store.example"


class S3Place(Place):
    """A bucket of an S3 server."""

    steps = (
        Step("put", "PutObject", sends=True, shows=True),
        Step("begin", "CreateMultipartUpload", large=True),
        Step("part", "UploadPart", large=True, sends=True),
        Step("complete", "CompleteMultipartUpload", large=True, shows=True),
    )
    in_clear = ("s3.endpoint", _PLAIN)
    lists_uploads = read_by_pyarrow = True
    # boto3 reads them on each host.
    passes_variables = True
    changed = "(BadDigest|ChecksumMismatch|SHA256Mismatch)"
    absent = "s3://not-there"
    make_it = "Create the bucket"
    # What takes a missing bucket for one without the object: a response to HEAD says only 404.
    blind = frozenset({"size"})
    wrong_key = r"SignatureDoesNotMatch.* set s3\.access-key-id"

    def make(self) -> str:
        self.bucket: str = self.server.make_bucket()
        return f"s3://{self.bucket}/lake"

    @cached_property
    def account(self) -> Account:
        """The account that exports."""
        root: Account = self.server.root
        return root

    def reached(self, **how: Any) -> S3Storage:
        return S3Storage(access_to(self.server, **how))

    def with_wrong_key(self) -> S3Storage:
        """Return the storage with a secret that is not the account's."""
        return self.reached(account=Account(self.server.access_key, "another secret of someone"))

    def stored(self) -> list[str]:
        pages = self.server.client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        found = (one["Key"] for page in pages for one in page.get("Contents", ()))
        return [key.removeprefix("lake/") for key in found]

    def lose_response(self, patch: pytest.MonkeyPatch, step: Step) -> None:  # noqa: ARG002  the client is the place's own
        def lose(http_response: Any, **_: Any) -> None:
            assert http_response.status_code == 200
            raise ConnectionClosedError(endpoint_url=self.server.endpoint)

        self._once(f"after-call.s3.{step.text}", lose)

    def flip_byte(self, patch: pytest.MonkeyPatch, step: Step) -> None:  # noqa: ARG002  as above
        def flip(request: Any, **_: Any) -> None:
            request.body = flipped(request.body.read())

        self._once(f"before-send.s3.{step.text}", flip)

    def _once(self, event: str, act: Callable[..., None]) -> None:
        def once(**given: Any) -> None:
            if not self.met:
                self.met.append(event)
                act(**given)

        client: Any = self.storage._requests.client
        client.meta.events.register_first(event, once)

    @property
    def properties(self) -> dict[str, str]:
        return properties_of(self.server, self.account)

    @property
    def variables(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.server.endpoint,
            "AWS_REGION": self.server.region,
            "AWS_ACCESS_KEY_ID": self.account.access_key,
            "AWS_SECRET_ACCESS_KEY": self.account.secret_key,
            "AWS_SESSION_TOKEN": self.account.token or "",
        }

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(one for one in (self.account.secret_key, self.account.token) if one)


class S3ProxyPlace(S3Place):
    """A bucket of an S3Proxy, which is not compiled and has one account, without a token."""

    name, fixture, nightly = "s3", "s3_server", False
    # The server responds that it has removed the object.
    blind = S3Place.blind | {"delete"}


class MinIOPlace(S3Place):
    """A bucket of a MinIO; an account exports that has a token and the rights of the page."""

    name, fixture = "minio", "minio_server"
    refused = r"AccessDenied.* Grant s3:ListBucket, s3:GetObject, s3:PutObject"

    @cached_property
    def account(self) -> Account:
        return self._account(*WRITER)

    def without_right(self) -> S3Storage:
        """Return the storage for an account that may only read."""
        return self.reached(account=self._account(*READ_ONLY))

    def _account(self, *actions: str) -> Account:
        made: Account = self.server.account(*actions, bucket=self.bucket)
        return made


class HttpPlace(Place):
    """A place in a store that is written by requests of one `method`."""

    opened: ClassVar[type[Any]]
    method: ClassVar[str]
    before_bytes: ClassVar[int] = 0
    """How many pieces of a body come before the bytes of the object."""

    def reached(self, **how: Any) -> ObjectStorage:
        storage: ObjectStorage = self.opened(self.server.access(**how))
        return storage

    @property
    @abstractmethod
    def pool(self) -> PoolManager:
        """The connections of `storage`."""

    def lose_response(self, patch: pytest.MonkeyPatch, step: Step) -> None:
        def lose(send: Send, _: Mapping[str, Any]) -> BaseHTTPResponse:
            assert send().status in (200, 201)
            raise ProtocolError("the connection was closed")

        self._once(patch, step, lose)

    def flip_byte(self, patch: pytest.MonkeyPatch, step: Step) -> None:
        def flip(send: Send, given: Mapping[str, Any]) -> BaseHTTPResponse:
            pieces = list(given["body"])
            pieces[self.before_bytes] = flipped(pieces[self.before_bytes])
            return send(body=iter(pieces))

        self._once(patch, step, flip)

    def _once(
        self,
        patch: pytest.MonkeyPatch,
        step: Step,
        act: Callable[[Send, Mapping[str, Any]], BaseHTTPResponse],
    ) -> None:
        real: Send = self.pool.request

        def request(method: str, url: str, **given: Any) -> BaseHTTPResponse:
            if self.met or method != self.method or step.text not in url:
                return real(method, url, **given)
            self.met.append(url)
            return act(lambda **more: real(method, url, **given | more), given)

        patch.setattr(self.pool, "request", request)

    @property
    def properties(self) -> dict[str, str]:
        found: dict[str, str] = self.server.properties
        return found


class GsPlace(HttpPlace):
    """A bucket of Google Cloud Storage."""

    name, fixture, opened, method, before_bytes = "gs", "gs_server", GsStorage, "POST", 1
    steps = (
        Step("small", sends=True, shows=True),
        Step("large", large=True, sends=True, shows=True),
    )
    in_clear = (GS_ENDPOINT, _PLAIN)
    changed = "MD5"
    spoiled = "its bytes are not those that were stored"
    absent = "gs://not-there"
    make_it = "Create the bucket"
    blind = frozenset[str]()

    def make(self) -> str:
        self.bucket: str = self.server.make_bucket()
        return f"gs://{self.bucket}/lake"

    @property
    def pool(self) -> PoolManager:
        client = self.storage._requests.client
        assert isinstance(client, GsObjects)
        return client.http._pool

    def stored(self) -> list[str]:
        return [name.removeprefix("lake/") for name in self.server.objects(self.bucket)]

    def spoil(self, patch: pytest.MonkeyPatch) -> None:  # noqa: ARG002  the server's file is changed
        """Change a byte of the file in the store."""
        _flip_in(self.server.file_of(self.bucket, "lake/f"))

    @cached_property
    def token(self) -> str:
        """A token of the caller; the server takes any."""
        return f"s3cret-{secrets.token_hex(12)}"

    @property
    def properties(self) -> dict[str, str]:
        return {"gcs.oauth2.token": self.token, **super().properties}

    @property
    def variables(self) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": self.server.endpoint}

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self.token,)


class AbfsPlace(HttpPlace):
    """A container of Azure Blob Storage."""

    name, fixture, opened, method = "abfs", "abfs_server", AbfsStorage, "PUT"
    steps = GsPlace.steps
    in_clear = (ABFS_ENDPOINT, f"AccountName={ACCOUNT};AccountKey=d3Jvbmc=;BlobEndpoint={_PLAIN};")
    outlives_kill = False
    changed = GsPlace.changed
    spoiled = GsPlace.spoiled
    make_it = "Create the container"
    blind = frozenset[str]()
    wrong_key = "The credentials are wrong or have expired"
    refused = "Grant reading, writing, deleting and listing"

    def make(self) -> str:
        self.container: str = self.server.make_container()
        return f"{self.server.location(self.container)}/lake"

    @property
    def absent(self) -> str:
        """The location of a container that is not there."""
        location: str = self.server.location("not-there")
        return location

    def without_right(self) -> ObjectStorage:
        """Return the storage for a signature that may only read."""
        return self.reached(sas=self.server.signature("rl"))

    def with_wrong_key(self) -> ObjectStorage:
        """Return the storage with a key that is not the account's."""
        given = self.properties | {ABFS_ENDPOINT: self.server.connection(key="d3Jvbmc=")}
        return AbfsStorage(AbfsAccess.of(self.root, given, environment={}))

    @property
    def pool(self) -> PoolManager:
        client = self.storage._requests.client
        assert isinstance(client, AbfsObjects)
        return client.http._pool

    def stored(self) -> list[str]:
        return [name.removeprefix("lake/") for name in self.server.objects(self.container)]

    def spoil(self, patch: pytest.MonkeyPatch) -> None:
        """Change bytes of all responses, which have the digest of the file as it was stored."""
        real: Send = self.pool.request

        def changed(method: str, url: str, **given: Any) -> BaseHTTPResponse:
            response = real(method, url, **given)
            chunks = response.stream
            patch.setattr(response, "stream", lambda size: map(flipped, chunks(size)))
            return response

        patch.setattr(self.pool, "request", changed)

    @property
    def variables(self) -> dict[str, str]:
        return {"AZURE_STORAGE_CONNECTION_STRING": self.server.connection()}

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self.server.key,)


class HdfsPlace(HttpPlace):
    """A directory of HDFS, where a file is written under a hidden name and then renamed."""

    name, fixture, opened, method = "hdfs", "hdfs_server", HdfsStorage, "PUT"
    steps = (
        Step("sent", "namenoderpcaddress=", sends=True),
        Step("marked", "op=SETXATTR"),
        Step("shown", "op=RENAME", shows=True),
    )
    in_clear = (HDFS_ENDPOINT, _PLAIN)
    # The DataNode finds it, and ends the response.
    spoiled = "did not recover"
    refused = "AccessControlException.* Let the user read, write and enter the directory"

    def make(self) -> str:
        location: str = self.server.make_directory()
        return location

    @property
    def path(self) -> str:
        """The path of the directory."""
        return self.root.removeprefix(self.server.root)

    def without_right(self) -> ObjectStorage:
        """Return the storage for a user who may not enter the directory."""
        self.server.ask("PUT", self.path, "SETPERMISSION", permission="700")
        return self.reached(user="stranger")

    @property
    def pool(self) -> PoolManager:
        client = self.storage._requests.client
        assert isinstance(client, HdfsObjects)
        return client.pool

    def stored(self) -> list[str]:
        found: list[str] = self.server.files(self.root)
        return [path.removeprefix(f"{self.path}/") for path in found]

    def spoil(self, patch: pytest.MonkeyPatch) -> None:  # noqa: ARG002  the DataNode's file is changed
        """Change a byte of the file in the store."""
        size = self.storage.size(self.file)
        (block,) = [one for one in self.server.blocks() if one.stat().st_size == size]
        _flip_in(block)

    @property
    def variables(self) -> dict[str, str]:
        return {
            "MERGEBERG_HDFS_HTTP_ADDRESS": self.server.endpoint,
            "HADOOP_USER_NAME": self.server.user,
        }


EVERY: Final = (S3ProxyPlace, MinIOPlace, GsPlace, AbfsPlace, HdfsPlace)
"""One kind for each server."""


def _flip_in(file: Path) -> None:
    content = file.read_bytes()
    with file.open("r+b") as opened:
        opened.write(flipped(content))
