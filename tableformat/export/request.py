"""Holds the options of an export, selects its partitions, and limits the work of an application.

`ExportOptions` are the options, and `check_options` refuses those that exclude each other.
`select` selects one partition by id, one by expression, or all that a filter keeps.
`ReplaceLimit` counts the partitions that the exports of a command replace.

ClickHouse has the limits as server settings, `background_move_pool_size` and
`max_exports_bandwidth_for_server`. Here they apply to one application, the process that exports
(docs/operating/limits.md). All its exports share one `Allotment`: each takes a share
before its tasks start and returns it after they end. A share says how many slices are written at
the same time and how many bytes per second each slice may read and write. The rate is divided by
the number of slices, so the total never exceeds the limit, on any number of hosts. On each host the
applications of a user share a bandwidth that they name alike (`catalog/rate_limit.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from tableformat.committer import (
    Append,
    AppendAlongside,
    Attach,
    MainChange,
    ReplaceOwn,
    ReplacePartition,
)
from tableformat.errors import Action, Advice, NotFoundError, Unable, UsageError
from tableformat.export.options import MAX_SLICES, LateRows
from tableformat.export.slices import Share
from tableformat.ledger import MANIFEST_TTL, StatementKind
from tableformat.mergetree.compatibility import time_column
from tableformat.mergetree.expression import render_expression
from tableformat.mergetree.summary_filter import SummaryFilter
from tableformat.mergetree.table import MergeTreeTable, NoTimes, PartitionSummary
from tableformat.messages import Command, Option
from tableformat.names import PartitionId
from tableformat.quantities import counted
from tableformat.source import Source

__all__ = [
    "AllPartitions",
    "Allotment",
    "ByExpression",
    "ById",
    "ExportOptions",
    "ExportStatement",
    "Limits",
    "ReplaceLimit",
    "Selection",
    "check_options",
    "in_tree",
    "no_partition",
    "select",
]

_SHOWN: Final = 5


ExportStatement = Literal[StatementKind.ATTACH_FROM, StatementKind.REPLACE_FROM]
"""A statement on a lake table that exports partitions of a ClickHouse table."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The options of an export, from the user or from a statement on the lake table.

    * `force`: replace an earlier export, even with fewer rows; with `allow_empty` even with none.
    * `manifest_ttl`: the manifest TTL of the new ledger record, in seconds; 0 is for ever.
    * `overwrite_file_if_exists`: make a first export although main has files of other writers in
      the partition.
    * `replace_partition`, with `force`: replace all files in the lake partition, of any writer.
    * `same_table`: the source is the exported table, although its Keeper node is another one.
    * `same_as`: the identity under which the source table was exported before.
    * `shards`: the number of tables with this name that hold rows of the same partitions.
    * `supersedes`, with `force`: replace files in a tree of Hive directories. Readers that list
      the directories see old and new files for a while.
    * `of_statement`: the export is ATTACH or REPLACE PARTITION … FROM the table; None for neither.
    * `check_rows`: if the parts of a partition changed, compare its rows with the exported rows
      before anything is written. With `compares_only` nothing is written afterwards either.
    * `max_replace`: the most exported partitions that the command may replace; None for no limit.
    * `late_rows`: what happens to rows that arrive in a partition after it was archived.
    * `incremental`: where a partition only got new parts, write these, and keep the exported files.
    * `action`: the verb of the command, for its messages; nothing is decided by it.
    """

    force: bool = False
    manifest_ttl: int = MANIFEST_TTL
    allow_empty: bool = False
    overwrite_file_if_exists: bool = False
    replace_partition: bool = False
    same_table: bool = False
    same_as: str = ""
    shards: int = 1
    supersedes: bool = False
    of_statement: ExportStatement | None = None
    check_rows: bool = False
    compares_only: bool = False
    max_replace: int | None = None
    late_rows: LateRows = LateRows.TABLE
    incremental: bool = False
    action: Action = Action.EXPORT

    @property
    def is_of_statement(self) -> bool:
        """Whether a statement on the lake table exports."""
        return self.of_statement is not None

    @property
    def attaches(self) -> bool:
        """Whether the statement is ATTACH, which removes no row."""
        return self.of_statement is StatementKind.ATTACH_FROM

    @property
    def change(self) -> MainChange:
        """How the files of a partition enter main."""
        if self.attaches:
            return Attach()
        if self.replace_partition:
            return ReplacePartition()
        if self.force:
            return ReplaceOwn(alongside=self.overwrite_file_if_exists)
        return AppendAlongside() if self.overwrite_file_if_exists else Append()


def check_options(options: ExportOptions) -> ExportOptions:
    """Return the options if they can be combined.

    Raises:
        UsageError: two options exclude each other, or one requires another.
    """
    if options.allow_empty and not options.force:
        message = (
            f"Cannot use {Option.ALLOW_EMPTY} alone: it only adds to {Option.FORCE}. Give both."
        )
        raise UsageError(message)
    if options.replace_partition and not options.force:
        message = (
            f"Cannot use {Option.REPLACE_PARTITION} alone: it says what {Option.FORCE} replaces. "
            "Give both, or neither for an export that leaves files of others where they are."
        )
        raise UsageError(message)
    if options.replace_partition and options.overwrite_file_if_exists:
        message = (
            f"Cannot use {Option.REPLACE_PARTITION} with {Option.OVERWRITE_FILE_IF_EXISTS}: the "
            "one removes files of others, the other keeps them. Give one of them."
        )
        raise UsageError(message)
    if options.check_rows and options.force:
        message = (
            f"Cannot use {Option.CHECK_ROWS} with {Option.FORCE}: the one exports only what has "
            "other rows, the other exports everything again. Give one of them."
        )
        raise UsageError(message)
    if options.incremental and options.force:
        message = (
            f"Cannot use {Option.INCREMENTAL} with {Option.FORCE}: the one exports only new parts, "
            "the other exports everything again. Give one of them."
        )
        raise UsageError(message)
    return options


def in_tree(options: ExportOptions) -> ExportOptions:
    """Return the options for a tree of Hive directories.

    An export never removes files of other writers from a tree, so the only files that it can
    replace in a partition are exported ones.

    Raises:
        UsageError: a tree has no export of new parts alone.
    """
    if options.incremental:
        message = (
            f"Cannot use {Option.INCREMENTAL} for a tree of Hive directories: a partition of it "
            "is exported as a whole. Leave it out, or export to an Iceberg table."
        )
        raise UsageError(message)
    return replace(options, replace_partition=False, supersedes=options.replace_partition)


@dataclass(frozen=True, slots=True)
class ById:
    """The partition with this id."""

    partition_id: PartitionId


@dataclass(frozen=True, slots=True)
class ByExpression:
    """The partition that ClickHouse finds for an expression, e.g. `202401` or `tuple('x', 3)`."""

    text: str


@dataclass(frozen=True, slots=True)
class AllPartitions:
    """Every partition with active parts that the filter keeps; never one whose source is gone."""

    where: SummaryFilter | None = None


Selection = ById | ByExpression | AllPartitions


def select(
    selection: Selection,
    table: MergeTreeTable,
    source: Source,
    *,
    was_exported: Callable[[PartitionId], bool],
    none: Callable[[str], None],
) -> tuple[PartitionId, ...]:
    """Return the ids of the selected partitions, in the order of the source.

    Args:
        selection: the selection of the user.
        table: the source table.
        source: lists its partitions.
        was_exported: whether the ledger has an export of an id. Such an id may be selected after
            its source partition was dropped (RQ…Restrictions.SourcePartition).
        none: called with the reason if no partition is selected.

    Raises:
        UsageError: the filter needs times that are not known.
        NotFoundError: the id has neither active parts nor an export.
    """
    match selection:
        case ByExpression(text):
            return (source.find_partition(table, text),)
        case AllPartitions(where):
            found = source.partitions(table.name)
            if where is not None and where.reads_times:
                found = source.with_times(table, found)
            chosen = tuple(p.partition_id for p in found if where is None or where.matches(p))
            if not chosen:
                none(no_partition(table, found, where))
            return chosen
        case ById(partition_id):
            known = [p.partition_id for p in source.partitions(table.name)]
            if partition_id in known or was_exported(partition_id):
                return (partition_id,)
            raise _unknown(partition_id, table, known)


def no_partition(
    table: MergeTreeTable, found: tuple[PartitionSummary, ...], where: SummaryFilter | None
) -> str:
    """Return the message that no partition is selected, with the partitions that exist."""
    if not found or where is None:
        return f"no partition is selected: {table.name} has no partition with active parts"
    ids = [str(one.partition_id) for one in found]
    there = ids[0] if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"
    times = [t for one in found for t in (one.min_time, one.max_time) if t]
    column = time_column(table)
    of_time = (
        f", {column.name} from {min(times)} to {max(times)}"
        if where.reads_times and times and not isinstance(column, NoTimes)
        else ""
    )
    return (
        f"no partition is selected: of {counted(len(ids), 'partition')} of {table.name} "
        f"({there}{of_time}) "
        f"none fulfils {render_expression(where.expression)}"
    )


def _unknown(
    partition_id: PartitionId, table: MergeTreeTable, known: list[PartitionId]
) -> NotFoundError:
    shown = ", ".join(str(p) for p in known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    has = (
        f"It has {counted(len(known), 'partition')}: {shown}."
        if known
        else "It has no partition with active parts."
    )
    return NotFoundError(
        Unable.of(
            f"partition {partition_id} of {table.name}",
            f"it has no active parts and was never exported. {has} List them with "
            f"{Command.PARTITIONS.on(str(table.name))}.",
        ),
        advice=frozenset({Advice.LIST_PARTITIONS}),
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an application, as one export has them.

    `bandwidth` is bytes per second, 0 for no limit. `slices` is the most slices, at least 1, that
    all exports together write at the same time. With `in_turn` this export writes one slice after
    the other, and reads each completely before it writes it (RQ…ParallelFormatting).
    """

    bandwidth: int = 0
    slices: int = MAX_SLICES
    in_turn: bool = False

    def __post_init__(self) -> None:
        """Check the limits.

        Raises:
            UsageError: `slices` is below 1, or `bandwidth` is negative.
        """
        if self.slices < 1:
            message = (
                f"Cannot write {self.slices} files at a time (max_slices, "
                "background_move_pool_size): nothing would ever be exported. Give 1 or more."
            )
            raise UsageError(message)
        if self.bandwidth < 0:
            message = (
                f"Cannot write {self.bandwidth} bytes per second (max_bandwidth, "
                "max_exports_bandwidth_for_server). Give 1 or more, or 0 for no limit."
            )
            raise UsageError(message)

    def at_once(self, slots: int) -> int:
        """Return how many slices this export may write at a time with `slots` of Spark."""
        return 1 if self.in_turn else min(slots, self.slices)


