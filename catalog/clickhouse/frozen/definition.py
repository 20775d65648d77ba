r"""The statement that made a table, as SHOW CREATE TABLE, a metadata file or a backup has it.

ClickHouse itself reads the statement (`formatQuery`), so that every spelling that it accepts is
accepted; what stands in its normal form is cut here. What the client prints with `\n` and `\'` for
line ends and quotes is read, too.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.clickhouse.connection import ClickHouseError, Connection, one_text
from tableformat.clickhouse_codes import NOT_IMPLEMENTED, UNKNOWN_TABLE
from tableformat.errors import NotFoundError, RefusedError, UnsupportedError, UsageError
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.table import Engine
from tableformat.mergetree.tokens import Token, TokenKind, TokenReader
from tableformat.names import TableName, quote_string

__all__ = ["NIL_UUID", "Definition", "read_definition", "unescaped"]

NIL_UUID: Final = "00000000-0000-0000-0000-000000000000"
"""What ClickHouse shows of a table without a UUID."""
_ADVICE: Final = "Give what SHOW CREATE TABLE prints."
_MOST_BYTES: Final = 1 << 20
_ESCAPES: Final = re.compile(r"\\(.)", re.DOTALL)
_TSV: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "f": "\f"}
_ANY_NAME: Final = "_"


@dataclass(frozen=True, slots=True)
class Definition:
    """What a statement says: each of the names and the UUID may be '' when it does not."""

    database: str
    name: str
    uuid: str
    columns: str
    engine: Engine

    def check_name(self, table: TableName, file: Path) -> None:
        """Make sure that this is the statement of a table.

        Raises:
            NotFoundError: it is another table's.
        """
        same_database = self.database in ("", table.database)
        if not same_database or self.name not in ("", table.name):
            own = TableName(self.database or table.database, self.name or table.name)
            message = (
                f"Cannot find the table {table}: the statement in {file} is that of {own}. Name "
                "that table, or the file of the other one."
            )
            raise NotFoundError(message, code=UNKNOWN_TABLE)


def read_definition(connection: Connection, file: Path) -> Definition:
    """Read the one statement in a file.

    Raises:
        NotFoundError: there is no such file.
        UsageError: it is no CREATE TABLE or ATTACH TABLE statement.
        UnsupportedError: it is of another engine, or of the old syntax without ORDER BY.
        SourceError: ClickHouse does not answer.
    """
    statement = _statement(connection, file)
    reader = TokenReader(statement, f"statement in {file}", advice=_ADVICE)
    if not (reader.accept_word("CREATE") or reader.accept_word("ATTACH")):
        raise reader.complaint("CREATE or ATTACH")
    if not reader.accept_word("TABLE"):
        raise reader.complaint("TABLE")
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
        raise reader.complaint("ENGINE")
    engine = parse_engine(_engine_text(reader))
    _check_engine(engine, file)
    return Definition(database, name, "" if uuid == NIL_UUID else uuid, columns, engine)


def _statement(connection: Connection, file: Path) -> str:
    """Return the statement of a file on one line, in ClickHouse's own spelling."""
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
            # What is wrong is said of the file as it is.
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
    """Take `db.t`, `t` or `_`; what is not said is ''."""
    names = [_taken(reader)]
    while reader.accept("."):
        names.append(_taken(reader))
    name = names.pop()
    return ".".join(names), "" if name == _ANY_NAME else name


def _taken(reader: TokenReader) -> str:
    if reader.peek().kind not in (TokenKind.WORD, TokenKind.QUOTED):
        raise reader.complaint("a table name")
    return reader.take().value


def _engine_text(reader: TokenReader) -> str:
    """Return all from the engine's name on but the comment of the table, which comes last."""
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
