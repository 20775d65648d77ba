"""An export that was cancelled never lands afterwards, whatever was sent and however main moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.iceberg.table import IcebergTable
from catalog.ledgers.memory import MemoryLedger
from tableformat.committer import (
    Commit,
    Committed,
    LakeTableState,
    Sent,
    Staged,
    Superseded,
    Unknown,
)
from tableformat.errors import DestinationError, RefusedError
from tableformat.export.give_up import (
    GivenUp,
    KillOutcome,
    NotUnderWay,
    TooLate,
    kill,
)
from tableformat.ledger import Ledger, Row, State, Stop
from tests.support.lake import (
    KEY,
    Meddling,
    claim,
    commit_of,
    commit_one,
    make_table,
    move_main,
    ports,
    prepared,
    receipt,
    rows_in_main,
)


class Late:
    """A request of a claim: staged on main as it is now, and sent whenever somebody likes."""

    def __init__(self, table: IcebergTable, ledger: Ledger, row: Row) -> None:
        self._table = table
        self._state: LakeTableState = table.load()
        self._commit = commit_of(row, self._state, ledger)
        self.staged: Staged = table.stage(self._state, self._commit)

    def send(self) -> bool:
        """Let it arrive; whether it was applied."""
        return self._table.send(self._state, self.staged, self._commit, ()).applied


def killed(table: object, ledger: Ledger, *, most_attempts: int = 5) -> KillOutcome:
    """Cancel the export of the key."""
    return kill(ports(table, ledger, most_attempts=most_attempts), KEY.hash, state=State.KILLED)


def test_a_cancelled_export_is_killed_and_keeps_its_transaction(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    row = claim(ledger)

    outcome = killed(table, ledger)

    assert isinstance(outcome, GivenUp)
    after = ledger.read(KEY.hash)
    assert after == outcome.row
    now = table.load()
    message = (
        f"given up: nothing sent before snapshot {now.main} (sequence number "
        f"{now.last_sequence_number}) can land any more"
    )
    assert (after.state, after.last_error) == (State.KILLED, message)
    assert after.claim.transaction_id == row.claim.transaction_id
    assert after.claim.epoch > row.claim.epoch
    assert rows_in_main(table) == 0
    assert table.load().mark(KEY.hash) is None


def test_the_row_says_that_it_is_being_cancelled_before_anything_is_sent(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: the run whose export is cancelled learns of it only when it commits."""
    claim(ledger)
    seen: list[tuple[Stop | None, str]] = []

    def note(row: Row) -> None:
        now = ledger.read(KEY.hash)
        assert now == row
        seen.append((row.stop, row.last_error))

    kill(ports(table, ledger), KEY.hash, state=State.KILLED, on_claim=note)

    assert seen == [(Stop.CANCELLED, "it is being cancelled")]


@pytest.mark.parametrize("moves", [False, True], ids=["main stays", "main is rolled back"])
def test_a_request_that_arrives_after_the_cancel_is_refused(
    table: IcebergTable, ledger: MemoryLedger, *, moves: bool
) -> None:
    """Harm prevented: rows appear after the export was reported as killed."""
    before = table.load().main
    late = Late(table, ledger, claim(ledger))

    assert isinstance(killed(table, ledger), GivenUp)
    if moves:
        move_main(table, before)

    assert not late.send()
    assert rows_in_main(table) == 0


