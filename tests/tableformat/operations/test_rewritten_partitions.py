"""Statements on a partition whose files another engine compacted: as on the export's own files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.snapshots import Operation

from tableformat.committer import DETACHED_BRANCH, MAIN_BRANCH
from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tableformat.export.request import ExportOptions
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.names import PartitionId
from tableformat.operations.attach import Attach
from tableformat.operations.statement import OnePart
from tableformat.operations.take_out import Detach
from tests.support.foreign_actions import undo
from tests.support.history_acts import GROWS, OF_OTHERS, OURS, PARTS, Seen, done, seen
from tests.support.lake import move_main
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    drop,
    export_at,
    part_in,
    running,
)
from tests.support.other_engines import origin_of, rewrite
from tests.support.scenarios import Partitions, lake, pyiceberg, row_of, state
from tests.support.two_lake_tables import prepared

compact = partial(rewrite, operation=Operation.REPLACE)
UNDO = "main is moved back by one change"


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    """Return a table with p1: 12 rows in two files that another engine compacted."""
    made = prepared(tmp_path)
    compact_p1(tmp_path)
    return made


def p1_files(directory: Path) -> list[str]:
    """Return the paths of the files of main with rows of p1."""
    key = row_of(directory, "p1").key.hash
    paths = (task.file.file_path for task in pyiceberg(directory).scan().plan_files())
    return sorted(path for path in paths if origin_of(path) == key)


def compact_p1(directory: Path, *, first: bool = False) -> None:
    """Compact all files of p1, or the first of them."""
    paths = p1_files(directory)
    compact(directory, lambda path: path in (paths[:1] if first else paths))


def rows(directory: Path, where: str = "here", branch: str = MAIN_BRANCH) -> int:
    """Return the number of rows of p1 on a branch of one of the two tables."""
    return sum(n for of, n in seen(directory).items() if of[:3] == (where, branch, "p1"))


def again(directory: Path, source: Partitions) -> tuple[str, str]:
    """Export p1 again, after its time to live; return the status and the message."""
    found = export_at(directory, source, LATER, IN_FILES)["p1"]
    return found.status.value, found.message


def expire(directory: Path) -> None:
    """Expire all snapshots but those of main and the branches."""
    table = pyiceberg(directory)
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    gone = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id not in heads]
    table.maintenance.expire_snapshots().by_ids(gone).commit()


@pytest.mark.parametrize(
    ("act", "did", "left", "then"),
    [
        ("drop", "dropped", 0, "committed"),
        ("detach", "detached", 0, "committed"),
        ("update", "changed", 12, "unchanged"),
        ("delete", "changed", 6, "unchanged"),
        ("clear index", "changed", 12, "unchanged"),
        ("optimize", "optimized", 12, "unchanged"),
        ("deduplicate", "optimized", 7, "unchanged"),
        ("move", "moved", 0, "refused"),
        ("attach from", "empty", 12, "unchanged"),
        ("freeze", "frozen", 12, "unchanged"),
    ],
)
def test_a_statement_does_what_it_does_to_files_of_the_export(
    tmp_path: Path, source: Partitions, act: str, did: str, left: int, then: str
) -> None:
    """Harm prevented: after a compaction, no later export of the partition is possible."""
    assert done(act, tmp_path, source).value == did

    assert rows(tmp_path) == left
    assert rows(tmp_path, "there") == (12 if act == "move" else 0)
    assert again(tmp_path, source)[0] == then


def test_optimize_makes_the_files_those_of_the_export_again(
    tmp_path: Path, source: Partitions
) -> None:
    done("optimize", tmp_path, source)

    status, message = again(tmp_path, source)

    assert (status, message.partition(", snapshot")[0]) == ("unchanged", "12 rows in the lake")
    assert "rewritten" not in message
    assert row_of(tmp_path, "p1").rewritten is None


def test_what_was_detached_and_attached_is_exported_as_before(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: once the snapshots expire, nobody knows what the attached files are."""
    for act, where in (("detach", DETACHED_BRANCH), ("attach", MAIN_BRANCH)):
        done(act, tmp_path, source)
        assert rows(tmp_path, branch=where) == 12
        expire(tmp_path)

    status, message = again(tmp_path, source)

    assert status == "unchanged"
    assert message.endswith("(replace).")
    source.by_id["p1"] = source.by_id["p1"][:1]
    done(GROWS, tmp_path, source)
    assert again(tmp_path, source)[0] == "replaced"
    assert rows(tmp_path) == source.rows["p1"]


