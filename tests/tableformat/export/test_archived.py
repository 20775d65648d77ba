"""What leaves the source stays in the lake, whatever the source holds later."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from tableformat.errors import RefusedError, SourceError
from tableformat.export.archived import kept_for_ever
from tableformat.export.claim import Wish
from tableformat.ledger import Owner
from tests.scenarios import ALL, Partitions, parts_of, ports_of, row_of, rows_in_main, run, statuses

ME, OTHER = Owner("here", 1, "now"), Owner("there", 2, "then")
CHANGED = RefusedError("Cannot archive: it changed. The source is as it was.")
LOST = SourceError("Cannot archive: the answer was lost.")
SHORT = replace(ALL, wish=Wish(ttl=1))


def exported(directory: Path) -> Partitions:
    """Export p1 (12 rows) as `archive` does, with a TTL that is over soon."""
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5)})
    assert statuses(run(directory, source, request=SHORT)) == ["committed"]
    return source


def kept(
    directory: Path, source: Partitions, *, alive: bool = True
) -> contextlib.AbstractContextManager[None]:
    row = row_of(directory, "p1")
    assert row.done is not None
    return kept_for_ever(
        ports_of(directory, source).ledger,
        row,
        row.done,
        owner=ME,
        is_alive=lambda _: alive,
        now=2_000_000,
    )


def later(directory: Path, source: Partitions) -> list[str]:
    """Export again long after the TTL, when the partition has 40 other rows."""
    source.by_id["p1"] = parts_of("p1", 40)
    ports = ports_of(directory, source, clock=lambda: 9_000_000)
    return statuses(run(directory, source, request=SHORT, ports=ports))


def test_rows_that_come_after_an_archive_never_take_the_place_of_what_was_archived(
    tmp_path: Path,
) -> None:
    """Harm prevented: the only copy of the archived rows leaves main for some late ones."""
    source = exported(tmp_path)

    with kept(tmp_path, source):
        source.by_id.clear()

    assert later(tmp_path, source) == ["refused"]
    assert rows_in_main(tmp_path) == 12


def test_a_partition_that_stays_in_the_source_is_exported_anew_as_before(tmp_path: Path) -> None:
    source = exported(tmp_path)

    with pytest.raises(RefusedError, match="changed"), kept(tmp_path, source):
        raise CHANGED

    assert later(tmp_path, source) == ["replaced"]
    assert rows_in_main(tmp_path) == 40


def test_when_nobody_knows_what_became_of_the_source_the_lake_keeps_it(tmp_path: Path) -> None:
    """Harm prevented: a DETACH without an answer, which was performed."""
    source = exported(tmp_path)

    with pytest.raises(SourceError, match="lost"), kept(tmp_path, source):
        raise LOST

    assert later(tmp_path, source) == ["refused"]
    assert rows_in_main(tmp_path) == 12


def test_nothing_is_touched_while_somebody_else_exports_the_partition(tmp_path: Path) -> None:
    source = exported(tmp_path)
    ledger = ports_of(tmp_path, source).ledger
    ledger.take_lease(row_of(tmp_path, "p1").key.hash, OTHER, 60.0)

    said = r"Cannot archive partition p1.*process 2 on there"
    with pytest.raises(RefusedError, match=said), kept(tmp_path, source):
        pytest.fail("the source was touched")
    # Its owner has died.
    with kept(tmp_path, source, alive=False):
        source.by_id.clear()
    assert later(tmp_path, source) == ["refused"]


def test_a_row_that_moved_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    source = exported(tmp_path)
    before = kept(tmp_path, source)
    with kept(tmp_path, source):
        pass

    with pytest.raises(RefusedError, match="changed at the same moment"), before:
        pytest.fail("the source was touched")
