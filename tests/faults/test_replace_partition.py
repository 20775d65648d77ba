"""`--force --replace-partition`: everything in the lake partition goes, and nothing else.

Files that other engines rewrote and rows of others go with it, in the one snapshot that brings the
new rows; where rows of another source partition could go with them it is refused.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from catalog.iceberg.catalogs import open_catalog
from catalog.storages.schemes import open_storage
from tableformat.effects import Step
from tableformat.errors import RefusedError
from tableformat.export.dry_run import rehearse
from tableformat.export.request import AllPartitions, ExportOptions
from tests.faults.test_operator_actions import (
    FOREIGN,
    append,
    delete_rows,
    roll_back,
)
from tests.faults.test_replace import assert_replaced, entries
from tests.support.dying import KilledAt
from tests.support.fakes import TABLE
from tests.support.keyed_source import Keyed, append_to
from tests.support.lake import make_table
from tests.support.other_engines import delete_by_equality, delete_first_row, rewrite
from tests.support.scenarios import (
    AtStep,
    in_shard,
    ports_of,
    pyiceberg,
    row_of,
    rows_in_main,
    state,
)
from tests.support.scene import ONE, TTL, Lightly, Scene

FORCED = ExportOptions(force=True, manifest_ttl=TTL)
WHOLE = replace(FORCED, replace_partition=True)
EVERY = replace(ONE, selection=AllPartitions())


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return a scene without partitions, in which 12 rows were exported."""
    made = Scene(tmp_path)
    made.run()
    return made


@pytest.fixture
def keyed(tmp_path: Path) -> Scene:
    """Return a scene with two partitions of 12 and 3 rows, both exported."""
    made = Scene(tmp_path, Keyed(), request=EVERY)
    made.run()
    made.request = ONE
    return made


def summary(scene: Scene) -> dict[str, str]:
    """Return what the summary of main says of files of others."""
    current = pyiceberg(scene.directory).current_snapshot()
    assert current is not None
    assert current.summary is not None
    found = current.summary.additional_properties
    return {k: v for k, v in found.items() if k.startswith("mergeberg.foreign")}


def test_files_that_a_compaction_made_are_replaced(scene: Scene) -> None:
    """Harm prevented: after a compaction a partition can never be exported again."""
    rewrite(scene.directory)
    scene.source.change("more")
    assert scene.run(FORCED)[0] == "refused"
    before = scene.snapshots

    status, says = scene.run(WHOLE)

    assert (status, says) == (
        "replaced",
        "with what it replaced 1 file with 12 rows that others wrote left main",
    )
    assert scene.snapshots == before + 1
    assert_replaced(scene, 15)
    assert rows_in_main(scene.directory) == 15
    assert summary(scene) == {
        "mergeberg.foreign-files-removed": "1",
        "mergeberg.foreign-rows-removed": "12",
    }
    assert scene.run()[0] == "already_exported"


def test_rows_that_others_added_go_with_it(scene: Scene) -> None:
    """Harm prevented: "whole" that leaves the rows of others there."""
    append(scene.directory)

    status, says = scene.run(WHOLE)

    assert status == "replaced"
    assert f"1 file with {FOREIGN} rows that others wrote" in says
    assert rows_in_main(scene.directory) == 12


def test_without_files_of_others_it_is_an_ordinary_replacement(scene: Scene) -> None:
    """Harm prevented: a sentence about files of others that there are none of."""
    assert scene.run(WHOLE) == ("replaced", "")
    assert summary(scene) == {}
    assert_replaced(scene, 12)


def test_a_first_export_replaces_what_others_had_filled_the_partition_with(tmp_path: Path) -> None:
    """Harm prevented: rows that were copied by hand before can only be kept."""
    make_table(tmp_path / "warehouse")
    append(tmp_path)
    scene = Scene(tmp_path)

    assert scene.run()[0] == "refused"
    assert scene.run(WHOLE)[0] == "replaced"

    assert rows_in_main(tmp_path) == 12


def test_rows_deleted_by_rewriting_files_come_back(scene: Scene) -> None:
    """Harm prevented: a row that somebody deleted bars the partition for ever."""
    delete_rows(scene.directory)
    assert scene.run(FORCED)[0] == "refused"

    assert scene.run(WHOLE)[0] == "replaced"
    assert rows_in_main(scene.directory) == 12
    assert_replaced(scene, 12)


def test_rows_deleted_by_their_position_come_back(scene: Scene) -> None:
    """Harm prevented: a delete file of the old files takes rows out of the new ones."""
    table = pyiceberg(scene.directory)
    (task,) = table.scan().plan_files()
    delete_first_row(table, task.file)
    assert pyiceberg(scene.directory).scan().to_arrow().num_rows == 11
    assert scene.run(FORCED)[0] == "refused"

    assert scene.run(WHOLE) == ("replaced", "")

    assert pyiceberg(scene.directory).scan().to_arrow().num_rows == 12
    assert scene.run()[0] == "already_exported"


