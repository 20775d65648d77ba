"""A REST catalog that lies about what it did: the same command again is exactly once, and true.

`tests/lying_catalog` is the catalog. `run` of `tests/support/scenarios.py` checks each outcome that
says "exported" against main as it is then, through direct access to the catalog.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlparse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.iceberg.catalogs import open_catalog
from catalog.network import TimeOuts
from tableformat.effects import Effects, Step
from tableformat.errors import TableFormatError
from tableformat.export.outcome import Outcome
from tableformat.export.ports import JobPorts
from tests.faults.test_operator_actions import (
    ALONGSIDE,
    FOREIGN,
    Dies,
    add_column,
    append,
    assert_never_twice,
    back_and_forth,
    change_spec,
    die,
    expire,
    move_main,
    roll_back,
)
from tests.lying_catalog.faults import HONEST, WAITING, Asked, Fault, Kind, When, every_fault
from tests.lying_catalog.server import PATIENT, LyingCatalog
from tests.support.scenarios import (
    TO,
    AtStep,
    Partitions,
    assert_exported_once,
    parts_of,
    ports_of,
    pyiceberg,
    rows_in_main,
    run,
    state,
    statuses,
)

IMPATIENT: Final = TimeOuts(connect=5.0, read=0.25)
DONE: Final = {"committed", "already_exported"}


def served(directory: Path) -> LyingCatalog:
    """Return the catalog: helpers of `tests/support/scenarios.py` have direct access."""
    return LyingCatalog(directory / "warehouse")


def over_http(
    directory: Path,
    source: Partitions,
    catalog: LyingCatalog,
    *,
    effects: Effects | None = None,
    patient: bool = True,
) -> JobPorts:
    """Return the ports of a new process that knows the lake by its address only."""
    opened = catalog.opened(PATIENT if patient else IMPATIENT)
    return replace(ports_of(directory, source, effects=effects), lake=opened)


def assert_nothing_is_missing(directory: Path) -> None:
    """Check that no one deleted a manifest of any snapshot, or a data file of main."""
    table = pyiceberg(directory)
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            assert Path(urlparse(manifest.manifest_path).path).exists()
    for task in table.scan().plan_files():
        assert Path(urlparse(task.file.file_path).path).exists()


def assert_dead_for_ever(directory: Path, catalog: LyingCatalog) -> None:
    """Check that no request that is still on its way is applied, wherever main is moved to."""
    if not catalog.held:
        return
    main = state(directory).main
    for snapshot_id in state(directory).snapshots:
        move_main(directory, snapshot_id)
        for held in catalog.held:
            assert held.request.asks is Asked.LOAD or not held.apply(), held
    move_main(directory, main)


@pytest.mark.parametrize("fault", every_fault(), ids=str)
@pytest.mark.parametrize("partitions", [["p1"], ["p1", "p2"]], ids=["first export", "two"])
def test_a_lie_about_every_commit_and_the_same_command_again(
    tmp_path: Path, fault: Fault, partitions: list[str]
) -> None:
    """Harm prevented: rows twice, lost, or called failed, because a response was wrong or late."""
    source = Partitions()
    source.by_id = {name: source.by_id[name] for name in partitions}
    patient, lying = fault.kind not in WAITING, list[str]()

    with served(tmp_path) as catalog:
        # One for the table's first, empty snapshot.
        catalog.lie(*[fault] * (1 + len(partitions)))
        with contextlib.suppress(*() if patient else (TableFormatError,)):
            ports = over_http(tmp_path, source, catalog, patient=patient)
            lying = statuses(run(tmp_path, source, ports=ports))
        assert fault in catalog.served
        catalog.lie()
        again = statuses(run(tmp_path, source, ports=over_http(tmp_path, source, catalog)))
        assert_exported_once(tmp_path, source)
        assert_dead_for_ever(tmp_path, catalog)

    assert {*again} <= DONE
    # Who waits for less than a second may also miss an honest response.
    assert not patient or {*lying} == {"committed"}


@pytest.mark.parametrize("kind", [Kind.CONFLICT, Kind.LATE], ids=str)
def test_a_catalog_that_applies_nothing_and_says_nothing_leaves_it_unknown(
    tmp_path: Path, kind: Kind
) -> None:
    """Harm prevented: "failed", and files deleted, while requests may still arrive."""
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5)})

    with served(tmp_path) as catalog:
        catalog.lie(HONEST, *[Fault(kind)] * 100)
        (outcome,) = run(tmp_path, source, ports=over_http(tmp_path, source, catalog))
        catalog.lie()
        arrived = [held.apply() for held in catalog.held]
        again = run(tmp_path, source, ports=over_http(tmp_path, source, catalog))
        assert_dead_for_ever(tmp_path, catalog)

    assert outcome.status.value == "unknown"
    assert arrived.count(True) == (kind is Kind.LATE)
    assert statuses(again) == (["already_exported"] if kind is Kind.LATE else ["committed"])
    assert_exported_once(tmp_path, source)


def dies_with_a_request_on_its_way(
    directory: Path, source: Partitions, catalog: LyingCatalog
) -> None:
    """Run a command that sends an export and dies; the request has not arrived yet."""
    catalog.lie(HONEST, Fault(Kind.LATE))
    effects = AtStep(Step.SEND, die, after=True)
    with pytest.raises(Dies):
        run(directory, source, ports=over_http(directory, source, catalog, effects=effects))
    catalog.lie()
    assert len(catalog.held) == 1


@pytest.mark.parametrize(
    "step",
    [
        Step.OPEN_TABLE,
        Step.TAKE_LEASE,
        Step.CLAIM,
        Step.WRITE_FILES,
        Step.LOAD_METADATA,
        Step.READ_LEDGER,
        Step.STAGE,
        Step.SEND,
        Step.SETTLE,
        Step.RELEASE_LEASE,
    ],
)
def test_the_request_of_a_dead_run_arrives_in_the_middle_of_the_next_one(
    tmp_path: Path, step: Step
) -> None:
    """Harm prevented: the dead run's files and the next run's files side by side."""
    source = Partitions()
    with served(tmp_path) as catalog:
        dies_with_a_request_on_its_way(tmp_path, source, catalog)
        effects = AtStep(step, catalog.held[0].apply)

        outcomes = run(
            tmp_path, source, ports=over_http(tmp_path, source, catalog, effects=effects)
        )
        again = run(tmp_path, source, ports=over_http(tmp_path, source, catalog))
        assert_exported_once(tmp_path, source)
        assert_dead_for_ever(tmp_path, catalog)

    assert {*statuses(outcomes)} <= DONE
    assert statuses(again) == ["already_exported"] * 2


def test_a_request_that_arrives_after_main_returned_to_its_parent_is_refused(
    tmp_path: Path,
) -> None:
    """Harm prevented: what an operator rolled back to is overwritten by a request of long ago."""
    source = Partitions()
    with served(tmp_path) as catalog:
        dies_with_a_request_on_its_way(tmp_path, source, catalog)
        append(tmp_path)
        roll_back(tmp_path)
        before = pyiceberg(tmp_path).metadata

        assert not catalog.held[0].apply()
        assert pyiceberg(tmp_path).metadata == before
        outcomes = run(tmp_path, source, ports=over_http(tmp_path, source, catalog))

    assert statuses(outcomes) == ["committed"] * 2
    assert_exported_once(tmp_path, source)


_LIES: Final = [
    Fault(Kind.DROPPED),
    Fault(Kind.DROPPED, When.AFTER),
    Fault(Kind.CONFLICT, When.AFTER),
    Fault(Kind.LATE),
]


@pytest.mark.parametrize("fault", _LIES, ids=str)
@pytest.mark.parametrize("action", [append, back_and_forth, expire])
def test_somebody_else_commits_at_the_moment_of_the_lie(
    tmp_path: Path, action: Callable[[Path], None], fault: Fault
) -> None:
    """Harm prevented: rows twice, or theirs lost, when the snapshot looked for is not the last."""
    source = Partitions()
    with served(tmp_path) as catalog:
        catalog.lie(HONEST, fault, meanwhile=lambda: action(tmp_path))
        ports = over_http(tmp_path, source, catalog)
        lying = run(tmp_path, source, ports=ports, request=ALONGSIDE)
        again = run(tmp_path, source, ports=over_http(tmp_path, source, catalog))
        assert_dead_for_ever(tmp_path, catalog)

    assert statuses(lying) == ["committed"] * 2
    assert statuses(again) == ["already_exported"] * 2
    assert_exported_once(tmp_path, source)
    foreign = 0 if action is back_and_forth else FOREIGN
    assert rows_in_main(tmp_path) == sum(source.rows.values()) + foreign


@pytest.mark.parametrize("fault", _LIES, ids=str)
@pytest.mark.parametrize("action", [roll_back, add_column, change_spec])
def test_somebody_moves_main_or_changes_the_table_at_the_moment_of_the_lie(
    tmp_path: Path, action: Callable[[Path], None], fault: Fault
) -> None:
    """Harm prevented: rows twice, or in files of another layout; here it may well be refused."""
    source = Partitions()
    with served(tmp_path) as catalog:
        catalog.lie(HONEST, fault, meanwhile=lambda: action(tmp_path))
        for _ in range(3):
            with contextlib.suppress(TableFormatError):
                ports = over_http(tmp_path, source, catalog)
                run(tmp_path, source, ports=ports, meddled=True)
            for held in catalog.held:
                held.apply()
            assert_never_twice(tmp_path, source)
            assert_nothing_is_missing(tmp_path)


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("kind", [Kind.UNAVAILABLE], ids=str)
def test_metadata_that_cannot_be_loaded_once(tmp_path: Path, kind: Kind, number: int) -> None:
    """Harm prevented: an export that cannot look whether it has landed says that it failed."""
    source, first = Partitions(), list[Outcome]()
    honest = Fault(Kind.NONE, on=Asked.LOAD)
    response_lost = Fault(Kind.DROPPED, When.AFTER)
    with served(tmp_path) as catalog:
        catalog.lie(*[honest] * number, Fault(kind, on=Asked.LOAD), HONEST, response_lost)
        with contextlib.suppress(TableFormatError):
            first = run(tmp_path, source, ports=over_http(tmp_path, source, catalog))
        catalog.lie()
        again = run(tmp_path, source, ports=over_http(tmp_path, source, catalog))

    landed = {o.partition_id for o in again if o.status.value == "already_exported"}
    assert not landed & {o.partition_id for o in first if o.status.value == "failed"}
    assert {*statuses(again)} <= DONE
    assert_exported_once(tmp_path, source)


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize(
    "kind", [Kind.CONFLICT, Kind.SERVER_ERROR, Kind.DROPPED, Kind.LATE, Kind.TWICE], ids=str
)
def test_a_lie_about_the_creation_of_the_table(tmp_path: Path, kind: Kind, when: When) -> None:
    """Harm prevented: a table that was made and is never used, or two of them."""
    source, fault = Partitions(), Fault(kind, when, Asked.CREATE)
    with served(tmp_path) as catalog:
        catalog.lie(fault)
        with contextlib.suppress(TableFormatError):
            run(tmp_path, source, ports=over_http(tmp_path, source, catalog))
        assert fault in catalog.served
        arrived = [held.apply() for held in catalog.held]
        again = run(tmp_path, source, ports=over_http(tmp_path, source, catalog))

    assert arrived.count(True) == (fault.kind is Kind.LATE and fault.when is When.BEFORE)
    assert {*statuses(again)} <= DONE
    assert_exported_once(tmp_path, source)


_FAULTS: Final = st.builds(
    Fault,
    st.sampled_from(Kind),
    st.sampled_from(When),
    st.sampled_from([Asked.COMMIT, Asked.COMMIT, Asked.LOAD, Asked.CREATE]),
)


@dataclass(frozen=True, slots=True)
class LyingRun:
    """What goes wrong in one run: lies, what somebody else does at the first, late arrivals."""

    faults: list[Fault]
    action: Callable[[Path], None] | None
    arrives: bool


_RUNS: Final = st.builds(
    LyingRun,
    st.lists(_FAULTS, max_size=4),
    st.sampled_from([None, append, back_and_forth, expire]),
    st.booleans(),
)


def meddle(directory: Path, action: Callable[[Path], None] | None) -> None:
    """Do what somebody else does, once there is something to do it to."""
    table = open_catalog("lake", warehouse=directory / "warehouse").table(TO)
    if action is not None and table is not None and table.load().main is not None:
        action(directory)


@settings(max_examples=10, deadline=None)
@given(runs=st.lists(_RUNS, min_size=1, max_size=4))
def test_any_lies_in_a_row(runs: list[LyingRun]) -> None:
    """Harm prevented: the recovery from one lie is itself not safe to be lied to."""
    with tempfile.TemporaryDirectory() as name, served(Path(name)) as catalog:
        directory, source = Path(name), Partitions()
        for one in runs:
            patient = not any(f.kind in WAITING for f in one.faults)
            # Who does not wait for the response does not wait for the other one's deed either.
            action = one.action if patient else None
            catalog.lie(*one.faults, meanwhile=partial(meddle, directory, action))
            ports = over_http(directory, source, catalog, patient=patient)
            with contextlib.suppress(TableFormatError):
                run(directory, source, ports=ports, request=ALONGSIDE)
            for held in catalog.held if one.arrives else ():
                held.apply()
        catalog.lie()
        ports = over_http(directory, source, catalog)
        outcomes = run(directory, source, ports=ports, request=ALONGSIDE)
        assert {*statuses(outcomes)} <= DONE
        assert_exported_once(directory, source)
        assert_nothing_is_missing(directory)
        assert_dead_for_ever(directory, catalog)
