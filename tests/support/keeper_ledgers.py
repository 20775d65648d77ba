"""Ledgers in a ZooKeeper of the tests, and what is really in its nodes."""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from kazoo.client import KazooClient

from catalog.ledgers.keeper.address import KeeperAddress, parse_keeper
from catalog.ledgers.keeper.ledger import KeeperLedger
from catalog.ledgers.memory import milliseconds
from tableformat.history import MOST_EVENTS
from tableformat.ledger import Claim, ExportedPart, Key, Landed, Owner, Row, State

__all__ = [
    "ME",
    "SOMEBODY",
    "a_row",
    "address_of",
    "landed",
    "many_parts",
    "new_chroot",
    "nodes_below",
    "opened",
    "peeking",
]

ME: Final = Owner("host", 1, "then")
SOMEBODY: Final = Owner("elsewhere", 2, "then")
_NUMBERS: Final = itertools.count()


def new_chroot() -> str:
    """Return a path that no other test has."""
    return f"/tests-{secrets.token_hex(4)}-{next(_NUMBERS)}"


def address_of(place: str, environment: Mapping[str, str] | None = None) -> KeeperAddress:
    """Return the address of a ledger in a path of its own."""
    return parse_keeper(f"keeper://{place}{new_chroot()}", environment=environment or {})


@contextlib.contextmanager
def opened(
    address: KeeperAddress,
    *,
    clock: Callable[[], int] = milliseconds,
    most_events: int = MOST_EVENTS,
    **other: Any,
) -> Iterator[KeeperLedger]:
    """Open a ledger for the time of a context, with some settings of its address changed."""
    ledger = KeeperLedger(replace(address, **other), clock=clock, most_events=most_events)
    with contextlib.closing(ledger):
        yield ledger


@contextlib.contextmanager
def peeking(address: KeeperAddress, **settings: Any) -> Iterator[KazooClient]:
    """Connect as an administrator would, without the ledger."""
    client = KazooClient(",".join(address.hosts), **settings)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def nodes_below(client: KazooClient, path: str) -> dict[str, bytes]:
    """Return every node at and below a path, with its content."""
    found = {path: client.get(path)[0]}
    for name in client.get_children(path):
        found |= nodes_below(client, f"{path}/{name}")
    return found


def a_row(partition: str = "202401", **other: Any) -> Row:
    """Return a first row of a key."""
    key = Key("source", partition, "destination")
    row = Row(key, "db.t", "lake.n.t", State.RUNNING, Claim(1, "7", "f", 1), 1, 1)
    return replace(row, **other)


def many_parts(count: int) -> tuple[ExportedPart, ...]:
    """Return parts as large tables have them: nothing of their hashes and paths can be guessed."""
    return tuple(
        ExportedPart(
            f"202401_{n}_{n}_0",
            secrets.token_hex(16),
            8192,
            n,
            n,
            0,
            1_000_000,
            (f"s3://bucket/warehouse/n/t/data/month=202401/{secrets.token_hex(16)}-{n}.parquet",),
        )
        for n in range(count)
    )


def landed(sequence_number: int) -> Landed:
    """Return an export that landed."""
    return Landed(1, "7", "f", sequence_number, sequence_number, rows=3, data_files=1)
