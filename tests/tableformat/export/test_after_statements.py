"""What main holds of a key that statements on the lake table changed (decision 0013)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from tableformat.committer import FileInMain, LakeTableState, Layout, SnapshotSeen
from tableformat.export.main_state import Holding, Kind, claim_of_mark, holding, landed_from
from tableformat.file_names import data_file_name
from tableformat.ledger import Claim, Held, Key, Landed, Record, Row, State, StatementKind
from tableformat.table_properties import Mark, statement_fingerprint

KEY = Key("source", "202401", "table")
ROWS = 10
Files = tuple[FileInMain, ...]


@dataclass(frozen=True)
class SameFiles:
    """A lake table that has the same files of a key in every snapshot."""

    files: Files

    def files_of(
        self,
        state: LakeTableState,  # noqa: ARG002
        key: str,  # noqa: ARG002
        at: int | None = None,  # noqa: ARG002
        also: Collection[str] = (),  # noqa: ARG002
    ) -> Files:
        return self.files

    def rewritten(
        self,
        state: LakeTableState,  # noqa: ARG002
        files: Collection[FileInMain],  # noqa: ARG002
        since: Iterable[int],  # noqa: ARG002
    ) -> Files | None:
        return None

    def paths_in_main(self, state: LakeTableState) -> tuple[str, ...]:  # noqa: ARG002
        return ("file:///of-others.parquet", *(f.path for f in self.files))


def file(transaction: int, number: int, *, deletes: bool = False) -> FileInMain:
    name = data_file_name(KEY.hash, str(transaction), number, "x")
    return FileInMain(f"file:///{name}", ROWS, deletes)


def files(transaction: int, count: int) -> Files:
    return tuple(file(transaction, number) for number in range(count))


def export(number: int, count: int) -> Landed:
    return Landed(number, str(number), "content", number, number, count * ROWS, count)


def statement(
    number: int,
    *left: Held,
    text: str = "DROP PARTITION ID '202401'",
    kind: StatementKind = StatementKind.DROP,
) -> Landed:
    unique = statement_fingerprint(str(number))
    return Landed(number, str(number), unique, number, number, 0, 0, text, left, kind=kind)


def held(transaction: int, count: int) -> Held:
    return Held(str(transaction), count, count * ROWS)


def seen(main: int, *, expired: Iterable[int] = ()) -> LakeTableState:
    """Return a table whose snapshots 1 to `main` follow each other; some of them were expired."""
    gone = set(expired)
    snapshots = {
        n: SnapshotSeen(n, n - 1 if n > 1 and n - 1 not in gone else None, n, "append")
        for n in range(1, main + 1)
        if n not in gone
    }
    layout = Layout("table", 0, 0, 0)
    return LakeTableState(layout, 2, "file:///t", main, main, {}, snapshots, f"{main}.json")


def row(*landed: Landed) -> Row:
    last = landed[-1]
    done = next((Record(x, (), 1, 1, 180) for x in reversed(landed) if x.kind is None), None)
    claim = Claim(last.epoch, last.transaction_id, last.fingerprint, 1)
    changed = last if last.kind is not None else None
    return Row(
        KEY, "db.t", "lake.n.t", State.COMPLETED, claim, 1, 1, 1,
        landed=landed, done=done, changed=changed,
    )  # fmt: skip


def in_main(of: Row, state: LakeTableState, *there: FileInMain) -> Holding:
    return holding(of, state, KEY.hash, SameFiles(there))


def test_what_was_dropped_is_gone_and_the_statement_is_named() -> None:
    found = in_main(row(export(1, 2), statement(2)), seen(4))

    assert found.kind is Kind.GONE
    assert "snapshot 2: DROP PARTITION ID '202401'" in found.text


def test_what_is_dropped_in_part_is_not_what_was_exported() -> None:
    """Harm prevented: "unchanged" of a partition that lacks rows."""
    dropped = row(export(1, 2), statement(2, held(1, 1)))

    assert in_main(dropped, seen(3), file(1, 1)).kind is Kind.LEFT


def test_the_files_of_an_export_are_not_enough_when_a_statement_left_others() -> None:
    """The model's run: dropped in part, main moved about, and all files are there again."""
    dropped = row(export(1, 2), statement(2, held(1, 1)))

    assert in_main(dropped, seen(3), *files(1, 2)).kind is Kind.CHANGED


def test_main_that_was_moved_to_before_the_statement_has_all_of_it() -> None:
    dropped = row(export(1, 2), statement(3))

    assert in_main(dropped, seen(2), *files(1, 2)).kind is Kind.WHOLE


def test_what_is_put_back_is_the_export_again() -> None:
    attached = row(export(1, 2), statement(2), statement(3, held(1, 2)))

    found = in_main(attached, seen(4), *files(1, 2))

    assert (found.kind, found.holds(attached.landed[0])) == (Kind.WHOLE, True)


def test_a_delete_of_others_afterwards_is_no_longer_what_the_statement_left() -> None:
    attached = row(export(1, 2), statement(2), statement(3, held(1, 2)))

    found = in_main(attached, seen(4), file(1, 0), file(1, 1, deletes=True))

    assert found.kind is Kind.CHANGED


