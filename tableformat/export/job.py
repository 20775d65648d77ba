"""Exports partitions of one source table to one destination; `export` is the entry point.

    describe the source -> look at the table -> plan -> select partitions -> create the table, or
    evolve its schema -> export groups of at most 100 partitions

Two rules decide the order of refusals. Errors that the source's description or the destination's
properties show are raised before the destination changes. Errors that the destination shows are
raised before a partition is touched. `tableformat/export/group.py` exports each group;
`tableformat/export/commit.py` commits it.

* `KilledQuery` handles a statement that KILL QUERY stopped (RQ…QueryCancellation). The killer
  marks rows of the statement, also settled ones, and gives up every partition that it has claimed.
  The killed run reads the rows before each group and after each claim
  (`give_up.withdraw_killed`), and exports no further partition.
* `create_table` creates the lake table of a ClickHouse table as an export would, without rows.
* `outdated` finds exported partitions that lack values of columns which the source table got later.
  A data file that was written before a column was added has no values of it, and readers return
  NULL. `--evolve-schema` names the partitions that need another export for this reason, and
  `--backfill` exports them. A partition that no longer exists in the source can only be changed in
  the lake.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tableformat.committer import LakeTable, LakeTableState, SchemaChange
from tableformat.effects import Effects, Step
from tableformat.errors import (
    KilledError,
    LedgerError,
    RefusedError,
    StoppedError,
    Unable,
    during,
)
from tableformat.export.archived import exports_of_partition
from tableformat.export.cleanup import Expired, staging_in_use
from tableformat.export.commit import Ports, check_table_of_ledger, first_snapshot, unsettled_mark
from tableformat.export.content import columns_of, lacks_values
from tableformat.export.destination import (
    Destination,
    evolve_schema,
    fit,
    renewal,
    schema_change,
)
from tableformat.export.give_up import is_killed
from tableformat.export.group import GroupJob
from tableformat.export.leases import Leases
from tableformat.export.options import ABANDONED_TTL, MAX_RETRIES, MOST_PARTITIONS, LateRows
from tableformat.export.outcome import Outcome, Status, events_of
from tableformat.export.plan import (
    NO_NAMES,
    KeyNames,
    TablePlan,
    check_one_to_one,
    plan_table,
    remembered_conversions,
)
from tableformat.export.ports import JobPorts, Lake
from tableformat.export.request import ExportOptions, Limits, Selection, in_tree, select
from tableformat.export.slices import FileFormat
from tableformat.export.table_identity import check_same_as, known_as
from tableformat.export.watermark import Listing, list_source
from tableformat.export.writers import with_limits, with_retries
from tableformat.history import Event
from tableformat.hive.layout import check_names, names_in_force
from tableformat.iceberg.properties import appends_late_rows
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Key, Ledger, Row, State, Stop
from tableformat.mergetree.missing_columns import is_constant, is_null, shown_definitions
from tableformat.mergetree.table import Column, MergeTreeTable
from tableformat.messages import Option
from tableformat.names import (
    HiveName,
    LakeName,
    PartitionId,
    TableName,
    check_new_table,
    new_query_id,
    quote_identifier,
    quote_string,
)
from tableformat.quantities import counted
from tableformat.source import Source

__all__ = [
    "Created",
    "ExportRequest",
    "KilledQuery",
    "LoadedTable",
    "LookedAt",
    "Outdated",
    "create_table",
    "export",
    "look_at_table",
    "mark_killed",
    "open_destination",
    "outdated",
    "with_outdated",
]


class KilledQuery:
    """Stops a run whose statement KILL QUERY has stopped."""

    def __init__(self, ports: JobPorts) -> None:
        """Start with a run that has lost no partition."""
        self._ports = ports
        self._has_lost = False

    def see(self, outcomes: Iterable[Outcome]) -> None:
        """Note whether another process gave up one of these partitions."""
        self._has_lost = self._has_lost or any(o.status is Status.KILLED for o in outcomes)

    def check(self, *, has_more: bool) -> None:
        """Stop the run if the statement was killed, and it has or had something else to export.

        Raises:
            KilledError: the statement was killed.
            LedgerError: the rows of the statement cannot be read.
        """
        query_id = self._ports.query_id
        if not query_id or not (has_more or self._has_lost):
            return

        def is_marked() -> bool:
            of_query = self._ports.ledger.rows(query_id=query_id)
            return any(is_killed(row, query_id) for row in of_query)

        if self._ports.effects(Step.READ_LEDGER, is_marked):
            message = (
                f"Cannot finish: the query {query_id} was killed. Exported partitions "
                "stay in the lake, and nothing else of it becomes visible. Run the same statement "
                "again to export the rest."
            )
            raise KilledError(message)


def mark_killed(effects: Effects, ledger: Ledger, rows: Sequence[Row], now: int) -> tuple[Row, ...]:
    """Mark rows of a killed statement at once, so that its run stops; return the marked rows.

    Running exports are also claimed. Giving up each of them takes longer (`give_up.kill`); without
    this the run would meanwhile continue with the others. The next claim of a row ends its mark. A
    row that changed since it was read stays unchanged.

    Args:
        effects: the port to the outside.
        ledger: the ledger with the rows.
        rows: rows of the statement, as they were read.
        now: milliseconds since 1970.

    Raises:
        LedgerError: the ledger cannot be written.
    """
    if not rows:
        return ()
    running = tuple(row for row in rows if row.state is State.RUNNING)
    ended = (row for row in rows if row.state is not State.RUNNING)
    first = ledger.next_epoch(len(running)) if running else 0
    marked = (
        *(
            replace(row, claim=replace(row.claim, epoch=first + at)).noted(Stop.QUERY_KILLED, now)
            for at, row in enumerate(running)
        ),
        # Why an export failed stays.
        *(replace(row, stop=Stop.QUERY_KILLED, updated=now) for row in ended),
    )
    written = effects(Step.CLAIM, partial(ledger.write_all, marked))
    return tuple(row for row in written if isinstance(row, Row))


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A user's request for an export.

    * `partition_spec`: the spec of a new table; None derives it from the partition key.
    * `directories`: the directories of a Hive tree by name, each with a member of the partition
      key. These and `conversions` may omit what the destination remembers.
    * `evolve_schema` adds columns to the destination. `backfill` also exports the partitions that
      lack values of columns which were added later.
    * `commit_every`: the most partitions that one snapshot makes visible. `commit_after`: complete
      partitions are committed every so many milliseconds, while others are being written.
    * `max_retries`: how often a file is written again after a temporary failure.
    * `abandoned_ttl`: exports into the destination that were interrupted, and not resumed for so
      many seconds, are given up at the end; 0 is never.
    * `leave_out`: partitions that an earlier run of the same command has handled.
    * `query_id`: the name of the statement for KILL QUERY; all requests of one statement have it.
    """

    table: TableName
    to: LakeName
    selection: Selection
    options: ExportOptions
    conversions: Mapping[str, str]
    strict: bool = False
    partition_spec: str | None = None
    directories: Mapping[str, str] = field(default_factory=dict)
    evolve_schema: bool = False
    backfill: bool = False
    commit_every: int = MOST_PARTITIONS
    commit_after: int = 60_000
    max_retries: int = MAX_RETRIES
    abandoned_ttl: int = ABANDONED_TTL
    limits: Limits = field(default_factory=Limits)
    format: FileFormat = field(default_factory=FileFormat)
    leave_out: frozenset[PartitionId] = frozenset()
    query_id: str = field(default_factory=new_query_id, compare=False)

    def change_of_table(
        self, plan: TablePlan, name: LakeName, state: LakeTableState
    ) -> SchemaChange | None:
        """Return the change that the destination needs before the first file, None for none.

        Raises:
            TableFormatError: as `schema_change` with `evolve_schema`, as `renewal` without.
        """
        if self.evolve_schema:
            return schema_change(plan, name, state)
        return renewal(plan, name, state, is_of_statement=self.options.is_of_statement)

    def for_destination(self, state: LakeTableState | None) -> ExportRequest:
        """Return the request with the options that hold for its destination.

        They are those for a tree of Hive directories, and what the table's owner has set.

        Args:
            state: of the destination, None if it does not exist.

        Raises:
            RefusedError: a property of the table has a value that it cannot have.
        """
        options = in_tree(self.options) if isinstance(self.to, HiveName) else self.options
        if options.late_rows is LateRows.TABLE:
            adds = appends_late_rows(state.properties if state is not None else {}, self.to)
            late_rows = LateRows.APPEND if adds else LateRows.REFUSE
            options = replace(options, late_rows=late_rows)
        return replace(self, options=options)

    def of_table(self, table: TableName, tables: int) -> ExportRequest:
        """Return the request for one of several `tables`, the shards of a cluster.

        Raises:
            UsageError: `same_as` is given for several shards, each of which has its own identity.
        """
        check_same_as(self.options.same_as, tables)
        return replace(self, table=table, options=replace(self.options, shards=tables))


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A lake table, and the metadata that was loaded of it."""

    table: LakeTable
    state: LakeTableState


@dataclass(frozen=True, slots=True)
class LookedAt:
    """The plan of a table, and the existing destination; None if there is no table of that name."""

    plan: TablePlan
    existing: LoadedTable | None

    @property
    def state(self) -> LakeTableState | None:
        """The metadata of the existing destination."""
        return self.existing.state if self.existing is not None else None


def export(
    request: ExportRequest, ports: JobPorts, *, slots: int
) -> Generator[Outcome, None, None]:
    """Run an export; yield the outcome of each partition as soon as it is known.

    Args:
        request: the request of the user.
        ports: the source, lake, ledger and writer of the job.
        slots: how many tasks can run at a time; a large partition is cut into as many files.

    Raises:
        RefusedError: the whole request is refused; nothing was changed.
        StoppedError: the run was stopped or killed; every partition that was begun has its outcome.
        TableFormatError: the source, destination or ledger failed before a partition was begun.
    """
    try:
        limit = request.limits.bandwidth
        if limit and (note := ports.sharing_note(limit)):
            ports.observer.note(note)
        named = replace(ports, query_id=request.query_id)
        limited = with_limits(named, request.limits)
        retrying = with_retries(limited, request.to, request.max_retries)
        with during(request.options.action):
            yield from _export(request, retrying, request.limits.at_once(slots))
    finally:
        ports.source.close()
        for digests in (ports.digests, ports.compares):
            if digests is not None:
                digests.close()


def _export(request: ExportRequest, ports: JobPorts, slots: int) -> Iterator[Outcome]:
    source = ports.source
    looked_at = look_at_table(
        request, source, ports.lake, ports.ledger,
        effects=ports.effects, note=ports.observer.note,
    )  # fmt: skip
    plan, state = looked_at.plan, looked_at.state
    table = plan.table
    request = request.for_destination(state)
    if request.options.replace_partition:
        check_one_to_one(plan, request.to)
    selected = select(
        request.selection,
        table,
        source,
        was_exported=lambda partition_id: _was_exported(ports, state, plan, partition_id),
        none=ports.observer.none_selected,
    )
    ids = tuple(one for one in selected if one not in request.leave_out)
    if not ids and not request.backfill:
        return
    ports.check_writer()
    in_use = staging_in_use(ports.ledger)
    ports.effects(Step.SWEEP_SOURCE, lambda: source.sweep_leftovers(ports.job_is_alive, in_use))
    destination = open_destination(request, ports, looked_at)
    listing = list_source(table, source, now=ports.clock())
    known = partial(ports.effects, Step.READ_LEDGER, ports.ledger.rows)
    ids = with_outdated(request, known, state, listing, ids, ports.observer.note)
    with Leases(
        ports.ledger,
        ports.owner,
        effects=ports.effects,
        is_alive=ports.is_alive,
        note=ports.observer.note,
    ) as leases:
        group = GroupJob(
            ports,
            destination,
            leases,
            request.options,
            listing,
            slots=slots,
            commit_every=request.commit_every,
            commit_after=request.commit_after,
        )
        killed = KilledQuery(ports)
        for chunk in _groups(ids, ports.should_stop):
            killed.check(has_more=True)
            with contextlib.closing(group.run(chunk, is_last=chunk[-1] == ids[-1])) as running:
                for outcomes in running:
                    killed.see(outcomes)
                    _note(ports, destination, outcomes)
                    yield from outcomes
        killed.check(has_more=False)
        commit_ports = Ports(
            ports.effects, destination.lake, ports.ledger, ports.clock, ports.pause
        )
        abandoned_ttl = request.abandoned_ttl
        Expired(ports, commit_ports, leases, destination.location, abandoned_ttl).clean()


def _note(ports: JobPorts, to: Destination, outcomes: Sequence[Outcome]) -> None:
    """Note outcomes that are known together in the ledger's history; it decides nothing."""
    keys = tuple(to.key(PartitionId(one.partition_id)) for one in outcomes)
    hashes = tuple(key.hash for key in keys)
    name, now = str(to.table.name), ports.clock()
    try:
        rows = ports.effects(Step.READ_LEDGER, partial(ports.ledger.read_all, hashes))
        events: list[Event] = []
        for outcome, key, row in zip(outcomes, keys, rows, strict=True):
            exports = exports_of_partition(ports.ledger.read, key, row)
            of_outcome = exports.row_of(outcome.transaction_id)
            events += events_of(outcome, of_outcome, name, now, query_id=ports.query_id)
        ports.effects(Step.NOTE_HISTORY, partial(ports.ledger.note, tuple(events)))
    except LedgerError as error:
        for one in outcomes:
            ports.observer.note(f"partition {one.partition_id}: it is not in the log: {error}")


