"""Forecasts an export (`--dry-run`): it reads, and takes no lease and writes no row, table or file.

It makes the same decisions as the job (`plan_table`, `fit`, `decision.decide`, `slices`), for the
current parts of the source instead of a snapshot. Only a real run checks the data and counts
lightweight deletes. The size of the files is estimated as the size of the parts on disk.

`check_replacements` refuses an export that would replace more partitions than `--max-replace`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tableformat.committer import LakeTable, LakeTableState, Leaving
from tableformat.effects import Direct
from tableformat.errors import Action, RefusedError, UnsupportedError, during
from tableformat.export.archived import (
    ArchivedExport,
    ArchivedExports,
    exports_of_partition,
    later_in_main,
)
from tableformat.export.commit import check_table_of_ledger, unsettled_mark
from tableformat.export.content import Content, content_of
from tableformat.export.decision import (
    MAY_BE_EQUAL,
    CompareRows,
    Proceed,
    Resume,
    Skip,
    added_note,
    decide,
    decide_in_tree,
    new_parts,
    parts_may_be_equal,
)
from tableformat.export.destination import change_text, fit, in_spec
from tableformat.export.foreign_rows import (
    Alongside,
    OwnKeys,
    WholePartitions,
    leaving_of,
    no_lake_partition,
)
from tableformat.export.freeze_and_claim import late_note
from tableformat.export.job import ExportRequest, LookedAt, look_at_table, with_outdated
from tableformat.export.main_state import Holding, holding
from tableformat.export.outcome import Status
from tableformat.export.plan import TablePlan, check_one_to_one
from tableformat.export.ports import Lake
from tableformat.export.request import ExportOptions, select
from tableformat.export.slices import SliceTarget, slices
from tableformat.export.table_identity import (
    SameNameExports,
    SourceTables,
    same_name_exports,
    unconfirmed_table,
)
from tableformat.export.watermark import list_source
from tableformat.file_names import key_in
from tableformat.iceberg.partition_proof import partition_values, value_texts
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import ExportedPart, Key, Ledger, Row
from tableformat.mergetree.table import Part
from tableformat.messages import Option
from tableformat.names import PartitionId
from tableformat.parquet.writer import file_format
from tableformat.quantities import counted
from tableformat.source import FrozenPart, FrozenPartition, Source
from tableformat.storage import Storage

__all__ = [
    "EXPORT",
    "REPLACE",
    "Forecast",
    "Rehearsal",
    "Replaced",
    "check_replacements",
    "comparison_note",
    "forecast_parts",
    "rehearse",
]

EXPORT: Final = "export"
REPLACE: Final = "replace"
"""`EXPORT` and `REPLACE` are the actions of exported partitions; other actions are a `Status`."""
_SHOWN: Final = 20
_NO_TARGET: Final = SliceTarget("", 0, "", "", ())


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast for one partition.

    `files` counts its slices. `rows` counts the rows of its parts, including rows that a
    lightweight delete hides. `disks` has the bytes by the root directory of the source's disk.
    `left_rows` and `left_bytes` would leave main. `may_be_equal`: only the parts are known to
    differ from those exported.
    """

    partition_id: str
    action: str
    message: str = ""
    files: int = 0
    rows: int = 0
    bytes: int = 0
    disks: tuple[tuple[str, int], ...] = ()
    left_rows: int = 0
    left_bytes: int = 0
    may_be_equal: bool = False


