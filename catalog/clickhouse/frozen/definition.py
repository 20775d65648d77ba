r"""Reads the CREATE TABLE statement and the address of frozen parts, and derives their identity.

- Address: `parts:DIR?ddl=FILE[&identity=TEXT][&zone=ZONE][...]`. The characters `?`, `&` and `%`
  are written as %XX in every value.
- Statement: from SHOW CREATE TABLE, a metadata file or a backup. ClickHouse itself normalizes it
  (`formatQuery`), so every spelling that ClickHouse accepts is accepted; this module splits the
  normal form. Output of the client with `\n` and `\'` for line ends and quotes is read, too.
- Identity: the same text that the table's own server would give. A replicated table is its
  Keeper path, any other table its UUID. Both come from the statement, the path of a FREEZE or
  the user. The module never invents one, because two identities of one table would export its
  rows twice.

See docs/reference/source-parts.md, "One table, one identity".
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from catalog.clickhouse.connection import ClickHouseError, Connection, one_text
from tableformat.clickhouse_codes import NOT_IMPLEMENTED, UNKNOWN_TABLE
from tableformat.errors import NotFoundError, RefusedError, UnsupportedError, UsageError
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.sql_tokens import Token, TokenKind, TokenReader, tokenize
from tableformat.mergetree.table import Engine
from tableformat.names import TableName, quote_string

__all__ = [
    "NIL_UUID",
    "Definition",
    "FrozenSettings",
    "identity_of",
    "is_parts",
    "parse_parts",
    "read_definition",
    "render_parts",
    "unescaped",
    "uuid_of",
]

NIL_UUID: Final = "00000000-0000-0000-0000-000000000000"
"""ClickHouse's UUID for a table without one."""
_ADVICE: Final = "Give what SHOW CREATE TABLE prints."
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
            f"Cannot read the statement in {file}: there is no such file. Write what SHOW CREATE "
            "TABLE prints into a file and name it by ?ddl=FILE."
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
            "no ORDER BY, as tables of the old syntax have none, and their parts open under no "
            "other. Copy the rows into a table with PARTITION BY and ORDER BY on its server."
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
            raise _malformed(uri, f"{option!r} is no option that it takes, or is there twice")
        options[name] = unquote(value, errors="surrogateescape")
    if "ddl" not in options:
        why = "it does not say which file has the CREATE TABLE statement of the parts"
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
            f"Cannot read the parts in {directory}: they are of the table with the UUID {in_path}, "
            f"and the statement in {settings.ddl_file} is that of {definition.uuid}. Give the "
            "statement of the same table."
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
        f"Cannot tell which table the parts in {settings.directory} are of: the statement in "
        f"{settings.ddl_file} has no UUID, nor has the path. Add &identity=uuid:UUID to the source "
        f"(SELECT uuid FROM system.tables on its server), or &identity=name:TEXT for a table that "
        "has no server any more; the same in every run, or the rows are exported twice."
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
        else "it does not say its Keeper path"
    )
    message = (
        f"Cannot tell which table the parts in {settings.directory} are of: {why} (the statement "
        f"is in {settings.ddl_file}). Add &identity=keeper:PATH to the source (SELECT "
        "zookeeper_path FROM system.replicas on its server); the same in every run, or the rows "
        "are exported twice."
    )
    raise RefusedError(message)


def _first_text(arguments: str) -> str:
    first = tokenize(arguments, "engine")[0]
    return first.value if first.kind is TokenKind.STRING else ""
