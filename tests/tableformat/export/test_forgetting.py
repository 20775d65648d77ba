"""What `exports forget` ends, and what it never ends (N-23, P-10, P-11)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tableformat.errors import RefusedError
from tableformat.export.give_up import forget
from tableformat.export.request import ExportOptions
from tableformat.ledger import Key, Ledger, Owner, Row, Stale, State
from tests.support.lake import claim
from tests.support.scenarios import (
    ALL,
    Partitions,
    assert_exported_once,
    parts_of,
    ports_of,
    row_of,
    rows_in_main,
    run,
    statuses,
)

ME, OTHER = Owner("here", 1, "now"), Owner("there", 2, "then")
FOR_EVER = replace(ALL, options=ExportOptions(manifest_ttl=0))


def forgotten(directory: Path, source: Partitions, *, alive: bool = True) -> str:
    """Forget p1, and return the message."""
    ledger = ports_of(directory, source).ledger
    row = row_of(directory, "p1")
    return forget(ledger, row, owner=ME, is_alive=lambda _: alive, now=2_000_000)


def test_other_content_replaces_what_was_exported_in_one_snapshot(tmp_path: Path) -> None:
    """Harm prevented: rows twice, because the ledger forgot that they are in main."""
    source = Partitions()
    run(tmp_path, source, request=FOR_EVER)
    source.by_id["p1"] = parts_of("p1", 7, 5, 3)
    assert statuses(run(tmp_path, source, request=FOR_EVER)) == ["refused", "already_exported"]

    assert "is no longer refused" in forgotten(tmp_path, source)

    assert statuses(run(tmp_path, source, request=FOR_EVER)) == ["replaced", "already_exported"]
    assert rows_in_main(tmp_path) == 7 + 5 + 3 + 3


@pytest.mark.parametrize("way", ["the TTL", "--force", "forgetting"])
def test_a_second_export_is_refused_until_one_of_three_ends_that(tmp_path: Path, way: str) -> None:
    """N-23: nobody replaces an export by accident right after it."""
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5)})
    run(tmp_path, source)
    source.by_id["p1"] = parts_of("p1", 7, 5, 3)
    assert statuses(run(tmp_path, source)) == ["refused"]

    request, ports = ALL, ports_of(tmp_path, source)
    if way == "the TTL":
        ports = ports_of(tmp_path, source, clock=lambda: 2_000_000)
    elif way == "--force":
        request = replace(ALL, options=ExportOptions(force=True))
    else:
        row = row_of(tmp_path, "p1")
        forget(ports.ledger, row, owner=ME, is_alive=lambda _: True, now=1_000_000)

    assert statuses(run(tmp_path, source, request=request, ports=ports)) == ["replaced"]
    assert rows_in_main(tmp_path) == 15


def test_the_same_content_is_unchanged_and_not_exported_again(tmp_path: Path) -> None:
    source = Partitions()
    run(tmp_path, source, request=FOR_EVER)
    forgotten(tmp_path, source)

    assert statuses(run(tmp_path, source, request=FOR_EVER)) == ["unchanged", "already_exported"]
    assert_exported_once(tmp_path, source)


def test_fewer_rows_still_replace_nothing(tmp_path: Path) -> None:
    """Forgetting is no --force: what people keep in the lake is not thrown away by it."""
    source = Partitions()
    run(tmp_path, source, request=FOR_EVER)
    forgotten(tmp_path, source)
    source.by_id["p1"] = parts_of("p1", 7)

    (refused, _) = run(tmp_path, source, request=FOR_EVER)

    assert (refused.status.value, "would lose 5" in refused.message) == ("refused", True)


def test_all_but_the_refusal_stays(tmp_path: Path) -> None:
    source = Partitions()
    run(tmp_path, source, request=FOR_EVER)
    before = row_of(tmp_path, "p1")
    assert before.done is not None

    message = forgotten(tmp_path, source)

    after = row_of(tmp_path, "p1")
    done = replace(before.done, forgotten=True)
    assert after == replace(before, done=done, version=after.version, updated=after.updated)
    assert str(before.done.landed.snapshot_id) in message
    assert ports_of(tmp_path, source).ledger.holder(before.key.hash) is None


def test_forgetting_twice_and_after_the_ttl_changes_nothing(tmp_path: Path) -> None:
    source = Partitions()
    run(tmp_path, source, request=FOR_EVER)
    forgotten(tmp_path, source)
    once = row_of(tmp_path, "p1")
    assert "nothing to do, it was forgotten before" in forgotten(tmp_path, source)
    assert row_of(tmp_path, "p1") == once

    ledger = ports_of(tmp_path, source).ledger
    row = row_of(tmp_path, "p2")
    assert row.done is not None
    over = ledger.write(replace(row, done=replace(row.done, ttl=1)))
    assert isinstance(over, Row)
    message = forget(ledger, over, owner=ME, is_alive=lambda _: True, now=9_000_000)
    assert "nothing to do, its TTL of 1 s has expired" in message


def test_one_that_runs_is_not_forgotten(tmp_path: Path) -> None:
    """Harm prevented: the row moves under a run that has written all its files."""
    source = Partitions()
    run(tmp_path, source)
    row = row_of(tmp_path, "p1")
    ports_of(tmp_path, source, clock=lambda: 2_000_000).ledger.take_lease(row.key.hash, OTHER, 60.0)

    with pytest.raises(RefusedError, match=r"process 2 on there has worked on it for \d+ s\. Wait"):
        forget(
            ports_of(tmp_path, source, clock=lambda: 2_010_000).ledger, row, owner=ME,
            is_alive=lambda _: True, now=2_010_000,
        )  # fmt: skip

    assert row_of(tmp_path, "p1") == row


def test_one_whose_owner_is_dead_is_forgotten(tmp_path: Path) -> None:
    source = Partitions()
    run(tmp_path, source, request=FOR_EVER)
    row = row_of(tmp_path, "p1")
    ports_of(tmp_path, source).ledger.take_lease(row.key.hash, OTHER, 60_000.0)

    assert "is no longer refused" in forgotten(tmp_path, source, alive=False)


def test_one_that_never_completed_refuses_nothing(tmp_path: Path) -> None:
    ledger = ports_of(tmp_path, Partitions()).ledger
    row = claim(ledger, key=Key("source", "202401", "table"))
    assert (row.state, row.done) == (State.RUNNING, None)

    with pytest.raises(RefusedError, match="no export of it has completed, so none refuses"):
        forget(ledger, row, owner=ME, is_alive=lambda _: True, now=1)


def test_a_row_that_moves_at_the_same_moment_is_left_alone(tmp_path: Path) -> None:
    """Harm prevented: an export's own note in the ledger is overwritten."""
    source = Partitions()
    run(tmp_path, source)
    row = row_of(tmp_path, "p1")

    class Moving:
        """A ledger whose rows somebody else writes first."""

        def __init__(self, ledger: Ledger) -> None:
            self._ledger = ledger

        def __getattr__(self, name: str) -> Any:
            return getattr(self._ledger, name)

        def write(self, _row: Row) -> Stale:
            return Stale(99)

    ledger: Any = Moving(ports_of(tmp_path, source).ledger)
    with pytest.raises(RefusedError, match=r"changed at the same moment\. Run it again"):
        forget(ledger, row, owner=ME, is_alive=lambda _: True, now=1)
    assert ports_of(tmp_path, source).ledger.holder(row.key.hash) is None
