"""A lake table as it is, or as a tag, a branch or a snapshot has it, by Iceberg's own names.

`lake.ns.t.tag_before`, `lake.ns.t.branch_detached` and `lake.ns.t.snapshot_id_123` name what
`lake.ns.t` had there; a table of that very name comes first (Iceberg: Spark queries, time travel).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from catalog.iceberg import OpenedCatalog
from catalog.iceberg_table import IcebergTable
from tableformat.committer import LakeTableState
from tableformat.names import LakeName

__all__ = ["SelectedTable", "selected_table"]

_SNAPSHOT: Final = "snapshot_id_"
_REFERENCES: Final = ("tag_", "branch_")


@dataclass(frozen=True, slots=True)
class SelectedTable:
    """A table of a catalog, and one state of it, whose `main` is the snapshot that is meant."""

    table: IcebergTable
    state: LakeTableState


def selected_table(catalog: OpenedCatalog, name: LakeName) -> SelectedTable | None:
    """Return what a name means; None when there is no such table, tag, branch or snapshot.

    Raises:
        DestinationError: the catalog cannot be read.
    """
    found = catalog.table(name)
    if found is not None:
        return SelectedTable(found, found.load())
    *namespace, table = name.namespace
    found = catalog.table(LakeName(name.catalog, tuple(namespace), table)) if namespace else None
    if found is None:
        return None
    state = found.load()
    snapshot = _snapshot(found, state, name.name)
    return None if snapshot is None else SelectedTable(found, replace(state, main=snapshot))


def _snapshot(table: IcebergTable, state: LakeTableState, selector: str) -> int | None:
    if selector.startswith(_SNAPSHOT):
        number = selector.removeprefix(_SNAPSHOT)
        return int(number) if number.isdecimal() and int(number) in state.snapshots else None
    kind = next((one for one in _REFERENCES if selector.startswith(one)), None)
    return table.references(state).get(selector.removeprefix(kind)) if kind else None
