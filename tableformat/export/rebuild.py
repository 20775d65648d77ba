"""Rebuilds a lost ledger from the lists of a table's commits and from main (`exports rebuild`).

    read M and every list -> for each key: compare its lists with main -> rows in the new ledger
    -> an empty commit with the identity of the new ledger

Main decides the row of a key:

* COMPLETED if main has exactly the listed files of one export, and those that stay with it, without
  deletes;
* FAILED without a landed export if neither main nor any ancestor of main has a file of the key;
* otherwise the rows may be in files of other writers. The row gets a landed export without files,
  so that no export of the key can add rows twice before a user has checked the table.

Lists and marks of archived keys are below the location that the table had when they were stored.
The owner may have changed it since: then data files and metadata show the earlier ones.

The empty commit is also the fence: no request of a process with the lost ledger can land after it
(docs/spec/commit-protocol.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from tableformat.committer import FileInMain, LakeTableState
from tableformat.effects import Step
from tableformat.errors import MissingError, RefusedError
from tableformat.export.archived import archived_location, archived_since
from tableformat.export.commit import Ports, send_empty
from tableformat.export.commit_lists import ListedExport, read_lists
from tableformat.file_names import is_of_transaction, key_in, table_locations
from tableformat.iceberg.properties import refuse_version
from tableformat.ledger import Archived, Claim, Held, Landed, Record, Row, Stale, State
from tableformat.messages import Option
from tableformat.storage import Storage
from tableformat.table_properties import LEDGER_PROPERTY, is_of_statement

__all__ = ["Rebuilt", "rebuild"]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The new ledger row of one key; `proved` is false if the place of its rows is unknown."""

    row: Row
    proved: bool


def rebuild(
    ports: Ports, storages: Callable[[str], Storage], destination: str
) -> tuple[Rebuilt, ...]:
    """Fill a ledger from a table, and set the ledger's identity in the table.

    Args:
        ports: the table, and its new ledger.
        storages: open the storage of a location.
        destination: the table's name in messages.

    Raises:
        RefusedError: the table belongs to this ledger already or has a format version that is not
            written, main has files of exports that no list names, or the catalog confirmed no
            commit.
        LedgerError: a list is damaged, or the ledger cannot be written.
        DestinationError: the table or its lists cannot be read.
    """
    for attempt in range(1, ports.most_attempts + 1):
        state = ports.effects(Step.LOAD_METADATA, ports.table.load)
        if state.properties.get(LEDGER_PROPERTY) == ports.ledger.identity:
            if attempt == 1:
                message = (
                    f"Cannot rebuild the ledger of {destination}: {ports.ledger.uri} is its ledger "
                    f"already. Name a new one with {Option.LEDGER}."
                )
                raise RefusedError(message)
            return tuple(_found(ports, state, storages, destination))
        refuse_version(state)
        found = tuple(_found(ports, state, storages, destination))
        _count_up(ports, max([state.highest_epoch, *(f.row.claim.epoch for f in found)]))
        for one in found:
            _write(ports, one.row)
        if send_empty(ports, state, "rebuilt")[1].applied:
            return found
        ports.pause(attempt)
    message = (
        f"Cannot give {destination} a new ledger: the catalog confirmed none of the attempts. Run "
        "it again."
    )
    raise RefusedError(message)


def _found(
    ports: Ports, state: LakeTableState, storages: Callable[[str], Storage], destination: str
) -> Iterator[Rebuilt]:
    """Yield the new row of every key that a list names."""
    by_key: dict[str, list[ListedExport]] = {}
    locations = _locations(ports, state)
    for location in locations:
        for listed in read_lists(storages(location), location):
            if listed.destination == state.layout.table_uuid:
                by_key.setdefault(listed.key.hash, []).append(listed)
    _refuse_unlisted(ports, state, frozenset(by_key), destination)
    for key, exports in sorted(by_key.items()):
        made = _row(ports, state, key, exports, destination)
        of = exports[0].key
        since = _archived_since(ports, storages, locations, key)
        # An earlier release noted it in the ledger alone. The rows before an increment are
        # archived; nothing shows whether the last ones are.
        has_later = of.next.hash in by_key
        if since is None and (of.increment or has_later):
            since = ports.clock()
        # Main may have been rolled back to before the rows that came before late ones.
        if since is not None and (made.row.landed or has_later):
            made = replace(made, row=replace(made.row, archived=Archived(since)))
        yield made


def _locations(ports: Ports, state: LakeTableState) -> tuple[str, ...]:
    """Return the locations that the table has and had, its present one first."""
    own = (path for path in ports.table.paths_in_main(state) if key_in(path))
    known = table_locations(state.location, own)
    if state.tree:
        return known
    metadata = sorted(ports.table.metadata_files(state))
    before = (path.rpartition("/metadata/")[0] for path in metadata)
    return tuple(dict.fromkeys((*known, *filter(None, before))))


