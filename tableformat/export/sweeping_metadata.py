"""What `gc` finds beside the files of keys: manifests and lists of commits, with the proofs.

A manifest, or manifest list, of ours tells by its name which sequence number its attempt wanted;
names of other writers are not looked at. So does the metadata file that a catalog without a server
leaves when it loses the race to be the table's: it holds a snapshot of ours that the table passed.
Lists are judged with all exports on them (`dead.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tableformat.committer import LakeTableState
from tableformat.effects import Step
from tableformat.errors import DestinationError, LedgerError
from tableformat.export.cleaning import Cleaning
from tableformat.export.commit_lists import ListedExport, list_location, listed_in
from tableformat.export.dead import Listing, Verdict, list_verdict, manifest_verdict
from tableformat.export.thing import Kind, Thing
from tableformat.file_names import is_stop_mark, view_begun
from tableformat.ledger import Row
from tableformat.manifest_names import sequence_number_in
from tableformat.names import TransactionId
from tableformat.storage import StoredObject

__all__ = ["MetadataSweeping"]

_PATH_PROPERTY = "write.metadata.path"


@dataclass(frozen=True, slots=True)
class MetadataSweeping:
    """Judges what lies below a table's metadata directory and belongs to no single key.

    What is younger than `older_than` milliseconds at `now` stays. `someone_works` says whether an
    export into the table of a uuid is under way.
    """

    cleaning: Cleaning
    older_than: int
    now: int
    someone_works: Callable[[str], bool]

    def find(self, state: LakeTableState, row_of: Callable[[str], Row | None]) -> Iterator[Thing]:
        """Yield what is in nobody's use, and what may be of use to living requests.

        What snapshots refer to, and lists that a ledger could be rebuilt from, are not told.

        Args:
            state: the table's metadata, loaded anew.
            row_of: the ledger row of a key hash, read after `state` was loaded.

        Raises:
            DestinationError: the table or its files cannot be read.
            LedgerError: the ledger cannot be read.
        """
        default = f"{self.cleaning.location.rstrip('/')}/metadata"
        metadata = state.properties.get(_PATH_PROPERTY, default).rstrip("/")
        own = self.cleaning.receipts
        found = self._list(metadata)
        used = frozenset(_name(p) for p in self.cleaning.ports.table.metadata_files(state))
        versions = [v for name in used if (v := _version(name)) is not None]
        for one in found:
            if not one.location.startswith(f"{own}/") and _name(one.location) not in used:
                yield from self._manifest(one, state)
                if versions and min(versions) < (_version(one.location) or 0) <= max(versions):
                    yield from self._lost_race(one, state)
        lists = f"{list_location(self.cleaning.location)}/"
        below_own = found if own.startswith(f"{metadata}/") else self._list(own)
        for one in below_own:
            if one.location.startswith(lists):
                yield from self._commit_list(one, state, row_of)
            elif is_stop_mark(one.location, own):
                yield self._of_the_living(Kind.STOP_MARK, one, state, "its job is over")
            elif (began := view_begun(one.location, own)) is not None:
                # Nothing refers to it; a statement that still reads it fails, and changes nothing.
                proved = Verdict(may_go=True, why="of a view, while a statement divided its rows")
                judged = self._filtered(proved, began)
                yield Thing(Kind.VIEW_ROWS, one.location, one.size, judged.may_go, judged.why)

    def _of_the_living(
        self, kind: Kind, one: StoredObject, state: LakeTableState, why: str
    ) -> Thing:
        """Judge what only a job that works on the table has a use for."""
        works = self.someone_works(state.layout.table_uuid)
        why = "an export into the table is under way" if works else why
        return Thing(kind, one.location, one.size, may_go=not works, why=why)

    def _list(self, below: str) -> tuple[StoredObject, ...]:
        return self.cleaning.begun_and_finished(below)

    def _manifest(self, one: StoredObject, state: LakeTableState) -> Iterator[Thing]:
        """Judge a manifest that no snapshot refers to."""
        number = sequence_number_in(one.location, state.layout.table_uuid)
        if number is not None:
            judged = self._filtered(manifest_verdict(number, state), _dead_since(number, state))
            yield Thing(Kind.MANIFEST, one.location, one.size, judged.may_go, judged.why)

    def _lost_race(self, one: StoredObject, state: LakeTableState) -> Iterator[Thing]:
        """Judge a metadata file that is not the table's, with the number of one that is.

        It was to follow on a version that another one has followed on. Those from before the oldest
        version that the table remembers may have been its own.
        """
        wanted = self._wanted(one, state)
        if wanted is not None and wanted <= state.last_sequence_number:
            judged = self._filtered(
                Verdict(may_go=True, why="of a commit that lost its race: another one came first"),
                _dead_since(wanted, state),
            )
            yield Thing(Kind.METADATA, one.location, one.size, judged.may_go, judged.why)

    def _wanted(self, one: StoredObject, state: LakeTableState) -> int | None:
        """Return the sequence number of the attempt of ours that a metadata file was made for."""
        try:
            raw: dict[str, Any] = json.loads(self._read(one))
            last = max(raw["snapshots"], key=lambda s: s["sequence-number"])
            number = sequence_number_in(last["manifest-list"], state.layout.table_uuid)
        except (ValueError, KeyError, TypeError, DestinationError):
            # Somebody else's, or gone by now.
            return None
        return number if last["snapshot-id"] not in state.snapshots else None

    def _commit_list(
        self, one: StoredObject, state: LakeTableState, row_of: Callable[[str], Row | None]
    ) -> Iterator[Thing]:
        """Judge the list of a commit with all exports on it.

        A begun one names nothing that anybody relies on; who still writes it can only fail.
        """
        if _name(one.location).startswith("."):
            yield self._of_the_living(Kind.LIST, one, state, "never finished")
            return
        try:
            listed = listed_in(one.location, self._read(one))
        except (LedgerError, DestinationError) as error:
            yield Thing(Kind.LIST, one.location, one.size, may_go=False, why=str(error))
            return
        if any(e.destination != state.layout.table_uuid for e in listed):
            why = "not ours to judge: of another table that was in this place"
            yield Thing(Kind.LIST, one.location, one.size, may_go=False, why=why)
            return
        verdict = list_verdict([self._listing(e, state, row_of) for e in listed], state)
        if verdict is None:
            return
        name = _name(one.location).removesuffix(".json")
        began = TransactionId(name).milliseconds if name.isdecimal() else 0
        judged = self._filtered(verdict, began)
        yield Thing(Kind.LIST, one.location, one.size, judged.may_go, judged.why)

    def _listing(
        self, one: ListedExport, state: LakeTableState, row_of: Callable[[str], Row | None]
    ) -> Listing:
        key = one.key.hash
        referred = self.cleaning.ports.table.refers_to(state, key, (one.transaction_id,))
        return Listing(row_of(key), one.transaction_id, one.epoch, len(referred))

    def _read(self, one: StoredObject) -> bytes:
        effects, storage = self.cleaning.ports.effects, self.cleaning.storage(one.location)
        return effects(Step.FIND_DEAD_FILES, partial(storage.read, one.location))

    def _filtered(self, proved: Verdict, began: int) -> Verdict:
        if proved.may_go and self.older_than and began > self.now - self.older_than:
            return Verdict(may_go=False, why=f"{proved.why}, and younger than --older-than")
        return proved


def _dead_since(number: int, state: LakeTableState) -> int:
    """Return when the table passed a sequence number: no attempt at it was begun later."""
    passed = (s.made for s in state.snapshots.values() if s.sequence_number >= number)
    return min(passed, default=0)


def _version(location: str) -> int | None:
    """Return the number of a metadata file, None for other names."""
    number, _, rest = _name(location).partition("-")
    return int(number) if number.isdecimal() and rest.endswith(".metadata.json") else None


def _name(location: str) -> str:
    return location.rsplit("/", 1)[-1]
