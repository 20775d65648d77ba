"""Stores objects in Google Cloud Storage, one JSON API request for each object.

- `GsStorage` is a `tableformat.storage.Storage`; the location gs://bucket/name is literal.
- A new object never replaces another one (`ifGenerationMatch=0`).
- `GsRefusalError` classifies refusals of the service and gives the advice for each.
- `login_of` returns the credentials: a given token, none, or those that Google's library finds.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from urllib3 import PoolManager
from urllib3.response import BaseHTTPResponse

from catalog.storages.access import Place
from catalog.storages.gs.access import ENDPOINT, NAME, GsAccess
from catalog.storages.over_http.requests import (
    NOBODY,
    ChangedError,
    Client,
    Content,
    RefusalError,
    Requests,
    Store,
    connections,
)
from catalog.storages.over_http.storage import ObjectStorage
from tableformat.errors import UnsupportedError
from tableformat.storage import StoredObject

__all__ = ["STORE", "GsObjects", "GsRefusalError", "GsStorage", "Login", "login_of", "requests_of"]

_BAD_REQUEST: Final = 400
_RATE: Final = ("rateLimitExceeded", "userRateLimitExceeded")
STORE: Final = Store(
    NAME,
    ENDPOINT,
    login=(
        "give a token (gcs.oauth2.token), or name a file of credentials in "
        "GOOGLE_APPLICATION_CREDENTIALS"
    ),
    advice={
        NOBODY: (
            "the credentials are wrong or have ended: get new ones, which a catalog that lends "
            "them does by itself; finished files are kept"
        ),
        403: (
            "grant storage.objects.list, storage.objects.get, storage.objects.create and "
            "storage.objects.delete on the bucket (roles/storage.objectUser has them)"
        ),
        404: "make the bucket, or correct the location",
        501: "the server lacks what an export needs; use another one",
    },
)


class GsRefusalError(RefusalError):
    """An answer in Google's form, or in none."""

    @classmethod
    def of(cls, status: int, _headers: Mapping[str, str], body: bytes) -> GsRefusalError:
        """Read an answer; one that is not Google's form of an error is its own text."""
        reason, text = "", body.decode("utf-8", "replace")
        try:
            found: Any = json.loads(body)["error"]
            text = str(found["message"])
            reason = str(found["errors"][0]["reason"])
        except (ValueError, KeyError, IndexError, TypeError):
            pass
        return cls(status, reason, text)

    @property
    def is_transient(self) -> bool:
        """Also when there were too many requests, or when bytes changed on their way."""
        changed = self.status == _BAD_REQUEST and "MD5" in str(self)
        return super().is_transient or changed or self.reason in _RATE


Login = Callable[[], Mapping[str, str]]
"""Returns the headers of a request, which say who asks; it may ask for a new token before."""


def login_of(access: GsAccess, pool: PoolManager) -> Login:
    """Return who asks.

    Args:
        access: what is known of it.
        pool: connections, for asking for tokens.

    Raises:
        UnsupportedError: Google's library is needed, and is not installed.
    """
    if access.token is not None:
        headers = {"Authorization": f"Bearer {access.token}"}
        return lambda: headers
    if access.is_anonymous:
        return dict
    try:
        from catalog.storages.gs.google_login import GoogleLogin
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "google":
            raise
        message = (
            "Cannot log in to Google Cloud Storage: google-auth is not installed. Run: pip install "
            "'mergeberg[gs]', on every host that writes, or give a token (gcs.oauth2.token)."
        )
        raise UnsupportedError(message) from error
    return GoogleLogin(access.key, pool)


_CHUNK: Final = 1024 * 1024
_MD5: Final = re.compile(r"md5=([A-Za-z0-9+/=]+)")
_WRITER: Final = "mergeberg-writer"


