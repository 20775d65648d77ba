"""Compares the rows in main with a digest of the source snapshot (docs/spec/digest.md).

`export --verify` compares right after its commit, `mergeberg verify` at any later time. The digest
is stored with the receipts of its transaction, so that it is still there after the source partition
was dropped.

`Comparison` is the result for one partition.

`EqualRows` compares before an export. Parts can differ while their rows are the same: after a merge
that keeps no block numbers, a mutation that changes nothing, or a column that is modified and
modified back. Then the ledger notes the new parts, and no file is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from typing import Final, Protocol

from pyiceberg.schema import Schema

from tableformat.committer import Committed, LakeTableState
from tableformat.digest import Difference, Digest, KeptDigest
from tableformat.effects import Step
from tableformat.errors import LedgerError, TableFormatError
from tableformat.export.archived import is_attached
from tableformat.export.commit import Ports
from tableformat.export.content import Content
from tableformat.export.decision import Skip, may_be_equal
from tableformat.export.main_state import Holding
from tableformat.export.outcome import DIFFERS, FAILED, REFUSED, Outcome, Status, worst
from tableformat.file_names import RECEIPTS, table_locations
from tableformat.iceberg.read_columns import FilesToDigest, lacked_fields, unlike_fields
from tableformat.iceberg.schema_evolution import has_moved_names, named_as
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import DetachedPart, Landed, Record, Row, Stale
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.types import parse_type
from tableformat.messages import Command
from tableformat.quantities import counted
from tableformat.source import FrozenPartition

__all__ = [
    "Changed",
    "Comparison",
    "EqualRows",
    "LakeDigests",
    "Verdict",
    "Verification",
    "columns_of",
    "differences",
    "differences_text",
    "digest_location",
    "exit_code",
    "kept_digest",
    "late_rows",
    "of_all_exports",
    "schema_of_digest",
    "with_parts",
]


class Verdict(StrEnum):
    """The result of a comparison."""

    EQUAL = "equal"
    AS_EXPORTED = "as_exported"
    """Main has the rows that were exported, and the source has others now, or may have."""
    DIFFERS = "differs"
    NOT_COMPARABLE = "not_comparable"
    NOT_EXPORTED = "not_exported"
    FAILED = "failed"

    @property
    def exit_code(self) -> int:
        """0 for equal, 1 for differs, 4 if a side cannot be read, 3 for every other verdict."""
        return {"equal": 0, "differs": DIFFERS, "failed": FAILED}.get(self.value, REFUSED)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one partition.

    `compared_with` is `source`, or `digest` for the digest that the export kept, or '' if nothing
    was compared. `seconds` is the time that reading the lake took, divided by the number of tasks
    if files of several partitions are read at the same time.
    """

    partition_id: str
    verdict: Verdict
    message: str = ""
    compared_with: str = ""
    rows: int = 0
    data_files: int = 0
    columns: int = 0
    seconds: float = 0.0
    differences: tuple[Difference, ...] = ()
    code: int | None = None

    @property
    def rows_per_second(self) -> int:
        """Rows read from the lake per second."""
        return int(self.rows / self.seconds) if self.seconds else 0


def exit_code(comparisons: Iterable[Comparison], *, named: bool) -> int:
    """Return the first of 1, 4, 3 that any partition has, else 0.

    Args:
        comparisons: the comparisons of all partitions.
        named: whether the user named the partition. Without a name, partitions that were never
            exported are ignored, unless none was exported: then nothing was compared.
    """
    codes = {one.verdict: one.verdict.exit_code for one in comparisons}
    if not named and len(codes) > 1:
        codes.pop(Verdict.NOT_EXPORTED, None)
    return worst(codes.values())


def of_all_exports(compared: list[Comparison]) -> Comparison:
    """Return the comparison of a partition from those of its exports: it is the worst of them.

    It is compared with the source if one of them is: late rows are, the archived ones are not.
    """
    if len(compared) == 1:
        return compared[0]
    code = exit_code(compared, named=True)
    return replace(
        next(one for one in compared if one.verdict.exit_code == code),
        message="; ".join(one.message.rstrip(".") for one in compared if one.message),
        compared_with=max(one.compared_with for one in compared),
        rows=sum(one.rows for one in compared),
        data_files=sum(one.data_files for one in compared),
        columns=max(one.columns for one in compared),
        seconds=round(sum(one.seconds for one in compared), 3),
        differences=tuple(found for one in compared for found in one.differences),
    )