@dataclass(frozen=True, slots=True)
class Replaced:
    """The exported partitions that an export would replace, by id.

    `certain` are replaced in any case. `compared` are replaced if their rows differ from those
    exported: the export compares them first. Of those in `may_be_equal` it does not compare them,
    although only their parts are known to differ.
    """

    certain: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    may_be_equal: tuple[str, ...] = ()

    def __add__(self, other: Replaced) -> Replaced:
        """Return the partitions of two exports, each once."""
        certain = dict.fromkeys((*self.certain, *other.certain))
        compared = dict.fromkeys((*self.compared, *other.compared))
        may_be_equal = dict.fromkeys((*self.may_be_equal, *other.may_be_equal))
        return Replaced(
            tuple(certain),
            tuple(one for one in compared if one not in certain),
            tuple(may_be_equal),
        )


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The forecast of a request; `location` is the destination's, None if it does not exist.

    `replaced` are the partitions that would be replaced.
    """

    forecasts: tuple[Forecast, ...]
    location: str | None
    replaced: Replaced = field(default_factory=Replaced)

    @property
    def source_bytes(self) -> dict[str, int]:
        """The bytes that each disk of the source may need, by its root directory.

        A snapshot of hard links needs no space itself, but it keeps the parts while merges write
        their rows again. Parts that no task can open are copied.
        """
        needed: dict[str, int] = {}
        for forecast in self.forecasts:
            for disk, size in forecast.disks:
                needed[disk] = needed.get(disk, 0) + size
        return needed

    @property
    def destination_bytes(self) -> int:
        """The expected size of all new files in bytes."""
        return sum(f.bytes for f in self.forecasts if f.action in (EXPORT, REPLACE))


def rehearse(  # noqa: PLR0913  one parameter for each input, and two callbacks for notes
    request: ExportRequest,
    source: Source,
    lake: Lake,
    ledger: Ledger,
    *,
    now: int,
    slots: int,
    note: Callable[[str], None],
    storage: Callable[[str], Storage],
    none: Callable[[str], None] | None = None,
) -> Rehearsal:
    """Forecast the outcome of `job.export` for a request; nothing is written.

    Args:
        request: the request of the user.
        source: the source that has the table.
        lake: the catalog of the destination.
        ledger: the ledger of the exports.
        now: milliseconds since 1970.
        slots: how many tasks could run at a time.
        note: called with each note that the job would report to its observer.
        storage: opens the storage of a location.
        none: called if no partition is selected; `note` if None.

    Raises:
        RefusedError: the whole request would be refused.
        TableFormatError: source, destination or ledger cannot be read.
    """
    with during(request.options.action):
        looked_at = look_at_table(request, source, lake, ledger, effects=Direct(), note=note)
        plan = looked_at.plan
        found = _existing(looked_at, source, ledger, storage)
        request = request.for_destination(looked_at.state)
        if request.options.replace_partition:
            check_one_to_one(plan, request.to)
        ids = select(
            request.selection,
            plan.table,
            source,
            was_exported=lambda one: found is not None and found.was_exported(plan, one),
            none=none or note,
        )
        change = None
        if found is not None:
            check_table_of_ledger(found.state, ledger)
            request = _in_format(request, found.state)
            change = request.change_of_table(plan, request.to, found.state)
            if change is not None:
                note(change_text(change, request.to, would=True))
            if change is None or not change.is_of_schema:
                fit(plan, request.to, found.table, found.state, request.format)
            listing = list_source(plan.table, source, now=now)
            ids = with_outdated(request, ledger.rows, found.state, listing, ids, note)
        slots = request.limits.at_once(slots)
        made = tuple(_forecasts(request, plan, source, found, ids, now=now, slots=slots))
        compares = request.options.check_rows and not (change and change.is_of_schema)
        location = found.state.location if found is not None else None
        return Rehearsal(made, location, _replaced(made, compares=compares))


def _in_format(request: ExportRequest, state: LakeTableState) -> ExportRequest:
    """Return the request with the settings of the lake table's files."""
    form = file_format(request.format, state.properties, request.to)
    return replace(request, format=form)


def _replaced(forecasts: Iterable[Forecast], *, compares: bool) -> Replaced:
    """Return the partitions that would be replaced.

    Args:
        forecasts: the forecasts of partitions.
        compares: whether the export compares rows first, and no column is added, with which all
            rows would be other ones.
    """
    found = [one for one in forecasts if one.action == REPLACE]
    compared = tuple(one.partition_id for one in found if one.may_be_equal and compares)
    certain = tuple(one.partition_id for one in found if one.partition_id not in compared)
    equal = tuple(one.partition_id for one in found if one.may_be_equal and not compares)
    return Replaced(certain, compared, equal)


def check_replacements(request: ExportRequest, replaced: Replaced) -> None:
    """Check that an export replaces no more partitions than its option `max_replace` allows.

    Args:
        request: the request of the user.
        replaced: the partitions that it would replace; those to be compared do not count.

    Raises:
        RefusedError: it would replace more.
    """
    most, found = request.options.max_replace, replaced.certain
    if most is None or len(found) <= most:
        return
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    options = request.options
    # An archive has no such option.
    compares = options.check_rows or options.action is not Action.EXPORT
    equal = 0 if compares else len(replaced.may_be_equal)
    advice = (
        f" {Option.CHECK_ROWS} first compares the rows of {equal} of them, whose parts changed."
    )
    message = (
        f"Cannot {request.options.action} {request.table} to {request.to}: of the exported "
        f"partitions {len(found)} would be replaced ({', '.join(found[:_SHOWN])}{more}), and "
        f"{Option.MAX_REPLACE} allows {most}. Nothing was changed. Raise {Option.MAX_REPLACE} if "
        f"they are to be replaced, or export fewer partitions.{advice if equal else ''}"
    )
    raise RefusedError(message)


