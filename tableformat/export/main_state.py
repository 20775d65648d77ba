"""Determines what main holds of a key's exports: all, nothing, rolled back, or changed by others.

The outcomes "unchanged" and "already exported", and the files that a replacement removes, depend
on this state. It is computed from main in every turn (docs/spec/commit-protocol.md, steps 6 and
11). File names identify the files of an export. If other writers rewrote or deleted some of them,
only the history of main shows where the rows are: compaction by another engine keeps all of them
(`Kind.REWRITTEN`, `Kind.MIXED`).

The module also reads marks without I/O (steps 5 and 8): which export a mark proves, and whether
the ledger knows it yet. The rows and files of a landed export come from its claim, which noted
them before the first request. They never come from main: another writer may have deleted some of
them since, and the ledger would call the rest complete.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

from tableformat.committer import (
    ByStatement,
    FileInMain,
    FilesOfMain,
    KeyCommit,
    LakeTableState,
    SnapshotSeen,
)
from tableformat.file_names import exported_by, is_of_key, is_of_transaction
from tableformat.ledger import Claim, Held, Landed, Rewritten, Row, StatementKind
from tableformat.quantities import counted
from tableformat.table_properties import Mark

__all__ = [
    "Earlier",
    "Holding",
    "Kind",
    "Past",
    "claim_of_mark",
    "holding",
    "landed_from",
    "landed_mark",
    "last_landed",
    "noted_files",
    "proof_of",
    "transaction_of",
    "unsettled_mark",
]


class Kind(Enum):
    """The state of a key's exports in main."""

    NOTHING = auto()
    """No export of the key ever landed."""
    WHOLE = auto()
    """Main has all files of one or several exports, each complete and without deletes."""
    GONE = auto()
    """Other writers removed the files without adding rows instead: the rows are gone."""
    ELSEWHERE = auto()
    """MOVE PARTITION moved the rows to another lake table."""
    LEFT = auto()
    """Main has exactly the files that a statement on the lake table left, no complete export."""
    MOVED = auto()
    """Main was moved (rolled back) to a snapshot without an export of the key."""
    CHANGED = auto()
    """Other writers rewrote or deleted rows, so it is not known which rows main has."""
    REWRITTEN = auto()
    """Other writers rewrote files of the last export: its rows are in files without other rows."""
    MIXED = auto()
    """Other writers rewrote files of the last export: its rows are in files with other rows."""
    STRANGE = auto()
    """Main has files of the key that, according to this ledger, never landed."""


@dataclass(frozen=True, slots=True)
class Holding:
    """The files of a key in main, and the exports that they belong to.

    `text` describes the state in a sentence. `files` have the key in their names, or are files of
    other writers that have rows of the key and no others. `edited`: only statements that change
    rows, such as UPDATE, landed since the last export. `proof` is that of a rewritten export. Of
    MOVED, `landed` are all that landed.
    """

    kind: Kind
    text: str
    files: tuple[FileInMain, ...] = ()
    landed: tuple[Landed, ...] = ()
    edited: bool = False
    proof: Rewritten | None = None

    @property
    def is_known(self) -> bool:
        """Whether all rows of the key in main are in `files`, which have no other rows."""
        return self.is_certain or self.kind is Kind.LEFT

    @property
    def is_certain(self) -> bool:
        """Whether all rows of the key's exports in main are in `files`, or there are none."""
        return self.kind not in (Kind.LEFT, Kind.CHANGED, Kind.MIXED, Kind.STRANGE)

    @property
    def rows(self) -> int:
        """The number of rows in the key's files."""
        return sum(f.rows for f in self.files)

    def holds(self, landed: Landed) -> bool:
        """Whether `files` are exactly this export of the key, completely."""
        return self.kind in (Kind.WHOLE, Kind.REWRITTEN) and self._is_of(landed)

    def has_rows_of(self, landed: Landed) -> bool:
        """Whether main has all rows of this export, also in files with other rows."""
        return self.holds(landed) or (self.kind is Kind.MIXED and self._is_of(landed))

    def _is_of(self, landed: Landed) -> bool:
        return [x.transaction_id for x in self.landed] == [landed.transaction_id]

    def about(self, landed: Landed) -> str:
        """Return the text on an export's rows, also if main holds another export of the key."""
        if self.kind is not Kind.WHOLE or self.holds(landed):
            return self.text
        others = ", ".join(str(x.snapshot_id) for x in self.landed)
        return (
            f"It landed in snapshot {landed.snapshot_id}, and main was moved away from it since: "
            f"it holds the export of snapshot {others}."
        )


