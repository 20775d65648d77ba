"""Implements `tableformat.storage.Storage` for S3, with copies inside the server.

The location s3://bucket/key is literal. `S3Sink` writes one object: a small one with one request, a
large one as a multipart upload.

- S3 shows the object after the one request, or after the request that completes the parts; never
  before, and never a part.
- That request is conditional: it replaces no object.
- The response may be lost, so an existing object may be our own. The object carries its writer's
  mark, and the mark decides.
- Only a few parts are in flight, and in memory, at a time.
- S3 identifies an unfinished upload by key and id only. `UnfinishedUpload` names it like an
  unfinished file:

    s3://bucket/below/.name.<the id's bytes in hex>.inprogress

`copied` copies an object inside the server:

- It copies ranges, several at a time, even if one would do: the completing request of a multipart
  upload is conditional on every server, and the whole-object copy is not.
- It replaces no object, and it copies only the version whose ETag it has read.
- An unfinished copy is listed like any unfinished upload, and carries the same mark.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import re
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any, Final, TypeVar

from botocore.exceptions import ClientError

from catalog.storages.access import Place, exists_error
from catalog.storages.local import download
from catalog.storages.s3.access import S3Access
from catalog.storages.s3.requests import FAILURES, Requests, code_of, is_missing
from tableformat.errors import DestinationError
from tableformat.parquet.writer import FileSink
from tableformat.storage import Storage, StoredObject

__all__ = [
    "PART_BYTES",
    "RANGE_BYTES",
    "TAKEN",
    "WRITER",
    "Place",
    "S3Sink",
    "S3Storage",
    "UnfinishedUpload",
    "checksum",
    "complete_new",
    "copied",
    "put_new",
    "warn_left",
    "writer_of",
]

_UNFINISHED_NAME: Final = re.compile(
    r"(?P<below>.*/|)\.(?P<name>[^/]+)\.(?P<id>(?:[0-9a-f]{2})+)\.inprogress", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A multipart upload that was neither completed nor aborted."""

    key: str
    upload_id: str

    @property
    def name(self) -> str:
        """Its name as a key in the object's directory."""
        below, slash, name = self.key.rpartition("/")
        return f"{below}{slash}.{name}.{self.upload_id.encode().hex()}.inprogress"

    @classmethod
    def of(cls, key: str) -> UnfinishedUpload | None:
        """Parse `name`; return None for the key of an object."""
        found = _UNFINISHED_NAME.fullmatch(key)
        if found is None:
            return None
        upload_id = bytes.fromhex(found["id"]).decode("utf-8", "replace")
        return cls(f"{found['below']}{found['name']}", upload_id)


PART_BYTES: Final = 8 * 1024 * 1024
"""The size of every part but the last. S3 allows 10,000 parts."""
_PARTS_IN_FLIGHT: Final = 3
WRITER: Final = "mergeberg-writer"
"""The metadata key of the writer's mark."""
TAKEN: Final = ("PreconditionFailed", "412")
"""Codes of a refused conditional request."""
# If the response to the completing request was lost, the upload no longer exists.
_NO_UPLOAD: Final = ("NoSuchUpload",)
_LOGGER: Final = logging.getLogger(__name__)