def comparison_note(request: ExportRequest, replaced: Replaced) -> str:
    """Return the note that a comparison of rows decides on `max_replace`; '' if it does not."""
    most, compared = request.options.max_replace, len(replaced.compared)
    if most is None or len(replaced.certain) + compared <= most:
        return ""
    return (
        f"{counted(len(replaced.certain), 'partition')} would be replaced, and {compared} more if "
        f"their rows differ: the export first compares them, and is refused if it would replace "
        f"more than {Option.MAX_REPLACE} allows ({most})"
    )


@dataclass(frozen=True, slots=True)
class _Allowed:
    """An export that would run, and how; `held` is the state of its key in main.

    `archived` are the states of the archived exports of the partition. `may_be_equal`: the parts
    differ from the exported parts, the rows may be the same. `added` are the names of the parts
    that are exported while the files of the others stay; empty if all parts are.
    """

    key: Key
    held: Holding
    how: Proceed
    archived: tuple[Holding, ...]
    may_be_equal: bool
    added: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Existing:
    table: LakeTable
    state: LakeTableState
    ledger: Ledger
    storage: Callable[[str], Storage]
    others: SameNameExports
    source: Source
    tables: SourceTables
    has_others: bool

    def key(self, plan: TablePlan, one: PartitionId) -> Key:
        return Key(plan.table.key_source, one.value, self.state.layout.table_uuid)

    def was_exported(self, plan: TablePlan, one: PartitionId) -> bool:
        row = self.ledger.read(self.key(plan, one).hash)
        return row is not None and row.done is not None

    def decide(
        self,
        plan: TablePlan,
        one: PartitionId,
        parts: tuple[Part, ...],
        options: ExportOptions,
        now: int,
    ) -> Skip | _Allowed | None:
        """Return the outcome if the job would not export, else the export that it would make.

        None stands for a partition without parts, of which no export has completed.
        """
        key = self.key(plan, one)
        if held := self.ledger.holder(key.hash):
            text = f"an export of this partition is in progress: {held.owner}"
            return Skip(Status.IN_PROGRESS, text)
        exports = exports_of_partition(self.ledger.read, key, self.ledger.read(key.hash))
        first = exports.archived[0] if exports.archived else exports.row
        key, row = exports.key, exports.row
        for one_row in dict.fromkeys((first, row)):
            if other := unconfirmed_table(one_row, plan.table, options):
                return Skip(Status.REFUSED, other)
        if key.increment and (held := self.ledger.holder(key.hash)):
            text = f"an export of this partition is in progress: {held.owner}"
            return Skip(Status.IN_PROGRESS, text)
        if mark := unsettled_mark(row, self.state):
            text = f"it landed in snapshot {mark.snapshot_id}; the next run notes it in the ledger"
            return Skip(Status.ALREADY_EXPORTED, text)
        if not parts and (row is None or row.done is None) and not exports.archived:
            return None
        content = content_of(plan.table, parts) if parts else None
        if other := self.others.refusal(
            first, one.value, options, self._held, content=content, tables=self.tables
        ):
            return Skip(Status.REFUSED, other)
        in_main = holding(row, self.state, key.hash, self.table)
        found = tuple(ArchivedExport(each, self._held(each)) for each in exports.archived)
        archived = ArchivedExports.of(
            found, content, lambda: self.source.detached_parts(plan.table.name, one)
        )
        decision = decide(row, content, options, in_main, now, archived if found else None)
        if self.state.tree:
            decision = decide_in_tree(decision, row, content, in_main, options)
        if isinstance(decision, Skip):
            return decision
        if why := later_in_main(self.ledger.read, row, self._held):
            return Skip(Status.REFUSED, why)
        compared = not isinstance(decision, Resume) and not options.force
        may_be_equal = content is not None and parts_may_be_equal(row, in_main, content)
        added = _added(decision, row, content, in_main, options)
        return _Allowed(
            key,
            in_main,
            decision,
            tuple(one.held for one in found),
            may_be_equal=compared and may_be_equal,
            added=frozenset(part.name for part in added),
        )

    def _held(self, row: Row) -> Holding:
        return holding(row, self.state, row.key.hash, self.table)

    def partition(self, plan: TablePlan, one: PartitionId) -> tuple[str | None, ...] | None:
        """Return the Iceberg values of a source partition, None if it has no rows.

        Raises:
            RefusedError: its rows belong to several Iceberg partitions.
            SourceError: the source does not answer.
        """
        probed = self.source.probe(plan.table.name, one, plan.probes)
        if probed is None:
            return None
        values = partition_values(plan.spec, plan.all_columns, probed, one)
        texts = value_texts(plan.spec, plan.all_columns, values)
        return in_spec(table_of(self.state).spec(), texts)

    def refuse_alongside(
        self, plan: TablePlan, one: PartitionId, allowed: _Allowed, options: ExportOptions
    ) -> None:
        """Refuse what the export refuses because of files of other writers.

        Raises:
            RefusedError: files of other writers may have the rows of the partition.
        """
        if not self.has_others or (options.is_of_statement and not options.attaches):
            return
        if (partition := self.partition(plan, one)) is not None:
            own = OwnKeys(self.ledger, self.state.layout.table_uuid)
            alongside = Alongside(Direct(), self.table, self.ledger, own)
            key, held = allowed.key, allowed.held
            change, archived = options.change, allowed.archived
            alongside.refuse(self.state, partition, key, held, change, archived)

    def leaving(self, plan: TablePlan, one: PartitionId, allowed: _Allowed) -> Leaving:
        """Return all files of the lake partition that a source partition would replace.

        Raises:
            RefusedError: the source partition has no rows, or some files must not be removed.
        """
        partition = self.partition(plan, one)
        if partition is None:
            raise no_lake_partition()
        own = OwnKeys(self.ledger, self.state.layout.table_uuid)
        whole = WholePartitions(Direct(), self.table, self.ledger, own, self.storage)
        return whole.leaving(self.state, allowed.key.hash, partition, allowed.held)


