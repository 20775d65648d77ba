"""Maintenance in the small world: no snapshot expires that an export or a statement needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.table.snapshots import Operation

from tableformat.committer import LakeTableState, SnapshotSeen
from tableformat.effects import Direct
from tableformat.errors import RefusedError
from tableformat.export.commit import Ports
from tableformat.export.leases import Leases
from tableformat.export.maintenance import (
    Expired,
    Expiring,
    OrphanFilter,
    expired_by_age,
    path_in,
    small_files,
)
from tableformat.export.outcome import Status
from tableformat.file_names import RECEIPTS
from tableformat.iceberg.referred_files import Reference
from tableformat.ledger import Owner
from tests.places.found import place_at
from tests.support.history_acts import GROWS, OURS, PARTS, Seen, done, seen
from tests.support.lake import move_main
from tests.support.lake_statements import IN_FILES, LATER, export_at, in_files
from tests.support.other_engines import origin_of, rewrite
from tests.support.scenarios import (
    CLOCK,
    Partitions,
    lake,
    ledger_rows,
    pyiceberg,
    row_of,
    state,
)
from tests.support.two_lake_tables import prepared

compact = partial(rewrite, operation=Operation.REPLACE)
SOON = 2**62
"""A time after every snapshot."""
US = Owner("host", 1, "maintain")


@dataclass(frozen=True)
class Maintaining:
    """Maintenance of the small table, as a new process; `meanwhile` happens before the expiry."""

    directory: Path
    older_than: int = SOON
    now: int = 0
    meanwhile: Callable[[], None] = lambda: None

    def _expiring(self) -> Expiring:
        ledger = place_at(self.directory).ledger(CLOCK.__next__)
        table = lake(self.directory)
        clock = (lambda: self.now) if self.now else CLOCK.__next__
        ports = Ports(Direct(), table, ledger, clock, lambda _: None)
        return Expiring(ports, table, self.older_than, 1)

    def find(self) -> Expired:
        expiring = self._expiring()
        try:
            return expiring.find()
        finally:
            expiring.ports.ledger.close()

    def run(self) -> Expired:
        expiring = self._expiring()
        ports = expiring.ports
        leases = Leases(ports.ledger, US, effects=ports.effects, is_alive=lambda owner: owner == US)
        try:
            with leases:
                return expiring.run(leases, self._expire)
        finally:
            ports.ledger.close()

    def _expire(self, snapshot_ids: frozenset[int]) -> None:
        self.meanwhile()
        pyiceberg(self.directory).maintenance.expire_snapshots().by_ids([*snapshot_ids]).commit()


def p1_files(directory: Path) -> list[str]:
    """Return the paths of the files of main with rows of p1."""
    key = row_of(directory, "p1").key.hash
    paths = (task.file.file_path for task in pyiceberg(directory).scan().plan_files())
    return sorted(path for path in paths if origin_of(path) == key)


def compact_p1(directory: Path) -> None:
    paths = p1_files(directory)
    compact(directory, lambda path: path in paths)


def again(directory: Path, source: Partitions) -> str:
    """Export p1 again, after its time to live; return the status."""
    return export_at(directory, source, LATER, IN_FILES)["p1"].status.value


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    """Return a table with p1: 12 rows in two files, and p2."""
    return prepared(tmp_path)


def test_a_rewrite_by_others_is_noted_before_its_proof_expires(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: after maintenance a compacted partition is changed by others for ever."""
    compact_p1(tmp_path)

    planned = Maintaining(tmp_path).find()
    assert row_of(tmp_path, "p1").rewritten is None
    done_ = Maintaining(tmp_path).run()

    assert (done_.noted, done_) == (1, planned)
    assert set(state(tmp_path).snapshots) == {state(tmp_path).main}
    assert again(tmp_path, source) == "unchanged"


