"""A lake table that remembers another partition key than that of the table it was exported from.

The partitions p1 and p2 are those of the source. Here their rows say in which they lie.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tableformat.errors import RefusedError
from tableformat.export.outcome import Outcome, Status
from tableformat.operations.forget import Forget
from tableformat.operations.freeze import Freeze
from tableformat.operations.rewrite import Left, Optimize
from tableformat.operations.run import Running
from tableformat.operations.statement import AllPartitions, OnePartition, Statement
from tableformat.operations.take_out import DropDetached
from tests.places.found import place_at
from tests.support.fakes import TABLE
from tests.support.lake_statements import (
    ForeignPartitions,
    attach,
    detach,
    drop,
    in_files,
    part_in,
    partition,
    running,
    whereabouts,
)
from tests.support.scenarios import row_of, rows_in_main

REMEMBERED = replace(
    TABLE, identity="another", engine=replace(TABLE.engine, partition_by="cityHash64(n) % 2")
)

Made = Statement | Freeze | Forget | DropDetached


@pytest.fixture(autouse=True)
def in_the_lake(tmp_path: Path) -> None:
    """Bring p1 (12 rows in two files) and p2 (3 rows)."""
    in_files(tmp_path)


def here(directory: Path, *lie: str) -> Running:
    """Return what runs statements where the rows of each file lie in these partitions."""
    main, aside = whereabouts(directory)
    foreign = ForeignPartitions(dict.fromkeys((*main, *aside), frozenset(lie)))
    return running(directory, rows=foreign, source=REMEMBERED)


def do(directory: Path, statement: Made, *lie: str) -> Outcome:
    one = here(directory, *(lie or ("p2",)))
    if isinstance(statement, Freeze | Forget | DropDetached):
        return statement.run(one.ports, one.partitions)
    return one.run(statement)


def test_what_lies_in_a_partition_goes_with_it_whatever_its_id_was(tmp_path: Path) -> None:
    """Harm prevented: DROP PARTITION takes other rows, or leaves some."""
    dropped = do(tmp_path, drop("p2"))

    assert (dropped.status, dropped.rows, rows_in_main(tmp_path)) == (Status.DROPPED, 15, 0)
    for name in ("p1", "p2"):
        changed = row_of(tmp_path, name).changed
        assert changed is not None
        assert changed.statement == "DROP PARTITION ID 'p2'"


def test_it_is_detached_attached_and_frozen_so(tmp_path: Path) -> None:
    assert do(tmp_path, detach("p2")).rows == 15
    assert do(tmp_path, attach("p2")).rows == 15
    frozen = do(tmp_path, Freeze(partition("p2"), "before"))
    assert (frozen.rows, rows_in_main(tmp_path)) == (15, 15)
    do(tmp_path, detach("p2"))
    assert do(tmp_path, DropDetached(partition("p2"))).rows == 15


@pytest.mark.parametrize("statement", [drop, detach, attach, "freeze", "drop detached"])
def test_its_id_where_it_comes_from_is_refused(tmp_path: Path, statement: object) -> None:
    """Harm prevented: a statement is taken for done that has passed over what was meant."""
    if statement in (attach, "drop detached"):
        do(tmp_path, detach("p2"))
    p1 = partition("p1")
    made: Made
    if callable(statement):
        made = statement("p1")
    else:
        made = Freeze(p1, "before") if statement == "freeze" else DropDetached(p1)
    before = whereabouts(tmp_path)

    with pytest.raises(RefusedError, match=r"p1 is one of .* are in partition p2 here"):
        do(tmp_path, made)

    assert whereabouts(tmp_path) == before


def test_a_partition_that_is_not_there_is_still_no_error(tmp_path: Path) -> None:
    assert do(tmp_path, drop("p3")).status is Status.EMPTY
    do(tmp_path, drop("p2"))
    assert do(tmp_path, drop("p1")).status is Status.EMPTY


def test_a_file_with_rows_of_two_partitions_is_refused_by_name(tmp_path: Path) -> None:
    """Harm prevented: rows of another partition go, too."""
    with pytest.raises(RefusedError, match=r"which has another partition key, holds rows of it"):
        do(tmp_path, drop("p2"), "p2", "p9")

    dropped = do(tmp_path, replace(drop("p1"), which=part_in(tmp_path, "p2")), "p2", "p9")
    assert (dropped.rows, rows_in_main(tmp_path)) == (3, 12)


def test_a_file_is_a_part_by_the_name_that_it_is_listed_by(tmp_path: Path) -> None:
    dropped = do(tmp_path, replace(drop("p1"), which=part_in(tmp_path, "p1")))

    assert (dropped.data_files, rows_in_main(tmp_path) < 15) == (1, True)


def test_it_is_forgotten_by_the_id_of_the_export_once_it_is_gone(tmp_path: Path) -> None:
    """Harm prevented: an export of rows that are here, in another partition, is forgotten."""
    with pytest.raises(RefusedError, match="is not empty"):
        do(tmp_path, Forget(partition("p1")))
    do(tmp_path, drop("p2"))

    assert do(tmp_path, Forget(partition("p1"))).status is Status.FORGOTTEN


@pytest.mark.parametrize("identity", ["another", TABLE.identity])
def test_a_row_that_does_not_say_how_its_source_is_divided(tmp_path: Path, identity: str) -> None:
    """Harm prevented: rows of a ledger from before it was noted are taken for those of here."""
    ledger = place_at(tmp_path).ledger(lambda: 1)
    for name in ("p1", "p2"):
        ledger.write(replace(row_of(tmp_path, name), division=None))
    one = here(tmp_path, "p2")
    source = replace(REMEMBERED, identity=identity)
    one = replace(one, partitions=replace(one.partitions, source=source))

    dropped = one.run(drop("p2"))

    # Of the very table that the lake table remembers it is known.
    assert dropped.rows == (15 if identity == "another" else 3)


@pytest.mark.parametrize("which", [partition("p2"), AllPartitions(each=True)])
def test_final_is_refused_where_a_partition_may_have_several_exports(
    tmp_path: Path, which: OnePartition | AllPartitions
) -> None:
    """Harm prevented: duplicates in two exports of one partition stay, and nobody says so."""
    one = here(tmp_path, "p2")
    schema_id = one.partitions.lake.load().layout.schema_id
    final = Optimize(which, "OPTIMIZE FINAL", schema_id, 1 << 30, left=lambda _: Left(1, 1))

    with pytest.raises(RefusedError, match=r"of 2 exports|may be a piece of one here"):
        one.run(final)
