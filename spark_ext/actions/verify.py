"""Compares exported partitions with their source: `mergeberg verify` (docs/operating/verify.md).

A partition is compared with a snapshot of its source. If the source has changed since the export,
it is compared with the digest that `export --verify` kept. Verifying changes neither side. A
partition that cannot be compared is reported as such, and the exit code is not 0.

`DigestsInTasks` reads the lake's files in the tasks of a Spark session, while the source computes
its digests. Exports and archives use it, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Final, Self

from pyspark.sql import SparkSession

from catalog.clickhouse.rows.digests import FileDigests
from catalog.clickhouse.source import ClickHouseSource
from catalog.hive import HiveTable
from catalog.iceberg.table import IcebergTable
from catalog.ledgers.memory import milliseconds
from catalog.processes import Closing, job_may_be_alive, new_job
from catalog.rewriting.integrity import changed_files
from catalog.storages.schemes import Storages
from spark_ext.engine.jobs import DigestJob, running_tasks, sent_storages
from spark_ext.engine.tasks import (
    DigestWork,
    NumberedFile,
    ProgressListener,
    progress_host,
)
from tableformat.clickhouse_codes import UNKNOWN_TABLE
from tableformat.committer import FileInMain
from tableformat.digest import Digest, KeptDigest
from tableformat.errors import (
    Action,
    Advice,
    DestinationError,
    NotFoundError,
    RefusedError,
    SourceError,
    TableFormatError,
    during,
)
from tableformat.export.cleanup import staging_in_use
from tableformat.export.commit import check_table_of_ledger, unsettled_mark
from tableformat.export.content import Content, content_of, how_it_differs, same_parts
from tableformat.export.main_state import Kind, holding
from tableformat.export.options import MOST_PARTITIONS
from tableformat.export.plan import frozen_content, remembered_conversions
from tableformat.export.request import AllPartitions, ById, Selection
from tableformat.export.table_identity import check_same_as, known_as, other_table
from tableformat.export.verification import (
    Comparison,
    LakeDigests,
    Verdict,
    columns_of,
    differences,
    digest_location,
    kept_digest,
    late_rows,
    of_all_exports,
    schema_of_digest,
)
from tableformat.iceberg.read_columns import FilesToDigest
from tableformat.iceberg.schema import map_columns
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Key, Ledger, Record, Row
from tableformat.mergetree.digest_sql import DigestColumn, source_columns
from tableformat.mergetree.table import MergeTreeTable
from tableformat.messages import Command, Option
from tableformat.names import LakeName, PartitionId, TableName
from tableformat.quantities import counted

__all__ = [
    "DigestsInTasks",
    "Sessions",
    "VerifyRequest",
    "Verifying",
]


_SAME_ROWS: Final = "its parts changed since, its rows did not"


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """The tables and partitions to compare; `same_as`: the exported identity, '' for its own.

    `only`: this export alone, with the source if that has the partition, because its rows are to
    leave the source. A digest is kept of equal rows.
    """

    table: TableName
    to: LakeName
    selection: Selection
    conversions: Mapping[str, str]
    same_as: str = ""
    only: Key | None = None

    def of_table(self, table: TableName, tables: int) -> Self:
        """Return the request for one of several `tables`, the shards of a cluster.

        Raises:
            UsageError: `same_as` is given for several shards, each of which has its own identity.
        """
        check_same_as(self.same_as, tables)
        return replace(self, table=table)

    def is_about(self, row: Row) -> bool:
        """Whether a ledger row may be of a source table that is gone, by its name or `same_as`."""
        same_as, name = self.same_as, str(self.table)
        return row.key.source == same_as if same_as else row.source_table == name


@dataclass(frozen=True, slots=True)
class _Subject:
    """A partition whose rows in main can be compared.

    `content` is the partition's content in the source; None if it has no parts there. `change`
    describes how the source has changed since the export; '' if it has not. `rewritten` describes
    how other writers rewrote the files of the export; '' if they did not.
    """

    partition_id: PartitionId
    key: str
    done: Record
    files: tuple[FileInMain, ...]
    kept: KeptDigest | None
    content: Content | None
    change: str
    is_archived: bool
    rewritten: str = ""


@dataclass(frozen=True, slots=True)
class _Frozen:
    """Content and digest of a source partition, taken from one snapshot."""

    content: Content
    digest: Digest


class Verifying:
    """Compares partitions of one table with one lake table."""

    @during(Action.VERIFY)
    def __init__(
        self,
        request: VerifyRequest,
        source: ClickHouseSource,
        lake: IcebergTable | HiveTable,
        ledger: Ledger,
        digests: LakeDigests,
        begin: Callable[[int, int, int], None] = lambda *_: None,
    ) -> None:
        """Load the lake table, the ledger rows of its exports, and the source table.

        Args:
            request: the tables and partitions.
            source: has the source table.
            lake: the lake table.
            ledger: of its exports.
            digests: reads the lake's files.
            begin: called with the number of partitions, rows and bytes that are compared next.

        Raises:
            NotFoundError: the source table does not exist, and the ledger has no export of it.
            RefusedError: the lake table belongs to another ledger, a column cannot be mapped, or no
                export with the identity `same_as` is known.
            TableFormatError: the source, the lake table or the ledger cannot be read.
        """
        self._request = request
        self._source = source
        self._lake = lake
        self._digests, self._begin = digests, begin
        self.content: Content | None = None
        """The content of the partition whose rows were compared last with the source."""
        self._state = lake.load()
        check_table_of_ledger(self._state, ledger)
        self._of_use = staging_in_use(ledger)
        known = [
            row
            for row in ledger.rows()
            if row.key.destination == self._state.layout.table_uuid
            and (row.done is not None or unsettled_mark(row, self._state) is not None)
        ]
        of_name = [row for row in known if request.is_about(row)]
        self._table = self._described(was_exported=bool(of_name))
        if self._table is not None:
            self._table = known_as(self._table, request.same_as, self._state, ledger.rows)
            # It may have been renamed since, and all shards have a table of its name.
            known = [row for row in known if row.key.source == self._table.key_source]
        else:
            known = of_name
        if request.only is not None:
            known = [row for row in known if row.key == request.only]
        self._rows: dict[str, list[Row]] = {}
        for row in sorted(known, key=lambda row: row.key.increment):
            self._rows.setdefault(row.key.partition_id, []).append(row)
        self._columns = self._digest_columns()

    def run(self) -> Iterator[Comparison]:
        """Compare the selected partitions, and yield each result as soon as it is known.

        Raises:
            NotFoundError: neither the source nor the ledger has the partition.
            TableFormatError: the source or the ledger cannot be read.
        """
        with during(Action.VERIFY):
            yield from self._each()

    def _each(self) -> Iterator[Comparison]:
        ids = self._selected()
        for start in range(0, len(ids), MOST_PARTITIONS):
            exports = [
                subject
                for one in ids[start : start + MOST_PARTITIONS]
                for subject in self._exports(one)
            ]
            compared = self._compared([one for one in exports if isinstance(one, _Subject)])
            each = (next(compared) if isinstance(one, _Subject) else one for one in exports)
            for _, of_one in groupby(each, key=lambda one: one.partition_id):
                yield of_all_exports(list(of_one))

    def _described(self, *, was_exported: bool) -> MergeTreeTable | None:
        """Return the source table; None if it was dropped and the ledger has exports of it."""
        try:
            return self._source.describe(self._request.table)
        except NotFoundError:
            if was_exported:
                return None
            raise

    def _digest_columns(self) -> tuple[DigestColumn, ...]:
        if self._table is None:
            return ()
        conversions = remembered_conversions(
            self._request.to, self._table, self._request.conversions, self._state, "in"
        )
        columns = map_columns(self._table, conversions)
        return source_columns([c.source for c in columns.columns], columns.conversions)

    def _selected(self) -> tuple[PartitionId, ...]:
        """Return the selected partitions; --all includes those that the source has no more."""
        selection, table = self._request.selection, self._table
        if isinstance(selection, ById):
            return (self._known(selection.partition_id),)
        if isinstance(selection, AllPartitions):
            there = self._source.partitions(table.name) if table is not None else ()
            ids = [p.partition_id for p in there]
            return (*ids, *sorted({PartitionId(i) for i in self._rows} - {*ids}))
        if table is not None:
            return (self._source.find_partition(table, selection.text),)
        message = (
            f"Cannot find the partition {selection.text} of {self._request.table}: the table no "
            f"longer exists. Name the partition by {Option.PARTITION_ID}, or use {Option.ALL}."
        )
        raise NotFoundError(message, code=UNKNOWN_TABLE)

    def _known(self, one: PartitionId) -> PartitionId:
        """Return the partition id, if the source or the ledger has it.

        Raises:
            NotFoundError: neither has it.
        """
        there = self._source.partitions(self._table.name) if self._table is not None else ()
        if one.value in self._rows or one in [p.partition_id for p in there]:
            return one
        message = (
            f"Cannot verify partition {one} of {self._request.table}: it has no active parts and "
            f"was never exported. List them with {Command.PARTITIONS.on(str(self._request.table))}."
        )
        raise NotFoundError(message, advice=frozenset({Advice.LIST_PARTITIONS}))

    def _exports(self, one: PartitionId) -> Iterator[_Subject | Comparison]:
        """Yield the exports of a partition to compare, or the results without a comparison."""
        rows = self._rows.get(one.value, [])
        if not rows:
            text = f"the ledger knows no export of it into {self._request.to}"
            yield Comparison(one.value, Verdict.NOT_EXPORTED, text)
            return
        parts = self._source.parts(self._table.name, one) if self._table is not None else ()
        content = content_of(self._table, parts) if self._table is not None and parts else None
        for row in rows:
            yield self._subject(one, row, content)
        if self._request.only is not None or self._table is None or content is None:
            return
        detached = partial(self._source.detached_parts, self._table.name, one)
        if why := late_rows(rows, content, detached):
            yield Comparison(one.value, Verdict.AS_EXPORTED, why)

    def _subject(
        self, one: PartitionId, row: Row, content: Content | None
    ) -> _Subject | Comparison:
        """Return the export of a partition to compare, or the result if it cannot be compared."""
        if self._table is not None and (other := other_table(row, self._table)):
            return Comparison(one.value, Verdict.NOT_COMPARABLE, other)
        if row.done is None or unsettled_mark(row, self._state) is not None:
            text = "an export of it landed and is not in the ledger yet. Run the export again"
            return Comparison(one.value, Verdict.NOT_COMPARABLE, text)
        held, landed = holding(row, self._state, row.key.hash, self._lake), row.done.landed
        if not held.holds(landed):
            own, mixed = "Only files of the export can be compared.", "They also have other rows."
            text = f"{held.about(landed)} {mixed if held.has_rows_of(landed) else own}"
            return Comparison(one.value, Verdict.NOT_COMPARABLE, text)
        where = self._state.location, row.key.hash, landed.transaction_id
        lake = self._lake
        try:
            unseen = lake.unseen(landed.transaction_id) if isinstance(lake, HiveTable) else ""
            if unseen:
                return Comparison(one.value, Verdict.DIFFERS, unseen)
            kept = kept_digest(self._digests, *where, (f.path for f in held.files))
        except DestinationError as error:
            return _failed(one, error)
        change = self._change(row.done, content)
        note = held.text if held.kind is Kind.REWRITTEN else ""
        is_archived = row.archived is not None and self._request.only is None
        return _Subject(
            one, row.key.hash, row.done, held.files, kept, content, change, is_archived, note
        )

    def _change(self, done: Record, content: Content | None) -> str:
        """Return how the source has changed since an export; '' if it has not."""
        if self._table is None:
            return "the source table is gone"
        if content is None:
            return "the source partition no longer exists"
        if content.fingerprint == done.landed.fingerprint:
            return ""
        return f"the source changed since: {how_it_differs(done, content)}"

    def _compared(self, subjects: list[_Subject]) -> Iterator[Comparison]:
        """Compare a group of partitions with their kept digests or with a source snapshot."""
        left = [s for s in subjects if s.content is None or s.is_archived]
        by_digest = [s for s in left if s.change and s.kept is not None]
        gone = [s for s in subjects if s.content is None and s.kept is None]
        in_source = [s for s in subjects if s not in by_digest and s not in gone]
        read = [s for s in subjects if s not in gone]
        if read:
            files = [file for subject in read for file in subject.files]
            rows = sum(subject.done.landed.rows for subject in read)
            self._begin(len(subjects), rows, sum(file.bytes for file in files))
            self._digests.read_ahead(filter(None, map(self._known_files, read)))
        frozen = self._frozen(in_source) if in_source else {}
        # An open embedded source locks out every other process; reading lake files needs none.
        self._source.close()
        for subject in subjects:
            if subject.kept is not None and subject in by_digest:
                yield self._with_digest(subject, subject.kept, subject.change)
            elif subject in gone:
                yield self._without_source(subject, subject.change)
            else:
                yield self._with_frozen(subject, frozen[subject.partition_id])

    def _known_files(self, subject: _Subject) -> FilesToDigest | None:
        """Return the files that will be read; None if that depends on the source's digest."""
        if not subject.change or subject.kept is None or self._request.only is not None:
            wanted = self._of_source(subject)
        else:
            try:
                wanted = self._of_digest(subject, subject.kept)
            except TableFormatError:
                # The comparison of the partition reports it.
                return None
        return wanted if wanted.has_columns else None

    def _of_source(self, subject: _Subject) -> FilesToDigest:
        return FilesToDigest(subject.files, table_of(self._state).schema(), self._columns)

    def _of_digest(self, subject: _Subject, kept: KeptDigest) -> FilesToDigest:
        columns = columns_of(kept.digest)
        schema = schema_of_digest(self._state, subject.done.landed, columns)
        return FilesToDigest(subject.files, schema, columns)

    def _frozen(self, subjects: list[_Subject]) -> dict[PartitionId, _Frozen | TableFormatError]:
        """Snapshot partitions of the source, digest them, and release the snapshot."""
        table = self._table
        if table is None:
            return {}
        self._source.sweep_leftovers(job_may_be_alive, self._of_use)
        snapshot = self._source.snapshot(
            table,
            tuple(dict.fromkeys(s.partition_id for s in subjects)),
            job=new_job(),
            probes=(),
            digest=self._columns,
        )
        self._source.release(snapshot)
        found: dict[PartitionId, _Frozen | TableFormatError] = dict(snapshot.refused)
        for one in snapshot.partitions:
            found[one.partition_id] = (
                self._no_digest(one.partition_id)
                if one.digest is None
                else _Frozen(frozen_content(table, one), one.digest)
            )
        return found

    def _no_digest(self, one: PartitionId) -> SourceError:
        return SourceError(
            f"Cannot verify partition {one} of {self._request.table}: it holds a value that cannot "
            f"be exported, so that it has no digest. {Command.EXPORT} names the column."
        )

    def _with_frozen(self, subject: _Subject, found: _Frozen | TableFormatError) -> Comparison:
        """Compare with a source snapshot, newer than the list of parts; columns may be renamed."""
        if isinstance(found, TableFormatError):
            if subject.kept is None or self._request.only is not None:
                return _failed(subject.partition_id, found)
            why = found.during(Action.VERIFY).message
            return self._with_digest(subject, subject.kept, why, equal=Verdict.AS_EXPORTED)
        change = self._change(subject.done, found.content)
        now = replace(subject, content=found.content, change=change)
        if not change or subject.kept is None or self._request.only is not None:
            return self._with_source(now, found.digest, found.content)
        kept = subject.kept
        if not kept.digest.differences(found.digest):
            return self._with_digest(now, kept, _SAME_ROWS)
        if kept.digest.rows == found.digest.rows:
            compared = self._with_source(now, found.digest, found.content)
            if compared.verdict is Verdict.EQUAL:
                return compared
        return self._with_digest(now, kept, change, equal=Verdict.AS_EXPORTED)

    def _with_source(self, subject: _Subject, digest: Digest, content: Content) -> Comparison:
        """Compare with the digest of the current source rows."""
        found = self._read(self._of_source(subject), subject, digest, "source")
        if found.verdict is Verdict.DIFFERS and subject.change:
            if not same_parts(subject.done, content):
                return self._without_source(subject, subject.change)
            return replace(found, message=subject.change)
        if found.verdict is not Verdict.EQUAL:
            return found
        self.content = content
        if self._request.only is not None and subject.kept is None:
            self._keep(subject, digest)
        return replace(found, message=_SAME_ROWS) if subject.change else found

    def _keep(self, subject: _Subject, digest: Digest) -> None:
        """Store the digest of rows that leave the source, as an export with a digest does."""
        of, one = subject.done.landed.transaction_id, subject.partition_id.value
        kept = KeptDigest(str(self._request.table), one, of, milliseconds(), digest)
        self._digests.keep(digest_location(self._state.location, subject.key, of), kept)

    def _with_digest(
        self, subject: _Subject, kept: KeptDigest, why: str, *, equal: Verdict = Verdict.EQUAL
    ) -> Comparison:
        """Compare with the digest that the export kept; say why. `equal`: of equal rows."""
        found = self._read(self._of_digest(subject, kept), subject, kept.digest, "digest")
        message = f"{why.rstrip('.;')}; compared with the digest of {kept.time}"
        verdict = equal if found.verdict is Verdict.EQUAL else found.verdict
        is_read = verdict is not Verdict.FAILED
        return replace(found, verdict=verdict, message=message) if is_read else found

    def _without_source(self, subject: _Subject, why: str) -> Comparison:
        """Check only the bytes of the files: neither source nor digest is left to compare with."""
        landed = subject.done.landed
        if subject.rewritten:
            text = f"{why}, and the export kept no digest; {subject.rewritten}"
            return Comparison(subject.partition_id.value, Verdict.NOT_COMPARABLE, text)
        try:
            changed = changed_files(
                self._lake.storages,
                self._state.location,
                subject.key,
                landed.transaction_id,
                [file.path for file in subject.files],
            )
        except TableFormatError as error:
            return _failed(subject.partition_id, error)
        base = Comparison(
            subject.partition_id.value, Verdict.NOT_COMPARABLE, rows=landed.rows,
            data_files=len(subject.files), code=None,
        )  # fmt: skip
        if changed:
            text = f"{why}, and {counted(len(changed), 'file')} not as written: {changed[0]}"
            return replace(base, verdict=Verdict.DIFFERS, message=text)
        text = (
            f"{why}, and the export kept no digest, so that its rows cannot be compared any more. "
            f"Its files are, byte for byte, those that it wrote; an export with "
            f"{Option.VERIFY} keeps a digest"
        )
        return replace(base, message=text)

    def _read(
        self, wanted: FilesToDigest, subject: _Subject, expected: Digest, against: str
    ) -> Comparison:
        """Read the lake files, and compare their digest with the expected one."""
        try:
            found = differences(self._digests, wanted, expected)
        except TableFormatError as error:
            return _failed(subject.partition_id, error)
        return Comparison(
            subject.partition_id.value,
            Verdict.DIFFERS if found else Verdict.EQUAL,
            compared_with=against,
            rows=expected.rows,
            data_files=len(wanted.files),
            columns=len(wanted.columns),
            seconds=round(self._digests.seconds, 3),
            differences=found,
        )


