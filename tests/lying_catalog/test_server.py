"""The catalog lies as it was asked to: what is applied, what the client gets, what arrives late.

Without this the tests in `tests/faults` could pass because nothing was ever wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from catalog.iceberg.catalogs import LOCAL_CATALOG, OpenedCatalog, open_catalog
from catalog.iceberg.table import IcebergTable
from catalog.network import TimeOuts
from tableformat.committer import SchemaChange, Sent
from tableformat.errors import DestinationError
from tableformat.iceberg.snapshot import table_of
from tableformat.names import LakeName
from tests.lying_catalog.faults import HONEST, WAITING, Asked, Fault, Kind, When, every_fault
from tests.lying_catalog.server import PATIENT, LyingCatalog

NAME = LakeName("lake", ("n",), "t")
NARROW = Schema(NestedField(1, "n", LongType(), required=False))
WIDE = Schema(*NARROW.fields, NestedField(2, "m", LongType(), required=False))
CHANGE = SchemaChange(WIDE.model_dump_json(), ("m",), (("changed", "yes"),))


@pytest.fixture
def lying(tmp_path: Path) -> Iterator[LyingCatalog]:
    """The catalog, with a table in it."""
    with LyingCatalog(tmp_path) as catalog:
        truth = opened(tmp_path).catalog
        truth.create_namespace("n")
        truth.create_table(NAME.identifier, NARROW)
        yield catalog


def opened(directory: Path) -> OpenedCatalog:
    """Open the catalog for direct access."""
    return open_catalog(LOCAL_CATALOG, warehouse=directory)


def change(lying: LyingCatalog, *faults: Fault) -> Sent:
    """Ask for another schema, once, of a catalog that lies about it."""
    waiting = any(fault.kind in WAITING for fault in faults)
    table = lying.opened(TimeOuts(5.0, 0.25) if waiting else PATIENT).table(NAME)
    assert isinstance(table, IcebergTable)
    state = table.load()
    lying.lie(*faults)
    return table.evolve(state, CHANGE)


def is_changed(directory: Path) -> bool:
    """Look by direct access whether the table has the other schema."""
    table = opened(directory).table(NAME)
    assert table is not None
    state = table.load()
    wide = len(table_of(state).schema().fields) == len(WIDE.fields)
    assert wide == ("changed" in state.properties)
    return wide


def test_a_catalog_without_faults_gives_true_responses(tmp_path: Path, lying: LyingCatalog) -> None:
    assert change(lying, HONEST).applied
    assert is_changed(tmp_path)
    assert lying.served == []


@pytest.mark.parametrize("fault", every_fault(), ids=str)
def test_a_fault_does_what_its_name_says(tmp_path: Path, lying: LyingCatalog, fault: Fault) -> None:
    """Harm prevented: a lie that is none, so that nothing is proved by surviving it."""
    sent = change(lying, fault)

    assert lying.served == [fault]
    assert is_changed(tmp_path) == (fault.when is When.AFTER or fault.kind is Kind.TWICE)
    assert sent.applied == (fault == Fault(Kind.TWICE, When.BEFORE))


@pytest.mark.parametrize("when", When)
def test_a_late_request_is_applied_when_the_test_says_so_and_once(
    tmp_path: Path, lying: LyingCatalog, when: When
) -> None:
    change(lying, Fault(Kind.LATE, when))
    (held,) = lying.held

    assert [held.apply(), held.apply()] == [when is When.BEFORE, False]
    assert is_changed(tmp_path)


def test_a_fault_waits_for_a_request_of_its_sort(lying: LyingCatalog) -> None:
    """Harm prevented: a false response to a commit goes to the first load of the table."""
    lying.lie(Fault(Kind.UNAVAILABLE, on=Asked.LOAD), Fault(Kind.CONFLICT))

    with pytest.raises(DestinationError, match="ServiceUnavailable"):
        lying.opened().table(NAME)
    assert lying.opened().table(NAME) is not None
    assert "CommitFailedException" in change(lying, Fault(Kind.CONFLICT)).error


def test_others_act_after_the_request_was_applied_before_the_response(
    tmp_path: Path, lying: LyingCatalog
) -> None:
    seen = list[bool]()
    table = lying.opened().table(NAME)
    assert isinstance(table, IcebergTable)
    state = table.load()
    lying.lie(Fault(Kind.CONFLICT, When.AFTER), meanwhile=lambda: seen.append(is_changed(tmp_path)))

    assert not table.evolve(state, CHANGE).applied
    assert seen == [True]


def test_what_goes_wrong_in_the_catalog_fails_the_test(tmp_path: Path) -> None:
    """Harm prevented: an operator that could not act looks like one who did no harm."""

    def fails() -> None:
        raise NoSuchTableError(str(NAME))

    def meddled() -> None:
        with LyingCatalog(tmp_path) as catalog:
            catalog.lie(Fault(Kind.CONFLICT, on=Asked.LOAD), meanwhile=fails)
            with pytest.raises(DestinationError, match=r"load lake\.n\.t"):
                catalog.opened().table(NAME)

    with pytest.raises(NoSuchTableError, match=r"lake\.n\.t"):
        meddled()
