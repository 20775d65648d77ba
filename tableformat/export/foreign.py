"""Files of others where an export goes: its first files land beside them only when that was asked.

A file is ours when the ledger knows the key in its name, of whatever source, as a key of this very
table: a copy of the table carries names of another one's keys. Files of others that a statement
copied stay files of others, and may hold rows that an export has. Rule: coverage.md reading 16
(ClickHouse's `export_merge_tree_part_overwrite_file_if_exists`), protocol.md step 6.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tableformat.committer import LakeTable, LakeTableState, PartitionFile
from tableformat.errors import RefusedError
from tableformat.export.in_main import Holding, Kind
from tableformat.ledger import Ledger
from tableformat.quantities import counted

__all__ = ["BESIDE_OTHERS", "OwnKeys", "foreign_among", "goes_on", "refuse_foreign"]

BESIDE_OTHERS: Final = "Cannot export into this lake partition: "
"""How the refusal begins: rows are there already, which is counted as a duplicate (reading 16)."""
_SHOWN: Final = 3


class OwnKeys:
    """Says whether the ledger knows a key hash as one of a table; a key once known stays known."""

    def __init__(self, ledger: Ledger, destination: str) -> None:
        """Start without having asked the ledger."""
        self._ledger = ledger
        self._destination = destination
        self._known: set[str] = set()

    def __call__(self, key: str) -> bool:
        """Return whether it is; asks the ledger once for each that is.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if key not in self._known:
            row = self._ledger.read(key)
            if row is None or row.key.destination != self._destination:
                return False
            if not row.key.is_of_export:
                return False
            self._known.add(key)
        return True


def foreign_among(files: Iterable[PartitionFile], own: OwnKeys) -> tuple[PartitionFile, ...]:
    """Return the files that no export of the ledger wrote.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    return tuple(f for f in files if not (f.key and own(f.key)))


def goes_on(held: Holding, *, beside: bool, force: bool) -> bool:
    """Whether an export goes on whatever files others have there.

    One that replaces files of its own does. Where somebody took its files away, files that others
    added may hold their rows: a user who always goes on `beside` others has not said that these do
    not, one who uses `force` has.
    """
    return bool(held.files) or (beside and (force or held.kind is not Kind.GONE))


def refuse_foreign(
    table: LakeTable,
    state: LakeTableState,
    partition: tuple[str | None, ...],
    own: OwnKeys,
    held: Holding,
) -> None:
    """Refuse an export that would be the only one of its key beside files of others.

    Args:
        table: the destination.
        state: what main is taken from.
        partition: the Iceberg values, as in `Receipt`, of the spec of `state`.
        own: says whose key a file's name carries.
        held: what main holds of the key: none of its files.

    Raises:
        RefusedError: there are such files; it names the snapshots that added them.
        DestinationError: main cannot be read.
        LedgerError: the ledger cannot be read.
    """
    found = foreign_among(table.files_in(state, partition), own)
    if found:
        rows = sum(f.rows for f in found)
        held_rows = f" with {counted(rows, 'row')}" if not state.tree else ""
        gone = held.kind is Kind.GONE
        message = (
            f"{BESIDE_OTHERS}main has {counted(len(found), 'file')}{held_rows} "
            f"there that no export of this ledger wrote, added by {_by(found, state)}. "
            f"{held.text + ' ' if gone else ''}If they are other rows, go on beside them with "
            f"{'--force ' if gone else ''}--overwrite-file-if-exists; they stay."
        )
        raise RefusedError(message)


def _by(found: tuple[PartitionFile, ...], state: LakeTableState) -> str:
    if state.tree:
        return f"others, for example {found[0].path}"
    ids = list(dict.fromkeys(f.snapshot_id for f in found))
    told = [
        f"snapshot {i} ({state.snapshots[i].operation if i in state.snapshots else 'expired'})"
        for i in ids[:_SHOWN]
    ]
    return ", ".join(told) + (f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else "")