def _archived_since(
    ports: Ports, storages: Callable[[str], Storage], locations: tuple[str, ...], key: str
) -> int | None:
    """Return since when a key is archived, None if no location has it as archived.

    One location may know of an end of that state of which an older one does not know: then exports
    are refused until the user ends it again.

    Raises:
        DestinationError: the object beside the table cannot be read.
        LedgerError: it is damaged, or of a newer format.
    """
    for location in locations:
        mark = archived_location(location, key)
        try:
            text = ports.effects(Step.FIND_FILES, partial(storages(location).read, mark))
        except MissingError:
            continue
        if (since := archived_since(mark, text)) is not None:
            return since
    return None


def _refuse_unlisted(
    ports: Ports, state: LakeTableState, listed: frozenset[str], destination: str
) -> None:
    """Refuse a table with files of a key that no list names: they would be exported again.

    Raises:
        RefusedError: main has such files.
    """
    names = {key_in(path) for path in ports.table.paths_in_main(state)} - {""}
    unknown = names - listed
    if unknown:
        message = (
            f"Cannot rebuild the ledger of {destination}: main holds files of {len(unknown)} "
            "exports that no list below the table's metadata directory names. Restore the lists "
            "(metadata/mergeberg/groups) from a copy, or the ledger."
        )
        raise RefusedError(message)


def _row(
    ports: Ports,
    state: LakeTableState,
    key: str,
    exports: list[ListedExport],
    destination: str,
) -> Rebuilt:
    """Return the new row of a key, decided as the module's docstring says."""
    now = ports.clock()
    last = max(exports, key=lambda e: e.epoch)
    files = ports.table.files_of(state, key)
    newest = sorted(exports, key=lambda e: e.epoch, reverse=True)
    found = next((one for one in newest if _is_whole(one, key, files)), None)
    known = ports.ledger.read(key)
    row = Row(
        last.key, last.source_table, destination, State.FAILED, _claim(last, now),
        known.created if known is not None else now, now,
        version=known.version if known is not None else 0, keeper_node=last.keeper_node,
    )  # fmt: skip
    if found is not None:
        landed = _landed(found, state)
        done = Record(landed, (), found.bytes, now, row.ttl)
        completed = replace(
            row, state=State.COMPLETED, claim=_claim(found, now), landed=(landed,), done=done,
            keeper_node=found.keeper_node,
        )  # fmt: skip
        return Rebuilt(completed, proved=True)
    if not files and _never_held(ports, state, key):
        return Rebuilt(row, proved=True)
    lost = replace(_landed(last, state), data_files=0, holds=None)
    text = "the ledger was rebuilt, and it is unknown where the rows of this partition are"
    return Rebuilt(replace(row, landed=(lost,), last_error=text), proved=False)


def _is_whole(listed: ListedExport, key: str, files: tuple[FileInMain, ...]) -> bool:
    """Whether main has exactly the listed files of an export, and those that stay with it.

    Files to which deletes apply, and files of a statement, never count as a complete export.
    """
    own = [f for f in files if is_of_transaction(f.path, key, listed.transaction_id)]
    stays = [_held(one.transaction_id, key, files) for one in listed.stays]
    return (
        not is_of_statement(listed.fingerprint)
        and bool(own)
        and sorted(f.path for f in own) == sorted(listed.files)
        and stays == [*listed.stays]
        and len(files) == len(own) + sum(one.data_files for one in stays)
        and not any(f.deletes for f in files)
    )


def _held(transaction_id: str, key: str, files: tuple[FileInMain, ...]) -> Held:
    own = [f for f in files if is_of_transaction(f.path, key, transaction_id)]
    return Held(transaction_id, len(own), sum(f.rows for f in own))


def _never_held(ports: Ports, state: LakeTableState, key: str) -> bool:
    """Whether all ancestors of main are known, and none of them has a file of a key."""
    if not state.history_is_complete:
        return False
    seen = state.main
    while seen is not None:
        if ports.table.files_of(state, key, seen):
            return False
        seen = state.snapshots[seen].parent_id
    return True


def _claim(listed: ListedExport, now: int) -> Claim:
    return Claim(
        listed.epoch,
        listed.transaction_id,
        listed.fingerprint,
        now,
        rows=listed.rows,
        data_files=_all_files(listed),
        bytes=listed.bytes,
        holds=listed.stays or None,
    )


def _all_files(listed: ListedExport) -> int:
    return len(listed.files) + sum(one.data_files for one in listed.stays)


def _landed(listed: ListedExport, state: LakeTableState) -> Landed:
    """Return an export as landed in the current main; the snapshot of its commit is not known."""
    return Landed(
        listed.epoch,
        listed.transaction_id,
        listed.fingerprint,
        state.main or 0,
        state.last_sequence_number,
        listed.rows,
        _all_files(listed),
        holds=listed.stays or None,
    )


def _count_up(ports: Ports, least: int) -> None:
    """Advance the ledger's counter to the greatest epoch in the table or its lists."""
    if (missing := least - ports.ledger.highest_epoch()) > 0:
        ports.ledger.next_epoch(missing)


def _write(ports: Ports, row: Row) -> None:
    written = ports.effects(Step.NOTE_LANDED, partial(ports.ledger.write, row))
    if isinstance(written, Stale):
        message = (
            f"Cannot rebuild the ledger {ports.ledger.uri}: another process writes it at the same "
            "time. Run it again when no other command runs."
        )
        raise RefusedError(message)