@dataclass(frozen=True, slots=True)
class _History:
    """The snapshots of main, newest first, and the files of a key in them.

    `noted` are the paths of files of other writers with rows of the key, as the ledger knows them.
    """

    state: LakeTableState
    key: str
    lake: FilesOfMain
    noted: tuple[str, ...] = ()

    @property
    def ancestors(self) -> list[SnapshotSeen]:
        """The current snapshot of main, and the known ones before it."""
        return list(self.state.ancestors())

    def at(self, snapshot_id: int, also: Collection[str] = ()) -> tuple[FileInMain, ...]:
        """Return the files of the key in a snapshot, and those at the paths `also`."""
        return self.lake.files_of(self.state, self.key, snapshot_id, also)

    def later(self, landed: Landed) -> list[SnapshotSeen]:
        """Return the snapshots of main after that of an export, oldest first."""
        ancestors = self.ancestors
        numbers = [s.snapshot_id for s in ancestors]
        return ancestors[: numbers.index(landed.snapshot_id)][::-1]

    @property
    def begins_empty(self) -> bool:
        """Whether the earliest known snapshot of main, or main itself, has no data file.

        Then main holds no row of earlier snapshots, as after CREATE OR REPLACE TABLE, of which no
        snapshot shows that others removed the rows.
        """
        ancestors = self.ancestors
        return any(
            not self.lake.paths_in_main(replace(self.state, main=one.snapshot_id))
            for one in (*ancestors[:1], *ancestors[-1:])
        )

    def touching(self, landed: Landed, paths: Collection[str]) -> tuple[int, ...]:
        """Return the snapshots after that of an export that added or removed files at `paths`."""
        line = (landed.snapshot_id, *(s.snapshot_id for s in self.later(landed)))
        there = [frozenset(f.path for f in self.at(one, paths)) for one in line]
        pairs = zip(line[1:], itertools.pairwise(there), strict=True)
        return tuple(one for one, (before, after) in pairs if before != after)

    def proved(
        self, landed: Landed, exported: tuple[FileInMain, ...], later: list[SnapshotSeen]
    ) -> tuple[FileInMain, ...] | None:
        """Return the files of main with the rows of an export whose files others rewrote.

        None if the metadata does not prove it. `exported` are the files of the key in the snapshot
        of the export, which must be all of this export and no others.
        """
        own = _paths(exported, self.key, landed)
        if len(own) != len(exported) or not _complete(landed, list(exported)):
            return None
        return self.lake.rewritten(self.state, exported, [s.snapshot_id for s in later])


def transaction_of(path: str, row: Row | None) -> str | None:
    """Return the transaction of a file of a key with this ledger row, None if it is not known.

    A file of another writer has that of the export or statement whose rows it has, if it has no
    other rows.
    """
    named = exported_by(path)
    if named is not None:
        return named[1]
    of = _left_by(proof, row) if row is not None and (proof := proof_of(path, row)) else None
    if of is None or of.left is None:
        return None
    # A statement that takes files out leaves those of an export, or of an earlier statement.
    return of.left[0].transaction_id if len(of.left) == 1 else of.transaction_id


def proof_of(path: str, row: Row) -> Rewritten | None:
    """Return the latest proof that a file has rows of a key, and no others; None without one."""
    proofs = (one for one in reversed(row.proofs) if path in one.files)
    return next((one for one in proofs if _left_by(one, row) is not None), None)


def _left_by(proof: Rewritten, row: Row) -> Landed | None:
    """Return what left the rows of a proof; None if its files have other rows, too."""
    left = (x for x in row.landed if x.transaction_id == proof.transaction_id)
    return next((x for x in left if x.rows_left == proof.rows), None)


