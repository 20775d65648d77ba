"""`gc` of metadata: manifests of abandoned attempts, lists of commits, receipts, lost races."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from catalog.ledgers.sqlite import SqliteLedger
from tableformat.committer import Commit, LakeTableState, Staged
from tableformat.effects import Step
from tableformat.export.gc import Garbage, Kind
from tableformat.export.leases import Leases
from tableformat.export.request import ExportOptions
from tableformat.export.slices import FileFormat
from tableformat.file_names import sequence_number_in, stop_mark, views_directory
from tableformat.ledger import LeaseHeld, Owner
from tableformat.messages import plain
from tests.faults.test_operator_actions import (
    FOREIGN,
    append,
    compact,
    expire,
    move_main,
    restore_metadata,
)
from tests.faults.test_rebuilt_ledger import lose, rebuilt
from tests.support.cleaning_up import clean_up, sweeping
from tests.support.dying import Dies, KilledAt
from tests.support.explained import unexplained
from tests.support.lake_statements import attach, detach, running
from tests.support.scenarios import (
    ALL,
    Partitions,
    assert_exported_once,
    lake,
    pyiceberg,
    rows_in_main,
    run,
    state,
    statuses,
)

FORCED = replace(ALL, options=ExportOptions(force=True))


def dies(directory: Path, step: Step, *, after: bool = False, nth: int = 1) -> None:
    with pytest.raises(Dies):
        run(directory, Partitions(), effects=KilledAt(step, after=after, nth=nth))


def of_kind(garbage: tuple[Garbage, ...], kind: Kind) -> list[Garbage]:
    return [t for t in garbage if t.kind is kind]


def metadata(directory: Path, pattern: str) -> set[str]:
    """Return the names of files in the metadata directory."""
    found = Path(urlparse(state(directory).location).path, "metadata").rglob(pattern)
    return {p.name for p in found}


def staged_by_us(directory: Path) -> tuple[LakeTableState, Staged, Commit]:
    """Stage an attempt and do not send it yet, as a run that is held up there."""
    table, m = lake(directory), state(directory)
    ledger = SqliteLedger(directory / "ledger.db")
    wanted = Commit((), m.layout, ledger.identity, (), ledger.next_epoch())
    return m, table.stage(m, wanted), wanted


def test_the_names_of_all_manifests_of_ours_prove_it(tmp_path: Path) -> None:
    run(tmp_path, Partitions())
    run(tmp_path, Partitions(), request=FORCED)

    uuid = state(tmp_path).layout.table_uuid
    numbers = {sequence_number_in(name, uuid) for name in metadata(tmp_path, "*.avro")}

    assert numbers == {1, 2, 3}


def test_the_manifests_of_an_attempt_go_once_the_table_has_passed_it(tmp_path: Path) -> None:
    """Harm prevented: a manifest goes of a request that is on its way, or one stays for ever."""
    dies(tmp_path, Step.STAGE, after=True, nth=2)

    found = clean_up(sweeping(tmp_path))
    kept = of_kind(found, Kind.MANIFEST)

    assert len(kept) == 2
    assert {(t.may_go, t.why) for t in kept} == {
        (False, "the request for its attempt may still be applied")
    }
    run(tmp_path, Partitions())
    gone = of_kind(clean_up(sweeping(tmp_path)), Kind.MANIFEST)
    assert {t.location for t in gone} == {t.location for t in kept}
    assert all(t.may_go for t in gone)
    assert unexplained(tmp_path) == []
    assert_exported_once(tmp_path, Partitions())


def test_a_request_that_comes_late_finds_its_manifests(tmp_path: Path) -> None:
    run(tmp_path, Partitions())
    m, staged, wanted = staged_by_us(tmp_path)

    clean_up(sweeping(tmp_path))

    assert lake(tmp_path).send(m, staged, wanted, ()).applied
    clean_up(sweeping(tmp_path))
    assert rows_in_main(tmp_path) == 15
    assert {s.rsplit("/", 1)[-1] for s in staged.files} <= metadata(tmp_path, "*.avro")


def test_what_another_writer_has_staged_stays(tmp_path: Path) -> None:
    """Harm prevented: the manifests of another engine go before its request is applied."""
    run(tmp_path, Partitions())
    table = pyiceberg(tmp_path)
    rows = pa.table([pa.array([1, 2])], table.schema().as_arrow())
    with table.transaction() as theirs:
        theirs.append(rows)
        before = metadata(tmp_path, "*.avro")

        assert clean_up(sweeping(tmp_path)) == ()
        assert metadata(tmp_path, "*.avro") == before
    assert rows_in_main(tmp_path) == 15 + 2


def test_manifests_that_only_an_old_snapshot_refers_to_stay(tmp_path: Path) -> None:
    run(tmp_path, Partitions())
    first = state(tmp_path).main
    run(tmp_path, Partitions(), request=FORCED)
    move_main(tmp_path, first)

    assert clean_up(sweeping(tmp_path)) == ()
    assert rows_in_main(tmp_path) == 15


def test_what_expired_snapshots_left_goes(tmp_path: Path) -> None:
    """Data files that were replaced, receipts but one, manifests and the list of their commit.

    The receipt that stays tells in which lake partition the rows were.
    """
    small = FileFormat(target_file_bytes=80)
    run(tmp_path, Partitions(), request=replace(ALL, format=small))
    run(tmp_path, Partitions(), request=FORCED)
    assert unexplained(tmp_path) == []
    expire(tmp_path)
    assert unexplained(tmp_path) != []

    gone = clean_up(sweeping(tmp_path))

    assert all(t.may_go for t in gone)
    assert {t.kind for t in gone} == {Kind.DATA_FILE, Kind.RECEIPT, Kind.MANIFEST, Kind.LIST}
    assert "which was expired, and no snapshot refers to it" in gone[0].why
    assert len(of_kind(gone, Kind.DATA_FILE)) == 1 + len(of_kind(gone, Kind.RECEIPT)) + 1
    assert unexplained(tmp_path) == []
    assert sweeping(tmp_path).find() == ()
    assert rows_in_main(tmp_path) == 15 + FOREIGN


def test_what_is_younger_than_asked_for_stays(tmp_path: Path) -> None:
    """Its age is that of the snapshot with which it died."""
    run(tmp_path, Partitions())
    run(tmp_path, Partitions(), request=FORCED)
    expire(tmp_path)
    now = max(s.made for s in state(tmp_path).snapshots.values())
    younger, older = (sweeping(tmp_path, older_than=3_600_000) for _ in range(2))

    young = clean_up(replace(younger, now=now + 60_000))
    old = clean_up(replace(older, now=now + 3_700_000))

    assert {t.may_go for t in of_kind(young, Kind.MANIFEST)} == {False}
    assert all("younger than --older-than" in plain(t.why) for t in of_kind(young, Kind.MANIFEST))
    assert {t.may_go for t in of_kind(old, Kind.MANIFEST)} == {True}


@pytest.mark.parametrize("change", [None, compact])
def test_a_ledger_is_rebuilt_as_well_after_everything_was_cleaned_up(
    tmp_path: Path, change: Callable[[Path], None] | None
) -> None:
    """Harm prevented: the list goes that tells of rows that others have rewritten since."""
    dies(tmp_path, Step.NOTE_GROUP, after=True)
    run(tmp_path, Partitions())
    run(tmp_path, Partitions(), request=FORCED)
    if change is not None:
        change(tmp_path)
    expire(tmp_path)
    before = rows_in_main(tmp_path)
    lists = metadata(tmp_path, "groups/*")
    clean_up(sweeping(tmp_path))
    assert len(metadata(tmp_path, "groups/*") & lists) == 1
    lose(tmp_path)

    found = rebuilt(tmp_path)

    assert [f.proved for f in found] == [change is None] * 2
    status = "already_exported" if change is None else "refused"
    assert statuses(run(tmp_path, Partitions())) == [status] * 2
    assert rows_in_main(tmp_path) == before


def test_the_list_of_an_export_stays_after_statements_without_one(tmp_path: Path) -> None:
    """Harm prevented: rows that others rewrote since are exported again with a new ledger."""
    # Each partition has a list of its own.
    run(tmp_path, Partitions(), request=replace(ALL, commit_every=1))
    for statement in (detach("p1"), attach("p1")):
        running(tmp_path).run(statement)
    compact(tmp_path)
    table = pyiceberg(tmp_path)
    kept = {one.snapshot_id for one in table.metadata.refs.values()}
    old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id not in kept]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    before = rows_in_main(tmp_path)
    clean_up(sweeping(tmp_path))
    lose(tmp_path)

    found = rebuilt(tmp_path)

    assert {f.row.key.partition_id: f.proved for f in found} == {"p1": False, "p2": False}
    assert statuses(run(tmp_path, Partitions())) == ["refused"] * 2
    assert rows_in_main(tmp_path) == before


def test_files_of_a_commit_that_the_catalog_lost_stay(tmp_path: Path) -> None:
    """Harm prevented: the catalog is restored to the later version, whose files are gone."""
    run(tmp_path, Partitions())
    before = metadata(tmp_path, "../data/**/*.parquet")
    restore_metadata(tmp_path)
    append(tmp_path)
    append(tmp_path)

    found = clean_up(sweeping(tmp_path))

    lost = of_kind(found, Kind.DATA_FILE)
    assert {one.may_go for one in lost} == {False}
    assert all("its catalog lost the commit" in one.why for one in lost)
    assert before <= metadata(tmp_path, "../data/**/*.parquet")


def test_the_list_of_an_interrupted_commit_stays_until_another_one_landed(tmp_path: Path) -> None:
    dies(tmp_path, Step.NOTE_GROUP, after=True)

    (kept,) = of_kind(clean_up(sweeping(tmp_path)), Kind.LIST)

    assert kept.why == "a request of it may still be applied, or its export resumed"
    run(tmp_path, Partitions())
    (gone,) = of_kind(clean_up(sweeping(tmp_path)), Kind.LIST)
    assert (gone.may_go, gone.location) == (True, kept.location)


def test_lists_that_cannot_be_judged_stay(tmp_path: Path) -> None:
    """One is damaged, one of a table that was here before, one of a ledger that was lost."""
    run(tmp_path, Partitions())
    (path,) = (tmp_path / "warehouse").rglob("groups/*.json")
    body = json.loads(path.read_text())
    path.with_name("1.json").write_text("{}")
    for name, member, value in (("2", "destination", "gone"), ("3", "partition_id", "lost")):
        exports = [{**e, member: value} for e in body["exports"]]
        path.with_name(f"{name}.json").write_text(json.dumps({**body, "exports": exports}))

    damaged, before, unknown = of_kind(clean_up(sweeping(tmp_path)), Kind.LIST)

    assert "The list is damaged" in damaged.why
    assert before.why == "unknown table: it belongs to another table that was in this location"
    assert unknown.why == "unknown export: this ledger has no record of one on it"
    assert len(metadata(tmp_path, "groups/*")) == 4


def test_a_list_that_was_never_finished_goes_when_nobody_works(tmp_path: Path) -> None:
    dies(tmp_path, Step.NOTE_GROUP)
    run(tmp_path, Partitions())
    (path,) = (tmp_path / "warehouse").rglob("groups/*.json")
    begun = path.with_name(".77.json.inprogress")
    begun.write_text("{")
    dies_again = replace(FORCED, options=ExportOptions(force=True, manifest_ttl=7))
    with pytest.raises(Dies):
        run(tmp_path, Partitions(), effects=KilledAt(Step.WRITE_FILES), request=dies_again)
    one = sweeping(tmp_path)
    ledger = one.cleaning.ports.ledger
    assert isinstance(one.leases, Leases)

    kept = of_kind(clean_up(replace(one, holder=ledger.holder)), Kind.LIST)
    gone = of_kind(clean_up(sweeping(tmp_path)), Kind.LIST)

    assert [(t.may_go, t.why) for t in kept] == [(False, "an export into the table is under way")]
    assert [(t.may_go, t.why) for t in gone] == [(True, "never finished")]
    assert not begun.exists()


def test_the_mark_of_a_job_that_died_while_it_stopped_goes_when_nobody_works(
    tmp_path: Path,
) -> None:
    dies(tmp_path, Step.WRITE_FILES)
    one = sweeping(tmp_path)
    mark = Path(urlparse(stop_mark(one.cleaning.receipts, "job7")).path)
    mark.parent.mkdir(parents=True)
    mark.touch()

    kept = of_kind(clean_up(replace(one, holder=_somebody)), Kind.STOP_MARK)
    gone = of_kind(clean_up(sweeping(tmp_path)), Kind.STOP_MARK)

    assert [(t.may_go, t.why) for t in kept] == [(False, "an export into the table is under way")]
    assert [(t.may_go, t.why) for t in gone] == [(True, "its job is over")]
    assert not mark.exists()


def test_rows_of_a_view_that_a_killed_driver_left_go_when_they_are_old(tmp_path: Path) -> None:
    source = Partitions()
    run(tmp_path, source)
    one = replace(sweeping(tmp_path), older_than=5_000)
    files = []
    for began in (one.now - 6_000, one.now - 4_000):
        below = views_directory(state(tmp_path).location, began, "one")
        files.append(Path(urlparse(below).path, "rows.parquet"))
        files[-1].parent.mkdir(parents=True)
        files[-1].touch()

    found = of_kind(clean_up(one), Kind.VIEW_ROWS)

    # They are listed in no order.
    assert sorted(t.may_go for t in found) == [False, True]
    assert [path.exists() for path in files] == [False, True]
    assert_exported_once(tmp_path, source)


def test_the_metadata_file_of_a_commit_that_lost_its_race_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ours, that is; that of another writer stays, and so do versions that were the table's."""
    run(tmp_path, Partitions())
    write, left = SqlCatalog._write_metadata, [1, 1]

    def loses(*arguments: object, **named: object) -> None:
        write(*arguments, **named)  # type: ignore[arg-type]
        if left and left.pop():
            append(tmp_path)

    monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(loses))
    statuses(run(tmp_path, Partitions(), request=FORCED))
    assert left == []
    theirs = _of_nobody(pyiceberg(tmp_path))

    (gone,) = of_kind(clean_up(sweeping(tmp_path)), Kind.METADATA)

    assert gone.may_go
    assert gone.why == "of a commit that lost its race: another one came first"
    assert not Path(urlparse(gone.location).path).exists()
    assert theirs.exists()
    assert unexplained(tmp_path) == []
    assert clean_up(sweeping(tmp_path)) == ()


def _somebody(_key: str) -> LeaseHeld:
    return LeaseHeld(Owner("elsewhere", 1, "now"), 0, 1)


def _of_nobody(table: Table) -> Path:
    """Leave a metadata file as another writer's lost race leaves it; return it."""
    here = Path(urlparse(table.metadata_location).path)
    theirs = here.with_name(f"{here.name[:5]}-of-another-writer.metadata.json")
    os.link(here, theirs)
    return theirs


def test_nothing_is_judged_under_another_lease(tmp_path: Path) -> None:
    """Files below the keys are judged under their leases; a list is judged by all its rows."""
    dies(tmp_path, Step.SEND)
    one = sweeping(tmp_path)
    ledger = one.cleaning.ports.ledger
    for row in ledger.rows():
        ledger.take_lease(row.key.hash, Owner("elsewhere", 7, "x"), 10**6)

    found = clean_up(replace(one, holder=ledger.holder))

    assert found
    assert not any(t.may_go for t in found)