def test_files_that_delete_by_equality_are_refused_and_named(scene: Scene) -> None:
    """Harm prevented: nobody can say which rows they hide, and something is replaced."""
    table = pyiceberg(scene.directory)
    (task,) = table.scan().plan_files()
    delete_by_equality(table, task.file, 1, 3)
    before = scene.snapshots

    status, says = scene.run(WHOLE)

    assert status == "refused"
    assert re.search(r"-deletes\.parquet deletes rows by equality", says)
    assert scene.snapshots == before


@pytest.mark.parametrize("options", [WHOLE, FORCED])
def test_other_partitions_are_not_touched(keyed: Scene, options: ExportOptions) -> None:
    """Harm prevented: rows of a neighbour, exported or of others, go with it."""
    append_to(keyed.directory, "p2", 5)
    append_to(keyed.directory, "p9", 6)
    own = keyed.row.key.hash
    others = {n: e for n, e in entries(keyed.directory).items() if not n.startswith(own)}
    if options.replace_partition:
        append_to(keyed.directory, "p1", FOREIGN)
    keyed.source.change("fewer")

    assert keyed.run(options)[0] == "replaced"

    now = entries(keyed.directory)
    assert {n: e for n, e in now.items() if not n.startswith(own)} == others
    assert len(others) == 3
    assert rows_in_main(keyed.directory) == 7 + 3 + 5 + 6


@settings(max_examples=6)
@given(
    foreign=st.lists(
        st.tuples(st.sampled_from(["p1", "p2", "p9", "", "P1", "p1 "]), st.integers(1, 5)),
        max_size=4,
    )
)
def test_whatever_others_have_in_other_partitions_stays(foreign: list[tuple[str, int]]) -> None:
    """Harm prevented: a value that looks like the partition's is taken for it."""
    with tempfile.TemporaryDirectory() as name:
        scene = Scene(Path(name), Keyed(), request=EVERY)
        scene.run()
        scene.request = ONE
        for value, rows in foreign:
            append_to(scene.directory, value, rows)
        stays = sum(rows for value, rows in foreign if value != "p1")

        assert scene.run(WHOLE)[0] == "replaced"

        assert rows_in_main(scene.directory) == 12 + 3 + stays


@pytest.mark.parametrize("expired", [False, True])
def test_a_neighbour_that_was_rewritten_does_not_stand_in_the_way(
    keyed: Scene, *, expired: bool
) -> None:
    """Harm prevented: a nightly compaction of the table makes the option useless."""
    rewrite(keyed.directory)
    if expired:
        table = pyiceberg(keyed.directory)
        main = state(keyed.directory).main
        old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != main]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    status, says = keyed.run(WHOLE)

    assert status == "replaced"
    assert "1 file with 12 rows that others wrote" in says
    assert rows_in_main(keyed.directory) == 12 + 3


def shard_of(scene: Scene) -> Scene:
    """Return another shard of the same source table, for the same lake table."""
    shard = Scene(scene.directory, Lightly(table=replace(TABLE, identity="another shard")))
    shard.source.by_id = in_shard("another shard", shard.source.by_id)
    shard.request = shard.request.of_table(TABLE.name, 2)
    return shard


def test_files_of_another_key_are_refused_by_name(scene: Scene) -> None:
    """Harm prevented: replacing the partition of one shard removes the rows of the other."""
    assert shard_of(scene).run(meddled=True)[0] == "committed"

    status, says = scene.run(WHOLE)

    assert status == "refused"
    assert says == (
        "Cannot replace the whole lake partition: main has 1 file with 12 rows there of "
        "partition p1 of db.t (another shard), which this ledger exported, too. Use --force "
        "without --replace-partition, which removes files of the partition's own exports only."
    )
    assert rows_in_main(scene.directory) == 24
    assert scene.files == 1


@pytest.mark.parametrize("unsettled", [False, True])
def test_rows_of_another_key_that_others_rewrote_are_refused_by_name(
    scene: Scene, *, unsettled: bool
) -> None:
    """Harm prevented: a compaction takes the names off, and the other shard's rows are lost."""
    shard = shard_of(scene)
    if unsettled:
        shard.dies(KilledAt(Step.SETTLE))
    else:
        shard.run(meddled=True)
    rewrite(scene.directory)

    status, says = scene.run(WHOLE)

    assert status == "refused"
    assert "may hold rows of partition p1 of db.t (another shard)" in says
    assert rows_in_main(scene.directory) == 24


def test_another_key_without_receipts_may_be_anywhere(keyed: Scene) -> None:
    """Harm prevented: that nothing is known of where rows were is taken for elsewhere."""
    rewrite(keyed.directory)
    for stored in (keyed.directory / "warehouse").rglob("*.json"):
        if row_of(keyed.directory, "p2").key.hash in stored.parts:
            stored.unlink()

    status, says = keyed.run(WHOLE)

    assert (status, rows_in_main(keyed.directory)) == ("refused", 15)
    assert "may hold rows of partition p2 of db.t (source-identity)" in says


