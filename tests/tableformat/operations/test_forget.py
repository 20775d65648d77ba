"""FORGET on a lake table: what is forgotten of a partition that is empty, and what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tableformat.errors import NotFoundError, RefusedError
from tableformat.export.outcome import Status
from tableformat.names import PartitionId
from tableformat.operations.forget import Forget
from tableformat.operations.freeze import Freeze
from tableformat.operations.which import OnePartition
from tests.lake_statements import (
    IN_FILES,
    LATER,
    alone,
    drop,
    export_at,
    in_files,
    rows_of_tag,
    running,
)
from tests.scenarios import (
    CLOCK,
    Partitions,
    pyiceberg,
    rows_in_main,
    run,
    state,
)

P1, P2 = (OnePartition(PartitionId(name)) for name in ("p1", "p2"))


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    """Return a table whose two partitions are in the lake."""
    return in_files(tmp_path)


def test_an_empty_partition_is_forgotten_and_exported_at_once(
    tmp_path: Path, source: Partitions
) -> None:
    running(tmp_path).run(drop("p1"))
    assert run(tmp_path, source, request=IN_FILES)[0].status is Status.REFUSED

    assert alone(tmp_path, Forget(P1)).status is Status.FORGOTTEN

    assert export_at(tmp_path, source, CLOCK, IN_FILES)["p1"].status is Status.COMMITTED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_a_partition_that_is_frozen_is_forgotten_and_doubles_nothing(
    tmp_path: Path, source: Partitions
) -> None:
    """Also where main is moved back to when it had the rows: the ledger knows what landed."""
    before = state(tmp_path).main
    assert before is not None
    alone(tmp_path, Freeze(P1, "kept"))
    running(tmp_path).run(drop("p1"))

    assert alone(tmp_path, Forget(P1)).status is Status.FORGOTTEN

    assert rows_of_tag(tmp_path, "kept") == source.rows["p1"]
    pyiceberg(tmp_path).manage_snapshots().rollback_to_snapshot(before).commit()
    said = export_at(tmp_path, source, LATER, IN_FILES)
    assert {one.status for one in said.values()} == {Status.UNCHANGED}
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_a_partition_with_files_is_not_forgotten(tmp_path: Path, source: Partitions) -> None:
    assert source.rows

    with pytest.raises(RefusedError, match="partition p1 is not empty") as told:
        alone(tmp_path, Forget(P1))

    assert told.value.code == 716


def test_a_partition_that_nobody_knows_is_not_forgotten(tmp_path: Path, source: Partitions) -> None:
    assert source.rows

    with pytest.raises(NotFoundError, match="knows no export of partition p9") as told:
        alone(tmp_path, Forget(OnePartition(PartitionId("p9"))))

    assert told.value.code == 999
