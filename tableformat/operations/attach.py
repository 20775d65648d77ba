"""Plans ALTER TABLE … ATTACH PARTITION|PART: detached files return from the branch to main.

The files leave the branch `detached` and enter main in one commit. `Attach` refuses them if main
has another export of the same key, or earlier or later forms of their rows: main would have these
rows twice (decision 0013).

`were_together` checks whether files were in main at the same time. Such files share no row. Files
that main had one after the other may be forms of the same rows: before and after an UPDATE, or a
copy and its original. File names do not show that, and main may have been moved between the two.

`rows_of_others` and `files_of` find what main has of one partition, also for statements on all of
them. Then only their rows tell in which partitions foreign files lie, and the files are read when
that matters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

from tableformat.committer import BranchFile
from tableformat.errors import RefusedError
from tableformat.export.foreign_rows import RowsOfOthers
from tableformat.export.main_state import Earlier, Past, proof_of, transaction_of
from tableformat.export.outcome import Status
from tableformat.file_names import exported_by
from tableformat.ledger import Key, Landed, Rewritten, Row, StatementKind
from tableformat.names import PartitionId
from tableformat.operations.partition_files import (
    ANY_PARTITION,
    FilesOfKey,
    KeyInMain,
    PartitionFiles,
    held_of,
    own_key,
)
from tableformat.operations.statement import DetachedUse, KeyChange, Plan, ReturnedFiles, Which
from tableformat.quantities import counted

__all__ = [
    "Attach",
    "files_of",
    "has_files_of_others",
    "rows_of_others",
    "were_taken_out",
    "were_together",
]

Files = tuple[BranchFile, ...]
_NONE: Final = frozenset[str]()
_COPYING: Final = frozenset(
    {
        StatementKind.ATTACH_FROM,
        StatementKind.REPLACE_FROM,
        StatementKind.FETCH,
        StatementKind.FETCH_FROM_OUTSIDE,
    }
)


def were_together(back: Files, main: Files, keys: Iterable[KeyInMain]) -> bool:
    """Whether detached files and files of main are known to have been in main together.

    Args:
        back: the detached files.
        main: the files of main that they would join.
        keys: the state in main of the keys of both.
    """
    files, keys = (*back, *main), tuple(keys)
    written = {_export_of(f, keys) for f in files}
    if len(files) == 1 or (len(written) == 1 and None not in written):
        # The files of one transaction landed in one snapshot.
        return True
    detached = {f.sequence_number for f in back}
    if not main and len(detached) == 1 and detached != {0}:
        # One statement brought them to the branch, from one state of a table.
        return True
    return any(
        _had(at, back, main, key.past) for key in keys for at in key.past.before_statements()
    )


def were_taken_out(back: Files, main: Files, keys: Iterable[KeyInMain]) -> bool:
    """Whether the rows of detached foreign files are known not to be in main.

    Foreign files that came after the DETACH have other rows. A file that a statement copied after
    the DETACH may have the same rows, so all copies in main must be older, and so must be all files
    if others may have rewritten such copies. The DETACH must be in main's history: if main was
    moved to a state before it, another engine may have rewritten the files there.

    Args:
        back: the detached foreign files.
        main: all files of their partition in main.
        keys: the state in main of the partition's keys.
    """
    if not main and len({f.sequence_number for f in back}) == 1:
        return True
    keys = tuple(keys)
    before = (at for key in keys for at in key.past.before_statements())
    taken = {at.number_of_detached: at.number for at in before}
    landed = [x for key in keys for x in key.row.landed if x.kind in _COPYING]

    def are_older(number: int) -> bool:
        copied = any(x.sequence_number > number for x in landed)
        files = (f for f in main if copied or exported_by(f.path) is not None)
        return all(0 < f.sequence_number <= number for f in files)

    return all(f.sequence_number in taken and are_older(taken[f.sequence_number]) for f in back)


def _export_of(
    file: BranchFile, keys: Iterable[KeyInMain]
) -> tuple[str, str, Rewritten | None] | None:
    """Return key hash, transaction and the proof of a rewritten file; None for a foreign file.

    The files of one proof were in main together, but not with those of which others made them:
    these have the same rows.
    """
    named = exported_by(file.path)
    if named is not None:
        return (*named, None)
    rows = ((at.row, proof_of(file.path, at.row)) for at in keys)
    found = ((row, transaction_of(file.path, row), proof) for row, proof in rows)
    return next(((row.key.hash, one, proof) for row, one, proof in found if one is not None), None)


def _had(at: Earlier, back: Files, main: Files, past: Past) -> bool:
    """Whether main had the rows of all these files, each once, just before a statement on a key.

    A file that other writers made has the rows of its sources. Two files have different rows if
    main had both then, or different sources of them.
    """
    had: dict[str | Rewritten, frozenset[str]] = {}
    for file in (*back, *main):
        proof = proof_of(file.path, past.row)
        if file.path in at.paths or _was_there(at, file, detached=file in back):
            had[file.path] = frozenset({file.path})
        elif proof is None:
            return False
        elif proof not in had:
            had[proof] = _sources(proof, at, past)
    return all(had.values()) and sum(map(len, had.values())) == len(_NONE.union(*had.values()))


def _was_there(at: Earlier, file: BranchFile, *, detached: bool) -> bool:
    """Whether the sequence number of a file shows that main had it just before a statement.

    The name of a foreign file has no key: if it is detached, that of its DETACH decides.
    """
    if detached:
        return exported_by(file.path) is None and file.sequence_number == at.number_of_detached
    return 0 < file.sequence_number <= at.number


def _sources(
    proof: Rewritten, at: Earlier, past: Past, made: tuple[Rewritten, ...] = ()
) -> frozenset[str]:
    """Return the files of an earlier state of which others made those of a proof.

    It is empty if they are unknown. `made` are the proofs of files that others made of these.
    """
    paths = past.sources(proof)
    proofs = {proof_of(path, past.row) for path in paths - at.paths}
    found = [paths & at.paths] if paths & at.paths else []
    for one in proofs:
        if one is None or one in (*made, proof):
            return _NONE
        found.append(_sources(one, at, past, (*made, proof)))
    return _NONE.union(*found) if all(found) else _NONE


@dataclass(frozen=True, slots=True)
class Attach:
    """ATTACH PARTITION or PART: the detached files of `which` return to main."""

    which: Which
    kind: ClassVar[StatementKind] = StatementKind.ATTACH
    did: ClassVar[Status] = Status.ATTACHED
    detached_use: ClassVar[DetachedUse] = DetachedUse.LISTED

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"ATTACH {self.which}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Plan that the detached files return to main.

        Raises:
            NotFoundError: no such part is detached.
            RefusedError: main has, or may have, some of their rows already.
        """
        main = {one.key: one.files for one in there.keys}
        wanted = self.which.of(there.detached, detached=True)
        changes = tuple(self._change(one, main.get(one.key, ()), there) for one in wanted)
        for one in wanted:
            self._refuse_apart(one.key, wanted, there)
            self._refuse_other_exports(one, wanted, there)
        return Plan(changes)

    def _change(
        self, back: FilesOfKey, main: tuple[BranchFile, ...], there: PartitionFiles
    ) -> KeyChange:
        paths = {f.path for f in main}
        if same := next((f.path for f in back.files if f.path in paths), None):
            message = (
                f"Cannot run {self}: {same} is in main already: main was moved to a state before "
                f"it was detached. DROP DETACHED {self.which} removes it from the branch."
            )
            raise RefusedError(message)
        at = there.in_main.get(back.key.hash)
        if at is not None and back.key.is_of_export and not at.held.is_known:
            raise self._is_undecidable(at)
        if at is not None and at.export is not None:
            self._refuse_alongside(back, at, at.export)
        else:
            self._refuse_after_exports(back, there)
        self._refuse_hidden(back, at, there)
        self._refuse_alongside_others(back, there)
        return KeyChange(
            back.key, comes=ReturnedFiles(back.files), holds=held_of((*main, *back.files), back.row)
        )

    def _refuse_alongside(self, back: FilesOfKey, at: KeyInMain, export: Landed) -> None:
        """Refuse files of a key if main has rows of a later export of that key.

        Raises:
            RefusedError: it has. If it has any rows of the key, files that FETCH brought are
                refused, too.
        """
        if not at.held.files:
            return
        if any(_was_fetched(f, at.row) for f in back.files):
            message = (
                f"Cannot run {self}: main has rows of partition {back.key.partition_id} already, "
                "and the fetched rows could be there twice. Run DROP PARTITION first, or DROP "
                f"DETACHED {self.which} for the fetched rows."
            )
            raise RefusedError(message)
        late = {x.transaction_id for x in at.row.landed if x.epoch >= export.epoch}
        if not all(transaction_of(f.path, at.row) in late for f in back.files):
            raise self._twice(export)

    def _refuse_after_exports(self, back: FilesOfKey, there: PartitionFiles) -> None:
        """Refuse files of a key without exports if an export may have the same rows.

        Raises:
            RefusedError: main has, or may have, rows of an export that landed after the files were
                detached.
        """
        since = min(f.sequence_number for f in back.files)
        fetched = back.row is not None and any(_was_fetched(f, back.row) for f in back.files)
        for at in there.in_main.values():
            # For files that FETCH brought, the time says nothing: their rows may be older than the
            # FETCH.
            if at.export is None or (at.export.sequence_number <= since and not fetched):
                continue
            if at.held.files or not at.held.is_known:
                raise self._twice(at.export)

    def _refuse_other_exports(
        self, back: FilesOfKey, wanted: tuple[FilesOfKey, ...], there: PartitionFiles
    ) -> None:
        """Refuse foreign files that may have the rows of another export than the files with them.

        Raises:
            RefusedError: the files with them are of an export that landed after the DETACH of the
                foreign files, or another export landed between the two. Another engine may have
                made the foreign files of that other export, and the ledger may not know it.
        """
        if back.key.is_of_export:
            return
        numbers = [f.sequence_number for f in back.files]
        for other in wanted:
            at = there.in_main.get(other.key.hash)
            in_one = back.key.partition_id in (other.key.partition_id, ANY_PARTITION)
            if at is None or not other.key.is_of_export or not in_one:
                continue
            written = {transaction_of(f.path, at.row) for f in other.files}
            exports = [x for x in at.row.landed if x.kind is None]
            own = [x for x in exports if x.transaction_id in written]
            others = [x for x in exports if x not in own and x.sequence_number < max(numbers)]
            between = any(x.epoch > one.epoch for x in others for one in own)
            if between or any(x.sequence_number > min(numbers) for x in own):
                raise self._apart(other.key, (), at)

    def _refuse_hidden(self, back: FilesOfKey, at: KeyInMain | None, there: PartitionFiles) -> None:
        """Refuse files of an export whose rows may be in files of other writers, and the reverse.

        Raises:
            RefusedError: main has files of the partition that no export wrote, and they may have
                rows of the detached files; or it has any rows, and no export wrote those that FETCH
                brought.
        """
        row, wanted = back.row, back.key.partition_id if back.is_own else None
        fetched = row is not None and any(_was_fetched(f, row) for f in back.files)
        if back.key.stays:
            others, has_files = rows_of_others(there, wanted), at is not None and at.held.files
            may_be_there = not has_files and others.may_have(row, returning=not fetched)
        else:
            # Their key does not tell which rows they are.
            found = (f for one in files_of(there, wanted) for f in one.files) if fetched else ()
            may_be_there = any(file.rows for file in found)
        if not may_be_there:
            return
        message = (
            f"Cannot run {self}: main has rows of partition {back.key.partition_id}, and the "
            "detached rows may be among them: they could be there twice. "
            f"{f'{at.held.text} ' if at is not None else ''}Compare them (the detached files are "
            "on the branch detached). If they are other rows, INSERT SELECT of another engine adds "
            f"the detached ones. If they are the same, DROP DETACHED {self.which} keeps those of "
            "main. Nothing was changed."
        )
        raise RefusedError(message)

    def _refuse_alongside_others(self, back: FilesOfKey, there: PartitionFiles) -> None:
        """Refuse files that FETCH brought from outside the lake if main has rows of other keys.

        Raises:
            RefusedError: main has such rows of the partition, which may be the same.
        """
        row = back.row
        if row is None or not any(_came_from_outside(f, row) for f in back.files):
            return
        wanted = back.key.partition_id
        for one in there.keys:
            may_be_there = not (one.is_own and back.is_own) or one.key.partition_id in (
                wanted,
                ANY_PARTITION,
            )
            if one.key != back.key and may_be_there:
                message = (
                    f"Cannot run {self}: main has rows of partition {wanted} already, and it is "
                    "unknown whether the fetched rows are among them: they could be there twice. "
                    f"Run DROP PARTITION first, or DROP DETACHED {self.which} for the fetched rows."
                )
                raise RefusedError(message)

    def _refuse_apart(
        self, key: Key, wanted: tuple[FilesOfKey, ...], there: PartitionFiles
    ) -> None:
        """Refuse files that main may never have had together with the files that they would join.

        Raises:
            RefusedError: it never had, or its snapshots do not show that it had.
        """
        back, main = _related(key, wanted), _related(key, there.keys)
        keys = [at for at in there.in_main.values() if _are_related(key, at.row.key)]
        of_others = tuple(f for f in back if _export_of(f, keys) is None)
        everything = tuple(f for one in there.keys for f in one.files)
        if of_others and not were_taken_out(of_others, everything, there.in_main.values()):
            raise self._apart(key, everything, there.in_main.get(key.hash))
        # Foreign rows that no statement changed or copied are all different.
        known = any(_export_of(f, keys) for f in (*back, *main))
        if known and not were_together(back, main, keys):
            raise self._apart(key, main, there.in_main.get(key.hash))

    def _apart(self, key: Key, main: tuple[BranchFile, ...], at: KeyInMain | None) -> RefusedError:
        what = f"the files of partition {key.partition_id} that are detached"
        way = (
            "ATTACH PART attaches those that belong together, and DROP DETACHED PART removes the "
            "others from the branch; the system table detached_parts lists them."
        )
        if main:
            what = (
                f"the detached files and those that main has of partition {key.partition_id} "
                f"({counted(sum(f.rows for f in main), 'row')} in {counted(len(main), 'file')})"
            )
            way = (
                f"{at.held.text if at else ''} Compare them (the detached files are on the branch "
                "detached). Run DROP PARTITION first to attach the detached rows, or DROP DETACHED "
                f"{self.which} to keep those of main."
            ).lstrip()
        message = (
            f"Cannot run {self}: {what} were never in main at the same time, as far as its "
            "snapshots show. Some could be earlier versions or copies of others, and rows would be "
            f"there twice. {way}"
        )
        return RefusedError(message)

    def _is_undecidable(self, at: KeyInMain) -> RefusedError:
        message = (
            f"Cannot run {self}: it is unknown which rows of partition {at.row.key.partition_id} "
            f"main has, and some could be there twice. {at.held.text} Run DROP PARTITION first to "
            "attach the detached rows."
        )
        return RefusedError(message)

    def _twice(self, export: Landed) -> RefusedError:
        message = (
            f"Cannot run {self}: the partition was exported again since it was detached, in "
            f"snapshot {export.snapshot_id}, and its rows would be there twice. Run DROP PARTITION "
            f"first to attach the detached rows, or DROP DETACHED {self.which} to keep those of "
            "main."
        )
        return RefusedError(message)