def _existing(
    looked_at: LookedAt, source: Source, ledger: Ledger, storage: Callable[[str], Storage]
) -> _Existing | None:
    if looked_at.existing is None:
        return None
    table, state = looked_at.existing.table, looked_at.existing.state
    uuid = state.layout.table_uuid
    rows = tuple(ledger.rows())
    others = same_name_exports(looked_at.plan.table, uuid, lambda: rows)
    known = {row.key.hash for row in rows if row.key.destination == uuid}
    # The commit files of a tree do not name files of other writers.
    has_others = bool(state.tree) or any(
        key_in(path) not in known for path in table.paths_in_main(state)
    )
    tables = SourceTables(Direct(), source)
    return _Existing(table, state, ledger, storage, others, source, tables, has_others)


def _forecasts(
    request: ExportRequest,
    plan: TablePlan,
    source: Source,
    found: _Existing | None,
    ids: tuple[PartitionId, ...],
    *,
    now: int,
    slots: int,
) -> Iterator[Forecast]:
    refusals = source.refusals(plan.table.name, ids) if ids else {}
    copied = source.copied_to(plan.table.name) if ids else {}
    for one in ids:
        parts = source.parts(plan.table.name, one)
        parts = tuple(replace(part, disk=copied.get(one, part.disk)) for part in parts)
        decision = None
        if found is not None:
            decide = partial(found.decide, plan, one, parts, request.options, now)
            decision = _or_refusal(decide)
        if isinstance(decision, Skip):
            yield Forecast(one.value, decision.status.value, decision.message, rows=_rows(parts))
        elif not parts and decision is not None:
            rows = counted(decision.held.rows, "row")
            text = f"the source partition no longer exists: would remove {rows} from main"
            left_rows, left_bytes = decision.held.rows, leaving_of(decision.held).bytes
            yield Forecast(one.value, REPLACE, text, left_rows=left_rows, left_bytes=left_bytes)
        elif not parts:
            yield Forecast(one.value, Status.EMPTY.value, "its parts hold no rows")
        elif one in refusals:
            text = refusals[one].message
            yield Forecast(one.value, Status.REFUSED.value, text, rows=_rows(parts))
        elif decision is not None and isinstance(decision.how, CompareRows):
            refused = decision.how.refused
            text = (
                f"unless the rows, which {Option.CHECK_ROWS} compares, are the same: "
                f"{refused.message}"
            )
            yield Forecast(one.value, refused.status.value, text, rows=_rows(parts))
        else:
            yield _of_parts(request, plan, found, decision, parts, slots)


