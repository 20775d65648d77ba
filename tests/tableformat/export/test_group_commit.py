"""One commit of several partitions: they land together, and none of them harms another."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from catalog.iceberg.table import IcebergTable
from catalog.ledgers.memory import MemoryLedger
from tableformat.committer import Committed, Superseded
from tableformat.export import job
from tableformat.export.commit import commit
from tableformat.export.outcome import Outcome, Status
from tableformat.ledger import Ledger, State
from tableformat.source import ServedLayout, SourceSnapshot
from tableformat.storage import Storage
from tests.support.lake import KEY, Meddling, claim, commit_of, make_table, ports, rows_in_main
from tests.support.scenarios import CountingReads, Partitions, parts_of, ports_of, run


def test_several_partitions_land_in_one_snapshot(table: IcebergTable, ledger: MemoryLedger) -> None:
    """Harm prevented: a snapshot for every small partition, thousands of them."""
    rows = [claim(ledger, key=replace(KEY, partition_id=str(n))) for n in range(5)]
    state = table.load()
    keys = tuple(k for row in rows for k in commit_of(row, state, ledger).keys)
    before = len(state.snapshots)

    outcomes = commit(ports(table, ledger), replace(commit_of(rows[0], state, ledger), keys=keys))

    assert {o.snapshot_id for o in outcomes.values() if isinstance(o, Committed)} == {
        table.load().main
    }
    assert len(outcomes) == 5
    assert len(table.load().snapshots) == before + 1
    assert rows_in_main(table) == 50
    assert {(r.state, r.done is not None) for r in ledger.rows()} == {(State.COMPLETED, True)}


def test_a_partition_that_was_taken_over_leaves_the_others_alone(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: one lost lease fails a hundred partitions, or lands over a newer epoch."""
    rows = [claim(ledger, key=replace(KEY, partition_id=str(n))) for n in range(3)]
    state = table.load()
    keys = tuple(k for row in rows for k in commit_of(row, state, ledger).keys)
    newer = claim(ledger, key=rows[1].key)

    outcomes = commit(ports(table, ledger), replace(commit_of(rows[0], state, ledger), keys=keys))

    assert [type(outcomes[r.key.hash]) for r in rows] == [Committed, Superseded, Committed]
    assert rows_in_main(table) == 20
    assert ledger.read(newer.key.hash) == newer


def test_a_partition_of_a_group_that_has_landed_already_is_not_sent_again(
    table: IcebergTable, ledger: MemoryLedger
) -> None:
    """Harm prevented: the first attempt landed unseen, the second one doubles a hundred keys."""
    rows = [claim(ledger, key=replace(KEY, partition_id=str(n))) for n in range(3)]
    state = table.load()
    keys = tuple(k for row in rows for k in commit_of(row, state, ledger).keys)
    meddling = Meddling(table, lose=lambda n: n == 1)

    outcomes = commit(
        ports(meddling, ledger), replace(commit_of(rows[0], state, ledger), keys=keys)
    )

    assert meddling.sends == 1
    assert all(isinstance(o, Committed) and o.in_main for o in outcomes.values())
    assert rows_in_main(table) == 30


def test_no_group_reads_all_rows_of_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a hundred groups of partitions, and a hundred times ten thousand rows."""
    source = Partitions(by_id={name: parts_of(name, 7) for name in ("p1", "p2", "p3")})
    reads = {}
    for most in (1, 3):
        monkeypatch.setattr(job, "MOST_PARTITIONS", most)
        directory = tmp_path / str(most)
        make_table(directory)
        ports = ports_of(directory, source)
        counting = CountingReads(ports.ledger)
        done = run(directory, source, ports=replace(ports, ledger=cast("Ledger", counting)))
        assert [one.status for one in done] == [Status.COMMITTED] * 3
        reads[most] = counting.reads

    assert reads[1] == reads[3]


class Asked:
    """A ledger of which it is counted how often it is asked for something."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self.requests = ledger, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ledger, name)
        if not callable(found):
            return found

        def asked(*given: Any, **named: Any) -> Any:
            self.requests[name] += 1
            return found(*given, **named)

        return asked


