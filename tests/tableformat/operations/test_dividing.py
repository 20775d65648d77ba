"""ATTACH PARTITION … FROM a table that is divided otherwise, as pieces of partitions here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tableformat.effects import Step
from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tableformat.names import PartitionId
from tableformat.operations.copy_from import OtherKey, OtherTable, divided_here
from tableformat.operations.statement import AllPartitions
from tests.support.dying import Dies
from tests.support.lake import Meddling
from tests.support.lake_statements import drop, in_files, partition, running
from tests.support.scenarios import TO, AtStep, Partitions, lake, row_of, rows_in_main
from tests.support.two_lake_tables import OTHER, copy, piece, to_other

PIECE = partition("p1")


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    """Return a table of which `other` has p1 and p2, and the table of the statements p2 alone."""
    made = in_files(tmp_path)
    running(tmp_path).run(drop("p1"))
    to_other(tmp_path, made)
    return made


def test_a_piece_is_in_its_partition_here(tmp_path: Path, source: Partitions) -> None:
    done = piece(tmp_path, PIECE, "p2")

    assert (done.status, done.partition_id, done.rows) == (Status.ATTACHED, "p2", 12)
    assert rows_in_main(tmp_path) == sum(source.rows.values())
    (gone,) = [running(tmp_path).run(drop("p2"))]
    assert (gone.rows, rows_in_main(tmp_path)) == (15, 0)


@pytest.mark.parametrize("step", [Step.CLAIM, Step.WRITE_FILES, Step.STAGE, Step.SEND])
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_step_it_comes_once(
    tmp_path: Path, source: Partitions, step: Step, *, after: bool
) -> None:
    def die() -> None:
        raise Dies

    with pytest.raises(Dies):
        piece(tmp_path, PIECE, "p2", effects=AtStep(step, die, after=after))

    if step is Step.SEND and after:
        with pytest.raises(RefusedError, match="could be there twice"):
            piece(tmp_path, PIECE, "p2")
    else:
        assert piece(tmp_path, PIECE, "p2").status is Status.ATTACHED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_a_lost_response_is_repaired(tmp_path: Path, source: Partitions) -> None:
    table = Meddling(lake(tmp_path), lose=lambda number: number == 1)

    assert piece(tmp_path, PIECE, "p2", table=table).status is Status.ATTACHED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_two_pieces_at_once_both_come(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: one day of a month takes the place of the other."""
    running(tmp_path).run(drop("p2"))

    def meanwhile() -> None:
        piece(tmp_path, partition("p2"), "p9")

    done = piece(tmp_path, PIECE, "p9", effects=AtStep(Step.SEND, meanwhile))

    assert done.status is Status.ATTACHED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


@pytest.mark.parametrize("step", [Step.CLAIM, Step.SEND])
def test_what_the_export_brings_meanwhile_is_not_there_twice(
    tmp_path: Path, source: Partitions, step: Step
) -> None:
    def meanwhile() -> None:
        assert copy(tmp_path, PIECE).status is Status.ATTACHED

    with pytest.raises(RefusedError, match="could be there twice"):
        piece(tmp_path, PIECE, "p2", effects=AtStep(step, meanwhile))

    assert rows_in_main(tmp_path) == sum(source.rows.values())
    assert row_of(tmp_path, "p1").done is not None


def test_rows_of_one_partition_that_would_lie_in_two_are_refused(
    tmp_path: Path, source: Partitions
) -> None:
    """Also where no single file has rows of both."""
    key = row_of(tmp_path, "p1").key
    table = lake(tmp_path)
    (file,) = table.files_on(table.load(), "main")
    files = (replace(file, path="a"), replace(file, path="b"))
    there = OtherTable(OTHER, "uuid", 1, (OtherKey(key, files),))
    assert source.rows

    for which in (PIECE, AllPartitions()):
        with pytest.raises(
            RefusedError, match="would belong to partitions a and b here"
        ) as refused:
            divided_here(
                f"Cannot run it on {TO}", which, there, lambda f: frozenset({PartitionId(f.path)})
            )
        assert refused.value.code == 36
