"""A REST catalog that lies about statements: the same statement again, and it is done once.

Each world is made honestly, and known by the catalog's address afterwards. What must be there in
the end is what the same statement leaves where the catalog tells the truth.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import pytest

from tableformat.errors import TableFormatError
from tableformat.export.outcome import Status
from tests.faults.test_lying_catalog import (
    IMPATIENT,
    assert_dead_for_ever,
    assert_nothing_is_missing,
    served,
)
from tests.lying_catalog.faults import WAITING, Fault, Kind, When, every_fault
from tests.lying_catalog.server import PATIENT, LyingCatalog
from tests.places.far import FarPlace
from tests.places.local import LocalPlace
from tests.support.history_acts import ACTS, Seat, Seen, seen
from tests.support.scenarios import Partitions, pyiceberg
from tests.support.two_lake_tables import prepared

_IS_THERE: Final = ("export there", "drop")
BEFORE: Final = {
    "drop": ("others append",),
    "detach": ("others append",),
    "attach": ("detach",),
    "drop detached": ("detach",),
    "attach from": _IS_THERE,
    "replace from": (*_IS_THERE, "others append"),
    "fetch": _IS_THERE,
    "move": ("others append",),
    "update": ("others append",),
    "delete": (),
    "optimize": (),
    "deduplicate": (),
    "freeze": (),
    "unfreeze": ("freeze",),
}
"""Each statement, and what was done before it."""

FEW: Final = (
    Fault(Kind.CONFLICT, When.AFTER),
    Fault(Kind.LATE),
    Fault(Kind.LATE, When.AFTER),
    Fault(Kind.TWICE),
)
faults = pytest.mark.parametrize(
    "faults", [FEW, pytest.param(every_fault(), marks=pytest.mark.soak)], ids=["few", "every"]
)


@contextlib.contextmanager
def at_an_address(directory: Path, *, patient: bool = True) -> Iterator[LyingCatalog]:
    """Let the world of a directory be known by the address of a catalog that may lie."""
    with served(directory) as catalog:
        here, time_outs = LocalPlace(directory), PATIENT if patient else IMPATIENT
        properties = {"type": "rest", "uri": catalog.uri}
        place = FarPlace(properties, here.ledger_uri, here.warehouse, "", asdict(time_outs))
        with place.named_for_a_while(directory):
            yield catalog


def done(name: str, at: Path, source: Partitions) -> Status | None:
    """Run a statement as a new process; None where it failed."""
    try:
        return ACTS[name](at, source, Seat())
    except TableFormatError:
        return None


def seen_with_tags(at: Path) -> tuple[Seen, dict[str, int]]:
    """Return the rows of both tables, and those behind each tag."""
    table = pyiceberg(at)
    tags = {n: r for n, r in table.metadata.refs.items() if r.snapshot_ref_type.value == "tag"}
    return seen(at), {
        name: table.scan(snapshot_id=ref.snapshot_id).to_arrow().num_rows
        for name, ref in tags.items()
    }


@faults
@pytest.mark.parametrize("name", BEFORE)
def test_a_lie_about_any_commit_and_the_same_statement_again(
    tmp_path: Path, name: str, faults: tuple[Fault, ...]
) -> None:
    """Harm prevented: a partition is there twice, or nowhere, because a response was lost."""
    source, place = prepared(tmp_path), LocalPlace(tmp_path)
    for earlier in BEFORE[name]:
        assert done(earlier, tmp_path, source) is not None
    kept = place.keep()
    assert done(name, tmp_path, source) is not None
    expected = seen_with_tags(tmp_path)

    wrong = dict[str, object]()
    # A MOVE changes two tables, each by a commit of its own.
    for fault, nth in itertools.product(faults, range(2 if name == "move" else 1)):
        place.put_back(kept)
        found = served_once(tmp_path, name, source, fault, nth)
        if found != expected:
            wrong[f"{fault}, commit {nth}"] = found

    assert wrong == {}


def served_once(
    at: Path, name: str, source: Partitions, fault: Fault, nth: int
) -> tuple[Seen, dict[str, int]]:
    """Run a statement while its nth commit is lied about, then again; return what is there."""
    with at_an_address(at, patient=fault.kind not in WAITING) as catalog:
        catalog.lie(*[Fault(Kind.NONE)] * nth, fault)
        done(name, at, source)
        assert fault in catalog.served
        catalog.lie()
        # What landed may not be asked for again: FETCH and FREEZE are refused then.
        done(name, at, source)
        assert_dead_for_ever(at, catalog)
        assert_nothing_is_missing(at)
    return seen_with_tags(at)
