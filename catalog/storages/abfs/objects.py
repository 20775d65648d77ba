"""Speaks to Azure Blob Storage, an object by one request of its REST API."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import parse_qsl, quote, unquote
from xml.etree import ElementTree as ET

from urllib3.response import BaseHTTPResponse

from catalog.storages.abfs.access import NAME, AbfsAccess
from catalog.storages.abfs.failures import AbfsRefusalError
from catalog.storages.abfs.signing import signed_by
from catalog.storages.over_http.client import Client, connections
from catalog.storages.over_http.failures import ChangedError
from catalog.storages.over_http.objects import Content
from catalog.storages.places import Place
from tableformat.errors import UsageError
from tableformat.storage import StoredObject

__all__ = ["AbfsObjects"]

_CHUNK: Final = 1024 * 1024
_WRITER: Final = "x-ms-meta-mergebergwriter"
_LIST: Final = {"restype": "container", "comp": "list"}


class AbfsObjects:
    """An `ObjectClient`. It stores only if there is no object: `If-None-Match: *`."""

    def __init__(self, access: AbfsAccess) -> None:
        """Prepare to speak to it; nothing is sent yet.

        Raises:
            UsageError: the authorities cannot be used.
        """
        pool = connections(NAME, access)
        self._sas = dict(parse_qsl(access.sas or "", keep_blank_values=True))
        self.http = Client(pool, access.endpoint, signed_by(access), AbfsRefusalError.of)

    def insert(self, place: Place, content: Content) -> None:
        """Store an object, in place of one that is there."""
        self._insert(place, content, {})

    def insert_new(self, place: Place, content: Content, writer: str) -> None:
        """Store an object with the mark of its writer; refused when there is one."""
        self._insert(place, content, {"If-None-Match": "*", _WRITER: writer})

    def writer(self, place: Place) -> str:
        """Return the mark of an object's writer, '' without one."""
        return self._known(place).get(_WRITER, "")

    def size(self, place: Place) -> int:
        """Return an object's bytes."""
        return int(self._known(place)["Content-Length"])

    @contextmanager
    def chunks(self, place: Place) -> Iterator[Iterator[bytes]]:
        """Open an object's bytes; at their end they are those that were stored."""
        with self.http.answer("GET", _object(place), query=self._sas) as answer:
            yield _compared(answer)

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
        self.http.ask("DELETE", _object(place), query=self._sas, headers=headers)

    def check_root(self, place: Place) -> None:
        """Fail when there is no such container."""
        self._page(place, {"maxresults": "1"})

    def _known(self, place: Place) -> Mapping[str, str]:
        return self.http.ask("HEAD", _object(place), query=self._sas)[0]

    def _page(self, place: Place, query: Mapping[str, str]) -> ET.Element:
        asked = {**self._sas, **_LIST, **query}
        _, data = self.http.ask("GET", _container(place), query=asked)
        try:
            # Of the store that the user named: entities of others are not loaded.
            return ET.fromstring(data)  # noqa: S314
        except ET.ParseError as error:
            raise AbfsRefusalError(200, "", data.decode("utf-8", "replace")) from error

    def _insert(self, place: Place, content: Content, more: Mapping[str, str]) -> None:
        self.http.ask(
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
        UsageError: the store takes it for another one.
    """
    if "\\" in place.key:
        message = (
            f"Cannot use {place.location(place.key)}: {NAME} takes a backslash for a slash. Name a "
            "location without one."
        )
        raise UsageError(message)
    return place.key


def _name(blob: ET.Element) -> str:
    """Return a blob's name; one with characters that XML does not have comes encoded."""
    name = blob.find("Name")
    text = (name.text or "") if name is not None else ""
    encoded = name is not None and name.get("Encoded", "").lower() == "true"
    return unquote(text) if encoded else text


def _is_directory(blob: ET.Element) -> bool:
    """Whether it is how a store with directories, or Hadoop, notes one of these."""
    noted = blob.findtext("Properties/ResourceType", "") == "directory"
    return noted or blob.findtext("Metadata/hdi_isfolder", "").lower() == "true"


def _compared(answer: BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the bytes of an object; at the end they are those that were stored.

    Raises:
        ChangedError: they are others.
    """
    said = answer.headers.get("Content-MD5")
    digest = hashlib.md5(usedforsecurity=False)
    for chunk in answer.stream(_CHUNK):
        digest.update(chunk)
        yield chunk
    # A blob that others stored in blocks has none; its length is compared in any case.
    if said and base64.b64decode(said) != digest.digest():
        raise ChangedError("its bytes are not those that were stored")
