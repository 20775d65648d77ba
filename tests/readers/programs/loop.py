"""What the program of every reader has in common: requests and results, one JSON object a line.

    {"version": true}
        -> {"version": "<of the reader>"}
    {"metadata": "<location>", "columns": ["id", ...], "where": <filter> or null}
        -> {"rows": [[<canonical value>, ...], ...], "shown": {"id": "int32", ...}}
    {"metadata": "<location>", "filters": [<filter>, ...]}
        -> {"found": [{"ids": [<id of a row for which it holds>, ...]} or {"error": ...}, ...]}
    anything that fails
        -> {"error": "<the reader's message>"}

A reader is a process of its own: some cannot be in one environment with others, one blocks signals,
one is a Java machine, and garbage in a file may end any of them. Standard output belongs to the
results; what libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow.fs import S3FileSystem

from tests.readers.canonical import IcebergTypeJson, canonical
from tests.readers.filters import Filter
from tests.readers.store import ObjectStore

__all__ = ["STORE", "Found", "Question", "of_arrow", "serve_questions"]

STORE: Final = ObjectStore.of_process()
"""The object store that has the tables; None where they are in local files."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a reader: columns of the rows for which a filter holds.

    Attributes:
        metadata: location of the table's metadata file, a URI.
        columns: names, top level.
        filter: None for all rows.
        types: of all columns of the table, by name.
    """

    metadata: str
    columns: tuple[str, ...]
    filter: Filter | None
    types: Mapping[str, IcebergTypeJson]

    @property
    def table_path(self) -> str:
        """The table's directory, for readers that look for the newest metadata file themselves.

        In an object store it begins with the bucket.
        """
        path = self.metadata.removeprefix("file://").removeprefix("s3://")
        return str(Path(path).parent.parent)

    @property
    def table_name(self) -> str:
        """The table's name, for readers that ask a catalog."""
        return Path(self.table_path).name


@dataclass(frozen=True, slots=True)
class Found:
    """A reader's result: the values of each column, and the type that it shows for it."""

    columns: Sequence[Sequence[Any]]
    shown: Sequence[str]


Read = Callable[[Question], Found]
Several = Callable[[Sequence[Question]], Sequence[Found]]


def of_arrow(table: pa.Table) -> Found:
    """Return a result that is an Arrow table."""
    values = [_plain(column).to_pylist() for column in table.columns]
    return Found(values, [str(field.type) for field in table.schema])


def serve_questions(
    version: str,
    read: Read,
    several: Several | None = None,
    *,
    close: Callable[[], object] = lambda: None,
) -> None:
    """Serve requests from standard input until it ends; then end the process at once.

    Args:
        version: of the reader.
        read: returns the result of one question.
        several: returns those of many at once, when that is faster; all of them or none.
        close: what the reader must still do to leave nothing behind.
    """
    responses = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        response = (
            {"version": version}
            if "version" in request
            else _tried(_response, request, read, several)
        )
        responses.write(f"{json.dumps(response)}\n")
        responses.flush()
    close()
    # Some readers hang, or abort, when the interpreter takes them apart.
    os._exit(0)


def _tried(function: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001  whatever a reader says is its result
        return {"error": f"{type(error).__name__}: {error}"}


def _response(request: dict[str, Any], read: Read, several: Several | None) -> dict[str, Any]:
    location = request["metadata"]
    types = _types(location)
    if "columns" in request:
        question = Question(location, tuple(request["columns"]), request["where"], types)
        found = read(question)
        rows = _rows(question, found)
        return {"rows": rows, "shown": dict(zip(question.columns, found.shown, strict=True))}
    questions = [Question(location, ("id",), of, types) for of in request["filters"]]
    if several is not None:
        together = _tried(lambda: {"found": list(several(questions))})
        if "found" in together:
            return {"found": [{"ids": list(found.columns[0])} for found in together["found"]]}
    return {"found": [_tried(lambda q: {"ids": list(read(q).columns[0])}, q) for q in questions]}


def _types(location: str) -> dict[str, IcebergTypeJson]:
    """Return the types of a table's columns from its metadata file."""
    metadata = json.loads(_content(location))
    schemas = {schema["schema-id"]: schema for schema in metadata["schemas"]}
    fields = schemas[metadata["current-schema-id"]]["fields"]
    return {field["name"]: field["type"] for field in fields}


def _content(location: str) -> bytes:
    """Return what is in a file, or in an object of the store."""
    if STORE is None:
        return Path(location.removeprefix("file://")).read_bytes()
    files = S3FileSystem(
        endpoint_override=STORE.endpoint,
        region=STORE.region,
        access_key=STORE.access_key,
        secret_key=STORE.secret_key,
    )
    with files.open_input_file(location.removeprefix("s3://")) as file:
        return bytes(file.read())


def _rows(question: Question, found: Found) -> list[list[Any]]:
    columns = [
        [canonical(value, question.types[name]) for value in values]
        for name, values in zip(question.columns, found.columns, strict=True)
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cast nanoseconds, which Python has no value for, to microseconds; it must be exact."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return column.cast(pa.timestamp("us", column.type.tz))
    return column
