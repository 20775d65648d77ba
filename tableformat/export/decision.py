"""Decides whether a partition is exported, and which outcome it has otherwise; performs no I/O.

The caller holds the lease and passes the ledger row, the content of the source partition, and the
state of the key in one loaded table state. If the result is not `Skip`, the caller claims the key:
a new epoch, by compare-and-set.

* `decide` decides for any request, `decide_export` for an export without a statement.
* An archived export is never replaced, for any caller (`tableformat/export/archived.py`). Rows that
  arrive later are an increment.
* ATTACH and REPLACE PARTITION … FROM a ClickHouse table are exports (decision 0013). The time to
  live of the last export never refuses them. They bring the rows that the source has when they
  run. ATTACH never removes a row; REPLACE leaves no other row in the partition.
* `new_parts` limits an export to the parts that are new, while the files of the other parts stay
  (decision 0026). The claim names these files, and `check_stays` holds every commit to them.
* `claimed` and `settled` compute the ledger row after a claim and after an export landed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tableformat.committer import FileInMain
from tableformat.errors import RefusedError
from tableformat.export.archived import ArchivedExports, has_it, lacks_archived
from tableformat.export.content import (
    Content,
    added_parts,
    how_it_differs,
    is_merged,
    knows_source,
)
from tableformat.export.main_state import Holding, Kind
from tableformat.export.outcome import Status
from tableformat.export.request import ExportOptions
from tableformat.file_names import exported_by
from tableformat.ledger import (
    Archived,
    Claim,
    ExportedPart,
    Held,
    Key,
    Landed,
    MoveIntent,
    Record,
    Row,
    State,
    Stop,
    last_export,
)
from tableformat.mergetree.table import KeeperNode, known_by_name
from tableformat.messages import Command, Option, together
from tableformat.quantities import counted

__all__ = [
    "MAY_BE_EQUAL",
    "Begin",
    "CompareRows",
    "Proceed",
    "RemoveRows",
    "Resume",
    "Skip",
    "SourceGuards",
    "added_note",
    "check_stays",
    "claimed",
    "decide",
    "decide_export",
    "decide_in_tree",
    "has_exactly",
    "may_be_equal",
    "new_parts",
    "not_late",
    "one_too_many",
    "parts_may_be_equal",
    "settled",
    "shrinks",
    "source_gone",
    "unfinished",
]

MAY_BE_EQUAL: Final = (
    f"its parts changed, its rows may be the same: {Option.CHECK_ROWS} compares them first"
)
"""The note on a partition that is exported again although only its parts are known to differ."""


@dataclass(frozen=True, slots=True)
class Skip:
    """The partition is not exported, and nothing is changed; the user gets status and message.

    `left` are the files that a statement left of the export in main, if they are not what landed.
    `of` is the row of the export that the outcome is about, None for the row of the decision.
    """

    status: Status
    message: str
    left: tuple[FileInMain, ...] | None = None
    of: Row | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """The partition is exported from the beginning."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The partition is exported; the export may resume the unfinished claim of its row."""

    row: Row


@dataclass(frozen=True, slots=True)
class RemoveRows:
    """The source partition was dropped, and the user wants its rows removed from the lake."""


@dataclass(frozen=True, slots=True)
class CompareRows:
    """The job only takes a snapshot and compares its rows with the exported rows.

    `refused` is the outcome if they differ.
    """

    refused: Skip


Proceed = Begin | Resume | RemoveRows | CompareRows
"""How the job continues with a partition that is not skipped."""


