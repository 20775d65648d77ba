"""Whole MergeTree tables: columns of any type, keys, an engine, parts of every kind, and rows.

A table is described by values, rows are stored values (`tests/properties/row_binary.py`), so that
Hypothesis makes a failing table small. What is wrong with a table, and must be refused before
anything is exported, is declared next to it: it follows from how the table was made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st

from tableformat.mergetree.types import DataType, DateTime, Simple, parse_type, render_type
from tableformat.names import quote_identifier, quote_string
from tests.properties.column_types import column_types, has_plain_json
from tests.properties.promised_columns import Promise, inner_types, words_of
from tests.properties.stored_values import drawn_value
from tests.properties.table_keys import PartitionKey, SortingKey, partition_keys, sorting_keys
from tests.strategies.types import nasty_text

__all__ = [
    "ENGINE_SETTINGS",
    "UNREADABLE",
    "ColumnDefinition",
    "Insert",
    "TableDefinition",
    "tables",
]

UINT32: Final = Simple("UInt32")


@dataclass(frozen=True)
class ColumnDefinition:
    """A column: `kind` and `expression` are its default's, '' for none."""

    name: str
    type: DataType
    kind: str = ""
    expression: str = ""
    comment: str = ""
    conversion: str = ""

    @property
    def is_stored(self) -> bool:
        return self.kind not in ("ALIAS", "EPHEMERAL")

    @property
    def sql(self) -> str:
        default = f" {self.kind} {self.expression}" if self.kind else ""
        comment = f" COMMENT {quote_string(self.comment)}" if self.comment else ""
        return f"{quote_identifier(self.name)} {render_type(self.type)}{default}{comment}"


@dataclass(frozen=True)
class Insert:
    """A part: rows of the columns that are inserted, in their order; with `seed` some are random.

    A random column has one value in the whole insert, which ClickHouse makes up (generateRandom).
    """

    rows: tuple[tuple[Any, ...], ...]
    random: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class TableDefinition:
    """A table, its parts, and how it is exported. `refused` are words of refusals to expect.

    `redefined` is the expression of another default that `added` gets after a first export, '' for
    none.
    `ordinary`: its database has the engine Ordinary, so that the table has no UUID.
    """

    columns: tuple[ColumnDefinition, ...]
    engine: str
    partition: PartitionKey
    sorting: SortingKey
    wide: bool
    inserts: tuple[Insert, ...]
    added: ColumnDefinition | None = None
    deleted: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    redefined: str = ""
    ordinary: bool = False
    partition_spec: str | None = None
    refused: tuple[str, ...] = field(default=())

    @property
    def inserted(self) -> tuple[ColumnDefinition, ...]:
        """The columns that every insert gives."""
        return tuple(c for c in self.columns if not c.kind)

    @property
    def conversions(self) -> dict[str, str]:
        columns = (*self.columns, *([self.added] if self.added else []))
        return {c.name: c.conversion for c in columns if c.conversion}


ENGINE_SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        (
            *("share_nested_offsets", "write_final_mark", "replace_long_file_name_to_hash"),
            *("escape_index_filenames", "escape_variant_subcolumn_filenames"),
            *("use_compact_variant_discriminators_serialization", "use_const_adaptive_granularity"),
            *("propagate_types_serialization_versions_to_nested_types", "compress_marks"),
            *(
                "write_marks_for_substreams_in_compact_parts",
                "compress_per_column_in_compact_parts",
            ),
            *("use_adaptive_write_buffer_for_dynamic_subcolumns", "compress_primary_key"),
            *("enable_index_granularity_compression", "enable_mixed_granularity_parts"),
            *("assign_part_uuids", "enable_block_number_column", "enable_block_offset_column"),
            *("add_minmax_index_for_numeric_columns", "add_minmax_index_for_string_columns"),
            *("add_minmax_index_for_temporal_columns", "primary_key_lazy_load"),
            *("columns_and_secondary_indices_sizes_lazy_calculation", "use_primary_key_cache"),
            *("compute_exact_num_defaults_for_sparse_columns", "enable_adaptive_codec_selection"),
        ),
        ("0", "1"),
    ),
    "index_granularity": ("1", "2", "7"),
    "index_granularity_bytes": ("0", "1024", "10485760"),
    "ratio_of_defaults_for_sparse_serialization": ("0", "0.3", "0.9", "1"),
    "serialization_info_version": ("'basic'", "'with_types'"),
    "string_serialization_version": ("'single_stream'", "'with_size_stream'"),
    "nullable_serialization_version": ("'basic'", "'allow_sparse'"),
    "map_serialization_version": ("'basic'", "'with_buckets'"),
    "map_serialization_version_for_zero_level_parts": ("'basic'", "'with_buckets'"),
    "object_serialization_version": ("'v1'", "'v2'", "'v3'"),
    "object_shared_data_serialization_version": ("'map'", "'map_with_buckets'", "'advanced'"),
    "object_shared_data_serialization_version_for_zero_level_parts": (
        *("'map'", "'map_with_buckets'", "'advanced'"),
    ),
    "dynamic_serialization_version": ("'v1'", "'v2'", "'v3'"),
    "default_compression_codec": ("'NONE'", "'LZ4'", "'ZSTD(1)'"),
    "marks_compression_codec": ("'LZ4'", "'NONE'"),
    "primary_key_compression_codec": ("'LZ4'", "'NONE'"),
    "min_compress_block_size": ("1",),
    "max_compress_block_size": ("1", "64"),
    "max_file_name_length": ("0", "20"),
    "packed_skip_index_max_bytes": ("0", "1048576"),
}
"""Settings of a MergeTree table that decide how its parts are written and read, with values."""