def test_detached_rows_are_not_attached_next_to_a_later_export(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: rows are there twice, because no name shows that the files have them."""
    done("detach", tmp_path, source)
    assert again(tmp_path, source)[0] == "committed"

    assert done("attach", tmp_path, source) is Status.REFUSED

    assert rows(tmp_path) == 12
    compact_p1(tmp_path)
    assert done("attach", tmp_path, source) is Status.REFUSED


def test_a_part_is_detached_and_attached_alone(tmp_path: Path, source: Partitions) -> None:
    path = p1_files(tmp_path)[0]
    part = OnePart(lake_part_name(PartitionId("p1"), path))

    running(tmp_path, rows=OF_OTHERS).run(Detach(part))

    assert rows(tmp_path) + rows(tmp_path, branch=DETACHED_BRANCH) == 12
    assert "DETACH PART" in again(tmp_path, source)[1]
    expire(tmp_path)
    running(tmp_path, rows=OF_OTHERS).run(Attach(part))
    assert rows(tmp_path) == 12
    assert again(tmp_path, source)[0] == "unchanged"


def test_a_detached_file_does_not_join_files_that_were_made_of_it(tmp_path: Path) -> None:
    """Harm prevented: main is moved back and compacted, and rows of the detached file are twice."""
    source = prepared(tmp_path)
    before, part = state(tmp_path).main, part_in(tmp_path, "p1")
    running(tmp_path).run(Detach(part))
    move_main(lake(tmp_path), before)
    compact_p1(tmp_path)
    assert again(tmp_path, source)[0] == "unchanged"

    with pytest.raises(RefusedError, match="never in main at the same time"):
        running(tmp_path, rows=OF_OTHERS).run(Attach(part))

    assert rows(tmp_path) == 12


def test_a_detached_file_returns_to_the_others_after_their_compaction(tmp_path: Path) -> None:
    """Harm prevented: a platform compacts what DETACH PART left, and the part stays detached."""
    source = prepared(tmp_path)
    part = part_in(tmp_path, "p1")
    running(tmp_path).run(Detach(part))
    compact_p1(tmp_path)
    assert again(tmp_path, source)[0] == "refused"

    running(tmp_path, rows=OF_OTHERS).run(Attach(part))

    assert rows(tmp_path) == 12
    assert again(tmp_path, source)[0] == "unchanged"
    compact_p1(tmp_path)
    assert again(tmp_path, source)[0] == "unchanged"
    done(GROWS, tmp_path, source)
    assert again(tmp_path, source)[0] == "replaced"
    assert rows(tmp_path) == source.rows["p1"]


def test_a_detached_file_does_not_join_what_was_made_of_itself(tmp_path: Path) -> None:
    """Harm prevented: main, moved back, has the file again; what is made of it joins the file."""
    prepared(tmp_path)
    before, one, other = state(tmp_path).main, part_in(tmp_path, "p1"), part_in(tmp_path, "p1", 1)
    running(tmp_path).run(Detach(one))
    move_main(lake(tmp_path), before)
    running(tmp_path).run(Detach(other))
    compact_p1(tmp_path)

    with pytest.raises(RefusedError, match="never in main at the same time"):
        running(tmp_path, rows=OF_OTHERS).run(Attach(one))

    running(tmp_path, rows=OF_OTHERS).run(Attach(other))
    assert rows(tmp_path) == 12


def test_a_file_of_the_export_that_is_left_goes_with_the_compacted_one(tmp_path: Path) -> None:
    """Harm prevented: half of a partition comes back, or goes."""
    source = prepared(tmp_path)
    compact_p1(tmp_path, first=True)

    for act, left in (("detach", 0), ("attach", 12)):
        done(act, tmp_path, source)
        assert rows(tmp_path) == left
        expire(tmp_path)

    assert again(tmp_path, source)[0] == "unchanged"


def test_an_updated_partition_is_replaced_as_a_whole_by_force(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: the compacted file that UPDATE left stays beside the new rows."""
    done("update", tmp_path, source)
    done(GROWS, tmp_path, source)
    assert again(tmp_path, source)[0] == "refused"

    forced = replace(IN_FILES, options=ExportOptions(force=True))
    found = export_at(tmp_path, source, LATER, forced)["p1"]

    assert found.status is Status.REPLACED
    assert rows(tmp_path) == source.rows["p1"]


def test_what_a_statement_left_may_be_compacted(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: after a DELETE, the next compaction ends all that is known of a partition."""
    done("delete", tmp_path, source)
    compact_p1(tmp_path)

    for _ in range(2):
        status, message = again(tmp_path, source)
        assert (status, rows(tmp_path)) == ("unchanged", 6)
        assert message.startswith("the source is as it was exported. DELETE IN PARTITION")
        expire(tmp_path)
        compact_p1(tmp_path)


def test_detached_files_are_not_forgotten(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: the ledger forgets whose rows are detached, and an export adds them."""
    done("detach", tmp_path, source)
    expire(tmp_path)

    done("forget", tmp_path, source)

    assert row_of(tmp_path, "p1").rewritten


def test_files_with_rows_of_others_are_no_files_of_the_export(tmp_path: Path) -> None:
    """Harm prevented: rows of another partition leave with those of the export."""
    source = prepared(tmp_path)
    compact(tmp_path)
    assert again(tmp_path, source)[0] == "unchanged"
    both = frozenset({"p1", "p2"})
    paths = {task.file.file_path for task in pyiceberg(tmp_path).scan().plan_files()}
    before = seen(tmp_path)

    with pytest.raises(RefusedError, match="holds rows of it and of p2"):
        running(tmp_path, rows=ForeignPartitions(dict.fromkeys(paths, both))).run(drop("p1"))

    assert seen(tmp_path) == before


def outcome(
    directory: Path, acts: list[str], before: frozenset[int]
) -> tuple[list[Status], str, Seen]:
    """Return what became of some acts and of an export after them, and what is there.

    Another engine compacts p1 before the acts of these numbers, the export included.
    """
    source = prepared(directory)
    found = []
    for number, act in enumerate(acts):
        if number in before:
            compact_p1(directory)
        found.append(done(act, directory, source))
    if len(acts) in before:
        compact_p1(directory)
    return found, again(directory, source)[0], seen(directory)


ANY = (*OURS, *PARTS, GROWS)


def assert_compactions_change_nothing(acts: list[str], before: set[int]) -> None:
    """Check that acts do what they do without the compactions before some of them."""
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        plain = outcome(Path(one), acts, frozenset())
        assert outcome(Path(other), acts, frozenset(before)) == plain


@pytest.mark.parametrize(
    ("acts", "before"),
    [
        (["update", "detach", "attach"], {0}),
        (["detach", "export", "attach"], {0, 1}),
        (["move", "export", "drop there"], {0}),
        (["export there", "replace from", "export"], {1}),
        (["update", "detach", "attach", "delete"], {0, 1, 3, 4}),
        (["drop smallest part", "drop smallest part"], {0, 1}),
        ([*["detach smallest part"] * 2, *["attach smallest part"] * 2], {0, 1, 2, 3}),
        (["detach smallest part", "export", "attach smallest part"], {0, 1}),
        (["detach smallest part", "attach smallest part"] * 2, {0, 1, 2, 3}),
    ],
)
def test_compactions_change_nothing_of_these_acts(acts: list[str], before: set[int]) -> None:
    """Harm prevented: what an owner may do depends on whether a platform compacted the table."""
    assert_compactions_change_nothing(acts, before)


@settings(max_examples=8, deadline=None)
@given(
    acts=st.lists(st.sampled_from(ANY), min_size=1, max_size=4),
    before=st.sets(st.integers(0, 4), min_size=1, max_size=2),
)
def test_compactions_change_nothing_of_what_others_do(acts: list[str], before: set[int]) -> None:
    """Harm prevented: what an owner may do depends on whether a platform compacted the table."""
    assert_compactions_change_nothing(acts, before)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@settings(max_examples=500, deadline=None)
@given(
    acts=st.lists(st.sampled_from(ANY), min_size=1, max_size=5),
    before=st.sets(st.integers(0, 5), min_size=1, max_size=3),
)
def test_many_compactions_change_nothing_of_what_others_do(
    acts: list[str], before: set[int]
) -> None:
    """The same, longer."""
    assert_compactions_change_nothing(acts, before)


SAME_ROWS = (*sorted({*OURS} - {"delete", "deduplicate"}), *PARTS, GROWS, UNDO)
"""Acts that remove no row of a partition that stays."""


def assert_rows_are_there_once(acts: list[str], before: set[int]) -> None:
    """Check the rows of p1 after each act, and what an export says at the end."""
    with TemporaryDirectory() as place:
        directory = Path(place)
        source = prepared(directory)
        for number, act in enumerate(acts):
            if number in before:
                compact_p1(directory)
            if act == UNDO:
                undo(directory)
            else:
                done(act, directory, source)
            assert rows(directory) <= source.rows["p1"], act
            assert rows(directory, "there") <= source.rows["p1"], act
        if len(acts) in before:
            compact_p1(directory)
        status = again(directory, source)[0]
        there = rows(directory)
    assert there <= source.rows["p1"]
    assert status == "refused" or there == source.rows["p1"], status


@pytest.mark.parametrize(
    ("acts", "before"),
    [
        (["detach smallest part", UNDO, "export", "attach smallest part"], {2}),
        (["detach smallest part", UNDO, "detach smallest part", "attach"], {2}),
        (["detach", "export", "detach", "attach"], {0}),
        (["detach", "export", "update", "detach", "attach"], {0}),
        (["export there", "detach", "attach from", "detach", "attach"], {0}),
        (["export there", "detach", "export", "drop", "attach", "attach from"], {1}),
        (["detach", "export", "drop", "attach", "export there", "move"], {0}),
        (["detach", UNDO, "detach", "attach"], {0, 2}),
        (["detach", "export", "others rewrite", "detach", "drop", "attach"], {0}),
    ],
)
def test_no_row_is_there_twice_in_these_histories(acts: list[str], before: set[int]) -> None:
    """Harm prevented: compactions hide that detached files and those of main have the same rows."""
    assert_rows_are_there_once(acts, before)


@settings(max_examples=8, deadline=None)
@given(
    acts=st.lists(st.sampled_from(SAME_ROWS), min_size=2, max_size=6),
    before=st.sets(st.integers(0, 6), min_size=1),
)
def test_no_row_is_there_twice_when_main_moves(acts: list[str], before: set[int]) -> None:
    """Harm prevented: compactions hide that detached files and those of main have the same rows."""
    assert_rows_are_there_once(acts, before)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@settings(max_examples=1_000, deadline=None)
@given(
    acts=st.lists(st.sampled_from(SAME_ROWS), min_size=2, max_size=8),
    before=st.sets(st.integers(0, 8), min_size=1),
)
def test_in_many_histories_no_row_is_there_twice(acts: list[str], before: set[int]) -> None:
    """The same, longer."""
    assert_rows_are_there_once(acts, before)