def decide_export(
    row: Row | None, content: Content | None, options: ExportOptions, held: Holding, now: int
) -> Skip | Proceed:
    """Return whether the partition is exported, and otherwise its outcome.

    Args:
        row: the key's row, None when it was never exported.
        content: the content of the source partition, None if it has no active part any more.
        options: of the export.
        held: the state of the key in main.
        now: milliseconds since 1970.
    """
    if row is not None and row.move is not None:
        return Skip(Status.REFUSED, unfinished(row, row.move))
    if row is None or row.done is None:
        return _first(row, held, options)
    done = row.done
    if content is None:
        empties = options.force and options.allow_empty and not options.replace_partition
        if empties and held.is_certain and held.rows:
            return RemoveRows()
        return source_gone(done, held)
    if options.force:
        return _begin(row) if held.is_known or options.replace_partition else _uncertain(row, held)
    same = content.fingerprint == done.landed.fingerprint
    # By its blocks alone: who asks for a comparison of rows gets one, where blocks may return.
    is_compared = options.check_rows and content.counts_again
    merged = not same and not is_compared and is_merged(done, content)
    if same or merged:
        return _same(row, done, held, now, merged=merged)
    return _other(row, done, content, held, now, options)


def may_be_equal(row: Row | None, held: Holding, rows: int, most: int | None = None) -> bool:
    """Whether the rows of a partition may equal its exported rows although its parts changed.

    Args:
        row: the row of the partition, None if it was never exported.
        held: the state of its key in main.
        rows: the number of its rows now.
        most: if `rows` includes rows that lightweight deletes hide, the rows of the exported parts;
            otherwise None.
    """
    if row is None or row.done is None or not held.holds(row.done.landed):
        return False
    exported = row.done.landed.rows
    return exported <= rows <= (exported if most is None else most)


def parts_may_be_equal(row: Row | None, held: Holding, content: Content) -> bool:
    """Whether changed parts may have the exported rows; a merge removes deleted rows."""
    most = row.done.source_rows if row is not None and row.done is not None else None
    return may_be_equal(row, held, content.rows, most)


def new_parts(
    row: Row | None, content: Content, held: Holding, options: ExportOptions
) -> tuple[ExportedPart, ...]:
    """Return the parts that are exported while the files of the others stay; empty for all parts.

    Only with the option `incremental`, if the partition still has every exported part unmerged, and
    main has exactly the files of that export. Everything else is replaced, as without the option.

    Args:
        row: the row of the partition, None if it was never exported.
        content: the content of the source partition.
        held: the state of its key in main.
        options: of the export.
    """
    limited = options.incremental and not (options.force or options.is_of_statement)
    if row is None or row.done is None or not limited:
        return ()
    return added_parts(row.done, content) if has_exactly(held, row.done.landed.left) else ()


def has_exactly(held: Holding, left: tuple[Held, ...] | None) -> bool:
    """Whether main has exactly these files of a key, each as an export wrote it."""
    same = [one.left and frozenset(one.left) for one in held.landed] == [frozenset(left or ())]
    return held.kind is Kind.WHOLE and same and all(exported_by(f.path) for f in held.files)


def check_stays(stays: tuple[Held, ...], held: Holding) -> None:
    """Check that main still has exactly the files next to which new parts are to land.

    Raises:
        RefusedError: it has others; the next run exports the partition as a whole.
    """
    if not has_exactly(held, stays):
        message = (
            "Cannot commit: only the new parts of the partition were written, and main does not "
            f"have exactly the files of the others any more. {held.text} Nothing was changed. Run "
            "it again, which exports the partition as a whole if that is safe."
        )
        raise RefusedError(message)


def added_note(parts: int, rows: int, stays: int) -> str:
    """Return the note that an export is limited to new parts; `stays` counts the other rows."""
    return (
        f"only its {counted(parts, 'new part')} with {counted(rows, 'row')}: the {stays:,} "
        "exported before stay"
    )


def _first(row: Row | None, held: Holding, options: ExportOptions) -> Skip | Proceed:
    if held.is_certain or (options.force and options.replace_partition):
        return _begin(row)
    if row is None:
        return Skip(Status.REFUSED, f"{held.text} Use the ledger that exported it.")
    return _uncertain(row, held)


def _begin(row: Row | None) -> Begin | Resume:
    """Resume an export that began and neither landed nor was given up; otherwise begin one."""
    begun = row is not None and row.state is State.RUNNING and row.claim.kind is None
    return Resume(row) if row is not None and begun else Begin()