# Columns may have names that ClickHouse gives to virtual ones, unless they are kept in parts.
_VIRTUAL: Final = (
    *("_part", "_partition_id", "_part_offset", "_part_index", "_part_uuid", "_partition_value"),
    *("_sample_factor", "_part_data_version", "_disk_name", "_table", "_database"),
    *("_part_starting_offset", "_part_granule_offset"),
)
_REQUIRED_VIRTUAL: Final = ("_part", "_partition_id", "_partition_value")
# Without these of ClickHouse's own nobody knows where a row is, so such a table is refused.
UNREADABLE: Final = frozenset(f"column {name}: " for name in _REQUIRED_VIRTUAL)
"""How reasons begin that refuse a table before its columns are mapped."""
_FLATTENED: Final = (
    ("list.a", parse_type("Array(UInt32)")),
    ("list.b", parse_type("Array(Nullable(String))")),
)
_MANY: Final = 290
_OF_MANY: Final = ("UInt8", "String", "Nullable(Int32)", "Date", "LowCardinality(String)")

# Expressions that cannot fail, of the number of the row.
_DEFAULTS: Final = (
    ("String", "concat('é', toString(n))"),
    ("UInt64", "n * 18446744073709551615"),
    ("Array(Nullable(UInt8))", "[n % 256, NULL]"),
    ("Nullable(Date)", "if(n % 2 = 0, NULL, toDate(toUInt16(n % 65536)))"),
    ("DateTime64(6, 'Asia/Tokyo')", "toDateTime64(n, 6, 'Asia/Tokyo') - toIntervalYear(60)"),
    ("Map(String, Int8)", "map('k', toInt8(n % 100))"),
    ("Tuple(a UInt8, b String)", "(n % 7, toString(n))"),
    ("Decimal(38, 5)", "toDecimal128(n, 5) / 8"),
    ("FixedString(3)", "toFixedString(substring(toString(n), 1, 3), 3)"),
)
_ENGINES: Final = (
    "MergeTree",
    "MergeTree",
    "MergeTree",
    "ReplacingMergeTree(ver)",
    "ReplacingMergeTree",
    "SummingMergeTree",
    "AggregatingMergeTree",
    "CollapsingMergeTree(sign)",
    "VersionedCollapsingMergeTree(sign, ver)",
    "CoalescingMergeTree",
    "GraphiteMergeTree('graphite_rollup')",
)
_GRAPHITE: Final = (
    ("Path", Simple("String")),
    ("Time", DateTime()),
    ("Value", Simple("Float64")),
    ("Timestamp", DateTime()),
)
_NO_RANDOM: Final = (
    *("Variant", "Dynamic", "JSON", "AggregateFunction", "Time", "QBit", "Geometry", "Interval"),
    *("BFloat16", "Tuple()", "Nested"),
)
_CLASHES: Final = (
    (("Same", "same"), ("differ only in case",)),
    (("_file",), ("taken by Iceberg",)),
    (("a.b", "a_x2Eb"), ("both are written as",)),
)


