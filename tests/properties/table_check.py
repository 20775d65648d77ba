"""One generated table, from its CREATE to what two readers see: every claim about the mapping.

1. ClickHouse makes an equal table from what `parse_engine` read of it.
2. What the mapping refuses is refused before the lake table exists, by name.
3. Partitions with values that the lake cannot hold are refused with the number of rows; all others
   are committed, `verify` finds them equal, and PyIceberg and DuckDB see exactly their rows.

What ClickHouse has is read as RowBinary of the columns themselves (`row_binary.py`), and what it
must be in the lake is defined by `promised_columns.py`; our SELECT list has no part in either.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from catalog.clickhouse.connection import text
from tableformat.errors import RefusedError
from tableformat.export.outcome import Outcome
from tableformat.export.verification import Verdict
from tableformat.mergetree.conversions import Limit
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.table import Engine
from tableformat.mergetree.types import DataType, render_type
from tableformat.names import TableName, quote_identifier, quote_string
from tableformat.quantities import counted
from tests.properties.column_types import family_of
from tests.properties.many_tables import ManyTables
from tests.properties.promised_columns import Promise, inner_types, words_of
from tests.properties.reader_limits import pyiceberg_reads
from tests.properties.row_binary import RowReader, encode
from tests.strategies.tables import UNREADABLE, ColumnDefinition, Insert, TableDefinition

__all__ = ["Seen", "check_table", "statements"]

_ALLOWED: Final = (
    "flatten_nested = 0, enable_time_time64_type = 1, allow_suspicious_low_cardinality_types = 1, "
    "allow_suspicious_variant_types = 1, allow_experimental_nullable_tuple_type = 1, "
    "allow_suspicious_fixed_string_types = 1"
)
_ENGINE_SETTINGS: Final = (
    "max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1, "
    "allow_nullable_key = 1, allow_experimental_reverse_key = 1, "
    "allow_dimensions_outside_sorting_key = 1, allow_summing_columns_in_partition_or_order_key = 1"
)
_AS_STORED: Final = (
    "output_format_binary_write_json_as_string = 1, output_format_json_quote_64bit_integers = 0, "
    "output_format_json_quote_denormals = 1, output_format_json_escape_forward_slashes = 0"
)
Row = tuple[Any, ...]


@dataclass
class Seen:
    """What was met: types and conversions by family, tables and partitions by what they came to."""

    families: Counter[str] = field(default_factory=Counter)
    conversions: Counter[tuple[str, str]] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the time that the body takes."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - begun

    def add(self, table: TableDefinition) -> None:
        """Count a table's types and conversions."""
        self.outcomes["tables"] += 1
        for column in table.columns:
            for of in inner_types(column.type):
                self.families[family_of(of)] += 1
                if column.conversion in words_of(of):
                    word = column.conversion.partition("(")[0]
                    self.conversions[family_of(of), word] += 1


def check_table(tables: ManyTables, table: TableDefinition, seen: Seen) -> None:
    """Make, export and compare a table.

    Raises:
        AssertionError: a claim does not hold.
    """
    name = tables.new_name("plain" if table.ordinary else "db")
    seen.add(table)
    with seen.timed("make the table"):
        for sql in statements(table, name):
            tables.clickhouse.command(sql)
    with seen.timed("engine text"):
        _check_engine_text(tables, name)
    if table.refused:
        _check_refused(tables, table, name, seen)
    else:
        _check_exported(tables, table, name, seen)
    with seen.timed("drop it"):
        tables.forget(name)


def statements(table: TableDefinition, name: TableName) -> list[str]:
    """Return the statements that make a table and its parts."""
    columns = ", ".join(c.sql for c in table.columns)
    keys = (
        ("PARTITION BY", table.partition.sql),
        ("PRIMARY KEY", table.sorting.primary),
        ("ORDER BY", table.sorting.sql),
    )
    clauses = "".join(f" {word} {sql}" for word, sql in keys if sql)
    wide = 0 if table.wide else 1_000_000_000
    create = (
        f"CREATE TABLE {name.sql} ({columns}) ENGINE = {table.engine}{clauses} SETTINGS "
        f"min_bytes_for_wide_part = {wide}, {_ENGINE_SETTINGS}, {_ALLOWED}"
    ) + "".join(f", {key} = {value}" for key, value in table.settings)
    first, *others = (_insert(table, name, one) for one in table.inserts)
    added = [f"ALTER TABLE {name.sql} ADD COLUMN {table.added.sql}"] if table.added else []
    deleted = [f"DELETE FROM {name.sql} WHERE {table.deleted}"] if table.deleted else []
    return [create, first, *added, *others, *deleted]


