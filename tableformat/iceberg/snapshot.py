"""Stages commits with PyIceberg, builds the catalog requests, and reads a loaded table's state.

PyIceberg writes the manifests; mergeberg sends the request itself
(docs/decisions/0003-own-commit-loop.md). PyIceberg's own commit retries without a check, which
commits twice, and its clean-up deletes manifests that may have landed.

* `state_of` converts a loaded table to `LakeTableState`; `stage` writes the manifests of one
  attempt.
* `request` builds the request. `catalog/iceberg/table.py` sends it; `tableformat/export/commit.py`
  runs the protocol.
* `tag_request` makes tags of main in one request. Tags outlive the expiry of snapshots and are
  never moved.
* `expiry_request` expires snapshots; `made_by` finds the snapshots of a ledger's commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, assert_never, cast
from uuid import UUID

from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import (
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles, _OverwriteFiles
from pyiceberg.types import NestedField, StructType

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.committer import (
    DETACHED_BRANCH,
    MAIN_BRANCH,
    Commit,
    DetachLeaving,
    DiscardDetached,
    FetchFiles,
    LakeTableState,
    Layout,
    SnapshotSeen,
    Staged,
    TagChange,
    property_change,
)
from tableformat.errors import InternalError, RefusedError, UnsupportedError
from tableformat.file_names import attempt_uuid
from tableformat.iceberg.values import data_file
from tableformat.quantities import counted

__all__ = [
    "NEVER",
    "branch_head",
    "data_files",
    "expiry_request",
    "location_provider",
    "made_by",
    "refuse_lost_columns",
    "refuse_tag",
    "request",
    "same_schema",
    "stage",
    "stage_pruned",
    "state_of",
    "table_of",
    "tag_request",
    "writable_schema",
]


NEVER: Final = 2**63 - 1
"""An age in milliseconds that no expiry of references reaches."""


def branch_head(table: Table, branch: str) -> Snapshot | None:
    """Return a branch's snapshot; None if there is no branch, or a tag has its name."""
    found = table.metadata.refs.get(branch)
    if found is None or found.snapshot_ref_type is not SnapshotRefType.BRANCH:
        return None
    return table.metadata.snapshot_by_id(found.snapshot_id)


def refuse_tag(table: Table, branch: str) -> None:
    """Refuse a tag with the name of a branch that is needed.

    Raises:
        RefusedError: there is such a tag.
    """
    found = table.metadata.refs.get(branch)
    if found is not None and found.snapshot_ref_type is SnapshotRefType.TAG:
        message = (
            f"Cannot keep what is detached on the branch {branch}: the table has a tag of that "
            "name. Drop or rename the tag, and run it again."
        )
        raise RefusedError(message)