def late_rows(
    rows: Sequence[Row],
    content: Content,
    detached: Callable[[], frozenset[DetachedPart] | None],
) -> str:
    """Return that the source has rows which arrived after a partition was archived, '' if not.

    Args:
        rows: the rows of the partition's exports, in the order of their increments.
        content: the content of the source partition.
        detached: as in `may_be_back`.

    Raises:
        SourceError: from `detached`.
    """
    if any(row.archived is None for row in rows):
        # The source is compared with the export that is not archived.
        return ""
    seen = cache(detached)
    if any(is_attached(row, content, seen) for row in rows):
        return ""
    return (
        f"the source has {counted(content.rows, 'row')} in {counted(len(content.parts), 'part')} "
        "of it since it was archived, and no export has these parts"
    )


_NAME: Final = "digest.json"
_SHOWN: Final = 3


class LakeDigests(Protocol):
    """Computes digests of a lake table's data files, and stores digests of source snapshots.

    `seconds` is the time that the last `digest` took.
    """

    seconds: float

    def read_ahead(self, wanted: Iterable[FilesToDigest]) -> None:
        """Begin to digest files of several partitions, where that is faster than one by one.

        `digest` returns the results. It need not be called for all of them.
        """
        ...

    def digest(self, wanted: FilesToDigest) -> Digest:
        """Return the digest of all rows of data files.

        Raises:
            UnsupportedError: no reader can open the location of a file.
            DestinationError: a file cannot be read, or two readers disagree on its rows.
        """
        ...

    def keep(self, location: str, kept: KeptDigest) -> None:
        """Store a digest.

        Raises:
            DestinationError: it cannot be stored.
        """
        ...

    def kept(self, location: str) -> KeptDigest | None:
        """Return the digest that is stored at a location, None if there is none.

        Raises:
            DestinationError: it cannot be read.
        """
        ...

    def close(self) -> None:
        """Release the readers of files."""
        ...


def digest_location(table_location: str, key: str, transaction_id: str) -> str:
    """Return the location of the digest of an export: the directory of its receipts."""
    return f"{table_location.rstrip('/')}/{RECEIPTS}/{key}/{transaction_id}/{_NAME}"


def kept_digest(
    digests: LakeDigests,
    table_location: str,
    key: str,
    transaction_id: str,
    paths: Iterable[str],
) -> KeptDigest | None:
    """Return the digest that an export kept, None if there is none.

    It is looked for below the table's location, and below that at which its files were written.

    Raises:
        DestinationError: it cannot be read.
    """
    for location in table_locations(table_location, paths):
        kept = digests.kept(digest_location(location, key, transaction_id))
        if kept is not None:
            return kept
    return None


def columns_of(digest: Digest) -> tuple[DigestColumn, ...]:
    """Return the columns of a stored digest, with which files can be digested in the same way.

    Raises:
        UsageError: a type in the digest cannot be parsed.
    """
    return tuple(DigestColumn(c.name, "", parse_type(c.type), c.type) for c in digest.columns)


def differences(
    files: LakeDigests, wanted: FilesToDigest, expected: Digest
) -> tuple[Difference, ...]:
    """Return the differences between data files and an expected digest, none if they are equal.

    Args:
        files: reads the files.
        wanted: all data files of the partition in main, with the columns of `expected`. A column
            that the lake table lacks is a difference, unless all values of the column were NULL,
            and so is one that it has with a type of which no exported value is.
        expected: the digest of the source.

    Raises:
        TableFormatError: a file cannot be read.
    """
    null = {c.name for c in expected.columns if c.nulls == expected.rows and not c.checksum}
    lacked = lacked_fields([c for c in wanted.columns if c.name not in null], wanted.schema)
    unlike = [f for found in unlike_fields(wanted.columns, wanted.schema).values() for f in found]
    gone = frozenset(lacked) | {f.path.partition(".")[0] for f in unlike}
    there = tuple(c for c in wanted.columns if c.name not in gone)
    names = sorted(name for found in lacked.values() for name in found)
    missing = tuple(Difference(name, "it", "is", "is not") for name in names)
    missing += tuple(Difference(f.path, "it is", f.wire, f.of) for f in unlike)
    if not there:
        return missing
    found = files.digest(replace(wanted, columns=there))
    # The hash of a row covers all columns: without one it cannot be compared.
    reference = expected.without(gone, checksum=found.checksum) if gone else expected
    return (*missing, *reference.differences(found))


