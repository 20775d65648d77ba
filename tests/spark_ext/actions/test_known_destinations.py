"""A list of exports waits once for an unreachable lake, and never for long."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

from catalog.iceberg.catalogs import OpenedCatalog, open_catalog
from catalog.network import TimeOuts
from catalog.storages import schemes
from catalog.storages.local import LocalStorage
from spark_ext.actions.exports import LOOKING, KnownDestinations
from spark_ext.sql import catalogs
from spark_ext.system_tables import (
    REPLICATED_PARTITION_EXPORTS as TABLE,
)
from tableformat.effects import Step
from tableformat.errors import DestinationError
from tableformat.export.slices import receipts_below
from tableformat.ledger import Row
from tableformat.names import HiveName
from tests.support.scenarios import ALL, AtStep, Partitions, parts_of, row_of, run
from tests.support.system_tables import asked, session_of

AWAY = DestinationError("Cannot reach the lake: it is away. Wait.")


def interrupt() -> None:
    """Press Ctrl-C."""
    raise KeyboardInterrupt


@pytest.fixture
def rows(tmp_path: Path) -> tuple[Row, Row]:
    """Leave two exports into one table that did not end."""
    source = Partitions(by_id={name: parts_of(name, 7) for name in ("p1", "p2")})
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, source, request=ALL, effects=AtStep(Step.CHECK_FILES, interrupt))
    return row_of(tmp_path, "p1"), row_of(tmp_path, "p2")


@dataclass
class Away:
    """What does not respond; `times` says how often it was asked."""

    times: int = 0
    given: list[object] = field(default_factory=list)

    def __call__(self, *given: object, **named: object) -> NoReturn:
        """Be asked."""
        self.times += 1
        self.given = [*given, *named.values()]
        raise AWAY


def test_a_lake_that_cannot_be_opened_is_asked_once_in_a_look(rows: tuple[Row, Row]) -> None:
    """Harm prevented: of a thousand rows each waits for the time-out of its catalog."""
    away = Away()
    lake = KnownDestinations(away)

    for row in rows:
        with pytest.raises(DestinationError, match="it is away"):
            lake.destination(row)
    assert away.times == 1
    lake.look_again()
    with pytest.raises(DestinationError, match="it is away"):
        lake.destination(rows[0])
    assert away.times == 2


def test_unreachable_storage_behind_a_reachable_catalog_is_tried_once(
    rows: tuple[Row, Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A REST catalog says what the table is, and its object store is not there."""
    away = Away()
    monkeypatch.setattr(schemes, "open_storage", away)
    lake = KnownDestinations(
        lambda name: open_catalog(name.catalog, warehouse=tmp_path / "warehouse")
    )
    states = [lake.destination(row) for row in rows]

    for row, state in zip(rows, states, strict=True):
        assert state is not None
        with pytest.raises(DestinationError, match="it is away"):
            lake.receipts(row, state.location)
    assert away.times == 1


def test_a_table_whose_storage_refused_is_loaded_again_in_the_next_look(
    rows: tuple[Row, Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: credentials that a catalog vended end, and the watch says so for ever."""
    monkeypatch.setattr(schemes, "open_storage", Away())
    lake = KnownDestinations(
        lambda name: open_catalog(name.catalog, warehouse=tmp_path / "warehouse")
    )
    state = lake.destination(rows[0])
    assert state is not None
    assert lake.destination(rows[0]) is state
    with pytest.raises(DestinationError, match="it is away"):
        lake.receipts(rows[0], state.location)

    lake.look_again()

    assert lake.destination(rows[0]) is not state


def test_a_receipt_is_read_once_however_often_it_is_looked_at(
    rows: tuple[Row, Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: thousands of requests to S3 every two seconds, for what never changes."""
    lake = KnownDestinations(
        lambda name: open_catalog(name.catalog, warehouse=tmp_path / "warehouse")
    )
    state = lake.destination(rows[0])
    assert state is not None
    below = receipts_below(state.location, rows[0])
    first = lake.receipts(rows[0], below)
    monkeypatch.setattr(LocalStorage, "read", Away())

    lake.look_again()

    assert lake.receipts(rows[0], below) == first
    assert first


def test_a_session_waits_for_a_lake_as_briefly_as_the_command_line(
    rows: tuple[Row, Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: SELECT waits a quarter of an hour for each row that is under way."""
    away = Away()
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setattr(catalogs, "open_catalog", away)

    found = asked(TABLE, session_of(tmp_path / "warehouse", tmp_path / "ledger.db"))

    assert [row["status"] for row in found] == ["INTERRUPTED"] * len(rows)
    assert away.times == 1
    assert LOOKING in away.given


def test_a_session_opens_a_tree_only_to_look(tmp_path: Path) -> None:
    """Harm prevented: a SELECT writes the commit files that an export owes."""
    name = HiveName.at(f"file://{tmp_path}/tree")

    tree = catalogs.open_destination_in({}, name, looks_only=True, time_outs=LOOKING)

    assert not isinstance(tree, OpenedCatalog)
    assert (tree.completes, tree.storages.time_outs) == (False, TimeOuts(5.0, 10.0, 0.0))
