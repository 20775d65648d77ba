"""Stores files in HDFS over WebHDFS: a file is written under a hidden name, then renamed.

- `HdfsStorage` is a `tableformat.storage.Storage`; the location hdfs://host:port/path is
  literal.
- The rename decides. With `renameoptions=NONE` the NameNode refuses it if the name exists, and
  it is one atomic operation.
- The response to the rename may be lost. The file therefore carries its writer's mark, as an
  extended attribute that is set before the rename.
- A hidden name is used once: a late rename finds the whole file or none.
- Rows go to and come from a DataNode that the NameNode names (`noredirect=true`). Redirects are
  not followed automatically, because one to http would go unnoticed.

Rules: Hadoop's page "WebHDFS REST API".
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

from catalog.network import is_in_clear
from catalog.storages.access import Place
from catalog.storages.hdfs.access import ENDPOINT, NAME, TOKEN, USER, HdfsAccess
from catalog.storages.over_http.requests import (
    FAILURES,
    UNAUTHORIZED,
    ChangedError,
    Client,
    Content,
    ForeignResponseError,
    RefusalError,
    Requests,
    Store,
    connections,
    error_text,
)
from catalog.storages.over_http.storage import ObjectStorage
from tableformat.errors import UsageError
from tableformat.storage import StoredObject

__all__ = [
    "IN_CLEAR",
    "IN_PROGRESS",
    "MISSING",
    "NO_OPTIONS",
    "OTHER_CLUSTER",
    "STORE",
    "HdfsObjects",
    "HdfsRefusalError",
    "HdfsStorage",
    "requests_of",
]

MISSING: Final = "FileNotFoundException"
IN_CLEAR: Final = 307
OTHER_CLUSTER: Final = 421
NO_OPTIONS: Final = 501
_DENIED: Final = "AccessControlException"
_TAKEN: Final = "FileAlreadyExistsException"
# A NameNode without DataNodes, or one that shuts down, raises a plain IOException.
_OUTAGE_ERRORS: Final = (
    "IOException",
    "RetriableException",
    "SafeModeException",
    "StandbyException",
    "ServerNotActiveException",
)
_LOGIN_ERRORS: Final = ("InvalidToken", "SecurityException", "AuthenticationException")
STORE: Final = Store(
    NAME,
    ENDPOINT,
    login=f"name a user ({USER}), or give a delegation token ({TOKEN})",
    advice={
        IN_CLEAR: (
            "let the DataNodes serve https (dfs.http.policy: HTTPS_ONLY), as the NameNode does"
        ),
        400: (
            "use names without a colon, and let the NameNode keep extended attributes "
            "(dfs.namenode.xattrs.enabled)"
        ),
        UNAUTHORIZED: (
            "the cluster does not accept the user: give a delegation token that has not expired "
            f"(hdfs fetchdt, {TOKEN}); mergeberg does not speak Kerberos itself; finished files "
            "are kept"
        ),
        403: (
            "let the user read, write and enter the directory (hdfs dfs -chown, -chmod or "
            "-setfacl), and see to its quota"
        ),
        404: f"check that {ENDPOINT} is where the NameNode serves WebHDFS",
        NO_OPTIONS: (
            f"name the NameNode itself as {ENDPOINT}: a gateway, as HttpFS, replaces files, or "
            "leaves them as they were, silently"
        ),
        OTHER_CLUSTER: f"correct the location, or {ENDPOINT}",
    },
)


class HdfsRefusalError(RefusalError):
    """An error response, in the form of WebHDFS or another one.

    `reason` is the Java exception's class.
    """

    @classmethod
    def of(cls, status: int, _headers: Mapping[str, str], body: bytes) -> HdfsRefusalError:
        """Parse an error response; without WebHDFS's form its body is the text."""
        reason, text = "", body.decode("utf-8", "replace")
        try:
            found: Any = json.loads(body)["RemoteException"]
            # The lines after the first are a Java stack trace.
            reason, text = str(found["exception"]), str(found["message"]).partition("\n")[0]
        except (ValueError, KeyError, TypeError):
            pass
        return cls(status, reason, text)

    @property
    def is_missing(self) -> bool:
        """Whether WebHDFS reports a missing file; a 404 of another server does not count."""
        return self.reason == MISSING

    @property
    def is_taken(self) -> bool:
        """Whether a file of that name exists."""
        return self.reason == _TAKEN

    @property
    def is_transient(self) -> bool:
        """Also true for a standby NameNode, one in safe mode, or one without DataNodes."""
        return super().is_transient or self.reason in _OUTAGE_ERRORS

    @property
    def is_unauthenticated(self) -> bool:
        """Also true for an expired token."""
        return super().is_unauthenticated or self.reason in _LOGIN_ERRORS

    @property
    def is_denied(self) -> bool:
        """Whether the user lacks a permission; status 403 is also that of a quota."""
        return self.reason == _DENIED