class GsObjects:
    """An `ObjectClient`. It stores only if there is no object: `ifGenerationMatch=0`."""

    def __init__(self, access: GsAccess) -> None:
        """Prepare to speak to it; nothing is sent yet.

        Raises:
            UsageError: the authorities cannot be used.
            UnsupportedError: Google's library is needed, and is not installed.
        """
        pool = connections(NAME, access)
        login = login_of(access, pool)
        self.http = Client(pool, access.endpoint, lambda *_: login(), GsRefusalError.of)

    def insert(self, place: Place, content: Content) -> None:
        """Store an object, in place of one that is there."""
        self._insert(place, content, {}, {})

    def insert_new(self, place: Place, content: Content, writer: str) -> None:
        """Store an object with the mark of its writer; refused when there is one."""
        self._insert(place, content, {"ifGenerationMatch": "0"}, {_WRITER: writer})

    def writer(self, place: Place) -> str:
        """Return the mark of an object's writer, '' without one."""
        known = self._document("GET", _object(place), {"fields": "metadata"})
        return str(known.get("metadata", {}).get(_WRITER, ""))

    def size(self, place: Place) -> int:
        """Return an object's bytes."""
        return int(self._document("GET", _object(place), {"fields": "size"})["size"])

    @contextmanager
    def chunks(self, place: Place) -> Iterator[Iterator[bytes]]:
        """Open an object's bytes; at their end they are those that were stored."""
        with self.http.answer("GET", _object(place), query={"alt": "media"}) as answer:
            yield _compared(answer)

    def below(self, place: Place) -> Iterator[StoredObject]:
        """Yield the objects below a directory."""
        query = {"prefix": place.key, "fields": "items(name,size),nextPageToken"}
        while True:
            page = self._document("GET", _bucket(place), query)
            for one in page.get("items", ()):
                # What ends with a slash is how some tools mark a directory.
                if not one["name"].endswith("/"):
                    yield StoredObject(place.location(one["name"]), int(one["size"]))
            if not page.get("nextPageToken"):
                return
            query["pageToken"] = page["nextPageToken"]

    def remove(self, place: Place) -> None:
        """Remove an object."""
        self._document("DELETE", _object(place))

    def check_root(self, place: Place) -> None:
        """Fail when there is no such bucket."""
        self._document("GET", _bucket(place), {"maxResults": "1", "fields": "items(name)"})

    def _document(
        self, method: str, path: str, query: Mapping[str, str] | None = None, **more: Any
    ) -> Mapping[str, Any]:
        _, data = self.http.ask(method, path, query=query, **more)
        try:
            found: Mapping[str, Any] | None = json.loads(data or b"{}")
        except ValueError as error:
            raise GsRefusalError(200, "", data.decode("utf-8", "replace")) from error
        return found or {}

    def _insert(
        self, place: Place, content: Content, query: dict[str, str], marks: dict[str, str]
    ) -> None:
        """Send an object as a document of two parts: what is to be known of it, and its bytes."""
        boundary = uuid.uuid4().hex
        known = json.dumps({"name": place.key, "md5Hash": content.md5, "metadata": marks})
        head = (
            f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{known}\r\n"
            f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
        ).encode()
        tail = f"\r\n--{boundary}--\r\n".encode()

        def body() -> Iterator[bytes]:
            yield head
            yield from content.pieces()
            yield tail

        self._document(
            "POST",
            f"/upload{_bucket(place)}",
            {"uploadType": "multipart", "fields": "generation", **query},
            headers={
                "Content-Type": f"multipart/related; boundary={boundary}",
                "Content-Length": str(len(head) + content.size + len(tail)),
            },
            body=body(),
        )


def _bucket(place: Place) -> str:
    return f"/storage/v1/b/{quote(place.bucket, safe='')}/o"


def _object(place: Place) -> str:
    return f"{_bucket(place)}/{quote(place.key, safe='')}"


def _compared(answer: BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the bytes of an object; at the end they are those that were stored.

    Raises:
        ChangedError: they are others.
    """
    said = _MD5.search(answer.headers.get("X-Goog-Hash", ""))
    digest = hashlib.md5(usedforsecurity=False)
    for chunk in answer.stream(_CHUNK):
        digest.update(chunk)
        yield chunk
    # An object that others composed of several has none; its length is compared in any case.
    if said is not None and base64.b64decode(said[1]) != digest.digest():
        raise ChangedError("its bytes are not those that were stored")


class GsStorage(ObjectStorage):
    """Objects in buckets. A request goes on while the server is away, as long as `access` says."""

    def __init__(self, access: GsAccess) -> None:
        """Remember how to reach it; nothing is asked yet."""
        super().__init__(requests_of(access))


def requests_of(access: GsAccess) -> Requests:
    """Return what asks it."""
    return Requests(access, STORE, GsObjects)