def noted_files(row: Row | None) -> tuple[str, ...]:
    """Return the paths of files of other writers with rows of a key, and no other rows."""
    if row is None:
        return ()
    proofs = (one for one in row.proofs if _left_by(one, row) is not None)
    return tuple(dict.fromkeys(path for one in proofs for path in one.files))


def holding(row: Row | None, state: LakeTableState, key: str, lake: FilesOfMain) -> Holding:
    """Return the state of a key's exports in main.

    Args:
        row: the key's ledger row, read after `state` was loaded; None if it has none.
        state: the table's metadata.
        key: the key's hash.
        lake: the lake table.
    """
    history = _History(state, key, lake, noted_files(row))
    files = history.at(state.main) if state.main is not None else ()
    found = _in_history(row, history, files)
    if row is None or not row.proofs:
        return found
    if found.kind is Kind.CHANGED or any(not is_of_key(f.path, key) for f in found.files):
        # The snapshots that showed it may have expired since, and a statement moves files.
        known = (_as_noted(row, proof, history) for proof in reversed(row.proofs))
        noted = next((one for one in known if one is not None), None)
        if noted is not None and (found.kind is Kind.CHANGED or noted.kind is Kind.REWRITTEN):
            return noted
    return found


def _in_history(row: Row | None, history: _History, files: tuple[FileInMain, ...]) -> Holding:
    """Return the state of a key's exports as main and its known snapshots show it."""
    landed = row.landed if row is not None else ()
    if row is not None and any(x.kind is not None or x.stays for x in landed):
        return _after_statements(row, history, files)
    if files:
        return _of_files(landed, history, files)
    if not landed:
        return Holding(Kind.NOTHING, "It was never exported.")
    ancestors = history.ancestors
    last = next((x for s in ancestors for x in landed if x.snapshot_id == s.snapshot_id), None)
    if row is not None and last is not None and _took_all_out(row, last):
        text = f"No file of it is in main since snapshot {last.snapshot_id}."
        return Holding(Kind.WHOLE, text, (), (last,))
    if last is not None:
        return _since(last, history)
    newest = landed[-1].snapshot_id
    if history.state.history_is_complete:
        text = f"It landed in snapshot {newest}, and main was moved away from it since."
        return Holding(Kind.MOVED, text, landed=landed)
    if history.begins_empty:
        text = f"It landed in snapshot {newest}, and main was emptied and begun anew since."
        return Holding(Kind.MOVED, text, landed=landed)
    text = (
        f"It landed in snapshot {newest}; its files are not in main, and the snapshots that would "
        "show where its rows are have expired."
    )
    return Holding(Kind.CHANGED, text)


def _as_noted(row: Row, proof: Rewritten, history: _History) -> Holding | None:
    """Return the state of a key by a proof of an earlier run; None if it does not hold now.

    The names of data files are unique and their content never changes. So the rows are in main as
    long as all files of the proof are, or files that such snapshots made of them.
    """
    of, ancestors = proof.transaction_id, history.ancestors
    by_epoch = sorted(row.landed, key=lambda x: x.epoch)
    wrote = [x for x in by_epoch if x.kind is None or x.kind.rewrites_rows]
    last = last_landed(row, ancestors) or next(reversed(by_epoch), None)
    # Statements after an UPDATE, such as DETACH and ATTACH, only move the files that it left.
    landed = next((x for x in (last, *wrote[-1:]) if x and x.transaction_id == of), None)
    if last is None or landed is None:
        return None
    noted = tuple(FileInMain(path, 0, deletes=False) for path in proof.files)
    found = history.lake.rewritten(history.state, noted, [s.snapshot_id for s in ancestors[::-1]])
    if found is None or history.state.main is None:
        return None
    files = history.at(history.state.main, history.noted)
    if landed.kind is None:
        return _rewritten(landed, proof.snapshots, found, files)
    left = _left_rewritten(landed, proof.snapshots, found, files)
    edited = left is not None and _is_edited(row, last, ancestors, history.state)
    return left and replace(left, edited=edited)


