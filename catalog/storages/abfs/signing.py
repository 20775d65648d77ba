"""Who asks Azure Blob Storage: the headers of a request, signed with the account's key or not.

The rule is Azure's "Authorize with Shared Key", for the versions of 2015 and later.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from email.utils import formatdate
from typing import Final
from urllib.parse import urlsplit

from catalog.storages.abfs.access import AbfsAccess
from catalog.storages.over_http.client import Signed

__all__ = ["VERSION", "signed_by"]

VERSION: Final = "2021-12-02"
_SIGNED: Final = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)


def signed_by(access: AbfsAccess) -> Signed:
    """Return what says who asks, for every request."""
    above = urlsplit(access.endpoint).path
    key = base64.b64decode(access.key) if access.key is not None else None

    def signed(
        method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Mapping[str, str]:
        own = {"x-ms-version": VERSION, "x-ms-date": formatdate(usegmt=True)}
        if access.token is not None:
            return {**own, "Authorization": f"Bearer {access.token}"}
        if key is None:
            # A shared access signature is in the query.
            return own
        resource = f"/{access.account}{above}{path}"
        text = _text(method, resource, query, {**headers, **own})
        digest = hmac.new(key, text.encode(), hashlib.sha256).digest()
        signature = base64.b64encode(digest).decode()
        return {**own, "Authorization": f"SharedKey {access.account}:{signature}"}

    return signed


def _text(method: str, resource: str, query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """Return the text that is signed."""
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    if lower.get("content-length") == "0":
        del lower["content-length"]
    ours = sorted((name, value) for name, value in lower.items() if name.startswith("x-ms-"))
    asked = sorted((name.lower(), value) for name, value in query.items())
    return "\n".join(
        (
            method,
            *(lower.get(name, "") for name in _SIGNED),
            *(f"{name}:{value}" for name, value in ours),
            resource,
            *(f"{name}:{value}" for name, value in asked),
        )
    )