@pytest.mark.parametrize(
    ("exported", "status"), [(False, Status.COMMITTED), (True, Status.ALREADY_EXPORTED)]
)
def test_a_group_asks_the_ledger_no_more_often_than_one_partition(
    tmp_path: Path,
    exported: bool,  # noqa: FBT001  a column of the table above
    status: Status,
) -> None:
    """Harm prevented: a hundred partitions, and many hundred requests to a ledger in a network."""
    requests = []
    for names in (("a",), ("a", "b", "c", "d")):
        directory = tmp_path / str(len(names))
        source = Partitions(by_id={name: parts_of(name, 7) for name in names})
        make_table(directory)
        if exported:
            run(directory, source)
        ports = ports_of(directory, source)
        asked = Asked(ports.ledger)
        done = run(directory, source, ports=replace(ports, ledger=cast("Ledger", asked)))
        assert [one.status for one in done] == [status] * len(names)
        requests.append(asked.requests)

    assert requests[0] == requests[1]


class Sizes:
    """A storage that answers for the size of a file as `answer` does for its true size."""

    def __init__(self, storage: Storage, answer: Callable[[str, int], int]) -> None:
        self._storage, self._answer = storage, answer

    def size(self, location: str) -> int:
        return self._answer(location, self._storage.size(location))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


def export_over(
    directory: Path, source: Partitions, answer: Callable[[str, int], int]
) -> list[Outcome]:
    """Export over a storage that answers for sizes as `answer` does."""
    make_table(directory)
    ports = ports_of(directory, source)

    def opened(location: str) -> Storage:
        return cast("Storage", Sizes(ports.storage(location), answer))

    return run(directory, source, ports=replace(ports, storage=opened))


def test_the_sizes_of_several_files_are_asked_for_at_once(tmp_path: Path) -> None:
    """Harm prevented: a commit of a thousand files waits a thousand times for an object store."""
    source = Partitions(by_id={name: parts_of(name, 7) for name in ("a", "b", "c", "d")})
    all_are_asked = threading.Barrier(4, timeout=60)

    def answer(_: str, size: int) -> int:
        all_are_asked.wait()
        return size

    assert [one.status for one in export_over(tmp_path, source, answer)] == [Status.COMMITTED] * 4


def test_a_file_of_another_size_stops_its_partition_only(tmp_path: Path) -> None:
    """Harm prevented: a file that was cut is in main, or one that was cut stops all others."""
    source = Partitions(by_id={name: parts_of(name, 7) for name in ("a", "b", "c")})
    asked: list[str] = []

    def answer(location: str, size: int) -> int:
        asked.append(location)
        return size - (asked.index(location) == 1)

    done = export_over(tmp_path, source, answer)

    assert Counter(one.status for one in done) == {Status.COMMITTED: 2, Status.FAILED: 1}
    (failed,) = (one for one in done if one.status is Status.FAILED)
    assert "bytes, " in failed.message
    assert "were written. Run it again, which writes it again." in failed.message


@dataclass
class Closing(Partitions):
    """Partitions of which it is counted how often their source is closed."""

    served: bool = False
    closed: int = 0

    def snapshot(self, *of: Any, **how: Any) -> SourceSnapshot:
        made = super().snapshot(*of, **how)
        layout = ServedLayout("http://here", (), "", "UTC", (), typed=True, ranges=True)
        return replace(made, layout=layout) if self.served else made

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("size", "milliseconds", "served", "closed"),
    [(70, 1, False, 2), (1 << 30, 1, False, 4), (70, 30_000, False, 4), (70, 1, True, 4)],
)
def test_the_source_stays_open_between_groups_that_are_written_in_a_moment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    milliseconds: int,
    served: bool,  # noqa: FBT001  a column of the table above
    closed: int,
) -> None:
    """Harm prevented: an embedded ClickHouse starts for every hundred small partitions.

    A server is closed: the next group chooses among its replicas, of which one may be gone.
    """
    monkeypatch.setattr(job, "MOST_PARTITIONS", 1)
    held = {
        p: [replace(one, bytes_on_disk=size) for one in parts_of(p, 7)] for p in ("a", "b", "c")
    }
    source = Closing(by_id=held, served=served)
    make_table(tmp_path)
    clock = itertools.count(1_000_000, milliseconds).__next__

    done = run(tmp_path, source, ports=ports_of(tmp_path, source, clock=clock))

    assert [one.status for one in done] == [Status.COMMITTED] * 3
    # Once for the last group, and once at the end of the job, which has released its parts.
    assert source.closed == closed
