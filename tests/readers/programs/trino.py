"""Trino's results, from the catalog that the export has committed to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from trino.dbapi import connect

from tests.readers.filters import Dialect, where
from tests.readers.programs.loop import STORE, Found, Question, serve_questions

__all__: list[str] = []

_AT_ONCE: Final = 20
_DIALECT: Final = Dialect(
    '"',
    {"'": "''"},
    {
        "int": "INTEGER '{text}'",
        "long": "BIGINT '{text}'",
        "float": "CAST(replace('{text}', 'inf', 'Infinity') AS REAL)",
        "double": "CAST(replace('{text}', 'inf', 'Infinity') AS DOUBLE)",
        "decimal": "CAST('{text}' AS DECIMAL({precision}, {scale}))",
        "uuid": "UUID '{text}'",
        "fixed": "X'{hex}'",
        "binary": "X'{hex}'",
        "date": "DATE '{text}'",
        "timestamptz": "CAST(from_iso8601_timestamp_nanos('{text}')"
        " AS TIMESTAMP(6) WITH TIME ZONE)",
    },
)
assert STORE is not None, "Trino reads no local files"
_CONNECTION: Final = connect(
    host="127.0.0.1",
    port=STORE.trino,
    user="reader",
    catalog="lake",
    schema="n",
    timezone="UTC",
    request_timeout=120,
)


def _asked(sql: str) -> tuple[list[Sequence[Any]], list[str]]:
    """Return the rows and their types."""
    cursor = _CONNECTION.cursor()
    cursor.execute(sql)
    rows = cursor.fetchall()
    return rows, [column[1] for column in cursor.description or ()]


def _sql(question: Question) -> str:
    names = ", ".join(map(_DIALECT.name, question.columns))
    sql = f"SELECT {names} FROM {_DIALECT.name(question.table_name)}"
    if question.filter is not None:
        sql += f" WHERE {where(question.filter, question.types, _DIALECT)}"
    return sql


def _read(question: Question) -> Found:
    rows, shown = _asked(_sql(question))
    return Found([[row[place] for row in rows] for place in range(len(shown))], shown)


def _read_several(questions: Sequence[Question]) -> list[Found]:
    """Ask many in one query: to plan and to begin one each would take minutes."""
    found: list[list[Any]] = [[] for _ in questions]
    for first in range(0, len(questions), _AT_ONCE):
        numbered = enumerate(questions[first : first + _AT_ONCE], first)
        parts = [f"SELECT {n} AS n, id FROM ({_sql(question)})" for n, question in numbered]
        for number, value in _asked(" UNION ALL ".join(parts))[0]:
            found[number].append(value)
    return [Found([ids], ["integer"]) for ids in found]


if __name__ == "__main__":
    (((version,),), _) = _asked("SELECT node_version FROM system.runtime.nodes")
    serve_questions(version, _read, _read_several)