@st.composite
def tables(
    draw: st.DrawFn,
    *,
    most_columns: int = 8,
    most_rows: int = 4,
    wanted: ColumnDefinition | None = None,
) -> TableDefinition:
    """A table with up to `most_columns` columns of any type besides those of its keys.

    Args:
        draw: of Hypothesis.
        most_columns: of any type.
        most_rows: of one insert, of which there are up to three.
        wanted: one more column.
    """
    tame = draw(st.sampled_from([True, True, True, False]))
    partition, sorting = draw(partition_keys()), draw(sorting_keys())
    engine = draw(st.sampled_from(_ENGINES))
    types = draw(st.lists(column_types(), min_size=1, max_size=most_columns))
    columns = [
        ColumnDefinition("n", UINT32),
        *(ColumnDefinition(name, of) for name, of in (*partition.columns, *sorting.columns)),
        *_of_engine(engine),
        *(_column(draw, i, of) for i, of in enumerate(types)),
        *_with_defaults(draw),
        *_rare(draw),
        *([wanted] if wanted else []),
    ]
    names, clashes = draw(st.sampled_from(_CLASHES)) if draw(st.integers(0, 19)) == 19 else ((), ())
    columns += [ColumnDefinition(name, Simple("UInt8")) for name in names]
    refused = [*partition.refused, *clashes]
    refused += [
        f"column {c.name}: "
        for c in columns
        if Promise(c.conversion).is_refused(c.type)
        or (c.conversion and not Promise(c.conversion).applies(c.type))
    ]
    fixed = dict((*partition.values, *sorting.values))
    inserts = _inserts(draw, columns, fixed, most_rows, tame=tame)
    spec, may_choose = None, draw(st.booleans())
    if partition.refused and may_choose:
        spec = "unpartitioned"
        refused = [why for why in refused if why not in partition.refused]
    refused += [f"column {c.name}: " for c in columns if c.name in _REQUIRED_VIRTUAL]
    added = _added(draw)
    return TableDefinition(
        columns=tuple(columns),
        engine=engine,
        partition=partition,
        sorting=sorting,
        wide=draw(st.booleans()),
        inserts=inserts,
        added=added,
        deleted=draw(st.sampled_from(["", "", "", "n % 3 = 1", "n = 0", "n % 2 = 0"])),
        partition_spec=spec,
        refused=tuple(refused),
        settings=_settings(draw),
        redefined=_redefined(draw, added),
        ordinary=draw(st.integers(0, 7)) == 7,
    )


def _of_engine(engine: str) -> list[ColumnDefinition]:
    if engine.startswith("Graphite"):
        return [ColumnDefinition(name, of) for name, of in _GRAPHITE]
    wanted = [("sign", Simple("Int8")), ("ver", Simple("UInt8"))]
    return [ColumnDefinition(name, of) for name, of in wanted if name in engine]


def _column(draw: st.DrawFn, number: int, of: DataType) -> ColumnDefinition:
    # The number keeps names apart, whatever stands before it.
    nasty = draw(nasty_text).replace("\0", "") if draw(st.booleans()) else "c"
    if "." in nasty:
        # ClickHouse takes `a.b` for a member of `a`, which must be no column and has one length.
        nasty = f"dotted {number} {nasty}"
    words = sorted({word for inner in inner_types(of) for word in words_of(inner)})
    conversion, wanted = "", draw(st.booleans())
    if words and wanted:
        conversion = draw(st.sampled_from(words))
    elif Promise().is_refused(of) and words:
        conversion = draw(st.sampled_from([*words, *words, ""]))
    elif draw(st.integers(0, 39)) == 39:
        conversion = "wkb"
    if not has_plain_json(of) and conversion in ("json", "string"):
        conversion = ""
    comment = draw(nasty_text) if draw(st.integers(0, 4)) == 4 else ""
    return ColumnDefinition(f"{nasty}{number}", of, comment=comment, conversion=conversion)


def _with_defaults(draw: st.DrawFn) -> list[ColumnDefinition]:
    found = []
    for kind in ("DEFAULT", "MATERIALIZED", "ALIAS", "EPHEMERAL"):
        if draw(st.integers(0, 3)) == 3:
            of, expression = draw(st.sampled_from(_DEFAULTS))
            found.append(ColumnDefinition(f"{kind.lower()} x", parse_type(of), kind, expression))
    return found


