"""Staging a commit with PyIceberg, and reading the state that it is decided on.

PyIceberg writes the manifests; the request is ours (docs/decisions/0003): its own commit retries
without checking again, which commits twice, and deletes manifests that have landed (destination.md
1.3). Sending is `catalog/iceberg_table.py`'s, the protocol `export/commit.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast
from uuid import UUID

from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from tableformat.branches import DETACHED_BRANCH, MAIN_BRANCH
from tableformat.commit_properties import property_change
from tableformat.committer import Commit, LakeTableState, Layout, SchemaChange, SnapshotSeen, Staged
from tableformat.errors import InternalError
from tableformat.iceberg.data_files import data_file
from tableformat.iceberg.tags import NEVER, branch_head, refuse_tag
from tableformat.manifest_names import attempt_uuid
from tableformat.quantities import counted

__all__ = [
    "is_in_use",
    "location_provider",
    "request",
    "schema_request",
    "stage",
    "stage_pruned",
    "state_of",
    "table_of",
]


_Asked = tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]


def location_provider(location: str, properties: Mapping[str, str]) -> LocationProvider:
    """Return what names new files of a table by Iceberg's own properties.

    PyIceberg would load any class that one of the table's properties names.
    """
    named = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
    return load_location_provider(location, {n: v for n, v in properties.items() if n != named})


class _PlacedTable(Table):
    """A table that names new files itself, and loads no class for it."""

    def location_provider(self) -> LocationProvider:
        return location_provider(self.metadata.location, self.metadata.properties)


class _MemoisedTransaction(Transaction):
    """A transaction that derives its metadata once per set of updates.

    The base class copies the whole metadata about fifteen times per commit, a second at 1,000
    snapshots.
    """

    _derived: tuple[tuple[int, tuple[TableUpdate, ...]], TableMetadata] | None = None

    def __init__(self, table: Table) -> None:
        super().__init__(
            _PlacedTable(
                table.name(), table.metadata, table.metadata_location, table.io, table.catalog
            )
        )

    @property
    def table_metadata(self) -> TableMetadata:
        if not self._updates:
            return self._table.metadata
        key = (id(self._table.metadata), self._updates)
        if self._derived is None or self._derived[0] != key:
            self._derived = (key, update_table_metadata(self._table.metadata, self._updates))
        return self._derived[1]


def state_of(table: Table) -> LakeTableState:
    """Return what a turn of the commit loop decides on, all from this one metadata object."""
    meta = table.metadata
    main = meta.refs.get(MAIN_BRANCH)
    return LakeTableState(
        layout=Layout(
            str(meta.table_uuid),
            meta.current_schema_id,
            meta.default_spec_id,
            meta.default_sort_order_id,
        ),
        format_version=meta.format_version,
        location=meta.location,
        main=main.snapshot_id if main else None,
        last_sequence_number=0 if isinstance(meta, TableMetadataV1) else meta.last_sequence_number,
        properties=dict(meta.properties),
        snapshots={
            s.snapshot_id: SnapshotSeen(
                s.snapshot_id,
                s.parent_snapshot_id,
                s.sequence_number or 0,
                s.summary.operation.value if s.summary else "",
                _count(s, "added-records"),
                _count(s, "added-data-files"),
                s.timestamp_ms,
            )
            for s in meta.snapshots
        },
        metadata_location=table.metadata_location,
        handle=table,
    )


def _count(snapshot: Snapshot, name: str) -> int | None:
    text = snapshot.summary.get(name) if snapshot.summary else None
    return int(text) if text is not None and text.isdecimal() else None


def stage(state: LakeTableState, commit: Commit, leaves: tuple[str, ...] = ()) -> Staged:
    """Write the manifests of one attempt on top of main.

    Nothing becomes visible (protocol.md step 7).
    """
    table = table_of(state)
    transaction = _MemoisedTransaction(table)
    number = state.last_sequence_number + 1
    if commit.discards:
        lost = tuple(_entries(table, DETACHED_BRANCH, commit.discards))
        return _staged(transaction, state, commit, _Change(DETACHED_BRANCH, number, (), lost))
    if commit.detaches or commit.fetches:
        refuse_tag(table, DETACHED_BRANCH)
    gone = tuple(_entries(table, MAIN_BRANCH, leaves))
    returning = tuple(path for key in commit.keys for path in key.returns)
    back = tuple(_entries(table, DETACHED_BRANCH, returning))
    new = (
        data_file(receipt, table.schema(), table.spec())
        for key in commit.keys
        for receipt in key.receipts
    )
    if commit.fetches:
        fetched = _Change(DETACHED_BRANCH, number, tuple(new), ())
        return _kept_for_ever(_staged(transaction, state, commit, fetched))
    change = _Change(MAIN_BRANCH, number, (*new, *back), gone)
    staged = _staged(transaction, state, commit, change)
    kept = _not_on(table, DETACHED_BRANCH, gone) if commit.detaches else ()
    if not back and not kept:
        return staged
    aside = _Change(DETACHED_BRANCH, number + 1, kept, back)
    # The second of two snapshots in one request follows the first.
    transaction._updates, _ = _asked(staged)  # noqa: SLF001
    return _joined(staged, _staged(transaction, state, commit, aside))


def stage_pruned(
    state: LakeTableState, at: int, leaves: tuple[str, ...], ledger: str, number: int
) -> Staged:
    """Write the manifests of a snapshot that has what another one has, without some of its files.

    It is for a tag (`tags.tag_request`); no branch gets it.

    Args:
        state: of the table.
        at: the other snapshot.
        leaves: the paths of the files that it does not have.
        ledger: the identity of the ledger.
        number: of the attempt, from the ledger's counter.
    """
    table = _headed(table_of(state), at)
    commit = Commit(keys=(), layout=state.layout, ledger=ledger, number=number)
    gone = tuple(_entries(table, MAIN_BRANCH, leaves))
    change = _Change(MAIN_BRANCH, state.last_sequence_number + 1, (), gone)
    return _staged(_MemoisedTransaction(table), state, commit, change)


def _headed(table: Table, at: int) -> Table:
    """Return a table as if main were at a snapshot."""
    head = SnapshotRef.model_validate({"snapshot-id": at, "type": SnapshotRefType.BRANCH})
    refs = {MAIN_BRANCH: head}
    metadata = table.metadata.model_copy(update={"refs": refs, "current_snapshot_id": at})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


@dataclass(frozen=True, slots=True)
class _Change:
    """What a snapshot changes on a branch; `sequence_number` is the snapshot's."""

    branch: str
    sequence_number: int
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]


