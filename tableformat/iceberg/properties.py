"""What a lake table remembers of the ClickHouse table it came from, and how we set up new ones.

The properties are documented in docs/spec/table-properties.md. With them partition expressions and
same-structure checks work on the lake table alone, without a server. Properties of the export
protocol (marks, ledger identity) are not here but in `snapshot.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tableformat.errors import DestinationError
from tableformat.iceberg.schema import MappedColumns
from tableformat.mergetree.table import MergeTreeTable

__all__ = [
    "MAPPING_VERSION",
    "TABLE_SETTINGS",
    "RememberedColumn",
    "RememberedSource",
    "remembered_source",
    "table_properties",
]

MAPPING_VERSION: Final = 1
"""The version of the type mapping: raised when a ClickHouse type begins to map to another one."""

_PREFIX: Final = "mergeberg.source."
_VERSION: Final = f"{_PREFIX}mapping-version"
_COLUMNS: Final = f"{_PREFIX}columns"
_CLAUSES: Final = ("table", "engine", "partition-key", "sorting-key", "primary-key", "server-zone")
_WIDE: Final = 200

TABLE_SETTINGS: Final[Mapping[str, str]] = {
    # PyIceberg writes no other version, and the fence of the commit protocol needs sequence
    # numbers.
    "format-version": "2",
    # One metadata file per commit adds up to hundreds of megabytes after a thousand commits.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
}
"""Settings of the tables that we create. `commit.retry.*` is left to the engines that use it."""


@dataclass(frozen=True, slots=True)
class RememberedColumn:
    """One stored column as it was in ClickHouse; `conversion` is what the user chose for it."""

    name: str
    type_text: str
    default_kind: str = ""
    default_expression: str = ""
    conversion: str = ""


@dataclass(frozen=True, slots=True)
class RememberedSource:
    """The ClickHouse table that a lake table was made from."""

    table: str
    engine: str
    partition_key: str
    sorting_key: str
    primary_key: str
    server_zone: str
    columns: tuple[RememberedColumn, ...]
    mapping_version: int = MAPPING_VERSION


def table_properties(table: MergeTreeTable, columns: MappedColumns) -> dict[str, str]:
    """Return all properties of a new lake table: its settings, and what it remembers."""
    settings = dict(TABLE_SETTINGS)
    # Statistics of every column cost about 20 bytes per column and file in the manifests.
    settings["write.metadata.metrics.default"] = (
        "counts" if len(columns.columns) > _WIDE else "truncate(16)"
    )
    engine = table.engine
    remembered = [
        RememberedColumn(
            c.name,
            c.source.type_text,
            c.source.default_kind,
            c.source.default_expression,
            c.conversion,
        )
        for c in columns.columns
    ]
    arguments = f"({engine.arguments})" if engine.arguments else ""
    texts = (
        str(table.name),
        f"{engine.name}{arguments}",
        engine.partition_by,
        engine.order_by,
        engine.primary_key,
        table.server_zone,
    )
    return {
        **settings,
        **{f"{_PREFIX}{name}": text for name, text in zip(_CLAUSES, texts, strict=True)},
        _COLUMNS: json.dumps([_to_json(c) for c in remembered], ensure_ascii=False),
        _VERSION: str(MAPPING_VERSION),
    }


def remembered_source(properties: Mapping[str, str]) -> RememberedSource | None:
    """Return what a lake table remembers, or None when it was not made by mergeberg.

    Raises:
        DestinationError: it was written by a newer release, or is damaged.
    """
    version = properties.get(_VERSION)
    if version is None:
        return None
    if version != str(MAPPING_VERSION):
        message = (
            f"Cannot read the property {_VERSION}: it is {version!r}, and this release reads "
            f"{MAPPING_VERSION}. Use the release that made the table, or a newer one."
        )
        raise DestinationError(message)
    try:
        columns = tuple(_from_json(c) for c in json.loads(properties[_COLUMNS]))
        table, engine, partition_key, sorting_key, primary_key, server_zone = (
            properties[f"{_PREFIX}{name}"] for name in _CLAUSES
        )
    except (KeyError, ValueError, TypeError) as error:
        message = (
            f"Cannot read what the lake table remembers of its source: {error!r} in its properties "
            f"{_PREFIX}*. Restore the properties, or create the table anew."
        )
        raise DestinationError(message) from error
    return RememberedSource(
        table, engine, partition_key, sorting_key, primary_key, server_zone, columns
    )


def _to_json(column: RememberedColumn) -> dict[str, str]:
    texts = {
        "name": column.name,
        "type": column.type_text,
        "default_kind": column.default_kind,
        "default": column.default_expression,
        "convert": column.conversion,
    }
    return {key: text for key, text in texts.items() if text}


def _from_json(raw: dict[str, Any]) -> RememberedColumn:
    return RememberedColumn(
        raw["name"],
        raw["type"],
        raw.get("default_kind", ""),
        raw.get("default", ""),
        raw.get("convert", ""),
    )