def schema_of_digest(
    state: LakeTableState, landed: Landed, columns: Sequence[DigestColumn]
) -> Schema:
    """Return the schema of a lake table with the column names of a stored digest.

    Fields may have been renamed since. A column that was dropped since, or dropped and added again,
    is not included: its exported values can no longer be read.

    Args:
        state: the state of the table.
        landed: the export that stored the digest.
        columns: the columns of the digest.
    """
    metadata = table_of(state).metadata
    schemas = {s.schema_id: s for s in metadata.schemas}
    of_export = metadata.snapshot_by_id(landed.snapshot_id)
    now = table_of(state).schema()
    number = of_export.schema_id if of_export is not None else None
    then = schemas.get(number) if number is not None else None
    # The export's snapshot may be expired, or a statement copied the digest after a rename.
    candidates = (then, now, *(schemas[i] for i in sorted(schemas, reverse=True)))
    for schema in candidates:
        if schema is not None and not lacked_fields(columns, schema):
            return named_as(now, schema)
    return now


@dataclass(frozen=True, slots=True)
class Verification:
    """Stores and compares the digest of each partition (`export --verify`); off without `digests`.

    `location` is the lake table's; `columns` are the digested columns.
    """

    ports: Ports
    digests: LakeDigests | None
    location: str
    columns: tuple[DigestColumn, ...]

    def keep(self, row: Row, frozen: FrozenPartition) -> None:
        """Store the digest before the commit, so that it exists even if the process then dies.

        Raises:
            DestinationError: the digest cannot be stored.
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
        """Compare main with the source snapshot after a commit, and return the outcome.

        The export is in main in any case, so a TableFormatError becomes the outcome `unverified`.
        """
        digests, digest = self.digests, frozen.digest
        if digests is None or not landed.in_main:
            return made
        if digest is None or landed.epoch != row.claim.epoch:
            text = (
                "it is in main, and ClickHouse could not digest its source"
                if digest is None
                else f"an earlier run's files are in main; compare them with {Command.VERIFY}"
            )
            return replace(made, status=Status.UNVERIFIED, message=text)
        check = partial(self._check, digests, digest, row)
        status, text = self.ports.effects(Step.VERIFY, check)
        if status is Status.COMMITTED:
            return replace(made, verified=True)
        return replace(made, status=status, message=text)

    def _check(self, digests: LakeDigests, expected: Digest, row: Row) -> tuple[Status, str]:
        """Return the status of a committed export after the comparison, with its message."""
        lake = self.ports.table
        try:
            state = lake.load()
            # All files of the key: those of another export would hold its rows twice.
            files = lake.files_of(state, row.key.hash)
            wanted = FilesToDigest(files, table_of(state).schema(), self.columns)
            found = differences(digests, wanted, expected)
        except TableFormatError as error:
            return Status.UNVERIFIED, f"it is in main, and could not be verified: {error}"
        if found:
            return (
                Status.DIFFERS,
                f"it is in main, but differs from the source snapshot: {differences_text(found)}",
            )
        return Status.COMMITTED, ""


def differences_text(found: Sequence[Difference]) -> str:
    """Return the first differences in one sentence."""
    some = "; ".join(str(d) for d in found[:_SHOWN])
    return some + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


@dataclass(frozen=True, slots=True)
class Changed:
    """A partition in the source snapshot whose parts differ from the exported parts.

    `held` was computed from `state`. `content` and `digest` are those of the snapshot; `digest` is
    None if none was computed.
    """

    row: Row
    held: Holding
    state: LakeTableState
    content: Content
    digest: Digest | None


@dataclass(frozen=True, slots=True)
class EqualRows:
    """Compares the rows of changed partitions with their exported rows; off without `digests`.

    `location` is the lake table's; `columns` are the digested columns. `note` is called with the
    partitions that could not be compared.
    """

    ports: Ports
    digests: LakeDigests | None
    location: str
    columns: tuple[DigestColumn, ...]
    note: Callable[[str], None]

    def outcome(self, one: Changed, *, reads_files: bool) -> Skip | None:
        """Return the outcome of equal rows, after noting the new parts; None if they may differ.

        If another process changed the row meanwhile, the state of main is unknown.

        Args:
            one: the partition.
            reads_files: whether to read the data files in main if no digest was stored.

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
        after = with_parts(row, row.done, one.content, self.ports.clock())
        written = self.ports.effects(Step.SETTLE, partial(self.ports.ledger.write, after))
        if isinstance(written, Stale):
            # Main may hold other rows by now, or none.
            text = (
                "another run changed the ledger row of this partition while its rows were compared"
            )
            return Skip(Status.IN_PROGRESS, text)
        landed = row.done.landed
        there = f"{counted(landed.rows, 'row')} in the lake, snapshot {landed.snapshot_id}"
        text = f"its parts changed, its rows are the same; {there}."
        refuses = row.done.refuses(self.ports.clock())
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
        """Whether the exported rows equal those of the snapshot; false if it is not known."""
        key = one.row.key
        export = key.hash, done.landed.transaction_id
        try:
            paths = (f.path for f in one.held.files)
            kept = kept_digest(digests, self.location, *export, paths)
            table = table_of(one.state)
            schema = table.schema()
            if kept is not None and kept.digest.differences(digest):
                return False
            # After renames its column names may belong to columns that the files do not have.
            if kept is not None and _has_names_of_export(one, done, self.columns):
                return True
            if not reads_files:
                return False
            if more := sorted({f.name for f in schema.fields} - {c.name for c in self.columns}):
                self._note(key.partition_id, f"only the lake table has {', '.join(more)}")
                return False
            wanted = FilesToDigest(one.held.files, schema, self.columns)
            return not differences(digests, wanted, digest)
        except LedgerError:
            raise
        except TableFormatError as error:
            self._note(key.partition_id, error.message)
            return False

    def _note(self, partition_id: str, why: str) -> None:
        self.note(
            f"partition {partition_id}: its rows could not be compared with those exported: {why}"
        )


