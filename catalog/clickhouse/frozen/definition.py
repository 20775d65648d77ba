r"""Reads the CREATE TABLE statement and the address of frozen parts, and proves its claims.

- Address: `parts:DIR?ddl=FILE[&identity=TEXT][&zone=ZONE][...]`. The characters `?`, `&` and `%`
  are written as %XX in every value.
- Statement: from SHOW CREATE TABLE, a metadata file or a backup. ClickHouse itself normalizes it
  (`formatQuery`), so every spelling that ClickHouse accepts is accepted; this module splits the
  normal form. Output of the client with `\n` and `\'` for line ends and quotes is read, too.
- Identity: the same text that the table's own server would give. A replicated table is its
  Keeper path, any other table its UUID. Both come from the statement, the path of a FREEZE or
  the user. The module never invents one, because two identities of one table would export its
  rows twice.
- Claims: column types, settings and keys. A server knows these of its own parts; for frozen parts
  a file claims them. ClickHouse silently opens parts under wrong keys and types as long as it can
  read their index files. Then the partition key does not match the partitions, rows are not sorted
  by the sorting key, numbers are truncated, and arrays are empty. So `other_types`,
  `other_settings`, `other_partition_keys` and `unsorted` compare a statement with its parts.

See docs/reference/source-parts.md, "One table, one identity".
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from catalog.clickhouse.connection import ClickHouseError, Connection, one_text, text, texts, whole
from catalog.clickhouse.part_directories import PartFiles, files_sql, unread
from catalog.clickhouse.snapshot.preflight import OWN_COLUMNS
from catalog.clickhouse.table_description import of_table
from tableformat.clickhouse_codes import NOT_IMPLEMENTED, UNKNOWN_TABLE
from tableformat.errors import (
    NotFoundError,
    RefusedError,
    SourceError,
    Unable,
    UnsupportedError,
    UsageError,
)
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.expression import SortKey, qualify
from tableformat.mergetree.expression_parser import parse_sorting_key
from tableformat.mergetree.sql_tokens import Token, TokenKind, TokenReader, tokenize
from tableformat.mergetree.table import Engine, MergeTreeTable
from tableformat.mergetree.table_settings import PART_OFFSET, has_column
from tableformat.mergetree.types import (
    DataType,
    DateTime,
    DateTime64,
    Enum,
    LowCardinality,
    Nullable,
    parse_type,
    rebuild,
)
from tableformat.names import SOURCE_ALIAS, PartitionId, TableName, quote_string
from tableformat.source import PartsLayout

__all__ = [
    "NIL_UUID",
    "Claimed",
    "Definition",
    "FrozenSettings",
    "identity_of",
    "is_parts",
    "other_partition_keys",
    "other_settings",
    "other_types",
    "parse_parts",
    "read_definition",
    "render_parts",
    "unescaped",
    "unsorted",
    "uuid_of",
]

NIL_UUID: Final = "00000000-0000-0000-0000-000000000000"
"""ClickHouse's UUID for a table without one."""
_ADVICE: Final = "Give the output of SHOW CREATE TABLE."
_MOST_BYTES: Final = 1 << 20
_ESCAPES: Final = re.compile(r"\\(.)", re.DOTALL)
_TSV: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "f": "\f"}
_ANY_NAME: Final = "_"


@dataclass(frozen=True, slots=True)
class Definition:
    """The contents of a statement; names and the UUID are '' if it lacks them."""

    database: str
    name: str
    uuid: str
    columns: str
    engine: Engine

    def check_name(self, table: TableName, file: Path) -> None:
        """Check that this is the statement of a table.

        Raises:
            NotFoundError: it is another table's.
        """
        same_database = self.database in ("", table.database)
        if not same_database or self.name not in ("", table.name):
            stated = TableName(self.database or table.database, self.name or table.name)
            message = (
                f"Cannot find the table {table}: the statement in {file} is that of {stated}. Name "
                "that table, or the file of the other one."
            )
            raise NotFoundError(message, code=UNKNOWN_TABLE)