class S3Sink:
    """An object that appears when it is committed. It keeps only a few parts in memory.

    For one thread; the parts are sent by the sink's own threads.
    """

    def __init__(self, requests: Requests, location: str) -> None:
        """Start; nothing is sent yet."""
        self._stopped = Event()
        self._requests = replace(requests, stopped=self._stopped)
        self._location, self._place = location, Place.of(location)
        self._named = {"Bucket": self._place.bucket, "Key": self._place.key}
        self._writer = uuid.uuid4().hex
        self._buffer = bytearray()
        self._upload: str | None = None
        self._senders: ThreadPoolExecutor | None = None
        self._sent: deque[Future[Mapping[str, Any]]] = deque()
        self._parts: list[Mapping[str, Any]] = []
        self._committing = False

    def write(self, data: bytes, /) -> None:
        """Append bytes; it waits while too many parts are in flight.

        Raises:
            DestinationError: a part cannot be stored.
        """
        rest = memoryview(data)
        while rest:
            piece = rest[: PART_BYTES - len(self._buffer)]
            self._buffer += piece
            rest = rest[len(piece) :]
            if len(self._buffer) == PART_BYTES:
                self._send(bytes(self._buffer))
                self._buffer.clear()

    def commit(self) -> None:
        """Make the object visible.

        Raises:
            DestinationError: it cannot be stored, or another object has its name.
        """
        self._committing = True
        if self._upload is None:
            done = put_new(self._requests, self._location, bytes(self._buffer), self._writer)
        else:
            if self._buffer:
                self._send(bytes(self._buffer))
            while self._sent:
                self._parts.append(self._sent.popleft().result())
            done = complete_new(
                self._requests, self._location, self._upload, self._parts, self._writer
            )
        self._end()
        if not done:
            raise exists_error(self._location)

    def abort(self) -> None:
        """Remove the written parts; a failed removal is logged and left to `gc`."""
        self._stopped.set()
        self._end()
        try:
            if self._upload is not None:
                self._requests.client.abort_multipart_upload(**self._named, UploadId=self._upload)
        except FAILURES as error:
            warn_left(self._requests, "upload", self._location, error)
        try:
            if self._committing and writer_of(self._requests, self._location) == self._writer:
                self._requests.client.delete_object(**self._named)
        except (*FAILURES, DestinationError) as error:
            warn_left(self._requests, "object", self._location, error)

    def _send(self, data: bytes) -> None:
        if self._upload is None or self._senders is None:
            self._upload = self._start_upload()
            self._senders = ThreadPoolExecutor(_PARTS_IN_FLIGHT, thread_name_prefix="s3-part")
        if len(self._sent) == _PARTS_IN_FLIGHT:
            self._parts.append(self._sent.popleft().result())
        number = len(self._parts) + len(self._sent) + 1
        self._sent.append(self._senders.submit(self._part, self._upload, number, data))

    def _start_upload(self) -> str:
        response = self._requests.run(
            "write",
            self._location,
            lambda client: client.create_multipart_upload(
                **self._named, ChecksumAlgorithm="CRC32", Metadata={WRITER: self._writer}
            ),
        )
        return str(response["UploadId"])

    def _part(self, upload: str, number: int, data: bytes) -> Mapping[str, Any]:
        crc = checksum(data)
        stored = self._requests.run(
            "write",
            self._location,
            lambda client: client.upload_part(
                **self._named, UploadId=upload, PartNumber=number, Body=data, ChecksumCRC32=crc
            ),
        )
        return {"PartNumber": number, "ETag": stored["ETag"], "ChecksumCRC32": crc}

    def _end(self) -> None:
        if self._senders is not None:
            self._senders.shutdown(cancel_futures=True)


def put_new(requests: Requests, location: str, data: bytes, writer: str) -> bool:
    """Store a whole object; return False, and change nothing, if another object exists.

    Args:
        requests: to S3.
        location: of the object.
        data: its bytes.
        writer: a mark that no other object has.

    Raises:
        DestinationError: it cannot be stored.
    """
    place = Place.of(location)

    def put(client: Any) -> bool:
        try:
            client.put_object(
                Bucket=place.bucket,
                Key=place.key,
                Body=data,
                ChecksumCRC32=checksum(data),
                Metadata={WRITER: writer},
                IfNoneMatch="*",
            )
        except ClientError as error:
            if code_of(error) not in TAKEN:
                raise
            return False
        return True

    return requests.run("write", location, put) or writer_of(requests, location) == writer


def complete_new(
    requests: Requests, location: str, upload: str, parts: list[Mapping[str, Any]], writer: str
) -> bool:
    """Complete an upload; return whether the object at the location is this one afterwards.

    Args:
        requests: to S3.
        location: of the object.
        upload: the upload's id.
        parts: in the form of S3's API.
        writer: the mark with which the upload was started.

    Raises:
        DestinationError: it cannot be completed, or the storage lost it.
    """
    place = Place.of(location)

    def complete(client: Any) -> bool:
        try:
            client.complete_multipart_upload(
                Bucket=place.bucket,
                Key=place.key,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
                IfNoneMatch="*",
            )
        except ClientError as error:
            if code_of(error) not in (*TAKEN, *_NO_UPLOAD):
                raise
            return False
        return True

    if requests.run("write", location, complete):
        return True
    found = writer_of(requests, location)
    if found is None:
        message = (
            f"Cannot write {location}: the storage lost parts of it that were sent. Check for a "
            "rule that removes unfinished uploads there, and run again."
        )
        raise DestinationError(message)
    return found == writer


def writer_of(requests: Requests, location: str) -> str | None:
    """Return the mark of an object's writer, '' if it has none; None if there is no object."""
    place = Place.of(location)

    def found(client: Any) -> str | None:
        try:
            head = client.head_object(Bucket=place.bucket, Key=place.key)
        except ClientError as error:
            if is_missing(error):
                return None
            raise
        return str(head["Metadata"].get(WRITER, ""))

    return requests.run("read", location, found)


def warn_left(requests: Requests, what: str, location: str, error: Exception) -> None:
    """Log that an upload or object cannot be removed now."""
    # A missing upload was completed or aborted, so nothing is left.
    if code_of(error) not in _NO_UPLOAD:
        summary = requests.access.masked(str(error))
        _LOGGER.warning("the %s %s stays until gc: %s", what, location, summary)


