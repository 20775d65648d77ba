"""Stores objects in Google Cloud Storage, one JSON API request for each object.

- `GsStorage` is a `tableformat.storage.Storage`; the location gs://bucket/name is literal.
- A new object never replaces another one (`ifGenerationMatch=0`).
- `GsRefusalError` classifies refusals of the service and gives the advice for each.
- `login_of` returns the credentials: a given token, none, or those that Google's library finds.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from urllib3 import PoolManager

from catalog.storages.access import Place
from catalog.storages.gs.access import ENDPOINT, NAME, GsAccess
from catalog.storages.over_http.requests import (
    UNAUTHORIZED,
    Client,
    Content,
    RefusalError,
    Requests,
    Store,
    check_is_stores,
    connections,
    verified,
)
from catalog.storages.over_http.storage import ObjectStorage
from tableformat.errors import UnsupportedError
from tableformat.storage import StoredObject

__all__ = ["STORE", "GsObjects", "GsRefusalError", "GsStorage", "Login", "login_of", "requests_of"]

_BAD_REQUEST: Final = 400
_RATE_LIMITS: Final = ("rateLimitExceeded", "userRateLimitExceeded")
STORE: Final = Store(
    NAME,
    ENDPOINT,
    login=(
        "give a token (gcs.oauth2.token), or name a file of credentials in "
        "GOOGLE_APPLICATION_CREDENTIALS"
    ),
    advice={
        UNAUTHORIZED: (
            "the credentials are wrong or have expired: get new ones (a catalog that vends them "
            "renews them); finished files are kept"
        ),
        403: (
            "grant storage.objects.list, storage.objects.get, storage.objects.create and "
            "storage.objects.delete on the bucket (roles/storage.objectUser has them)"
        ),
        404: "create the bucket, or correct the location",
        501: "the server lacks what mergeberg needs; use another one",
    },
)


class GsRefusalError(RefusalError):
    """An error response, in Google's form or another one."""

    @classmethod
    def of(cls, status: int, _headers: Mapping[str, str], body: bytes) -> GsRefusalError:
        """Parse an error response; without Google's form its body is the text."""
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
        """Also true for rate limits, and for bytes that changed in transit."""
        changed = self.status == _BAD_REQUEST and "MD5" in str(self)
        return super().is_transient or changed or self.reason in _RATE_LIMITS


Login = Callable[[], Mapping[str, str]]
"""Returns a request's authentication headers; it may request a new token first."""


def login_of(access: GsAccess, pool: PoolManager) -> Login:
    """Return the login for these settings.

    Args:
        access: the credentials.
        pool: connections for requesting tokens.

    Raises:
        UnsupportedError: Google's library is needed and not installed.
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


_MD5: Final = re.compile(r"md5=([A-Za-z0-9+/=]+)")
_WRITER: Final = "mergeberg-writer"


class GsObjects:
    """An `ObjectClient`. A new object is stored only if none exists: `ifGenerationMatch=0`."""

    def __init__(self, access: GsAccess) -> None:
        """Create the client; nothing is sent yet.

        Raises:
            UsageError: the authorities cannot be used.
            UnsupportedError: Google's library is needed and not installed.
        """
        pool = connections(NAME, access)
        login = login_of(access, pool)
        self.http = Client(pool, access.endpoint, lambda *_: login(), GsRefusalError.of)

    def insert(self, place: Place, content: Content) -> None:
        """Store an object; an existing one is replaced."""
        self._insert(place, content, {}, {})

    def insert_new(self, place: Place, content: Content, writer: str) -> None:
        """Store an object with its writer's mark; refused if one exists."""
        self._insert(place, content, {"ifGenerationMatch": "0"}, {_WRITER: writer})

    def writer(self, place: Place) -> str:
        """Return the mark of an object's writer, '' if it has none."""
        metadata = self._document("GET", _object(place), {"fields": "metadata"})
        return str(metadata.get("metadata", {}).get(_WRITER, ""))

    def size(self, place: Place) -> int:
        """Return an object's size in bytes."""
        return int(self._document("GET", _object(place), {"fields": "size"})["size"])

    @contextmanager
    def chunks(self, place: Place) -> Iterator[Iterator[bytes]]:
        """Open an object's bytes, which are verified at the end."""
        with self.http.open_response("GET", _object(place), query={"alt": "media"}) as response:
            check_is_stores(response, "x-goog-")
            # A composed object has no MD5.
            md5 = _MD5.search(response.headers.get("X-Goog-Hash", ""))
            yield verified(response, md5[1] if md5 else None)

    def below(self, place: Place) -> Iterator[StoredObject]:
        """Yield the objects below a directory."""
        query = {"prefix": place.key, "fields": "items(name,size),nextPageToken"}
        while True:
            page = self._document("GET", _bucket(place), query)
            for one in page.get("items", ()):
                # Some tools mark directories by names that end with a slash.
                if not one["name"].endswith("/"):
                    yield StoredObject(place.location(one["name"]), int(one["size"]))
            if not page.get("nextPageToken"):
                return
            query["pageToken"] = page["nextPageToken"]

    def remove(self, place: Place) -> None:
        """Remove an object."""
        self._document("DELETE", _object(place))

    def check_root(self, place: Place) -> None:
        """Raise if the bucket does not exist."""
        self._document("GET", _bucket(place), {"maxResults": "1", "fields": "items(name)"})

    def _document(
        self, method: str, path: str, query: Mapping[str, str] | None = None, **more: Any
    ) -> Mapping[str, Any]:
        _, data = self.http.request(method, path, query=query, **more)
        try:
            found: Mapping[str, Any] | None = json.loads(data or b"{}")
        except ValueError as error:
            raise GsRefusalError(200, "", data.decode("utf-8", "replace")) from error
        return found or {}

    def _insert(
        self, place: Place, content: Content, query: dict[str, str], marks: dict[str, str]
    ) -> None:
        """Send an object as a multipart document: its metadata, and its bytes."""
        boundary = uuid.uuid4().hex
        metadata = json.dumps({"name": place.key, "md5Hash": content.md5, "metadata": marks})
        head = (
            f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{metadata}\r\n"
            f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
        ).encode()
        tail = f"\r\n--{boundary}--\r\n".encode()

        def body() -> Iterator[bytes]:
            yield head
            yield from content.pieces()
            yield tail

        stored = self._document(
            "POST",
            f"/upload{_bucket(place)}",
            {"uploadType": "multipart", "fields": "generation", **query},
            headers={
                "Content-Type": f"multipart/related; boundary={boundary}",
                "Content-Length": str(len(head) + content.size + len(tail)),
            },
            body=body(),
        )
        if "generation" not in stored:
            raise GsRefusalError(200, "", f"the response to an upload is {json.dumps(stored)}")


def _bucket(place: Place) -> str:
    return f"/storage/v1/b/{quote(place.bucket, safe='')}/o"


def _object(place: Place) -> str:
    return f"{_bucket(place)}/{quote(place.key, safe='')}"


class GsStorage(ObjectStorage):
    """Objects in buckets. Requests are retried while the server is down."""

    def __init__(self, access: GsAccess) -> None:
        """Keep the settings; nothing is sent yet."""
        super().__init__(requests_of(access))


def requests_of(access: GsAccess) -> Requests:
    """Return the requests of these settings."""
    return Requests(access, STORE, GsObjects)
