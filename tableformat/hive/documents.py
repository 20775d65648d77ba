"""Reads and writes the JSON documents of a Hive tree (docs/spec/hive.md).

All documents of a tree are pretty-printed JSON with a format number and a checksum over the rest.
The log's entries use this form, too (`sealed`, `opened`).

* `CommitFile` says that a partition is exported and lists its files. It is written once per
  export by put-if-absent and never changed. A file that no commit file names is not exported, or
  not yet. A commit file that replaces earlier exports of the partition names all of them; from
  the moment it exists, none of them counts.
* `TreeIdentity` fixes the columns, directories and sort order of a tree. It is written once by
  put-if-absent and never changed. An export with other columns or another key is refused. It
  stores them as Iceberg's table metadata does, because every data file has an Iceberg schema.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from pydantic import ValidationError
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2, new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import BooleanType, IntegerType, LongType

from tableformat.committer import LakeTableState, Layout
from tableformat.errors import DestinationError
from tableformat.file_names import directory_values
from tableformat.hive.layout import TreePaths, remembered_names
from tableformat.hive.levels import Level, levels_of, value_in_files
from tableformat.ledger_text import checksum

__all__ = [
    "PUT_BACK",
    "REPLACING_FORMAT",
    "TREE_FORMAT",
    "CommitFile",
    "CommittedFile",
    "TreeIdentity",
    "commit_name",
    "damaged",
    "is_commit_name",
    "new_identity",
    "opened",
    "sealed",
    "without_replaced",
]

TREE_FORMAT: Final = 1
REPLACING_FORMAT: Final = 2
"""The format of a document with an export that replaces others."""
PUT_BACK: Final = "put it back from a copy"


def sealed(body: Mapping[str, Any], form: int = TREE_FORMAT) -> bytes:
    """Return the stored form of a document; equal documents have equal bytes."""
    whole = {"format_version": form, **body}
    return json.dumps({**whole, "checksum": checksum(whole)}, indent=1).encode()


def opened(data: bytes, what: str, remedy: str = PUT_BACK) -> dict[str, Any]:
    """Parse and verify the stored form of a document; white space does not matter.

    Args:
        data: the stored form.
        what: names the document in errors.
        remedy: the advice about a damaged document.

    Raises:
        DestinationError: it was changed since it was written, or has another format.
    """
    try:
        raw: dict[str, Any] = json.loads(data)
        found = raw["format_version"]
        if found not in (TREE_FORMAT, REPLACING_FORMAT):
            message = (
                f"Cannot read {what}: it has format {found}, this release reads "
                f"{REPLACING_FORMAT}. Use the release that wrote it, or a newer one."
            )
            raise DestinationError(message)
        if raw.pop("checksum") != checksum(raw):
            raise damaged(what, "its content does not match its checksum", remedy)
        del raw["format_version"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(what, repr(error), remedy) from error
    return raw


def damaged(what: str, why: str, remedy: str = PUT_BACK) -> DestinationError:
    """Return the error for a damaged document."""
    return DestinationError(
        f"Cannot read {what}: {why}. It was changed or truncated after it was written; {remedy}."
    )


_REMEDY: Final = "remove it: the next export writes it again"
_NAME: Final = re.compile(r"commit_[A-Za-z0-9-]+_\d{1,20}")


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A data file: its path from the tree's root, its size in bytes, rows, and digest in hex."""

    path: str
    bytes: int
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CommitFile:
    """One export of a partition; `tree` is the tree's identity, `source_table` a name for people.

    `fingerprint` identifies the exported parts. Without files the partition had no rows. `replaces`
    are the transaction ids of all earlier exports of the same key.
    """

    tree: str
    source_table: str
    partition_id: str
    transaction_id: str
    fingerprint: str
    files: tuple[CommittedFile, ...]
    replaces: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The file's name."""
        return commit_name(self.partition_id, self.transaction_id)

    @property
    def rows(self) -> int:
        """The rows of its files."""
        return sum(f.rows for f in self.files)

    def to_bytes(self) -> bytes:
        """Return the stored form; equal exports have equal bytes."""
        return sealed({**self.body(), "rows": self.rows}, self.format)

    @property
    def format(self) -> int:
        """The format of its documents: earlier releases refuse exports that replace others."""
        return REPLACING_FORMAT if self.replaces else TREE_FORMAT

    def body(self) -> dict[str, Any]:
        """Return its fields as documents store them, without an empty `replaces`."""
        found = asdict(self)
        if not self.replaces:
            del found["replaces"]
        return found

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> CommitFile:
        """Parse the stored form.

        Args:
            data: the stored form.
            what: names the document in errors.

        Raises:
            DestinationError: it was changed since it was written, or has another format.
        """
        raw = opened(data, what, _REMEDY)
        try:
            rows = raw.pop("rows")
            raw["files"] = tuple(CommittedFile(**f) for f in raw["files"])
            raw["replaces"] = tuple(raw.get("replaces", ()))
            found = cls(**raw)
        except (KeyError, TypeError) as error:
            raise damaged(what, repr(error), _REMEDY) from error
        if found.rows != rows:
            why = f"its files have {found.rows} rows in total, it states {rows}"
            raise damaged(what, why, _REMEDY)
        return found


