"""`--incremental`: only new parts are written, and each row is in main once, whatever happens."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.storages.schemes import open_storage
from tableformat.committer import MAIN_BRANCH
from tableformat.effects import Step
from tableformat.errors import UsageError
from tableformat.export.dry_run import EXPORT, REPLACE, rehearse
from tableformat.export.request import ExportOptions, check_options
from tableformat.ledger import Held, State
from tableformat.messages import plain
from tableformat.names import HiveName
from tests.faults.test_operator_actions import (
    append,
    compact,
    delete_rows,
    drop_one_file,
    expire,
    roll_back,
)
from tests.faults.test_rebuilt_ledger import lose, rebuilt
from tests.support.dying import KilledAt
from tests.support.lake_statements import attach, detach, drop, on, partition, running
from tests.support.other_engines import rewrite
from tests.support.row_merges import optimize
from tests.support.scenarios import (
    AtStep,
    parts_of,
    ports_of,
    pyiceberg,
    rows_by_key,
    rows_in_main,
)
from tests.support.scene import TTL, Scene, merged, move

ADDS = ExportOptions(incremental=True, manifest_ttl=TTL)
NOTE = "only its 1 new part with 3 rows: the 12 exported before stay"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Export a partition of 12 rows; then it has a part of 3 more."""
    made = Scene(tmp_path)
    assert made.run(ADDS) == ("committed", "")
    grow(made, 3)
    return made


def grow(scene: Scene, *rows: int) -> None:
    """Let the partition have new parts, after the TTL."""
    held = scene.source.by_id["p1"]
    scene.source.by_id["p1"] = parts_of("p1", *(p.rows for p in held), *rows)
    scene.after_ttl()


def paths(scene: Scene) -> Counter[str]:
    """Return the files of main, and how often it has them."""
    return on(scene.directory, MAIN_BRANCH)


def assert_whole(scene: Scene, rows: int) -> None:
    """Check that main has each row of the source once, and that the ledger says so."""
    row = scene.row
    assert row.done is not None
    landed = row.done.landed
    assert sum(p.rows for p in scene.source.by_id["p1"]) == rows
    assert rows_by_key(scene.directory)[row.key.hash] == rows == landed.rows
    assert (row.state, landed.data_files) == (State.COMPLETED, len(paths(scene)))
    assert [p.name for p in row.done.parts] == [p.name for p in scene.source.by_id["p1"]]
    assert set(paths(scene).values()) == {1}
    sizes = {
        t.file.file_path: t.file.file_size_in_bytes
        for t in pyiceberg(scene.directory).scan().plan_files()
    }
    assert row.done.bytes == sum(sizes.values())
    with scene.ledger() as ledger:
        assert ledger.holder(row.key.hash) is None
    assert scene.source.left == {}


def test_only_the_new_parts_are_written_and_the_files_stay(scene: Scene) -> None:
    before, files, snapshots = paths(scene), scene.files, scene.snapshots

    assert scene.run(ADDS) == ("committed", NOTE)

    assert (scene.files - files, scene.snapshots - snapshots) == (1, 1)
    assert before < paths(scene)
    assert_whole(scene, 15)
    current = pyiceberg(scene.directory).current_snapshot()
    assert current is not None
    assert current.summary is not None
    assert (current.summary.operation.value, current.summary["added-records"]) == ("append", "3")


def test_without_the_option_it_is_replaced_as_before(scene: Scene) -> None:
    before = paths(scene)

    assert scene.run()[0] == "replaced"

    assert not before & paths(scene)
    assert_whole(scene, 15)


def test_each_round_adds_to_all_rounds_before(scene: Scene) -> None:
    first = paths(scene)
    scene.run(ADDS)
    for rows in (4, 6):
        grow(scene, rows)
        assert scene.run(ADDS)[0] == "committed"
        assert scene.run() == scene.run(ADDS)

    assert first < paths(scene)
    assert scene.files == 4
    assert_whole(scene, 25)
    row = scene.row
    assert [x.rows for x in row.landed] == [12, 15, 19, 25]
    assert [len(x.left or ()) for x in row.landed] == [1, 2, 3, 4]
    assert row.landed[-1].own == Held(row.landed[-1].transaction_id, 1, 6)


@pytest.mark.parametrize("later", [(), (5,)], ids=["alone", "and another part"])
@pytest.mark.parametrize("what", ["merge", "mutation", "hash"])
def test_a_change_of_an_exported_part_replaces_the_partition(
    scene: Scene, what: str, later: tuple[int, ...]
) -> None:
    """Harm prevented: rows of a merged part are added to files that have some of them already."""
    scene.run(ADDS)
    grow(scene, *later)
    held = scene.source.by_id["p1"]
    if what == "merge":
        changed = [*merged(held[:2]), *held[2:]]
    elif what == "mutation":
        changed = [replace(held[0], name="p1_1_1_0_9", hash_of_all_files="mutated"), *held[1:]]
    else:
        changed = [replace(held[0], hash_of_all_files="other"), *held[1:]]
    scene.source.by_id["p1"] = changed
    before = paths(scene)

    status, _ = scene.run(ADDS)

    if (what, later) == ("merge", ()):
        assert status == "unchanged"
        return
    assert status == "replaced"
    assert not before & paths(scene)
    assert_whole(scene, 15 + sum(later))