def test_without_the_note_the_snapshots_stay_and_it_says_who_needs_them(
    tmp_path: Path, source: Partitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a rewrite into too many files to note ends the guarantee silently."""
    monkeypatch.setattr("tableformat.export.maintenance.MOST_FILES_NOTED", 0)
    compact_p1(tmp_path)

    found = Maintaining(tmp_path).run()

    assert found.noted == 0
    assert [one.partition_id for one in found.plan.holds] == ["p1"]
    monkeypatch.undo()
    assert again(tmp_path, source) == "unchanged"


def test_a_compaction_while_snapshots_expire_is_noted_afterwards(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: an engine commits between the look and the expiry, and the proof is gone."""
    compact(tmp_path, lambda path: path not in p1_files(tmp_path))
    late = partial(compact_p1, tmp_path)

    found = Maintaining(tmp_path, meanwhile=late).run()

    assert found.noted == 2
    assert row_of(tmp_path, "p1").rewritten is not None
    assert again(tmp_path, source) == "unchanged"


def test_a_deletion_while_snapshots_expire_is_no_rewrite(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: rows that others deleted count as exported."""

    def deletes() -> None:
        assert done("others delete rows", tmp_path, source) is Status.COMMITTED

    found = Maintaining(tmp_path, meanwhile=deletes).run()

    assert found.noted == 0
    assert again(tmp_path, source) != "unchanged"


@pytest.mark.usefixtures("source")
def test_an_unfinished_export_keeps_what_it_may_need(tmp_path: Path) -> None:
    """Harm prevented: the snapshot in which it landed, before it was settled, is gone."""
    row = row_of(tmp_path, "p1")
    ledger = place_at(tmp_path).ledger(CLOCK.__next__)
    ledger.write(replace(row, state=type(row.state).RUNNING))
    ledger.close()

    found = Maintaining(tmp_path).run()

    assert [(one.partition_id, one.why) for one in found.plan.holds] == [
        ("p1", "its export is unfinished")
    ]
    assert found.plan.snapshot_ids == frozenset()


def test_what_others_took_out_holds_nothing_back_and_is_named(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: a table whose old partitions others remove keeps every snapshot for ever."""
    *_, first = state(tmp_path).ancestors()
    move_main(lake(tmp_path), first.snapshot_id)
    done("others append", tmp_path, source)

    found = Maintaining(tmp_path).run()

    assert (found.plan.of_others, found.plan.holds) == (("p1", "p2"), ())
    assert set(state(tmp_path).snapshots) == {state(tmp_path).main}


@pytest.mark.usefixtures("source")
def test_an_age_of_a_branch_that_would_expire_what_is_needed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: Iceberg expires by the owner's age what the plan keeps."""
    monkeypatch.setattr("tableformat.export.maintenance.MOST_FILES_NOTED", 0)
    compact_p1(tmp_path)
    at = state(tmp_path).main
    assert at is not None
    owners = (Reference("main", at, is_branch=True, age=1),)
    monkeypatch.setattr("tableformat.export.maintenance.references_of", lambda _: owners)
    before = set(state(tmp_path).snapshots)

    named = (
        r"partition p1 \(only snapshots show .*\) needs some .*branch main \(max-snapshot-age-ms\)"
    )
    maintaining = Maintaining(tmp_path, now=SOON)
    for act in (maintaining.find, maintaining.run):
        with pytest.raises(RefusedError, match=named):
            act()

    assert set(state(tmp_path).snapshots) == before


def snapshots_in_line(*made: int) -> LakeTableState:
    """Return a table of the small world's form with snapshots 1, 2, …, made at these times."""
    with TemporaryDirectory() as place:
        in_files(Path(place))
        found = state(Path(place))
    line = {n: SnapshotSeen(n, n - 1 or None, n, "append", made=at) for n, at in enumerate(made, 1)}
    return replace(found, main=len(made), snapshots=line)


def test_what_expires_by_age_is_what_iceberg_expires() -> None:
    """A tag keeps one snapshot, a branch a line; a branch's own retention goes first."""
    table = snapshots_in_line(10, 20, 30, 40)
    main = Reference("main", 4, is_branch=True)
    tag, late = Reference("t", 1, is_branch=False), Reference("b", 2, is_branch=True, keeps=2)

    def expired(*references: Reference, older_than: int = 100, keeps: int = 1) -> frozenset[int]:
        return expired_by_age(table, references, older_than, keeps, 100)

    assert expired(main) == {1, 2, 3}
    assert expired(main, keeps=3) == {1}
    assert expired(main, older_than=20) == {1}
    assert expired(main, tag) == {2, 3}
    assert expired(main, late) == {3}
    assert expired(replace(main, age=75), older_than=0) == {1, 2}
    assert expired(Reference("main", 2, is_branch=True), older_than=40) == {1, 3}


def test_small_files_are_of_partitions_that_are_closed(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: a compaction takes part in an export, or merges what others changed."""

    def found(target: int = 10**9, busy: str = "") -> list[str]:
        rows = [r for r in ledger_rows(tmp_path) if r.destination_table == "lake.n.t"]
        closed = small_files(rows, state(tmp_path), lake(tmp_path), target, lambda k: k == busy)
        return [one.partition_id for one in closed]

    assert found() == ["p1"]
    assert found(target=1) == []
    assert found(busy=row_of(tmp_path, "p1").key.hash) == []
    done("update", tmp_path, source)
    assert found() == []


@pytest.mark.usefixtures("source")
def test_receipts_and_what_gc_judges_are_no_orphans(tmp_path: Path) -> None:
    """Harm prevented: age alone removes a file that an unfinished export staged."""
    table, at = lake(tmp_path), state(tmp_path)
    row = row_of(tmp_path, "p1")
    base = at.location.rstrip("/")
    (referred, *_) = p1_files(tmp_path)
    orphans = OrphanFilter.of(
        at, [*table.referred_files(at, at.snapshots), *table.metadata_files(at)],
        lambda key: key == row.key.hash,
    )  # fmt: skip
    manifest = next(p for p in table.referred_files(at, at.snapshots) if p.endswith("-m0.avro"))

    assert not orphans.may_go(referred)
    assert not orphans.may_go(at.metadata_location)
    assert not orphans.may_go(f"{base}/{RECEIPTS}/groups/1.json")
    assert not orphans.may_go(f"{base}/data/{row.key.hash}-77-0-x.parquet")
    assert not orphans.may_go(f"{base}/metadata/snap-1-0-{manifest.rsplit('/', 1)[-1]}")
    assert orphans.may_go(f"{base}/data/{'a' * 26}-77-0-x.parquet")
    assert orphans.may_go(f"{base}/data/part-0.parquet")


@pytest.mark.parametrize(
    ("ours", "of_spark"),
    [
        ("file:///a/b%20c.parquet", "file:/a/b c.parquet"),
        ("file:///a/p=x%2520y/f", "file:///a/p=x%20y/f"),
        ("s3://bucket/a%20b/f", "s3a://bucket/a%20b/f"),
    ],
)
def test_a_location_is_the_same_in_both_forms(ours: str, of_spark: str) -> None:
    """Harm prevented: an orphan is never found, or another file is removed in its place."""
    assert path_in(ours) == path_in(of_spark, is_encoded=False)


def outcome(
    directory: Path, acts: list[str], before: frozenset[int], maintained: frozenset[int]
) -> tuple[list[Status], str, Seen]:
    """Return what became of some acts and of an export after them, and what is there.

    Before the acts of these numbers, the export included, another engine compacts p1, and then
    maintenance expires every snapshot that nobody needs.
    """
    source = prepared(directory)
    found = []
    for number, act in enumerate([*acts, ""]):
        if number in before:
            compact_p1(directory)
        if number in maintained:
            Maintaining(directory).run()
        if act:
            found.append(done(act, directory, source))
    return found, again(directory, source), seen(directory)


ANY = (*OURS, *PARTS, GROWS)
ACTS = st.lists(st.sampled_from(ANY), min_size=1, max_size=4)
NUMBERS = st.frozensets(st.integers(0, 4), min_size=1, max_size=3)


@settings(max_examples=8, deadline=None)
@example(["detach smallest part", "attach smallest part"], frozenset({1}), frozenset({1}))
@example(["update", "detach", "attach"], frozenset({0, 1}), frozenset({1, 2, 3}))
@given(acts=ACTS, before=NUMBERS, maintained=NUMBERS)
def test_maintenance_changes_nothing_of_what_comes_after(
    acts: list[str], before: frozenset[int], maintained: frozenset[int]
) -> None:
    """Harm prevented: what an owner may do depends on whether somebody maintained the table."""
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        plain = outcome(Path(one), acts, before, frozenset())
        assert outcome(Path(other), acts, before, maintained) == plain


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@settings(max_examples=500, deadline=None)
@given(acts=ACTS, before=NUMBERS, maintained=NUMBERS)
def test_much_maintenance_changes_nothing_of_what_comes_after(
    acts: list[str], before: frozenset[int], maintained: frozenset[int]
) -> None:
    """The same, longer."""
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        plain = outcome(Path(one), acts, before, frozenset())
        assert outcome(Path(other), acts, before, maintained) == plain
