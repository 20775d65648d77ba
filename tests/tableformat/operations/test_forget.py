"""FORGET on a lake table: what is forgotten of a partition that is empty, and what is kept."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tableformat.effects import Step
from tableformat.errors import NotFoundError, RefusedError
from tableformat.export.outcome import Status
from tableformat.export.request import ById
from tableformat.ledger import Stale
from tableformat.names import PartitionId
from tableformat.operations.forget import Forget
from tableformat.operations.freeze import Freeze, Unfreeze
from tableformat.operations.statement import AllPartitions, OnePartition
from tests.faults.test_operator_actions import compact
from tests.places.nodes import Nodes
from tests.services.zookeeper import ZooKeeper
from tests.support.dying import Dies, DiesAt, SentLate
from tests.support.keeper_ledgers import new_chroot
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    alone,
    detach,
    drop,
    export_at,
    in_files,
    rows_of_tag,
    running,
)
from tests.support.scenarios import (
    CLOCK,
    AtStep,
    Partitions,
    assert_exported_once,
    ledger_of,
    ledger_rows,
    parts_of,
    pyiceberg,
    row_of,
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
    outcomes = export_at(tmp_path, source, LATER, IN_FILES)
    assert {one.status for one in outcomes.values()} == {Status.UNCHANGED}
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def expire(directory: Path) -> None:
    """Expire every snapshot but main and what branches and tags have."""
    table = pyiceberg(directory)
    kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id not in kept]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def known_of(directory: Path, key: str) -> list[str]:
    """Return where something is known of a key: the ledger, the table, files next to it."""
    found = ["row" for row in ledger_rows(directory) if row.key.hash == key]
    found += [name for name in state(directory).properties if key in name]
    for file in (directory / "warehouse").rglob("*"):
        in_metadata = "/metadata/mergeberg/" in str(file) and file.is_file()
        if in_metadata and (key in str(file) or key.encode() in file.read_bytes()):
            found.append(file.name)
    return found


def test_nothing_is_known_any_more_of_a_partition_that_no_snapshot_has(tmp_path: Path) -> None:
    """And its first export after that is like the very first: once, and reported as there."""
    source = Partitions()
    for name in ("p1", "p2"):
        run(tmp_path, source, request=replace(IN_FILES, selection=ById(PartitionId(name))))
    key = row_of(tmp_path, "p1").key.hash
    running(tmp_path).run(drop("p1"))
    expire(tmp_path)
    assert known_of(tmp_path, key)

    assert "its ledger row was removed" in alone(tmp_path, Forget(P1)).message

    assert known_of(tmp_path, key) == []
    with pytest.raises(NotFoundError, match="has no export of partition p1") as refused:
        alone(tmp_path, Forget(P1))
    assert refused.value.code == 999
    assert export_at(tmp_path, source, CLOCK, IN_FILES)["p1"].status is Status.COMMITTED
    assert export_at(tmp_path, source, CLOCK, IN_FILES)["p1"].status is Status.ALREADY_EXPORTED
    assert_exported_once(tmp_path, source)


def a_tag(directory: Path) -> None:
    alone(directory, Freeze(P1, "kept"))
    running(directory).run(drop("p1"))
    expire(directory)


def a_branch(directory: Path) -> None:
    at = state(directory).main
    assert at is not None
    pyiceberg(directory).manage_snapshots().create_branch(at, "b").commit()
    running(directory).run(drop("p1"))
    expire(directory)


def what_is_detached(directory: Path) -> None:
    running(directory).run(detach("p1"))
    expire(directory)


def an_earlier_snapshot(directory: Path) -> None:
    running(directory).run(drop("p1"))


def rows_that_others_rewrote(directory: Path) -> None:
    """A snapshot has them under another name, after the one of the export was expired."""
    before = state(directory).main
    assert before is not None
    compact(directory)
    running(directory, rows=ForeignPartitions(rest="p1")).run(drop("p1"))
    table = pyiceberg(directory)
    table.maintenance.expire_snapshots().by_id(before).commit()


@pytest.mark.parametrize(
    ("holds", "message"),
    [
        (a_tag, "kept of the table has its rows"),
        (a_branch, "b of the table has its rows"),
        (what_is_detached, "detached of the table has its rows"),
        (an_earlier_snapshot, "an earlier snapshot has its rows"),
        (rows_that_others_rewrote, "which main can be moved to, may have its rows"),
    ],
)
def test_what_landed_stays_known_while_something_has_the_rows(
    tmp_path: Path, source: Partitions, holds: Callable[[Path], None], message: str
) -> None:
    """Harm prevented: they come back to main, and an export brings them once more."""
    assert source.rows
    holds(tmp_path)
    row = row_of(tmp_path, "p1")

    assert message in alone(tmp_path, Forget(P1)).message

    after = row_of(tmp_path, "p1")
    assert (after.landed, after.done and after.done.forgotten) == (row.landed, True)
    with pytest.raises(NotFoundError, match=f"was forgotten before: .*{message}") as refused:
        alone(tmp_path, Forget(P1))
    assert refused.value.code == 999


def test_what_was_kept_back_is_forgotten_when_nothing_has_the_rows(
    tmp_path: Path, source: Partitions
) -> None:
    key = row_of(tmp_path, "p1").key.hash
    a_tag(tmp_path)
    alone(tmp_path, Forget(P1))
    alone(tmp_path, Unfreeze(AllPartitions(), "kept"))
    expire(tmp_path)

    assert "its ledger row was removed" in alone(tmp_path, Forget(P1)).message

    assert key not in {row.key.hash for row in ledger_rows(tmp_path)}
    assert source.rows


@pytest.mark.parametrize("held", [False, True], ids=["exported anew", "not exported"])
def test_what_was_sent_before_lands_no_more(tmp_path: Path, *, held: bool) -> None:
    """Harm prevented: a request that arrives after FORGET, whose mark would prove an export."""
    source, late = Partitions(), SentLate()
    run(tmp_path, source, request=replace(IN_FILES, selection=ById(PartitionId("p2"))))
    with pytest.raises(Dies):
        run(tmp_path, source, request=IN_FILES, effects=late)
    run(tmp_path, source, request=IN_FILES)
    running(tmp_path).run(drop("p1"))
    expire(tmp_path)
    alone(tmp_path, Forget(P1))
    if not held:
        export_at(tmp_path, source, CLOCK, IN_FILES)
    before = rows_in_main(tmp_path)

    late.arrive()

    assert rows_in_main(tmp_path) == before
    assert export_at(tmp_path, source, CLOCK, IN_FILES)["p1"].status in (
        Status.ALREADY_EXPORTED,
        Status.COMMITTED,
    )
    assert_exported_once(tmp_path, source)


def test_an_export_that_was_superseded_ends_without_its_row(tmp_path: Path) -> None:
    """It was held up before it sent; meanwhile the partition came, went and was forgotten."""
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5)})

    def others() -> None:
        run(tmp_path, Partitions(by_id=source.by_id), request=IN_FILES)
        running(tmp_path).run(drop("p1"))
        expire(tmp_path)
        assert alone(tmp_path, Forget(P1)).status is Status.FORGOTTEN

    (outcome,) = run(tmp_path, source, request=IN_FILES, effects=AtStep(Step.SEND, others))

    assert outcome.status is Status.IN_PROGRESS
    assert "was forgotten" in outcome.message
    assert rows_in_main(tmp_path) == 0
    run(tmp_path, source, request=IN_FILES)
    assert_exported_once(tmp_path, source)


@pytest.mark.parametrize("after", [False, True])
def test_a_death_at_any_effect_and_the_same_statement_again(tmp_path: Path, *, after: bool) -> None:
    """Harm prevented: half of what was known tells the next export that it is there."""
    for number in itertools.count():
        directory = tmp_path / str(number)
        source = in_files(directory)
        running(directory).run(drop("p1"))
        expire(directory)
        dying = running(directory, effects=DiesAt(number, after=after))
        try:
            Forget(P1).run(dying.ports, dying.partitions)
        except Dies:
            pass
        else:
            break
        with contextlib.suppress(NotFoundError):
            alone(directory, Forget(P1))
        assert all(row.key.partition_id != "p1" for row in ledger_rows(directory))
        assert export_at(directory, source, CLOCK, IN_FILES)["p1"].status is Status.COMMITTED
        assert_exported_once(directory, source)
    assert number > 10


def forgotten(directory: Path) -> None:
    """Drop the partition, expire what had it, and forget it, by a process that ends."""
    one = running(directory)
    with contextlib.closing(one.ports.commit.ledger):
        one.run(drop("p1"))
        expire(directory)
        Forget(P1).run(one.ports, one.partitions)


@pytest.mark.parametrize("of", ["sqlite", "keeper"])
def test_a_stale_writer_of_a_forgotten_row_does_not_write_over_the_next_one(
    tmp_path: Path, zookeeper_server: ZooKeeper, of: str
) -> None:
    """Harm prevented: its version is that of the new row, by chance, and a claim is lost."""
    if of == "keeper":
        (tmp_path / "ledger").write_text(f"keeper://{zookeeper_server.address}{new_chroot()}")
    source = in_files(tmp_path)
    stale = row_of(tmp_path, "p1")
    forgotten(tmp_path)
    export_at(tmp_path, source, CLOCK, IN_FILES)
    again = row_of(tmp_path, "p1")
    assert stale.version == again.version

    with contextlib.closing(ledger_of(tmp_path)) as ledger:
        assert isinstance(ledger.write(replace(stale, last_error="stale")), Stale)
        assert ledger.remove(stale) is None

    assert row_of(tmp_path, "p1") == again


def test_the_nodes_of_a_forgotten_partition_are_gone(
    tmp_path: Path, zookeeper_server: ZooKeeper
) -> None:
    """As ClickHouse's FORGET: the metadata in ZooKeeper is removed, and no other."""
    address = f"keeper://{zookeeper_server.address}{new_chroot()}"
    (tmp_path / "ledger").write_text(address)
    source = in_files(tmp_path)
    key, other = (row_of(tmp_path, name).key.hash for name in ("p1", "p2"))
    assert any(key in path for path in Nodes.below(address).found)

    forgotten(tmp_path)

    left = Nodes.below(address).found
    assert not any(key in path or key.encode() in text for path, (text, _) in left.items())
    assert any(other in path for path in left)
    assert export_at(tmp_path, source, CLOCK, IN_FILES)["p1"].status is Status.COMMITTED
    assert_exported_once(tmp_path, source)


def test_a_partition_with_files_is_not_forgotten(tmp_path: Path, source: Partitions) -> None:
    assert source.rows

    with pytest.raises(RefusedError, match="partition p1 is not empty") as refused:
        alone(tmp_path, Forget(P1))

    assert refused.value.code == 716


def test_a_partition_that_nobody_knows_is_not_forgotten(tmp_path: Path, source: Partitions) -> None:
    assert source.rows

    with pytest.raises(NotFoundError, match="has no export of partition p9") as refused:
        alone(tmp_path, Forget(OnePartition(PartitionId("p9"))))

    assert refused.value.code == 999
