"""Defines the properties of lake tables: their settings, and the ClickHouse source they come from.

docs/spec/table-properties.md documents the properties. With them partition expressions and
same-structure checks need no server: `remembered_source` rebuilds the MergeTree table from them.
Properties of the export protocol (marks, ledger identity) are in `snapshot.py`. `refuse_version`
refuses a table whose format version is not written.

`retention_of` and `refuse_kept_files` read what the owner lets expire (Iceberg's configuration,
"Table behavior properties"). The age that a branch has of its own is in the metadata
(tableformat/export/maintenance.py).

Iceberg's property `write.parquet.bloom-filter-enabled.column.<name>` names the columns with bloom
filters for every engine. A new table gets it for the columns of the source's skip indices on single
values. Readers compare hashes of stored values, so floating point columns get no filter: 0 and -0
are equal, but their hashes differ. Columns of bytes (`binary`, `fixed`) get one only if the table's
owner sets the property: DuckDB up to 1.5.5 hashes the displayed text of a BLOB constant, and skips
row groups that have the value (duckdb/duckdb#23053). A slower query is better than missing rows.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.committer import LakeTableState
from tableformat.errors import DestinationError, RefusedError, UnsupportedError
from tableformat.iceberg.schema import MappedColumns
from tableformat.mergetree.compatibility import other_expressions
from tableformat.mergetree.engine_text import stored_engine
from tableformat.mergetree.expression import Call, ColumnName
from tableformat.mergetree.expression_parser import parse_expression
from tableformat.mergetree.table import Column, Engine, MergeTreeTable, Projection, SkipIndex
from tableformat.mergetree.types import parse_type
from tableformat.names import LakeName, TableName

__all__ = [
    "FILTER_PROPERTY",
    "FORMAT_VERSION",
    "LATE_ROWS",
    "MAPPING_VERSION",
    "TABLE_SETTINGS",
    "RememberedSource",
    "Retention",
    "appends_late_rows",
    "filter_properties",
    "filters_of",
    "other_version",
    "parts_apart",
    "refuse_kept_files",
    "refuse_version",
    "refuse_version_of_source",
    "remembered_source",
    "renewed_properties",
    "retention_of",
    "single_value_columns",
    "table_properties",
]

MAPPING_VERSION: Final = 1
"""The version of the type mapping; it rises when a ClickHouse type maps to another Iceberg type."""

_AGE: Final = "history.expire.max-snapshot-age-ms"
_KEEPS: Final = "history.expire.min-snapshots-to-keep"
_AGE_OF_REFERENCES: Final = "history.expire.max-ref-age-ms"
_COLLECTED: Final = "gc.enabled"
_WEEK: Final = 7 * 86_400_000
_PREFIX: Final = "mergeberg.source."
_VERSION: Final = f"{_PREFIX}mapping-version"
_COLUMNS: Final = f"{_PREFIX}columns"
LATE_ROWS: Final = "mergeberg.late-rows"
"""The property with which a table's owner says what happens to late rows."""
_PARTS_APART: Final = "mergeberg.parts-apart"
_RENEWED: Final = tuple(
    f"{_PREFIX}{name}"
    for name in (
        *("sorting-key", "primary-key", "ttl", "column-ttl", "settings", "storage-policy"),
        *("indices", "projections"),
    )
)
"""Properties that ALTER TABLE can change, apart from columns, without a change of rows."""
_WIDE: Final = 200
# Every commit rewrites all properties, and a thousand columns are 60 kB of text.
_LONGEST_TEXT: Final = 4000
_PACKED: Final = "deflate:"
# Limits decompression: a few bytes can expand to any size.
_LONGEST_UNPACKED: Final = 1 << 26
# The definition of a custom disk may hold credentials.
_NOT_REMEMBERED: Final = frozenset({"disk"})

FORMAT_VERSION: Final = 2
"""The only version that PyIceberg writes with the sequence numbers that the fence needs."""
TABLE_SETTINGS: Final[Mapping[str, str]] = {
    "format-version": str(FORMAT_VERSION),
    # One metadata file per commit adds up to hundreds of megabytes after a thousand commits.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
}
"""Settings of new tables. `commit.retry.*` is left to the engines that use it."""


@dataclass(frozen=True, slots=True)
class RememberedSource:
    """The ClickHouse table that a lake table was created from, without custom disk definitions.

    `conversions` are those in force, by column.
    """

    table: MergeTreeTable
    conversions: Mapping[str, str]
    mapping_version: int = MAPPING_VERSION

    def is_of(self, table: MergeTreeTable) -> bool:
        """Whether the lake table was created from a table, and not from another one."""
        return self.table.identity in (table.identity, table.key_source)


