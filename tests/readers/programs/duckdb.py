"""DuckDB's results, with the extensions that are installed as Python packages."""

from __future__ import annotations

from spark_ext.demo.readers import find_duckdb
from tableformat.names import quote_string
from tests.readers.engines import environment_packages
from tests.readers.filters import Dialect, where
from tests.readers.programs.loop import STORE, Found, Question, of_arrow, serve_questions
from tests.readers.store import ObjectStore

__all__: list[str] = []

_DIALECT = Dialect(
    '"',
    {"'": "''", "\0": "' || chr(0) || '"},
    {
        "float": "CAST('{text}' AS FLOAT)",
        "double": "CAST('{text}' AS DOUBLE)",
        "decimal": "CAST('{text}' AS DECIMAL({precision}, {scale}))",
        "uuid": "UUID '{text}'",
        "fixed": "unhex('{hex}')",
        "binary": "unhex('{hex}')",
        "date": "DATE '{text}'",
        "timestamptz": "TIMESTAMPTZ '{text}'",
    },
)
_DUCKDB = find_duckdb()
_SESSION = _DUCKDB.module.connect(
    config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
)


def _reach(store: ObjectStore) -> None:
    extension = f"extensions/v{_DUCKDB.module.__version__}/httpfs.duckdb_extension"
    file = environment_packages() / "duckdb_extension_httpfs" / extension
    _SESSION.execute(f"LOAD {_DIALECT.text(str(file))}")
    _SESSION.execute(f"SET ca_cert_file = {_DIALECT.text(store.ca_file)}")
    words = {
        "ENDPOINT": store.host,
        "REGION": store.region,
        "KEY_ID": store.access_key,
        "SECRET": store.secret_key,
        "URL_STYLE": "path",
    }
    options = ", ".join(f"{name} {_DIALECT.text(text)}" for name, text in words.items())
    _SESSION.execute(f"CREATE SECRET (TYPE s3, {options})")


def _read(question: Question) -> Found:
    names = ", ".join(map(_DIALECT.name, question.columns))
    sql = f"SELECT {names} FROM iceberg_scan({quote_string(question.metadata)})"
    if question.filter is not None:
        sql += f" WHERE {where(question.filter, question.types, _DIALECT)}"
    return of_arrow(_SESSION.execute(sql).to_arrow_table())


if __name__ == "__main__":
    _SESSION.execute("SET TimeZone = 'UTC'")
    for extension in _DUCKDB.extensions:
        _SESSION.execute(f"LOAD {quote_string(str(extension))}")
    if STORE is not None:
        _reach(STORE)
    serve_questions(_DUCKDB.module.__version__, _read)