def _uncertain(row: Row | None, held: Holding) -> Skip:
    if held.kind is Kind.MIXED and row is not None and (row.archived or row.key.increment):
        return Skip(
            Status.REFUSED, f"{held.text} Some of these are archived, and no export replaces them."
        )
    if held.kind is Kind.MIXED:
        whole = together(Option.FORCE, Option.REPLACE_PARTITION)
        way = f"Use {whole} to replace all rows of the lake partition, also those of other writers."
        return Skip(Status.REFUSED, f"{held.text} {way}")
    return Skip(Status.REFUSED, f"{held.text} {_look_first(row)}")


def source_gone(done: Record, held: Holding) -> Skip:
    """Return the outcome of an exported partition without source parts; its lake rows stay."""
    status = Status.ALREADY_EXPORTED if held.has_rows_of(done.landed) else Status.REFUSED
    return Skip(status, f"the source partition no longer exists; {held.about(done.landed)}")


def _same(row: Row, done: Record, held: Holding, now: int, *, merged: bool) -> Skip | Proceed:
    if not held.has_rows_of(done.landed):
        if held.edited:
            status = Status.ALREADY_EXPORTED if done.refuses(now) else Status.UNCHANGED
            text = f"the source is as it was exported. {held.text}"
            return Skip(status, text, held.files)
        if held.kind is Kind.GONE and not done.refuses(now):
            return _begin(row)
        return Skip(Status.REFUSED, f"{held.about(done.landed)} {_way_round(row, held)}")
    since = held.text if held.kind is not Kind.WHOLE else _where(done)
    if done.refuses(now):
        return Skip(Status.ALREADY_EXPORTED, since)
    return Skip(Status.UNCHANGED, f"its parts were merged; {since}" if merged else since)


def _where(done: Record) -> str:
    landed = done.landed
    return f"{counted(landed.rows, 'row')} in the lake, snapshot {landed.snapshot_id}."


def _way_round(row: Row, held: Holding) -> str:
    if held.edited:
        return f"Use {Option.FORCE} to export it again, which undoes that."
    if held.kind is Kind.GONE:
        return f"Export it again after its manifest TTL, or with {Option.FORCE}."
    if held.is_known:
        return f"Use {Option.FORCE} to export it again."
    return _look_first(row)


def _look_first(row: Row | None) -> str:
    """Return the advice where it is not known which rows main has."""
    if row is not None and (row.archived is not None or row.key.increment):
        return (
            "Exporting it again could double rows, or undo what was done to them. Do not drop the "
            "partition: main has its archived rows, too. REPLACE PARTITION FROM the snapshot of "
            "this table before the change returns what main had then. Run it again after "
            "that."
        )
    whole = together(Option.FORCE, Option.REPLACE_PARTITION)
    return (
        "Exporting it again could double rows, or undo what was done to them. A dry run with "
        f"{whole} shows how many rows would leave the lake partition, and how many would come. "
        "After DROP PARTITION, which takes all rows of the lake partition out of main, also those "
        "of others, it can be exported again."
    )