def table_properties(table: MergeTreeTable, columns: MappedColumns) -> dict[str, str]:
    """Return all properties of a new lake table: its settings and its source."""
    # Statistics of every column cost about 20 bytes per column and file in the manifests.
    metrics = "counts" if len(columns.columns) > _WIDE else "truncate(16)"
    engine = table.engine
    arguments = f"({engine.arguments})" if engine.arguments else ""
    settings = dict(pair for pair in engine.settings if pair[0] not in _NOT_REMEMBERED)
    indices = [[i.name, i.expression, i.type_text, i.granularity] for i in table.indices]
    conversions = columns.conversions
    remembered = {
        "table": str(table.name),
        "identity": table.identity,
        "uuid": table.uuid,
        "engine": f"{engine.name}{arguments}",
        "partition-key": engine.partition_by,
        "sorting-key": engine.order_by,
        "primary-key": engine.primary_key,
        "sampling-key": engine.sample_by,
        "ttl": engine.ttl,
        "column-ttl": "true" if table.has_ttl_columns else "false",
        "settings": _packed(settings),
        "storage-policy": table.storage_policy,
        "indices": _packed(indices),
        "projections": _packed([[p.name, p.query] for p in table.projections]),
        "server-version": table.server_version,
        "server-zone": table.server_zone,
        "columns": _packed([_to_json(c, conversions) for c in table.columns]),
        "mapping-version": str(MAPPING_VERSION),
    }
    return {
        **TABLE_SETTINGS,
        "write.metadata.metrics.default": metrics,
        **filter_properties(table.indices, columns.schema),
        **{f"{_PREFIX}{name}": _utf8(text) for name, text in remembered.items()},
    }


def remembered_source(properties: Mapping[str, str]) -> RememberedSource | None:
    """Return the source that a lake table stores, None if mergeberg did not create the table.

    Raises:
        DestinationError: a newer release wrote the properties, or they are damaged.
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
    texts = {k.removeprefix(_PREFIX): v for k, v in properties.items() if k.startswith(_PREFIX)}
    try:
        columns = _unpacked(texts["columns"])
        return RememberedSource(
            _table(texts, columns), {c["name"]: c["convert"] for c in columns if "convert" in c}
        )
    except (KeyError, ValueError, TypeError, zlib.error) as error:
        message = (
            f"Cannot read the lake table's record of its source: {error!r} in its properties "
            f"{_PREFIX}*. Restore the properties, or create the table again."
        )
        raise DestinationError(message) from error


def renewed_properties(
    properties: Mapping[str, str],
    table: MergeTreeTable,
    columns: MappedColumns,
    lake_columns: Collection[str],
    changed: frozenset[str],
) -> dict[str, str]:
    """Return the properties that changed; none for a table without a stored source.

    The properties describe the stored source as it is now. A column that the source has dropped
    stays while the lake table has it. Of another source that is exported to the same table, only
    new columns, and columns with a new meaning or another default expression, are added.

    Args:
        properties: the lake table's.
        table: the source.
        columns: the columns to export.
        lake_columns: names of the columns that the lake table has, or gets.
        changed: names of the columns whose field in the lake table changes.

    Raises:
        DestinationError: as `remembered_source`.
    """
    remembered = remembered_source(properties)
    if remembered is None:
        return {}
    known = {c["name"]: c for c in _unpacked(properties[_COLUMNS])}
    now = {c.name: _to_json(c, columns.conversions) for c in table.columns}
    if not remembered.is_of(table):
        others = {column.name for _, column in other_expressions(remembered.table, table)}
        known |= {name: column for name, column in now.items() if name in {*changed, *others}}
        renewed = {_COLUMNS: _packed(list(known.values()))}
    else:
        kept = [c for name, c in known.items() if name not in now and name in lake_columns]
        renewed = {name: table_properties(table, columns)[name] for name in _RENEWED}
        renewed[_COLUMNS] = _packed([*now.values(), *kept])
    return {name: text for name, text in renewed.items() if properties.get(name) != text}


def parts_apart(properties: Mapping[str, str]) -> int:
    """Return the number of parts up to which an export writes each part to its own files.

    Parts that share a file are merged in the order of the key, so no statement can find the rows of
    one part afterwards.
    """
    text = properties.get(_PARTS_APART, "0")
    return int(text) if text.isdecimal() else 0


def appends_late_rows(properties: Mapping[str, str], name: object) -> bool:
    """Whether an export into a table adds rows that arrived after the archive, by its property.

    Args:
        properties: of the table (docs/spec/table-properties.md), empty for a new one.
        name: of the table, for an error.

    Raises:
        RefusedError: the property has another value than `append` or `refuse`.
    """
    text = properties.get(LATE_ROWS, "refuse")
    if text not in ("append", "refuse"):
        message = (
            f"Cannot export to {name}: its property {LATE_ROWS} is {text!r}, and not 'append' or "
            "'refuse'. Set one of these, or remove the property."
        )
        raise RefusedError(message)
    return text == "append"


def _table(texts: Mapping[str, str], columns: list[dict[str, str]]) -> MergeTreeTable:
    name, bracket, arguments = texts["engine"].partition("(")
    engine = Engine(
        name=name,
        arguments=arguments.removesuffix(")") if bracket else "",
        partition_by=texts["partition-key"],
        primary_key=texts["primary-key"],
        order_by=texts["sorting-key"],
        sample_by=texts["sampling-key"],
        ttl=texts["ttl"],
        settings=tuple(_unpacked(texts["settings"]).items()),
    )
    return MergeTreeTable(
        name=TableName.parse(texts["table"]),
        identity=texts["identity"],
        uuid=texts["uuid"],
        engine=stored_engine(engine),
        columns=tuple(_from_json(c) for c in columns),
        storage_policy=texts["storage-policy"],
        server_version=texts["server-version"],
        server_zone=texts["server-zone"],
        has_ttl_columns=texts["column-ttl"] == "true",
        indices=tuple(SkipIndex(*index) for index in _unpacked(texts["indices"])),
        projections=tuple(Projection(*one) for one in _unpacked(texts["projections"])),
    )


def _to_json(column: Column, conversions: Mapping[str, str]) -> dict[str, str]:
    texts = {
        "name": column.name,
        "type": column.type_text,
        "default_kind": column.default_kind,
        "default": column.default_expression,
        "comment": column.comment,
        "convert": conversions.get(column.name, ""),
    }
    return {key: text for key, text in texts.items() if text}


def _from_json(raw: Mapping[str, str]) -> Column:
    return Column(
        raw["name"],
        parse_type(raw["type"]),
        raw["type"],
        raw.get("default_kind", ""),
        raw.get("default", ""),
        raw.get("comment", ""),
    )


def _packed(value: object) -> str:
    """Return JSON, compressed if it is long."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        utf8 = text.encode()
    except UnicodeEncodeError:
        # Surrogate escapes of bytes that are not UTF-8; JSON can escape them in ASCII.
        text = json.dumps(value, separators=(",", ":"))
        utf8 = text.encode()
    if len(text) <= _LONGEST_TEXT:
        return text
    return _PACKED + base64.b64encode(zlib.compress(utf8, 9)).decode()


