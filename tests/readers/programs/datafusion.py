"""DataFusion's results, through the table provider of PyIceberg's Rust core."""

from __future__ import annotations

from importlib.metadata import version

import datafusion
from pyiceberg.table import StaticTable

from tests.readers.filters import Dialect, where
from tests.readers.programs.loop import STORE, Found, Question, of_arrow, serve_questions

__all__: list[str] = []

_DIALECT = Dialect(
    '"',
    {"'": "''"},
    {
        "float": "CAST('{text}' AS FLOAT)",
        "double": "CAST('{text}' AS DOUBLE)",
        "decimal": "CAST('{text}' AS DECIMAL({precision}, {scale}))",
        "uuid": "X'{hex}'",
        "fixed": "arrow_cast(X'{hex}', 'FixedSizeBinary({precision})')",
        "binary": "X'{hex}'",
        "date": "DATE '{text}'",
        "timestamptz": "arrow_cast('{text}', 'Timestamp(Microsecond, Some(\"+00:00\"))')",
    },
)


def _read(question: Question) -> Found:
    session = datafusion.SessionContext()
    properties = {**STORE.properties, "s3.path-style-access": "true"} if STORE else {}
    session.register_table("t", StaticTable.from_metadata(question.metadata, properties))
    sql = f"SELECT {', '.join(map(_DIALECT.name, question.columns))} FROM t"
    if question.filter is not None:
        sql += f" WHERE {where(question.filter, question.types, _DIALECT)}"
    return of_arrow(session.sql(sql).to_arrow_table())


if __name__ == "__main__":
    serve_questions(version("datafusion"), _read)