def _other(
    row: Row, done: Record, content: Content, held: Holding, now: int, options: ExportOptions
) -> Skip | Proceed:
    text = (
        "the source partition differs from what was exported in snapshot "
        f"{done.landed.snapshot_id}: {how_it_differs(done, content)}"
    )
    if not knows_source(done) and not held.is_certain:
        # The manifest TTL says nothing, because no wait makes this known.
        refused = _uncertain(row, held)
        return replace(refused, message=f"{how_it_differs(done, content)}. {refused.message}")
    if part := _recreated(row.key, done, content):
        return Skip(
            Status.REFUSED,
            f"{text}. Its part {part} was another one then, and this table is identified only by "
            f"its name ({row.key.source}): it was created again, or another table was renamed to "
            f"it. Export it into another lake table, or use {Option.FORCE} to replace what was "
            "exported.",
        )
    if done.refuses(now):
        if done.ttl == 0:
            why = (
                "it was exported with the manifest TTL 0, never again. Use "
                f"{Option.FORCE} to replace it."
            )
        else:
            why = (
                f"the export is younger than its manifest TTL of {done.ttl} s. Wait, or use "
                f"{Option.FORCE} to replace it."
            )
        return _compared(Skip(Status.REFUSED, f"{text}, and {why}"), row, content, held, options)
    if held.edited or held.kind in (Kind.LEFT, Kind.ELSEWHERE):
        return Skip(Status.REFUSED, f"{text}. {held.text} {_way_round(row, held)}")
    if not held.is_certain:
        return _uncertain(row, held)
    if content.rows < held.rows:
        return Skip(Status.REFUSED, shrinks(held.rows, content.rows))
    return _begin(row)


def _compared(
    refused: Skip, row: Row | None, content: Content | None, held: Holding, options: ExportOptions
) -> Skip | Proceed:
    """Defer a refusal to replace rows until they are compared, if the user asks for that."""
    if content is None or not options.check_rows or not parts_may_be_equal(row, held, content):
        return refused
    return CompareRows(refused)


def _only_compared(
    decision: Skip | Proceed, row: Row | None, content: Content | None, held: Holding
) -> Skip | Proceed:
    """Return the decision of a run that compares rows and exports nothing."""
    if isinstance(decision, Skip | CompareRows):
        return decision
    differs = Skip(
        Status.REFUSED, "its rows are not those that were exported: it would be replaced"
    )
    begins = not isinstance(decision, Resume)
    is_compared = begins and content is not None and parts_may_be_equal(row, held, content)
    return CompareRows(differs) if is_compared else differs


def one_too_many(most: int) -> str:
    """Return the message that a partition would be replaced beyond the limit of the command."""
    return (
        "it changed after the run was planned, and would be replaced as one more than "
        f"{Option.MAX_REPLACE} allows ({most}). Run it again"
    )


def _recreated(key: Key, done: Record, content: Content) -> str:
    """Return a part that proves that the table was recreated under its name, or ''.

    It applies to tables that are identified by their name only. In a recreated table block numbers
    start again, and no part is one of the exported parts.
    """
    if known_by_name(key.source) is None:
        return ""
    then = {p.name: p.hash_of_all_files for p in done.parts}
    now = {p.name: p.hash_of_all_files for p in content.parts}
    if not {*then.values()}.isdisjoint(now.values()):
        return ""
    return min((name for name in now if name in then), default="")


def decide_in_tree(
    decision: Skip | Proceed,
    row: Row | None,
    content: Content | None,
    held: Holding,
    options: ExportOptions,
) -> Skip | Proceed:
    """Refuse to replace files in a tree of Hive directories unless the user asked for that.

    One commit file moves its readers from the old files to the new ones. Nothing does that for
    readers that list directories (docs/decisions/0010-hive-destination.md).
    """
    if isinstance(decision, Skip) or options.supersedes or not held.files:
        return decision
    text = (
        f"the tree holds {counted(held.rows, 'row')} of it, and readers that list its directories "
        f"would see old and new rows until {Command.GC} removes the old files. Use "
        f"{together(Option.FORCE, Option.REPLACE_PARTITION)} to replace them anyway, or export to "
        "another tree, or to an Iceberg table"
    )
    refused = decision.refused if isinstance(decision, CompareRows) else Skip(Status.REFUSED, text)
    return _compared(refused, row, content, held, options)


def unfinished(row: Row, move: MoveIntent) -> str:
    """Return the message that a MOVE of the partition is unfinished, which blocks everything."""
    return (
        f"{row.claim.statement} was begun and is not finished: its rows may be in {move.table} "
        "already. Run that statement again, which finishes it or gives it up"
    )


