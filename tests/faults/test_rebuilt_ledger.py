"""A ledger is lost: the table gives a new one, and nothing is exported twice with it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table.update import SetLocationUpdate

from catalog.ledgers.sqlite import SqliteLedger
from catalog.storages.schemes import open_storage
from tableformat.effects import Direct, Step
from tableformat.errors import RefusedError
from tableformat.export.archived import archived_location, archived_text
from tableformat.export.commit import Ports
from tableformat.export.rebuild import Rebuilt, rebuild
from tests.faults.test_operator_actions import (
    append,
    compact,
    delete_rows,
    die,
    dies,
    drop_one_file,
    expire,
    roll_back,
)
from tests.support.scenarios import (
    ALL,
    CLOCK,
    FORCED,
    AtStep,
    Partitions,
    lake,
    pyiceberg,
    row_of,
    rows_in_main,
    run,
    statuses,
)


def lose(directory: Path) -> None:
    """Lose the ledger, with everything that SQLite keeps next to it."""
    for path in directory.glob("ledger.db*"):
        path.unlink()


class Drawn(SqliteLedger):
    """A ledger that counts how often it was asked for epochs."""

    times = 0

    def next_epoch(self, count: int = 1) -> int:
        self.times += 1
        return super().next_epoch(count)


def ledger_in(directory: Path) -> Drawn:
    return Drawn(directory / "ledger.db", clock=CLOCK.__next__)


def rebuilt(directory: Path, into: Drawn | None = None) -> tuple[Rebuilt, ...]:
    """Rebuild the ledger of the table, as the command does."""
    table = lake(directory)
    ledger = into or ledger_in(directory)
    ports = Ports(Direct(), table, ledger, CLOCK.__next__, lambda _: None)
    try:
        return rebuild(ports, open_storage, "lake.n.t")
    finally:
        ledger.close()


@pytest.mark.parametrize("one_by_one", [False, True])
def test_what_is_in_main_is_known_again(tmp_path: Path, *, one_by_one: bool) -> None:
    """Harm prevented: after the ledger is lost everything is exported once more."""
    source = Partitions()
    run(tmp_path, source, request=replace(ALL, commit_every=1 if one_by_one else 100))
    lose(tmp_path)
    with pytest.raises(RefusedError, match="exported to with another ledger"):
        run(tmp_path, source)
    lose(tmp_path)

    found = rebuilt(tmp_path)

    assert [f.proved for f in found] == [True, True]
    assert statuses(run(tmp_path, source)) == ["already_exported"] * 2
    assert rows_in_main(tmp_path) == 15
    assert statuses(run(tmp_path, source, request=FORCED)) == ["replaced"] * 2
    assert rows_in_main(tmp_path) == 15


def test_the_numbers_that_the_table_has_seen_are_drawn_at_once(tmp_path: Path) -> None:
    """Harm prevented: a table of a million commits is rebuilt by two million requests."""
    source = Partitions()
    with closing(ledger_in(tmp_path)) as before:
        before.next_epoch(1_000)
    run(tmp_path, source)
    lose(tmp_path)
    into = ledger_in(tmp_path)

    rebuilt(tmp_path, into)

    # Once up to the last of them, and once for the commit that gives the table to it.
    assert into.times == 2
    with closing(ledger_in(tmp_path)) as after:
        assert after.highest_epoch() > 1_000
    assert statuses(run(tmp_path, source)) == ["already_exported"] * 2


@pytest.mark.parametrize("change", [compact, delete_rows, drop_one_file])
def test_rows_that_others_rewrote_are_never_exported_again(tmp_path: Path, change: object) -> None:
    """Harm prevented: rows of a compacted file come a second time, under a new ledger."""
    source = Partitions()
    run(tmp_path, source)
    change(tmp_path)  # type: ignore[operator]
    expire(tmp_path)
    before = rows_in_main(tmp_path)
    lose(tmp_path)

    found = rebuilt(tmp_path)

    assert not all(f.proved for f in found)
    for request in (ALL, FORCED):
        run(tmp_path, source, request=request)
        assert rows_in_main(tmp_path) <= max(before, 15 + 2)
    assert "refused" in statuses(run(tmp_path, source))


def move_location(directory: Path) -> str:
    """Give the table another location, as its owner does; return the one before."""
    table = pyiceberg(directory)
    now = SetLocationUpdate(location=f"file://{directory}/elsewhere/t")
    table.catalog.commit_table(table, (), (now,))
    return table.location()


@pytest.mark.parametrize("change", [None, append, compact])
def test_lists_below_an_earlier_location_are_found(
    tmp_path: Path, change: Callable[[Path], None] | None
) -> None:
    """Harm prevented: rows that others rewrote come a second time, as no list names them."""
    source = Partitions()
    run(tmp_path, source)
    move_location(tmp_path)
    if change is not None:
        change(tmp_path)
    before = rows_in_main(tmp_path)
    lose(tmp_path)

    rebuilt(tmp_path)

    again = "refused" if change is compact else "already_exported"
    assert statuses(run(tmp_path, source)) == [again] * 2
    assert rows_in_main(tmp_path) == before


def test_a_partition_archived_at_an_earlier_location_is_known(tmp_path: Path) -> None:
    """Harm prevented: late rows take the place of the only copy of the archived ones."""
    source = Partitions()
    run(tmp_path, source)
    before, key = move_location(tmp_path), row_of(tmp_path, "p1").key.hash
    open_storage(before).put(archived_location(before, key), archived_text(1_000))
    lose(tmp_path)

    found = rebuilt(tmp_path)

    archived = {one.row.key.partition_id: one.row.archived is not None for one in found}
    assert archived == {"p1": True, "p2": False}


def test_an_archive_after_an_unarchive_elsewhere_is_known(tmp_path: Path) -> None:
    """Harm prevented: what an earlier location says hides that the partition is archived."""
    run(tmp_path, Partitions())
    before, key = move_location(tmp_path), row_of(tmp_path, "p1").key.hash
    now = pyiceberg(tmp_path).location()
    open_storage(now).put(archived_location(now, key), archived_text(None))
    open_storage(before).put(archived_location(before, key), archived_text(1_000))
    lose(tmp_path)

    archived = [one.row.archived for one in rebuilt(tmp_path) if one.row.key.partition_id == "p1"]

    assert [one is not None for one in archived] == [True]


@pytest.mark.parametrize("step", [Step.WRITE_FILES, Step.SEND])
def test_an_export_that_never_landed_is_repeated(tmp_path: Path, step: Step) -> None:
    """Harm prevented: a partition that nobody can export any more."""
    source = Partitions()
    dies(tmp_path, source, AtStep(step, die))
    lose(tmp_path)

    rebuilt(tmp_path)

    assert statuses(run(tmp_path, source)) == ["committed"] * 2
    assert rows_in_main(tmp_path) == 15


def test_an_export_that_landed_unseen_is_known(tmp_path: Path) -> None:
    source = Partitions()
    dies(tmp_path, source, AtStep(Step.SETTLE, die))
    lose(tmp_path)

    rebuilt(tmp_path)

    assert statuses(run(tmp_path, source)) == ["already_exported"] * 2
    assert rows_in_main(tmp_path) == 15


def test_a_rolled_back_export_is_not_called_exported(tmp_path: Path) -> None:
    source = Partitions()
    run(tmp_path, source)
    roll_back(tmp_path)
    lose(tmp_path)

    rebuilt(tmp_path)
    outcomes = run(tmp_path, source)

    assert rows_in_main(tmp_path) in (0, 3, 12, 15)
    assert {o.status.value for o in outcomes} <= {"committed", "refused"}
    for outcome in outcomes:
        if outcome.status.value == "refused":
            assert "main was moved away from it" in outcome.message


def test_an_owner_with_the_lost_ledger_lands_nothing_any_more(tmp_path: Path) -> None:
    """Harm prevented: the old ledger is on another host, and its export is still under way."""
    source = Partitions()

    def meanwhile() -> None:
        (tmp_path / "ledger.db").rename(tmp_path / "elsewhere.db")
        lose(tmp_path)
        rebuilt(tmp_path)
        assert statuses(run(tmp_path, source)) == ["committed"] * 2

    run(tmp_path, source, effects=AtStep(Step.SEND, meanwhile), meddled=True)

    assert rows_in_main(tmp_path) == 15


def test_foreign_rows_stay_and_the_ledger_of_a_table_is_not_rebuilt_twice(tmp_path: Path) -> None:
    source = Partitions()
    run(tmp_path, source)
    append(tmp_path)
    before = rows_in_main(tmp_path)
    lose(tmp_path)
    rebuilt(tmp_path)

    with pytest.raises(RefusedError, match="is its ledger already"):
        rebuilt(tmp_path)

    assert rows_in_main(tmp_path) == before


def test_files_that_no_list_names_are_refused(tmp_path: Path) -> None:
    """Harm prevented: the lists are lost as well, and the rows come again."""
    source = Partitions()
    run(tmp_path, source)
    for stored in (tmp_path / "warehouse").rglob("groups/*.json"):
        stored.unlink()
    lose(tmp_path)

    with pytest.raises(RefusedError, match="that no list below"):
        rebuilt(tmp_path)
