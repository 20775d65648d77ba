"""Spark's results, with the Iceberg runtime of the release that Spark fetches and caches itself."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_ext.engine.session import SparkSettings, open_session
from tests.readers.filters import Dialect, where
from tests.readers.programs.loop import STORE, Found, Question, serve_questions
from tests.readers.store import ObjectStore
from tests.services.java_trust import trusting
from tests.support.iceberg_runtime import (
    AMAZON_CLIENT,
    POSTGRESQL_DRIVER,
    VERSION,
    check_runtime,
    runtime_settings,
)

__all__: list[str] = []

_AT_ONCE: Final = 40
_DIALECT: Final = Dialect(
    "`",
    {"'": "\\'", "\\": "\\\\", "\0": "\\0"},
    {
        "float": "CAST('{text}' AS FLOAT)",
        "double": "CAST('{text}' AS DOUBLE)",
        "decimal": "CAST('{text}' AS DECIMAL({precision}, {scale}))",
        "uuid": "'{text}'",
        "fixed": "X'{hex}'",
        "binary": "X'{hex}'",
        "date": "DATE '{text}'",
        "timestamptz": "TIMESTAMP '{text}'",
    },
)


def _catalog(store: ObjectStore) -> dict[str, str]:
    """Return the settings of the catalog `lake`, and whom Java trusts."""
    trusted = " ".join(trusting(Path(store.trust_store)))
    return store.spark_catalog | {"spark.driver.extraJavaOptions": trusted}


def _open() -> SparkSession:
    drivers = () if STORE is None else (POSTGRESQL_DRIVER, AMAZON_CLIENT)
    settings = runtime_settings("1g", *drivers) | {
        "spark.sql.shuffle.partitions": "1",
        # Thousands of small queries: compiling each would take longer than running it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
    }
    if STORE is not None:
        settings |= _catalog(STORE)
    session = open_session(SparkSettings("local[2]", tuple(settings.items())))
    check_runtime()
    return session


_SESSION = _open()


def _table(question: Question) -> str:
    if STORE is not None:
        return f"lake.n.{question.table_name}"
    return _view(question.metadata)


@functools.cache
def _view(metadata: str) -> str:
    """Name a table by its metadata file, which never changes."""
    name = f"t{_view.cache_info().misses}"
    _SESSION.read.format("iceberg").load(metadata).createOrReplaceTempView(name)
    return name


def _sql(question: Question) -> str:
    names = ", ".join(map(_DIALECT.name, question.columns))
    sql = f"SELECT {names} FROM {_table(question)}"
    if question.filter is not None:
        sql += f" WHERE {where(question.filter, question.types, _DIALECT)}"
    return sql


def _read(question: Question) -> Found:
    frame = _SESSION.sql(_sql(question))
    rows = frame.collect()
    shown = [field.dataType.simpleString() for field in frame.schema]
    return Found([[row[i] for row in rows] for i in range(len(shown))], shown)


def _read_several(questions: Sequence[Question]) -> list[Found]:
    """Ask everything in one job: planning and starting a job each would take minutes."""
    found: list[list[Any]] = [[] for _ in questions]
    for first in range(0, len(questions), _AT_ONCE):
        numbered = enumerate(questions[first : first + _AT_ONCE], first)
        parts = [f"SELECT {n} AS n, id FROM ({_sql(question)})" for n, question in numbered]
        for number, value in _SESSION.sql(" UNION ALL ".join(parts)).collect():
            found[number].append(value)
    return [Found([ids], ["int"]) for ids in found]


if __name__ == "__main__":
    release = ".".join(_SESSION.version.split(".")[:3])
    serve_questions(f"{release} with Iceberg {VERSION}", _read, _read_several)
