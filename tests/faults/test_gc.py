"""`gc` after a crash at any step: only what dead attempts left goes, and then nothing is left."""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlparse

import pytest

from catalog.ledgers.sqlite import SqliteLedger
from catalog.storages.local import LocalStorage
from tableformat.effects import Direct, Effects, Step
from tableformat.export.gc import Garbage, Kind
from tableformat.export.give_up import GivenUp, kill
from tableformat.export.job import ExportRequest, export
from tableformat.export.leases import Leases
from tableformat.export.outcome import Outcome, Status
from tableformat.export.request import ById, ExportOptions
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Row, State
from tableformat.messages import plain
from tableformat.names import LakeName, PartitionId, TableName
from tests.support.cleaning_up import GC, clean_up, sweeping
from tests.support.dying import Dies, DiesAt, KilledAt
from tests.support.explained import unexplained
from tests.support.fakes import FakeSource, job_ports, part
from tests.support.scenarios import rows_in_main

_REQUEST = ExportRequest(
    TableName("db", "t"),
    LakeName("lake", ("n",), "t"),
    ById(PartitionId("all")),
    ExportOptions(),
    {},
)
_FORCED = replace(_REQUEST, options=ExportOptions(force=True))
# Of the deaths before and after an effect; `make test-all` has all of them.
_EVERY = 3
_TIMES = itertools.count(1_000_000)


def run(
    directory: Path,
    source: FakeSource,
    effects: Effects | None = None,
    request: ExportRequest = _REQUEST,
) -> list[Outcome]:
    """Run the command as a new process."""
    ports = job_ports(directory, source, effects=effects, clock=_TIMES.__next__)
    return list(export(request, ports, slots=1))


def gone(garbage: tuple[Garbage, ...]) -> list[Garbage]:
    return [t for t in garbage if t.may_go]


def in_main(directory: Path) -> set[str]:
    """Return the data files that main refers to, by name."""
    table = table_of(sweeping(directory).cleaning.ports.table.load())
    return {t.file.file_path.rsplit("/", 1)[-1] for t in table.scan().plan_files()}


def on_disk(directory: Path) -> set[str]:
    """Return the data files that are there, begun ones too."""
    location = Path(urlparse(sweeping(directory).cleaning.location).path, "data")
    return {p.name for p in location.rglob("*") if p.is_file()}


def first_export(directory: Path, source: FakeSource, effects: Effects | None) -> list[Outcome]:
    """Export a partition for the first time, or again after that."""
    assert directory.exists()
    return run(directory, source, effects)


def replacement(directory: Path, source: FakeSource, effects: Effects | None) -> list[Outcome]:
    """Replace what was exported, after an attempt with another content that died."""
    if not source.snapshots:
        run(directory, source)
        source.held = [part("all_1_1_0", 20)]
        with pytest.raises(Dies):
            run(directory, source, KilledAt(Step.NOTE_WRITTEN), _FORCED)
        source.left.clear()
        source.held = [part("all_1_1_0", 30), part("all_2_2_0", 5)]
    return run(directory, source, effects, _FORCED)


SCENARIOS = {"first export": (first_export, 12), "replacement": (replacement, 35)}


def _seams() -> Iterator[tuple[str, int, Step]]:
    for name, (scenario, _) in SCENARIOS.items():
        recorder = DiesAt(10_000, after=False)
        with tempfile.TemporaryDirectory() as directory:
            scenario(Path(directory), FakeSource(), recorder)
        for number, step in enumerate(recorder.steps):
            yield name, number, step


SEAMS = tuple(_seams())


def test_the_enumeration_knows_the_steps_that_clean_up() -> None:
    """Harm prevented: an enumeration that has become empty proves nothing."""
    steps = {step for name, _, step in SEAMS if name == "replacement"}

    assert {Step.FIND_GARBAGE, Step.CLEAN_FILE, Step.CLEAN_RECEIPT, Step.CLEAN_CLAIM} <= steps


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(
            name,
            number,
            id=f"{name}-{number}-{step}",
            marks=() if number % _EVERY == 0 else pytest.mark.nightly,
        )
        for name, number, step in SEAMS
    ],
)
def test_after_a_crash_anywhere_gc_takes_what_is_dead_and_then_finds_nothing(
    tmp_path: Path, name: str, number: int, *, after: bool
) -> None:
    """Harm prevented: a file of main or of a resumable export goes, or one stays for ever."""
    scenario, rows = SCENARIOS[name]
    source = FakeSource()
    with pytest.raises(Dies):
        scenario(tmp_path, source, DiesAt(number, after=after))
    if _table_is_there(tmp_path):
        wanted = in_main(tmp_path) | resumable(tmp_path)
        clean_up(sweeping(tmp_path))
        assert wanted <= on_disk(tmp_path)

    outcomes = scenario(tmp_path, source, None)

    assert [o.status for o in outcomes] in (
        [Status.COMMITTED], [Status.REPLACED], [Status.ALREADY_EXPORTED],
    )  # fmt: skip
    clean_up(sweeping(tmp_path))
    assert sweeping(tmp_path).find() == ()
    assert unexplained(tmp_path) == []
    assert rows_in_main(tmp_path) == rows
    assert in_main(tmp_path) <= on_disk(tmp_path)
    assert ledger_row(tmp_path).state is State.COMPLETED