def test_a_part_less_is_refused_and_nothing_is_added(scene: Scene) -> None:
    scene.source.by_id["p1"] = scene.source.by_id["p1"][1:]

    status, message = scene.run(ADDS)

    assert (status, rows_in_main(scene.directory)) == ("refused", 12)
    assert "would lose 4" in message


def test_rows_that_are_deleted_lightly_are_not_added(scene: Scene) -> None:
    """Harm prevented: the rows of the partition are counted once more, or once less."""
    scene.source.hidden.add("p1")

    assert scene.run(ADDS)[0] == "refused"
    assert rows_in_main(scene.directory) == 12


def test_the_ttl_refuses_new_parts_too(scene: Scene) -> None:
    scene.run(ADDS)
    held = scene.source.by_id["p1"]
    scene.source.by_id["p1"] = parts_of("p1", *(p.rows for p in held), 9)

    status, message = scene.run(ADDS)

    assert (status, rows_in_main(scene.directory)) == ("refused", 15)
    assert "younger than its manifest TTL" in message


OPERATORS: tuple[Callable[[Path], None], ...] = (
    append, compact, delete_rows, drop_one_file, expire, roll_back, rewrite,
)  # fmt: skip


@pytest.mark.parametrize("operate", OPERATORS)
def test_what_others_do_before_is_never_added_to_twice(
    scene: Scene, operate: Callable[[Path], None]
) -> None:
    operate(scene.directory)
    others = 4 if operate in {append, expire} else 0

    status, _ = scene.run(ADDS)

    held = rows_in_main(scene.directory) - others
    assert held <= 15
    assert status in {"committed", "replaced", "refused"}
    assert (held == 15) == (status != "refused")


@pytest.mark.parametrize("step", [Step.SNAPSHOT_SOURCE, Step.CLAIM, Step.WRITE_FILES, Step.STAGE])
@pytest.mark.parametrize("operate", OPERATORS)
def test_what_others_do_meanwhile_is_never_added_to_twice(
    scene: Scene, operate: Callable[[Path], None], step: Step
) -> None:
    """Harm prevented: the files that should stay have left main before the new ones come."""
    others = 4 if operate in {append, expire} else 0
    first = AtStep(step, lambda: operate(scene.directory))
    scene.run(ADDS, first, meddled=True)
    assert rows_in_main(scene.directory) - others <= 15

    for options in (ADDS, None):
        status, _ = scene.run(options, meddled=True)
        held = rows_in_main(scene.directory) - others
        assert held <= 15
        assert status == "refused" or held == 15


def test_a_commit_is_refused_when_the_files_have_left(scene: Scene) -> None:
    refused = AtStep(Step.NOTE_WRITTEN, lambda: rewrite(scene.directory))

    status, message = scene.run(ADDS, refused)

    assert status == "refused"
    assert "main does not have exactly the files of the others any more" in message
    assert "its files were changed since" in message
    assert rows_in_main(scene.directory) == 12


def test_an_export_that_began_so_continues_without_the_option(scene: Scene) -> None:
    scene.dies(KilledAt(Step.SEND), ADDS)
    files = scene.files

    assert scene.run() == ("committed", NOTE)
    assert scene.files == files
    assert_whole(scene, 15)


def test_force_exports_everything_again(scene: Scene) -> None:
    scene.dies(KilledAt(Step.SEND), ADDS)
    before = paths(scene)

    assert scene.run(ExportOptions(force=True, manifest_ttl=TTL))[0] == "replaced"

    assert not before & paths(scene)
    assert_whole(scene, 15)


def test_a_dead_export_of_new_parts_is_outlived_by_a_merge(scene: Scene) -> None:
    """Harm prevented: its files land beside those of the partition as a whole."""
    scene.dies(KilledAt(Step.SEND), ADDS)
    scene.source.left.clear()
    scene.source.by_id["p1"] = merged(scene.source.by_id["p1"])

    assert scene.run(ADDS)[0] == "replaced"
    assert_whole(scene, 15)


def test_a_rollback_takes_out_the_last_round_alone(scene: Scene) -> None:
    scene.run(ADDS)
    move(scene.directory, 2)
    scene.after_ttl()

    assert scene.run(ADDS)[0] == "refused"
    assert rows_in_main(scene.directory) == 12
    assert scene.run(ExportOptions(force=True, manifest_ttl=TTL))[0] == "replaced"
    assert_whole(scene, 15)


