"""The commit protocol on a real catalog: every name is a claim about what cannot happen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlparse

from pyiceberg.types import LongType

from catalog.iceberg.table import IcebergTable
from catalog.ledgers.memory import MemoryLedger
from tableformat.committer import (
    Commit,
    CommitOutcome,
    Committed,
    Conflicted,
    LakeTableState,
    NotSent,
    ReplaceOwn,
    Superseded,
    Unknown,
)
from tableformat.errors import RefusedError
from tableformat.export.commit import first_snapshot, settle_mark, unsettled_mark
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Key, Row, State
from tableformat.table_properties import LEDGER_PROPERTY
from tests.support.lake import (
    KEY,
    Meddling,
    claim,
    commit_of,
    commit_one,
    make_table,
    move_main,
    ports,
    receipt,
    rows_in_main,
)


def append_foreign(table: IcebergTable) -> None:
    """Append one file that no ledger knows, as another engine would."""
    other = MemoryLedger()
    row = claim(other, key=Key("foreign", "1", "x"))
    state = table.load()
    wanted = replace(commit_of(row, state, other), keys=())
    staged = table.stage(state, wanted)
    foreign = {k: v for k, v in state.properties.items() if k.startswith("mergeberg")}
    updates, requirements = cast("tuple[Any, Any]", staged.handle)
    table._catalog.commit_table(table_of(state), requirements, updates)
    assert {
        k: v for k, v in table.load().properties.items() if k.startswith("mergeberg")
    } == foreign


def metadata_files(table: IcebergTable) -> set[str]:
    """Return the manifests and manifest lists that lie in the table's metadata directory."""
    directory = Path(urlparse(table.load().location).path) / "metadata"
    return {p.name for p in directory.iterdir() if p.suffix == ".avro"}


def test_a_new_table_gets_an_empty_snapshot_that_names_its_ledger(
    tmp_path: Path, ledger: MemoryLedger
) -> None:
    """Harm prevented: an export staged without a parent is not protected by the fence."""
    made = make_table(tmp_path)

    state = first_snapshot(ports(made, ledger), lambda _: None)

    assert state.main is not None
    assert state.properties[LEDGER_PROPERTY] == ledger.identity
    assert not state.marks
    assert rows_in_main(made) == 0


def test_a_commit_lands_once_and_is_settled(table: IcebergTable, ledger: MemoryLedger) -> None:
    """Harm prevented: a landed export that its ledger does not know."""
    row = claim(ledger)

    outcome = commit_one(ports(table, ledger), commit_of(row, table.load(), ledger))

    after = ledger.read(KEY.hash)
    assert isinstance(outcome, Committed)
    assert outcome.in_main
    assert after is not None
    assert after.state is State.COMPLETED
    assert after.done is not None
    assert after.done.landed.snapshot_id == outcome.snapshot_id == table.load().main
    assert rows_in_main(table) == 10