def test_rows_that_main_was_moved_away_from_may_have_come_back(tmp_path: Path) -> None:
    """Harm prevented: an engine inserted the rolled back rows of a shard again, and they leave."""
    scene = Scene(tmp_path)
    shard_of(scene).run(meddled=True)
    roll_back(tmp_path)
    append(tmp_path)

    status, says = scene.run(WHOLE)

    assert status == "refused"
    assert "may hold rows of partition p1 of db.t (another shard)" in says
    assert "Delete the rows of this lake partition with another engine" in says
    table = open_catalog("lake", warehouse=tmp_path / "warehouse").catalog.load_table(("n", "t"))
    table.delete("n >= 0")
    assert scene.run(WHOLE)[0] == "committed"
    assert rows_in_main(tmp_path) == 12


def test_several_partitions_in_one_of_the_lake_are_refused_before_any_work(
    tmp_path: Path,
) -> None:
    """Harm prevented: the whole table is replaced by one of its partitions."""
    scene = Scene(tmp_path, Keyed(), request=replace(ONE, partition_spec="unpartitioned"))
    scene.run()

    with pytest.raises(RefusedError, match="the lake table is not partitioned, the source is, by"):
        scene.run(WHOLE)

    assert scene.source.left == {}
    assert rows_in_main(tmp_path) == 12


def test_files_of_an_earlier_spec_that_may_hold_other_rows_are_refused(tmp_path: Path) -> None:
    """Harm prevented: a file from before the table was partitioned goes, with all partitions."""
    catalog = open_catalog("lake", warehouse=tmp_path / "warehouse").catalog
    catalog.create_namespace("n")
    columns = (
        NestedField(1, "n", LongType(), required=True),
        NestedField(2, "k", StringType(), required=True),
    )
    table = catalog.create_table("n.t", Schema(*columns))
    append_to(tmp_path, "p1", FOREIGN)
    with table.refresh().update_spec() as update:
        update.add_identity("k")
    scene = Scene(tmp_path, Keyed())

    status, says = scene.run(WHOLE)

    assert (status, rows_in_main(tmp_path)) == ("refused", FOREIGN)
    assert "is of an earlier partition spec and may have rows of other partitions" in says


def test_a_partition_without_rows_has_no_lake_partition(keyed: Scene) -> None:
    """Harm prevented: the rows of NULL are removed for a partition whose value is not known."""
    keyed.source.change("none")

    status, says = keyed.run(replace(WHOLE, allow_empty=True))

    assert status == "refused"
    assert "the source partition has no rows, so its lake partition is unknown" in says
    assert rows_in_main(keyed.directory) == 15


def test_rows_that_arrive_with_the_request_go_with_it(scene: Scene) -> None:
    """Harm prevented: what leaves is computed from a main that is gone."""
    status, says = scene.run(WHOLE, AtStep(Step.SEND, lambda: append(scene.directory)))

    assert status == "replaced"
    assert f"1 file with {FOREIGN} rows that others wrote" in says
    assert rows_in_main(scene.directory) == 12


def test_another_key_that_lands_meanwhile_stops_it(scene: Scene) -> None:
    """Harm prevented: what was asked before hours of writing is not asked before the commit."""

    def other() -> None:
        assert shard_of(scene).run(meddled=True)[0] == "committed"

    status, says = scene.run(WHOLE, AtStep(Step.STAGE, other))

    assert status == "refused"
    assert "partition p1 of db.t (another shard)" in says
    assert rows_in_main(scene.directory) == 24


@pytest.mark.parametrize("of_others", [False, True])
def test_a_dry_run_reports_how_many_files_and_rows_would_go(
    keyed: Scene, *, of_others: bool
) -> None:
    """Harm prevented: what is about to be lost is known only when it is lost."""
    if of_others:
        rewrite(keyed.directory)
        append_to(keyed.directory, "p1", FOREIGN)
    before = entries(keyed.directory)

    forecast = dry_run(keyed)

    message = (
        f"would remove 2 files with 16 rows from main, 2 of them with {12 + FOREIGN} rows that "
        "other writers wrote"
        if of_others
        else "would remove 1 file with 12 rows from main, 0 of them with 0 rows that other writers "
        "wrote"
    )
    assert forecast == ("replace", message)
    assert entries(keyed.directory) == before


def test_a_dry_run_is_refused_as_the_export_would_be(scene: Scene) -> None:
    """Harm prevented: a rehearsal that promises what is refused."""
    shard_of(scene).run(meddled=True)

    action, says = dry_run(scene)

    assert action == "refused"
    assert "another shard" in says


def dry_run(scene: Scene) -> tuple[str, str]:
    """Return what a dry run says of p1."""
    ports = ports_of(scene.directory, scene.source)
    found = rehearse(
        replace(scene.request, options=WHOLE),
        scene.source,
        ports.lake,
        ports.ledger,
        now=scene.now,
        slots=1,
        note=lambda _: None,
        storage=open_storage,
    )
    (one,) = found.forecasts
    return one.action, one.message
