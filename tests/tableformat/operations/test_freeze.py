"""FREEZE and UNFREEZE on a lake table: what is kept, and by which name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from catalog.iceberg.table import IcebergTable
from tableformat.committer import DETACHED_BRANCH, LakeTableState, Sent, TagChange
from tableformat.effects import Step
from tableformat.errors import DestinationError, RefusedError
from tableformat.export.outcome import Status
from tableformat.export.request import ExportOptions
from tableformat.iceberg.manifest_scan import live_files
from tableformat.names import PartitionId
from tableformat.operations.freeze import LAST_NUMBER, Freeze, Unfreeze
from tableformat.operations.statement import AllPartitions, Alone, OnePartition
from tableformat.operations.take_out import Drop
from tests.support.cleaning_up import left_behind
from tests.support.dying import Dies
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    alone,
    attach,
    detach,
    drop,
    drop_detached,
    export_at,
    in_files,
    partition,
    rows_of_tag,
    running,
    tags,
)
from tests.support.scenarios import (
    AtStep,
    Partitions,
    lake,
    ledger_rows,
    parts_of,
    ports_of,
    pyiceberg,
    rows_in_main,
    run,
    state,
)

ALL = AllPartitions()
P1, P2 = (OnePartition(PartitionId(name)) for name in ("p1", "p2"))


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    """Return a table whose two partitions are in the lake."""
    return in_files(tmp_path)


def test_what_is_frozen_is_read_by_its_name_when_main_has_gone_on(
    tmp_path: Path, source: Partitions
) -> None:
    done = alone(tmp_path, Freeze(P1, "before"))
    running(tmp_path).run(drop("p1"))

    assert (done.status, done.rows, done.data_files) == (Status.FROZEN, 12, 2)
    assert done.message == "under the name 'before', tag before"
    assert rows_of_tag(tmp_path, "before") == source.rows["p1"], "a backup of that partition alone"
    assert rows_in_main(tmp_path) == source.rows["p2"]
    assert left_behind(tmp_path) == []


def test_a_partition_that_is_frozen_changes_nothing_for_exports(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: a tag without the other partitions is taken for their loss."""
    alone(tmp_path, Freeze(P1, "one"))

    outcomes = export_at(tmp_path, source, LATER, IN_FILES)

    assert {one.status for one in outcomes.values()} == {Status.UNCHANGED}
    assert rows_in_main(tmp_path) == sum(source.rows.values())
    source.by_id["p2"] = parts_of("p2", 7)
    assert export_at(tmp_path, source, LATER, IN_FILES)["p2"].status is Status.REPLACED
    assert (rows_of_tag(tmp_path, "one"), rows_in_main(tmp_path)) == (12, 19)


def test_it_waits_for_nobody(tmp_path: Path) -> None:
    """While an export of the partition holds everything that it works on."""
    outcomes = []
    busy = AtStep(Step.SEND, lambda: outcomes.append(alone(tmp_path, Freeze(ALL, "now"))))
    source = in_files(tmp_path)
    source.by_id["p1"] = parts_of("p1", 20)

    ports = ports_of(tmp_path, source, clock=LATER.__next__, effects=busy)
    done = run(tmp_path, source, request=IN_FILES, ports=ports)

    assert [one.status for one in outcomes] == [Status.FROZEN]
    assert rows_of_tag(tmp_path, "now") == 15
    assert {one.status for one in done} == {Status.REPLACED, Status.UNCHANGED}


def test_it_outlives_the_expiry_of_its_snapshot(tmp_path: Path, source: Partitions) -> None:
    alone(tmp_path, Freeze(ALL, "kept"))
    running(tmp_path).run(Drop(ALL))
    metadata = pyiceberg(tmp_path).metadata
    heads = {r.snapshot_id for r in metadata.refs.values()}
    expiry = pyiceberg(tmp_path).maintenance.expire_snapshots()
    expiry.by_ids([s.snapshot_id for s in metadata.snapshots if s.snapshot_id not in heads])
    expiry.commit()

    assert left_behind(tmp_path) == []
    assert rows_of_tag(tmp_path, "kept") == sum(source.rows.values())


def test_without_a_name_it_is_the_next_number(tmp_path: Path, source: Partitions) -> None:
    """As in ClickHouse's shadow; a number is not given twice, whatever was unfrozen."""
    assert source.rows
    for number in ("1", "2"):
        assert f"the name '{number}'" in alone(tmp_path, Freeze(P1)).message
    alone(tmp_path, Unfreeze(ALL, "2"))

    assert "the name '3'" in alone(tmp_path, Freeze(ALL)).message
    assert set(tags(tmp_path)) == {"1", "3"}