def shrinks(before: int, after: int) -> str:
    """Return the message that a replacement would leave fewer rows, which requires --force."""
    used = together(Option.FORCE, *((Option.ALLOW_EMPTY,) if after == 0 else ()))
    return (
        f"main holds {counted(before, 'row')} of it, the source {after:,} now: replacing them "
        f"would lose {before - after:,}. Use {used} if they may be removed."
    )


@dataclass(frozen=True, slots=True)
class SourceGuards:
    """What tells the source table of a claim from others with its identity, as in `ledger.Row`."""

    keeper_node: KeeperNode | None = None
    server: str = ""
    division: str | None = None


_UNKNOWN: Final = SourceGuards()


def claimed(
    row: Row | None,
    key: Key,
    *,
    names: tuple[str, str],
    claim: Claim,
    ttl: int,
    now: int,
    guards: SourceGuards = _UNKNOWN,
) -> Row:
    """Return the row with a new claim.

    A claim that resumes the last transaction replaces its claim. Any other moves the last claim to
    `old`, given up if the row was. Where `guards` are unknown, the row keeps its own values.
    """
    source, destination = names
    if row is None:
        made = Row(key, source, destination, State.RUNNING, claim, now, now, ttl=ttl)
        return replace(
            made, keeper_node=guards.keeper_node, server=guards.server, division=guards.division
        )
    settled_before = {x.transaction_id for x in row.landed} | {claim.transaction_id}
    left = () if row.claim.transaction_id in settled_before else (row.claim,)
    behind = (*(c for c in row.old if c.transaction_id != claim.transaction_id), *left)
    if row.state in (State.KILLED, State.FAILED):
        behind = tuple(replace(c, given_up=True) for c in behind)
    return replace(
        row,
        destination_table=destination,
        state=State.RUNNING,
        claim=claim,
        updated=now,
        ttl=ttl,
        old=behind,
        last_error="",
        stop=None,
        keeper_node=guards.keeper_node or row.keeper_node,
        server=guards.server or row.server,
        division=row.division if guards.division is None else guards.division,
    )


def settled(row: Row, landed: Landed, claim: Claim, now: int) -> Row:
    """Return the row after an export or statement of it has landed (protocol step 8).

    A later claim moves to `old`, and the row keeps its epoch. A statement keeps the last record.
    """
    since = claim.archived_since
    was_killed = row.stop is Stop.QUERY_KILLED and row.claim.query_id == claim.query_id
    others = (c for c in (*row.old, row.claim) if c.transaction_id != landed.transaction_id)
    made = None if landed.kind is not None else _record(row, landed, claim, now)
    return replace(
        row.with_landed(landed),
        state=State.COMPLETED,
        claim=replace(claim, epoch=row.claim.epoch),
        done=made or row.done,
        changed=landed if made is None else None,
        rewritten=row.rewritten if made is None else None,
        old=tuple(others),
        archived=row.archived or (Archived(since) if since else None),
        updated=now,
        last_error="",
        stop=row.stop if was_killed else None,
    )


def _record(row: Row, landed: Landed, claim: Claim, now: int) -> Record:
    """Return the record of a landed export.

    Files that a statement rewrote count as the export's: the record keeps its begin and its query.
    """
    made = Record(landed, claim.parts, row.bytes_with(claim), now, row.ttl, columns=claim.columns)
    if claim.by_statement and row.done is not None:
        before = last_export(row)
        columns = row.done.columns
        return replace(made, begun=before.begun, query_id=before.query_id, columns=columns)
    return replace(made, begun=claim.begun, query_id=claim.query_id)


