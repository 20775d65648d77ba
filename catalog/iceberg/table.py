"""Loads an Iceberg table of a catalog and sends the commits that `iceberg.snapshot` staged.

`IcebergTable` implements `tableformat.committer.LakeTable` on any PyIceberg catalog. A commit is
one request with its requirements. Every result but a success means that the outcome is unknown
(docs/spec/commit-protocol.md, step 7).

Errors of PyIceberg become errors of ours: what was tried, why it failed, and what to do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import Final
from uuid import UUID

from pydantic import ValidationError as InvalidMetadata
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertLastAssignedFieldId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from catalog.storages.schemes import Storages
from tableformat.clickhouse_codes import NOT_IMPLEMENTED, UNKNOWN_TABLE
from tableformat.committer import (
    BranchFile,
    Commit,
    FileInMain,
    LakeTableState,
    PartitionFile,
    SchemaChange,
    Sent,
    Staged,
    TagChange,
)
from tableformat.errors import DestinationError, NotFoundError, TableFormatError, UnsupportedError
from tableformat.iceberg import snapshot
from tableformat.iceberg.manifest_scan import MainFiles, References, is_in_use
from tableformat.iceberg.referred_files import Place, ReferredFiles
from tableformat.iceberg.schema_evolution import evolved_mapping
from tableformat.iceberg.snapshot import expiry_request, made_by, tag_request
from tableformat.names import LakeName

__all__ = ["IcebergTable", "first_line", "unreachable", "unreadable", "what_failed"]

_MOST_REASONS: Final = 3


def unreadable(name: LakeName, error: Exception) -> UnsupportedError:
    """Return the refusal of a table with unreadable metadata, with the reasons.

    REST catalogs raise the parser's own error, the others wrap it.
    """
    cause = error if isinstance(error, InvalidMetadata) else error.__cause__
    details = cause.errors() if isinstance(cause, InvalidMetadata) else []
    reasons = dict.fromkeys(str(one["msg"]).removeprefix("Value error, ") for one in details)
    why = "; ".join([*reasons][:_MOST_REASONS]) or str(error)
    return UnsupportedError(
        f"Cannot use {name}: its metadata holds what only newer versions of Iceberg have, or is "
        f"damaged ({why}). To export, name a new table: it is created.",
        code=NOT_IMPLEMENTED,
    )


def first_line(error: Exception) -> str:
    """Return an error's first line; databases append the statement with its values."""
    return next(iter(str(error).splitlines()), "")


def what_failed(error: Exception) -> str:
    """Return an error as one line without a full stop.

    An error of ours, such as that of a catalog's storage, already has a complete message.
    """
    if isinstance(error, TableFormatError):
        return error.message.rstrip(".")
    return f"{type(error).__name__}: {first_line(error)}"


def unreachable(catalog: str, what: str, error: Exception) -> TableFormatError:
    """Return the error for a catalog, or its storage, that failed during the action `what`."""
    if isinstance(error, TableFormatError):
        # The storage of the catalog has raised an error with a complete message.
        return type(error)(error.message, code=error.code)
    details = first_line(error).rstrip(". ")
    if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("psycopg"):
        return DestinationError(
            f"Cannot {what}: the URI of the catalog {catalog!r} asks for the driver {error.name}, "
            "which is not installed. Run: pip install 'mergeberg[postgres]', and let the URI begin "
            "with postgresql+psycopg2://."
        )
    return DestinationError(
        f"Cannot {what}: the catalog {catalog!r} or its storage failed with "
        f"{type(error).__name__}: {details}. Check its configuration, rights and network; running "
        "it again is safe."
    )


