"""A lake whose catalog is in PostgreSQL, behind a relay; what is looked at goes round the relay.

`tests/support/scenarios.py` opens the catalog `lake`, which is configured here as a user does it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from catalog.iceberg.catalogs import OpenedCatalog
from catalog.network import DEFAULT_TIME_OUTS, TimeOuts
from tableformat.effects import Effects
from tableformat.export.ports import JobPorts
from tableformat.ledger import State
from tests.services.postgres import Postgres
from tests.services.postgres_relay import Exchange, Fault, Relay
from tests.support.scenarios import (
    Partitions,
    parts_of,
    ports_of,
    row_of,
    rows_by_key,
    run,
    statuses,
)

__all__ = ["DONE", "IMPATIENT", "POINTER", "Lake", "lake_in"]

POINTER: Final = "UPDATE iceberg_tables"
"""The statement that makes a commit of a table what the table is."""
DONE: Final = {"committed", "replaced", "already_exported"}
"""What an export says of a partition that it brought into the lake, or found there."""
IMPATIENT: Final = TimeOuts(connect=0.2, read=0.3)


@dataclass(frozen=True)
class Lake:
    """A lake whose catalog an account has; `relay` stands between it and the runs."""

    directory: Path
    server: Postgres
    account: str
    relay: Relay

    def ports(
        self,
        source: Partitions,
        *,
        effects: Effects | None = None,
        time_outs: TimeOuts = DEFAULT_TIME_OUTS,
    ) -> JobPorts:
        """Return the ports of a new process."""
        properties = {
            "uri": self.server.uri(self.account, self.relay.port),
            "warehouse": (self.directory / "warehouse").as_uri(),
        }
        opened = OpenedCatalog("lake", None, properties, time_outs)
        return replace(ports_of(self.directory, source, effects=effects), lake=opened)

    def meets(self, act: Callable[[Exchange], bool], *, after: str = POINTER) -> None:
        """Do this to the COMMIT of the next transaction in which `after` is sent."""
        self.relay.arm(Fault("COMMIT", act, after))

    def exported_and_grown(self) -> Partitions:
        """Return a source whose partitions were exported, and have got more rows since."""
        source = Partitions()
        assert statuses(run(self.directory, source)) == ["committed"] * 2
        source.by_id = {"p1": parts_of("p1", 7, 5, 4), "p2": parts_of("p2", 3, 1)}
        return source

    def assert_exactly_once(self, source: Partitions, *, exports: int = 1) -> None:
        """Check that main holds each partition once, and that the ledger says so."""
        held = rows_by_key(self.directory)
        for partition, rows in source.rows.items():
            row = row_of(self.directory, partition)
            assert held[row.key.hash] == rows, f"{partition}: {held[row.key.hash]} of {rows} rows"
            assert (row.state, row.last.rows, len(row.landed)) == (State.COMPLETED, rows, exports)
        assert held.total() == sum(source.rows.values())


@contextlib.contextmanager
def lake_in(server: Postgres, directory: Path, patch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """Make a lake in an account of its own."""
    account = server.account()
    patch.setenv("PYICEBERG_CATALOG__LAKE__URI", server.uri(account))
    patch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", (directory / "warehouse").as_uri())
    with Relay(server.socket) as relay:
        yield Lake(directory, server, account, relay)