def _staged(
    transaction: _MemoisedTransaction, state: LakeTableState, commit: Commit, change: _Change
) -> Staged:
    """Write the manifests of one snapshot."""
    update = transaction.update_snapshot(
        snapshot_properties=dict(commit.summary), branch=change.branch
    )
    producer = update.overwrite() if change.removed else update.fast_append()
    producer.commit_uuid = attempt_uuid(
        state.layout.table_uuid, commit.ledger, commit.number, change.sequence_number
    )
    for gone in change.removed:
        producer.delete_data_file(gone)
    for file in change.added:
        producer.append_data_file(file)
    # The public commit() would send, retry and clean up by itself; only the staging is wanted.
    updates, requirements = producer._commit()  # noqa: SLF001
    added = [u.snapshot for u in updates if isinstance(u, AddSnapshotUpdate)]
    if len(added) != 1:
        message = (
            f"PyIceberg staged {len(added)} snapshots instead of one; this is a bug, please "
            "report it."
        )
        raise InternalError(message)
    io = table_of(state).io
    made = [m for m in added[0].manifests(io) if m.added_snapshot_id == added[0].snapshot_id]
    return Staged(
        snapshot_id=added[0].snapshot_id,
        parent_id=added[0].parent_snapshot_id,
        sequence_number=added[0].sequence_number or 0,
        files=(added[0].manifest_list, *(m.manifest_path for m in made)),
        handle=(updates, requirements),
    )


def _asked(staged: Staged) -> _Asked:
    return cast("_Asked", staged.handle)


def _joined(staged: Staged, aside: Staged) -> Staged:
    """Return the attempt that makes both snapshots, or none."""
    updates, requirements = _asked(staged)
    more, required = _asked(_kept_for_ever(aside))
    handle = ((*updates, *more), (*requirements, *required))
    return replace(staged, files=(*staged.files, *aside.files), handle=handle)


def _kept_for_ever(staged: Staged) -> Staged:
    """Return an attempt whose branch has an age that no expiry of references reaches."""
    updates, requirements = _asked(staged)
    lasting = tuple(
        one.model_copy(update={"max_ref_age_ms": NEVER})
        if isinstance(one, SetSnapshotRefUpdate)
        else one
        for one in updates
    )
    return replace(staged, handle=(lasting, requirements))


