"""Stores objects in Azure Blob Storage, one REST request for each object.

- `AbfsStorage` is a `tableformat.storage.Storage`. The location
  abfs[s]://CONTAINER@ACCOUNT.dfs.core.windows.net/NAME is literal; both schemes use https.
- A new object never replaces another one (`If-None-Match: *`).
- `AbfsRefusalError` classifies refusals of the service and gives the advice for each.
- `signed_by` returns the headers that authenticate a request. With an account key it signs as
  Azure's "Authorize with Shared Key" specifies, for service versions of 2015 and later.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.etree import ElementTree as ET

from catalog.storages.abfs.access import ENDPOINT, NAME, AbfsAccess
from catalog.storages.access import Place
from catalog.storages.over_http.requests import (
    UNAUTHORIZED,
    Client,
    Content,
    RefusalError,
    Requests,
    Signed,
    Store,
    connections,
    verified,
)
from catalog.storages.over_http.storage import ObjectStorage
from tableformat.errors import UsageError
from tableformat.messages import Option
from tableformat.storage import StoredObject

__all__ = [
    "STORE",
    "VERSION",
    "AbfsObjects",
    "AbfsRefusalError",
    "AbfsStorage",
    "requests_of",
    "signed_by",
]

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
        UNAUTHORIZED: (
            "the credentials are wrong or have expired: get new ones (a catalog that vends them "
            "renews them); finished files are kept"
        ),
        _FORBIDDEN: (
            "grant reading, writing, deleting and listing of the container's blobs (Storage Blob "
            "Data Contributor, or a signature with the permissions racwdl)"
        ),
        404: "create the container, or correct the location",
        413: f"write smaller files ({Option.TARGET_FILE_SIZE}): a file has at most 5,000 MiB there",
        501: "the server lacks what mergeberg needs; use another one",
    },
)


class AbfsRefusalError(RefusalError):
    """An error response, in Azure's form or another one."""

    @classmethod
    def of(cls, status: int, headers: Mapping[str, str], body: bytes) -> AbfsRefusalError:
        """Parse an error response; without Azure's form its body is the text."""
        text = body.decode("utf-8", "replace")
        code, message = _CODE.search(text), _MESSAGE.search(text)
        reason = headers.get("x-ms-error-code") or (code[1] if code else "")
        return cls(status, reason, message[1] if message else text)

    @property
    def is_taken(self) -> bool:
        """Also true for Azure's own code of an existing blob."""
        is_there = self.status == _CONFLICT and self.reason == "BlobAlreadyExists"
        return is_there or super().is_taken

    @property
    def is_transient(self) -> bool:
        """Also true for bytes that changed in transit."""
        changed = self.status == _BAD_REQUEST and "md5" in str(self).lower()
        return changed or super().is_transient

    @property
    def is_unauthenticated(self) -> bool:
        """Also true for a wrong key or an expired signature."""
        # Azure's reason is AuthenticationFailed; other servers send only the text.
        wrong = self.status == _FORBIDDEN and "failed to authenticate" in str(self)
        return wrong or super().is_unauthenticated


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
    """Return a function that computes the authentication headers of a request."""
    above = urlsplit(access.endpoint).path
    key = base64.b64decode(access.key) if access.key is not None else None

    def signed(
        method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Mapping[str, str]:
        azure_headers = {"x-ms-version": VERSION, "x-ms-date": formatdate(usegmt=True)}
        if access.token is not None:
            return {**azure_headers, "Authorization": f"Bearer {access.token}"}
        if key is None:
            # A shared access signature is in the query.
            return azure_headers
        resource = f"/{access.account}{above}{path}"
        text = _text(method, resource, query, {**headers, **azure_headers})
        digest = hmac.new(key, text.encode(), hashlib.sha256).digest()
        signature = base64.b64encode(digest).decode()
        return {**azure_headers, "Authorization": f"SharedKey {access.account}:{signature}"}

    return signed


def _text(method: str, resource: str, query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """Return the text to sign."""
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    if lower.get("content-length") == "0":
        del lower["content-length"]
    azure_headers = sorted(
        (name, value) for name, value in lower.items() if name.startswith("x-ms-")
    )
    parameters = sorted((name.lower(), value) for name, value in query.items())
    return "\n".join(
        (
            method,
            *(lower.get(name, "") for name in _SIGNED),
            *(f"{name}:{value}" for name, value in azure_headers),
            resource,
            *(f"{name}:{value}" for name, value in parameters),
        )
    )


_WRITER: Final = "x-ms-meta-mergebergwriter"
_LIST: Final = {"restype": "container", "comp": "list"}


class AbfsObjects:
    """An `ObjectClient`. A new object is stored only if none exists: `If-None-Match: *`."""

    def __init__(self, access: AbfsAccess) -> None:
        """Create the client; nothing is sent yet.

        Raises:
            UsageError: the authorities cannot be used.
        """
        pool = connections(NAME, access)
        self._sas = dict(parse_qsl(access.sas or "", keep_blank_values=True))
        signed = signed_by(access)
        self.http = Client(pool, access.endpoint, signed, AbfsRefusalError.of, mark="x-ms-")

    def insert(self, place: Place, content: Content) -> None:
        """Store an object; an existing one is replaced."""
        self._insert(place, content, {})

    def insert_new(self, place: Place, content: Content, writer: str) -> None:
        """Store an object with its writer's mark; refused if one exists."""
        self._insert(place, content, {"If-None-Match": "*", _WRITER: writer})

    def writer(self, place: Place) -> str:
        """Return the mark of an object's writer, '' if it has none."""
        return self._metadata(place).get(_WRITER, "")

    def size(self, place: Place) -> int:
        """Return an object's size in bytes."""
        return int(self._metadata(place)["Content-Length"])

    @contextmanager
    def chunks(self, place: Place) -> Iterator[Iterator[bytes]]:
        """Open an object's bytes, which are verified at the end."""
        with self.http.open_response("GET", _object(place), query=self._sas) as response:
            # A blob that was stored in blocks has no MD5.
            yield verified(response, response.headers.get("Content-MD5"))

    def below(self, place: Place) -> Iterator[StoredObject]:
        """Yield the objects below a directory."""
        query = {"prefix": _key(place), "include": "metadata"}
        while True:
            page = self._page(place, query)
            for one in page.iterfind("Blobs/Blob"):
                if not _is_directory(one):
                    size = int(one.findtext("Properties/Content-Length", ""))
                    yield StoredObject(place.location(_name(one)), size)
            marker = page.findtext("NextMarker", "")
            if not marker:
                return
            query["marker"] = marker

    def remove(self, place: Place) -> None:
        """Remove an object."""
        headers = {"x-ms-delete-snapshots": "include"}
        self.http.request("DELETE", _object(place), query=self._sas, headers=headers)

    def check_root(self, place: Place) -> None:
        """Raise if the container does not exist."""
        self._page(place, {"maxresults": "1"})

    def _metadata(self, place: Place) -> Mapping[str, str]:
        return self.http.request("HEAD", _object(place), query=self._sas)[0]

    def _page(self, place: Place, query: Mapping[str, str]) -> ET.Element:
        parameters = {**self._sas, **_LIST, **query}
        _, data = self.http.request("GET", _container(place), query=parameters)
        try:
            # The store is the user's own, and the parser loads no external entities.
            return ET.fromstring(data)  # noqa: S314
        except ET.ParseError as error:
            raise AbfsRefusalError(200, "", data.decode("utf-8", "replace")) from error

    def _insert(self, place: Place, content: Content, more: Mapping[str, str]) -> None:
        self.http.request(
            "PUT",
            _object(place),
            query=self._sas,
            headers={
                "x-ms-blob-type": "BlockBlob",
                "Content-Type": "application/octet-stream",
                "Content-Length": str(content.size),
                "Content-MD5": content.md5,
                **more,
            },
            body=content.pieces(),
        )


def _container(place: Place) -> str:
    return f"/{quote(place.bucket.partition('@')[0], safe='')}"


def _object(place: Place) -> str:
    return f"{_container(place)}/{quote(_key(place), safe='/')}"


def _key(place: Place) -> str:
    """Return the name of a place.

    Raises:
        UsageError: the store would read it as another name.
    """
    if "\\" in place.key:
        message = (
            f"Cannot use {place.location(place.key)}: {NAME} treats a backslash as a slash. Name a "
            "location without one."
        )
        raise UsageError(message)
    return place.key


def _name(blob: ET.Element) -> str:
    """Return a blob's name; characters that XML lacks are encoded."""
    name = blob.find("Name")
    text = (name.text or "") if name is not None else ""
    encoded = name is not None and name.get("Encoded", "").lower() == "true"
    return unquote(text) if encoded else text


def _is_directory(blob: ET.Element) -> bool:
    """Whether the blob marks a directory of a hierarchical store, or of Hadoop."""
    noted = blob.findtext("Properties/ResourceType", "") == "directory"
    return noted or blob.findtext("Metadata/hdi_isfolder", "").lower() == "true"


class AbfsStorage(ObjectStorage):
    """Blobs in containers. Requests are retried while the server is down."""

    def __init__(self, access: AbfsAccess) -> None:
        """Keep the settings; nothing is sent yet."""
        super().__init__(requests_of(access))


def requests_of(access: AbfsAccess) -> Requests:
    """Return the requests of these settings."""
    return Requests(access, STORE, AbfsObjects)
