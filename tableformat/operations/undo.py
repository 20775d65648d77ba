"""Decides whether a single statement undoes another one, before that one runs.

A result names an undo only if that statement, run at once, brings back exactly the rows that left
and removes exactly those that came. Otherwise it names none, and says why (`NoUndo`) and where the
rows are. `tableformat.export.outcome.undo_statement` has the text of the undo.

* DETACH is undone by ATTACH, unless ATTACH would return files that were detached before, or would
  be refused.
* Other rows are copied from the snapshot before: whole partitions that were dropped by ATTACH FROM,
  all others by REPLACE FROM. Neither copies a file to which deletes apply, one of an earlier
  partition spec whose rows have no single place now, or a foreign file with rows of several
  partitions.
* MOVE is undone by a MOVE back (`not_moved_back`), unless the other table had rows of the
  partition: they would come along.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tableformat.committer import BranchFile, LakeTableState
from tableformat.errors import DestinationError, NotFoundError, RefusedError
from tableformat.export.main_state import transaction_of
from tableformat.export.outcome import Status
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.ledger import Key, StatementKind
from tableformat.operations.partition_files import (
    FilesOfKey,
    KeyInMain,
    PartitionFiles,
    Partitions,
)
from tableformat.operations.statement import (
    DetachedUse,
    KeyChange,
    NoUndo,
    OnePart,
    Plan,
    Statement,
    Which,
)

__all__ = ["not_moved_back", "with_undo"]

_SHOWN: Final = 10
_FETCHES: Final = (StatementKind.FETCH, StatementKind.FETCH_FROM_OUTSIDE)


def with_undo(
    statement: Statement,
    plan: Plan,
    there: PartitionFiles,
    partitions: Partitions,
    state: LakeTableState,
) -> Plan:
    """Return a plan with the reason why no single statement undoes it, if there is one.

    Args:
        statement: the statement.
        plan: its plan.
        there: the files of its partition, for which it was planned.
        partitions: finds the partitions of the table.
        state: the state of the table.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    if not plan.leaves_main.files:
        return plan
    asked = _Asked(statement, plan, there, partitions, state)
    if statement.detached_use is DetachedUse.FILLED:
        found = _not_attached(asked)
    elif statement.did in (Status.DROPPED, Status.REPLACED, Status.CHANGED):
        found = _not_copied(asked)
    else:
        found = None
    return replace(plan, no_undo=found)


def not_moved_back(
    plan: Plan, there: PartitionFiles, other: PartitionFiles, added: Plan
) -> NoUndo | None:
    """Return why a MOVE back does not undo a MOVE, None if it does.

    Args:
        plan: what leaves this table.
        there: the files of the partition here.
        other: the files of the partition in the other table, before the MOVE.
        added: what comes to the other table.
    """
    if other.keys:
        return NoUndo("the other table had rows of the partition before, which would leave it, too")
    if not added.comes_to_main.files or any(not at.held.is_known for at in other.in_main.values()):
        return NoUndo("it is not known which rows of the partition the other table had before")
    if any(not at.held.is_known for at in there.in_main.values()):
        return NoUndo("files of other writers have rows of exports of the partition")
    # Foreign rows come back under a key of the other table.
    back = Key.of_lake(other.table_uuid, str(there.partition_id), there.table_uuid)
    changed = {one.key for one in plan.changes}
    at = there.elsewhere(back.hash) if back not in changed else None
    if at is not None and (at.held.files or not at.held.is_known):
        return NoUndo("it is not known which rows of the other table came here before")
    return _of_earlier_spec(plan, there)


def _of_earlier_spec(plan: Plan, there: PartitionFiles) -> NoUndo | None:
    files = (*(f for one in there.keys for f in one.files), *_leaving(plan.changes))
    for file in files:
        if file.spec_id != there.spec_id and file.rows:
            return NoUndo(f"{file.path} has an earlier partition spec, which no copy has")
    return None


def _leaving(changes: Iterable[KeyChange]) -> tuple[BranchFile, ...]:
    return tuple(file for one in changes for file in one.leaves)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A statement with its plan, the files of its partition, and the state of the table."""

    statement: Statement
    plan: Plan
    there: PartitionFiles
    partitions: Partitions
    state: LakeTableState

    @property
    def which(self) -> Which:
        """The object of the statement."""
        return self.statement.which


def _not_copied(asked: _Asked) -> NoUndo | None:
    """Return why the files before cannot be copied back from their snapshot, None if they can.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    there = _of_whole_partition(asked)
    if there is None:
        return NoUndo("some rows of its partition are in other partitions of this table")
    for file in (f for one in there.keys for f in one.files):
        if file.deletes:
            return NoUndo(f"rows of {file.path} are deleted by delete files, which no copy has")
    if there.partition_id is None and any(map(_may_be_apart, there.keys)):
        return NoUndo("a file that no export wrote may have rows of several partitions")
    adds = asked.statement.did is Status.DROPPED and not isinstance(asked.which, OnePart)
    if adds and _may_copy_twice(asked, there):
        return NoUndo("it is not known which rows of its exports would be added twice")
    return _of_earlier_spec(asked.plan, there)


