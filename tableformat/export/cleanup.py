"""Removes data files and receipts of abandoned exports (docs/spec/commit-protocol.md, step 10).

`Cleaning` deletes the files of one key. The rules:

* the caller holds the key's lease, and the ledger row is COMPLETED, KILLED or FAILED;
* `tableformat/export/give_up.py` proves that no request of the export can land any more;
* no snapshot of a metadata object M that was loaded afterwards refers to the file;
* the order is: data file, receipt, claim on the row's list `old`. After a crash the next process
  still finds the rest;
* a claim of the last days stays on `old` without its parts, because a delayed worker may still
  write a file of it;
* an owner that is superseded, or whose outcome is unknown, never gets here.

`Expired` runs at the end of each run and removes a bounded share of the expired exports of the
destination. An export that was interrupted and not resumed for `abandoned_ttl` first becomes
FAILED (step 9; RQ…Cleanup). An error here does not change the run's outcomes; the next run or
`gc` handles the rest. `staging_in_use` lists the source snapshots of exports that can still
resume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tableformat.committer import LakeTableState
from tableformat.disks import Disks
from tableformat.effects import Step
from tableformat.errors import TableFormatError
from tableformat.export.commit import Ports, load_table
from tableformat.export.give_up import Verdict, kill, verdict, verdicts
from tableformat.export.leases import Leases
from tableformat.export.options import ABANDONED_TTL
from tableformat.export.ports import JobPorts
from tableformat.export.slices import stored_receipts
from tableformat.file_names import RECEIPTS, PathLayout, exported_by
from tableformat.ledger import Claim, Ledger, Row, State
from tableformat.messages import Command
from tableformat.storage import Storage, StoredObject

__all__ = [
    "MOST_EXPORTS",
    "MOST_FILES",
    "STAYS_KNOWN",
    "Cleaned",
    "Cleaning",
    "Expired",
    "Left",
    "staging_in_use",
]

STAYS_KNOWN: Final = 7 * 86_400_000
"""Milliseconds for which the claim of an abandoned export stays on `old` without its files."""
MOST_FILES: Final = 1000
"""The most files that an export removes at its end; `gc` removes the rest."""


@dataclass(frozen=True, slots=True)
class Left:
    """The data files and receipts that one export of a key left behind, also unfinished ones."""

    transaction_id: str
    files: tuple[StoredObject, ...]
    receipts: tuple[StoredObject, ...]
    verdict: Verdict

    @property
    def bytes(self) -> int:
        """The size of all these files."""
        return sum(o.size for o in (*self.files, *self.receipts))


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How many data files were removed, and how many bytes with their receipts."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cleaning:
    """Cleans one table at `location`; `storage` opens the storage of a location."""

    ports: Ports
    storage: Callable[[str], Storage]
    location: str

    def clean(self, key: str, *, most: int = MOST_FILES) -> Cleaned:
        """Remove the files and receipts of abandoned exports of a key, whose lease the caller has.

        Args:
            key: the hash of the ledger key.
            most: the most data files to remove.

        Raises:
            RefusedError: the table belongs to another ledger.
            DestinationError: the table or its files cannot be read, or a file cannot be deleted.
            LedgerError: the ledger cannot be read or written.
        """
        state = load_table(self.ports)
        row = self.ports.effects(Step.READ_LEDGER, partial(self.ports.ledger.read, key))
        if row is None:
            return Cleaned()
        files, receipts = self.files_of(row, state), self.receipts_of(key)
        return self.remove(row, self.left(row, state, files, receipts), most=most)

    def files_of(self, row: Row, state: LakeTableState) -> tuple[StoredObject, ...]:
        """Return the data files of a key's exports, finished and unfinished.

        The search covers the directories of the files that landed and of the files that receipts of
        other exports name. If there are other exports, it also covers the same directories on every
        other disk, where copies may have been started. If nothing landed, or paths have hashes, it
        covers the whole data directories.
        """
        landed = [x.transaction_id for x in row.landed]
        paths = self.ports.table.refers_to(state, row.key.hash, landed)
        others = [c.transaction_id for c in row.old if c.transaction_id not in landed]
        if paths:
            below = f"{self.receipts}/{row.key.hash}"
            paths |= {
                r.file_path
                for t in others
                for r in stored_receipts(self.storage(below), f"{below}/{t}")
            }
        directories = {path.rsplit("/", 1)[0] for path in paths} or {*state.data_locations}
        if others:
            disks = Disks.of(state)
            directories |= disks.alike(paths)
            if disks.layout is not PathLayout.PARTITION:
                # Each file has a directory of its own: one without a receipt may be in any of them.
                directories |= state.data_locations
        found = {o for d in directories for o in self.begun_and_finished(d)}
        return tuple(sorted(o for o in found if _key(o) == row.key.hash))

    def receipts_of(self, key: str) -> tuple[StoredObject, ...]:
        """Return the receipts and stored digests of all exports of a key, unfinished ones too."""
        return self.begun_and_finished(f"{self.receipts}/{key}")

    @property
    def receipts(self) -> str:
        """The location below which the receipts of all keys are stored."""
        return f"{self.location.rstrip('/')}/{RECEIPTS}"

    def begun_and_finished(self, below: str) -> tuple[StoredObject, ...]:
        """Return all objects below a location, unfinished uploads included."""
        storage = self.storage(below)
        return self.ports.effects(
            Step.FIND_GARBAGE, lambda: storage.list(below) + storage.list_unfinished(below)
        )

    def left(
        self,
        row: Row,
        state: LakeTableState,
        files: Iterable[StoredObject],
        receipts: Iterable[StoredObject],
    ) -> tuple[Left, ...]:
        """Return the files that each export of a key left behind, with the verdict on them.

        Args:
            row: the key's row, read after `state` was loaded.
            state: the newly loaded metadata of the table.
            files: all data files with the key in their names.
            receipts: all receipts of the key.
        """
        key = row.key.hash
        files, receipts = tuple(files), tuple(receipts)
        known = {c.transaction_id for c in (row.claim, *row.old)}
        known |= {_of(o) for o in files} | {_directory(o) for o in receipts}
        known |= {x.transaction_id for x in row.landed}
        referred = {t: self.ports.table.refers_to(state, key, (t,)) for t in sorted(known)}
        judged = verdicts(row, state, referred, known)
        return tuple(
            self._left(row, t, files, receipts, referred[t], judged[t]) for t in sorted(known)
        )

    def _left(
        self,
        row: Row,
        transaction_id: str,
        files: tuple[StoredObject, ...],
        receipts: tuple[StoredObject, ...],
        referred: frozenset[str],
        judged: Verdict,
    ) -> Left:
        """Return the files of one export that no snapshot refers to, and unneeded receipts."""
        names = {_name(path) for path in referred}
        of_it = tuple(o for o in receipts if _directory(o) == transaction_id)
        return Left(
            transaction_id,
            tuple(o for o in files if _of(o) == transaction_id and _name(o.location) not in names),
            tuple(o for o in of_it if o not in _wanted(row, transaction_id, of_it, names, judged)),
            judged,
        )

    def remove(self, row: Row, left: tuple[Left, ...], *, most: int) -> Cleaned:
        """Delete the files whose verdict allows it: data files, receipts, then claims on `old`."""
        files = size = 0
        gone: set[str] = set()
        for one in left:
            if not one.verdict.may_go:
                continue
            if files + len(one.files) > most:
                break
            for found in one.files:
                self._delete(Step.CLEAN_FILE, found)
            for found in one.receipts:
                self._delete(Step.CLEAN_RECEIPT, found)
            files, size = files + len(one.files), size + one.bytes
            gone.add(one.transaction_id)
        kept, claim = self._kept(row, gone), _noted(row, gone)
        if (kept, claim) != (row.old, row.claim):
            after = replace(row, old=kept, claim=claim, updated=self.ports.clock())
            # If another process changed the row meanwhile, its own cleanup removes the claim.
            self.ports.effects(Step.CLEAN_CLAIM, partial(self.ports.ledger.write, after))
        return Cleaned(files, size)

    def _kept(self, row: Row, gone: set[str]) -> tuple[Claim, ...]:
        """Return the list `old`: removed exports lose their parts at once, their claim later."""
        since = self.ports.clock() - STAYS_KNOWN
        slim = (
            replace(c, parts=(), staging=()) if c.transaction_id in gone else c for c in row.old
        )
        return tuple(c for c in slim if c.transaction_id not in gone or c.begun > since)

    def _delete(self, step: Step, found: StoredObject) -> None:
        storage = self.storage(found.location)
        self.ports.effects(step, partial(storage.delete, found.location))


def _noted(row: Row, gone: set[str]) -> Claim:
    """Return the claim of a row, without its recipe if it was given up and its files are gone."""
    given_up = row.state in (State.KILLED, State.FAILED)
    if not given_up or row.claim.transaction_id not in gone:
        return row.claim
    return replace(row.claim, recipe="", staging=())


def _wanted(
    row: Row,
    transaction_id: str,
    receipts: tuple[StoredObject, ...],
    names: set[str],
    judged: Verdict,
) -> tuple[StoredObject, ...]:
    """Return the receipts of a landed export that are still needed, and its digest.

    `verify` needs the receipts of files in snapshots. If there are none, one receipt stays: it
    records the lake partition of the rows (`foreign_rows.py`). The digest stays for the last landed
    export, and while any snapshot has files of the export.
    """
    if not any(x.transaction_id == transaction_id for x in row.landed):
        return ()
    if not judged.may_go:
        return receipts
    last = row.done is not None and row.done.landed.transaction_id == transaction_id
    finished = tuple(o for o in receipts if not _name(o.location).startswith("."))
    digests = tuple(o for o in finished if not _slice_and_attempt(o))
    written = tuple(o for o in finished if _slice_and_attempt(o))
    of_files = tuple(o for o in written if _is_of_any(o, names))
    return (*(of_files or written[:1]), *(digests if last or names else ()))


def _is_of_any(receipt: StoredObject, names: set[str]) -> bool:
    end = f"-{_slice_and_attempt(receipt)}.parquet"
    return any(name.endswith(end) for name in names)


def _slice_and_attempt(receipt: StoredObject) -> str:
    """Return `<slice>-<attempt>` of a receipt, '' of the digest in the same directory."""
    stem = _name(receipt.location).partition(".")[0]
    return stem if stem.partition("-")[0].isdecimal() else ""


def _name(location: str) -> str:
    return location.rsplit("/", 1)[-1]


def _directory(one: StoredObject) -> str:
    return one.location.rsplit("/", 2)[-2]


def _key(one: StoredObject) -> str:
    found = exported_by(one.location)
    return found[0] if found else ""


def _of(one: StoredObject) -> str:
    found = exported_by(one.location)
    return found[1] if found else ""


MOST_EXPORTS: Final = 16
"""The most keys that a run cleans up at its end."""
_MOST_FILES: Final = 256
_MOST_MILLISECONDS: Final = 3_000
_MOST_ATTEMPTS: Final = 3
_INTERRUPTED: Final = "interrupted, and no later run resumed it"


@dataclass(frozen=True, slots=True)
class Expired:
    """Gives up expired exports into one destination at `location`, and removes their files.

    An interrupted export expires `abandoned_ttl` seconds after the last change of its ledger row;
    with 0 it never does.
    """

    ports: JobPorts
    commit_ports: Ports
    leases: Leases
    location: str
    abandoned_ttl: int = ABANDONED_TTL

    def clean(self) -> None:
        """Clean up a bounded share; errors are only reported to the observer."""
        try:
            self._clean()
        except TableFormatError as error:
            self.ports.observer.note(
                f"files of earlier exports were not removed: {error} {Command.GC} removes them"
            )

    def _clean(self) -> None:
        begun, ledger = self.ports.clock(), self.ports.ledger
        rows = self.ports.effects(Step.FIND_EXPIRED, lambda: tuple(ledger.rows()))
        candidates = [r for r in rows if self._is_expired(r, begun) or any(_left(r))]
        if not candidates:
            return
        state = load_table(self.commit_ports)
        done, turn = 0, begun % len(candidates)
        # Each run starts at another candidate: some files cannot be removed yet.
        for row in (*candidates[turn:], *candidates[:turn]):
            late = self.ports.clock() - begun > _MOST_MILLISECONDS
            if done == MOST_EXPORTS or late or self.ports.should_stop():
                return
            is_expired = self._is_expired(row, begun)
            if row.key.destination == state.layout.table_uuid and (
                is_expired or _is_dead(row, state)
            ):
                self._one(row, give_up=is_expired)
                done += 1

    def _one(self, row: Row, *, give_up: bool) -> None:
        """Clean up after one key under its lease; a key with another owner is skipped."""
        key = row.key.hash
        if self.leases.take(key) is not None:
            return
        try:
            if give_up:
                now = self.ports.effects(Step.READ_LEDGER, lambda: self.ports.ledger.read(key))
                if now is None or now.version != row.version:
                    return
                few = replace(self.commit_ports, most_attempts=_MOST_ATTEMPTS)
                kill(few, key, state=State.FAILED, why="" if row.last_error else _INTERRUPTED)
            cleaning = Cleaning(self.commit_ports, self.ports.storage, self.location)
            cleaning.clean(key, most=_MOST_FILES)
        finally:
            self.leases.release(key)

    def _is_expired(self, row: Row, now: int) -> bool:
        """Whether an export is unfinished, and its row unchanged, for longer than the TTL."""
        begun = row.state is State.RUNNING and row.move is None
        ttl = self.abandoned_ttl
        return begun and ttl != 0 and row.updated + ttl * 1000 < now


def _left(row: Row) -> Iterator[Claim]:
    """Yield the claims of abandoned exports whose files were not removed yet.

    Removal clears the parts of a claim on `old`, and the recipe of the current claim.
    """
    yield from (c for c in row.old if c.parts)
    if row.state in (State.KILLED, State.FAILED) and row.claim.recipe:
        yield row.claim


def _is_dead(row: Row, state: LakeTableState) -> bool:
    return any(verdict(row, state, 0, c.transaction_id).may_go for c in _left(row))


def staging_in_use(
    ledger: Ledger, is_unneeded: Callable[[Row], bool] = lambda _: False
) -> frozenset[str]:
    """Return the snapshots of unfinished claims, which `Source.sweep_leftovers` keeps.

    Args:
        ledger: the ledger of the exports.
        is_unneeded: whether resuming the claim of a row would save no work.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    return frozenset(
        name
        for row in ledger.rows(state=State.RUNNING)
        if row.claim.staging and not is_unneeded(row)
        for name in row.claim.staging
    )
