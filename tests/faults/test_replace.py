"""A replacement is one snapshot: the new content of the partition for the old, all else untouched.

Whatever happens in between, the same command again leaves exactly the new content.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tableformat.effects import Step
from tableformat.export.request import AllPartitions, ExportOptions
from tableformat.ledger import State
from tests.faults.test_operator_actions import FOREIGN, append, roll_back
from tests.support.dying import Dies, DiesAt, KilledAt
from tests.support.fakes import FakeDigests
from tests.support.other_engines import rewrite
from tests.support.scenarios import (
    AtStep,
    parts_of,
    ports_of,
    pyiceberg,
    row_of,
    rows_by_key,
    rows_in_main,
    run,
    state,
)
from tests.support.scene import ONE, TTL, Scene, move, snapshot_at

FORCED = ExportOptions(force=True, manifest_ttl=TTL)
EMPTIED = ExportOptions(force=True, allow_empty=True, manifest_ttl=TTL)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return a scene in which the partition was exported with 12 rows."""
    return exported(tmp_path)


def exported(directory: Path) -> Scene:
    """Export a partition of 12 rows."""
    made = Scene(directory)
    assert made.run() == ("committed", "")
    return made


def entries(directory: Path) -> dict[str, str]:
    """Return what the manifests of main say of each file, by its name; the sequence too."""
    table = pyiceberg(directory)
    current = table.current_snapshot()
    assert current is not None
    return {
        entry.data_file.file_path.rsplit("/", 1)[-1]: repr(
            (entry.sequence_number, entry.snapshot_id, *map(_plain, entry.data_file._data))
        )
        for manifest in current.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    }


def _plain(value: object) -> object:
    """Return a value whose text says all of it: maps of a manifest are read when asked."""
    return dict(value.items()) if isinstance(value, Mapping) else value


def assert_replaced(scene: Scene, rows: int, landed: int = 2) -> None:
    """Check that main holds the new content once, and that the ledger says so."""
    row = scene.row
    assert rows_by_key(scene.directory)[row.key.hash] == rows
    assert (row.state, row.last.rows, len(row.landed)) == (State.COMPLETED, rows, landed)
    with scene.ledger() as ledger:
        assert ledger.holder(row.key.hash) is None
    assert scene.source.left == {}


@pytest.mark.parametrize(
    ("content", "options", "rows"),
    [
        ("more", None, 15),
        ("more", FORCED, 15),
        ("same", FORCED, 12),
        ("fewer", FORCED, 7),
        ("none", EMPTIED, 0),
    ],
)
def test_one_snapshot_takes_the_old_files_away_and_adds_the_new(
    scene: Scene, content: str, options: ExportOptions | None, rows: int
) -> None:
    """Harm prevented: readers see both contents, or none, between two snapshots."""
    before, old = scene.snapshots, set(entries(scene.directory))
    scene.source.change(content)
    scene.after_ttl()

    assert scene.run(options) == ("replaced", "")

    assert scene.snapshots == before + 1
    assert not old & set(entries(scene.directory))
    assert rows_in_main(scene.directory) == rows
    assert_replaced(scene, rows)


@pytest.mark.parametrize("options", [FORCED, EMPTIED])
def test_time_travel_to_the_snapshot_before_reads_the_old_rows(
    scene: Scene, options: ExportOptions
) -> None:
    """Harm prevented: what was replaced by mistake cannot be had back."""
    scene.source.change("none" if options.allow_empty else "more")
    scene.run(options)

    table = pyiceberg(scene.directory)
    before = snapshot_at(scene.directory, 2)

    assert table.scan(snapshot_id=before).to_arrow().num_rows == 12


@pytest.mark.parametrize(("content", "options"), [("more", FORCED), ("none", EMPTIED)])
def test_files_of_others_stay_byte_for_byte(
    tmp_path: Path, content: str, options: ExportOptions
) -> None:
    """Harm prevented: a replacement takes foreign rows, or another partition, with it."""
    scene = Scene(tmp_path, request=replace(ONE, selection=AllPartitions()))
    scene.run()
    append(tmp_path)
    own = scene.row.key.hash
    others = {n: e for n, e in entries(tmp_path).items() if not n.startswith(own)}
    scene.source.change(content)
    scene.request = ONE

    assert scene.run(options) == ("replaced", "")

    now = entries(tmp_path)
    assert {n: e for n, e in now.items() if not n.startswith(own)} == others
    assert len(others) == 2
    assert rows_by_key(tmp_path)[""] == FOREIGN
    (p2,) = (r for k, r in rows_by_key(tmp_path).items() if k not in ("", own))
    assert p2 == 3