def checksum(data: bytes) -> str:
    """Return the checksum by which S3 verifies received bytes."""
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


RANGE_BYTES: Final = 256 * 1024**2
"""The size of every range but the last: the server responds within seconds. S3 allows 10,000."""
_RANGES_IN_FLIGHT: Final = 8
_NOT_IMPLEMENTED: Final = "NotImplemented"


@dataclass(frozen=True, slots=True)
class _ServerCopy:
    """A copy in progress: `tag` and `bytes` are the ETag and size of the source object."""

    requests: Requests
    location: str
    to: str
    tag: str
    bytes: int

    @property
    def named(self) -> dict[str, str]:
        """The copy's bucket and key, as request arguments."""
        place = Place.of(self.to)
        return {"Bucket": place.bucket, "Key": place.key}

    def begun(self, writer: str) -> str:
        """Start the copy; return the id of its upload."""
        begun = self.requests.run(
            "write",
            self.to,
            lambda client: client.create_multipart_upload(**self.named, Metadata={WRITER: writer}),
        )
        return str(begun["UploadId"])

    def part(self, upload: str, number: int, first: int) -> Mapping[str, Any] | None:
        """Copy a range; return None if the server does not implement copies."""
        place, last = Place.of(self.location), min(first + RANGE_BYTES, self.bytes) - 1

        def copy(client: Any) -> Mapping[str, Any] | None:
            try:
                made = client.upload_part_copy(
                    **self.named,
                    UploadId=upload,
                    PartNumber=number,
                    CopySource={"Bucket": place.bucket, "Key": place.key},
                    CopySourceIfMatch=self.tag,
                    CopySourceRange=f"bytes={first}-{last}",
                )
            except ClientError as error:
                if code_of(error) == _NOT_IMPLEMENTED:
                    return None
                if code_of(error) in TAKEN:
                    message = (
                        f"Cannot copy {self.location}: another object has taken its name "
                        "meanwhile. Run it again."
                    )
                    raise DestinationError(message) from error
                raise
            return {"PartNumber": number, "ETag": made["CopyPartResult"]["ETag"]}

        return self.requests.run("copy", self.location, copy)

    def parts(self, upload: str) -> list[Mapping[str, Any] | None]:
        """Copy all ranges; after a failure no other one is started or retried."""
        begins = range(0, self.bytes, RANGE_BYTES)
        numbers = range(1, len(begins) + 1)
        with ThreadPoolExecutor(_RANGES_IN_FLIGHT, thread_name_prefix="s3-copy") as senders:
            try:
                return list(senders.map(lambda n, b: self.part(upload, n, b), numbers, begins))
            except BaseException:
                self.requests.stopped.set()
                senders.shutdown(wait=False, cancel_futures=True)
                raise

    def abort(self, upload: str) -> None:
        """Abort the upload; a failed removal is left to `gc`."""
        try:
            self.requests.client.abort_multipart_upload(**self.named, UploadId=upload)
        except FAILURES as error:
            warn_left(self.requests, "upload", self.to, error)


def copied(requests: Requests, location: str, to: str) -> bool:
    """Copy an object to a new name; return False, and change nothing, if the server cannot copy.

    Args:
        requests: to the server that has both.
        location: of the object.
        to: the name of the copy.

    Raises:
        MissingError: the object does not exist.
        DestinationError: it cannot be copied, or another object has the name.
    """
    place, writer = Place.of(location), uuid.uuid4().hex
    head = requests.run(
        "read", location, lambda client: client.head_object(Bucket=place.bucket, Key=place.key)
    )
    size = int(head["ContentLength"])
    if not size:
        # An empty object has no range to copy.
        done = put_new(requests, to, b"", writer)
    else:
        own_requests = replace(requests, stopped=Event())
        server_copy = _ServerCopy(own_requests, location, to, head["ETag"], size)
        upload = server_copy.begun(writer)
        try:
            parts = [one for one in server_copy.parts(upload) if one is not None]
            if not parts:
                server_copy.abort(upload)
                return False
            done = complete_new(own_requests, to, upload, parts, writer)
        except BaseException:
            server_copy.abort(upload)
            raise
        if not done:
            server_copy.abort(upload)
    if not done:
        raise exists_error(to)
    return True


T = TypeVar("T")
_CHUNK: Final = 1024 * 1024


