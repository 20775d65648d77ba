"""What operators and other engines do between and during runs: rows once, outcomes true of main.

`run` of `tests/support/scenarios.py` checks each outcome that says "exported" against main as it is
then.
"""

from __future__ import annotations

import contextlib
import sqlite3
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from catalog.iceberg.table import IcebergTable
from tableformat.effects import Effects, Step
from tableformat.errors import DestinationError, TableFormatError
from tableformat.export.job import ExportRequest
from tableformat.export.request import ById, ExportOptions
from tableformat.export.slices import FileFormat
from tableformat.names import PartitionId
from tableformat.table_properties import EPOCH_PROPERTY, LEDGER_PROPERTY, MARK_PREFIX
from tests.support.scenarios import (
    ALL,
    AtStep,
    Partitions,
    assert_exported_once,
    parts_of,
    ports_of,
    pyiceberg,
    row_of,
    rows_by_key,
    rows_in_main,
    run,
    state,
    statuses,
)

ONE = replace(ALL, selection=ById(PartitionId("p1")))
ALONGSIDE = replace(ALL, options=ExportOptions(overwrite_file_if_exists=True))
FOREIGN = 4


class Dies(BaseException):
    """The process ends here."""


def die() -> None:
    """End the process."""
    raise Dies


def dies(
    directory: Path, source: Partitions, effects: Effects, request: ExportRequest = ALL
) -> None:
    """Run a command that dies."""
    with pytest.raises(Dies):
        run(directory, source, effects=effects, request=request)


def append(directory: Path) -> None:
    """Append rows as another engine does."""
    table = pyiceberg(directory)
    table.append(pa.table([pa.array(range(100, 100 + FOREIGN))], table.schema().as_arrow()))


def roll_back(directory: Path) -> None:
    """Move main to the first snapshot, which is empty."""
    first = min(state(directory).snapshots.values(), key=lambda s: s.sequence_number)
    move_main(directory, first.snapshot_id)


def move_main(directory: Path, snapshot_id: int | None) -> None:
    """Move main to any snapshot."""
    assert snapshot_id is not None
    pyiceberg(directory).manage_snapshots().set_current_snapshot(snapshot_id=snapshot_id).commit()


def back_and_forth(directory: Path) -> None:
    """Roll main back and forward again."""
    before = state(directory).main
    roll_back(directory)
    move_main(directory, before)


def expire(directory: Path) -> None:
    """Append, then expire every snapshot but the last."""
    append(directory)
    table = pyiceberg(directory)
    main = state(directory).main
    old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != main]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def delete_rows(directory: Path) -> None:
    """Delete one row of each partition; the files are rewritten without it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Delete operation did not match")
        pyiceberg(directory).delete("n = 1")


def compact(directory: Path) -> None:
    """Rewrite all rows of main under other names."""
    table = pyiceberg(directory)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Delete operation did not match")
        table.overwrite(table.scan().to_arrow())


def tag_and_branch(directory: Path) -> None:
    """Make a tag and a branch of main."""
    main = state(directory).main
    assert main is not None
    with pyiceberg(directory).manage_snapshots() as manage:
        manage.create_tag(main, "tag").create_branch(main, "branch")


def add_column(directory: Path) -> None:
    """Evolve the schema."""
    with pyiceberg(directory).update_schema() as update:
        update.add_column("extra", LongType())


def change_spec(directory: Path) -> None:
    """Evolve the partition spec."""
    with pyiceberg(directory).update_spec() as update:
        update.add_field("n", BucketTransform(4), "n_bucket")


def remove_ledger_property(directory: Path) -> None:
    """Take the ledger's identity out of the table, where it is set."""
    if LEDGER_PROPERTY in state(directory).properties:
        with pyiceberg(directory).transaction() as transaction:
            transaction.remove_properties(LEDGER_PROPERTY)


def remove_marks(directory: Path) -> None:
    """Take the marks out of the table."""
    marks = [k for k in state(directory).properties if k.startswith(MARK_PREFIX)]
    with pyiceberg(directory).transaction() as transaction:
        transaction.remove_properties(*marks)


def restore_metadata(directory: Path) -> None:
    """Point the catalog to the metadata file before the newest one."""
    log = pyiceberg(directory).metadata.metadata_log
    with sqlite3.connect(directory / "warehouse" / "lake.db") as catalog:
        catalog.execute("UPDATE iceberg_tables SET metadata_location = ?", (log[-1].metadata_file,))
    catalog.close()


def drop_table(directory: Path) -> None:
    """Drop the table; the next export makes another one of the same name."""
    table = pyiceberg(directory)
    table.catalog.drop_table(table.name())


