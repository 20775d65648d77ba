"""Files of dead exports go once nothing of them can land, and no other file ever does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.iceberg.table import IcebergTable
from catalog.ledgers.memory import MemoryLedger
from catalog.storages.local import LocalStorage
from catalog.storages.schemes import open_storage
from tableformat.committer import Committed, LakeTableState, Layout, ReplaceOwn, SnapshotSeen
from tableformat.effects import Step
from tableformat.errors import RefusedError
from tableformat.export.cleanup import STAYS_KNOWN, Cleaned, Cleaning
from tableformat.export.give_up import GivenUp, Listing, kill, list_verdict, verdict
from tableformat.file_names import data_file_name, exported_by
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Claim, ExportedPart, Landed, Row, State
from tests.support.lake import KEY, claim, commit_of, commit_one, ports, prepared, receipt


@dataclass
class Lake:
    """A table with a ledger, exports of one key, and real files."""

    table: IcebergTable
    ledger: MemoryLedger
    directory: Path

    @property
    def cleaning(self) -> Cleaning:
        """What is tested."""
        return Cleaning(ports(self.table, self.ledger), open_storage, self.table.load().location)

    def write(self, row: Row, attempt: str = "x", *, noted: bool = True) -> None:
        """Write the file of a claim, with its receipt."""
        name = data_file_name(row.key.hash, row.claim.transaction_id, 0, attempt)
        path = f"{self.cleaning.location}/data/{name}"
        LocalStorage().put(path, b"rows")
        below = f"{self.cleaning.receipts}/{row.key.hash}/{row.claim.transaction_id}"
        text = replace(receipt(row), attempt=attempt, file_path=path).to_json()
        if noted:
            LocalStorage().put(f"{below}/0-{attempt}.json", text.encode())

    def export(self, row: Row) -> None:
        """Make the file of a claim visible; it is the one of attempt `x`."""
        wanted = commit_of(row, self.table.load(), self.ledger)
        name = data_file_name(row.key.hash, row.claim.transaction_id, 0, "x")
        path = f"{self.cleaning.location}/data/{name}"
        (key,) = wanted.keys
        held = tuple(replace(r, file_path=path, partition=()) for r in key.receipts)
        forced = replace(key, receipts=held, change=ReplaceOwn(alongside=True))
        wanted = replace(wanted, keys=(forced,))
        assert isinstance(commit_one(ports(self.table, self.ledger), wanted), Committed)

    def kill(self) -> None:
        """Cancel the export of the key."""
        outcome = kill(ports(self.table, self.ledger), KEY.hash, state=State.KILLED)
        assert isinstance(outcome, GivenUp)

    def files(self) -> list[str]:
        """Return what is there, as `<transaction>/<attempt>`, receipts with `r:` before it."""
        found = []
        for path in sorted(self.directory.rglob("*")):
            export = exported_by(path.name)
            if path.is_file() and export is not None:
                found.append(f"{export[1]}/{path.stem.rsplit('-', 1)[-1]}")
            elif path.is_file() and path.suffix == ".json" and "mergeberg" in path.parts:
                found.append(f"r:{path.parent.name}/{path.stem.rsplit('-', 1)[-1]}")
        return sorted(found)

    def clean(self) -> Cleaned:
        """Clean up after the key."""
        return self.cleaning.clean(KEY.hash)

    @property
    def row(self) -> Row:
        """What the ledger says."""
        row = self.ledger.read(KEY.hash)
        assert row is not None
        return row


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return a table with its first snapshot."""
    ledger = MemoryLedger()
    table = prepared(tmp_path, ledger)
    return Lake(table, ledger, Path(urlparse(table.load().location).path))


def test_the_files_of_a_cancelled_export_go(lake: Lake) -> None:
    row = claim(lake.ledger)
    lake.write(row)
    lake.kill()

    cleaned = lake.clean()

    assert cleaned.files == 1
    assert cleaned.bytes > len(b"rows")
    assert lake.files() == []


def test_the_files_of_a_resumable_export_stay(lake: Lake) -> None:
    """Harm prevented: finished files are written again, or are missing at the commit."""
    row = claim(lake.ledger)
    lake.write(row)

    assert lake.clean() == Cleaned()
    assert len(lake.files()) == 2


def test_an_export_left_behind_goes_once_the_next_one_has_landed(lake: Lake) -> None:
    first = claim(lake.ledger)
    lake.write(first)
    second = claim(lake.ledger, content="other")
    lake.write(second)

    assert lake.clean() == Cleaned(), "a request of the first may still be applied"
    assert [c.transaction_id for c in lake.row.old] == [first.claim.transaction_id]
    lake.export(second)
    lake.clean()

    number = second.claim.transaction_id
    assert lake.files() == [f"{number}/x", f"r:{number}/x"]


def test_what_a_late_worker_still_writes_of_a_dead_export_is_known_and_goes(lake: Lake) -> None:
    """Harm prevented: a file that nobody can tell of, and nobody removes."""
    first = claim(lake.ledger)
    second = claim(lake.ledger, content="other")
    lake.write(second)
    lake.export(second)
    lake.clean()
    lake.write(first)

    assert lake.clean().files == 1

    number = second.claim.transaction_id
    assert lake.files() == [f"{number}/x", f"r:{number}/x"]