def _entries(table: Table, branch: str, paths: tuple[str, ...]) -> Iterator[DataFile]:
    """Yield the data files of a branch at these paths, each once.

    Raises:
        InternalError: one of them is not there.
    """
    left = set(paths)
    for file in _files(table, branch) if left else ():
        if file.file_path in left:
            left.remove(file.file_path)
            yield file
    if left:
        message = (
            f"{counted(len(left), 'file')} to leave {branch} not in it; this is a bug, please "
            "report it."
        )
        raise InternalError(message)


def _not_on(table: Table, branch: str, files: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
    """Return the files that a branch does not have: main may have been moved back to them."""
    there = {file.file_path for file in _files(table, branch)} if files else set()
    return tuple(file for file in files if file.file_path not in there)


def _files(table: Table, branch: str) -> Iterator[DataFile]:
    """Yield the data files of a branch, which need not exist."""
    snapshot = branch_head(table, branch)
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        if manifest.content == ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file


def is_in_use(state: LakeTableState, staged: Staged) -> bool:
    """Whether any snapshot in the metadata refers to a file of an attempt (protocol.md step 10).

    The absence of the attempt's snapshot would not be enough: expiry keeps its manifests in its
    children.
    """
    table = table_of(state)
    wanted = set(staged.files)
    for snapshot in table.metadata.snapshots:
        if snapshot.manifest_list in wanted:
            return True
        if any(m.manifest_path in wanted for m in snapshot.manifests(table.io)):
            return True
    return False


def table_of(state: LakeTableState) -> Table:
    """Return PyIceberg's own object for the metadata that `state` shows."""
    return cast("Table", state.handle)


def request(
    state: LakeTableState, staged: Staged, commit: Commit, remove_marks: tuple[str, ...]
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return the updates and requirements of an attempt: one request, all or nothing.

    Requires the table's uuid, schema, spec, sort order and main as in `state` (main by PyIceberg's
    own requirement, checked here to be there); sets the marks, the ledger's identity and the
    highest number of its counter.
    """
    updates, requirements = _asked(staged)
    if not any(r.type == "assert-ref-snapshot-id" for r in requirements):
        message = (
            "PyIceberg staged a snapshot without asserting main; this is a bug, please report it."
        )
        raise InternalError(message)
    layout = commit.layout
    change = property_change(state, staged, commit, remove_marks)
    extra: list[TableUpdate] = [SetPropertiesUpdate(updates=dict(change.set))]
    if change.removed:
        extra.append(RemovePropertiesUpdate(removals=list(change.removed)))
    return (
        (*updates, *extra),
        (
            *requirements,
            AssertTableUUID(uuid=UUID(layout.table_uuid)),
            _same_schema(layout.schema_id),
            AssertDefaultSpecId.model_validate(
                {"type": "assert-default-spec-id", "default-spec-id": layout.spec_id}
            ),
            AssertDefaultSortOrderId.model_validate(
                {
                    "type": "assert-default-sort-order-id",
                    "default-sort-order-id": layout.sort_order_id,
                }
            ),
        ),
    )


def schema_request(
    state: LakeTableState, change: SchemaChange
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return the updates and requirements of a change of the schema: one request, all or nothing.

    The ids of new fields follow the last one of `state`, so it must still be the last.
    """
    metadata = table_of(state).metadata
    number = max(schema.schema_id for schema in metadata.schemas) + 1
    schema = Schema.model_validate_json(change.schema_json).model_copy(update={"schema_id": number})
    updates: list[TableUpdate] = []
    if change.added:
        # Without an id the current one is the one added last.
        updates += [AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate()]
    if change.properties:
        updates.append(SetPropertiesUpdate(updates=dict(change.properties)))
    return (
        tuple(updates),
        (
            AssertTableUUID(uuid=UUID(state.layout.table_uuid)),
            _same_schema(state.layout.schema_id),
            AssertLastAssignedFieldId.model_validate(
                {
                    "type": "assert-last-assigned-field-id",
                    "last-assigned-field-id": metadata.last_column_id,
                }
            ),
        ),
    )


def _same_schema(schema_id: int) -> TableRequirement:
    return AssertCurrentSchemaId.model_validate(
        {"type": "assert-current-schema-id", "current-schema-id": schema_id}
    )