def tag_request(
    state: LakeTableState, change: TagChange
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return the updates and requirements of a change of tags: one request, all or nothing.

    To add tags, main must be as in `state` and the tags must not exist. A tag that is removed or
    moved must be unchanged. So only one of two changes of a tag applies.
    """
    updates: list[TableUpdate] = []
    required: list[TableRequirement] = [AssertTableUUID(uuid=UUID(state.layout.table_uuid))]
    for name in change.added:
        updates.append(_tag(name, state.main))
        required.append(_is_at(name, None))
    for one in change.pruned:
        staged, _ = cast("_Request", one.staged.handle)
        updates.extend(update for update in staged if isinstance(update, AddSnapshotUpdate))
        moved = table_of(state).metadata.refs.get(one.name) if one.before is not None else None
        age = moved.max_ref_age_ms if moved is not None else NEVER
        updates.append(_tag(one.name, one.staged.snapshot_id, age))
        required.append(_is_at(one.name, one.before))
    if change.added or any(one.before is None for one in change.pruned):
        required.append(_is_at(MAIN_BRANCH, state.main))
    for name, snapshot_id in change.removed:
        updates.append(
            RemoveSnapshotRefUpdate.model_validate(
                {"action": "remove-snapshot-ref", "ref-name": name}
            )
        )
        required.append(_is_at(name, snapshot_id))
    if change.properties:
        updates.append(SetPropertiesUpdate(updates=dict(change.properties)))
    if change.removed_properties:
        updates.append(RemovePropertiesUpdate(removals=list(change.removed_properties)))
    return tuple(updates), tuple(required)


def _is_at(ref: str, snapshot_id: int | None) -> TableRequirement:
    return AssertRefSnapshotId.model_validate(
        {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": snapshot_id}
    )


def _tag(name: str, snapshot_id: int | None, age: int | None = NEVER) -> TableUpdate:
    if snapshot_id is None:
        message = "A tag of a table without a snapshot; this is a bug, please report it."
        raise InternalError(message)
    return SetSnapshotRefUpdate.model_validate(
        {
            "action": "set-snapshot-ref",
            "ref-name": name,
            "type": SnapshotRefType.TAG,
            "snapshot-id": snapshot_id,
            "max-ref-age-ms": age,
        }
    )


_Request = tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]


def location_provider(location: str, properties: Mapping[str, str]) -> LocationProvider:
    """Return the provider of the locations of metadata files, by Iceberg's own property.

    PyIceberg would load any class that the table's properties name, and refuse every file for a
    wrong value of a property about data files.
    """
    named = TableProperties.WRITE_METADATA_PATH
    kept = {named: properties[named]} if named in properties else {}
    return load_location_provider(location, kept)


class _PlacedTable(Table):
    """A table whose location provider is ours, so that PyIceberg loads no class."""

    def location_provider(self) -> LocationProvider:
        return location_provider(self.metadata.location, self.metadata.properties)


class _MemoisedTransaction(Transaction):
    """A transaction that computes its metadata once for each set of updates.

    The base class copies the whole metadata about fifteen times per commit, which takes a second at
    1,000 snapshots.
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
    """Return the state that one attempt of the commit loop uses, from a single metadata object."""
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

    Nothing becomes visible (docs/spec/commit-protocol.md, step 7).
    """
    table = table_of(state)
    transaction = _MemoisedTransaction(table)
    number = state.last_sequence_number + 1
    match commit.detached:
        case DiscardDetached(paths):
            lost = tuple(_entries(table, DETACHED_BRANCH, paths))
            return _staged(transaction, state, commit, _Change(DETACHED_BRANCH, number, (), lost))
        case DetachLeaving() | FetchFiles():
            refuse_tag(table, DETACHED_BRANCH)
        case None:
            pass
        case never:
            assert_never(never)
    removed = tuple(_entries(table, MAIN_BRANCH, leaves))
    returning = tuple(path for key in commit.keys for path in key.returns)
    returned = tuple(_entries(table, DETACHED_BRANCH, returning))
    new = (
        data_file(receipt, writable_schema(table.metadata), table.spec())
        for key in commit.keys
        for receipt in key.receipts
    )
    if isinstance(commit.detached, FetchFiles):
        fetched = _Change(DETACHED_BRANCH, number, tuple(new), ())
        return _staged(transaction, state, commit, fetched)
    change = _Change(MAIN_BRANCH, number, (*new, *returned), removed)
    staged = _staged(transaction, state, commit, change)
    detaches = isinstance(commit.detached, DetachLeaving)
    kept = _missing_from(table, DETACHED_BRANCH, removed) if detaches else ()
    if not returned and not kept:
        return staged
    detached = _Change(DETACHED_BRANCH, number + 1, kept, returned)
    # The second snapshot of the request builds on the metadata with the first one.
    transaction._updates, _ = _request_of(staged)  # noqa: SLF001
    return _joined(staged, _staged(transaction, state, commit, detached))


def stage_pruned(
    state: LakeTableState, at: int, leaves: tuple[str, ...], ledger: str, number: int
) -> Staged:
    """Write the manifests of a snapshot with another snapshot's files, except some of them.

    It is for a tag (`tag_request`); no branch points to it.

    Args:
        state: of the table.
        at: the other snapshot.
        leaves: the paths of the files that it omits.
        ledger: the identity of the ledger.
        number: of the attempt, from the ledger's counter.
    """
    table = _with_main_at(table_of(state), at)
    commit = Commit(keys=(), layout=state.layout, ledger=ledger, number=number)
    removed = tuple(_entries(table, MAIN_BRANCH, leaves))
    change = _Change(MAIN_BRANCH, state.last_sequence_number + 1, (), removed)
    staged = _staged(_MemoisedTransaction(table), state, commit, change)
    updates, requirements = _request_of(staged)
    # A reader of a tag sees the columns of its snapshot, also those that were dropped since.
    seen = next((s.schema_id for s in table.metadata.snapshots if s.snapshot_id == at), None)
    alike = tuple(_with_schema(one, seen) for one in updates)
    return replace(staged, handle=(alike, requirements))


def _with_schema(update: TableUpdate, schema_id: int | None) -> TableUpdate:
    """Return the update that adds a snapshot with another schema; others as they are."""
    if not isinstance(update, AddSnapshotUpdate):
        return update
    snapshot = update.snapshot.model_copy(update={"schema_id": schema_id})
    return update.model_copy(update={"snapshot": snapshot})


def _with_main_at(table: Table, at: int) -> Table:
    """Return a table as if main pointed to a snapshot."""
    head = SnapshotRef.model_validate({"snapshot-id": at, "type": SnapshotRefType.BRANCH})
    refs = {MAIN_BRANCH: head}
    metadata = table.metadata.model_copy(update={"refs": refs, "current_snapshot_id": at})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


@dataclass(frozen=True, slots=True)
class _Change:
    """A snapshot's change of a branch; `sequence_number` is the snapshot's."""

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
    refuse_lost_columns(table_of(state), (f.spec_id for f in (*change.added, *change.removed)))
    producer = update.overwrite() if change.removed else update.fast_append()
    number = transaction.table_metadata.default_spec_id
    _write_every_spec(producer, tuple(f for f in change.added if f.spec_id != number))
    # Every reader reads it. The table's own codec is for data files, and the library may lack it.
    producer._compression = "deflate"  # noqa: SLF001
    producer.commit_uuid = attempt_uuid(
        state.layout.table_uuid, commit.ledger, commit.number, change.sequence_number
    )
    for removed in change.removed:
        producer.delete_data_file(removed)
    for file in change.added:
        if file.spec_id == number:
            producer.append_data_file(file)
    # The public commit() would send, retry and clean up; only the staging is needed.
    staged, requirements = producer._commit()  # noqa: SLF001
    updates = tuple(_retained(one, transaction.table_metadata.refs) for one in staged)
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


class _OptionalFields(PartitionSpec):
    """A partition spec whose fields may all be null, as Iceberg has them in manifests."""

    def partition_type(self, schema: Schema) -> StructType:
        # PyIceberg requires those of required columns, but version 1's `void` is always null.
        fields = super().partition_type(schema).fields
        return StructType(*(one.model_copy(update={"required": False}) for one in fields))


def _optional(spec: PartitionSpec) -> PartitionSpec:
    return _OptionalFields.model_validate(spec.model_dump(by_alias=True))


_Producer = _FastAppendFiles | _OverwriteFiles


def _write_every_spec(producer: _Producer, earlier: tuple[DataFile, ...]) -> None:
    """Let a snapshot add and remove files with the partition specs that they were written for.

    PyIceberg writes a single manifest of all files that it adds, with the table's current spec. It
    takes the types of partition values from the current schema alone, and which may be null.
    """

    def with_earlier(manifests: list[ManifestFile]) -> list[ManifestFile]:
        made = []
        for spec_id in sorted({file.spec_id for file in earlier}):
            with producer.new_manifest_writer(producer.spec(spec_id)) as writer:
                for file in earlier:
                    if file.spec_id == spec_id:
                        writer.add(_added_entry(file, producer.snapshot_id))
            made.append(writer.to_manifest_file())
        return [*made, *manifests]

    def summary(snapshot_properties: dict[str, str]) -> Summary:
        return _summary(metadata, producer, earlier, snapshot_properties)

    write, specs = producer.new_manifest_writer, producer.spec
    metadata = producer._transaction.table_metadata  # noqa: SLF001
    schema = writable_schema(metadata)
    producer.__dict__.update(
        schema=lambda: schema,
        spec=lambda spec_id: _optional(specs(spec_id)),
        new_manifest_writer=lambda spec: write(_optional(spec)),
        _process_manifests=with_earlier,
        _summary=summary,
    )


def writable_schema(metadata: TableMetadata) -> Schema:
    """Return the current schema, with the dropped columns by which a partition spec divides.

    Their types are those of the latest schema that has them. They have names of their own: another
    column may have the name by now.
    """
    now = metadata.schema()
    found = {
        id_: field for id_, field in _divided_by_dropped(metadata).items() if field is not None
    }
    if not found:
        return now
    fields = []
    for id_, field in found.items():
        name = f"dropped_{id_}"
        while name in now.column_names:
            name += "_"
        fields.append(field.model_copy(update={"name": name, "required": False}))
    return Schema(*now.fields, *fields, schema_id=now.schema_id)


def _divided_by_dropped(metadata: TableMetadata) -> dict[int, NestedField | None]:
    """Return the dropped columns of all partition specs by id, None for one without a schema."""
    sources = {field.source_id for spec in metadata.partition_specs for field in spec.fields}
    latest = sorted(metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)
    return {
        id_: next((old.find_field(id_) for old in latest if id_ in old.field_ids), None)
        for id_ in sorted(sources - set(metadata.schema().field_ids))
    }


def refuse_lost_columns(table: Table, spec_ids: Iterable[int]) -> None:
    """Refuse to write the entries of files whose partition values have no known type.

    Expiry may remove the last schema that has a dropped column. A manifest without the type cannot
    be read by Java's Avro, nor by PyIceberg.

    Args:
        table: the table.
        spec_ids: the partition specs of the files.

    Raises:
        UnsupportedError: there is such a file (code 48).
    """
    metadata = table.metadata
    lost = {id_ for id_, field in _divided_by_dropped(metadata).items() if field is None}
    for spec_id in sorted(set(spec_ids)) if lost else ():
        for field in metadata.specs()[spec_id].fields:
            if field.source_id in lost:
                message = (
                    f"Cannot commit to {'.'.join(table.name())}: it has files of its partition "
                    f"spec {spec_id}, whose field {field.name} is of a column that was dropped, "
                    "and no schema of the table has the column any more, so no manifest can be "
                    "written for these files. Rewrite them with the current partition spec by "
                    "another engine, as Spark's rewrite_data_files with rewrite-all, and run it "
                    "again."
                )
                raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def _added_entry(file: DataFile, snapshot_id: int) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        # Those of the snapshot.
        sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )


def _summary(
    metadata: TableMetadata,
    producer: _Producer,
    earlier: tuple[DataFile, ...],
    properties: dict[str, str],
) -> Summary:
    """Return the summary of a snapshot with files of several partition specs."""
    specs, schema, of_property = metadata.specs(), producer.schema(), metadata.properties
    limit = of_property.get(TableProperties.WRITE_PARTITION_SUMMARY_LIMIT, "")
    found = SnapshotSummaryCollector(int(limit) if limit.isdecimal() else 0)
    for file in (*producer._added_data_files, *earlier):  # noqa: SLF001
        found.add_file(file, schema, specs[file.spec_id])
    for file in producer._deleted_data_files:  # noqa: SLF001
        found.remove_file(file, schema, specs[file.spec_id])
    parent = producer._parent_snapshot_id  # noqa: SLF001
    before = metadata.snapshot_by_id(parent) if parent is not None else None
    made = Summary(operation=producer._operation, **found.build(), **properties)  # noqa: SLF001
    if before is None:
        return update_snapshot_summaries(made)
    # Version 1 allows a snapshot without a summary: then no total is known.
    return update_snapshot_summaries(made, before.summary) if before.summary else made


def _request_of(staged: Staged) -> _Request:
    return cast("_Request", staged.handle)


def _joined(staged: Staged, detached: Staged) -> Staged:
    """Return one attempt that makes both snapshots or none."""
    updates, requirements = _request_of(staged)
    more, required = _request_of(detached)
    handle = ((*updates, *more), (*requirements, *required))
    return replace(staged, files=(*staged.files, *detached.files), handle=handle)


def _retained(update: TableUpdate, refs: Mapping[str, SnapshotRef]) -> TableUpdate:
    """Return the update of a branch with the retention that the branch has.

    Catalogs replace the whole reference: a value that the update lacks is lost. What is detached
    never expires, unless the table's owner gave the branch another age.
    """
    if not isinstance(update, SetSnapshotRefUpdate):
        return update
    now, name = refs.get(update.ref_name), update.ref_name
    age = now.max_ref_age_ms if now is not None else None
    kept = {
        "max_ref_age_ms": NEVER if age is None and name == DETACHED_BRANCH else age,
        "max_snapshot_age_ms": now.max_snapshot_age_ms if now is not None else None,
        "min_snapshots_to_keep": now.min_snapshots_to_keep if now is not None else None,
    }
    return update.model_copy(update=kept)


def _entries(table: Table, branch: str, paths: tuple[str, ...]) -> Iterator[DataFile]:
    """Yield the data files of a branch at these paths, each once.

    Raises:
        InternalError: the branch does not have one of them.
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


def _missing_from(table: Table, branch: str, files: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
    """Return the files that a branch does not have.

    After a rollback main may have files that are on the branch, too.
    """
    there = {file.file_path for file in _files(table, branch)} if files else set()
    return tuple(file for file in files if file.file_path not in there)


def _files(table: Table, branch: str) -> Iterator[DataFile]:
    """Yield the data files of a branch, none if it does not exist."""
    return data_files(table, branch_head(table, branch))


def data_files(table: Table, snapshot: Snapshot | None) -> Iterator[DataFile]:
    """Yield the data files of a snapshot, none without one."""
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        if manifest.content == ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file


def table_of(state: LakeTableState) -> Table:
    """Return the PyIceberg table behind `state`."""
    return cast("Table", state.handle)


def request(
    state: LakeTableState, staged: Staged, commit: Commit, remove_marks: tuple[str, ...]
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return the updates and requirements of an attempt: one request, all or nothing.

    It requires the table's uuid, schema, spec, sort order and main as in `state`. PyIceberg adds
    the requirement on main, and this function checks that it did. It sets the marks, the ledger's
    identity and the highest number of the ledger's counter.
    """
    updates, requirements = _request_of(staged)
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
            same_schema(layout.schema_id),
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


def same_schema(schema_id: int) -> TableRequirement:
    """Return the requirement that a table's current schema is one."""
    return AssertCurrentSchemaId.model_validate(
        {"type": "assert-current-schema-id", "current-schema-id": schema_id}
    )


_LEDGER_KEY: Final = "mergeberg.ledger"
_KEYS_WITHOUT_LEDGER: Final = ("mergeberg.first", "mergeberg.fence", "mergeberg.rebuilt")
"""Summary keys of commits without files, whose summaries do not name the ledger."""


def expiry_request(
    state: LakeTableState, snapshot_ids: frozenset[int]
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return the updates and requirements of an expiry: one request, all or nothing.

    It requires main as in `state`, so that main cannot have moved to an expired snapshot.
    """
    expired = RemoveSnapshotsUpdate.model_validate(
        {"action": "remove-snapshots", "snapshot-ids": sorted(snapshot_ids)}
    )
    table = AssertTableUUID(uuid=UUID(state.layout.table_uuid))
    return (expired,), (table, _is_at(MAIN_BRANCH, state.main))


def made_by(state: LakeTableState, ledger: str) -> frozenset[int]:
    """Return the snapshots whose summaries name a ledger, or a commit without files."""
    return frozenset(
        one.snapshot_id
        for one in table_of(state).metadata.snapshots
        if one.summary is not None and _names_ledger(one.summary.additional_properties, ledger)
    )


def _names_ledger(summary: Mapping[str, str], ledger: str) -> bool:
    if _LEDGER_KEY in summary:
        return summary[_LEDGER_KEY] == ledger
    return any(name in summary for name in _KEYS_WITHOUT_LEDGER)