def read_definition(connection: Connection, file: Path) -> Definition:
    """Parse the single statement in a file.

    Raises:
        NotFoundError: the file does not exist.
        UsageError: it has no CREATE TABLE or ATTACH TABLE statement.
        UnsupportedError: the engine is another one, or has the old syntax without ORDER BY.
        SourceError: ClickHouse does not respond.
    """
    statement = _statement(connection, file)
    reader = TokenReader(statement, f"statement in {file}", advice=_ADVICE)
    if not (reader.accept_word("CREATE") or reader.accept_word("ATTACH")):
        raise reader.syntax_error("CREATE or ATTACH")
    if not reader.accept_word("TABLE"):
        raise reader.syntax_error("TABLE")
    if reader.accept_word("IF"):
        reader.take()
        reader.take()
    database, name = _name(reader)
    uuid = reader.take().value.lower() if reader.accept_word("UUID") else ""
    if reader.accept_word("ON"):
        reader.take()
        reader.take()
    start = reader.expect("(").stop
    columns = statement[start : reader.skip_group().start].strip()
    if not reader.accept_word("ENGINE"):
        raise reader.syntax_error("ENGINE")
    engine = parse_engine(_engine_text(reader))
    _check_engine(engine, file)
    return Definition(database, name, "" if uuid == NIL_UUID else uuid, columns, engine)


def _statement(connection: Connection, file: Path) -> str:
    """Return the statement of a file on one line, formatted by ClickHouse."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        text = content.decode()
    except FileNotFoundError as error:
        message = (
            f"Cannot read the statement in {file}: there is no such file. Write the output of SHOW "
            "CREATE TABLE into a file and name it by ?ddl=FILE."
        )
        raise NotFoundError(message) from error
    except (OSError, UnicodeDecodeError) as error:
        message = f"Cannot read the statement in {file}: {error}. {_ADVICE}"
        raise UsageError(message) from error
    if len(content) > _MOST_BYTES or not text.strip():
        what = "is larger than 1 MiB" if content.strip() else "is empty"
        message = f"Cannot read the statement in {file}: it {what}. {_ADVICE}"
        raise UsageError(message)
    try:
        return _formatted(connection, text)
    except ClickHouseError as error:
        plain = unescaped(text)
        if plain != text:
            # If this fails, too, the message is about the original text.
            with contextlib.suppress(ClickHouseError):
                return _formatted(connection, plain)
        reason = error.reason.partition(": In scope ")[0]
        message = f"Cannot read the statement in {file}: {reason}. {_ADVICE}"
        raise UsageError(message, code=error.code) from error


def unescaped(text: str) -> str:
    """Return a text without the escapes of ClickHouse's tab-separated output."""
    return _ESCAPES.sub(lambda found: _TSV.get(found[1], found[1]), text)


def _formatted(connection: Connection, text: str) -> str:
    return one_text(connection, f"SELECT formatQuerySingleLine({quote_string(text)})")


def _name(reader: TokenReader) -> tuple[str, str]:
    """Parse `db.t`, `t` or `_`; a missing name is ''."""
    names = [_take_name(reader)]
    while reader.accept("."):
        names.append(_take_name(reader))
    name = names.pop()
    return ".".join(names), "" if name == _ANY_NAME else name


def _take_name(reader: TokenReader) -> str:
    if reader.peek().kind not in (TokenKind.WORD, TokenKind.QUOTED):
        raise reader.syntax_error("a table name")
    return reader.take().value


def _engine_text(reader: TokenReader) -> str:
    """Return the text from the engine's name to the end, without the table's comment."""
    reader.expect("=")
    start = stop = reader.peek().start
    before: Token | None = None
    last: Token | None = None
    while reader.peek().kind is not TokenKind.END:
        if before is not None:
            stop = before.stop
        before, last = last, reader.take()
    commented = (
        before is not None
        and last is not None
        and before.is_word("COMMENT")
        and last.kind is TokenKind.STRING
    )
    return reader.text[start:stop] if commented else reader.text[start:].strip().rstrip(";")


