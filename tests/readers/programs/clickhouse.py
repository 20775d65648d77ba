"""ClickHouse's answers from a lake table: chdb's table function `icebergLocal`."""

from __future__ import annotations

import os

import chdb

from tableformat.names import quote_string
from tests.readers.filters import Dialect, where
from tests.readers.programs.loop import Found, Question, answer_questions, of_arrow

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
# Files are read below the working directory only.
os.chdir("/")
_CONNECTION = chdb.connect(":memory:")  # type: ignore[no-untyped-call]


def _read(question: Question) -> Found:
    names = ", ".join(map(_DIALECT.name, question.columns))
    sql = f"SELECT {names} FROM icebergLocal({quote_string(question.table_path)})"
    if question.filter is not None:
        sql += f" WHERE {where(question.filter, question.types, _DIALECT)}"
    return of_arrow(_CONNECTION.query(sql, "ArrowTable"))


if __name__ == "__main__":
    answer_questions(chdb.engine_version, _read, close=_CONNECTION.close)