def _failed(one: PartitionId, error: TableFormatError) -> Comparison:
    error.during(Action.VERIFY)
    refused = isinstance(error, RefusedError)
    verdict = Verdict.NOT_COMPARABLE if refused else Verdict.FAILED
    return Comparison(one.value, verdict, error.message, code=error.code)


_WHAT: Final = "Cannot verify the lake's files"
_THEN: Final = "Nothing was changed. Run it again."
_FILE_COST_BYTES: Final = 1024 * 1024
"""The fixed cost of one more file, in bytes to read."""

Sessions = Callable[[Sequence[FileInMain]], SparkSession | None]
"""Returns the session in whose tasks to digest files; None to digest them in this process."""


class DigestsInTasks(Closing):
    """Digests the lake's files in Spark's tasks, or in this process where that is faster.

    It implements `tableformat.export.verification.LakeDigests`. Each task reads its files as this
    process would, with both readers; the digests of files add up.
    """

    def __init__(
        self,
        storages: Storages,
        sessions: Sessions,
        on_rows: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Prepare to digest; nothing is started yet.

        Args:
            storages: open the storage of a location.
            sessions: chooses where files are digested.
            on_rows: called with the number of rows digested since the last call.
        """
        self._storages, self._sessions, self._on_rows = storages, sessions, on_rows
        self._here = FileDigests(storages, on_rows=on_rows)
        self._jobs: list[DigestJob] = []
        self.seconds = 0.0

    def close(self) -> None:
        """Cancel jobs, and end the ClickHouse of this process. Closing again does nothing."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job.close()
        self._here.close()

    def read_ahead(self, wanted: Iterable[FilesToDigest]) -> None:
        """Begin a job for files of several partitions, if tasks are faster for all of them."""
        self._jobs = [job for job in self._jobs if not job.has_ended]
        # Each comparison reports the error of its own files.
        with contextlib.suppress(TableFormatError):
            job = self._begun(tuple(wanted))
            if job is not None:
                job.report_meanwhile()

    def digest(self, wanted: FilesToDigest) -> Digest:
        """Return the digest of all rows of data files.

        Raises:
            UnsupportedError: the storage of a file is not supported.
            DestinationError: a file cannot be read, or its two readers disagree.
            SourceError: Spark could not run the tasks, or a task failed.
            StoppedError: the job was cancelled from outside.
        """
        job = next((job for job in self._jobs if wanted in job.wanted), None)
        job = job or self._begun((wanted,))
        if job is None:
            digest = self._here.digest(wanted)
            self.seconds = self._here.seconds
            return digest
        digest, self.seconds = job.digest(wanted)
        return digest

    def keep(self, location: str, kept: KeptDigest) -> None:
        """Store a digest.

        Raises:
            DestinationError: it cannot be stored.
        """
        self._here.keep(location, kept)

    def kept(self, location: str) -> KeptDigest | None:
        """Return the digest that is stored there, None if there is none.

        Raises:
            DestinationError: it cannot be read.
        """
        return self._here.kept(location)

    def _begun(self, wanted: tuple[FilesToDigest, ...]) -> DigestJob | None:
        """Begin a job; return None if this process should read the files.

        Raises:
            UsageError: a storage is not supported or not configured.
        """
        files = tuple((of, file) for of, one in enumerate(wanted) for file in one.files)
        spark = self._sessions([file for _, file in files]) if files else None
        if spark is None:
            return None
        items = [NumberedFile(of, number, file) for number, (of, file) in enumerate(files)]
        sent = sent_storages(spark, self._storages, [file.path for _, file in files])
        listener = ProgressListener(progress_host(spark))
        work = DigestWork(sent, tuple((w.schema, w.columns) for w in wanted), listener.address)
        running = running_tasks(spark, _WHAT, items, _cost, work, _THEN)
        slots = spark.sparkContext.defaultParallelism
        job = DigestJob(wanted, slots, running, listener, self._on_rows)
        self._jobs.append(job)
        job.watch()
        return job


def _cost(one: NumberedFile) -> int:
    return one.file.bytes + _FILE_COST_BYTES
