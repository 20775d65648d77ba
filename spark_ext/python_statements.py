"""The functions of `spark_ext` that are statements on lake tables, made from `spark_ext.typed`.

    spark_ext.detach_partition(spark, "lake.analytics.events", partition_id="202401")

Each is the procedure of its name, without the jar: the same parameters, all but the table by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from pyspark.sql import SparkSession

from spark_ext.procedures.declared import Parameter, Procedure, Value
from spark_ext.procedures.typed import TYPED_PROCEDURES
from spark_ext.python_api import OF_SESSIONS, ExportedPartition, called
from spark_ext.session_table import SessionTable

__all__ = ["FUNCTIONS"]

_Function: TypeAlias = Callable[..., tuple[ExportedPartition, ...]]
_DEFAULTS: Final[Mapping[str | None, object]] = {
    None: inspect.Parameter.empty,
    "NULL": None,
    "false": False,
}


def __getattr__(name: str) -> _Function:
    """Return a function by its name."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def _function(procedure: Procedure) -> _Function:
    signature = _signature(procedure)

    def run(*given: object, **named: object) -> tuple[ExportedPartition, ...]:
        bound = signature.bind(*given, **named)
        bound.apply_defaults()
        arguments: dict[str, Value | SessionTable] = dict(bound.arguments)
        spark = arguments.pop("spark")
        return called(procedure, spark, arguments)  # type: ignore[arg-type]

    run.__name__ = run.__qualname__ = procedure.name
    run.__doc__ = _documented(procedure)
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def _signature(procedure: Procedure) -> inspect.Signature:
    positional, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    table, *others = procedure.parameters
    return inspect.Signature(
        [
            inspect.Parameter("spark", positional, annotation=SparkSession),
            inspect.Parameter(table.name, positional, annotation=str),
            *(_parameter(one, keyword) for one in others),
        ],
        return_annotation=tuple[ExportedPartition, ...],
    )


def _parameter(one: Parameter, kind: inspect._ParameterKind) -> inspect.Parameter:
    takes: Any = bool if one.type == "BOOLEAN" else str
    if one.name in OF_SESSIONS:
        takes |= SessionTable
    if one.default == "NULL":
        takes |= None
    return inspect.Parameter(one.name, kind, default=_DEFAULTS[one.default], annotation=takes)


def _documented(procedure: Procedure) -> str:
    arguments = "\n".join(f"    {one.name}: {one.comment}." for one in procedure.parameters)
    return (
        f"{procedure.description}\n\nArgs:\n    spark: the session.\n{arguments}\n\n"
        "Raises:\n    TableFormatError: it cannot be done.\n"
    )


FUNCTIONS: Final[Mapping[str, _Function]] = {one.name: _function(one) for one in TYPED_PROCEDURES}
"""The functions by name."""