def _left_rewritten(
    last: Landed,
    snapshots: tuple[int, ...],
    found: tuple[FileInMain, ...],
    files: tuple[FileInMain, ...],
) -> Holding | None:
    """Return the state of files that a statement left and others rewrote; as `_rewritten`.

    None if the files in `found` have other rows, too.
    """
    paths, rows = tuple(f.path for f in found), sum(f.rows for f in found)
    if not {f.path for f in files} <= {*paths} or rows != last.rows_left:
        return None
    proof = Rewritten(last.transaction_id, snapshots, paths, rows)
    text = f"{_done_by(last)}; its files were rewritten by {_listed(snapshots)}."
    return Holding(Kind.LEFT, text, found, proof=proof)


def _listed(snapshots: tuple[int, ...]) -> str:
    return ", ".join(f"snapshot {one} (replace)" for one in snapshots)


def _rewritten(
    landed: Landed,
    snapshots: tuple[int, ...],
    found: tuple[FileInMain, ...],
    files: tuple[FileInMain, ...],
) -> Holding | None:
    """Return the state of an export whose rows are in `found`; None if main has other files of it.

    Args:
        landed: the export.
        snapshots: rewrote its files.
        found: the files of main with its rows.
        files: the files of main with the key in their names.
    """
    paths = tuple(f.path for f in found)
    if not {f.path for f in files} <= {*paths}:
        return None
    text = (
        f"{counted(landed.rows, 'row')} in the lake, snapshot {landed.snapshot_id}; their files "
        f"were rewritten by {_listed(snapshots)}."
    )
    proof = Rewritten(landed.transaction_id, snapshots, paths, sum(f.rows for f in found))
    if proof.rows == landed.rows:
        return Holding(Kind.REWRITTEN, text, found, (landed,), proof=proof)
    return Holding(Kind.MIXED, text, files, (landed,), proof=proof)


def _after_statements(row: Row, history: _History, files: tuple[FileInMain, ...]) -> Holding:
    """Return the state of a key with statements or exports of new parts: the last in main decides.

    The files alone are not enough: after a partial DROP and a rewrite by another writer, moving
    main can bring back all files of an export (decision 0013).
    """
    state, ancestors = history.state, history.ancestors
    last = last_landed(row, ancestors)
    in_line = last is not None
    newest = row.landed[-1].snapshot_id
    if last is None and state.history_is_complete:
        text = f"It landed in snapshot {newest}, and main was moved away from it since."
        return Holding(Kind.STRANGE if files else Kind.MOVED, text, files, row.landed)
    if last is None and not files and history.begins_empty:
        text = f"It landed in snapshot {newest}, and main was emptied and begun anew since."
        return Holding(Kind.MOVED, text, landed=row.landed)
    last = last or max(_may_be_expired(row, ancestors), key=lambda x: x.epoch, default=None)
    if last is None:
        text = f"It landed in snapshot {newest}; the snapshots that would show what main has of it"
        return Holding(Kind.CHANGED, f"{text} have expired.", files)
    left = () if _took_all_out(row, last) else last.left
    there = history.at(state.main, history.noted) if state.main is not None else ()
    if left is not None and _counts(there, row) == frozenset(left):
        found = _as_left(row, last, left, there)
        edited = found.kind is not Kind.WHOLE and _is_edited(row, last, ancestors, state)
        return replace(found, edited=edited)
    if in_line and last.kind is None:
        return _since(last, history, files)
    if in_line and left and (proved := _left_elsewhere(row, last, left, history, files)):
        return proved
    text = f"{_done_by(last)}; its files were changed since, or it is unknown which files it left."
    return Holding(Kind.CHANGED, text, files)


def last_landed(row: Row, ancestors: list[SnapshotSeen]) -> Landed | None:
    """Return the last export or statement on a key in main's known history, None without one."""
    landed = {x.snapshot_id: x for x in row.landed}
    return next((landed[s.snapshot_id] for s in ancestors if s.snapshot_id in landed), None)


