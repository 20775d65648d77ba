"""A ledger is lost after statements have written files: the table still gives a new one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tableformat.export.outcome import Status
from tableformat.export.request import ExportOptions
from tableformat.operations.statement import AllPartitions
from tableformat.operations.take_out import Drop
from tests.faults.test_rebuilt_ledger import lose, rebuilt
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    add_foreign,
    drop,
    export_at,
    in_files,
    part_in,
    running,
)
from tests.support.lake_statements import partition as named
from tests.support.row_changes import change
from tests.support.row_merges import optimize
from tests.support.scenarios import CLOCK, parts_of, row_of, rows_in_main

P1, EACH = named("p1"), AllPartitions(each=True)


def test_an_export_whose_files_were_merged_is_known_again(tmp_path: Path) -> None:
    """Harm prevented: a lake that was optimized, and can be exported to by force only."""
    source = in_files(tmp_path)
    optimize(tmp_path, P1)
    lose(tmp_path)

    found = rebuilt(tmp_path)

    assert [f.proved for f in found] == [True, True]
    again = export_at(tmp_path, source, LATER, IN_FILES)
    assert {o.status for o in again.values()} == {Status.UNCHANGED}
    assert rows_in_main(tmp_path) == 15


@pytest.mark.parametrize("deduplicates", [True, False])
def test_what_a_statement_left_is_never_taken_for_an_export(
    tmp_path: Path, *, deduplicates: bool
) -> None:
    """Harm prevented: rows that were deleted come back, or are there twice."""
    source = in_files(tmp_path)
    if deduplicates:
        done = optimize(tmp_path, P1, deduplicates=True)
    else:
        done = change(tmp_path, P1, deletes=True)
    assert done.status in (Status.OPTIMIZED, Status.CHANGED)
    left, key = rows_in_main(tmp_path), row_of(tmp_path, "p1").key
    lose(tmp_path)

    found = {f.row.key: f.proved for f in rebuilt(tmp_path)}

    assert not found[key]
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.REFUSED
    assert rows_in_main(tmp_path) == left


def test_merged_rows_of_others_do_not_keep_a_table_from_its_new_ledger(
    tmp_path: Path,
) -> None:
    source, foreign = in_files(tmp_path), ForeignPartitions(rest="p3")
    for _ in range(2):
        add_foreign(tmp_path)
    optimize(tmp_path, EACH, rows=foreign)
    lose(tmp_path)

    found = {f.row.key.partition_id: f.proved for f in rebuilt(tmp_path)}

    assert found == {"p1": True, "p2": True, "p3": False}
    again = export_at(tmp_path, source, LATER, IN_FILES)
    assert {o.status for o in again.values()} == {Status.UNCHANGED}
    assert rows_in_main(tmp_path) == 15 + 2 * 4


@pytest.mark.parametrize("act", ["update", "delete", "drop", "drop a part"])
def test_a_rebuilt_ledger_names_a_way_that_can_be_followed(tmp_path: Path, act: str) -> None:
    """Harm prevented: "0 rows in 0 parts then. Wait", and no wait and no option ever helps."""
    source = in_files(tmp_path)
    match act:
        case "drop":
            running(tmp_path).run(drop("p1"))
        case "drop a part":
            running(tmp_path).run(Drop(part_in(tmp_path, "p1")))
        case _:
            change(tmp_path, P1, deletes=act == "delete")
    lose(tmp_path)
    rebuilt(tmp_path)

    for clock in (CLOCK, LATER):
        refused = export_at(tmp_path, source, clock, IN_FILES)["p1"]
        assert refused.status is Status.REFUSED
        assert "0 rows in 0 parts" not in refused.message
        assert "Wait" not in refused.message
        assert "rebuilt and does not know what the source had then" in refused.message
        assert "After DROP PARTITION" in refused.message
    running(tmp_path).run(drop("p1"))
    forced = replace(IN_FILES, options=ExportOptions(force=True))
    assert export_at(tmp_path, source, LATER, forced)["p1"].status is Status.COMMITTED
    assert rows_in_main(tmp_path) == 15


def test_a_rebuilt_ledger_says_that_another_content_may_wait(tmp_path: Path) -> None:
    """Harm prevented: "0 rows in 0 parts then" for a partition of which main has all rows."""
    source = in_files(tmp_path)
    lose(tmp_path)
    rebuilt(tmp_path)
    source.by_id["p1"] = parts_of("p1", 7, 5, 2)

    refused = export_at(tmp_path, source, CLOCK, IN_FILES)["p1"]

    assert refused.status is Status.REFUSED
    assert "does not know what the source had then; it has 14 rows in 3 parts" in refused.message
    assert "Wait" in refused.message
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.REPLACED