def test_a_dead_export_is_forgotten_when_nobody_can_write_for_it_any_more(lake: Lake) -> None:
    """The row does not grow for ever."""
    claim(lake.ledger)
    second = claim(lake.ledger, content="other")
    lake.write(second)
    lake.export(second)
    later = replace(lake.cleaning.ports, clock=lambda: STAYS_KNOWN + 2)

    replace(lake.cleaning, ports=later).clean(KEY.hash)

    assert lake.row.old == ()


def test_what_a_lost_worker_wrote_twice_goes_and_what_landed_stays(lake: Lake) -> None:
    row = claim(lake.ledger)
    lake.write(row)
    lake.write(row, "twice")
    lake.write(row, "unnoted", noted=False)
    lake.export(row)

    assert lake.clean().files == 2

    number = row.claim.transaction_id
    assert lake.files() == [f"{number}/x", f"r:{number}/x"]


def test_a_begun_file_of_a_dead_worker_goes_with_its_export(lake: Lake) -> None:
    row = claim(lake.ledger)
    name = data_file_name(row.key.hash, row.claim.transaction_id, 0, "y")
    sink = LocalStorage().create(f"{lake.cleaning.location}/data/{name}")
    sink.write(b"half")
    lake.kill()

    lake.clean()

    assert not list(lake.directory.rglob("*inprogress"))
    sink.abort()


def test_files_that_only_an_old_snapshot_refers_to_stay(lake: Lake) -> None:
    """Harm prevented: a rollback, or time travel, meets files that are gone."""
    before = claim(lake.ledger)
    lake.write(before)
    lake.export(before)
    after = claim(lake.ledger, content="other")
    lake.write(after)
    lake.export(after)

    assert lake.clean() == Cleaned()
    assert len(lake.files()) == 4


def test_files_of_another_key_and_of_strangers_stay(lake: Lake) -> None:
    row = claim(lake.ledger)
    other = claim(lake.ledger, key=replace(KEY, partition_id="202402"))
    lake.write(other)
    lake.write(row)
    LocalStorage().put(f"{lake.cleaning.location}/data/part-0001.parquet", b"of somebody")
    lake.kill()

    lake.clean()

    assert lake.files() == [f"{other.claim.transaction_id}/x", f"r:{other.claim.transaction_id}/x"]
    assert (lake.directory / "data" / "part-0001.parquet").exists()


def test_an_export_that_the_ledger_does_not_know_stays(lake: Lake) -> None:
    """It may be of a ledger that was lost: nothing is known of it."""
    row = claim(lake.ledger)
    unknown = replace(row, claim=replace(row.claim, transaction_id="77"))
    lake.write(unknown)
    lake.kill()

    lake.clean()

    assert lake.files() == ["77/x", "r:77/x"]


def test_nothing_goes_while_the_metadata_is_an_older_one(lake: Lake) -> None:
    """Harm prevented: a sequence number that went back is taken for a proof."""
    row = claim(lake.ledger)
    lake.write(row)
    lake.kill()
    landed = Landed(1, "5", "other", 7, 1_000, 1, 1)
    lake.ledger.write(lake.row.with_landed(landed))

    assert lake.clean() == Cleaned()
    assert len(lake.files()) == 2


def test_the_table_of_another_ledger_is_not_cleaned(lake: Lake) -> None:
    row = claim(lake.ledger)
    lake.write(row)
    lake.kill()
    stranger = replace(lake, ledger=MemoryLedger())

    with pytest.raises(RefusedError, match="another ledger"):
        stranger.clean()


def test_at_most_as_many_files_go_as_allowed(lake: Lake) -> None:
    row = claim(lake.ledger)
    for number in range(3):
        lake.write(row, f"a{number}")
    lake.kill()

    assert lake.cleaning.clean(KEY.hash, most=2) == Cleaned()
    assert lake.cleaning.clean(KEY.hash, most=3).files == 3