def test_a_commit_without_a_response_is_looked_up_and_not_sent_again(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: rows twice, because a 5xx or a dropped connection hid a success."""
    row = claim(ledger)
    meddling = Meddling(table, lose=lambda n: n == 1)

    outcome = commit_one(ports(meddling, ledger), commit_of(row, table.load(), ledger))

    assert isinstance(outcome, Committed)
    assert meddling.sends == 1
    assert rows_in_main(table) == 10


def test_a_foreign_commit_in_between_costs_one_more_attempt(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: a conflict that is taken for a success, or that leaves files behind."""
    row = claim(ledger)
    meddling = Meddling(table, before=lambda n: append_foreign(table) if n == 1 else None)

    outcome = commit_one(ports(meddling, ledger), commit_of(row, table.load(), ledger))

    assert isinstance(outcome, Committed)
    assert meddling.sends == 2
    assert rows_in_main(table) == 10
    state = table.load()
    referred = {
        Path(urlparse(m).path).name
        for s in table_of(state).metadata.snapshots
        for m in (s.manifest_list, *(x.manifest_path for x in s.manifests(table_of(state).io)))
    }
    assert metadata_files(table) == referred


def test_a_request_sent_long_ago_is_refused_after_a_rollback(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: an old main is back, an old request applies, rows twice (holes 1, 2)."""
    row = claim(ledger)
    state = table.load()
    wanted = commit_of(row, state, ledger)
    stale = table.stage(state, wanted)
    assert isinstance(commit_one(ports(table, ledger), wanted), Committed)
    assert state.main is not None
    move_main(table, state.main)

    sent = table.send(state, stale, wanted, ())

    assert not sent.applied
    assert "sequence number" in sent.error


def test_requests_that_never_succeed_end_as_unknown_and_delete_nothing(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: giving up is taken for failing; the files of a late success go."""
    row = claim(ledger)
    before = metadata_files(table)

    def meddle(_: int) -> None:
        append_foreign(table)

    outcome = commit_one(
        ports(Meddling(table, before=meddle), ledger, most_attempts=3),
        commit_of(row, table.load(), ledger),
    )

    after = ledger.read(KEY.hash)
    assert isinstance(outcome, Unknown)
    assert "3 requests" in outcome.evidence
    assert after is not None
    assert after.state is State.RUNNING
    assert rows_in_main(table) == 0
    assert before < metadata_files(table)


def test_an_owner_that_was_taken_over_sends_nothing(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: an older epoch lands over a newer one."""
    row = claim(ledger)
    wanted = commit_of(row, table.load(), ledger)
    claim(ledger)
    meddling = Meddling(table)

    outcome = commit_one(ports(meddling, ledger), wanted)

    assert isinstance(outcome, Superseded)
    assert meddling.sends == 0


def test_what_an_earlier_owner_landed_is_settled_and_not_repeated(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: a crash between commit and ledger, then the same rows again."""
    first = claim(ledger)
    state = table.load()
    wanted = commit_of(first, state, ledger)
    assert table.send(state, table.stage(state, wanted), wanted, ()).applied
    second = claim(ledger)

    outcome = commit_one(ports(table, ledger), commit_of(second, table.load(), ledger))

    after = ledger.read(KEY.hash)
    assert outcome == Committed(table.load().main or 0, first.claim.epoch, 0, in_main=True)
    assert after is not None
    assert after.done is not None
    assert after.done.landed.epoch == first.claim.epoch
    assert rows_in_main(table) == 10


def test_a_landed_mark_is_settled_before_a_new_claim(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: the next run claims a partition that has landed, with other content."""
    row = claim(ledger)
    state = table.load()
    wanted = commit_of(row, state, ledger)
    table.send(state, table.stage(state, wanted), wanted, ())
    now = table.load()
    mark = unsettled_mark(row, now)
    assert mark is not None

    settled = settle_mark(ports(table, ledger), row, now, mark)

    assert isinstance(settled, Row)
    assert settled.state is State.COMPLETED
    assert (settled.last.rows, settled.last.data_files) == (10, 1)
    assert unsettled_mark(settled, now) is None


def test_rows_of_another_content_that_landed_meanwhile_are_replaced(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: old and new content of one partition side by side."""
    first = claim(ledger, content="old")
    state = table.load()
    wanted = commit_of(first, state, ledger)
    table.send(state, table.stage(state, wanted), wanted, ())
    second = claim(ledger, content="new")

    outcome = commit_one(ports(table, ledger), commit_of(second, table.load(), ledger))

    assert isinstance(outcome, Committed)
    assert outcome.leaves.paths
    assert rows_in_main(table) == 10
    known = ledger.read(KEY.hash)
    assert known is not None
    assert [x.transaction_id for x in known.landed] == [
        first.claim.transaction_id,
        second.claim.transaction_id,
    ]


def refusal(outcome: CommitOutcome) -> str:
    """Return why a commit was refused, before anything was sent."""
    assert isinstance(outcome, NotSent)
    assert isinstance(outcome.error, RefusedError)
    return str(outcome.error)


def test_fewer_rows_replace_more_only_when_that_is_wanted(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: a source that lost rows takes them out of the lake as well."""
    for content in ("old", "new"):
        row = claim(ledger, content=content)
        wanted = commit_of(row, table.load(), ledger)
        if content == "old":
            commit_one(ports(table, ledger), wanted)
    fewer = replace(wanted.keys[0], receipts=(receipt(row, rows=4),))

    message = refusal(commit_one(ports(table, ledger), replace(wanted, keys=(fewer,))))

    assert "would lose 6" in message
    assert rows_in_main(table) == 10
    allowed = replace(wanted, keys=(replace(fewer, change=ReplaceOwn(alongside=True)),))
    assert isinstance(commit_one(ports(table, ledger), allowed), Committed)
    assert rows_in_main(table) == 4


def test_a_table_of_another_ledger_is_refused(table: IcebergTable) -> None:
    """Harm prevented: an emptied or foreign ledger exports everything again."""
    other = MemoryLedger()
    row = claim(other)

    outcome = commit_one(ports(table, other), commit_of(row, table.load(), other))

    assert "exported to with another ledger" in refusal(outcome)
    assert rows_in_main(table) == 0


def test_a_ledger_restored_from_an_older_copy_is_refused(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: a restored ledger has forgotten what landed since."""
    for partition in ("1", "2", "3"):
        row = claim(ledger, key=replace(KEY, partition_id=partition))
        assert isinstance(
            commit_one(ports(table, ledger), commit_of(row, table.load(), ledger)), Committed
        )
    ledger._epoch = 1
    row = claim(ledger)

    outcome = commit_one(ports(table, ledger), commit_of(row, table.load(), ledger))

    assert "restored from an older copy" in refusal(outcome)


def test_a_table_that_changed_after_the_plan_gets_nothing(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: files written for another schema or spec land all the same."""
    row = claim(ledger)
    wanted = commit_of(row, table.load(), ledger)
    with table_of(table.load()).update_schema() as update:
        update.add_column("extra", LongType())

    outcome = commit_one(ports(table, ledger), wanted)

    assert isinstance(outcome, Conflicted)
    assert "between plan and commit" in outcome.by
    assert rows_in_main(table) == 0


def test_marks_leave_the_table_once_the_ledger_has_them(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: table properties that grow with every exported partition, for ever."""
    for partition in ("1", "2", "3", "4"):
        row = claim(ledger, key=replace(KEY, partition_id=partition))
        assert isinstance(
            commit_one(ports(table, ledger), commit_of(row, table.load(), ledger)), Committed
        )

    assert list(table.load().marks) == [replace(KEY, partition_id="4").hash]
    assert rows_in_main(table) == 40


def test_a_mark_that_the_ledger_does_not_have_stays(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: the only proof that an export landed is removed too early."""
    lost = claim(ledger, key=replace(KEY, partition_id="1"))
    state: LakeTableState = table.load()
    wanted: Commit = commit_of(lost, state, ledger)
    table.send(state, table.stage(state, wanted), wanted, ())

    row = claim(ledger, key=replace(KEY, partition_id="2"))
    assert isinstance(
        commit_one(ports(table, ledger), commit_of(row, table.load(), ledger)), Committed
    )

    assert set(table.load().marks) == {lost.key.hash, row.key.hash}
