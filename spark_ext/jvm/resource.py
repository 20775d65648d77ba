"""The resource of the Java side: every procedure and system table, as JSON that is always the same.

Java takes names, parameters and columns from it, so that a statement can be read, bound and
explained without asking Python; what they do is decided in Python only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from spark_ext.procedures.declared import Column, Parameter, Procedure, SystemTable

__all__ = ["RESOURCE", "render_resource"]

RESOURCE: Final = "mergeberg/spark/declared.json"
"""Its name inside the jar."""


def render_resource(procedures: Iterable[Procedure], tables: Iterable[SystemTable]) -> str:
    """Return the JSON text; the order given does not matter."""
    declared = {
        "procedures": sorted(map(_procedure, procedures), key=_name),
        "tables": sorted(map(_table, tables), key=_name),
    }
    return json.dumps(declared, indent=1, ensure_ascii=True) + "\n"


def _name(declared: Mapping[str, object]) -> str:
    return str(declared["name"])


def _procedure(procedure: Procedure) -> dict[str, object]:
    return {
        "name": procedure.name,
        "description": procedure.description,
        "parameters": [_parameter(parameter) for parameter in procedure.parameters],
        "columns": [_column(column) for column in procedure.columns],
    }


def _table(table: SystemTable) -> dict[str, object]:
    return {
        "name": table.name,
        "description": table.description,
        "columns": [_column(column) for column in table.columns],
    }


def _parameter(parameter: Parameter) -> dict[str, object]:
    said: dict[str, object] = {
        "name": parameter.name,
        "type": parameter.type,
        "comment": parameter.comment,
    }
    return said if parameter.default is None else said | {"default": parameter.default}


def _column(column: Column) -> dict[str, object]:
    return {"name": column.name, "type": column.type, "comment": column.comment}