def drop_one_file(directory: Path) -> None:
    """Take the largest file out of main as a whole."""
    table = pyiceberg(directory)
    largest = max(table.scan().plan_files(), key=lambda t: t.file.record_count).file
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        update.delete_data_file(largest)


_ACTIONS = [
    append, roll_back, back_and_forth, expire, delete_rows, compact, tag_and_branch, add_column,
    change_spec, remove_ledger_property, remove_marks, restore_metadata, drop_table,
]  # fmt: skip


def assert_never_twice(directory: Path, source: Partitions) -> None:
    """Check that main holds no more of ours than once, also in files of other names."""
    held = rows_by_key(directory)
    foreign = pyiceberg(directory).scan(row_filter="n >= 100").to_arrow().num_rows
    assert held.total() - foreign <= sum(source.rows.values()), held


@pytest.mark.parametrize("step", [Step.WRITE_FILES, Step.SEND, Step.SETTLE])
@pytest.mark.parametrize("action", _ACTIONS)
def test_an_operator_in_the_middle_of_an_export(
    tmp_path: Path, action: Callable[[Path], None], step: Step
) -> None:
    """Harm prevented: rows twice or foreign rows lost, by whatever else happens to the table."""
    source = Partitions()
    with contextlib.suppress(TableFormatError):
        effects = AtStep(step, lambda: action(tmp_path))
        run(tmp_path, source, effects=effects, request=ALONGSIDE, meddled=True)
    for _ in range(2):
        with contextlib.suppress(TableFormatError):
            run(tmp_path, source, request=ALONGSIDE)
        assert_never_twice(tmp_path, source)
    foreign = pyiceberg(tmp_path).scan(row_filter="n >= 100").to_arrow().num_rows
    assert foreign == (FOREIGN if action in {append, expire} else 0)


@pytest.mark.parametrize("action", _ACTIONS)
@pytest.mark.parametrize("commit_every", [100, 1], ids=["all unsettled", "the last unsettled"])
def test_an_operator_between_a_landed_export_and_the_ledger(
    tmp_path: Path, action: Callable[[Path], None], commit_every: int
) -> None:
    """Harm prevented: a crash hid the success, an operator moved the rows, and they come twice."""
    source = Partitions()
    request = replace(ALL, commit_every=commit_every)
    dies(tmp_path, source, AtStep(Step.SETTLE, die, nth=1 if commit_every > 1 else 2), request)
    action(tmp_path)
    for _ in range(2):
        with contextlib.suppress(TableFormatError):
            run(tmp_path, source, request=ALONGSIDE)
    assert_never_twice(tmp_path, source)


@pytest.mark.parametrize(
    "action", [append, back_and_forth, expire, tag_and_branch, remove_ledger_property, remove_marks]
)
def test_actions_that_keep_the_rows_keep_the_outcome(
    tmp_path: Path, action: Callable[[Path], None]
) -> None:
    """Harm prevented: a refusal, or a second export, because of somebody else's snapshots."""
    source = Partitions()
    run(tmp_path, source)
    action(tmp_path)

    assert statuses(run(tmp_path, source)) == ["already_exported"] * 2
    assert_exported_once(tmp_path, source)


@pytest.mark.parametrize("action", [roll_back, delete_rows, compact, restore_metadata])
def test_actions_that_remove_rows_are_reported(
    tmp_path: Path, action: Callable[[Path], None]
) -> None:
    """Harm prevented: "already exported" of rows that are not in main any more."""
    source = Partitions()
    run(tmp_path, source, request=ONE)
    before = rows_in_main(tmp_path)
    action(tmp_path)

    assert statuses(run(tmp_path, source, request=ONE)) == ["refused"]
    assert rows_in_main(tmp_path) <= before


def test_a_compacted_export_of_expired_snapshots_is_never_exported_again(
    tmp_path: Path,
) -> None:
    """Harm prevented: expiry makes main look as if it had always been without the export."""
    source = Partitions()
    run(tmp_path, source)
    compact(tmp_path)
    expire(tmp_path)
    before = rows_in_main(tmp_path)

    outcomes = run(tmp_path, source, request=replace(ALL, options=ExportOptions(force=True)))

    assert statuses(outcomes) == ["refused"] * 2
    assert rows_in_main(tmp_path) == before


def test_nothing_lands_on_metadata_that_was_put_back(tmp_path: Path) -> None:
    """Harm prevented: the newer metadata comes back, and what landed meanwhile is in no main."""
    source = Partitions()
    run(tmp_path, source, request=ONE)
    restore_metadata(tmp_path)

    (_, other) = run(tmp_path, source, request=ALL)

    assert (other.partition_id, other.status.value) == ("p2", "refused")
    assert "was put back to an older file" in other.message


