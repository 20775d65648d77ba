"""Lets S3 copy an object: its bytes stay with the server.

It is copied in ranges, several at a time, also where one is enough: the request that completes them
is conditional with every server, which the one that copies a whole object is not. No object is
replaced, and no other version than the one that was looked at is copied. What is begun is found as
what `sink.py` begins, and carries the same mark.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Final

from botocore.exceptions import ClientError

from catalog.storages.given import taken
from catalog.storages.places import Place
from catalog.storages.s3.failures import FAILURES, code_of
from catalog.storages.s3.requests import Requests
from catalog.storages.s3.sink import TAKEN, WRITER, complete_new, put_new, tell_left
from tableformat.errors import DestinationError

__all__ = ["RANGE_BYTES", "copied"]

RANGE_BYTES: Final = 256 * 1024**2
"""Of every range but the last, so that each is answered within seconds: S3 takes 10,000 of them."""
_AT_ONCE: Final = 8
_COPIES_NONE: Final = "NotImplemented"


@dataclass(frozen=True, slots=True)
class _Copying:
    """A copy that is being made: `tag` and `bytes` are those of the object as it was looked at."""

    requests: Requests
    location: str
    to: str
    tag: str
    bytes: int

    @property
    def named(self) -> dict[str, str]:
        """The copy, as requests name it."""
        place = Place.of(self.to)
        return {"Bucket": place.bucket, "Key": place.key}

    def begun(self, writer: str) -> str:
        """Begin the copy; return the id of its upload."""
        begun = self.requests.ask(
            "write",
            self.to,
            lambda client: client.create_multipart_upload(**self.named, Metadata={WRITER: writer}),
        )
        return str(begun["UploadId"])

    def part(self, upload: str, number: int, first: int) -> Mapping[str, Any] | None:
        """Copy a range; None when the server copies none."""
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
                if code_of(error) == _COPIES_NONE:
                    return None
                if code_of(error) in TAKEN:
                    message = (
                        f"Cannot copy {self.location}: another object has its name since it was "
                        "looked at. Run the command again."
                    )
                    raise DestinationError(message) from error
                raise
            return {"PartNumber": number, "ETag": made["CopyPartResult"]["ETag"]}

        return self.requests.ask("copy", self.location, copy)

    def parts(self, upload: str) -> list[Mapping[str, Any] | None]:
        """Copy all ranges; after the first that fails no other one is begun or tried again."""
        begins = range(0, self.bytes, RANGE_BYTES)
        numbers = range(1, len(begins) + 1)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="s3-copy") as senders:
            try:
                return list(senders.map(lambda n, b: self.part(upload, n, b), numbers, begins))
            except BaseException:
                self.requests.stopped.set()
                senders.shutdown(wait=False, cancel_futures=True)
                raise

    def give_up(self, upload: str) -> None:
        """Abort the upload; one that cannot be removed now is left to `gc`."""
        try:
            self.requests.client.abort_multipart_upload(**self.named, UploadId=upload)
        except FAILURES as error:
            tell_left(self.requests, "upload", self.to, error)


def copied(requests: Requests, location: str, to: str) -> bool:
    """Copy an object under a new name; false, and nothing is done, when the server copies none.

    Args:
        requests: to the server that has both.
        location: of the object.
        to: the name of the copy.

    Raises:
        MissingError: there is no such object.
        DestinationError: it cannot be copied, or another object has the name.
    """
    place, writer = Place.of(location), uuid.uuid4().hex
    head = requests.ask(
        "read", location, lambda client: client.head_object(Bucket=place.bucket, Key=place.key)
    )
    size = int(head["ContentLength"])
    if not size:
        # There is no range of it.
        done = put_new(requests, to, b"", writer)
    else:
        asking = replace(requests, stopped=Event())
        copying = _Copying(asking, location, to, head["ETag"], size)
        upload = copying.begun(writer)
        try:
            parts = [one for one in copying.parts(upload) if one is not None]
            if not parts:
                copying.give_up(upload)
                return False
            done = complete_new(asking, to, upload, parts, writer)
        except BaseException:
            copying.give_up(upload)
            raise
        if not done:
            copying.give_up(upload)
    if not done:
        raise taken(to)
    return True