class Dies(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("number", range(9))
def test_cleaning_that_dies_anywhere_is_finished_by_the_next(lake: Lake, number: int) -> None:
    """Harm prevented: the ledger forgets an export of which files are left."""
    first = claim(lake.ledger)
    parts = (ExportedPart("all_1_1_0", "hash", 10, 1, 1, 1),)
    lake.ledger.write(replace(first, claim=replace(first.claim, parts=parts)))
    for attempt in ("x", "y"):
        lake.write(first, attempt)
    second = claim(lake.ledger, content="other")
    lake.write(second)
    lake.export(second)
    left = [number]
    begun = lake.row.old

    def dying(_step: Step, act: Callable[[], object]) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise Dies
        return act()

    cleaning = replace(
        lake.cleaning,
        ports=replace(lake.cleaning.ports, effects=dying),  # type: ignore[arg-type]
    )
    with pytest.raises(Dies):
        cleaning.clean(KEY.hash)
    assert lake.row.old == begun

    lake.clean()

    assert len(lake.files()) == 2
    assert not any(c.parts for c in lake.row.old)


EPOCHS = st.integers(1, 6)
LANDED = st.builds(
    Landed, EPOCHS, st.sampled_from("abc"), st.just("f"), EPOCHS, st.integers(0, 6),
    st.just(1), st.just(1),
)  # fmt: skip
CLAIMS = st.builds(Claim, EPOCHS, st.sampled_from("abcd"), st.just("f"), st.just(1))
LEFT = st.builds(replace, CLAIMS, given_up=st.booleans())
ROWS = st.builds(
    Row, st.just(KEY), st.just("db.t"), st.just("lake.n.t"), st.sampled_from(State), CLAIMS,
    st.just(1), st.just(1), landed=st.lists(LANDED, max_size=2).map(tuple),
    old=st.lists(LEFT, max_size=2).map(tuple),
)  # fmt: skip


KEPT = st.frozensets(EPOCHS)


def at(sequence_number: int, snapshots: Iterable[int] = ()) -> LakeTableState:
    """Return M with a sequence number, and these snapshots."""
    seen = {s: SnapshotSeen(s, None, s, "append") for s in snapshots}
    return LakeTableState(Layout("u", 0, 0, 0), 2, "/", 1, sequence_number, {}, seen, "m")


@given(
    row=ROWS,
    seen=st.integers(0, 8),
    kept=KEPT,
    referred=st.integers(0, 2),
    one=st.sampled_from("abcde"),
)
def test_what_may_go_is_always_proved(
    row: Row, seen: int, kept: frozenset[int], referred: int, one: str
) -> None:
    """Nothing goes without a proof, and never a resumable or an unknown export."""
    judged = verdict(row, at(seen, kept), referred, one)
    landed = [x for x in row.landed if x.transaction_id == one]

    if judged.may_go:
        claimed = row.claim_of(one)
        given_up = row.state in (State.KILLED, State.FAILED) or (claimed and claimed.given_up)
        later = [x for x in row.landed if 0 < x.sequence_number <= seen]
        assert all(x.sequence_number <= seen for x in row.landed)
        if landed:
            assert referred == landed[0].data_files or landed[0].snapshot_id not in kept
        else:
            assert claimed is not None
            assert not referred
            assert given_up or any(x.epoch > claimed.epoch for x in later)
            assert given_up or row.claim is not claimed
        assert not (row.state is State.RUNNING and row.claim.transaction_id == one)
    assert judged.why


LISTINGS = st.builds(Listing, st.none() | ROWS, st.sampled_from("abcd"), EPOCHS, st.integers(0, 2))


@given(listed=st.lists(LISTINGS, min_size=1, max_size=3), seen=st.integers(0, 8), kept=KEPT)
def test_a_list_goes_only_when_none_of_its_exports_needs_it(
    listed: list[Listing], seen: int, kept: frozenset[int]
) -> None:
    """Harm prevented: a rebuilt ledger takes what landed for what was never exported."""
    judged = list_verdict(listed, at(seen, kept))

    if judged is None or not judged.may_go:
        return
    for one in listed:
        row = one.row
        if row is None:
            # The ledger knows another export on the list, so this one's partition was forgotten.
            assert any(other.row is not None for other in listed)
            assert not one.referred
            continue
        here = (one.transaction_id, one.epoch)
        newest = max(row.landed, key=lambda x: x.epoch, default=None)
        assert newest is None or (newest.transaction_id, newest.epoch) != here
        same = [x for x in row.landed if x.transaction_id == one.transaction_id]
        assert not any(x.epoch == one.epoch and x.snapshot_id in kept for x in same)
        assert not one.referred or (same and one.epoch not in {x.epoch for x in same})
        assert row.state is not State.RUNNING or row.claim.transaction_id != one.transaction_id
        claim = row.claim_of(one.transaction_id)
        dead = row.state in (State.KILLED, State.FAILED) and one.epoch <= row.claim.epoch
        dead = dead or (claim is not None and claim.given_up and one.epoch <= claim.epoch)
        passed = [x for x in row.landed if 0 < x.sequence_number <= seen]
        assert dead or any(x.epoch > one.epoch or x in same for x in passed)


def test_snapshots_of_every_branch_count(lake: Lake) -> None:
    """Harm prevented: files that only a branch refers to are taken for unused."""
    row = claim(lake.ledger)
    lake.write(row)
    lake.export(row)
    at_export = lake.table.load()
    assert at_export.main is not None
    with table_of(at_export).manage_snapshots() as manage:
        manage.create_branch(at_export.main, "kept")
    first = min(at_export.snapshots.values(), key=lambda s: s.sequence_number)
    moved = table_of(lake.table.load())
    moved.manage_snapshots().set_current_snapshot(snapshot_id=first.snapshot_id).commit()

    found = lake.table.refers_to(lake.table.load(), KEY.hash, (row.claim.transaction_id,))

    assert [exported_by(path) for path in found] == [(KEY.hash, row.claim.transaction_id)]