IN_PROGRESS: Final = ".inprogress"
"""The suffix of hidden names; they also begin with a dot."""
_CHUNK: Final = 1024 * 1024
_WRITER: Final = "user.mergeberg-writer"
_RPC_PORT: Final = 8020
_LOGGER: Final = logging.getLogger(__name__)


class HdfsObjects:
    """An `ObjectClient`.

    A new file is stored only if none exists, by a rename that replaces none.
    """

    def __init__(self, access: HdfsAccess) -> None:
        """Create the client; nothing is sent yet.

        Raises:
            UsageError: the authorities cannot be used.
        """
        self.pool = connections(NAME, access)
        self._access, self._known = access, set[str]()
        self._names = _client(self, access.endpoint)

    def insert(self, place: Place, content: Content) -> None:
        """Store a file; an existing one is replaced."""
        self._insert(place, content, "OVERWRITE", "")

    def insert_new(self, place: Place, content: Content, writer: str) -> None:
        """Store a file with its writer's mark; refused if one exists."""
        self._insert(place, content, "NONE", writer)

    def writer(self, place: Place) -> str:
        """Return the mark of a file's writer, '' if it has none."""
        found = self._request("GET", place, "GETXATTRS", encoding="text")["XAttrs"]
        marks = (one["value"].strip('"') for one in found if one["name"] == _WRITER)
        return next(marks, "")

    def size(self, place: Place) -> int:
        """Return a file's size in bytes."""
        found = self._request("GET", place, "GETFILESTATUS")["FileStatus"]
        if found["type"] != "FILE":
            raise HdfsRefusalError(404, MISSING, f"{place.key} is a directory")
        return int(found["length"])

    @contextmanager
    def chunks(self, place: Place) -> Iterator[Iterator[bytes]]:
        """Open a file's bytes, which the DataNode verifies by its checksums."""
        rows, path = self._data_node("GET", place, "OPEN")
        with rows.open_response("GET", path) as response:
            if "html" in response.headers.get("Content-Type", ""):
                raise ForeignResponseError(response)
            yield response.stream(_CHUNK)

    def below(self, place: Place) -> Iterator[StoredObject]:
        """Yield the files below a directory, unfinished ones too."""
        directories = [place.key]
        while directories:
            for path, status in self._entries(place, directories.pop()):
                if status["type"] == "DIRECTORY":
                    directories.append(f"{path}/")
                elif status["pathSuffix"]:
                    yield StoredObject(place.location(path), int(status["length"]))

    def remove(self, place: Place) -> None:
        """Remove a file."""
        self._request("DELETE", place, "DELETE", recursive="false")

    def check_root(self, place: Place) -> None:
        """Raise if the server belongs to another cluster."""
        self._check_cluster(place)

    def _insert(self, place: Place, content: Content, options: str, writer: str) -> None:
        if ":" in place.key:
            message = f"Cannot write {place.location(place.key)}: HDFS has no name with a colon."
            raise UsageError(f"{message} Use another location.")
        directory, _, name = place.key.rpartition("/")
        hidden = Place(
            place.head,
            place.bucket,
            f"{directory}/.{name}.{uuid.uuid4().hex}{IN_PROGRESS}".lstrip("/"),
        )
        rows, path = self._data_node("PUT", hidden, "CREATE", overwrite="false")
        length = {"Content-Length": str(content.size), "Content-Type": "application/octet-stream"}
        try:
            rows.request("PUT", path, headers=length, body=content.pieces())
            if (size := self.size(hidden)) != content.size:
                detail = f"{size} bytes arrived of {content.size}"
                raise ChangedError(detail)
            if writer:
                mark = {"xattr.name": _WRITER, "xattr.value": f'"{writer}"', "flag": "CREATE"}
                self._request("PUT", hidden, "SETXATTR", **mark)
            to = {"destination": f"/{place.key}", "renameoptions": options}
            # With options a rename returns nothing or fails; without them it returns a boolean.
            if done := self._request("PUT", hidden, "RENAME", **to):
                text = f"the server renames without renameoptions, and says {json.dumps(done)}"
                raise HdfsRefusalError(NO_OPTIONS, "", text)
        except FAILURES:
            self._remove_hidden(hidden)
            raise

    def _remove_hidden(self, hidden: Place) -> None:
        """Remove the hidden file, so that a late rename finds nothing."""
        try:
            self.remove(hidden)
        except FAILURES as error:
            detail = self._access.masked(error_text(error))
            _LOGGER.warning(
                "the begun file %s stays until gc: %s", hidden.location(hidden.key), detail
            )

    def _entries(self, place: Place, directory: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the entries of a directory, by path; nothing if it is missing or was removed."""
        inside, after = Place(place.head, place.bucket, directory), dict[str, str]()
        while True:
            try:
                found = self._request("GET", inside, "LISTSTATUS_BATCH", **after)[
                    "DirectoryListing"
                ]
            except HdfsRefusalError as error:
                if not error.is_missing:
                    raise
                return
            statuses = found["partialListing"]["FileStatuses"]["FileStatus"]
            for status in statuses:
                yield f"{directory}{status['pathSuffix']}", status
            if not found["remainingEntries"] or not statuses:
                return
            after = {"startAfter": statuses[-1]["pathSuffix"]}

    def _request(self, method: str, place: Place, operation: str, **more: str) -> Mapping[str, Any]:
        """Return the document of the NameNode's response."""
        self._check_cluster(place)
        return self._document(method, place, operation, more)

    def _document(
        self, method: str, place: Place, operation: str, more: Mapping[str, str]
    ) -> Mapping[str, Any]:
        access = self._access
        identity = (
            {"delegation": access.token} if access.token else {"user.name": access.user or ""}
        )
        path = f"/webhdfs/v1/{quote(place.key)}"
        _, data = self._names.request(method, path, query={"op": operation, **identity, **more})
        try:
            found: Mapping[str, Any] | None = json.loads(data or b"{}")
        except ValueError as error:
            raise HdfsRefusalError(404, "", data.decode("utf-8", "replace")) from error
        return found or {}

    def _data_node(
        self, method: str, place: Place, operation: str, **more: str
    ) -> tuple[Client, str]:
        """Return a client of the DataNode that the NameNode names, and the path there."""
        detail = self._request(method, place, operation, noredirect="true", **more)
        found = urlsplit(str(detail["Location"]))
        origin = f"{found.scheme}://{found.netloc}"
        if is_in_clear(origin) and not self._access.endpoint.startswith("http:"):
            raise HdfsRefusalError(IN_CLEAR, "", f"the NameNode sends the rows to {origin}")
        return _client(self, origin), f"{found.path}?{found.query}"

    def _check_cluster(self, place: Place) -> None:
        """Raise if a location belongs to another cluster than the server.

        WebHDFS gets only the path, so nothing else would notice. If the server does not report its
        NameNode, as Hadoop's gateway HttpFS, the location is trusted.
        """
        if place.bucket in self._known:
            return
        root = Place(place.head, place.bucket, "")
        detail = self._document("PUT", root, "CREATE", {"noredirect": "true"})
        query = parse_qs(urlsplit(str(detail.get("Location", ""))).query)
        name_node = query.get("namenoderpcaddress", [place.bucket])[0]
        if name_node not in (place.bucket, f"{place.bucket}:{_RPC_PORT}"):
            text = f"{self._access.endpoint} serves hdfs://{name_node}, not hdfs://{place.bucket}"
            raise HdfsRefusalError(OTHER_CLUSTER, "", text)
        self._known.add(place.bucket)


def _client(objects: HdfsObjects, origin: str) -> Client:
    # WebHDFS takes the credentials in the query.
    return Client(objects.pool, origin, lambda *_: {}, HdfsRefusalError.of)


class HdfsStorage(ObjectStorage):
    """Files in directories. Requests are retried while the cluster is down."""

    def __init__(self, access: HdfsAccess) -> None:
        """Keep the settings; nothing is sent yet."""
        super().__init__(requests_of(access))

    def list(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return the finished files below a directory, at any depth, sorted."""
        found = super().list(prefix)
        return tuple(one for one in found if not one.location.endswith(IN_PROGRESS))

    def list_unfinished(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return the unfinished files below a directory, of running and of ended writers."""
        found = super().list(prefix)
        return tuple(one for one in found if one.location.endswith(IN_PROGRESS))


def requests_of(access: HdfsAccess) -> Requests:
    """Return the requests of these settings."""
    return Requests(access, STORE, HdfsObjects)