def commit_name(partition_id: str, transaction_id: str) -> str:
    """Return the name of an export's commit file."""
    return f"commit_{partition_id}_{transaction_id}"


def is_commit_name(name: str) -> bool:
    """Whether a name belongs to a commit file."""
    return _NAME.fullmatch(name) is not None


def without_replaced(found: Iterable[CommitFile]) -> tuple[CommitFile, ...]:
    """Return the commit files of a tree that no other one replaces."""
    every = tuple(found)
    replaced = {one for commit in every for one in commit.replaces}
    return tuple(commit for commit in every if commit.transaction_id not in replaced)


@dataclass(frozen=True, slots=True)
class TreeIdentity:
    """A tree's identity; `metadata` has no snapshots, and its location has no meaning."""

    metadata: TableMetadata

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        return sealed({"table_metadata": json.loads(self.metadata.model_dump_json())})

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> TreeIdentity:
        """Parse the stored form.

        Args:
            data: the stored form.
            what: names the document in errors.

        Raises:
            DestinationError: it was changed since it was written, or has another format.
        """
        raw = opened(data, what)
        try:
            return cls(TableMetadataV2.model_validate(raw["table_metadata"]))
        except (KeyError, ValidationError) as error:
            raise damaged(what, repr(error)) from error

    @property
    def uuid(self) -> str:
        """The tree's unique id."""
        return str(self.metadata.table_uuid)

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of directories, from the root."""
        return levels_of(self.metadata.schema(), self.metadata.spec(), self.metadata.properties)

    def values_of(self, path: str) -> dict[str, str | int | bool | None]:
        """Return the columns that only the directories of a data file have, by name.

        Args:
            path: of the file, from the root.
        """
        named = remembered_names(self.metadata.properties)
        levels = {level.name: level for level in self.levels}
        return {
            name: _typed(text, levels[name])
            for name, text in directory_values(path).items()
            if name in named
        }

    def state(self, root: str) -> LakeTableState:
        """Return the tree's state before the first commit."""
        paths = TreePaths(root)
        io = PyArrowFileIO({})
        table = Table(("hive", root), self.metadata, paths.identity, io, NoopCatalog("hive"))
        return LakeTableState(
            layout=Layout(
                self.uuid,
                self.metadata.current_schema_id,
                self.metadata.default_spec_id,
                self.metadata.default_sort_order_id,
            ),
            format_version=self.metadata.format_version,
            location=paths.own,
            main=None,
            last_sequence_number=0,
            properties=dict(self.metadata.properties),
            snapshots={},
            metadata_location=paths.identity,
            handle=table,
            tree=root,
        )


def new_identity(
    schema: Schema, spec: PartitionSpec, order: SortOrder, properties: Mapping[str, str]
) -> TreeIdentity:
    """Return the identity of a new tree."""
    return TreeIdentity(
        new_table_metadata(schema, spec, order, "", dict(properties), table_uuid=uuid.uuid4())
    )


def _typed(text: str | None, level: Level) -> str | int | bool | None:
    match level.type:
        case IntegerType() | LongType() if text is not None:
            return int(text)
        case BooleanType() if text is not None:
            return text == "true"
        case _:
            return None if text is None else value_in_files(level, text)
