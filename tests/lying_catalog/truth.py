"""A catalog that tells the truth: Iceberg's REST interface over one of PyIceberg's own catalogs.

Requirements are checked and updates applied by PyIceberg, one request at a time, so that a commit
is applied as a whole or not at all. The response to a request is a value; nothing here knows
of connections. As much of the interface as PyIceberg's client and the project use.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlparse

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, CommitTableResponse, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from tableformat.errors import DestinationError
from tests.lying_catalog.faults import Asked

__all__ = ["Request", "Response", "TrueCatalog", "refusal"]

# Errors of the interface: (exception, status). The first that fits; anything else about a request
# that can never be applied is 400, as catalogs differ between 400 and 409 for the fence
# (apache/iceberg#15001).
_STATUS: Final = (
    (CommitFailedException, 409),
    (TableAlreadyExistsError, 409),
    (NamespaceAlreadyExistsError, 409),
    (NoSuchTableError, 404),
    (NoSuchNamespaceError, 404),
    (ValueError, 400),
    # Where the metadata should be stored, nobody responds.
    (DestinationError, 503),
)
_NAMESPACES, _NAMESPACE, _TABLES, _TABLE = 2, 3, 4, 5


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came over the wire."""

    method: str
    target: str
    body: bytes

    @property
    def path(self) -> tuple[str, ...]:
        """The path in its unquoted pieces: `v1`, `namespaces`, the namespace, `tables`, ..."""
        return tuple(unquote(piece) for piece in urlparse(self.target).path.strip("/").split("/"))

    @property
    def asks(self) -> Asked:
        """What the request wants."""
        size, kind = len(self.path), self.path[3] if len(self.path) >= _TABLES else ""
        match self.method, size, kind:
            case "POST", 5, "tables":
                return Asked.COMMIT
            case "POST", 4, "tables":
                return Asked.CREATE
            case "GET", 5, "tables":
                return Asked.LOAD
            case _:
                return Asked.OTHER


@dataclass(frozen=True, slots=True)
class Response:
    """The response to the client."""

    status: int
    body: bytes = b""


class TrueCatalog:
    """Serves requests from a catalog, one at a time."""

    def __init__(self, catalog: Catalog) -> None:
        """Remember the catalog that holds the tables."""
        self._catalog = catalog
        self._one_at_a_time = threading.Lock()
        self.overrides: dict[str, str] = {}
        """What it says of all its tables."""
        self.config: dict[str, str] = {}
        """What it says with each table."""
        self.credentials: list[dict[str, Any]] = []
        """What it vends with each table, for a prefix of locations each."""

    def response_to(self, request: Request) -> Response:
        """Do what a request asks for, or refuse it and change nothing."""
        with self._one_at_a_time:
            try:
                return self._route(request)
            except tuple(kind for kind, _ in _STATUS) as error:
                status = next(code for kind, code in _STATUS if isinstance(error, kind))
                return refusal(status, type(error).__name__, str(error))

    def _route(self, request: Request) -> Response:
        path = request.path
        if path == ("v1", "config"):
            return _json({"defaults": {}, "overrides": self.overrides})
        if path[:2] != ("v1", "namespaces") or path[3:4] == ("views",):
            return refusal(404, "NotFoundException", request.target)
        namespace = tuple(path[2].split("\x1f")) if len(path) > _NAMESPACES else ()
        match request.method, len(path):
            case "POST", 2:
                return self._create_namespace(json.loads(request.body))
            case "GET" | "HEAD", 3:
                held = self._catalog.load_namespace_properties(namespace)
                return _json({"namespace": namespace, "properties": held})
            case "POST", 4:
                return self._create_table(namespace, json.loads(request.body))
            case "GET" | "HEAD", 5:
                return self._table(self._catalog.load_table((*namespace, path[4])))
            case "DELETE", 5:
                self._catalog.drop_table((*namespace, path[4]))
                return Response(204)
            case "POST", 5:
                return self._commit((*namespace, path[4]), request.body)
            case _:
                return refusal(404, "NotFoundException", request.target)

    def _create_namespace(self, asked: Mapping[str, Any]) -> Response:
        properties = asked.get("properties", {})
        self._catalog.create_namespace(tuple(asked["namespace"]), properties)
        return _json({"namespace": asked["namespace"], "properties": properties})

    def _create_table(self, namespace: tuple[str, ...], asked: Mapping[str, Any]) -> Response:
        spec, order = asked.get("partition-spec"), asked.get("write-order")
        made = self._catalog.create_table(
            (*namespace, asked["name"]),
            Schema.model_validate(asked["schema"]),
            location=asked.get("location"),
            partition_spec=PartitionSpec.model_validate(spec)
            if spec
            else UNPARTITIONED_PARTITION_SPEC,
            sort_order=SortOrder.model_validate(order) if order else UNSORTED_SORT_ORDER,
            properties=asked.get("properties", {}),
        )
        return self._table(made)

    def _commit(self, identifier: tuple[str, ...], body: bytes) -> Response:
        # Iceberg's own client leaves the name out, which stands in the path.
        named = {"identifier": {"namespace": identifier[:-1], "name": identifier[-1]}}
        asked = CommitTableRequest.model_validate({**named, **json.loads(body)})
        table = self._catalog.load_table(identifier)
        made = self._catalog.commit_table(table, asked.requirements, asked.updates)
        return _metadata(made)

    def _table(self, table: Table) -> Response:
        parts = _parts(table.metadata_location, table.metadata.model_dump_json())
        vended = {"config": self.config, "storage-credentials": self.credentials}
        return _json({**parts, **vended})


def refusal(status: int, kind: str, message: str) -> Response:
    """Return an error in the interface's own form."""
    return _json({"error": {"message": message, "type": kind, "code": status}}, status)


def _json(value: object, status: int = 200) -> Response:
    return Response(status, json.dumps(value).encode())


def _metadata(made: CommitTableResponse) -> Response:
    return _json(_parts(made.metadata_location, made.metadata.model_dump_json()))


def _parts(location: str, metadata: str) -> dict[str, Any]:
    return {"metadata-location": location, "metadata": json.loads(metadata)}
