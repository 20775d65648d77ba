"""A catalog in PostgreSQL from the command line, configured as a user does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyiceberg.catalog import load_catalog

from tests.services.postgres import Postgres, postgres
from tests.wrong.places import Places

WHERE = ("--partition-id", "202401", "--to", "pg.n.events")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """Return a server."""
    with postgres() as server:
        yield server


def test_a_partition_is_exported_found_again_verified_and_cleaned_up(
    places: Places, server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a catalog that works in tests only, through what no user can say."""
    uri, warehouse = server.uri(server.account()), (places.root / "pg").as_uri()
    monkeypatch.setenv("PYICEBERG_CATALOG__PG__URI", uri)
    monkeypatch.setenv("PYICEBERG_CATALOG__PG__WAREHOUSE", warehouse)
    ledger = ("--ledger", f"sqlite:{places.root / 'pg-ledger.db'}")
    places.reads_parts = True

    (first,) = places.outcomes("export", "db.events", *WHERE, *ledger)
    (again,) = places.outcomes("export", "db.events", *WHERE, *ledger)
    (equal,) = places.outcomes("verify", "db.events", *WHERE, *ledger)
    swept = places.outcomes("gc", "--to", "pg.n.events", *ledger)

    assert (first["status"], again["status"]) == ("committed", "already_exported")
    assert equal["verdict"] == "equal"
    assert swept == []
    # As another engine opens it.
    table = load_catalog("pg", uri=uri, warehouse=warehouse).load_table("n.events")
    assert table.scan().to_arrow().num_rows == first["rows"]