class IcebergTable:
    """A `tableformat.committer.LakeTable` on any PyIceberg catalog."""

    def __init__(
        self, catalog: Catalog, name: LakeName, loaded: Table, storages: Storages | None = None
    ) -> None:
        """Keep the catalog and the name; `loaded` is the table as loaded.

        `storages` are the catalog's, which learn the table's properties; None creates new ones.
        """
        self._catalog = catalog
        self.name = name
        self.loaded = loaded
        self.storages = Storages() if storages is None else storages
        self.storages.learn(loaded.location(), loaded.io.properties)
        self._io = loaded.io
        self._files = MainFiles()
        self._references = References()

    @cached_property
    def _referred(self) -> ReferredFiles:
        """The files of all writers, which only maintenance reads."""
        return ReferredFiles()

    def load(self) -> LakeTableState:
        """Load the current metadata.

        Raises:
            NotFoundError: the table was dropped (code 60).
            DestinationError: the catalog does not respond.
        """
        try:
            table = self._catalog.load_table(self.name.identifier)
        except NoSuchTableError as error:
            message = (
                f"Cannot find {self.name} any more: it was dropped or renamed meanwhile. Run "
                "it again."
            )
            raise NotFoundError(message, code=UNKNOWN_TABLE) from error
        except Exception as error:
            raise unreachable(self.name.catalog, f"load {self.name}", error) from error
        # A server may have vended new credentials, and the old ones expire.
        self.storages.learn(table.location(), table.io.properties)
        self._io = table.io
        return snapshot.state_of(table)

    def files_of(
        self,
        state: LakeTableState,
        key: str,
        at: int | None = None,
        also: Collection[str] = (),
    ) -> tuple[FileInMain, ...]:
        """Return the data files of a key hash, or at some paths, in a snapshot or in main."""
        with self._storage_errors("read the manifests"):
            return self._files.of_key(state, key, state.main if at is None else at, also)

    def rewritten(
        self, state: LakeTableState, files: Collection[FileInMain], since: Iterable[int]
    ) -> tuple[FileInMain, ...] | None:
        """Return the files of main with the rows of earlier files, which other writers rewrote."""
        with self._storage_errors("read the manifests"):
            return self._files.rewritten(state, files, since)

    def paths_in_main(self, state: LakeTableState) -> tuple[str, ...]:
        """Return the paths of all data files of main."""
        with self._storage_errors("read the manifests"):
            return self._files.paths(state)

    def files_on(self, state: LakeTableState, branch: str) -> tuple[BranchFile, ...]:
        """Return all data files of a branch."""
        with self._storage_errors("read the manifests"):
            return self._files.on(state, branch)

    def files_in(
        self, state: LakeTableState, partition: tuple[str | None, ...]
    ) -> tuple[PartitionFile, ...]:
        """Return the data files of main that may have rows of a partition."""
        with self._storage_errors("read the manifests"):
            return self._files.in_partition(state, partition)

    def refers_to(
        self, state: LakeTableState, key: str, transaction_ids: Collection[str]
    ) -> frozenset[str]:
        """Return the data files of these exports of a key that any snapshot refers to."""
        with self._storage_errors("read the manifests"):
            return self._references.to(state, key, transaction_ids)

    def metadata_files(self, state: LakeTableState) -> frozenset[str]:
        """Return the metadata files that `state` and its snapshots refer to."""
        with self._storage_errors("read the manifests"):
            return self._references.metadata_files(state)

    def referred_files(
        self, state: LakeTableState, snapshot_ids: Collection[int]
    ) -> dict[str, int]:
        """Return all files, of any writer, that snapshots refer to, with their sizes.

        The size of a manifest list is not known, and counts as 0.
        """
        with self._storage_errors("read the manifests"):
            return self._referred.of(state, snapshot_ids)

    def rows_by_partition(self, state: LakeTableState, at: int) -> dict[Place, int]:
        """Return the rows of the data files of a snapshot, by spec id and partition values."""
        with self._storage_errors("read the manifests"):
            return self._referred.rows(state, at)

    def manifest_sizes(self, state: LakeTableState) -> tuple[int, ...]:
        """Return the sizes of the data manifests of main."""
        with self._storage_errors("read the manifests"):
            return self._referred.manifests(state)

    def references(self, state: LakeTableState) -> dict[str, int]:
        """Return the snapshots of all branches and tags, by name."""
        return {name: r.snapshot_id for name, r in snapshot.table_of(state).metadata.refs.items()}

    def stage(self, state: LakeTableState, commit: Commit, leaves: tuple[str, ...] = ()) -> Staged:
        """Write the manifests of one attempt."""
        with self._staging_errors():
            return snapshot.stage(state, commit, leaves)

    def prune(
        self, state: LakeTableState, at: int, leaves: tuple[str, ...], ledger: str, number: int
    ) -> Staged:
        """Write the manifests of a snapshot with another one's files, except some of them."""
        with self._staging_errors():
            return snapshot.stage_pruned(state, at, leaves, ledger, number)

    def send(
        self, state: LakeTableState, staged: Staged, commit: Commit, remove_marks: tuple[str, ...]
    ) -> Sent:
        """Send the request of an attempt, once."""
        return self._request(state, *snapshot.request(state, staged, commit, remove_marks))

    def evolve(self, state: LakeTableState, change: SchemaChange) -> Sent:
        """Send a schema change, once."""
        return self._request(state, *_schema_request(state, change))

    def tag(self, state: LakeTableState, change: TagChange) -> Sent:
        """Send a change of tags, once."""
        return self._request(state, *tag_request(state, change))

    def snapshots_of(self, state: LakeTableState, ledger: str) -> frozenset[int]:
        """Return the snapshots that a commit of a ledger made."""
        return made_by(state, ledger)

    def expire(self, state: LakeTableState, snapshot_ids: frozenset[int]) -> Sent:
        """Send an expiry of snapshots, once."""
        return self._request(state, *expiry_request(state, snapshot_ids))

    def in_use(self, state: LakeTableState, staged: Staged) -> bool:
        """Whether any snapshot refers to a manifest of the attempt."""
        with self._storage_errors("read the manifests"):
            return is_in_use(state, staged)

    def discard(self, staged: Staged) -> None:
        """Delete the manifests of an abandoned attempt."""
        with self._storage_errors("delete unused manifests"):
            for path in staged.files:
                self._io.delete(path)

    @contextlib.contextmanager
    def _storage_errors(self, what: str) -> Iterator[None]:
        """Raise the storage's errors as `DestinationError`."""
        try:
            yield
        except OSError as error:
            raise unreachable(self.name.catalog, f"{what} of {self.name}", error) from error

    @contextlib.contextmanager
    def _staging_errors(self) -> Iterator[None]:
        """Raise every error of writing manifests as ours, so that the statement can report it.

        PyIceberg reads the owner's properties and all of the table's specs and schemas here.
        """
        try:
            with self._storage_errors("write the manifests"):
                yield
        except TableFormatError:
            raise
        except Exception as error:
            message = (
                f"Cannot write the manifests of {self.name}: PyIceberg failed with "
                f"{type(error).__name__}: {first_line(error).rstrip('. ')}. Nothing of the attempt "
                f"is visible. Please report it with {self.loaded.metadata_location}."
            )
            raise DestinationError(message) from error

    def _request(
        self,
        state: LakeTableState,
        updates: tuple[TableUpdate, ...],
        requirements: tuple[TableRequirement, ...],
    ) -> Sent:
        try:
            self._catalog.commit_table(snapshot.table_of(state), requirements, updates)
        except Exception as error:  # noqa: BLE001  every result but a success is "unknown"
            return Sent(applied=False, error=what_failed(error))
        return Sent(applied=True)


