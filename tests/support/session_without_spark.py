"""A Spark session without Spark, for procedures that ask it little: what is current, what is there.

It keeps the tables that it was to refresh. Where rows are written, a test puts another
writer in the place of Spark's.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pyspark.sql import SparkSession

from spark_ext.procedures.declarations import Call, Procedure, Value
from spark_ext.sql.dispatch import PROCEDURES, respond, worded, words_of

__all__ = ["NoSpark", "Row"]

Row = dict[str, Any]
_LITERALS: Final[Mapping[str, Value]] = {
    "NULL": None, "true": True, "false": False, "map()": {},
}  # fmt: skip


@dataclass
class _Java:
    """The catalog manager of a session whose catalog and namespace are these."""

    current: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        """Respond to sessionState(), catalogManager() and the like."""
        return lambda *_: self

    def isDefined(self) -> bool:  # noqa: N802  the name is Scala's
        """Return whether there is a temporary view: none is."""
        return False

    def name(self) -> str:
        """Return the catalog's name."""
        return self.current[0]

    def currentNamespace(self) -> tuple[str, ...]:  # noqa: N802  the name is Java's
        """Return the namespace."""
        return self.current[1:]

    def get(self, _name: str) -> str:
        """Return the file system of Hadoop's settings."""
        return "file:///"


@dataclass
class _Started:
    """The settings that an application was started with."""

    settings: dict[str, str]

    def getAll(self) -> dict[str, str]:  # noqa: N802  the name is PySpark's
        """Return them."""
        return self.settings


@dataclass
class NoSpark:
    """The session; `conf` are its settings, `refreshed` the tables that were refreshed.

    The application was started with `started`, None for the settings of the session.
    """

    settings: dict[str, str]
    current: tuple[str, ...] = ("spark_catalog", "default")
    tables: frozenset[str] = frozenset()
    refreshed: list[str] = field(default_factory=list)
    defaultParallelism: int = 2  # noqa: N815  the name is Spark's
    started: dict[str, str] | None = None

    @property
    def session(self) -> SparkSession:
        """Itself, as code asks for it."""
        return cast("SparkSession", self)

    @property
    def conf(self) -> NoSpark:
        """What has `getAll`."""
        return self

    @property
    def getAll(self) -> dict[str, str]:  # noqa: N802  the name is Spark's
        """The settings."""
        return self.settings

    @property
    def catalog(self) -> NoSpark:
        """What knows tables."""
        return self

    @property
    def sparkContext(self) -> NoSpark:  # noqa: N802  the name is Spark's
        """What has `defaultParallelism`."""
        return self

    @property
    def _jsparkSession(self) -> _Java:  # noqa: N802  the name is PySpark's
        return _Java(self.current)

    @property
    def _jsc(self) -> _Java:
        return _Java(self.current)

    def getConf(self) -> _Started:  # noqa: N802  the name is PySpark's
        """Return the settings of the application."""
        return _Started(self.settings if self.started is None else self.started)

    def tableExists(self, name: str) -> bool:  # noqa: N802  the name is Spark's
        """Whether Spark has a table."""
        return name.replace("`", "") in self.tables

    def refreshTable(self, name: str) -> None:  # noqa: N802  the name is Spark's
        """Remember that a table was refreshed."""
        self.refreshed.append(name.replace("`", ""))

    def call(self, name: str, /, **given: Value) -> list[Row]:
        """Call a procedure as `lake.system` does; return its rows by column names."""
        procedure = PROCEDURES[name]
        arguments = _arguments(procedure, given)
        procedure.check(arguments)
        rows = procedure.run(Call(self.session, "lake", arguments, self.settings))
        names = [column.name for column in procedure.columns]
        return [dict(zip(names, worded(row, words_of(name)), strict=True)) for row in rows]

    def response(self, user: str | None, name: str, /, **given: Value) -> dict[str, Any]:
        """Ask as the server's JVM does for a user; return the response, `rows` or `error`.

        Args:
            user: None where nobody can tell.
            name: of a procedure, or `system.` and that of a system table.
            given: arguments.
        """
        table = name.removeprefix("system.")
        request: dict[str, Any] = {"user": user, "catalog": "lake"}
        if table != name:
            request["table"] = table
        else:
            request |= {"call": name, "arguments": _arguments(PROCEDURES[name], given)}
        decoded: dict[str, Any] = json.loads(respond(json.dumps(request), self.session))
        return decoded


def _arguments(procedure: Procedure, given: Mapping[str, Value]) -> dict[str, Value]:
    """Return all arguments of a call, those that are not given as they are declared."""
    missing = [p for p in procedure.parameters if p.name not in given]
    assert given.keys() <= {p.name for p in procedure.parameters}
    return {**{p.name: _literal(p.default) for p in missing}, **given}


def _literal(text: str | None) -> Value:
    """Return the value of a default."""
    assert text is not None, "an argument without a default is missing"
    if text in _LITERALS:
        return _LITERALS[text]
    return cast("Value", ast.literal_eval(text.rstrip("D")))