def test_a_table_that_was_dropped_and_made_again_is_another_destination(tmp_path: Path) -> None:
    """Harm prevented: "already exported" into a table that is gone."""
    source = Partitions()
    run(tmp_path, source)
    drop_table(tmp_path)

    assert statuses(run(tmp_path, source)) == ["committed"] * 2
    assert_exported_once(tmp_path, source)


def test_rows_that_are_gone_from_source_and_lake_are_not_called_exported(tmp_path: Path) -> None:
    """Harm prevented: exit 0 for a partition that exists nowhere any more."""
    source = Partitions()
    run(tmp_path, source)
    roll_back(tmp_path)
    del source.by_id["p1"]

    (outcome,) = run(tmp_path, source, request=ONE)

    assert outcome.status.value == "refused"
    assert "main was moved away from it" in outcome.message


def test_a_landed_export_of_a_partition_that_was_dropped_since_is_settled(tmp_path: Path) -> None:
    """Harm prevented: "was never exported" of rows that are in main."""
    source = Partitions()
    dies(tmp_path, source, AtStep(Step.SETTLE, die), ONE)
    del source.by_id["p1"]

    (outcome,) = run(tmp_path, source, request=ONE)

    assert (outcome.status.value, outcome.rows) == ("already_exported", 12)


def test_a_file_deleted_before_the_ledger_heard_of_the_export_is_missed(tmp_path: Path) -> None:
    """Harm prevented: the ledger gets the files that are left, and takes them for all."""
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5)})
    request = replace(ONE, format=FileFormat(target_file_bytes=80))
    dies(tmp_path, source, AtStep(Step.SETTLE, die), request)
    assert row_of(tmp_path, "p1").last.data_files == 2
    drop_one_file(tmp_path)

    (outcome,) = run(tmp_path, source, request=request)

    assert outcome.status.value == "refused"
    assert row_of(tmp_path, "p1").last.rows == 12


def test_a_landing_known_by_its_mark_is_not_exported_after_a_compaction(
    tmp_path: Path,
) -> None:
    """Harm prevented: "already exported, 0 rows": the row is a later claim's, without figures."""
    source = Partitions()

    def later_claim() -> None:
        dies(tmp_path, source, AtStep(Step.CLAIM, die, after=True), ONE)

    (first,) = run(tmp_path, source, effects=AtStep(Step.SEND, later_claim), request=ONE)
    compact(tmp_path)
    (outcome,) = run(tmp_path, source, request=ONE)

    assert first.status.value == "in_progress"
    assert outcome.status.value == "refused"
    assert (row_of(tmp_path, "p1").last.rows, rows_in_main(tmp_path)) == (12, 12)


def test_manifests_that_cannot_be_deleted_do_not_make_a_commit_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: "failed" of an export that is in main and settled."""
    source = Partitions()
    run(tmp_path, source, request=ONE)

    def fails(table: IcebergTable, _staged: object) -> None:
        message = f"Cannot delete unused manifests of {table.name}: no rights. Give them."
        raise DestinationError(message)

    monkeypatch.setattr(IcebergTable, "discard", fails)
    effects = AtStep(Step.SEND, lambda: append(tmp_path))
    outcomes = run(tmp_path, source, effects=effects, request=ALONGSIDE)

    assert statuses(outcomes) == ["already_exported", "committed"]
    assert_exported_once(tmp_path, source)


def test_a_catalog_that_fails_after_the_request_leaves_it_unknown(tmp_path: Path) -> None:
    """Harm prevented: "failed" of an export whose rows are in main."""
    source = Partitions()

    def fails() -> None:
        message = "Cannot write the ledger: the disk is full. Make room."
        raise DestinationError(message)

    (outcome,) = run(tmp_path, source, effects=AtStep(Step.SETTLE, fails), request=ONE)
    again = run(tmp_path, source)

    assert outcome.status.value == "unknown"
    assert "disk is full" in outcome.message
    assert statuses(again) == ["already_exported", "committed"]


def test_an_edited_counter_is_refused_by_name(tmp_path: Path) -> None:
    """Harm prevented: a stack trace, or a guard that is taken for zero."""
    source = Partitions()
    run(tmp_path, source)
    with pyiceberg(tmp_path).transaction() as transaction:
        transaction.set_properties({EPOCH_PROPERTY: "many"})

    with pytest.raises(DestinationError, match=r"mergeberg\.epoch: 'many' is not a number"):
        run(tmp_path, source, ports=ports_of(tmp_path, source))
