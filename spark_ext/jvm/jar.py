"""Locates the jar for Spark, reads the digest of its inputs, and renders its JSON resource.

`spark_ext/jvm/build.py` builds the file. The resource declares every procedure and system table
in a canonical JSON. Java reads names, parameters and columns from it, so that Spark can parse, bind
and explain a statement without Python. Only Python executes the statement.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from spark_ext.procedures.declarations import Column, Parameter, Procedure, SystemTable
from tableformat.errors import NotFoundError

__all__ = ["DIGEST", "JAR", "MANIFEST", "RESOURCE", "made_of", "render_resource", "require_jar"]

JAR: Final = Path(__file__).resolve().with_name("mergeberg-spark.jar")
"""The jar, in the directory of this file in checkouts and wheels; it is not committed."""

MANIFEST: Final = "META-INF/MANIFEST.MF"
DIGEST: Final = "Inputs"
"""The entry of the manifest with the SHA-256 of the sources and the resource."""


def require_jar() -> Path:
    """Return the path of the jar.

    Raises:
        NotFoundError: this installation has no jar.
    """
    if not JAR.is_file():
        message = (
            f"Cannot set Spark up: this installation has no {JAR}. Install mergeberg from a wheel, "
            "or run `python -m spark_ext.jvm.build` in a checkout."
        )
        raise NotFoundError(message)
    return JAR


def made_of(jar: Path) -> str | None:
    """Return the digest of a jar's inputs; None if there is no such jar."""
    try:
        with zipfile.ZipFile(jar) as archive:
            manifest = archive.read(MANIFEST).decode()
    except (FileNotFoundError, KeyError, zipfile.BadZipFile):
        return None
    found = re.search(rf"^{DIGEST}: ([0-9a-f]+)\r?$", manifest, re.MULTILINE)
    return found[1] if found else None


RESOURCE: Final = "mergeberg/spark/declared.json"
"""The name of the resource in the jar."""


def render_resource(procedures: Iterable[Procedure], tables: Iterable[SystemTable]) -> str:
    """Return the declarations as JSON, sorted by name."""
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
    declared: dict[str, object] = {
        "name": parameter.name,
        "type": parameter.type,
        "comment": parameter.comment,
    }
    return declared if parameter.default is None else declared | {"default": parameter.default}


def _column(column: Column) -> dict[str, object]:
    return {"name": column.name, "type": column.type, "comment": column.comment}