def _may_be_expired(row: Row, ancestors: list[SnapshotSeen]) -> list[Landed]:
    """Return what may have landed in main's history before the oldest snapshot that is known.

    Main never had what landed later: it was moved to a snapshot before that.
    """
    known = ancestors[-1].sequence_number if ancestors else 0
    return [one for one in row.landed if one.sequence_number < known]


def _left_elsewhere(
    row: Row,
    last: Landed,
    left: tuple[Held, ...],
    history: _History,
    files: tuple[FileInMain, ...],
) -> Holding | None:
    """Return the state of the files that a statement left, if others only rewrote them since.

    Args:
        row: the key's ledger row.
        last: the statement, the last one in main's history.
        left: the files that it left.
        history: of main.
        files: the files of main with the key in their names.
    """
    before = history.at(last.snapshot_id, history.noted)
    later = history.later(last)
    if _counts(before, row) != frozenset(left):
        return None
    found = history.lake.rewritten(history.state, before, [s.snapshot_id for s in later])
    if found is None:
        return None
    snapshots = history.touching(last, [f.path for f in (*before, *found)])
    at = _as_left(row, last, left, before)
    if at.kind is Kind.WHOLE and len(at.landed) == 1:
        return _rewritten(at.landed[0], snapshots, found, files)
    edited = _is_edited(row, last, history.ancestors, history.state)
    made = _left_rewritten(last, snapshots, found, files) if at.kind is Kind.LEFT else None
    return made and replace(made, edited=edited)


def _counts(files: tuple[FileInMain, ...], row: Row) -> frozenset[Held] | None:
    """Return the files of a key by transaction; None where one has deletes or is unknown."""
    known = {one.transaction_id for x in row.landed for one in (*x.stays, x.own)}
    found: defaultdict[str, list[FileInMain]] = defaultdict(list)
    for file in files:
        transaction_id = transaction_of(file.path, row)
        if transaction_id is None or transaction_id not in known or file.deletes:
            return None
        found[transaction_id].append(file)
    return frozenset(Held(one, len(own), sum(f.rows for f in own)) for one, own in found.items())


def _as_left(
    row: Row, last: Landed, left: tuple[Held, ...], files: tuple[FileInMain, ...]
) -> Holding:
    """Return the state of files that are exactly as the last export or statement left them."""
    if not left and last.kind is not None:
        text = f"No file of it is in main since snapshot {last.snapshot_id}: {last.statement}."
        return Holding(Kind.ELSEWHERE if last.moved_to else Kind.GONE, text)
    exports = tuple(x for x in row.landed if x.kind is None)
    # The files of one export, and those that stay with it; or of several exports.
    alone = tuple(x for x in exports if x.left and frozenset(x.left) == frozenset(left))[-1:]
    whole = alone or tuple(x for x in exports if x.left in [(one,) for one in left])
    if alone or len(whole) == len(left):
        rows = sum(f.rows for f in files)
        text = f"{counted(rows, 'row')} in the lake, snapshot {last.snapshot_id}."
        return Holding(Kind.WHOLE, text, files, whole or (last,))
    return Holding(Kind.LEFT, f"{_done_by(last)}.", files)


def _is_edited(
    row: Row, last: Landed, ancestors: list[SnapshotSeen], state: LakeTableState
) -> bool:
    """Whether only statements that change rows landed since the last export in main's history.

    A landed snapshot that was expired counts as an ancestor of main if its sequence number allows
    it.
    """
    seen = {s.snapshot_id for s in ancestors}
    known = ancestors[-1].sequence_number if ancestors and not state.history_is_complete else 0
    line = [
        x
        for x in row.landed
        if x.epoch <= last.epoch and (x.snapshot_id in seen or x.sequence_number < known)
    ]
    export = max((x.epoch for x in line if x.kind is None), default=None)
    since = [x.kind for x in line if export is not None and x.epoch > export]
    return bool(since) and all(kind is not None and kind.rewrites_rows for kind in since)


def _done_by(last: Landed) -> str:
    """Return the text on the export or statement that landed last."""
    what = "It landed" if last.kind is None else f"{last.statement} changed it"
    return f"{what} in snapshot {last.snapshot_id}"


