"""Where an object is: bucket and key of a location, which is taken literally; and begun uploads.

A begun upload has no name in S3 but its key and an id; here it has the one that a begun file has:

    s3://bucket/below/.name.<the id's bytes in hex>.inprogress
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from tableformat.errors import UsageError

__all__ = ["BegunUpload", "Place"]

_LOCATION: Final = re.compile(r"(?P<head>s3[an]?://)(?P<bucket>[^/]+)/(?P<key>.*)", re.DOTALL)
_BEGUN: Final = re.compile(
    r"(?P<below>.*/|)\.(?P<name>[^/]+)\.(?P<id>(?:[0-9a-f]{2})+)\.inprogress", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Place:
    """An object, or with a key that ends with a slash what lies below a directory."""

    head: str
    bucket: str
    key: str

    @classmethod
    def of(cls, location: str) -> Self:
        """Read a location.

        Raises:
            UsageError: it has no bucket or no key.
        """
        found = _LOCATION.fullmatch(location)
        if found is None:
            message = f"Cannot use {location}: it names no object. Write s3://BUCKET/KEY."
            raise UsageError(message)
        return cls(found["head"], found["bucket"], found["key"])

    @classmethod
    def below(cls, location: str) -> Self:
        """Read the location of a directory; a whole bucket is one, too.

        Raises:
            UsageError: it has no bucket.
        """
        return cls.of(f"{location.rstrip('/')}/")

    def location(self, key: str) -> str:
        """Return the location of another key of the bucket."""
        return f"{self.head}{self.bucket}/{key}"


@dataclass(frozen=True, slots=True)
class BegunUpload:
    """A multipart upload that was neither completed nor aborted."""

    key: str
    upload_id: str

    @property
    def name(self) -> str:
        """As a key beside that of the object."""
        below, slash, name = self.key.rpartition("/")
        return f"{below}{slash}.{name}.{self.upload_id.encode().hex()}.inprogress"

    @classmethod
    def of(cls, key: str) -> BegunUpload | None:
        """Return the upload that `name` names, None for the key of an object."""
        found = _BEGUN.fullmatch(key)
        if found is None:
            return None
        upload_id = bytes.fromhex(found["id"]).decode("utf-8", "replace")
        return cls(f"{found['below']}{found['name']}", upload_id)