@pytest.mark.parametrize("again", [Freeze(P1, "b"), Freeze(ALL, "b")], ids=str)
def test_what_is_frozen_by_a_name_is_not_frozen_by_it_again(
    tmp_path: Path, source: Partitions, again: Freeze
) -> None:
    assert source.rows
    alone(tmp_path, Freeze(P1, "b"))

    with pytest.raises(RefusedError, match="already exists and is not empty") as refused:
        alone(tmp_path, again)

    assert refused.value.code == 84
    assert alone(tmp_path, Freeze(P2, "b")).status is Status.FROZEN
    assert set(tags(tmp_path)) == {"b", "b.p2"}


@pytest.mark.parametrize("unfrozen", [ALL, P1], ids=str)
def test_a_partition_that_came_later_is_frozen_by_the_name_of_all(
    tmp_path: Path, source: Partitions, unfrozen: OnePartition | AllPartitions
) -> None:
    """As in ClickHouse, which refuses parts that are in the shadow, and no others."""
    running(tmp_path).run(drop("p1"))
    alone(tmp_path, Freeze(ALL, "all"))
    export_at(tmp_path, source, LATER, replace(IN_FILES, options=ExportOptions(force=True)))

    assert alone(tmp_path, Freeze(P1, "all")).status is Status.FROZEN

    assert (rows_of_tag(tmp_path, "all"), rows_of_tag(tmp_path, "all.p1")) == (3, 12)
    for again in (P1, P2, ALL):
        with pytest.raises(RefusedError, match="already exists and is not empty"):
            alone(tmp_path, Freeze(again, "all"))
    assert alone(tmp_path, Unfreeze(unfrozen, "all")).status is Status.UNFROZEN
    assert set(tags(tmp_path)) == ({"all"} if unfrozen == P1 else set())
    assert alone(tmp_path, Unfreeze(P1, "all")).status is Status.EMPTY


@pytest.mark.parametrize("name", ["main", "detached", "mine"])
def test_a_name_of_somebody_else_is_left_alone(
    tmp_path: Path, source: Partitions, name: str
) -> None:
    """Harm prevented: a branch or a tag of others is moved, or removed by UNFREEZE."""
    assert source.rows
    main = state(tmp_path).main
    assert main is not None
    pyiceberg(tmp_path).manage_snapshots().create_tag(main, "mine").commit()

    with pytest.raises(RefusedError, match="no FREEZE of this name made"):
        alone(tmp_path, Freeze(P1, name))
    assert alone(tmp_path, Unfreeze(ALL, name)).status is Status.EMPTY

    assert tags(tmp_path) == {"mine": main}


def test_a_partition_that_is_not_there_is_passed_over(tmp_path: Path, source: Partitions) -> None:
    assert source.rows
    before = state(tmp_path).metadata_location

    done = alone(tmp_path, Freeze(OnePartition(PartitionId("p9"))))

    assert (done.status, state(tmp_path).metadata_location) == (Status.EMPTY, before)


def test_a_partition_is_taken_off_a_name(tmp_path: Path, source: Partitions) -> None:
    assert source.rows
    alone(tmp_path, Freeze(P1, "b"))
    alone(tmp_path, Freeze(P2, "b"))

    assert alone(tmp_path, Unfreeze(P1, "b")).status is Status.UNFROZEN

    assert set(tags(tmp_path)) == {"b.p2"}
    assert alone(tmp_path, Unfreeze(P1, "b")).status is Status.EMPTY
    assert alone(tmp_path, Freeze(P1, "b")).status is Status.FROZEN
    assert alone(tmp_path, Unfreeze(ALL, "b")).status is Status.UNFROZEN
    assert (tags(tmp_path), frozen_properties(tmp_path)) == ({}, [])
    assert alone(tmp_path, Unfreeze(ALL, "b")).status is Status.EMPTY


@pytest.mark.parametrize("begins", ["frozen", "dropped"])
def test_a_copy_keeps_the_columns_of_its_snapshot(
    tmp_path: Path, source: Partitions, begins: str
) -> None:
    """Harm prevented: UNFREEZE of one partition takes a dropped column from all others."""
    assert source.rows
    with pyiceberg(tmp_path).update_schema() as change:
        change.add_column("more", LongType())
    numbers = pa.field("n", pa.int64(), nullable=False)
    row = pa.table([pa.array([1]), pa.array([7])], pa.schema([numbers, ("more", pa.int64())]))
    pyiceberg(tmp_path).append(row)
    one = running(tmp_path, rows=ForeignPartitions(rest="p1"))
    if begins == "frozen":
        Freeze(ALL, "b").run(one.ports, one.partitions)
    with pyiceberg(tmp_path).update_schema() as change:
        change.delete_column("more")

    again = Unfreeze(P2, "b") if begins == "frozen" else Freeze(P1, "b")
    again.run(one.ports, one.partitions)

    read = pyiceberg(tmp_path).scan(snapshot_id=tags(tmp_path)["b"]).to_arrow()
    assert (read.num_rows, read["more"].drop_null().to_pylist()) == (source.rows["p1"] + 1, [7])