def _insert(table: TableDefinition, name: TableName, one: Insert) -> str:
    columns = table.inserted
    random = dict(one.random)
    given = [
        (c, [row[i] for row in one.rows]) for i, c in enumerate(columns) if c.name not in random
    ]
    structure = ", ".join(c.sql for c in (ColumnDefinition(c.name, c.type) for c, _ in given))
    rows = zip(*([encode(c.type, v) for v in values] for c, values in given), strict=True)
    stored = b"".join(map(b"".join, rows)).hex()
    selected = ", ".join(
        _made_up(c, random[c.name]) if c.name in random else quote_identifier(c.name)
        for c in columns
    )
    names = ", ".join(quote_identifier(c.name) for c in columns)
    return (
        f"INSERT INTO {name.sql} ({names}) SELECT {selected} "
        f"FROM format(RowBinary, {quote_string(structure)}, unhex('{stored}')) "
        "SETTINGS optimize_on_insert = 0, input_format_binary_read_json_as_string = 1, "
        f"{_ALLOWED}"
    )


def _made_up(column: ColumnDefinition, seed: int) -> str:
    structure = quote_string(f"c {render_type(column.type)}")
    return f"(SELECT c FROM generateRandom({structure}, {seed}, 5, 3) LIMIT 1)"


def _check_engine_text(tables: ManyTables, name: TableName) -> None:
    copy = TableName(name.database, f"{name.name}_again")
    shown = _engine_full(tables, name)
    engine = _engine_sql(parse_engine(shown))
    tables.clickhouse.command(
        f"CREATE TABLE {copy.sql} AS {name.sql} ENGINE = {engine}, {_ALLOWED}"
    )
    again = _engine_full(tables, copy)
    tables.clickhouse.command(f"DROP TABLE {copy.sql} SYNC")
    assert again == shown


def _engine_full(tables: ManyTables, name: TableName) -> str:
    ((shown,),) = tables.clickhouse.rows(
        f"SELECT engine_full FROM system.tables WHERE database = {quote_string(name.database)} "
        f"AND name = {quote_string(name.name)}"
    )
    return text(shown)


def _engine_sql(engine: Engine) -> str:
    clauses = (
        ("PARTITION BY", engine.partition_by),
        ("PRIMARY KEY", engine.primary_key),
        ("ORDER BY", engine.order_by),
        ("SAMPLE BY", engine.sample_by),
        ("TTL", engine.ttl),
        ("SETTINGS", ", ".join(f"{key} = {value}" for key, value in engine.settings)),
    )
    brackets = f"({engine.arguments})" if engine.arguments else ""
    return " ".join((f"{engine.name}{brackets}", *(f"{w} {t}" for w, t in clauses if t)))


def _check_refused(tables: ManyTables, table: TableDefinition, name: TableName, seen: Seen) -> None:
    try:
        with seen.timed("export"):
            outcomes = tables.export(name, table.conversions, table.partition_spec)
    except RefusedError as error:
        message = str(error)
    else:
        raise AssertionError(f"not refused for {table.refused}, but {outcomes}")
    # Reasons are listed a kind at a time: tables that cannot be read, columns, and then the key.
    of_reading = [why for why in table.refused if why in UNREADABLE]
    of_columns = [why for why in table.refused if why not in table.partition.refused]
    missing = [why for why in of_reading or of_columns or table.refused if why not in message]
    assert missing == [], message
    assert not tables.is_in_lake(name)
    seen.outcomes["tables refused for " + ("columns" if of_columns else "the partition key")] += 1


def _check_exported(
    tables: ManyTables, table: TableDefinition, name: TableName, seen: Seen
) -> None:
    columns = tuple(
        c for c in (*table.columns, *([table.added] if table.added else [])) if c.is_stored
    )
    with seen.timed("read ClickHouse"):
        stored = _stored(tables, name, columns)
    bad = {key: _broken(columns, rows) for key, rows in stored.items()}

    with seen.timed("export"):
        found = tables.export(name, table.conversions, table.partition_spec)
    outcomes = {o.partition_id: o for o in found}

    for key, broken in bad.items():
        _check_outcome(outcomes.pop(key), broken, seen)
    assert {o.status.value for o in outcomes.values()} <= {"empty"}
    if table.redefined and table.added:
        before, stored = stored, _redefine(tables, table, name, columns)
        seen.outcomes["tables with another default"] += 1
        _check_exported_again(tables, table, name, before, stored, bad)
    landed = [row for key, rows in stored.items() if not bad[key] for row in rows]
    for reader, read, can_read in (
        ("PyIceberg", tables.by_pyiceberg, pyiceberg_reads),
        ("DuckDB", tables.by_duckdb, _any_type),
    ):
        of_reader = [c for c in columns if can_read(c.type)]
        wanted = Counter(repr(_wanted(columns, of_reader, row)) for row in landed)
        with seen.timed(reader):
            seen_rows = read(name, [c.name for c in of_reader])
        rows = _rows(of_reader, seen_rows)
        assert rows == wanted, f"{reader} lacks {[*wanted - rows]}, has {[*rows - wanted]}"
    if seen.outcomes["tables"] % 10 == 0:
        with seen.timed("verify again"):
            verdicts = {c.partition_id: c.verdict for c in tables.verify(name)}
        equal = {key: verdicts[key] for key in stored if not bad[key]}
        assert equal == dict.fromkeys(equal, Verdict.EQUAL)
        seen.outcomes["tables verified again"] += 1


