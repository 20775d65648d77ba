"""Up to which partition a query may read the lake, and what stops it there (N-40)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from tableformat.effects import Step
from tableformat.errors import RefusedError
from tableformat.export.request import ById, ExportOptions
from tableformat.export.watermark import Watermark, find_watermark, property_of
from tableformat.ledger import Archived, Stale
from tableformat.names import PartitionId
from tests.support.dying import Dies, DiesAt
from tests.support.fakes import TABLE
from tests.support.scenarios import (
    ALL,
    Partitions,
    lake,
    parts_of,
    ports_of,
    pyiceberg,
    row_of,
    run,
    state,
)

T = TypeVar("T")


class DiesBefore(DiesAt):
    """Dies before the first effect of a name."""

    def __init__(self, step: Step) -> None:
        super().__init__(-1, after=False)
        self._step = step

    def __call__(self, step: Step, act: Callable[[], T]) -> T:
        if step is self._step:
            self._left = 0
        return super().__call__(step, act)


def ask(directory: Path, source: Partitions, *, now: int = 2_000_000) -> Watermark:
    ledger = ports_of(directory, source).ledger
    return find_watermark(TABLE, source, lake(directory), ledger, now=now)


def texts_of(found: Watermark) -> tuple[str, str]:
    """Return the watermark and what stops it, as texts."""
    return str(found.partition_id), str(found.stopped_by)


def export(directory: Path, source: Partitions, partition: str) -> None:
    run(directory, source, request=replace(ALL, selection=ById(PartitionId(partition))))


def three() -> Partitions:
    return Partitions(by_id={p: parts_of(p, 7, 5) for p in ("202401", "202402", "202403")})


def test_it_is_the_last_partition_when_all_are_exported(tmp_path: Path) -> None:
    source = three()
    run(tmp_path, source)

    assert ask(tmp_path, source) == Watermark(PartitionId("202403"), 3, 3)


def test_a_partition_that_is_missing_stops_it_although_later_ones_are_there(
    tmp_path: Path,
) -> None:
    """Harm prevented: rows of the gap are read from neither side."""
    source = three()
    export(tmp_path, source, "202403")
    assert texts_of(ask(tmp_path, source)) == ("None", "202401")

    export(tmp_path, source, "202401")
    found = ask(tmp_path, source)

    assert texts_of(found) == ("202401", "202402")
    assert (found.reached, found.partitions, found.why) == (1, 3, "it was never exported")


def test_the_order_is_that_of_partition_ids(tmp_path: Path) -> None:
    """ClickHouse sorts ids as texts, whatever order a source lists them in."""
    source = Partitions(by_id={p: parts_of(p, 7) for p in ("9", "10", "all")})
    export(tmp_path, source, "10")

    assert texts_of(ask(tmp_path, source)) == ("10", "9")


@pytest.mark.parametrize("now", [2_000_000, 9_000_000], ids=["inside the TTL", "after it"])
@pytest.mark.parametrize("rows", [(7, 5, 3), (7,)], ids=["more rows", "fewer rows"])
def test_a_partition_that_changed_stops_it(tmp_path: Path, now: int, rows: tuple[int, ...]) -> None:
    """Harm prevented: rows that came late are read from neither side."""
    source = three()
    run(tmp_path, source)
    source.by_id["202402"] = parts_of("202402", *rows)

    found = ask(tmp_path, source, now=now)

    assert texts_of(found) == ("202401", "202402")
    assert "12 rows in 2 parts then, " in found.why
    assert "the source partition differs from what was exported in snapshot" in found.why


def test_rows_that_are_gone_from_main_stop_it(tmp_path: Path) -> None:
    """Harm prevented: the lake is read up to where somebody has deleted rows."""
    source = three()
    run(tmp_path, source)
    pyiceberg(tmp_path).delete()

    found = ask(tmp_path, source)

    assert texts_of(found) == ("None", "202401")
    assert "removed by snapshot" in found.why


def test_a_partition_without_rows_does_not_stop_it(tmp_path: Path) -> None:
    source = three()
    source.by_id["202402"] = []
    run(tmp_path, source)

    assert texts_of(ask(tmp_path, source)) == ("202403", "None")


def test_a_partition_that_is_gone_from_the_source_does_not_stop_it(tmp_path: Path) -> None:
    """What was dropped at the source after its export is in the lake alone."""
    source = three()
    run(tmp_path, source)
    del source.by_id["202401"]

    assert ask(tmp_path, source) == Watermark(PartitionId("202403"), 2, 2)


@pytest.mark.parametrize("rows_in_main", [True, False])
def test_an_archived_partition_is_read_from_the_lake(tmp_path: Path, *, rows_in_main: bool) -> None:
    """Harm prevented: a later partition changes, and archived rows are read from neither side."""
    source = three()
    run(tmp_path, source)
    ledger = ports_of(tmp_path, source).ledger
    for one in ("202401", "202403"):
        written = ledger.write(replace(row_of(tmp_path, one), archived=Archived(1_000_000, ())))
        assert not isinstance(written, Stale)
        del source.by_id[one]
    ledger.close()
    assert texts_of(ask(tmp_path, source)) == ("202403", "None")
    source.by_id["202402"] = parts_of("202402", 7, 5, 3)
    if not rows_in_main:
        pyiceberg(tmp_path).delete()

    assert texts_of(ask(tmp_path, source)) == ("202401" if rows_in_main else "None", "202402")
    source.by_id["202404"] = parts_of("202404", 7)
    export(tmp_path, source, "202404")
    stored = state(tmp_path).properties.get(property_of(TABLE.identity), "")
    assert stored.rpartition(":")[2] == ("202401" if rows_in_main else "")


def test_a_forced_export_that_died_before_its_commit_changes_nothing(tmp_path: Path) -> None:
    """What landed before is in main as long as nothing replaces it."""
    source = three()
    run(tmp_path, source)
    with pytest.raises(Dies):
        run(
            tmp_path, source, request=replace(ALL, options=ExportOptions(force=True)),
            effects=DiesBefore(Step.SEND),
        )  # fmt: skip

    assert texts_of(ask(tmp_path, source)) == ("202403", "None")


def test_an_export_that_failed_stops_it_and_says_why(tmp_path: Path) -> None:
    source = three()
    with pytest.raises(Dies):
        run(tmp_path, source, effects=DiesBefore(Step.SEND))

    found = ask(tmp_path, source)
    assert (texts_of(found), found.why) == (("None", "202401"), "it was never exported")


def test_what_landed_and_is_not_settled_stops_it_until_the_next_run(tmp_path: Path) -> None:
    """Harm prevented: a result from a ledger that does not know what main holds."""
    source = three()
    with pytest.raises(Dies):
        run(tmp_path, source, effects=DiesBefore(Step.SETTLE))

    found = ask(tmp_path, source)
    assert texts_of(found) == ("None", "202401")
    assert "landed and is not in the ledger yet. Run the export again" in found.why
    run(tmp_path, source)
    assert texts_of(ask(tmp_path, source)) == ("202403", "None")


def test_another_ledger_is_refused(tmp_path: Path) -> None:
    """Harm prevented: "never exported" of what another ledger exported."""
    source = three()
    run(tmp_path, source)
    other = ports_of(tmp_path / "other", source).ledger

    with pytest.raises(RefusedError, match="the table was exported to with another ledger"):
        find_watermark(TABLE, source, lake(tmp_path), other, now=1)