def _rare(draw: st.DrawFn) -> list[ColumnDefinition]:
    """Columns that few tables have: of the names of virtual ones, flattened lists, very many."""
    found = []
    match draw(st.integers(0, 39)):
        case 36 | 37 | 38:
            name = draw(st.sampled_from(_VIRTUAL))
            found.append(ColumnDefinition(name, parse_type(draw(st.sampled_from(_OF_MANY)))))
        case 39:
            found += [
                ColumnDefinition(f"many {i}", parse_type(_OF_MANY[i % len(_OF_MANY)]))
                for i in range(_MANY)
            ]
        case _:
            pass
    if draw(st.integers(0, 9)) == 9:
        found += [ColumnDefinition(name, of) for name, of in _FLATTENED]
    return found


def _settings(draw: st.DrawFn) -> tuple[tuple[str, str], ...]:
    names = draw(st.lists(st.sampled_from([*ENGINE_SETTINGS]), max_size=6, unique=True))
    return tuple((name, draw(st.sampled_from(ENGINE_SETTINGS[name]))) for name in names)


def _redefined(draw: st.DrawFn, added: ColumnDefinition | None) -> str:
    """Return another default of the type of a column that was added, now and then."""
    if added is None or draw(st.booleans()):
        return ""
    return f"defaultValueOfTypeName({quote_string(render_type(added.type))})"


def _added(draw: st.DrawFn) -> ColumnDefinition | None:
    if draw(st.integers(0, 3)) < 3:
        return None
    of, expression = draw(st.sampled_from(_DEFAULTS))
    kind = draw(st.sampled_from(["DEFAULT", "MATERIALIZED"]))
    return ColumnDefinition("added", parse_type(of), kind, expression)


def _inserts(
    draw: st.DrawFn,
    columns: list[ColumnDefinition],
    fixed: dict[str, tuple[Any, ...]],
    most_rows: int,
    *,
    tame: bool,
) -> tuple[Insert, ...]:
    found, number = [], 0
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        rows = []
        for _ in range(draw(st.integers(1, most_rows))):
            rows.append(
                tuple(_value(draw, c, fixed, number, tame=tame) for c in columns if not c.kind)
            )
            number += 1
        random = tuple(
            (c.name, draw(st.integers(0, 2**32)))
            for c in columns
            if tame
            and c.name[-1:].isdigit()
            and not c.name.startswith("many ")
            and _can_be_random(c)
            and draw(st.integers(0, 5)) == 5
        )
        found.append(Insert(tuple(rows), random))
    return tuple(found)


def _value(
    draw: st.DrawFn,
    column: ColumnDefinition,
    fixed: dict[str, tuple[Any, ...]],
    number: int,
    *,
    tame: bool,
) -> Any:
    match column.name:
        case "n":
            return number
        case "sign":
            return 1 - 2 * (number % 2)
        case "ver":
            return number % 3
        case "list.a":
            return [number] * (number % 3)
        case "list.b":
            return [None] * (number % 3)
        case name if name.startswith("many ") or name in _VIRTUAL:
            return _plain(column.type, number)
        case name if name in fixed:
            return draw(st.sampled_from(fixed[name]))
        case _:
            return drawn_value(draw, column.type, Promise(column.conversion), tame=tame)


def _plain(of: DataType, number: int) -> Any:
    """Return a stored value of a type of `_OF_MANY`; drawing so many takes Hypothesis too long."""
    if of == Simple("String") or render_type(of) == "LowCardinality(String)":
        return b"" if number % 2 else str(number).encode()
    return number if number or of in (Simple("UInt8"), Simple("Date")) else None


def _can_be_random(column: ColumnDefinition) -> bool:
    """Whether ClickHouse makes up values of a type, none of which the lake refuses."""
    names = {render_type(t).partition("(")[0] for t in inner_types(column.type)}
    unsafe = ("Variant", "Dynamic", "JSON", "AggregateFunction", "SimpleAggregateFunction", "QBit")
    return (
        names.isdisjoint((*unsafe, "Time", "Time64", "Geometry", "BFloat16", "Map", "DateTime64"))
        and names.isdisjoint(("Decimal", "FixedString", "Nested", "UInt64", "Int128", "UInt128"))
        and names.isdisjoint(("Int256", "UInt256", "Tuple"))
        and not any(n.startswith("Interval") for n in names)
    )
