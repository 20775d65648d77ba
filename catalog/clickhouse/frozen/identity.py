"""Whose parts these are, without a server to ask: the same text as the table's own server gives.

A Replicated table is its Keeper path, any other its UUID (DESIGN 5.1). Both stand in the statement
or in the path of a FREEZE, or the user says them; nothing is made up, because two names for one
table would export its rows twice.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from catalog.clickhouse.frozen.definition import Definition
from catalog.clickhouse.frozen.uri import FrozenSettings
from tableformat.errors import RefusedError
from tableformat.mergetree.tokens import TokenKind, tokenize
from tableformat.names import TableName

__all__ = ["identity_of", "uuid_of"]

_UUID_DIRECTORY: Final = re.compile(
    r"/store/[0-9a-f]{3}/(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\Z"
)
_MACRO: Final = re.compile(r"\{[^{}]*\}")


def uuid_of(settings: FrozenSettings, definition: Definition, directory: Path) -> str:
    """Return the table's UUID, '' when neither the statement nor the path nor the user says it.

    Raises:
        RefusedError: they say different ones.
    """
    found = _UUID_DIRECTORY.search(str(directory))
    in_path = found["uuid"] if found else ""
    if in_path and definition.uuid and in_path != definition.uuid:
        message = (
            f"Cannot read the parts in {directory}: they are of the table with the UUID {in_path}, "
            f"and the statement in {settings.ddl_file} is that of {definition.uuid}. Give the "
            "statement of the same table."
        )
        raise RefusedError(message)
    scheme, _, said = settings.identity.partition(":")
    return definition.uuid or in_path or (said if scheme == "uuid" else "")


def identity_of(
    settings: FrozenSettings, definition: Definition, table: TableName, uuid: str
) -> str:
    """Return what the table's own server would say, or what the user says.

    Raises:
        RefusedError: nobody says it.
    """
    if settings.identity:
        return settings.identity
    if definition.engine.replicated:
        return _keeper(settings, definition, table, uuid)
    if uuid:
        return f"uuid:{uuid}"
    message = (
        f"Cannot tell which table the parts in {settings.directory} are of: the statement in "
        f"{settings.ddl_file} has no UUID, nor has the path. Add &identity=uuid:UUID to the source "
        f"(SELECT uuid FROM system.tables on its server), or &identity=name:TEXT for a table that "
        "has no server any more; the same in every run, or the rows are exported twice."
    )
    raise RefusedError(message)


def _keeper(settings: FrozenSettings, definition: Definition, table: TableName, uuid: str) -> str:
    path = _first_text(definition.engine.arguments)
    known = {"{database}": table.database, "{table}": table.name, "{uuid}": uuid}
    for macro, value in known.items():
        path = path.replace(macro, value or macro)
    if path and not _MACRO.search(path):
        return f"keeper:/{path.strip('/')}"
    why = (
        f"its Keeper path {path!r} has macros that only its server knows"
        if path
        else "it does not say its Keeper path"
    )
    message = (
        f"Cannot tell which table the parts in {settings.directory} are of: {why} (the statement "
        f"is in {settings.ddl_file}). Add &identity=keeper:PATH to the source (SELECT "
        "zookeeper_path FROM system.replicas on its server); the same in every run, or the rows "
        "are exported twice."
    )
    raise RefusedError(message)


def _first_text(arguments: str) -> str:
    first = tokenize(arguments, "engine")[0]
    return first.value if first.kind is TokenKind.STRING else ""