def _unpacked(text: str) -> Any:
    if text.startswith(_PACKED):
        compressed = base64.b64decode(text.removeprefix(_PACKED), validate=True)
        reader = zlib.decompressobj()
        text = reader.decompress(compressed, _LONGEST_UNPACKED).decode()
        if not reader.eof:
            message = f"a text of more than {_LONGEST_UNPACKED:,} bytes, or one that breaks off"
            raise ValueError(message)
    return json.loads(text)


def _utf8(text: str) -> str:
    """Replace bytes that are not UTF-8 by their hex form.

    Names, types and keys have none (`map_columns` refuses them); a query or a TTL may.
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


FILTER_PROPERTY: Final = "write.parquet.bloom-filter-enabled.column."
_KINDS: Final = frozenset({"bloom_filter", "set", "tokenbf_v1", "ngrambf_v1"})
_BYTES: Final = (BinaryType, FixedType)
_TYPES: Final = (
    IntegerType,
    LongType,
    StringType,
    BinaryType,
    FixedType,
    UUIDType,
    DecimalType,
    DateType,
    TimestampType,
    TimestamptzType,
)


def single_value_columns(index: SkipIndex) -> frozenset[str]:
    """Return the columns whose single values an index finds; none for other index types.

    An expression of a column, `lower(s)`, is not its value.
    """
    if index.type_text.partition("(")[0].strip() not in _KINDS:
        return frozenset()
    match parse_expression(f"tuple({index.expression})"):
        case Call("tuple", (Call("tuple", members),)) | Call("tuple", members):
            return frozenset(one.name for one in members if isinstance(one, ColumnName))
        case _:
            return frozenset()


def filter_properties(indices: Iterable[SkipIndex], schema: Schema) -> dict[str, str]:
    """Return the bloom filter properties of a new table for the source's skip indices."""
    indexed = frozenset[str]().union(*(single_value_columns(one) for one in indices))
    return {
        f"{FILTER_PROPERTY}{name}": "true"
        for name in _filterable(schema)
        if name in indexed and not isinstance(schema.find_field(name).field_type, _BYTES)
    }