def files_of(there: PartitionFiles, partition_id: str | None) -> tuple[FilesOfKey, ...]:
    """Return the files with rows in one partition by key; for None, all files.

    Raises:
        DestinationError: a file of unknown partition cannot be read.
    """
    if there.partition_id is not None or partition_id is None:
        return there.keys
    found = (_only(there, one, partition_id) for one in there.keys)
    return tuple(one for one in found if one.files)


def _only(there: PartitionFiles, one: FilesOfKey, partition_id: str) -> FilesOfKey:
    """Return the files of a key with rows in one of all partitions."""
    if one.is_own and one.key.partition_id != ANY_PARTITION:
        return one if one.key.partition_id == partition_id else one.only(())
    wanted = PartitionId(partition_id)
    return one.only(tuple(f for f in one.files if f.rows and wanted in there.ids(f)))


def rows_of_others(there: PartitionFiles, partition_id: str | None) -> RowsOfOthers:
    """Return the rows of one partition that no export wrote; for None, of all partitions."""
    if not there.foreign:
        return RowsOfOthers(there.state, tuple, ())
    if there.partition_id is not None:
        partition_id = there.partition_id.value
    ids = (partition_id, ANY_PARTITION)
    rows = (r for r in there.foreign_rows if partition_id is None or r.key.partition_id in ids)
    return RowsOfOthers(there.state, partial(_numbers, there, partition_id), tuple(rows))