@pytest.mark.parametrize("number", range(12))
def test_gc_that_dies_anywhere_is_finished_by_the_next(tmp_path: Path, number: int) -> None:
    cancelled(tmp_path)
    with contextlib.suppress(Dies):
        clean_up(sweeping(tmp_path, effects=DiesAt(number, after=False)))

    clean_up(sweeping(tmp_path))

    assert sweeping(tmp_path).find() == ()
    assert on_disk(tmp_path) == set()


def test_a_dry_run_lists_garbage_and_removes_nothing(tmp_path: Path) -> None:
    cancelled(tmp_path)
    before = on_disk(tmp_path)

    found = sweeping(tmp_path).find()

    assert [(t.kind, t.may_go, t.partition_id) for t in found] == [
        (Kind.DATA_FILE, True, "all"),
        (Kind.RECEIPT, True, "all"),
    ]
    assert {t.why for t in found} == {"its export was given up (KILLED)"}
    assert found[0].bytes == 12
    assert on_disk(tmp_path) == before


def test_what_is_younger_than_asked_for_stays(tmp_path: Path) -> None:
    """Age keeps; it never proves."""
    cancelled(tmp_path)

    found = clean_up(sweeping(tmp_path, older_than=10**12))

    assert gone(found) == []
    assert all("younger than --older-than" in plain(t.why) for t in found)
    assert on_disk(tmp_path)


def test_a_resumable_export_stays_however_old(tmp_path: Path) -> None:
    """Harm prevented: a night's finished files go because the morning is another day."""
    interrupted(tmp_path)

    found = clean_up(sweeping(tmp_path))

    assert found
    assert gone(found) == []
    assert {t.why for t in found} == {"its export can be resumed or cancelled"}
    assert on_disk(tmp_path)


def test_what_a_running_export_works_on_stays(tmp_path: Path) -> None:
    cancelled(tmp_path)
    one = sweeping(tmp_path)
    ledger = one.cleaning.ports.ledger
    one = replace(one, leases=Leases(ledger, GC, effects=Direct(), is_alive=lambda _: True))

    found = clean_up(one)

    assert gone(found) == []
    assert all("on host works on its partition" in t.why for t in found)
    assert on_disk(tmp_path)


def test_a_begun_file_and_a_receipt_without_its_file_go(tmp_path: Path) -> None:
    """Nobody relies on them, also where the export is resumable."""
    interrupted(tmp_path)
    one = sweeping(tmp_path)
    (path,) = [o.location for o in LocalStorage().list(f"{one.cleaning.location}/data")]
    sink = LocalStorage().create(path.replace("-0-", "-1-"))
    sink.write(b"half")
    LocalStorage().delete(path)

    found = clean_up(one)

    assert {(t.kind, t.may_go) for t in found} == {(Kind.BEGUN_FILE, True), (Kind.RECEIPT, True)}
    sink.abort()
    assert on_disk(tmp_path) == set()
    assert sweeping(tmp_path).find() == ()


def test_what_the_ledger_does_not_know_is_not_judged(tmp_path: Path) -> None:
    """Harm prevented: the files of another ledger's exports, or of a lost one's, go."""
    interrupted(tmp_path)
    storage, one = LocalStorage(), sweeping(tmp_path)
    (path,) = [o.location for o in storage.list(f"{one.cleaning.location}/data")]
    row = ledger_row(tmp_path)
    key, transaction_id = row.key.hash, row.claim.transaction_id
    of_nobody = path.replace(key, "a" * 26)
    of_another_time = path.replace(f"{key}-{transaction_id}-", f"{key}-99{transaction_id}-")
    for unknown in (of_nobody, of_another_time, f"{one.cleaning.location}/data/part-0.parquet"):
        storage.put(unknown, b"x")

    found = clean_up(one)

    reasons = [t.why for t in found if t.location in (of_nobody, of_another_time)]
    assert len(reasons) == 2
    assert all(why.startswith("unknown export") for why in reasons)
    assert gone(found) == []
    assert not [t for t in found if "part-0" in t.location], "another engine's files are not told"


def interrupted(directory: Path) -> None:
    """Leave a resumable export, one file of it finished."""
    with pytest.raises(Dies):
        run(directory, FakeSource(), KilledAt(Step.NOTE_WRITTEN))


def cancelled(directory: Path) -> None:
    """Leave an export that was cancelled, one file of it finished."""
    interrupted(directory)
    ports = sweeping(directory).cleaning.ports
    assert isinstance(kill(ports, ledger_row(directory).key.hash, state=State.KILLED), GivenUp)


def ledger_row(directory: Path) -> Row:
    """Return the only row."""
    (row,) = SqliteLedger(directory / "ledger.db").rows()
    return row


def resumable(directory: Path) -> set[str]:
    """Return the finished files of a resumable export, by name."""
    rows = [r for r in SqliteLedger(directory / "ledger.db").rows() if r.state is State.RUNNING]
    receipts = Path(urlparse(sweeping(directory).cleaning.receipts).path)
    return {
        json.loads(found.read_text())["file_path"].rsplit("/", 1)[-1]
        for row in rows
        for found in (receipts / row.key.hash / row.claim.transaction_id).glob("*.json")
    }


def _table_is_there(directory: Path) -> bool:
    ports = job_ports(directory, FakeSource(), clock=_TIMES.__next__)
    return ports.lake.table(_REQUEST.to) is not None
