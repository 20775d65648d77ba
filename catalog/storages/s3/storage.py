"""Objects in S3, a `tableformat.storage.Storage`; s3://bucket/key is taken literally."""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from botocore.exceptions import ClientError

from catalog.storages.s3.access import S3Access
from catalog.storages.s3.copying import copied
from catalog.storages.s3.failures import code_of
from catalog.storages.s3.places import BegunUpload, Place
from catalog.storages.s3.requests import Requests
from catalog.storages.s3.sink import S3Sink, checksum, put_new
from tableformat.errors import DestinationError
from tableformat.parquet.writer import FileSink
from tableformat.storage import Storage, StoredObject

__all__ = ["S3Storage"]

T = TypeVar("T")
_CHUNK: Final = 1024 * 1024


class S3Storage:
    """Objects in S3. A request goes on while the server is away, for as long as `access` says."""

    def __init__(self, access: S3Access) -> None:
        """Remember how to reach it; nothing is asked yet."""
        self._requests = Requests(access)

    @property
    def access(self) -> S3Access:
        """How it is reached, and in whose name."""
        return self._requests.access

    def create(self, location: str) -> FileSink:
        """Begin a new object; it appears when the sink is committed."""
        return S3Sink(self._requests, location)

    def put(self, location: str, data: bytes) -> None:
        """Write a whole small object, in place of one that is there."""
        place = Place.of(location)
        self._requests.ask(
            "write",
            location,
            lambda client: client.put_object(
                Bucket=place.bucket, Key=place.key, Body=data, ChecksumCRC32=checksum(data)
            ),
        )

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """Write a whole small object; false, and nothing is changed, when there is one already."""
        return put_new(self._requests, location, data, uuid.uuid4().hex)

    def read(self, location: str) -> bytes:
        """Return a whole object."""
        return self._read(location, lambda body: bytes(body.read()))

    def list(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return the finished objects below a directory, at any depth, in order."""
        place = Place.below(prefix)

        def listed(client: Any) -> tuple[StoredObject, ...]:
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=place.bucket, Prefix=place.key
            )
            # A page may be empty. What ends with a slash is how some tools mark a directory.
            found = (one for page in pages for one in page.get("Contents", ()))
            files = (one for one in found if not one["Key"].endswith("/"))
            return tuple(
                sorted(StoredObject(place.location(one["Key"]), one["Size"]) for one in files)
            )

        return self._requests.ask("list", prefix, listed)

    def list_unfinished(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return what begun objects below a directory have left; of the living, or of the dead."""
        place = Place.below(prefix)

        def listed(client: Any) -> tuple[StoredObject, ...]:
            begun = _begun_uploads(client, place)
            sizes = ((one, _size_of(client, place, one)) for one in begun)
            return tuple(
                sorted(StoredObject(place.location(one.name), size) for one, size in sizes)
            )

        return self._requests.ask("list the begun uploads of", prefix, listed)

    def delete(self, location: str) -> None:
        """Remove an object, or abort a begun upload; one that is not there is removed already."""
        place = Place.of(location)
        begun = BegunUpload.of(place.key)

        def delete(client: Any) -> None:
            if begun is None:
                client.delete_object(Bucket=place.bucket, Key=place.key)
                return
            try:
                client.abort_multipart_upload(
                    Bucket=place.bucket, Key=begun.key, UploadId=begun.upload_id
                )
            except ClientError as error:
                if code_of(error) != "NoSuchUpload":
                    raise

        self._requests.ask("delete", location, delete)

    def size(self, location: str) -> int:
        """Return an object's bytes."""
        place = Place.of(location)
        return self._requests.ask(
            "read",
            location,
            lambda client: int(
                client.head_object(Bucket=place.bucket, Key=place.key)["ContentLength"]
            ),
        )

    def sha256(self, location: str) -> str:
        """Return the digest of an object's bytes."""

        def digested(body: Any) -> str:
            digest = hashlib.sha256()
            for chunk in body.iter_chunks(_CHUNK):
                digest.update(chunk)
            return digest.hexdigest()

        return self._read(location, digested)

    def fetch(self, location: str, into: Path) -> Path:
        """Return a copy of an object, in a directory."""
        copy = into / uuid.uuid4().hex

        def copied(body: Any) -> Path:
            with copy.open("wb") as file:
                for chunk in body.iter_chunks(_CHUNK):
                    file.write(chunk)
            return copy

        try:
            return self._read(location, copied)
        except BaseException as error:
            copy.unlink(missing_ok=True)
            if not isinstance(error, OSError):
                raise
            message = (
                f"Cannot copy {location} to {into}: {error.strerror}. Make space there, or name "
                "another directory by TMPDIR, and run again."
            )
            raise DestinationError(message) from error

    def copy(self, source: Storage, location: str, to: str) -> bool:
        """Let the server copy an object, when it is the one that has it, asked in the same name."""
        same = isinstance(source, S3Storage) and source.access == self.access
        return same and copied(self._requests, location, to)

    def free_bytes(self, location: str) -> int | None:  # noqa: ARG002  it is so everywhere
        """Return None: there is no bound."""
        return None

    def _read(self, location: str, use: Callable[[Any], T]) -> T:
        """Return what `use` makes of an object's bytes; it begins anew when they break off."""
        place = Place.of(location)

        def read(client: Any) -> T:
            answer = client.get_object(Bucket=place.bucket, Key=place.key)
            # Entered by itself, a body gives the bare stream, which counts and compares nothing.
            with contextlib.closing(answer["Body"]) as body:
                return use(body)

        return self._requests.ask("read", location, read)


def _begun_uploads(client: Any, place: Place) -> Iterator[BegunUpload]:
    # Without a prefix: MinIO takes one for a whole key, and answers that there is nothing. What was
    # begun before it was last started it does not tell, and removes after a day by itself.
    pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=place.bucket)
    for page in pages:
        for one in page.get("Uploads", ()):
            if one["Key"].startswith(place.key):
                yield BegunUpload(one["Key"], one["UploadId"])


def _size_of(client: Any, place: Place, begun: BegunUpload) -> int:
    pages = client.get_paginator("list_parts").paginate(
        Bucket=place.bucket, Key=begun.key, UploadId=begun.upload_id
    )
    try:
        return sum(part["Size"] for page in pages for part in page.get("Parts", ()))
    except ClientError as error:
        # It may end between being seen and being asked for its parts.
        if code_of(error) != "NoSuchUpload":
            raise
        return 0
