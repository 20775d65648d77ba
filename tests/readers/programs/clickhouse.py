"""ClickHouse's results from a lake table: chdb's table function `icebergLocal`."""

from __future__ import annotations

import os
import tempfile

import chdb

from tableformat.names import quote_string
from tests.readers.filters import Dialect, where
from tests.readers.programs.loop import STORE, Found, Question, of_arrow, serve_questions

__all__: list[str] = []

_DIALECT = Dialect(
    "`",
    {"'": "\\'", "\\": "\\\\", "\0": "\\0"},
    {
        "float": "toFloat32('{text}')",
        "double": "toFloat64('{text}')",
        "decimal": "toDecimal128('{text}', {scale})",
        "uuid": "toUUID('{text}')",
        "fixed": "unhex('{hex}')",
        "binary": "unhex('{hex}')",
        "date": "toDate32('{text}')",
        "timestamptz": "parseDateTime64BestEffort('{text}', 6, 'UTC')",
    },
)


def _configuration(ca_file: str) -> str:
    """Return a file that says whom the server's own client is to trust."""
    with tempfile.NamedTemporaryFile("w", suffix=".xml", delete=False) as file:
        trusted = f"<openSSL><client><caConfig>{ca_file}</caConfig></client></openSSL>"
        file.write(f"<clickhouse>{trusted}</clickhouse>")
        return file.name


# Files are read below the working directory only.
os.chdir("/")
_CONFIGURED = f"?config-file={_configuration(STORE.ca_file)}" if STORE else ""
_CONNECTION = chdb.connect(f":memory:{_CONFIGURED}")  # type: ignore[no-untyped-call]


def _table(question: Question) -> str:
    if STORE is None:
        return f"icebergLocal({quote_string(question.table_path)})"
    words = f"{STORE.endpoint}/{question.table_path}", STORE.access_key, STORE.secret_key
    return f"iceberg({', '.join(map(quote_string, words))})"


def _read(question: Question) -> Found:
    names = ", ".join(map(_DIALECT.name, question.columns))
    sql = f"SELECT {names} FROM {_table(question)}"
    if question.filter is not None:
        sql += f" WHERE {where(question.filter, question.types, _DIALECT)}"
    return of_arrow(_CONNECTION.query(sql, "ArrowTable"))


if __name__ == "__main__":
    serve_questions(chdb.engine_version, _read, close=_CONNECTION.close)