def frozen_properties(directory: Path) -> list[str]:
    names = state(directory).properties
    return [n for n in names if n.startswith(("mergeberg.frozen.", "mergeberg.unfrozen."))]


def test_a_partition_is_taken_off_all_of_them(tmp_path: Path, source: Partitions) -> None:
    assert source.rows
    alone(tmp_path, Freeze(ALL, "b"))

    assert alone(tmp_path, Unfreeze(P1, "b")).status is Status.UNFROZEN
    assert rows_of_tag(tmp_path, "b") == source.rows["p2"], "its rows are gone from the name"
    assert alone(tmp_path, Unfreeze(P1, "b")).status is Status.EMPTY
    with pytest.raises(RefusedError, match="all partitions are frozen under this name"):
        alone(tmp_path, Freeze(P2, "b"))
    assert alone(tmp_path, Freeze(P1, "b")).status is Status.FROZEN
    assert rows_of_tag(tmp_path, "b.p1") == source.rows["p1"]

    assert alone(tmp_path, Unfreeze(ALL, "b")).status is Status.UNFROZEN
    assert (tags(tmp_path), frozen_properties(tmp_path)) == ({}, [])


def test_the_last_partition_of_a_name_takes_the_name_along(
    tmp_path: Path, source: Partitions
) -> None:
    assert source.rows
    alone(tmp_path, Freeze(ALL, "b"))

    assert alone(tmp_path, Unfreeze(P1, "b")).status is Status.UNFROZEN
    assert alone(tmp_path, Unfreeze(P2, "b")).status is Status.UNFROZEN

    assert (tags(tmp_path), frozen_properties(tmp_path)) == ({}, [])
    assert rows_in_main(tmp_path) == sum(source.rows.values())
    assert left_behind(tmp_path) == []


def test_what_is_taken_off_is_what_was_frozen(tmp_path: Path, source: Partitions) -> None:
    """Whatever main has of the partition by then."""
    alone(tmp_path, Freeze(ALL, "b"))
    running(tmp_path).run(drop("p1"))
    source.by_id["p2"] = parts_of("p2", 7)
    export_at(tmp_path, source, LATER, IN_FILES)
    before = rows_in_main(tmp_path)

    assert alone(tmp_path, Unfreeze(P2, "b")).status is Status.UNFROZEN

    assert (rows_of_tag(tmp_path, "b"), rows_in_main(tmp_path)) == (12, before)


class Deaf:
    """A table whose first response about tags is lost; `after` happens meanwhile."""

    def __init__(self, table: IcebergTable, *, applies: bool = True) -> None:
        self._table, self._applies, self.asked = table, applies, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._table, name)

    def tag(self, at: LakeTableState, change: TagChange) -> Sent:
        self.asked += 1
        sent = self._table.tag(at, change) if self._applies or self.asked > 1 else Sent(False)  # noqa: FBT003
        return Sent(applied=False, error="lost") if self.asked == 1 else sent


@pytest.mark.parametrize("applies", [True, False])
@pytest.mark.parametrize("name", ["b", None])
def test_after_a_lost_response_it_is_frozen_once(
    tmp_path: Path, source: Partitions, name: str | None, *, applies: bool
) -> None:
    assert source.rows

    done = alone(tmp_path, Freeze(P1, name), table=Deaf(lake(tmp_path), applies=applies))

    assert done.status is Status.FROZEN
    assert len(tags(tmp_path)) == 1


@pytest.mark.parametrize("applies", [True, False])
def test_after_a_lost_response_it_is_unfrozen(
    tmp_path: Path, source: Partitions, *, applies: bool
) -> None:
    assert source.rows
    alone(tmp_path, Freeze(P1, "b"))

    done = alone(tmp_path, Unfreeze(P1, "b"), table=Deaf(lake(tmp_path), applies=applies))

    assert (done.status, tags(tmp_path)) == (Status.UNFROZEN, {})


@pytest.mark.parametrize("applies", [True, False])
def test_after_a_lost_response_a_partition_is_removed_once(
    tmp_path: Path, source: Partitions, *, applies: bool
) -> None:
    alone(tmp_path, Freeze(ALL, "b"))

    done = alone(tmp_path, Unfreeze(P1, "b"), table=Deaf(lake(tmp_path), applies=applies))

    assert (done.status, rows_of_tag(tmp_path, "b")) == (Status.UNFROZEN, source.rows["p2"])


