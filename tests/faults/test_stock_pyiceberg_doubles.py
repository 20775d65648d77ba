"""Why we send commits ourselves: what PyIceberg's own commit does under the same lies.

Each test asserts that the harm happens (docs/decisions/0003-own-commit-loop.md). The day one
fails, that part of the loop in `export/commit.py` may not be needed any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from tests.lying_catalog.faults import Fault, Kind, When
from tests.lying_catalog.server import LyingCatalog

ROWS: Final = pa.table({"n": [1, 2, 3]})
NAME: Final = ("n", "t")
EXPORT: Final = {"export": "7"}
"""What a careful user puts into the snapshot, to find out whether it has landed."""


@pytest.fixture
def lying(tmp_path: Path) -> Iterator[LyingCatalog]:
    """The catalog, truthful until a test asks it to lie."""
    with LyingCatalog(tmp_path / "warehouse") as catalog:
        yield catalog


def stock(lying: LyingCatalog) -> Catalog:
    """Return the catalog as PyIceberg opens it."""
    return RestCatalog("stock", uri=lying.uri)


def made(lying: LyingCatalog, **properties: str) -> Table:
    """Make a table without rows; its commits wait a moment only before they are tried again."""
    catalog = stock(lying)
    catalog.create_namespace("n")
    waits = {"commit.retry.min-wait-ms": "1"}
    schema = Schema(NestedField(1, "n", LongType(), required=False))
    return catalog.create_table(NAME, schema, properties={**waits, **properties})


def has_landed(table: Table) -> bool:
    """Look for the export in the table's history, as a careful user does before an append."""
    summaries = [s.summary for s in table.metadata.snapshots if s.summary]
    return any(s.additional_properties.items() >= EXPORT.items() for s in summaries)


def append_once(table: Table) -> None:
    """Append the rows, unless they are there."""
    if not has_landed(table):
        table.append(ROWS, snapshot_properties=EXPORT)


def rows(lying: LyingCatalog) -> int:
    """Return the rows that a reader finds."""
    return len(stock(lying).load_table(NAME).scan().to_arrow())


def expire_all_but_the_last(lying: LyingCatalog) -> None:
    """Append one row as somebody else, and keep only that snapshot."""
    table = stock(lying).load_table(NAME)
    table.append(pa.table({"n": [100]}))
    last = table.metadata.current_snapshot_id
    old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != last]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def test_two_runs_that_both_looked_first_append_twice(lying: LyingCatalog) -> None:
    """Harm: the retry after a true conflict does not look again."""
    made(lying)
    one, other = (stock(lying).load_table(NAME) for _ in range(2))
    looked = [has_landed(one), has_landed(other)]
    for table in (one, other):
        table.append(ROWS, snapshot_properties=EXPORT)

    assert looked == [False, False]
    assert rows(lying) == 2 * len(ROWS)


@pytest.mark.parametrize("kind", [Kind.CONFLICT, Kind.TWICE], ids=str)
def test_a_commit_that_landed_and_is_called_a_conflict_loses_its_manifests(
    lying: LyingCatalog, kind: Kind
) -> None:
    """Harm: the table cannot be read any more."""
    table = made(lying, **{"commit.retry.num-retries": "0"})
    lying.lie(Fault(kind, When.AFTER))

    with pytest.raises(CommitFailedException):
        append_once(table)

    assert has_landed(stock(lying).load_table(NAME))
    with pytest.raises(FileNotFoundError, match=r"\.avro"):
        rows(lying)


def test_a_landed_commit_that_expired_before_the_retry_loses_its_manifests(
    lying: LyingCatalog,
) -> None:
    """Harm: as above, with every retry left; the snapshot that is looked for is expired."""
    table = made(lying)
    lying.lie(Fault(Kind.CONFLICT, When.AFTER), meanwhile=lambda: expire_all_but_the_last(lying))

    append_once(table)

    with pytest.raises(FileNotFoundError, match=r"\.avro"):
        rows(lying)


@pytest.mark.parametrize(
    "kind", [Kind.SERVER_ERROR, Kind.UNAVAILABLE, Kind.DROPPED, Kind.CUT, Kind.PAGE], ids=str
)
def test_a_lost_response_and_the_same_command_again_after_an_expiry(
    lying: LyingCatalog, kind: Kind
) -> None:
    """Harm: rows twice, because only the expired snapshot showed that they are there."""
    table = made(lying)
    lying.lie(Fault(kind, When.AFTER))
    failed = True
    with contextlib.suppress(Exception):
        append_once(table)
        failed = False
    expire_all_but_the_last(lying)
    append_once(stock(lying).load_table(NAME))

    assert failed
    assert rows(lying) == 2 * len(ROWS) + 1


def test_a_tag_that_was_to_be_set_with_the_rows_is_lost_by_a_retry(lying: LyingCatalog) -> None:
    """Harm: half of a commit that was to be applied as a whole."""
    table = made(lying)
    table.append(pa.table({"n": [0]}))
    first = table.metadata.current_snapshot_id
    assert first is not None
    one, other = (stock(lying).load_table(NAME) for _ in range(2))
    other.append(pa.table({"n": [100]}))
    with one.transaction() as transaction:
        transaction.append(ROWS)
        updates, requirements = transaction._set_ref_snapshot(first, "before", "tag")
        transaction._apply(updates, requirements)

    assert rows(lying) == len(ROWS) + 2
    assert "before" not in stock(lying).load_table(NAME).metadata.refs


def test_no_request_has_a_time_out(lying: LyingCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Harm: a catalog that is silent holds the writer for ever."""
    send, seen = HTTPAdapter.send, list[Any]()

    def watched(adapter: HTTPAdapter, request: PreparedRequest, **options: Any) -> Response:
        seen.append(options.get("timeout"))
        return send(adapter, request, **options)

    monkeypatch.setattr(HTTPAdapter, "send", watched)
    append_once(made(lying))

    assert {*seen} == {None}