def _of_parts(
    request: ExportRequest,
    plan: TablePlan,
    found: _Existing | None,
    decision: _Allowed | None,
    parts: tuple[Part, ...],
    slots: int,
) -> Forecast:
    """Return the forecast of an export that would write rows of these parts of a partition."""
    one, options = parts[0].partition_id, request.options
    if found is None or decision is None:
        return forecast_parts(request, plan, one, parts, slots)
    written = tuple(part for part in parts if part.name in decision.added) or parts
    made = forecast_parts(request, plan, one, written, slots)
    held, note = decision.held, late_note(decision.key, decision.archived)
    if decision.added:
        added = added_note(len(written), made.rows, held.rows)
        note = "; ".join(filter(None, (note, added)))
    made = replace(made, message=note)
    if options.replace_partition:
        return _whole(found, plan, made, decision, options.action)
    if others := _refused_alongside(found, plan, made, decision, options):
        return others
    if decision.added or not held.files:
        return made
    made = _replacing(made, leaving_of(held))
    return _perhaps_equal(made, options) if decision.may_be_equal else made


def _added(
    decision: Proceed,
    row: Row | None,
    content: Content | None,
    held: Holding,
    options: ExportOptions,
) -> tuple[ExportedPart, ...]:
    """Return the parts to which an export is limited; one that was begun so continues so."""
    if content is None:
        return ()
    begun = isinstance(decision, Resume) and not options.force
    if begun and row is not None:
        options = replace(options, incremental=bool(row.claim.stays))
    return new_parts(row, content, held, options)


def _or_refusal(decide: Callable[[], Skip | _Allowed | None]) -> Skip | _Allowed | None:
    """Return the decision on a partition, or its refusal if main cannot be read for it."""
    try:
        return decide()
    except UnsupportedError as error:
        return Skip(Status.REFUSED, error.message)


def _perhaps_equal(made: Forecast, options: ExportOptions) -> Forecast:
    """Return a replacement with the note that its rows may be the same."""
    compared = f"unless the rows, which {Option.CHECK_ROWS} compares first, are the same"
    text = compared if options.check_rows else MAY_BE_EQUAL
    return replace(made, message=f"{made.message}; {text}", may_be_equal=True)


def _refused_alongside(
    found: _Existing | None,
    plan: TablePlan,
    made: Forecast,
    allowed: _Allowed | None,
    options: ExportOptions,
) -> Forecast | None:
    """Return the refusal of an export because of files of other writers, None for none."""
    if found is None or allowed is None:
        return None
    try:
        found.refuse_alongside(plan, PartitionId(made.partition_id), allowed, options)
    except RefusedError as error:
        text = error.during(options.action).message
        return Forecast(made.partition_id, Status.REFUSED.value, text, rows=made.rows)
    return None


def _whole(
    found: _Existing,
    plan: TablePlan,
    made: Forecast,
    allowed: _Allowed,
    action: Action,
) -> Forecast:
    """Return the forecast with the files that leave main if the lake partition is replaced."""
    one = PartitionId(made.partition_id)
    try:
        leaving = found.leaving(plan, one, allowed)
    except RefusedError as error:
        text = error.during(action).message
        return Forecast(made.partition_id, Status.REFUSED.value, text, rows=made.rows)
    text = (
        f"would remove {counted(len(leaving.paths), 'file')} with {counted(leaving.rows, 'row')} "
        f"from main, {leaving.foreign_files} of them with {counted(leaving.foreign_rows, 'row')} "
        "that other writers wrote"
    )
    if not leaving.paths:
        return replace(made, action=EXPORT, message=text)
    return replace(_replacing(made, leaving), message=text)


def _replacing(made: Forecast, leaving: Leaving) -> Forecast:
    """Return the forecast with the rows and bytes that would leave main."""
    text = f"would remove {counted(leaving.rows, 'row')} from main, and add {made.rows:,}"
    text = "; ".join(filter(None, (text, made.message)))
    return replace(
        made, action=REPLACE, message=text, left_rows=leaving.rows, left_bytes=leaving.bytes
    )


def forecast_parts(
    request: ExportRequest, plan: TablePlan, one: PartitionId, parts: tuple[Part, ...], slots: int
) -> Forecast:
    """Return the forecast of an export of these parts: its files, rows and bytes."""
    frozen = FrozenPartition(one, tuple(FrozenPart(p, p.name, p.rows, p.disk) for p in parts), ())
    cut = slices(
        frozen,
        _NO_TARGET,
        fmt=request.format,
        bytes_ratio=1.0,
        columns=len(plan.columns.columns),
        slots=slots,
    )
    disks: dict[str, int] = {}
    for part in parts:
        disks[part.disk] = disks.get(part.disk, 0) + part.bytes_on_disk
    return Forecast(
        partition_id=one.value,
        action=EXPORT,
        files=len(cut),
        rows=_rows(parts),
        bytes=sum(disks.values()),
        disks=tuple(sorted(disks.items())),
    )


def _rows(parts: tuple[Part, ...]) -> int:
    return sum(p.rows for p in parts)
