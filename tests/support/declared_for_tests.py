"""Procedures and a system table that only tests declare: every type there and back, and errors."""

from __future__ import annotations

from typing import Final

from spark_ext.procedures.declarations import Call, Column, Parameter, Procedure, Rows, SystemTable

__all__ = ["CRASH", "ECHO", "REFUSE", "STATE"]


def _never(call: Call) -> Rows:
    message = f"the test answers {call.arguments} itself"
    raise AssertionError(message)


ECHO: Final = Procedure(
    name="echo",
    description="Answers what a test says.",
    parameters=(
        Parameter("table", "STRING", "a name"),
        Parameter("count", "INT", "a number", default="4"),
        Parameter("big", "BIGINT", "a large number", default="NULL"),
        Parameter("ratio", "DOUBLE", "a ratio", default="0.5D"),
        Parameter("dry_run", "BOOLEAN", "yes or no", default="false"),
        Parameter("at", "TIMESTAMP", "a time", default="NULL"),
        Parameter("options", "MAP<STRING, STRING>", "options", default="map()"),
        Parameter("names", "ARRAY<STRING>", "names", default="array()"),
    ),
    columns=(
        Column("text", "STRING", "a text"),
        Column("small", "INT", "a number"),
        Column("big", "BIGINT", "a large number"),
        Column("ratio", "DOUBLE", "a ratio"),
        Column("yes", "BOOLEAN", "yes or no"),
        Column("at", "TIMESTAMP", "a time"),
        Column("day", "DATE", "a day"),
        Column("options", "MAP<STRING, STRING>", "options"),
        Column("names", "ARRAY<STRING>", "names"),
    ),
    run=_never,
)

REFUSE: Final = Procedure("refuse", "Refuses.", (), (Column("a", "STRING", "a"),), _never)
CRASH: Final = Procedure("crash", "Has a bug.", (), (Column("a", "STRING", "a"),), _never)

STATE: Final = SystemTable(
    name="state",
    description="What a test says.",
    columns=(Column("id", "BIGINT", "a number"), Column("status", "STRING", "a word")),
    run=_never,
)