def with_outdated(
    request: ExportRequest,
    rows: Callable[[], Iterable[Row]],
    state: LakeTableState | None,
    listing: Listing,
    ids: tuple[PartitionId, ...],
    note: Callable[[str], None],
) -> tuple[PartitionId, ...]:
    """Return the selected partitions `ids`, and with `backfill` those that lack values of columns.

    Args:
        request: the request of the user.
        rows: reads all rows of the ledger.
        state: of the destination before this run, None if it did not exist.
        listing: the source table.
        ids: the selected partitions.
        note: called with a text on the partitions that lack values and are not exported.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    if state is None or not (request.evolve_schema or request.backfill):
        return ids
    of = listing.source, state.layout.table_uuid
    ours = (row for row in rows() if (row.key.source, row.key.destination) == of)
    found = outdated(ours, listing, {f.name for f in table_of(state).schema().fields})
    more = set(found.here) - {*ids, *request.leave_out} if request.backfill else ()
    wanted = (*ids, *sorted(more))
    found.report(request.to, wanted, note)
    return wanted


def _groups(
    ids: tuple[PartitionId, ...], should_stop: Callable[[], bool]
) -> Iterator[tuple[PartitionId, ...]]:
    """Yield the partitions in groups of at most `MOST_PARTITIONS`.

    Raises:
        StoppedError: the run was stopped before the next group.
    """
    for begun in range(0, len(ids), MOST_PARTITIONS):
        if should_stop():
            message = (
                f"Cannot finish: the export was stopped. Of {counted(len(ids), 'partition')} "
                f"{len(ids) - begun} were not begun; exported partitions stay in the lake. Run it "
                "again: it continues with the rest."
            )
            raise StoppedError(message)
        yield ids[begun : begun + MOST_PARTITIONS]


def _was_exported(
    ports: JobPorts, state: LakeTableState | None, plan: TablePlan, partition_id: PartitionId
) -> bool:
    """Whether an export of a partition landed, or an unfinished one has a snapshot of it."""
    if state is None:
        return False
    row = ports.ledger.read(
        Key(plan.table.key_source, partition_id.value, state.layout.table_uuid).hash
    )
    if row is None:
        return False
    frozen = row.state is State.RUNNING and bool(row.claim.staging)
    return frozen or row.done is not None or unsettled_mark(row, state) is not None


def look_at_table(
    request: ExportRequest,
    source: Source,
    lake: Lake,
    ledger: Ledger,
    *,
    effects: Effects,
    note: Callable[[str], None],
) -> LookedAt:
    """Describe the source's table, load the destination, and plan; nothing is changed.

    Args:
        request: the request of the user.
        source: the source that has the table.
        lake: the catalog of the destination.
        ledger: the ledger of the exports.
        effects: the port to the outside.
        note: called with each note of the plan.

    Raises:
        RefusedError: a column or the partition key cannot be mapped, no export with the identity
            `same_as` is known, or a table with the destination's name cannot be created.
        TableFormatError: the source, the destination or the ledger cannot be read.
    """
    table = effects(Step.DESCRIBE_SOURCE, lambda: source.describe(request.table))
    existing = _existing(request.to, lake, effects)
    state = existing.state if existing is not None else None

    def meant() -> MergeTreeTable:
        return known_as(table, request.options.same_as, state, ledger.rows)

    names = _names(request, source, table, state, effects)
    plan = plan_table(
        effects(Step.READ_LEDGER, meant) if request.options.same_as else table,
        conversions=remembered_conversions(request.to, table, request.conversions, state),
        strict=request.strict,
        partition_spec=request.partition_spec,
        to=request.to,
        names=names,
    )
    for text in plan.spec.notes:
        note(text)
    return LookedAt(plan, existing)


def _existing(name: LakeName, lake: Lake, effects: Effects) -> LoadedTable | None:
    """Load the destination if it exists.

    Raises:
        RefusedError: a table with its name cannot be created.
        TableFormatError: it cannot be read.
    """
    table = effects(Step.OPEN_TABLE, lambda: lake.table(name))
    if table is None:
        check_new_table(name)
        return None
    return LoadedTable(table, effects(Step.LOAD_METADATA, table.load))


def _names(
    request: ExportRequest,
    source: Source,
    table: MergeTreeTable,
    state: LakeTableState | None,
    effects: Effects,
) -> KeyNames:
    """Return the names of a tree's directories, and the types of the key's members in the source.

    Raises:
        UsageError: the names cannot be read, or the destination has no directories to name.
        RefusedError: a name cannot be used.
        TableFormatError: the source or the destination cannot be read.
    """
    subject = f"{table.name} to {request.to}"
    properties = state.properties if state is not None else None
    named = names_in_force(subject, request.to, request.directories, properties)
    has_tree = state is not None and bool(state.tree)
    if not named and not has_tree:
        return NO_NAMES
    # Before the query: an expression that is not a member of the key has no type.
    check_names(subject, table, named, has_tree=has_tree)
    if not named:
        return NO_NAMES
    types = effects(Step.DESCRIBE_SOURCE, lambda: source.key_types(table))
    return KeyNames(named, types)


def open_destination(request: ExportRequest, ports: JobPorts, looked_at: LookedAt) -> Destination:
    """Open or create the destination; then it has a snapshot and belongs to this ledger.

    Args:
        request: the request of the user.
        ports: the source, lake and ledger of the job.
        looked_at: the result of `look_at_table`.

    Raises:
        RefusedError: the table does not fit the plan, or belongs to another ledger.
        TableFormatError: the table or the ledger cannot be created or read.
    """
    plan = looked_at.plan
    existing = looked_at.existing.table if looked_at.existing is not None else None
    # `identity` creates a missing ledger: if that fails, no table is created.
    lake = (existing if existing or ports.ledger.identity else None) or ports.effects(
        Step.CREATE_TABLE,
        lambda: ports.lake.create(
            request.to,
            schema=plan.schema,
            spec=plan.partition_spec,
            order=plan.sort_order,
            properties=plan.properties,
        ),
    )
    state = ports.effects(Step.LOAD_METADATA, lake.load)
    check_table_of_ledger(state, ports.ledger)
    state = evolve_schema(ports, plan, request.to, lake, state, request.change_of_table)
    destination = fit(plan, request.to, lake, state, request.format)
    if state.main is None:
        commit_ports = Ports(ports.effects, lake, ports.ledger, ports.clock, ports.pause)
        first_snapshot(commit_ports, lambda now: _unchanged(destination, now.layout))
    return destination


def _unchanged(destination: Destination, layout: object) -> None:
    if destination.layout != layout:
        why = "the table changed while it was opened. Run it again."
        raise RefusedError(Unable.of(f"to {destination.name}", why))


@dataclass(frozen=True, slots=True)
class Created:
    """The plan of a table, and whether the table did not exist before."""

    plan: TablePlan
    is_new: bool


def create_table(request: ExportRequest, ports: JobPorts, *, dry_run: bool) -> Created:
    """Create the lake table of a source table; an existing table that fits stays unchanged.

    Args:
        request: the request of the user; its selection is not used.
        ports: the source, lake and ledger; no partition is exported.
        dry_run: create nothing, only raise the refusals.

    Raises:
        RefusedError: a column or the partition key cannot be mapped, or the existing table does not
            fit, or belongs to another ledger.
        TableFormatError: the source, the lake or the ledger cannot be read or written.
    """
    looked_at = look_at_table(
        request, ports.source, ports.lake, ports.ledger,
        effects=ports.effects, note=ports.observer.note,
    )  # fmt: skip
    existing = looked_at.existing
    if not dry_run:
        open_destination(request, ports, looked_at)
    elif existing is not None:
        check_table_of_ledger(existing.state, ports.ledger)
        request.change_of_table(looked_at.plan, request.to, existing.state)
        fit(looked_at.plan, request.to, existing.table, existing.state, request.format)
    return Created(looked_at.plan, existing is None)


_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Outdated:
    """Exported partitions that lack values which ClickHouse shows, or have other values.

    `here` are in the source, `gone` are not. `added` are the columns that the lake table lacked
    when the command started, and that ClickHouse does not read as NULL from parts without them.
    """

    here: tuple[PartitionId, ...]
    gone: tuple[PartitionId, ...]
    added: tuple[Column, ...]

    def report(
        self, to: LakeName, exported: Collection[PartitionId], note: Callable[[str], None]
    ) -> None:
        """Report the partitions that a command does not export.

        Args:
            to: the lake table.
            exported: the partitions that the command exports.
            note: called with each text.
        """
        if rest := tuple(one for one in self.here if one not in exported):
            note(
                f"partitions of {to} that differ from what ClickHouse shows{self._of()}, and that "
                f"this command does not export: {_some_ids(rest)}. {Option.BACKFILL} exports them "
                "again"
            )
        if self.gone:
            note(
                f"partitions of {to} with NULL{self._of()} whose source is gone: "
                f"{_some_ids(self.gone)}.{self._way(to)}"
            )

    def _of(self) -> str:
        shown = shown_definitions(self.added, [c.name for c in self.added])
        return f" for {shown}" if shown else ""

    def _way(self, to: LakeName) -> str:
        """Return the advice how to set the values in the lake: UPDATE can set a constant."""
        constant = [c for c in self.added if is_constant(c.default_expression)]
        if not constant:
            return " No constant gives their values: set them there with UPDATE"
        one = constant[0]
        name = quote_identifier(one.name)
        return (
            f" Set it there: ALTER TABLE {to} UPDATE {name} = {one.default_expression} IN PARTITION"
            f" ID {quote_string(str(self.gone[0]))} WHERE {name} IS NULL"
        )


def outdated(rows: Iterable[Row], listing: Listing, had: Collection[str]) -> Outdated:
    """Return the partitions of a source table whose rows in the lake lack values.

    Args:
        rows: the ledger rows of exports of that table to the destination.
        listing: the source table.
        had: the columns that the lake table had when the command started.
    """
    table = listing.table
    added = tuple(c for c in table.stored_columns if c.name not in had and not is_null(c))
    here, gone = [], []
    for row in rows:
        if row.done is None or not row.done.landed.rows:
            continue
        one = PartitionId(row.key.partition_id)
        # The source may have later rows of an archived partition, which no export replaces.
        content = listing.contents.get(one) if row.archived is None else None
        if content is not None and lacks_values(row.done, content):
            here.append(one)
        elif content is None and added and row.done.columns != columns_of(table):
            gone.append(one)
    return Outdated(tuple(sorted({*here})), tuple(sorted({*gone})), added)


def _some_ids(ids: tuple[PartitionId, ...]) -> str:
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"{', '.join(str(one) for one in ids[:_NAMED])}{more}"