def test_statements_take_and_bring_all_rounds(scene: Scene) -> None:
    scene.run(ADDS)
    before = paths(scene)
    clock = iter(range(9_000_000_000, 9_000_000_100))

    def run(statement: object) -> None:
        running(scene.directory, clock=clock.__next__).run(statement)  # type: ignore[arg-type]

    run(detach("p1"))
    assert rows_in_main(scene.directory) == 0
    run(attach("p1"))
    assert paths(scene) == before
    scene.now = 10_000_000_000
    grow(scene, 4)
    assert scene.run(ADDS)[0] == "committed"
    assert before < paths(scene)
    assert_whole(scene, 19)
    run(drop("p1"))
    assert rows_in_main(scene.directory) == 0
    assert scene.run(ADDS)[0] == "refused"


def test_later_rounds_are_added_to_what_optimize_made(scene: Scene) -> None:
    scene.run(ADDS)
    optimize(scene.directory, partition("p1"))
    (made,) = paths(scene)
    scene.now = 10_000_000_000
    grow(scene, 4)

    assert scene.run(ADDS)[0] == "committed"

    assert made in paths(scene)
    assert_whole(scene, 19)
    with scene.ledger() as ledger:
        whole, part = ledger.events(None, 2)
    assert [(e.part_name, e.rows) for e in (whole, part)] == [("", 4), ("p1_4_4_0", 4)]


def test_a_lost_ledger_knows_all_rounds_again(scene: Scene) -> None:
    scene.run(ADDS)
    lose(scene.directory)

    (found,) = rebuilt(scene.directory)

    assert found.proved
    landed = found.row.done.landed  # type: ignore[union-attr]
    assert (landed.rows, landed.data_files, len(landed.stays)) == (15, 2, 1)
    assert scene.run(ADDS)[0] == "unchanged"
    grow(scene, 4)
    assert scene.run(ADDS)[0] == "replaced", "a rebuilt ledger does not know the parts"
    assert_whole(scene, 19)


def test_after_an_expiry_nothing_of_a_round_is_garbage(scene: Scene) -> None:
    """Harm prevented: the files of the first export are in main, and their snapshot is not."""
    scene.run(ADDS)
    expire(scene.directory)
    grow(scene, 4)
    scene.dies(KilledAt(Step.SEND), ADDS)

    assert scene.run(ADDS)[0] == "committed"

    assert rows_in_main(scene.directory) == 19 + 4
    assert pyiceberg(scene.directory).scan().to_arrow().num_rows == 19 + 4


def forecast(scene: Scene, options: ExportOptions) -> tuple[str, int, str]:
    """Return what a dry run says of the partition: action, rows and message."""
    ports = ports_of(scene.directory, scene.source, clock=lambda: scene.now)
    with contextlib.closing(ports.ledger):
        (found,) = rehearse(
            replace(scene.request, options=options), scene.source, ports.lake, ports.ledger,
            now=scene.now, slots=1, note=lambda _: None, storage=open_storage,
        ).forecasts  # fmt: skip
    return found.action, found.rows, plain(found.message)


def test_a_dry_run_says_what_would_be_added(scene: Scene) -> None:
    assert forecast(scene, ADDS) == (EXPORT, 3, NOTE)
    assert forecast(scene, ExportOptions())[0] == REPLACE
    scene.dies(KilledAt(Step.SEND), ADDS)
    scene.after_ttl()
    assert forecast(scene, ExportOptions()) == (EXPORT, 3, NOTE)


def test_the_log_counts_the_parts_that_were_written(scene: Scene) -> None:
    """Harm prevented: `system.events` counts the rows of a partition again in every round."""
    with scene.ledger() as ledger:
        before = len(ledger.events(None, 100))

    scene.run(ADDS)

    with scene.ledger() as ledger:
        events = ledger.events(None, 100)
    new = events[: len(events) - before]
    assert [(e.part_name, e.rows) for e in new] == [("", 3), ("p1_3_3_0", 3)]
    assert new[0].bytes_written == scene.row.claim.bytes > 0
    assert scene.row.done.bytes > scene.row.claim.bytes  # type: ignore[union-attr]


def test_no_limit_of_replacements_counts_new_parts(scene: Scene) -> None:
    assert scene.run(replace(ADDS, max_replace=0)) == ("committed", NOTE)


def test_options_that_exclude_it_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="--incremental with --force"):
        check_options(replace(ADDS, force=True))


def test_a_tree_of_directories_refuses_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.request = replace(scene.request, to=HiveName.at(f"{tmp_path}/tree"))

    with pytest.raises(UsageError, match="--incremental for a tree of Hive directories"):
        scene.run(ADDS)

    assert not (tmp_path / "tree").exists()
