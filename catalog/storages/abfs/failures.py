"""What Azure Blob Storage answers where it does not do what was asked, and what to do then."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from catalog.storages.abfs.access import ENDPOINT, NAME
from catalog.storages.over_http.failures import NOBODY, RefusalError, Store

__all__ = ["STORE", "AbfsRefusalError"]

_BAD_REQUEST: Final = 400
_FORBIDDEN: Final = 403
_CONFLICT: Final = 409
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9]+)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)")
STORE: Final = Store(
    NAME,
    ENDPOINT,
    login="give adls.account-key, adls.sas-token or adls.token",
    advice={
        NOBODY: (
            "the credentials are wrong or have ended: get new ones, which a catalog that lends "
            "them does by itself; finished files are kept"
        ),
        _FORBIDDEN: (
            "grant reading, writing, deleting and listing of the container's blobs (Storage Blob "
            "Data Contributor, or a signature with the permissions racwdl)"
        ),
        404: "make the container, or correct the location",
        413: "write smaller files (--target-file-size): a file has at most 5,000 MiB there",
        501: "the server lacks what an export needs; use another one",
    },
)


class AbfsRefusalError(RefusalError):
    """An answer in Azure's form, or in none."""

    @classmethod
    def of(cls, status: int, headers: Mapping[str, str], body: bytes) -> AbfsRefusalError:
        """Read an answer; one that is not Azure's form of an error is its own text."""
        text = body.decode("utf-8", "replace")
        code, message = _CODE.search(text), _MESSAGE.search(text)
        reason = headers.get("x-ms-error-code") or (code[1] if code else "")
        return cls(status, reason, message[1] if message else text)

    @property
    def is_taken(self) -> bool:
        """Also by its own word for an object that was to be new."""
        is_there = self.status == _CONFLICT and self.reason == "BlobAlreadyExists"
        return is_there or super().is_taken

    @property
    def is_transient(self) -> bool:
        """Also when bytes changed on their way."""
        changed = self.status == _BAD_REQUEST and "md5" in str(self).lower()
        return changed or super().is_transient

    @property
    def is_of_nobody(self) -> bool:
        """Also when a key is wrong, or a signature has ended."""
        # Azure's reason is AuthenticationFailed; other servers have the text alone.
        wrong = self.status == _FORBIDDEN and "failed to authenticate" in str(self)
        return wrong or super().is_of_nobody