def _took_all_out(row: Row, last: Landed) -> bool:
    """Whether the ledger's record proves that an export left no row in main."""
    recorded = row.done is not None and row.done.landed == last
    return recorded and (last.rows, last.data_files) == (0, 0)


def _of_files(
    landed: tuple[Landed, ...], history: _History, files: tuple[FileInMain, ...]
) -> Holding:
    """Return the state of a key with files in main, of which only exports landed."""
    found, left = [], list(files)
    for one in landed:
        own: list[FileInMain] = []
        rest: list[FileInMain] = []
        for f in left:
            (own if is_of_transaction(f.path, history.key, one.transaction_id) else rest).append(f)
        left = rest
        if own and not _complete(one, own):
            if any(s.snapshot_id == one.snapshot_id for s in history.ancestors):
                return _since(one, history, files)
            text = f"It landed in snapshot {one.snapshot_id}; its files were changed since."
            return Holding(Kind.CHANGED, text, files)
        found += [one] if own else []
    if left:
        rows = sum(f.rows for f in left)
        text = (
            f"Main holds {counted(len(left), 'file')} with {counted(rows, 'row')} of this "
            "partition that this ledger does not know."
        )
        return Holding(Kind.STRANGE, text, files)
    rows = sum(f.rows for f in files)
    text = f"{counted(rows, 'row')} in the lake, snapshot {found[-1].snapshot_id}."
    return Holding(Kind.WHOLE, text, files, tuple(found))


def _complete(landed: Landed, files: list[FileInMain]) -> bool:
    return (len(files), sum(f.rows for f in files)) == (landed.data_files, landed.rows) and not any(
        f.deletes for f in files
    )


def _since(landed: Landed, history: _History, files: tuple[FileInMain, ...] = ()) -> Holding:
    """Return the state of an export in main's history, from the snapshots after it.

    Its rows are gone only if every snapshot that removed files of it added no file.
    """
    later = history.later(landed)
    exported = history.at(landed.snapshot_id)
    before = _paths(exported, history.key, landed)
    changed: list[SnapshotSeen] = []
    adds = False
    for one in later:
        after = _paths(history.at(one.snapshot_id), history.key, landed)
        if after != before:
            changed.append(one)
            adds = adds or not _only_removes(one)
        before = after
    what = f"It landed in snapshot {landed.snapshot_id}"
    by = ", ".join(f"snapshot {s.snapshot_id} ({s.operation})" for s in changed)
    if not files and changed and not adds:
        return Holding(Kind.GONE, f"{what}, and its files were removed by {by}.")
    rewritten = history.proved(landed, exported, later)
    if rewritten is not None and changed:
        snapshots = tuple(one.snapshot_id for one in changed)
        if proved := _rewritten(landed, snapshots, rewritten, files):
            return proved
    by = f" by {by}" if by else ""
    return Holding(Kind.CHANGED, f"{what}; its files were changed since{by}.", files)


def _only_removes(one: SnapshotSeen) -> bool:
    """Whether a snapshot added no data file; the summary of a delete may lack the count."""
    return one.added_files == 0 or (one.added_files is None and one.operation == "delete")


def _paths(files: tuple[FileInMain, ...], key: str, landed: Landed) -> frozenset[tuple[str, bool]]:
    """Return the files of an export, and those that stay with it."""
    ids = (landed.transaction_id, *(one.transaction_id for one in landed.stays))
    own = (f for f in files if any(is_of_transaction(f.path, key, one) for one in ids))
    return frozenset((f.path, f.deletes) for f in own)


@dataclass(frozen=True, slots=True)
class Earlier:
    """A state of main before a statement on a key, in the history of the present main.

    `number` is the sequence number of the snapshot. `paths` are its files of the key without files
    to which deletes apply. `number_of_detached` is the sequence number of the files that the
    statement detached, None if it detached none.
    """

    number: int
    paths: frozenset[str]
    number_of_detached: int | None


