"""What makes a directory a tree: an identity for ever, and what its files and directories hold.

Written once by put-if-absent, and never changed: whoever exports other columns, or by another key,
is refused (docs/spec/hive.md). Columns, directories and sort order are said as Iceberg's table
metadata says them, because files are written to an Iceberg schema, whatever their destination is.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

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
from tableformat.hive.layout import TreePaths
from tableformat.hive.levels import Level, levels_of, value_in_files
from tableformat.hive.named import remembered_names
from tableformat.hive.sealed import damaged, opened, sealed
from tableformat.hive_names import directory_values

__all__ = ["TreeIdentity", "new_identity"]


@dataclass(frozen=True, slots=True)
class TreeIdentity:
    """A tree's identity; `metadata` has no snapshots, and its location means nothing."""

    metadata: TableMetadata

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        return sealed({"table_metadata": json.loads(self.metadata.model_dump_json())})

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> TreeIdentity:
        """Read the stored form.

        Args:
            data: the stored form.
            what: names the document in errors.

        Raises:
            DestinationError: it was changed since it was written, or is of another format.
        """
        raw = opened(data, what)
        try:
            return cls(TableMetadataV2.model_validate(raw["table_metadata"]))
        except (KeyError, ValidationError) as error:
            raise damaged(what, repr(error)) from error

    @property
    def uuid(self) -> str:
        """What tells this tree from any other."""
        return str(self.metadata.table_uuid)

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of directories, from the root."""
        return levels_of(self.metadata.schema(), self.metadata.spec(), self.metadata.properties)

    def values_of(self, path: str) -> dict[str, str | int | bool | None]:
        """Return the columns of a data file that its directories alone have, by name.

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
        """Return M before the first commit, of the tree with this root."""
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
    """Return the identity of a tree that nobody has made yet."""
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
