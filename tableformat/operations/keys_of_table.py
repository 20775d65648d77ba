"""Determines what main has of each key of a lake table, and which key a data file belongs to.

The name of a file has the key of the export or statement that wrote it. Files that other writers
made of all files of an export belong to the key, too (`Kind.REWRITTEN` in
`tableformat/export/main_state.py`), and the ledger notes their paths. Files with rows of several
exports belong to no key.

`earlier` returns the files of a key that main had before each statement on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tableformat.committer import BranchFile, FilesOfMain, LakeTableState
from tableformat.export.main_state import FilesAt, Holding, Kind, holding, transaction_of
from tableformat.file_names import key_in
from tableformat.ledger import MOST_FILES_NOTED, Held, Landed, Record, Row, StatementKind
from tableformat.names import PartitionId

__all__ = ["Earlier", "KeyInMain", "KeysOfTable", "earlier", "held_of"]


@dataclass(frozen=True, slots=True)
class Earlier:
    """A state of main before a statement on a key, in the history of the present main.

    `number` is the sequence number of the snapshot. `paths` are its files of the key, by name,
    without files to which deletes apply. `number_of_detached` is the sequence number of the files
    that the statement detached, None if it detached none.
    """

    number: int
    paths: frozenset[str]
    number_of_detached: int | None


def earlier(row: Row, state: LakeTableState, files_at: FilesAt) -> Iterator[Earlier]:
    """Yield the state of main before each statement on a key in main's history, the latest first.

    Args:
        row: the key's ledger row.
        state: the table's metadata; expired snapshots are left out.
        files_at: returns the key's files in a snapshot of `state`.
    """
    statements = {x.snapshot_id: x for x in row.landed if x.kind is not None}
    for one in state.ancestors():
        done = statements.get(one.snapshot_id)
        before = state.snapshots.get(one.parent_id) if one.parent_id is not None else None
        if done is None or before is None:
            continue
        paths = frozenset(f.path for f in files_at(before.snapshot_id) if not f.deletes)
        # The branch's snapshot is the second of the two in its request.
        detached = one.sequence_number + 1 if done.kind is StatementKind.DETACH else None
        yield Earlier(before.sequence_number, paths, detached)


@dataclass(frozen=True, slots=True)
class KeyInMain:
    """The state of a key in main, and its last export in main's history.

    `earlier` yields the state of main before each statement on the key, the latest first.
    """

    row: Row
    held: Holding
    export: Landed | None
    earlier: Callable[[], Iterator[Earlier]]

    @property
    def record(self) -> Record | None:
        """The record of the export of which main has all files and no others, None otherwise."""
        done = self.row.done
        return done if done is not None and self.held.holds(done.landed) else None


@dataclass(frozen=True, slots=True)
class KeysOfTable:
    """The ledger rows of a lake table by key hash, and the state of each key in main.

    `may_have` tells whether a key may have rows in a partition, according to the ledger. Every
    state is computed at most once.
    """

    lake: FilesOfMain
    state: LakeTableState
    rows: Mapping[str, Row]
    may_have: Callable[[Row, PartitionId], bool]
    states: dict[str, KeyInMain] = field(default_factory=dict, init=False)
    rewritten: dict[PartitionId | None, Mapping[str, Row]] = field(default_factory=dict, init=False)

    def find(self, key: str) -> KeyInMain | None:
        """Return the state of a key in main, None for a key that the ledger does not know."""
        return self.in_main(key) if key in self.rows else None

    def in_main(self, key: str) -> KeyInMain:
        """Return the state of a key of the ledger in main, with the proof if it is rewritten."""
        if key not in self.states:
            row = self.rows[key]
            files_at = partial(self.lake.files_of, self.state, key)
            held = holding(row, self.state, key, self.lake)
            if held.proof is not None and len(held.proof.files) <= MOST_FILES_NOTED:
                row = replace(row, rewritten=held.proof)
            elif held.proof is not None and held.kind is not Kind.MIXED:
                # The ledger cannot store which files have the rows.
                held = replace(held, kind=Kind.CHANGED)
            before = partial(earlier, row, self.state, files_at)
            self.states[key] = KeyInMain(row, held, _export(row, self.state), before)
        return self.states[key]

    def row_of(self, file: BranchFile, partition_id: PartitionId | None) -> Row | None:
        """Return the row of the key of a file in a partition, None for foreign files."""
        named = self.rows.get(key_in(file.path))
        return named or self._rewritten(partition_id).get(file.path)

    def _rewritten(self, partition_id: PartitionId | None) -> Mapping[str, Row]:
        """Return the rows of rewritten exports by the paths of the files with their rows."""
        if partition_id not in self.rewritten:
            keys = (
                self.in_main(key)
                for key, row in self.rows.items()
                if partition_id is None or self.may_have(row, partition_id)
            )
            self.rewritten[partition_id] = {
                path: at.row
                for at in keys
                if at.held.is_known and at.row.rewritten is not None
                for path in at.row.rewritten.files
                if transaction_of(path, at.row) is not None
            }
        return self.rewritten[partition_id]


def _export(row: Row, state: LakeTableState) -> Landed | None:
    """Return the last export of a key in main's history; if none is there, the last export."""
    exports = tuple(x for x in row.landed if x.kind is None)
    line = tuple(x for x in exports if state.is_ancestor(x.snapshot_id))
    return max(line or exports, key=lambda x: x.epoch, default=None)


def held_of(files: tuple[BranchFile, ...], row: Row | None) -> tuple[Held, ...] | None:
    """Return files of a key as the ledger records them; None if the transaction of one is unknown.

    `row` is that of the key.
    """
    found: defaultdict[str, list[BranchFile]] = defaultdict(list)
    for file in files:
        transaction_id = transaction_of(file.path, row)
        if transaction_id is None:
            return None
        found[transaction_id].append(file)
    return tuple(
        Held(one, len(own), sum(f.rows for f in own)) for one, own in sorted(found.items())
    )