@dataclass(frozen=True, slots=True)
class Past:
    """The earlier states of a key in main: `row` is its ledger row; expired ones are left out."""

    row: Row
    state: LakeTableState
    lake: FilesOfMain

    def before_statements(self) -> Iterator[Earlier]:
        """Yield the state before each statement in main's history, the latest first."""
        statements = {x.snapshot_id: x for x in self.row.landed if x.kind is not None}
        for one in self.state.ancestors():
            done = statements.get(one.snapshot_id)
            before = self.state.snapshots.get(one.parent_id) if one.parent_id is not None else None
            if done is None or before is None:
                continue
            paths = frozenset(f.path for f in self._files_at(before.snapshot_id) if not f.deletes)
            # The branch's snapshot is the second of the two in its request.
            detached = one.sequence_number + 1 if done.kind is StatementKind.DETACH else None
            yield Earlier(before.sequence_number, paths, detached)

    def sources(self, proof: Rewritten) -> frozenset[str]:
        """Return the files of the key whose rows the files of a proof have; empty if unknown.

        They are all files of the key that main had after the export or statement of the proof.
        """
        left = _left_by(proof, self.row)
        if left is None or left.snapshot_id not in self.state.snapshots:
            return frozenset()
        return frozenset(f.path for f in self._files_at(left.snapshot_id))

    def _files_at(self, snapshot_id: int) -> tuple[FileInMain, ...]:
        noted = noted_files(self.row)
        return _History(self.state, self.row.key.hash, self.lake).at(snapshot_id, noted)


def landed_mark(row: Row, state: LakeTableState, key: KeyCommit) -> Mark | None:
    """Return the mark that proves that this content landed, by this run or an earlier one (step 5).

    For a statement on the lake table only the mark of its own transaction is a proof: files that
    two statements rewrite can have the fingerprint of one export, but different rows or places.
    """
    mark = state.mark(key.key)
    if mark is None:
        return None
    if mark.epoch == key.epoch:
        return mark
    if isinstance(key.change, ByStatement):
        same = mark.transaction_id == key.transaction_id
    else:
        same = mark.fingerprint == key.fingerprint
    return mark if same and mark.epoch > row.done_epoch else None


def unsettled_mark(row: Row | None, state: LakeTableState) -> Mark | None:
    """Return the mark of an export that landed and is not completed in the ledger yet."""
    mark = state.mark(row.key.hash) if row is not None else None
    if row is None or mark is None or mark.epoch <= row.done_epoch:
        return None
    return mark


def claim_of_mark(row: Row, state: LakeTableState, mark: Mark) -> Claim:
    """Return the claim that a mark proves to have landed.

    A rebuilt ledger does not know the claim. Then its figures are those of the snapshot's summary,
    or 0 files if the snapshot was expired or its summary has no counts.
    """
    known = row.claim_of(mark.transaction_id)
    if known is not None:
        return known
    if mark.is_of_statement:
        return Claim(
            mark.epoch,
            mark.transaction_id,
            mark.fingerprint,
            row.updated,
            statement="a statement that this ledger does not know",
        )
    seen = state.snapshots.get(mark.snapshot_id)
    is_known = seen is not None and seen.added_rows is not None and seen.added_files is not None
    return Claim(
        mark.epoch,
        mark.transaction_id,
        mark.fingerprint,
        row.updated,
        rows=(seen.added_rows or 0) if seen is not None and is_known else 0,
        data_files=(seen.added_files or 0) if seen is not None and is_known else 0,
    )


def landed_from(mark: Mark, state: LakeTableState, claim: Claim) -> Landed:
    """Return the landed export that a mark proves.

    If the snapshot was expired, the table's current sequence number is used instead of the
    snapshot's: it is not smaller, and no later metadata has a smaller one.
    """
    seen = state.snapshots.get(mark.snapshot_id)
    return Landed(
        mark.epoch,
        mark.transaction_id,
        mark.fingerprint,
        mark.snapshot_id,
        seen.sequence_number if seen else state.last_sequence_number,
        claim.rows,
        claim.data_files,
        claim.statement,
        claim.holds,
        claim.move.table if claim.move else "",
        claim.kind,
    )
