"""Whether what is in main is what was frozen: the contract, and what both front doors share.

`export --verify` asks right after its commit, `mergeberg verify` at any time later. A kept digest
stands beside the receipts of its transaction (docs/spec/digest.md), so that the proof outlives the
source's partition.

`EqualRows` asks before an export: after a merge that keeps no block numbers, a mutation that
changes nothing or a column that is modified there and back, parts differ and their rows do not.
Then the ledger notes the new parts, and nothing is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from pyiceberg.schema import Schema

from tableformat.committer import Committed, LakeTableState
from tableformat.digest import Difference, Digest, KeptDigest
from tableformat.effects import Step
from tableformat.errors import LedgerError, TableFormatError
from tableformat.export.commit import Ports
from tableformat.export.content import Content
from tableformat.export.decision import Skip, may_be_equal
from tableformat.export.main_state import Holding
from tableformat.export.outcome import Outcome, Status
from tableformat.file_names import RECEIPTS
from tableformat.iceberg.read_columns import lacked_fields
from tableformat.iceberg.schema_evolution import has_moved_names, named_as
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Landed, Record, Row
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.type_text import parse_type
from tableformat.quantities import counted
from tableformat.source import FrozenPartition

__all__ = [
    "Changed",
    "EqualRows",
    "LakeDigests",
    "Verification",
    "columns_of",
    "differences",
    "differences_text",
    "digest_location",
    "schema_of_digest",
]

_NAME: Final = "digest.json"
_TOLD: Final = 3


class LakeDigests(Protocol):
    """Digests the data files of a lake table, and keeps digests of what was frozen."""

    def digest(
        self, locations: Sequence[str], schema: Schema, columns: Sequence[DigestColumn]
    ) -> Digest:
        """Return the digest of all rows of data files.

        Raises:
            UnsupportedError: a file is where it cannot be read from.
            DestinationError: a file cannot be read, or two readers do not agree on it.
        """
        ...

    def keep(self, location: str, kept: KeptDigest) -> None:
        """Store a digest.

        Raises:
            DestinationError: it cannot be stored.
        """
        ...

    def kept(self, location: str) -> KeptDigest | None:
        """Return the digest that was stored there, None when there is none.

        Raises:
            DestinationError: it cannot be read.
        """
        ...

    def close(self) -> None:
        """Let go of what reads files."""
        ...


def digest_location(table_location: str, key: str, transaction_id: str) -> str:
    """Return where the digest of an export is kept: beside its receipts."""
    return f"{table_location.rstrip('/')}/{RECEIPTS}/{key}/{transaction_id}/{_NAME}"


def columns_of(digest: Digest) -> tuple[DigestColumn, ...]:
    """Return the columns of a kept digest, to digest files as it was made.

    Raises:
        UsageError: a type cannot be read.
    """
    return tuple(DigestColumn(c.name, "", parse_type(c.type), c.type) for c in digest.columns)


def differences(
    files: LakeDigests, locations: Sequence[str], schema: Schema, expected: Digest,
    columns: Sequence[DigestColumn],
) -> tuple[Difference, ...]:  # fmt: skip
    """Return in what the data files differ from what was expected, nothing when they are equal.

    Args:
        files: reads them.
        locations: of all data files of the partition in main.
        schema: of the lake table; what it lacks of a column is a difference, unless that is NULL.
        expected: of the source.
        columns: those of `expected`.

    Raises:
        TableFormatError: a file cannot be read.
    """
    null = {c.name for c in expected.columns if c.nulls == expected.rows and not c.checksum}
    lacked = lacked_fields([c for c in columns if c.name not in null], schema)
    gone = frozenset(lacked)
    there = [c for c in columns if c.name not in gone]
    names = sorted(name for found in lacked.values() for name in found)
    missing = tuple(Difference(name, "it", "is", "is not") for name in names)
    if not there:
        return missing
    found = files.digest(locations, schema, there)
    # Without one of its columns a row has another hash, which says nothing.
    reference = expected.without(gone, checksum=found.checksum) if gone else expected
    return (*missing, *reference.differences(found))


def schema_of_digest(
    state: LakeTableState, landed: Landed, columns: Sequence[DigestColumn]
) -> Schema:
    """Return the schema of a lake table with the names that a kept digest has.

    Fields may have been renamed since. A column that was dropped since, or dropped and added again,
    is not there: no value of it that was exported can be read any more.

    Args:
        state: of the table.
        landed: the export that kept it.
        columns: of the digest.
    """
    metadata = table_of(state).metadata
    schemas = {s.schema_id: s for s in metadata.schemas}
    of_export = metadata.snapshot_by_id(landed.snapshot_id)
    now = table_of(state).schema()
    number = of_export.schema_id if of_export is not None else None
    then = schemas.get(number) if number is not None else None
    # Its snapshot was expired, or a statement carried the digest on after a column was renamed.
    candidates = (then, now, *(schemas[i] for i in sorted(schemas, reverse=True)))
    for schema in candidates:
        if schema is not None and not lacked_fields(columns, schema):
            return named_as(now, schema)
    return now


@dataclass(frozen=True, slots=True)
class Verification:
    """What `export --verify` does about each partition; without `digests`, nothing.

    `location` is the lake table's, `columns` are the digested ones.
    """

    ports: Ports
    digests: LakeDigests | None
    location: str
    columns: tuple[DigestColumn, ...]

    def keep(self, row: Row, frozen: FrozenPartition) -> None:
        """Keep the digest before the commit: a process that dies after it leaves the proof.

        Raises:
            DestinationError: it cannot be stored.
        """
        digests, digest = self.digests, frozen.digest
        if digests is None or digest is None:
            return
        location = digest_location(self.location, row.key.hash, row.claim.transaction_id)
        taken = (
            row.source_table,
            row.key.partition_id,
            row.claim.transaction_id,
            self.ports.clock(),
        )
        kept = KeptDigest(*taken, digest)
        self.ports.effects(Step.KEEP_DIGEST, lambda: digests.keep(location, kept))

    def verified(
        self, made: Outcome, row: Row, frozen: FrozenPartition, landed: Committed
    ) -> Outcome:
        """Return the outcome of a commit after main was compared with what was frozen.

        Whatever stands in the way, the export is in main: no error leaves.
        """
        digests, digest = self.digests, frozen.digest
        if digests is None or not landed.in_main:
            return made
        if digest is None or landed.epoch != row.claim.epoch:
            text = (
                "it is in main, and ClickHouse could not digest its source"
                if digest is None
                else "an earlier run's files are in main; compare them with `mergeberg verify`"
            )
            return replace(made, status=Status.UNVERIFIED, message=text)
        check = partial(self._check, digests, digest, row)
        status, text = self.ports.effects(Step.VERIFY, check)
        if status is Status.COMMITTED:
            return replace(made, verified=True)
        return replace(made, status=status, message=text)

    def _check(self, digests: LakeDigests, expected: Digest, row: Row) -> tuple[Status, str]:
        """Return what the comparison makes of a committed export, and how that is said."""
        lake = self.ports.table
        try:
            state = lake.load()
            # All of the key: files of another export of it would be its rows twice.
            files = [f.path for f in lake.files_of(state, row.key.hash)]
            schema = table_of(state).schema()
            found = differences(digests, files, schema, expected, self.columns)
        except TableFormatError as error:
            return Status.UNVERIFIED, f"it is in main, and could not be verified: {error}"
        if found:
            return (
                Status.DIFFERS,
                f"it is in main, and is not what was frozen: {differences_text(found)}",
            )
        return Status.COMMITTED, ""


def differences_text(found: Sequence[Difference]) -> str:
    """Return the first differences in one sentence."""
    some = "; ".join(str(d) for d in found[:_TOLD])
    return some + (f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else "")


@dataclass(frozen=True, slots=True)
class Changed:
    """A snapshotted partition whose parts are not those exported.

    `held` was told from `state`; `content` and `digest` are those of the snapshot, the digest None
    where there is none.
    """

    row: Row
    held: Holding
    state: LakeTableState
    content: Content
    digest: Digest | None


@dataclass(frozen=True, slots=True)
class EqualRows:
    """Compares changed partitions with what was exported of them; without `digests`, nothing.

    `location` is the lake table's, `columns` are the digested ones; `note` hears what could not be
    compared.
    """

    ports: Ports
    digests: LakeDigests | None
    location: str
    columns: tuple[DigestColumn, ...]
    note: Callable[[str], None]

    def outcome(self, one: Changed, *, reads_files: bool) -> Skip | None:
        """Return that nothing changed, with the new parts noted; None where that is not known.

        Args:
            one: the partition.
            reads_files: whether the data files in main are read where no digest was kept.

        Raises:
            LedgerError: the ledger cannot be written.
        """
        digests, digest, row = self.digests, one.digest, one.row
        if digests is None or digest is None or row.done is None:
            return None
        if not may_be_equal(row, one.held, digest.rows):
            return None
        compare = partial(self._is_equal, digests, one, row.done, digest, reads_files=reads_files)
        if not self.ports.effects(Step.VERIFY, compare):
            return None
        done = _with_parts(row.done, one.content)
        after = replace(
            row,
            done=done,
            landed=tuple(
                done.landed
                if x.transaction_id == done.landed.transaction_id and not x.statement
                else x
                for x in row.landed
            ),
            updated=self.ports.clock(),
        )
        # Where another process has moved the row on, the next run compares the parts again.
        self.ports.effects(Step.SETTLE, partial(self.ports.ledger.write, after))
        there = (
            f"{counted(done.landed.rows, 'row')} in the lake, snapshot {done.landed.snapshot_id}"
        )
        text = f"its parts changed, its rows are the same; {there}."
        refuses = done.refuses(self.ports.clock())
        return Skip(Status.ALREADY_EXPORTED if refuses else Status.UNCHANGED, text)

    def _is_equal(
        self,
        digests: LakeDigests,
        one: Changed,
        done: Record,
        digest: Digest,
        *,
        reads_files: bool,
    ) -> bool:
        """Whether what was exported is what was snapshotted; what cannot be compared is not."""
        key = one.row.key
        where = digest_location(self.location, key.hash, done.landed.transaction_id)
        try:
            kept = digests.kept(where)
            table = table_of(one.state)
            schema = table.schema()
            if kept is not None and kept.digest.differences(digest):
                return False
            # Else its names may be those of other columns by now, which the files do not have.
            if kept is not None and not has_moved_names(schema, table.metadata.schemas):
                return True
            if not reads_files:
                return False
            if more := sorted({f.name for f in schema.fields} - {c.name for c in self.columns}):
                self._note(key.partition_id, f"only the lake table has {', '.join(more)}")
                return False
            files = [file.path for file in one.held.files]
            return not differences(digests, files, schema, digest, self.columns)
        except LedgerError:
            raise
        except TableFormatError as error:
            self._note(key.partition_id, str(error))
            return False

    def _note(self, partition_id: str, why: str) -> None:
        self.note(
            f"partition {partition_id}: its rows could not be compared with those exported: {why}"
        )


def _with_parts(done: Record, content: Content) -> Record:
    """Return the record of an export whose rows lie in other parts now."""
    landed = replace(done.landed, fingerprint=content.fingerprint)
    return replace(done, landed=landed, parts=content.parts, columns=content.columns)