@pytest.mark.parametrize("statement", [Freeze(P1, "b"), Unfreeze(P1, "all")], ids=str)
def test_what_is_killed_before_its_request_leaves_nothing(
    tmp_path: Path, source: Partitions, statement: Alone
) -> None:
    """Its manifests are of nobody's snapshot, and go once no request can need them."""
    alone(tmp_path, Freeze(ALL, "all"))
    metadata = Path(urlparse(pyiceberg(tmp_path).location()).path) / "metadata"
    before = {path.name for path in metadata.glob("*.avro")}
    dying = running(tmp_path, effects=AtStep(Step.SEND, dies))

    with pytest.raises(Dies):
        statement.run(dying.ports, dying.partitions)

    assert {path.name for path in metadata.glob("*.avro")} > before
    # The next snapshot takes the sequence number that the request would have had.
    source.by_id["p2"] = parts_of("p2", 7)
    export_at(tmp_path, source, LATER, IN_FILES)
    assert left_behind(tmp_path) == []
    assert statement.run(running(tmp_path).ports, running(tmp_path).partitions).status in (
        Status.FROZEN,
        Status.UNFROZEN,
    )


def dies() -> None:
    raise Dies


def test_two_at_once_have_two_numbers(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: the second takes the first one's name, and unfreezes it with its own."""
    assert source.rows
    table = lake(tmp_path)

    class FreezesMeanwhile(Deaf):
        def tag(self, at: LakeTableState, change: TagChange) -> Sent:
            self.asked += 1
            if self.asked == 1:
                alone(tmp_path, Freeze(P2))
            return table.tag(at, change)

    done = alone(tmp_path, Freeze(P1), table=FreezesMeanwhile(table))

    assert "the name '2'" in done.message
    assert set(tags(tmp_path)) == {"1", "2"}


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_last_number_that_was_edited_is_refused_by_name(
    tmp_path: Path, source: Partitions, *, dry_run: bool
) -> None:
    """Harm prevented: "This is a bug" for a property that somebody set."""
    assert source.rows
    for text in ("last", "-3", ""):
        with pyiceberg(tmp_path).transaction() as change:
            change.set_properties({LAST_NUMBER: text})

        with pytest.raises(DestinationError, match=f"property {LAST_NUMBER}: '{text}' is no"):
            alone(tmp_path, Freeze(P1), dry_run=dry_run)

    assert tags(tmp_path) == {}
    assert alone(tmp_path, Freeze(P1, "b")).status is Status.FROZEN
    with pyiceberg(tmp_path).transaction() as change:
        change.remove_properties(LAST_NUMBER)
    assert "the name '1'" in alone(tmp_path, Freeze(P1)).message


def test_a_dry_run_freezes_nothing(tmp_path: Path, source: Partitions) -> None:
    assert source.rows
    before = state(tmp_path).metadata_location

    outcome = alone(tmp_path, Freeze(P1, "b"), dry_run=True)

    assert outcome.message == "would be frozen under the name 'b', tag b"
    assert state(tmp_path).metadata_location == before


@pytest.mark.parametrize(
    "act",
    [
        lambda at: running(at).run(detach("p1")),
        lambda at: running(at).run(attach("p1")),
        lambda at: drop_detached(at, partition("p1")),
        lambda at: drop_detached(at, AllPartitions()),
        lambda at: running(at).forecast(detach("p1")),
        lambda at: running(at).forecast(attach("p1")),
    ],
    ids=["detach", "attach", "drop detached", "drop all detached", "dry detach", "dry attach"],
)
def test_a_tag_named_detached_is_no_branch(
    tmp_path: Path, source: Partitions, act: Callable[[Path], object]
) -> None:
    """Harm prevented: "This is a bug", and a claim that nobody ends."""
    tag_detached(tmp_path)
    rows = ledger_rows(tmp_path)

    with pytest.raises(RefusedError, match="the table has a tag of that name"):
        act(tmp_path)

    assert rows_in_main(tmp_path) == sum(source.rows.values())
    assert ledger_rows(tmp_path) == rows
    assert running(tmp_path).run(drop("p1")).status is Status.DROPPED


def tag_detached(directory: Path) -> None:
    main = state(directory).main
    assert main is not None
    pyiceberg(directory).manage_snapshots().create_tag(main, DETACHED_BRANCH).commit()


def test_a_tag_named_detached_holds_no_detached_parts(tmp_path: Path, source: Partitions) -> None:
    assert source.rows
    tag_detached(tmp_path)

    assert live_files(pyiceberg(tmp_path), DETACHED_BRANCH) == ()
    assert running(tmp_path).run(detach("p9")).status is Status.EMPTY