def _redefine(
    tables: ManyTables,
    table: TableDefinition,
    name: TableName,
    columns: tuple[ColumnDefinition, ...],
) -> dict[str, list[Row]]:
    """Change the default of the column that was added; return the rows that are shown then."""
    assert table.added is not None
    changed = replace(table.added, kind=table.added.kind, expression=table.redefined)
    tables.clickhouse.command(f"ALTER TABLE {name.sql} MODIFY COLUMN {changed.sql}")
    return _stored(tables, name, columns)


def _check_exported_again(
    tables: ManyTables,
    table: TableDefinition,
    name: TableName,
    before: dict[str, list[Row]],
    now: dict[str, list[Row]],
    bad: dict[str, Counter[tuple[str, Limit]]],
) -> None:
    """What shows other rows by now is not called exported, and its rows come when asked for."""
    again = tables.export(name, table.conversions, table.partition_spec)
    for outcome in again:
        key = outcome.partition_id
        if key in now and not bad[key] and repr(before[key]) != repr(now[key]):
            assert outcome.status.value != "already_exported", outcome
    forced = tables.export(name, table.conversions, table.partition_spec, force=True)
    for outcome in forced:
        if outcome.partition_id in now and not bad[outcome.partition_id]:
            assert outcome.status.value in ("replaced", "committed", "unchanged"), outcome


def _stored(
    tables: ManyTables, name: TableName, columns: tuple[ColumnDefinition, ...]
) -> dict[str, list[Row]]:
    """Return the rows that ClickHouse shows, by partition."""
    listed = ", ".join(f"src.{quote_identifier(c.name)}" for c in columns)
    # A column of the table hides the virtual one of its name.
    of_part = "splitByChar('_', _part)[1]"
    partition = of_part if "_partition_id" in {c.name for c in columns} else "_partition_id"
    sql = f"SELECT {partition}, hex(formatRow('RowBinary', {listed})) FROM {name.sql} AS src"
    found: dict[str, list[Row]] = {}
    for of_row, row in tables.clickhouse.rows(f"{sql} SETTINGS {_AS_STORED}"):
        reader = RowReader(bytes.fromhex(text(row)))
        found.setdefault(text(of_row), []).append(tuple(reader.read(c.type) for c in columns))
        assert reader.at_end
    return found


def _broken(columns: tuple[ColumnDefinition, ...], rows: list[Row]) -> Counter[tuple[str, Limit]]:
    """Return in how many rows each column breaks each limit."""
    return Counter(
        (c.name, limit)
        for row in rows
        for c, value in zip(columns, row, strict=True)
        for limit in Promise(c.conversion).broken(c.type, value)
    )


def _check_outcome(outcome: Outcome, broken: Counter[tuple[str, Limit]], seen: Seen) -> None:
    if not broken:
        assert (outcome.status.value, outcome.message) == ("committed", ""), outcome
        assert outcome.verified, outcome
        seen.outcomes["partitions committed"] += 1
        return
    assert outcome.status.value == "refused", outcome
    # What no error would tell is asked first, and then the rest need not be found.
    first = {k: n for k, n in broken.items() if k[1].always} or broken
    for (column, limit), rows in first.items():
        message = f"column {column}: {limit.what} in {counted(rows, 'row')}, for example "
        assert message in outcome.message, outcome
        seen.outcomes[f"columns refused for values {limit.what}"] += 1
    assert outcome.message.count(", for example ") == len(first), outcome
    seen.outcomes["partitions refused"] += 1


def _wanted(
    columns: tuple[ColumnDefinition, ...], of_reader: list[ColumnDefinition], row: Row
) -> list[Any]:
    return [
        Promise(c.conversion).wanted(c.type, value)
        for c, value in zip(columns, row, strict=True)
        if c in of_reader
    ]


def _any_type(_: DataType) -> bool:
    return True


def _rows(columns: list[ColumnDefinition], found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(
        repr([Promise(c.conversion).found(c.type, row[c.name]) for c in columns]) for row in found
    )