def test_an_export_that_has_landed_is_settled_instead(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: KILLED in the ledger, rows in main."""
    late = Late(table, ledger, claim(ledger))
    assert late.send()

    outcome = killed(table, ledger)

    assert isinstance(outcome, TooLate)
    assert (outcome.snapshot_id, outcome.in_main) == (late.staged.snapshot_id, True)
    after = ledger.read(KEY.hash)
    assert after is not None
    assert after.state is State.COMPLETED
    assert [x.snapshot_id for x in after.landed] == [late.staged.snapshot_id]


def test_an_export_that_was_rolled_back_is_reported_as_rolled_back(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    before = table.load().main
    assert Late(table, ledger, claim(ledger)).send()
    move_main(table, before)

    outcome = killed(table, ledger)

    assert isinstance(outcome, TooLate)
    assert not outcome.in_main


def test_a_request_that_lands_while_it_is_cancelled_is_settled(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """The fence is refused then, because main has moved; the next look finds the mark."""
    late = Late(table, ledger, claim(ledger))
    meddled = Meddling(table, before=lambda n: assert_sent(late) if n == 1 else None)

    outcome = killed(meddled, ledger)

    assert isinstance(outcome, TooLate)
    assert rows_in_main(table) == 10


def assert_sent(late: Late) -> None:
    """Let a request arrive."""
    assert late.send()


def test_a_fence_whose_response_is_lost_still_kills(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    claim(ledger)

    outcome = killed(Meddling(table, lose=lambda _: True), ledger)

    assert isinstance(outcome, GivenUp)


def test_without_any_response_the_export_stays_resumable(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: KILLED is written although a request may still be applied."""
    row = claim(ledger)
    late = Late(table, ledger, row)

    class Deaf(Meddling):
        def send(
            self, _state: LakeTableState, _staged: Staged, _commit: Commit, _marks: tuple[str, ...]
        ) -> Sent:
            self.sends += 1
            return Sent(applied=False, error="no route")

    deaf = Deaf(table)
    outcome = killed(deaf, ledger, most_attempts=3)

    assert isinstance(outcome, Unknown)
    assert "no route" in outcome.evidence
    assert deaf.sends == 2
    after = ledger.read(KEY.hash)
    assert after is not None
    assert (after.state, after.claim.transaction_id) == (State.RUNNING, row.claim.transaction_id)
    assert late.send(), "it was not dead, so nobody may have said so"


def test_a_table_that_cannot_be_loaded_leaves_everything_as_it_is(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    claim(ledger)

    class Gone(Meddling):
        loads = 0

        def load(self) -> LakeTableState:
            self.loads += 1
            if self.loads > 1:
                message = "Cannot load it: no route. Try again."
                raise DestinationError(message)
            return self._table.load()

    outcome = killed(Gone(table), ledger)

    assert isinstance(outcome, Unknown)
    assert "no route" in outcome.evidence


@pytest.mark.parametrize("state", [State.COMPLETED, State.KILLED, State.FAILED])
def test_what_is_not_under_way_cannot_be_cancelled(
    table: IcebergTable, ledger: MemoryLedger, state: State
) -> None:
    row = claim(ledger)
    if state is State.COMPLETED:
        outcome = commit_one(ports(table, ledger), commit_of(row, table.load(), ledger))
        assert isinstance(outcome, Committed)
    else:
        failed = state is State.FAILED
        kill(ports(table, ledger), KEY.hash, state=State.FAILED if failed else State.KILLED)
    main = table.load().main

    outcome_again = killed(table, ledger)

    assert isinstance(outcome_again, NotUnderWay)
    assert outcome_again.row is not None
    assert outcome_again.row.state is state
    assert table.load().main == main


def test_what_was_never_exported_cannot_be_cancelled(tmp_path: Path) -> None:
    assert killed(make_table(tmp_path), MemoryLedger()) == NotUnderWay(None)


def test_the_run_that_was_cancelled_is_superseded(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: it commits after the cancel, because it never looked."""
    row = claim(ledger)
    wanted = commit_of(row, table.load(), ledger)
    killed(table, ledger)

    assert isinstance(commit_one(ports(table, ledger), wanted), Superseded)
    assert rows_in_main(table) == 0


def test_a_newer_run_is_not_cancelled_by_an_older_cancel(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    claim(ledger)
    newer: list[Row] = []
    meddled = Meddling(table, before=lambda n: newer.append(claim(ledger)) if n == 1 else None)

    assert isinstance(killed(meddled, ledger), Superseded)
    (row,) = newer
    assert ledger.read(KEY.hash) == row


def test_the_table_of_another_ledger_is_left_alone(table: IcebergTable) -> None:
    other = MemoryLedger()
    claim(other)

    with pytest.raises(RefusedError, match="another ledger"):
        killed(table, other)


def test_the_partition_can_be_exported_again_after_the_cancel(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    claim(ledger)
    killed(table, ledger)
    again = claim(ledger)

    outcome = commit_one(ports(table, ledger), commit_of(again, table.load(), ledger))

    assert isinstance(outcome, Committed)
    assert rows_in_main(table) == 10


SENT = ("sent", "sent again", "sent once more")
EVENTS = ("foreign", "back", "cancel", *SENT)


@settings(max_examples=25)
@given(
    order=st.permutations(EVENTS),
    lost=st.sets(st.integers(1, 3)),
    lands=st.none() | st.integers(1, 3),
)
def test_an_export_that_lands_is_never_reported_as_killed(
    tmp_path_factory: pytest.TempPathFactory,
    order: list[str],
    lost: set[int],
    lands: int | None,
) -> None:
    """In any order of requests, foreign commits, rollbacks and lost responses."""
    ledger = MemoryLedger()
    table = prepared(tmp_path_factory.mktemp("lake"), ledger)
    bottom = table.load().main
    row = claim(ledger)
    late = [Late(table, ledger, row) for _ in range(4)]
    outcome: KillOutcome | None = None

    def arrive(number: int) -> None:
        if lands == number:
            late[3].send()

    for event in order:
        match event:
            case "cancel":
                meddled = Meddling(table, before=arrive, lose=lost.__contains__)
                outcome = killed(meddled, ledger)
            case "back":
                move_main(table, bottom)
            case "foreign":
                foreign(table, ledger)
            case _:
                applied = late[SENT.index(event)].send()
                assert not (applied and isinstance(outcome, GivenUp))

    now = table.load()
    ours = receipt(row).file_path
    landed = any(ours == f.path for s in now.snapshots for f in table.files_of(now, KEY.hash, at=s))
    after = ledger.read(KEY.hash)
    assert after is not None
    match outcome:
        case GivenUp():
            assert (after.state, landed) == (State.KILLED, False)
        case TooLate():
            assert (after.state, landed) == (State.COMPLETED, True)
        case _:
            pytest.fail(f"{outcome}: the catalog answered, so it can be known")


def foreign(table: IcebergTable, ledger: Ledger) -> None:
    """Commit something else, as another engine does."""
    state = table.load()
    empty = Commit((), state.layout, ledger.identity)
    assert table.send(state, table.stage(state, empty), empty, ()).applied


def test_a_table_whose_main_was_reset_is_given_a_snapshot_first(tmp_path: Path) -> None:
    """A fence without a parent would protect nothing."""
    table, ledger = make_table(tmp_path), MemoryLedger()
    claim(ledger)

    outcome = killed(table, ledger)

    assert isinstance(outcome, GivenUp)
    assert table.load().main is not None
