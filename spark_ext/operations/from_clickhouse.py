"""ATTACH and REPLACE PARTITION … FROM a ClickHouse table: runs an export with that effect.

First it describes the tables behind FROM and checks ClickHouse's conditions between each table
as it is now and the definition that the lake table remembers. It reports differences before it
changes anything. A Distributed table stands for its local table on every shard. A materialized
view stands for the table that it writes to.

REPLACE adds the exported files and removes all other files of the partition in one snapshot.
With several shards one export runs while the one before it waits to commit, and the innermost
commits for all. If one shard fails, none is committed; finished files are kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from catalog.clickhouse.table_description import ViewError
from catalog.ledgers.memory import milliseconds
from catalog.shards import LocalTable
from catalog.sources import SourcePlace, open_source
from spark_ext.actions.export import each_table, export_from_any
from spark_ext.actions.export_ports import exit_code
from spark_ext.operations.tables import (
    ExportsFrom,
    OpensPorts,
    OtherTables,
    RememberingTable,
    WithoutOutcomes,
)
from spark_ext.sql.session_settings import SourceTable
from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.committer import Commit, CommitOutcome, Figures, NotSent, counted_files
from tableformat.effects import Step
from tableformat.errors import Action, RefusedError, SourceError, SourceGoneError, TableFormatError
from tableformat.export.commit import Ports
from tableformat.export.commit_lists import store_list
from tableformat.export.destination import WrittenClaim
from tableformat.export.dry_run import EXPORT, REPLACE, rehearse
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts, Lake, Lands
from tableformat.export.request import AllPartitions as EveryPartition
from tableformat.export.request import ById, ExportOptions
from tableformat.ledger import Key, StatementKind
from tableformat.mergetree.compatibility import differences
from tableformat.mergetree.table import MergeTreeTable
from tableformat.messages import Option
from tableformat.names import TableName, new_query_id
from tableformat.operations.copy_from import Replacing, Staying
from tableformat.operations.replace_from_clickhouse import LandingReplaced
from tableformat.operations.run import Running
from tableformat.operations.statement import AllPartitions, OnePartition, planned, shown_partition
from tableformat.quantities import counted

__all__ = [
    "Coming",
    "FromClickHouse",
    "Local",
    "Replacement",
    "each_once",
    "from_clickhouse",
    "looked_at",
]

_MOST_VIEWS: Final = 8


@dataclass(frozen=True, slots=True)
class Local:
    """A table after FROM: its address, its definition, and whether it has the partition."""

    at: LocalTable
    table: MergeTreeTable
    has_parts: bool


@dataclass(frozen=True, slots=True)
class Coming:
    """A statement ATTACH or REPLACE … FROM a ClickHouse table.

    `table` is the name after FROM, and `tables` are the tables to read. `running` runs statements
    on the destination `to`, and `exports` runs the exports. With `allow_empty`, an empty partition
    of the source replaces that of the destination. All exports have the `query_id` of the
    statement.
    """

    which: OnePartition | AllPartitions
    table: str
    tables: tuple[Local, ...]
    to: RememberingTable
    running: Running
    exports: ExportsFrom
    replaces: bool
    allow_empty: bool
    query_id: str = field(default_factory=new_query_id)

    def __str__(self) -> str:
        """Return the statement in words for messages."""
        verb = "REPLACE" if self.replaces else "ATTACH"
        return f"{verb} {self.which} FROM {self.table} on {self.to.name}"

    @property
    def filled(self) -> tuple[Local, ...]:
        """The tables that have parts of the partition."""
        return tuple(one for one in self.tables if one.has_parts)

    def nothing_comes(self) -> RefusedError:
        """Return the error for a partition without rows in the source."""
        message = (
            f"Cannot run {self}: {self.table} has no rows of it, so its rows here would be dropped "
            f"silently. Use {Option.ALLOW_EMPTY}, or DROP PARTITION."
        )
        return RefusedError(message, code=BAD_ARGUMENTS)

    def request(self, one: Local) -> ExportRequest:
        """Return the export of one of the tables."""
        given = self.exports.settings
        options = ExportOptions(
            force=self.replaces,
            manifest_ttl=given.manifest_ttl,
            allow_empty=self.replaces and self.allow_empty,
            overwrite_file_if_exists=not self.replaces and given.overwrite_file_if_exists,
            of_statement=(
                StatementKind.REPLACE_FROM if self.replaces else StatementKind.ATTACH_FROM
            ),
            action=Action.REPLACE if self.replaces else Action.ATTACH,
        )
        of = self.which
        request = ExportRequest(
            table=one.at.table,
            to=self.to.name,
            selection=ById(of.partition_id) if isinstance(of, OnePartition) else EveryPartition(),
            options=options,
            conversions={},
            max_retries=given.max_retries,
            abandoned_ttl=given.abandoned_ttl,
            limits=given.limits,
            format=given.file_format,
            query_id=self.query_id,
        )
        return request.of_table(one.at.table, len(self.tables))

    def export(
        self, one: Local, opens: OpensPorts, landing: Lands | None = None
    ) -> tuple[Outcome, ...]:
        """Export one of the tables; the statement reports the outcomes, not the export.

        Raises:
            TableFormatError: the export was refused as a whole, or failed before any partition.
        """

        def opened(place: SourcePlace) -> JobPorts:
            ports, owner = opens(place), self.running.ports.owner
            observer = WithoutOutcomes(ports.observer)
            return replace(ports, owner=owner, observer=observer, landing=landing)

        slots = self.exports.slots
        return export_from_any(self.request(one), one.at.place, opened, slots=slots)

    def outcome(self, status: Status, message: str) -> Outcome:
        """Return an outcome for the whole statement."""
        return Outcome(shown_partition(self.which), status, str(self.to.name), message)

    def key(self, one: Local) -> Key:
        """Return the ledger key of the partition in one of the tables."""
        uuid = self.to.found.load().layout.table_uuid
        return Key(one.table.key_source, shown_partition(self.which), uuid)


def looked_at(
    what: str, one: LocalTable, which: OnePartition | AllPartitions, to: RememberingTable
) -> Local:
    """Describe a table after FROM, and check that it fits the lake table.

    Raises:
        RefusedError: the tables differ; the message has all differences.
    """
    with contextlib.closing(open_source(one.place, is_exporting=True)) as source:
        name, table = _described(source.describe, one.table)
        found = differences(table, to.source.table)
        if found:
            reasons = "; ".join(different.text for different in found)
            shard = f"shard {one.shard}: " if one.shard is not None else ""
            raise RefusedError(f"{what}: {shard}{reasons}.", code=found[0].code)
        if isinstance(which, OnePartition):
            has_parts = bool(source.parts(name, which.partition_id))
        else:
            has_parts = bool(source.partitions(name))
    return Local(replace(one, table=name), table, has_parts)


def each_once(found: Iterable[Local]) -> tuple[Local, ...]:
    """Return one table for each identity: the shards of a cluster can be replicas of one table.

    Replicas have the same rows, which would be added twice if one replica lags behind. Among
    replicas, one that has the partition is returned. Tables that are not replicated are different
    ones, also if CREATE … ON CLUSTER gave them one UUID.
    """
    once: dict[tuple[str, str], Local] = {}
    for one in found:
        identity = one.table.key_source, one.table.server
        known = once.setdefault(identity, one)
        if one.has_parts and not known.has_parts:
            once[identity] = one
    return tuple(once.values())


def _described(
    describe: Callable[[TableName], MergeTreeTable], name: TableName
) -> tuple[TableName, MergeTreeTable]:
    """Describe a table, or the table that a materialized view writes to; return its name too."""
    for _ in range(_MOST_VIEWS):
        try:
            return name, describe(name)
        except ViewError as error:
            if error.target is None:
                raise
            name = error.target
    return name, describe(name)


@dataclass(slots=True)
class Replacement:
    """Runs REPLACE: each export waits before its commit, and the last one commits for all."""

    of: Coming
    which: OnePartition
    opens: OpensPorts
    ended: list[Outcome] = field(default_factory=list)
    landed: dict[str, CommitOutcome] = field(default_factory=dict)

    def outcomes(self) -> Iterator[Outcome]:
        """Run the statement; yield the outcome of the partition in each table.

        Raises:
            TableFormatError: the statement failed as a whole.
        """
        self._export(self.of.filled, (), ())
        for one in self.ended:
            yield replace(one, status=Status.REPLACED) if one.status in _DONE else one

    def _export(
        self,
        left: tuple[Local, ...],
        gathered: tuple[tuple[Ports, Commit], ...],
        stays: tuple[Staying, ...],
    ) -> None:
        """Export the tables that are left; without any, commit the gathered exports.

        Raises:
            TableFormatError: an export could not begin; nothing has landed.
        """
        if not left:
            self._land(gathered, stays)
            return
        one, *others = left
        begun = False

        def land(ports: Ports, wanted: Commit) -> dict[str, CommitOutcome]:
            nonlocal begun
            begun = True
            now = (*gathered, (ports, wanted))
            try:
                self._export(tuple(others), now, stays)
            except TableFormatError as error:
                self._fail(now, error)
            return {key.key: self.landed[key.key] for key in wanted.keys}

        # The outer export ends after the inner ones, but its outcomes come first.
        place = len(self.ended)
        found = self.of.export(one, self.opens, land)
        self.ended[place:place] = found
        if begun:
            return
        if all(each.status is Status.EMPTY for each in found):
            self._export(tuple(others), gathered, stays)
        elif all(each.status is Status.UNCHANGED for each in found):
            there = tuple(self._staying(one, each) for each in found)
            self._export(tuple(others), gathered, (*stays, *there))
        else:
            self._give_up(gathered, found)

    def _fail(self, gathered: tuple[tuple[Ports, Commit], ...], error: TableFormatError) -> None:
        """Record the error as the commit outcome of gathered exports that have none yet."""
        keys = [key.key for _, wanted in gathered for key in wanted.keys]
        if all(key in self.landed for key in keys):
            # The commit was made, and the error occurred after it.
            self.of.running.ports.note(error.message)
        # As SourceGoneError, it would start the outer export again at another replica.
        gone = isinstance(error, SourceGoneError)
        why = SourceError(error.message, code=error.code) if gone else error
        for key in keys:
            self.landed.setdefault(key, NotSent(why))

    def _give_up(
        self, gathered: tuple[tuple[Ports, Commit], ...], found: tuple[Outcome, ...]
    ) -> None:
        """Refuse the commit of the gathered exports, because another export has failed."""
        why = next(each for each in found if each.status.exit_code)
        message = (
            f"Cannot run {self.of}: partition {why.partition_id} of another shard is "
            f"{why.status.value}: {why.message.rstrip('.')}. Run it again; finished "
            "files are kept."
        )
        for _, wanted in gathered:
            for key in wanted.keys:
                self.landed[key.key] = NotSent(RefusedError(message, code=why.code))

    def _staying(self, one: Local, found: Outcome) -> Staying:
        """Return the entry for an unchanged export that is in main already and stays there.

        Raises:
            RefusedError: the partition has been changed since.
        """
        key = self.of.key(one)
        row = self.of.running.landing.row_of(key.hash)
        if row is None or row.done is None:
            raise self._changed()
        if row.done.landed.transaction_id != found.transaction_id:
            raise self._changed()
        return Staying(key, row.done.landed.fingerprint)

    def _changed(self) -> RefusedError:
        return RefusedError(
            f"Cannot run {self.of}: the partition was changed meanwhile. Run it again."
        )

    def _land(self, gathered: tuple[tuple[Ports, Commit], ...], stays: tuple[Staying, ...]) -> None:
        """Commit the gathered exports, and remove all other files of the partition with it.

        Raises:
            RefusedError: no table has rows, and the settings do not allow that (code 36).
            TableFormatError: the table or the ledger failed before the commit was sent.
        """
        which, running = self.which, self.of.running
        if gathered:
            landing = LandingReplaced(running, which, self.of.table, stays)
            self.landed |= landing.land(gathered[0][0], self._together(gathered))
            return
        if not stays and not self.of.allow_empty:
            raise self.of.nothing_comes()
        ended = running.run(Replacing(which, self.of.table, stays=stays))
        if ended.status is Status.REPLACED and stays:
            there = [one for one in self.ended if one.status is Status.UNCHANGED]
            text = f"its rows are there already; {ended.rows:,} others left main"
            rows, files = sum(one.rows for one in there), sum(one.data_files for one in there)
            self.ended = [replace(ended, rows=rows, data_files=files, message=text)]
        elif ended.status not in (Status.UNCHANGED, Status.EMPTY) or not self.ended:
            self.ended = [ended]

    def _together(self, gathered: tuple[tuple[Ports, Commit], ...]) -> Commit:
        """Return one commit for the exports of all tables.

        Raises:
            DestinationError: the list of receipts cannot be stored.
        """
        ports, first = gathered[0]
        if len(gathered) == 1 or ports.storage is None:
            return first
        keys = tuple(key for _, wanted in gathered for key in wanted.keys)
        landing, state = self.of.running.landing, ports.table.load()
        rows = [landing.row_of(key.key) for key in keys]
        written = tuple(
            WrittenClaim(row, key.receipts, key.change)
            for row, key in zip(rows, keys, strict=True)
            if row is not None
        )
        name = self.of.running.ports.new_transaction(ports.ledger.next_epoch()).value
        storage = ports.storage(state.location)
        keep = partial(store_list, storage, state.location, name, written)
        listed = ports.effects(Step.NOTE_GROUP, keep)
        summary = {
            "mergeberg.source-table": self.of.table,
            "mergeberg.group": listed.name,
            "mergeberg.exports": str(len(written)),
            "mergeberg.receipts": listed.location,
            "mergeberg.receipts-sha256": listed.sha256,
            "mergeberg.ledger": first.ledger,
        }
        return replace(first, keys=keys, summary=tuple(summary.items()))


_DONE: Final = (Status.COMMITTED, Status.REPLACED)


@dataclass(frozen=True, slots=True)
class FromClickHouse:
    """A prepared ATTACH or REPLACE … FROM ClickHouse, with the catalog of its table."""

    coming: Coming
    lake: Lake

    def outcomes(self, *, dry_run: bool) -> Iterator[Outcome]:
        """Run the statement or forecast it; yield the outcome of each partition.

        Raises:
            TableFormatError: the statement is refused, or a table, a source or the ledger failed.
        """
        coming = self.coming
        replaced = coming.which if coming.replaces else None
        if isinstance(replaced, OnePartition):
            self._check_replaceable(replaced)
        if dry_run:
            yield from self._rehearsed()
            return
        with coming.exports.running() as opens:
            if isinstance(replaced, OnePartition):
                yield from Replacement(coming, replaced, opens).outcomes()
            else:
                yield from self._attached(opens)

    def _check_replaceable(self, which: OnePartition) -> None:
        """Check before any work that the partition can be replaced.

        Raises:
            RefusedError: no table has rows (code 36), or the partition in main cannot be replaced.
            TableFormatError: main or the ledger cannot be read.
        """
        coming = self.coming
        if not coming.filled and not coming.allow_empty:
            raise coming.nothing_comes()
        state = coming.to.found.load()
        coming.running.landing.refuse_moving(which, state)
        planned(Replacing(which, coming.table), coming.running.partitions, state)

    def _attached(self, opens: OpensPorts) -> Iterator[Outcome]:
        coming = self.coming
        ended: list[Outcome] = []
        errors: list[TableFormatError] = []

        def export_one(at: LocalTable) -> int:
            one = next(local for local in coming.filled if local.at is at)
            found = coming.export(one, opens)
            ended.extend(found)
            return exit_code(found)

        at = tuple(one.at for one in coming.filled)
        try:
            each_table(at, export_one, coming.running.ports.note, doing="attach from")
        except TableFormatError as error:
            errors.append(error)
        for one in ended:
            yield replace(one, status=Status.ATTACHED) if one.status in _DONE else one
        if errors:
            raise errors[0]
        if not ended:
            yield coming.outcome(Status.EMPTY, f"{coming.table} has no part of it")

    def _rehearsed(self) -> Iterator[Outcome]:
        """Yield the forecast of each partition, from the current source and lake."""
        coming = self.coming
        did = Status.REPLACED if coming.replaces else Status.ATTACHED
        stays: list[Key] = []
        for one in coming.filled:
            source = open_source(one.at.place, is_exporting=True)
            with contextlib.closing(source):
                rehearsal = rehearse(
                    coming.request(one),
                    source,
                    self.lake,
                    coming.to.ledger,
                    now=milliseconds(),
                    slots=coming.exports.slots,
                    note=coming.running.ports.note,
                    storage=coming.to.found.storages,
                )
            for found in rehearsal.forecasts:
                comes = found.action in (EXPORT, REPLACE)
                stays += [coming.key(one)] if found.action == Status.UNCHANGED else []
                files = counted(found.files, "file")
                text = f"would be {did.value} ({counted(found.rows, 'row')}, {files})"
                yield Outcome(
                    found.partition_id,
                    did if comes else Status(found.action),
                    str(coming.to.name),
                    text if comes else found.message,
                    rows=found.rows,
                    data_files=found.files,
                )
        if coming.replaces and isinstance(coming.which, OnePartition):
            yield self._leaves(coming.which, tuple(stays))
        elif not coming.filled:
            yield coming.outcome(Status.EMPTY, f"{coming.table} has no part of it")

    def _leaves(self, which: OnePartition, stays: tuple[Key, ...]) -> Outcome:
        """Return the forecast of the rows and files that would leave main."""
        coming = self.coming
        plan = planned(
            Replacing(which, coming.table), coming.running.partitions, coming.to.found.load()
        )
        files = [f for one in plan.changes if one.key not in stays for f in one.leaves]
        rows = sum(f.rows for f in files)
        text = f"{counted(rows, 'row')} in {counted(len(files), 'file')} would leave main with it"
        found = replace(coming.outcome(Status.REPLACED, text), rows=rows, data_files=len(files))
        return found.of_main(counted_files(files), Figures(bytes=None))


def from_clickhouse(
    what: str,
    source: SourceTable,
    which: OnePartition | AllPartitions,
    to: RememberingTable,
    on: tuple[Running, Lake],
    others: OtherTables,
    *,
    named: str,
    replaces: bool,
) -> FromClickHouse:
    """Prepare ATTACH or REPLACE … FROM a ClickHouse table, and check ClickHouse's conditions.

    Args:
        what: the beginning of error messages, "Cannot run ...".
        source: the table after FROM.
        which: the partitions.
        to: the destination table.
        on: runs statements on the destination, and the catalog that has it.
        others: runs the exports, and has the setting for empty partitions.
        named: the name of the table in the statement.
        replaces: whether the statement is REPLACE.

    Raises:
        NotFoundError: there is no such table (code 60).
        RefusedError: the tables differ; the message has all differences, the code is that of the
            first.
        UnsupportedError: the table has no partitions.
        SourceError: the table cannot be read.
    """
    if replaces and isinstance(which, AllPartitions):
        # The grammar refuses REPLACE PARTITION ALL, as ClickHouse does.
        raise TypeError(which)
    tables = others.exports.tables(source)
    found = each_once(looked_at(what, one, which, to) for one in tables)
    running, lake = on
    coming = Coming(
        which,
        named,
        found,
        to,
        running,
        others.exports,
        replaces=replaces,
        allow_empty=others.allow_empty,
        query_id=others.query_id,
    )
    return FromClickHouse(coming, lake)
