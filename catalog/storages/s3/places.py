"""Where an object is, and how a begun upload is named.

A begun upload has no name in S3 but its key and an id; here it has the one that a begun file has:

    s3://bucket/below/.name.<the id's bytes in hex>.inprogress
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from catalog.storages.places import Place

__all__ = ["BegunUpload", "Place"]

_BEGUN: Final = re.compile(
    r"(?P<below>.*/|)\.(?P<name>[^/]+)\.(?P<id>(?:[0-9a-f]{2})+)\.inprogress", re.DOTALL
)


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