def decide(
    row: Row | None,
    content: Content | None,
    options: ExportOptions,
    held: Holding,
    now: int,
    archived: ArchivedExports | None = None,
) -> Skip | Proceed:
    """Return whether the partition is exported, and otherwise its outcome.

    Args:
        row: the row of the key that an export writes, None when it was never exported.
        content: the content of the source partition, None if it has no active part any more.
        options: of the export.
        held: the state of the key in main.
        now: milliseconds since 1970.
        archived: the archived exports of the partition; None if it has none.
    """
    if row is not None and row.move is not None:
        return Skip(Status.REFUSED, unfinished(row, row.move))
    if archived is not None:
        answer = _of_archived(archived, row, content, options)
        if answer is not None:
            return answer
    if not options.is_of_statement:
        decision = decide_export(row, content, options, held, now)
        return _only_compared(decision, row, content, held) if options.compares_only else decision
    if content is None:
        return Skip(Status.EMPTY, "the source has no part of it")
    # REPLACE also takes out the other rows of files that have those of the export.
    stays = options.attaches or held.kind is not Kind.MIXED
    if row is not None and stays and has_it(row, content, held):
        return Skip(Status.UNCHANGED, f"its rows are there already: {held.text}")
    if archived is not None:
        return Skip(Status.REFUSED, archived.why_refused(content))
    if options.attaches and (held.files or not held.is_known):
        return Skip(Status.REFUSED, there_twice(held))
    return _begin_same(row, content)


def _of_archived(
    archived: ArchivedExports, row: Row | None, content: Content | None, options: ExportOptions
) -> Skip | None:
    """Return the outcome that the archived exports of a partition determine, None if none does.

    None stands for an export of the key of `row`, or for its own outcome.
    """
    if content is None:
        return None if options.is_of_statement else _left(archived, row, options)
    if not options.force and (there := archived.has(content)) is not None:
        if options.is_of_statement:
            return Skip(Status.UNCHANGED, f"its rows are there already: {there.held.text}")
        if (lacks := lacks_archived(archived.exports)) is not None:
            text = (
                "main has the rows that the source has again, but lacks other archived rows of it"
            )
            return Skip(Status.REFUSED, f"{text}: {lacks.held.text}", of=lacks.row)
        text = _where(there.row.done) if there.row.done is not None else there.held.text
        return Skip(Status.ALREADY_EXPORTED, text, of=there.row)
    if options.is_of_statement or (row is not None and _is_of(row, content)):
        return None
    is_begun = row is not None and (row.done is not None or row.state is State.RUNNING)
    if not is_begun and not options.late_rows.appends:
        return Skip(Status.REFUSED, archived.why_refused(content))
    return not_late(archived, content, options)


def not_late(archived: ArchivedExports, content: Content, options: ExportOptions) -> Skip | None:
    """Return the refusal of an increment if the source may have archived rows again, else None."""
    why = archived.why_not_late(content, options.late_rows)
    return Skip(Status.REFUSED, why) if why else None


def _left(archived: ArchivedExports, row: Row | None, options: ExportOptions) -> Skip | None:
    """Return the outcome of an archived partition that the source does not have now."""
    if options.force:
        return Skip(Status.REFUSED, archived.why_refused(None))
    for one in archived.exports:
        done = one.row.done
        gone = source_gone(done, one.held) if done is not None else _uncertain(one.row, one.held)
        if gone.status is not Status.ALREADY_EXPORTED:
            return replace(gone, of=one.row)
    has_more = row is not None and (row.done is not None or row.state is State.RUNNING)
    return None if has_more else replace(gone, of=one.row)


def _is_of(row: Row, content: Content) -> bool:
    """Whether the last export of a row has the content of the source."""
    done = row.done
    return done is not None and (
        content.fingerprint == done.landed.fingerprint or is_merged(done, content)
    )


def there_twice(held: Holding) -> str:
    """Return the message that main may already have the rows to attach."""
    return (
        f"main has rows of this partition of the source already, and they could be there twice. "
        f"{held.text} Use REPLACE PARTITION, or DROP PARTITION first."
    )


def _begin_same(row: Row | None, content: Content) -> Begin | Resume:
    """Resume an unfinished export only if its snapshot has the source's current content."""
    found = _begin(row)
    if not isinstance(found, Resume):
        return found
    claim = found.row.claim
    same = claim.fingerprint == content.fingerprint or is_merged(claim, content)
    return found if same else Begin()