def _of_whole_partition(asked: _Asked) -> PartitionFiles | None:
    """Return the files of the partition that REPLACE replaces; None if that is another one.

    The name of a part has the partition of its export, also if the exported table has another
    partition key than this one.
    """
    which = asked.which
    if not isinstance(which, OnePart) or asked.partitions.source is None:
        return asked.there
    try:
        found = asked.partitions.files(asked.state, which.partition_id)
    except (RefusedError, DestinationError):
        return None
    paths = {file.path for one in found.keys for file in one.files}
    return found if all(f.path in paths for f in _leaving(asked.plan.changes)) else None


def _may_copy_twice(asked: _Asked, there: PartitionFiles) -> bool:
    """Whether ATTACH FROM may take rows for such that main has under another key."""
    changed = {one.key for one in asked.plan.changes}
    states = [at for at in there.in_main.values() if at.row.key not in changed]
    related = {k for key in changed for k in (key.origin, key.within(key.partition_id))}
    others = (there.elsewhere(key.hash) for key in related - changed)
    states += [at for at in others if at is not None and at.held.files]
    unknown = any(at.held.files or not at.held.is_known for at in states)
    return unknown or any(not one.is_own for one in there.keys)


def _may_be_apart(one: FilesOfKey) -> bool:
    return not one.key.stays and any(file.rows for file in one.files)


def _not_attached(asked: _Asked) -> NoUndo | None:
    """Return why ATTACH does not return exactly what DETACH takes out, None if it does.

    Raises:
        DestinationError: the branch cannot be read.
        LedgerError: the ledger cannot be read.
    """
    if asked.partitions.detached(asked.state) and _returns_more(asked):
        return NoUndo("ATTACH would also return what was detached before", _parts(asked))
    if any(_may_be_refused(asked, change) for change in asked.plan.changes) or _is_apart(asked):
        return NoUndo("ATTACH may be refused, because other states of its rows were in main")
    return None


def _returns_more(asked: _Asked) -> bool:
    """Whether ATTACH would return detached files, too, or be refused because of them."""
    which = asked.which
    try:
        aside = asked.partitions.files(
            asked.state,
            which.partition_id,
            detached=True,
            by_name=isinstance(which, OnePart),
        )
        return bool(which.of(aside.detached, detached=True))
    except NotFoundError:
        return False
    except (RefusedError, DestinationError):
        return True


def _parts(asked: _Asked) -> str:
    """Return the advice to attach the files by their names, '' if they are of any partition."""
    of = asked.which.partition_id
    if of is None:
        return ""
    names = sorted(str(lake_part_name(of, f.path)) for f in _leaving(asked.plan.changes))
    more = len(names) - _SHOWN
    listed = ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"ATTACH PART returns {listed}, one after the other"


def _may_be_refused(asked: _Asked, change: KeyChange) -> bool:
    """Whether ATTACH may take the files of a key for other states of rows in main."""
    at = asked.there.in_main.get(change.key.hash)
    if at is None:
        return False
    fetched = {x.transaction_id for x in at.row.landed if x.kind in _FETCHES}
    if fetched & _written(change, at):
        return True
    if not isinstance(asked.which, OnePart) or not change.key.is_of_export:
        return False
    since = at.export.epoch if at.export is not None else 0
    late = {x.transaction_id for x in at.row.landed if x.epoch >= since}
    return not at.held.is_known or not _written(change, at) <= late


def _is_apart(asked: _Asked) -> bool:
    """Whether foreign files and those of an earlier export leave together, after a later one.

    Others may have made the foreign files of the later one.
    """
    changes = asked.plan.changes
    if all(change.key.is_of_export for change in changes):
        return False
    return any(_is_earlier(asked, change) for change in changes if change.key.is_of_export)


def _is_earlier(asked: _Asked, change: KeyChange) -> bool:
    """Whether another export of a key landed after one whose files leave main."""
    at = asked.there.in_main.get(change.key.hash)
    if at is None:
        return False
    written = _written(change, at)
    exports = [x for x in at.row.landed if x.kind is None]
    own = [x.epoch for x in exports if x.transaction_id in written]
    others = [x.epoch for x in exports if x.transaction_id not in written]
    return bool(own) and any(epoch > min(own) for epoch in others)


def _written(change: KeyChange, at: KeyInMain) -> set[str | None]:
    """Return the transactions of the files of a key that leave main."""
    return {transaction_of(file.path, at.row) for file in change.leaves}