def _has_names_of_export(one: Changed, done: Record, columns: Sequence[DigestColumn]) -> bool:
    """Whether each column of the lake table has the name that it had at the export, provably.

    The schemas of the export and of the statements that rewrote its files since show it. Their
    owner may have removed them, with the snapshots that refer to them: then nothing is known.
    """
    table = table_of(one.state)
    schemas = {s.schema_id: s for s in table.metadata.schemas}
    landed = [x for x in one.row.landed if x.epoch <= done.landed.epoch]
    export = max((x.epoch for x in landed if not x.statement), default=None)
    if export is None or lacked_fields(columns, table.schema()):
        return False
    for x in landed:
        snapshot = table.metadata.snapshot_by_id(x.snapshot_id)
        number = snapshot.schema_id if snapshot is not None else None
        if x.epoch >= export and (number is None or number not in schemas):
            return False
    return not has_moved_names(table.schema(), schemas.values())


def with_parts(row: Row, before: Record, content: Content, now: int) -> Row:
    """Return a row whose last export is that of other parts, which have the same rows.

    Args:
        row: the row of the key.
        before: its record.
        content: the content of the source partition now.
        now: milliseconds since 1970.
    """
    landed = replace(before.landed, fingerprint=content.fingerprint)
    done = replace(before, landed=landed, parts=content.parts, columns=content.columns)
    each = (
        landed if x.transaction_id == landed.transaction_id and not x.statement else x
        for x in row.landed
    )
    return replace(row, done=done, landed=tuple(each), updated=now)