def _numbers(there: PartitionFiles, partition_id: str | None) -> tuple[int, ...]:
    """Return the sequence numbers of the foreign files of a partition."""
    files = (f for one in files_of(there, partition_id) if not one.key.stays for f in one.files)
    return tuple(file.sequence_number for file in files if file.rows)


def has_files_of_others(there: PartitionFiles, key: Key) -> bool:
    """Whether a key is that of foreign files in one of all partitions, and main has some there.

    Raises:
        DestinationError: a file of unknown partition cannot be read.
    """
    everywhere = own_key(there.state, None)
    if replace(key, partition_id=everywhere.partition_id) != everywhere:
        return False
    of_all = (one for one in there.foreign if one.key == everywhere)
    return any(_only(there, one, key.partition_id).files for one in of_all)


def _are_related(one: Key, other: Key) -> bool:
    """Whether two keys may have the same rows: one key, or two keys of foreign files.

    Statements copy foreign files from table to table, and back, under several keys.
    """
    return one == other or not (one.is_of_export or other.is_of_export)


def _related(key: Key, keys: tuple[FilesOfKey, ...]) -> tuple[BranchFile, ...]:
    return tuple(f for one in keys if _are_related(key, one.key) for f in one.files)


def _came_from_outside(file: BranchFile, row: Row) -> bool:
    """Whether FETCH copied a file from a place that is no table of the lake."""
    named = exported_by(file.path)
    landed = next((x for x in row.landed if named and x.transaction_id == named[1]), None)
    return landed is not None and landed.kind is StatementKind.FETCH_FROM_OUTSIDE


def _was_fetched(file: BranchFile, row: Row) -> bool:
    """Whether FETCH wrote a file: its statement records no file of its own in main."""
    named = exported_by(file.path)
    landed = next((x for x in row.landed if named and x.transaction_id == named[1]), None)
    if landed is None or landed.kind is None or landed.kind.rewrites_rows:
        return False
    return landed.transaction_id not in {one.transaction_id for one in landed.holds or ()}