def test_an_export_that_came_after_it_counts() -> None:
    again = row(export(1, 2), statement(2), export(3, 1))

    assert in_main(again, seen(4), *files(3, 1)).kind is Kind.WHOLE
    assert in_main(again, seen(4), *files(1, 2)).kind is not Kind.WHOLE


def test_where_history_is_gone_what_landed_last_must_be_there_exactly() -> None:
    dropped, gone = row(export(1, 2), statement(2)), seen(9, expired=(1, 2))

    assert in_main(dropped, gone).kind is Kind.GONE
    assert in_main(dropped, gone, *files(1, 2)).kind is Kind.CHANGED


def test_a_statement_that_main_left_is_not_believed_after_expiry() -> None:
    """Harm prevented: main has the rows after a compaction, and a later DROP says it has none."""
    main = replace(seen(3, expired=(1, 2)), last_sequence_number=5)
    dropped = row(export(1, 2), statement(5))

    assert in_main(dropped, main).kind is Kind.CHANGED
    assert in_main(dropped, main, *files(1, 2)).kind is Kind.WHOLE
    assert in_main(row(export(4, 2), statement(5)), main).kind is Kind.CHANGED


def test_of_a_statement_that_the_ledger_does_not_know_nothing_is_believed() -> None:
    """Harm prevented: its mark is taken for an export of no rows, and rows are exported twice."""
    known = row(export(1, 2))
    mark = Mark(2, "2", statement_fingerprint("2"), 2)

    landed = landed_from(mark, seen(2), claim_of_mark(known, seen(2), mark))
    found = in_main(replace(known, landed=(*known.landed, landed), changed=landed), seen(2))

    assert (landed.left, found.kind, found.is_certain) == (None, Kind.CHANGED, False)


def update(number: int, *left: Held) -> Landed:
    text = "UPDATE n IN PARTITION ID '202401'"
    return statement(number, *left, text=text, kind=StatementKind.UPDATE)


def behind(state: LakeTableState, number: int, parent: int) -> LakeTableState:
    """Return a table whose main is one more snapshot, on an earlier one."""
    one = SnapshotSeen(number, parent, number, "overwrite")
    return replace(state, main=number, snapshots={**state.snapshots, number: one})


def test_what_was_changed_since_its_export_is_known_as_that() -> None:
    changed = row(export(1, 2), update(2, held(1, 1), held(2, 1)))

    assert in_main(changed, seen(2), file(1, 1), file(2, 0)).edited
    assert in_main(row(export(1, 2), update(2)), seen(2)).edited


def test_an_export_that_main_was_moved_from_says_nothing_of_what_is_there() -> None:
    """Harm prevented: "unchanged" of a partition of which every row was dropped."""
    forced = row(export(1, 2), statement(2), export(3, 2))

    found = in_main(forced, replace(seen(3), main=2))

    assert (found.kind, found.edited) == (Kind.GONE, False)


def test_a_part_drop_changes_no_rows_though_main_left_a_later_export() -> None:
    """Harm prevented: "unchanged" of a partition that lacks a part."""
    left = (held(4, 1),)
    landed = (export(1, 2), statement(2, held(1, 1)), export(3, 2), update(4, *left))

    assert not in_main(row(*landed), behind(seen(3), 4, 2), file(4, 0)).edited
    assert in_main(row(*landed), seen(4), file(4, 0)).edited


def test_a_statement_that_main_was_moved_away_from_does_not_count() -> None:
    landed = (export(1, 2), statement(2), update(3, held(3, 2)))

    assert in_main(row(*landed), behind(seen(2), 3, 1), *files(3, 2)).edited


def test_an_update_is_still_known_when_the_export_before_it_was_expired() -> None:
    """Harm prevented: every scheduled export is refused once its snapshots are gone."""
    landed = (export(1, 2), statement(2), export(3, 2), update(4, held(4, 2)))

    assert in_main(row(*landed), seen(6, expired=(1, 2, 3)), *files(4, 2)).edited
    assert in_main(row(*landed), seen(6, expired=(1, 2, 3, 4, 5)), *files(4, 2)).edited


@given(
    counts=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    main=st.integers(1, 5),
    there=st.lists(st.integers(0, 3), min_size=5, max_size=5),
)
def test_certain_is_only_what_the_last_in_the_line_left(
    counts: list[int], main: int, there: list[int]
) -> None:
    """Of any exports and statements, wherever main is and whatever files it has.

    A count of 0 is a statement that left nothing, the others are exports of so many files.
    """
    landed = [export(n, c) if c else statement(n) for n, c in enumerate(counts, start=1)]
    main = min(main, len(landed))
    here = [f for n, c in enumerate(there, start=1) for f in files(n, c) if n <= len(landed)]

    found = in_main(row(*landed), seen(main), *here)

    last = landed[main - 1]
    as_left = {f.path for f in here} == {f.path for f in files(last.epoch, last.data_files)}
    if any(x.kind is not None for x in landed):
        assert (found.kind in (Kind.WHOLE, Kind.GONE)) is as_left
