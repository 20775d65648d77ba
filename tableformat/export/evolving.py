"""`--evolve-schema`: the destination gets the columns that it lacks, before anything is written.

What the table remembers of its source is noted as that is now, with them or alone.

The change is a commit of its own, asked for once in a turn and never retried blindly: any answer
but a success means to load again and look, as in `commit.py`. It requires the schema and the last
column id that it was made from, so it applies once at most, and never on top of another writer's
change. A crash after it leaves columns that are NULL; the next run finds nothing to add. Files are
only written once it is there, and the commit of a partition asserts the schema they were made for.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tableformat.committer import LakeTable, LakeTableState, SchemaChange
from tableformat.effects import Step
from tableformat.errors import RefusedError
from tableformat.export.destination import schema_change
from tableformat.export.loading import check_table_of_ledger
from tableformat.export.plan import TablePlan
from tableformat.export.ports import JobPorts
from tableformat.names import LakeName

__all__ = ["change_text", "evolve_schema"]

_MOST_TURNS: Final = 10
_SOURCE: Final = "mergeberg.source."


def evolve_schema(
    ports: JobPorts, plan: TablePlan, name: LakeName, lake: LakeTable, state: LakeTableState
) -> LakeTableState:
    """Add what the table lacks; return the state in which it lacks nothing that can be added.

    Args:
        ports: what the job acts on.
        plan: of the export.
        name: the destination.
        lake: the destination.
        state: as it was loaded last.

    Raises:
        RefusedError: something else forbids the export, so that nothing was changed; or the catalog
            confirmed none of the requests.
        DestinationError: the catalog did not answer.
    """
    evidence = ""
    for attempt in range(1, _MOST_TURNS + 1):
        change = schema_change(plan, name, state)
        if change is None:
            return state
        sent = ports.effects(Step.EVOLVE_SCHEMA, partial(lake.evolve, state, change))
        if sent.applied:
            ports.observer.note(change_text(change, name))
        else:
            evidence = sent.error
            ports.pause(attempt)
        state = ports.effects(Step.LOAD_METADATA, lake.load)
        check_table_of_ledger(state, ports.ledger)
    message = (
        f"Cannot add columns to {name}: {_MOST_TURNS} requests were sent, and the table still "
        f"lacks some; the last answer: {evidence or 'success'}. Run the command again."
    )
    raise RefusedError(message)


def change_text(change: SchemaChange, name: LakeName, *, would: bool = False) -> str:
    """Say what a change of the schema does, or `would` do, to a table."""
    if change.added:
        return f"{'would be added' if would else 'added'} to {name}: {', '.join(change.added)}"
    noted = ", ".join(key.removeprefix(_SOURCE) for key, _ in change.properties)
    return f"{'would be noted' if would else 'noted'} in {name} as the source has it now: {noted}"
