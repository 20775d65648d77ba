"""Steps 2 and 3 of the commit protocol: M is loaded, and is what the ledger may decide on."""

from __future__ import annotations

from tableformat.committer import LakeTableState
from tableformat.effects import Step
from tableformat.errors import RefusedError
from tableformat.export.settling import Ports
from tableformat.lake_marks import LEDGER_PROPERTY
from tableformat.ledger import Ledger

__all__ = ["check_table_of_ledger", "load_table"]


def check_table_of_ledger(state: LakeTableState, ledger: Ledger) -> None:
    """Refuse a table of another ledger, or one that this ledger's past contradicts (step 3).

    Without it a lost or restored ledger exports everything again (holes 15, 16).

    Raises:
        RefusedError: the ledger is another one, or was restored from an older copy.
    """
    found = state.properties.get(LEDGER_PROPERTY)
    if found is not None and not (ledger.is_made() and found == ledger.identity):
        this = f"this one is {ledger.identity}" if ledger.is_made() else "this one does not exist"
        message = (
            f"Cannot export with the ledger {ledger.uri}: the table was exported to with another "
            f"ledger ({found}, {this}). Give that one with --ledger, or, when it is lost, "
            "rebuild it from the table with `mergeberg exports rebuild`."
        )
        raise RefusedError(message)
    highest = ledger.highest_epoch()
    if state.highest_epoch > highest:
        message = (
            f"Cannot export with the ledger {ledger.uri}: the table carries epoch "
            f"{state.highest_epoch}, the ledger has only given {highest}, so it was restored from "
            "an older copy. Use the newer ledger."
        )
        raise RefusedError(message)


def load_table(ports: Ports) -> LakeTableState:
    """Steps 2 and 3: load M; it is our ledger's table, and no older than what the ledger knows.

    The ledger is asked for all keys of the table: an export that lands on metadata that was put
    back is lost when the newer file comes back.

    Raises:
        RefusedError: the table is another ledger's, or its sequence number has gone back, so that
            it proves nothing any more.
    """
    state = ports.effects(Step.LOAD_METADATA, ports.table.load)
    check_table_of_ledger(state, ports.ledger)
    known = ports.ledger.highest_landed(state.layout.table_uuid)
    if known > state.last_sequence_number:
        # It may have landed since M was loaded.
        state = ports.effects(Step.LOAD_METADATA, ports.table.load)
        check_table_of_ledger(state, ports.ledger)
    if known > state.last_sequence_number:
        message = (
            f"Cannot commit: the ledger knows an export that landed with sequence number {known}, "
            f"the table has {state.last_sequence_number}; the table's metadata was put back to an "
            "older file. Restore the newer metadata."
        )
        raise RefusedError(message)
    return state