def test_first_exports_and_replacements_share_a_snapshot(tmp_path: Path) -> None:
    """Harm prevented: what one partition of a commit takes away is another one's."""
    scene = Scene(tmp_path)
    scene.run()
    scene.source.change("more")
    scene.source.by_id["p3"] = parts_of("p3", 2)
    scene.after_ttl()
    before = scene.snapshots
    ports = ports_of(tmp_path, scene.source, clock=lambda: scene.now)

    outcomes = run(tmp_path, scene.source, ports=ports)

    found = {o.partition_id: o.status.value for o in outcomes}
    assert found == {"p1": "replaced", "p2": "committed", "p3": "committed"}
    assert scene.snapshots == before + 1
    keys = [row_of(tmp_path, p).key.hash for p in ("p1", "p2", "p3")]
    assert [rows_by_key(tmp_path)[k] for k in keys] == [15, 3, 2]


def _steps() -> list[Step]:
    with tempfile.TemporaryDirectory() as name:
        scene = exported(Path(name))
        scene.source.change("more")
        recorder = DiesAt(10_000, after=False)
        scene.run(FORCED, recorder)
        return recorder.steps


STEPS = _steps()


def test_the_enumeration_knows_the_steps_of_a_replacement() -> None:
    """Harm prevented: an enumeration that has become empty proves nothing."""
    assert {Step.CLAIM, Step.WRITE_FILES, Step.STAGE, Step.SEND, Step.SETTLE} <= set(STEPS)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, id=f"{number}-{step}", marks=pytest.mark.soak if number % 3 else ())
        for number, step in enumerate(STEPS)
    ],
)
def test_a_death_at_any_effect_and_the_same_command_again_is_the_new_content(
    scene: Scene, number: int, *, after: bool
) -> None:
    """Harm prevented: both contents, or neither, because the process died there."""
    scene.source.change("fewer")
    scene.dies(DiesAt(number, after=after), FORCED)
    assert rows_in_main(scene.directory) in (12, 7)

    status, _ = scene.run(FORCED)

    assert status == "replaced"
    assert rows_in_main(scene.directory) == 7
    row = scene.row
    assert (row.state, row.last.rows) == (State.COMPLETED, 7)
    # What landed before the death was noted is replaced once more: that was asked for.
    assert len(row.landed) in (2, 3)


@pytest.mark.parametrize(
    "step",
    [
        Step.TAKE_LEASE, Step.SNAPSHOT_SOURCE, Step.CLAIM, Step.WRITE_FILES, Step.NOTE_WRITTEN,
        Step.LOAD_METADATA, Step.STAGE, Step.SEND, Step.SETTLE, Step.RELEASE_SOURCE,
    ],
)  # fmt: skip
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_two_forced_runs_at_once_leave_one_content(
    scene: Scene, step: Step, *, after: bool
) -> None:
    """Harm prevented: each replaces what was there when it began, and both contents stay."""
    scene.source.change("more")
    other: list[str] = []

    def second() -> None:
        scene.source.change("more")
        other.append(scene.run(FORCED, meddled=True)[0])

    status, _ = scene.run(FORCED, AtStep(step, second, after=after), meddled=True)

    assert {status, *other} <= {"replaced", "in_progress", "committed", "unknown"}
    row = scene.row
    assert row.state is State.COMPLETED
    assert rows_by_key(scene.directory)[row.key.hash] == row.last.rows
    assert row.last.rows in (15, 18)
    assert scene.run()[0] in ("already_exported", "refused")


@pytest.mark.parametrize("step", [Step.CLAIM, Step.SEND, Step.SETTLE])
def test_a_forced_run_while_the_first_export_is_paused(tmp_path: Path, step: Step) -> None:
    """Harm prevented: the first export wakes up and adds its rows to those of the other."""
    scene, other = Scene(tmp_path), list[str]()

    def second() -> None:
        other.append(scene.run(FORCED)[0])

    first, _ = scene.run(None, AtStep(step, second), meddled=True)

    assert {first, *other} <= {"committed", "replaced", "in_progress", "already_exported"}
    assert rows_in_main(tmp_path) == 12
    assert scene.row.state is State.COMPLETED


def test_a_living_replacement_is_left_to_its_work(scene: Scene) -> None:
    """Harm prevented: --force means that a run that is under way is pushed aside."""
    scene.source.change("more")
    other: list[str] = []

    def second() -> None:
        other.append(scene.run(FORCED, alive=True)[0])

    assert scene.run(FORCED, AtStep(Step.WRITE_FILES, second)) == ("replaced", "")
    assert other == ["in_progress"]
    assert_replaced(scene, 15)


