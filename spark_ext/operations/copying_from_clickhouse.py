"""ATTACH and REPLACE PARTITION … FROM a ClickHouse table: an export, with that effect."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from catalog.ledgers.memory import milliseconds
from catalog.shards import LocalTable
from catalog.sources import open_source
from spark_ext.operations.coming_from_clickhouse import Coming, each_once, looked_at
from spark_ext.operations.exports_from import OpensPorts
from spark_ext.operations.other_tables import OtherTables, RememberingTable
from spark_ext.operations.replacing_from_clickhouse import Replacement
from spark_ext.running_exports import exit_code
from spark_ext.sharding import each_table
from spark_ext.sql.session_settings import SourceTable
from tableformat.errors import TableFormatError
from tableformat.export.dry_run import EXPORT, REPLACE, rehearse
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import Lake
from tableformat.ledger import Key
from tableformat.main_change import Figures, counted_files
from tableformat.operations.as_planned import planned
from tableformat.operations.replacing import Replacing
from tableformat.operations.running import Running
from tableformat.operations.which import AllPartitions, OnePartition
from tableformat.quantities import counted

__all__ = ["FromClickHouse", "from_clickhouse"]

_DONE: Final = (Status.COMMITTED, Status.REPLACED)


@dataclass(frozen=True, slots=True)
class FromClickHouse:
    """The statement, ready: what comes, to which catalog's table."""

    coming: Coming
    lake: Lake

    def outcomes(self, *, dry_run: bool) -> Iterator[Outcome]:
        """Run it, or say what it would do; yield what became of each partition.

        Raises:
            TableFormatError: it cannot be done, or a table, a source or the ledger failed.
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
        """Refuse to replace a partition by nothing, and what cannot be planned, before any work.

        Raises:
            RefusedError: nothing would come (code 36), or main is not as it can be replaced.
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
            yield coming.told(Status.EMPTY, f"{coming.table} has no part of it")

    def _rehearsed(self) -> Iterator[Outcome]:
        """Say what it would do, on what the source and the lake have now."""
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
            yield coming.told(Status.EMPTY, f"{coming.table} has no part of it")

    def _leaves(self, which: OnePartition, stays: tuple[Key, ...]) -> Outcome:
        """Say what would leave main."""
        coming = self.coming
        plan = planned(
            Replacing(which, coming.table), coming.running.partitions, coming.to.found.load()
        )
        files = [f for one in plan.changes if one.key not in stays for f in one.leaves]
        rows = sum(f.rows for f in files)
        text = f"{counted(rows, 'row')} in {counted(len(files), 'file')} would leave main with it"
        told = replace(coming.told(Status.REPLACED, text), rows=rows, data_files=len(files))
        return told.of_main(counted_files(files), Figures(bytes=None))


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
    """Return a statement whose partition comes from a ClickHouse table, once its conditions hold.

    Args:
        what: begins errors: what cannot be run.
        source: the table behind FROM.
        which: the partitions.
        to: the table that they come to.
        on: what runs statements on it, and the catalog that has it.
        others: how exports run, and whether an empty partition there replaces what is here.
        named: the table's name as the statement has it.
        replaces: whether it is REPLACE.

    Raises:
        NotFoundError: there is no such table (code 60).
        RefusedError: the tables differ; all differences are told (code of the first).
        UnsupportedError: it has no partitions.
        SourceError: it cannot be read.
    """
    if replaces and isinstance(which, AllPartitions):
        # The grammar has refused it, as ClickHouse does.
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
    )
    return FromClickHouse(coming, lake)
