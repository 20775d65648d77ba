"""Writes one S3 object: a small one with one request, a large one as a multipart upload.

- S3 shows the object after the one request, or after the request that completes the parts; never
  before, and never a part.
- That request is conditional: it replaces no object.
- The response may be lost, so an existing object may be our own. The object carries its writer's
  mark, and the mark decides.
- Only a few parts are in flight, and in memory, at a time.
- S3 identifies an unfinished upload by key and id only. `UnfinishedUpload` names it like an
  unfinished file:

    s3://bucket/below/.name.<the id's bytes in hex>.inprogress
"""

from __future__ import annotations

import base64
import logging
import re
import uuid
import zlib
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Final

from botocore.exceptions import ClientError

from catalog.storages.access import Place, exists_error
from catalog.storages.s3.requests import FAILURES, Requests, code_of, is_missing
from tableformat.errors import DestinationError

__all__ = [
    "PART_BYTES",
    "TAKEN",
    "WRITER",
    "Place",
    "S3Sink",
    "UnfinishedUpload",
    "checksum",
    "complete_new",
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
            f"Cannot write {location}: the storage lost what was sent of it. Look for "
            "what removes begun uploads there, and run again."
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