def filters_of(properties: Mapping[str, str], schema: Schema) -> tuple[str, ...]:
    """Return the columns that a table's properties select for bloom filters."""
    wanted = {
        key.removeprefix(FILTER_PROPERTY)
        for key, value in properties.items()
        if key.startswith(FILTER_PROPERTY) and value.lower() == "true"
    }
    return tuple(name for name in _filterable(schema) if name in wanted)


def _filterable(schema: Schema) -> tuple[str, ...]:
    return tuple(f.name for f in schema.fields if isinstance(f.field_type, _TYPES))


_OTHER_VERSIONS: Final = {
    1: "Upgrade it, which rewrites no file: set its property 'format-version' to '2'.",
    3: (
        "The library that writes manifests does not support version 3 yet, and a table cannot "
        "return to an older version. Change this table with the engine that upgraded it, and "
        "export into a new table: one that does not exist is created."
    ),
}


def refuse_version(state: LakeTableState) -> None:
    """Refuse a table of a format version for which no manifest can be written (step 3).

    Raises:
        UnsupportedError: it has another version (code 48).
    """
    if why := other_version(state):
        message = f"Cannot commit to the table at {state.location}: {why}"
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def refuse_version_of_source(what: str, name: LakeName, state: LakeTableState) -> None:
    """Refuse to copy files of a table of a format version that is not written (decision 0002).

    Args:
        what: the beginning of the message, "Cannot run ...".
        name: of the table.
        state: of the table.

    Raises:
        UnsupportedError: it has another version (code 48).
    """
    if state.format_version == FORMAT_VERSION:
        return
    message = (
        f"{what}: {name} has format version {state.format_version}, and files are copied only "
        f"from tables of format version {FORMAT_VERSION}. "
    )
    way = (
        _OTHER_VERSIONS[1]
        if state.format_version < FORMAT_VERSION
        else (
            "Files of version 3 may lack values that only the metadata of their table has, such as "
            "defaults of columns. Copy the rows with an engine that reads the table, by INSERT "
            "INTO … SELECT, or export the partition from ClickHouse."
        )
    )
    raise UnsupportedError(message + way, code=NOT_IMPLEMENTED)


def other_version(state: LakeTableState) -> str:
    """Return why a table's format version is not written, and what to do; '' if it is."""
    if state.format_version == FORMAT_VERSION:
        return ""
    return (
        f"it has format version {state.format_version}, and only tables of format version "
        f"{FORMAT_VERSION} are written. "
        + _OTHER_VERSIONS.get(state.format_version, "Export into a new table.")
    )


@dataclass(frozen=True, slots=True)
class Retention:
    """What stays: snapshots younger than `age` milliseconds, and `keeps` of each branch."""

    age: int
    keeps: int


def retention_of(
    properties: Mapping[str, str], name: LakeName, *, age: int | None, keeps: int | None
) -> Retention:
    """Return what the user asked for, else what the table's owner has set, else a week and one.

    Args:
        properties: of the table.
        name: of the table, for an error.
        age: an age in milliseconds, None if the user gave none.
        keeps: a number of snapshots, None if the user gave none.

    Raises:
        RefusedError: a property has a value that it cannot have.
    """
    # Iceberg's procedure reads all three, whatever it is called with.
    of_owner = {key: _number(properties, name, key) for key in (_AGE, _KEEPS, _AGE_OF_REFERENCES)}
    return Retention(
        of_owner[_AGE] or _WEEK if age is None else age,
        of_owner[_KEEPS] or 1 if keeps is None else keeps,
    )


def _number(properties: Mapping[str, str], name: LakeName, key: str) -> int | None:
    text = properties.get(key)
    if text is None:
        return None
    if text.isdecimal() and int(text):
        return int(text)
    message = (
        f"Cannot expire snapshots of {name}: its property {key} is {text!r}, and not a number "
        "above 0. Set such a value, or remove the property."
    )
    raise RefusedError(message)


def refuse_kept_files(properties: Mapping[str, str], name: LakeName, way: str) -> None:
    """Refuse to expire snapshots, or to remove files, of a table whose owner forbids it.

    Another table may refer to the same files, as one that Spark's procedure `snapshot` makes does.

    Args:
        properties: of the table.
        name: of the table.
        way: what the user may do instead, as the end of a sentence.

    Raises:
        RefusedError: the property `gc.enabled` is not `true`.
    """
    text = properties.get(_COLLECTED, "true")
    # As in Iceberg, which takes any other text for false.
    if text.lower() != "true":
        message = (
            f"Cannot expire snapshots of {name} or remove its files: its property {_COLLECTED} is "
            f"{text!r}, because another table may refer to the files. Set it to true if none does, "
            f"or {way}."
        )
        raise RefusedError(message)