def test_foreign_rows_that_arrive_during_a_replacement_stay(scene: Scene) -> None:
    """Harm prevented: what leaves main is computed from a main that is gone."""
    scene.source.change("more")

    status, _ = scene.run(FORCED, AtStep(Step.SEND, lambda: append(scene.directory)))

    assert status == "replaced"
    assert rows_in_main(scene.directory) == 15 + FOREIGN
    assert_replaced(scene, 15)


def test_a_replacement_that_others_undid_meanwhile_removes_what_is_there_now(
    scene: Scene,
) -> None:
    """Harm prevented: files of an export that was rolled back are looked for, and others stay."""
    scene.source.change("more")

    status, _ = scene.run(FORCED, AtStep(Step.SEND, lambda: roll_back(scene.directory)))

    assert status == "committed"
    assert_replaced(scene, 15)


def test_a_replacement_is_verified_like_a_first_export(scene: Scene) -> None:
    """Harm prevented: the digest is compared with both contents, or not at all."""
    scene.source.change("more")
    for rows, status in ((15, "replaced"), (16, "differs")):
        ports = ports_of(scene.directory, scene.source, clock=lambda: scene.now)
        request = replace(ONE, options=FORCED)
        verified = replace(ports, digests=FakeDigests(rows=rows))

        (outcome,) = run(scene.directory, scene.source, ports=verified, request=request)

        assert (outcome.status.value, outcome.verified) == (status, status == "replaced")
        assert rows_in_main(scene.directory) == 15


# The holes of the model (docs/spec/model) that a rollback opens: names and numbers as there.


def test_h_unchanged_lie(scene: Scene) -> None:
    """Harm prevented: "unchanged" of rows that a rollback took out of main."""
    roll_back(scene.directory)
    scene.after_ttl()

    status, says = scene.run()

    assert status == "refused"
    assert says == (
        "It landed in snapshot S2, and main was moved away from it since. Use --force to export it "
        "again."
    )
    assert scene.run(FORCED) == ("committed", "")
    assert_replaced(scene, 12)


def test_h_done_but_gone(tmp_path: Path) -> None:
    """Harm prevented: an owner finds its mark after a rollback, and reports its rows in main."""
    scene = Scene(tmp_path)

    def lost() -> None:
        roll_back(tmp_path)
        message = "the answer was lost"
        raise Dies(message)

    with pytest.raises(Dies):
        scene.run(None, AtStep(Step.SEND, lost, after=True))
    status, says = scene.run()

    assert (status, rows_in_main(tmp_path)) == ("refused", 0)
    assert "main was moved away from it since" in says


def test_h_replace_last(scene: Scene) -> None:
    """Harm prevented: after a rollback the third export removes the second's files: rows twice."""
    scene.source.change("more")
    scene.run(FORCED)
    move(scene.directory, 2)
    assert rows_in_main(scene.directory) == 12

    assert scene.run(FORCED) == ("replaced", "")

    assert rows_in_main(scene.directory) == 15
    assert_replaced(scene, 15, landed=3)


def test_h_replace_compact(scene: Scene) -> None:
    """Harm prevented: the rows are in files of others, and the third export adds its own."""
    rewrite(scene.directory)
    compacted = max(s.sequence_number for s in state(scene.directory).snapshots.values())
    scene.source.change("more")
    assert scene.run(FORCED)[0] == "refused"
    assert scene.run(replace(FORCED, overwrite_file_if_exists=True))[0] == "refused"
    move(scene.directory, 2)
    assert scene.run(FORCED) == ("replaced", "")
    move(scene.directory, compacted)

    for options in (FORCED, replace(FORCED, overwrite_file_if_exists=True)):
        status, says = scene.run(options)

        assert status == "refused"
        assert "its files were changed since by snapshot S3" in says
        assert rows_in_main(scene.directory) == 12


def test_h_mark_overwritten(tmp_path: Path) -> None:
    """Harm prevented: a rollback to an export that only its overwritten mark knew, compacted."""
    scene = Scene(tmp_path)
    scene.dies(KilledAt(Step.SETTLE))
    scene.source.change("more")
    scene.dies(KilledAt(Step.SETTLE, nth=2), FORCED)
    move(tmp_path, 2)
    rewrite(tmp_path)

    for options in (
        ExportOptions(manifest_ttl=TTL),
        FORCED,
        replace(FORCED, overwrite_file_if_exists=True),
    ):
        status, _ = scene.run(options)

        assert status == "refused"
        assert rows_in_main(tmp_path) == 12
    assert [x.rows for x in scene.row.landed] == [12, 15]