class S3Storage:
    """Objects in S3. Requests are retried while the server is down."""

    def __init__(self, access: S3Access) -> None:
        """Keep the settings; nothing is sent yet."""
        self._requests = Requests(access)

    @property
    def access(self) -> S3Access:
        """The settings of the storage."""
        return self._requests.access

    def create(self, location: str) -> FileSink:
        """Start a new object, which appears when the sink is committed."""
        return S3Sink(self._requests, location)

    def put(self, location: str, data: bytes) -> None:
        """Write a whole small object; an existing one is replaced."""
        place = Place.of(location)
        self._requests.run(
            "write",
            location,
            lambda client: client.put_object(
                Bucket=place.bucket, Key=place.key, Body=data, ChecksumCRC32=checksum(data)
            ),
        )

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """Write a whole small object; return False, and change nothing, if one exists."""
        return put_new(self._requests, location, data, uuid.uuid4().hex)

    def read(self, location: str) -> bytes:
        """Return a whole object."""
        return self._read(location, lambda body: bytes(body.read()))

    def list(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return the finished objects below a directory, at any depth, sorted."""
        place = Place.below(prefix)

        def listed(client: Any) -> tuple[StoredObject, ...]:
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=place.bucket, Prefix=place.key
            )
            # A page may be empty. Some tools mark directories by names that end with a slash.
            found = (one for page in pages for one in page.get("Contents", ()))
            files = (one for one in found if not one["Key"].endswith("/"))
            return tuple(
                sorted(StoredObject(place.location(one["Key"]), one["Size"]) for one in files)
            )

        return self._requests.run("list", prefix, listed)

    def list_unfinished(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return the unfinished uploads below a directory, of running and of ended writers."""
        place = Place.below(prefix)

        def listed(client: Any) -> tuple[StoredObject, ...]:
            begun = _unfinished_uploads(client, place)
            sizes = ((one, _size_of(client, place, one)) for one in begun)
            return tuple(
                sorted(StoredObject(place.location(one.name), size) for one, size in sizes)
            )

        return self._requests.run("list the begun uploads of", prefix, listed)

    def delete(self, location: str) -> None:
        """Remove an object, or abort an unfinished upload; a missing one counts as removed."""
        place = Place.of(location)
        begun = UnfinishedUpload.of(place.key)

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

        self._requests.run("delete", location, delete)

    def size(self, location: str) -> int:
        """Return an object's size in bytes."""
        place = Place.of(location)
        return self._requests.run(
            "read",
            location,
            lambda client: int(
                client.head_object(Bucket=place.bucket, Key=place.key)["ContentLength"]
            ),
        )

    def sha256(self, location: str) -> str:
        """Return the SHA-256 of an object's bytes."""

        def digested(body: Any) -> str:
            digest = hashlib.sha256()
            for chunk in body.iter_chunks(_CHUNK):
                digest.update(chunk)
            return digest.hexdigest()

        return self._read(location, digested)

    def fetch(self, location: str, into: Path) -> Path:
        """Download an object to a directory; return the copy's path."""

        def read(write: Callable[[Iterable[bytes]], Path]) -> Path:
            return self._read(location, lambda body: write(body.iter_chunks(_CHUNK)))

        return download(location, into, read)

    def copy(self, source: Storage, location: str, to: str) -> bool:
        """Copy an object inside the server, if it has the source with the same settings."""
        same = isinstance(source, S3Storage) and source.access == self.access
        return same and copied(self._requests, location, to)

    def free_bytes(self, location: str) -> int | None:  # noqa: ARG002  it is so everywhere
        """Return None: the store has no limit."""
        return None

    def _read(self, location: str, use: Callable[[Any], T]) -> T:
        """Apply `use` to an object's bytes; it restarts if the download breaks."""
        place = Place.of(location)

        def read(client: Any) -> T:
            response = client.get_object(Bucket=place.bucket, Key=place.key)
            # As a context manager, a body returns the raw stream, which verifies nothing.
            with contextlib.closing(response["Body"]) as body:
                return use(body)

        return self._requests.run("read", location, read)


def _unfinished_uploads(client: Any, place: Place) -> Iterator[UnfinishedUpload]:
    # Without a prefix: MinIO reads it as a whole key and returns nothing. MinIO does not list
    # uploads from before its last start; it removes them after a day.
    pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=place.bucket)
    for page in pages:
        for one in page.get("Uploads", ()):
            if one["Key"].startswith(place.key):
                yield UnfinishedUpload(one["Key"], one["UploadId"])


def _size_of(client: Any, place: Place, begun: UnfinishedUpload) -> int:
    pages = client.get_paginator("list_parts").paginate(
        Bucket=place.bucket, Key=begun.key, UploadId=begun.upload_id
    )
    try:
        return sum(part["Size"] for page in pages for part in page.get("Parts", ()))
    except ClientError as error:
        # The upload may end between the two requests.
        if code_of(error) != "NoSuchUpload":
            raise
        return 0