class Allotment:
    """Divides the limits of an application among its running exports; thread-safe."""

    def __init__(self) -> None:
        """Start with no share taken."""
        self._changed = threading.Condition()
        self._slices = 0
        self._rate = 0

    @property
    def slices(self) -> int:
        """The number of slices in all shares that are taken."""
        return self._slices

    def take(self, limits: Limits, wanted: int) -> Share | None:
        """Take a share of the free capacity; return None if nothing is free.

        An export with a bandwidth takes all of it that is free, so that such exports run one after
        the other.

        Args:
            limits: the limits of this export.
            wanted: how many slices it would write at a time.
        """
        with self._changed:
            number = min(wanted, limits.slices - self._slices)
            rate = limits.bandwidth - self._rate if limits.bandwidth else 0
            if limits.bandwidth:
                number = min(number, rate)
            if number < 1:
                return None
            share = Share(number, rate, limits.in_turn, limits.bandwidth)
            self._slices += number
            self._rate += share.bandwidth
            return share

    def give_back(self, share: Share) -> None:
        """Return a share."""
        with self._changed:
            self._slices -= share.slices
            self._rate -= share.bandwidth
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait until a share is returned, at most for so many seconds."""
        with self._changed:
            self._changed.wait(seconds)


class ReplaceLimit:
    """Counts the exported partitions that the exports of one command replace, up to a limit.

    The plan is checked before the first export (`dry_run.check_replacements`). This count holds the
    limit also if more partitions change while the command runs.
    """

    def __init__(self, most: int) -> None:
        """Start with no partition; `most` is the limit."""
        self.most = most
        self._replaced: set[str] = set()

    def allows(self, partition_id: str) -> bool:
        """Count a partition that is to be replaced; return whether the limit allows it.

        A partition counts once, also if several shards have it or another host continues.
        """
        if partition_id not in self._replaced and len(self._replaced) >= self.most:
            return False
        self._replaced.add(partition_id)
        return True