def _schema_request(
    state: LakeTableState, change: SchemaChange
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return the updates and requirements of a schema change: one request, all or nothing.

    The ids of new fields follow the last one of `state`, so it must still be the last one assigned.
    """
    metadata = snapshot.table_of(state).metadata
    number = max(schema.schema_id for schema in metadata.schemas) + 1
    schema = Schema.model_validate_json(change.schema_json).model_copy(update={"schema_id": number})
    updates: list[TableUpdate] = []
    if change.is_of_schema:
        # Without an id it selects the schema that was added last.
        updates += [AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate()]
    properties = _evolved_mapping(metadata, schema) if change.is_of_schema else {}
    properties |= dict(change.properties)
    if properties:
        updates.append(SetPropertiesUpdate(updates=properties))
    return (
        tuple(updates),
        (
            AssertTableUUID(uuid=UUID(state.layout.table_uuid)),
            snapshot.same_schema(state.layout.schema_id),
            AssertLastAssignedFieldId.model_validate(
                {
                    "type": "assert-last-assigned-field-id",
                    "last-assigned-field-id": metadata.last_column_id,
                }
            ),
        ),
    )


def _evolved_mapping(metadata: TableMetadata, schema: Schema) -> dict[str, str]:
    """Return the property with the table's name mapping for a new schema, none without one."""
    mapping = None
    # A mapping that cannot be read is the owner's to mend: no reader uses it.
    with contextlib.suppress(ValueError):
        mapping = metadata.name_mapping()
    if mapping is None:
        return {}
    evolved = evolved_mapping(mapping, metadata.schema(), schema)
    return {TableProperties.DEFAULT_NAME_MAPPING: evolved.model_dump_json()}