def _check_engine(engine: Engine, file: Path) -> None:
    if not engine.name.endswith("MergeTree"):
        message = (
            f"Cannot read the parts of the table in {file}: its engine is {engine.name}, and only "
            "tables of the MergeTree family have parts. Give the statement of the table whose "
            "parts they are."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    if engine.old_arguments or not engine.order_by:
        message = (
            f"Cannot read the parts of the table in {file}: {engine.name}({engine.arguments}) has "
            "no ORDER BY, as tables of the old syntax have none, and their parts cannot be opened "
            "in a table of another syntax. Copy the rows into a table with PARTITION BY and ORDER "
            "BY on its server."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    if "[HIDDEN]" in engine.arguments:
        message = (
            f"Cannot read the parts of the table in {file}: ClickHouse hides a secret in the "
            f"arguments of {engine.name}. Replace it by any text."
        )
        raise RefusedError(message)


_SCHEME: Final = "parts:"
_FORM: Final = (
    "parts:DIR?ddl=FILE, and after that &identity=uuid:UUID or &identity=keeper:PATH, &zone=ZONE, "
    "&equal-parts=keep"
)
_OPTIONS: Final = ("ddl", "identity", "zone", "equal-parts")
_IDENTITY: Final = re.compile(
    r"(?:uuid:[0-9a-f-]{36}|keeper:/.+|(?:server|host|directory|name):.+)\Z"
)
# The characters that need no %XX: all but the separators.
_LITERAL: Final = "".join(chr(c) for c in range(0x20, 0x7F) if chr(c) not in "%?&")


@dataclass(frozen=True, slots=True)
class FrozenSettings:
    """The directory of part folders and the file with their CREATE TABLE statement.

    `identity` is the table's if the statement lacks it. `zone` is the time zone of the server that
    wrote the parts ('' for this host's). `keep_equal_parts`: two parts with equal content are two
    inserts of the same rows, and not copies of one part.
    """

    directory: Path
    ddl_file: Path
    identity: str = ""
    zone: str = ""
    keep_equal_parts: bool = False


def is_parts(uri: str) -> bool:
    """Whether a source's address names frozen parts."""
    return uri.startswith(_SCHEME)


def parse_parts(uri: str) -> FrozenSettings:
    """Parse `parts:DIR?ddl=FILE` with its options.

    Raises:
        UsageError: the directory or the file is missing, or an option is malformed.
    """
    directory, _, tail = uri.removeprefix(_SCHEME).partition("?")
    if not is_parts(uri) or not directory:
        raise _malformed(uri, "it names no directory")
    options: dict[str, str] = {}
    for option in tail.split("&") if tail else ():
        name, _, value = option.partition("=")
        if name not in _OPTIONS or not value or name in options:
            raise _malformed(uri, f"{option!r} is not one of its options, or is given twice")
        options[name] = unquote(value, errors="surrogateescape")
    if "ddl" not in options:
        why = "it does not name the file with the CREATE TABLE statement of the parts"
        raise _malformed(uri, why)
    identity = options.get("identity", "")
    if identity and not _IDENTITY.match(identity):
        why = f"the identity {identity!r} is none of uuid:UUID, keeper:/PATH and name:TEXT"
        raise _malformed(uri, why)
    if options.get("equal-parts", "keep") != "keep":
        raise _malformed(uri, f"equal-parts is {options['equal-parts']!r} and can only be keep")
    return FrozenSettings(
        Path(unquote(directory, errors="surrogateescape")),
        Path(options["ddl"]),
        identity,
        options.get("zone", ""),
        "equal-parts" in options,
    )


def render_parts(settings: FrozenSettings) -> str:
    """Return the text that `parse_parts` parses."""
    options = (
        ("ddl", str(settings.ddl_file)),
        ("identity", settings.identity),
        ("zone", settings.zone),
        ("equal-parts", "keep" if settings.keep_equal_parts else ""),
    )
    query = "&".join(f"{name}={_quoted(value)}" for name, value in options if value)
    return f"{_SCHEME}{_quoted(str(settings.directory))}?{query}"


def _quoted(text: str) -> str:
    return quote(text, safe=_LITERAL, errors="surrogateescape")


def _malformed(uri: str, why: str) -> UsageError:
    return UsageError(f"Cannot read the source {uri!r}: {why}. Write {_FORM}.")


_UUID_DIRECTORY: Final = re.compile(
    r"/store/[0-9a-f]{3}/(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\Z"
)
_MACRO: Final = re.compile(r"\{[^{}]*\}")


def uuid_of(settings: FrozenSettings, definition: Definition, directory: Path) -> str:
    """Return the table's UUID from the statement, the path or the user, '' if none has it.

    Raises:
        RefusedError: path and statement have different ones.
    """
    found = _UUID_DIRECTORY.search(str(directory))
    in_path = found["uuid"] if found else ""
    if in_path and definition.uuid and in_path != definition.uuid:
        message = (
            f"Cannot read the parts in {directory}: they belong to the table with the UUID "
            f"{in_path}, but the statement in {settings.ddl_file} is that of {definition.uuid}. "
            "Give the statement of the same table."
        )
        raise RefusedError(message)
    scheme, _, given = settings.identity.partition(":")
    return definition.uuid or in_path or (given if scheme == "uuid" else "")


def identity_of(
    settings: FrozenSettings, definition: Definition, table: TableName, uuid: str
) -> str:
    """Return the identity that the table's own server would give, or the user's.

    Raises:
        RefusedError: there is none.
    """
    if settings.identity:
        return settings.identity
    if definition.engine.replicated:
        return _keeper(settings, definition, table, uuid)
    if uuid:
        return f"uuid:{uuid}"
    message = (
        f"Cannot tell to which table the parts in {settings.directory} belong: the statement in "
        f"{settings.ddl_file} has no UUID, nor has the path. Add &identity=uuid:UUID to the source "
        "(SELECT uuid FROM system.tables on its server), or &identity=name:TEXT for a table whose "
        "server no longer exists; the same in every run, or the rows are exported twice."
    )
    raise RefusedError(message)


def _keeper(settings: FrozenSettings, definition: Definition, table: TableName, uuid: str) -> str:
    path = _first_text(definition.engine.arguments)
    known = {"{database}": table.database, "{table}": table.name, "{uuid}": uuid}
    for macro, value in known.items():
        path = path.replace(macro, value or macro)
    if path and not _MACRO.search(path):
        return f"keeper:/{path.strip('/')}"
    why = (
        f"its Keeper path {path!r} has macros that only its server knows"
        if path
        else "it does not contain its Keeper path"
    )
    message = (
        f"Cannot tell to which table the parts in {settings.directory} belong: {why} (the "
        f"statement is in {settings.ddl_file}). Add &identity=keeper:PATH to the source (SELECT "
        "zookeeper_path FROM system.replicas on its server); the same in every run, or the rows "
        "are exported twice."
    )
    raise RefusedError(message)


def _first_text(arguments: str) -> str:
    first = tokenize(arguments, "engine")[0]
    return first.value if first.kind is TokenKind.STRING else ""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The table that a statement describes, and the statement's file."""

    table: MergeTreeTable
    file: Path


def other_types(connection: Connection, claimed: Claimed) -> dict[PartitionId, RefusedError]:
    """Return the partitions whose parts have a column of another type than the statement.

    A type that reads the same bytes as the same values (an Enum with more labels, another zone) is
    equal, and so is one that accepts every value of the other (LowCardinality, Nullable).

    Raises:
        SourceError: ClickHouse does not respond.
    """
    table = claimed.table
    internal = ", ".join(quote_string(column) for column in OWN_COLUMNS)
    declared = {column.name: column.type_text for column in table.columns}
    found = connection.rows(
        "SELECT partition_id, column, type, min(name) FROM system.parts_columns"
        f" WHERE active AND {of_table(table.name)} AND column NOT IN ({internal})"
        " GROUP BY partition_id, column, type ORDER BY partition_id, column, type"
    )
    refused: dict[PartitionId, RefusedError] = {}
    for row in found:
        partition, column, held, part = (text(value) for value in row)
        stated = declared.get(column)
        if stated is None or held == stated or _takes(parse_type(stated), parse_type(held)):
            continue
        message = Unable.of(
            f"partition {partition} of {table.name}",
            f"its part {part} holds the column {column} as {held}, and {claimed.file} says "
            f"{stated}. Give the statement of the table when the parts were frozen; if its type "
            "was changed then, rewrite the parts with OPTIMIZE TABLE ... FINAL and freeze them "
            "again.",
        )
        refused.setdefault(PartitionId(partition), RefusedError(message))
    return refused


def other_settings(
    connection: Connection,
    claimed: Claimed,
    layout: PartsLayout,
    directory: Path,
    partition_ids: Collection[PartitionId],
) -> dict[PartitionId, RefusedError]:
    """Return the partitions with parts that are not read as they were written.

    Args:
        connection: has the parts open as the table.
        claimed: the table.
        layout: how its parts are opened as files.
        directory: the directory of the part folders.
        partition_ids: the requested ones.

    Raises:
        SourceError: ClickHouse does not respond, or a folder cannot be read.
    """
    name = claimed.table.name
    if has_column(claimed.table, PART_OFFSET):
        message = Unable.of(
            str(name),
            f"its column {PART_OFFSET} has the name of a virtual column, without which the order "
            "of frozen parts cannot be proved. Restore the parts into a ClickHouse, and export "
            "that.",
        )
        return dict.fromkeys(partition_ids, RefusedError(message))
    opened = [
        PartFiles.of(text(part), whole(rows), whole(marks), text(files))
        for part, rows, marks, files in connection.rows(files_sql(of_table(name)))
    ]
    try:
        wrong = unread(directory, opened, layout.settings)
    except OSError as error:
        unread_text = (
            f"Cannot read the parts in {directory}: {error}. Run as a user who may read the "
            "directory and everything in it."
        )
        raise SourceError(unread_text) from error
    refused: dict[PartitionId, RefusedError] = {}
    for part, why in wrong.items():
        one = PartitionId(part.split("_", 1)[0])
        message = Unable.of(
            f"partition {one} of {name}",
            f"as {claimed.file} says, its part {part} cannot be read completely: {why}. Give the "
            "statement of the table, with the settings of its server's configuration in SETTINGS "
            "(SELECT name, value FROM system.merge_tree_settings WHERE changed).",
        )
        refused.setdefault(one, RefusedError(message))
    return {one: error for one, error in refused.items() if one in partition_ids}


def _takes(stated: DataType, held: DataType) -> bool:
    """Whether values of one type are read unchanged as another one."""
    if isinstance(stated, LowCardinality):
        return _takes(stated.of, held)
    if isinstance(held, LowCardinality):
        return _takes(stated, held.of)
    if isinstance(stated, Nullable):
        return _takes(stated.of, held.of if isinstance(held, Nullable) else held)
    if isinstance(stated, Enum) and isinstance(held, Enum):
        return set(held.labels) <= set(stated.labels)
    return rebuild(stated, _without_zone) == rebuild(held, _without_zone)


def _without_zone(of: DataType) -> DataType:
    match of:
        case DateTime():
            return DateTime()
        case DateTime64(precision):
            return DateTime64(precision)
        case _:
            return of


def other_partition_keys(
    connection: Connection, claimed: Claimed, partition_ids: Iterable[PartitionId]
) -> dict[PartitionId, RefusedError]:
    """Return the partitions with rows whose PARTITION BY has another value than the partition.

    Raises:
        ClickHouseError: the rows cannot be read.
        SourceError: ClickHouse does not respond.
    """
    table = claimed.table
    key = table.engine.partition_by
    if not key or key == "tuple()":
        return {}
    one, shown, computed, alone = (f"mergeberg_{n}" for n in ("one", "shown", "computed", "alone"))
    # The text of a key of one expression does not show whether it is a tuple; both are compared.
    found = connection.rows(
        f"SELECT {one}, any({shown}), any({computed}) FROM (SELECT _partition_id AS {one},"
        f" toString(_partition_value) AS {shown}, toString(tuple({key})) AS {computed},"
        f" toString({key}) AS {alone} FROM {table.name.sql} WHERE {_within(partition_ids)})"
        f" WHERE {shown} NOT IN ({computed}, {alone}) GROUP BY {one}"
        " SETTINGS optimize_use_projections = 0"
    )
    refused: dict[PartitionId, RefusedError] = {}
    for row in found:
        partition, as_value, other = (text(value) for value in row)
        message = Unable.of(
            f"partition {partition} of {table.name}",
            f"the partition is that of {as_value}, but PARTITION BY {key}, as {claimed.file} says, "
            f"gives {other} for some of its rows in the time zone {table.server_zone}. Give the "
            "statement of the table, and its server's time zone by &zone=ZONE.",
        )
        refused[PartitionId(partition)] = RefusedError(message)
    return refused


def unsorted(
    connection: Connection, claimed: Claimed, partition_ids: Iterable[PartitionId]
) -> dict[PartitionId, RefusedError]:
    """Return the partitions with a part whose rows are not in the order of ORDER BY.

    Raises:
        ClickHouseError: the rows cannot be read.
        SourceError: ClickHouse does not respond.
    """
    table = claimed.table
    try:
        keys = parse_sorting_key(table.engine.order_by)
    except UnsupportedError:
        # For a key that our parser refuses, the lake table declares no order either.
        return {}
    if not keys:
        return {}
    names = [f"k{i}" for i in range(len(keys))]
    selected = ", ".join(
        f"{qualify(key.expression)} AS {name}" for key, name in zip(keys, names, strict=True)
    )
    before = ", ".join(f"lagInFrame({n}) OVER w AS before_{n}" for n in ("part", "row", *names))
    found = texts(
        connection,
        "SELECT part FROM"
        f" (SELECT part, row, {', '.join(names)}, {before}"
        f" FROM (SELECT {SOURCE_ALIAS}._part AS part, {SOURCE_ALIAS}._part_offset AS row,"
        f" {selected}"
        f" FROM {table.name.sql} AS {SOURCE_ALIAS} WHERE {_within(partition_ids)})"
        " WINDOW w AS (ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING))"
        # A part may be read in any order; only rows with a greater offset are compared.
        f" WHERE before_part = part AND before_row < row AND ({_descends(keys, names)})"
        " GROUP BY part ORDER BY part SETTINGS max_threads = 1, optimize_use_projections = 0",
    )
    refused: dict[PartitionId, RefusedError] = {}
    for part in found:
        one = PartitionId(part.split("_", 1)[0])
        message = Unable.of(
            f"partition {one} of {table.name}",
            f"the rows of its part {part} are not in the order of ORDER BY "
            f"{table.engine.order_by}, as {claimed.file} says. Give the statement of the table.",
        )
        refused.setdefault(one, RefusedError(message))
    return refused


def _descends(keys: tuple[SortKey, ...], names: list[str]) -> str:
    """Return the condition that a row sorts before its predecessor."""
    cases = []
    equal = ""
    for key, name in zip(keys, names, strict=True):
        first, second = f"before_{name}", name
        if key.descending:
            first, second = second, first
        # NULL is the greatest value; a comparison with NaN is never true and reports nothing.
        less = f"ifNull({second} < {first}, isNull({first}) AND NOT isNull({second}))"
        cases.append(f"({equal}{less})")
        equal += f"{first} <=> {second} AND "
    return " OR ".join(cases)


def _within(partition_ids: Iterable[PartitionId]) -> str:
    return f"_partition_id IN ({', '.join(quote_string(str(one)) for one in partition_ids)})"
