"""A world at addresses: a REST catalog, a ledger in Keeper, data and metadata in S3.

A file in the directory that stands for it has the addresses, so that processes find it, too.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from catalog.iceberg.catalogs import LOCAL_CATALOG, OpenedCatalog
from catalog.ledgers.keeper.address import KeeperAddress, is_keeper, parse_keeper
from catalog.ledgers.keeper.ledger import KeeperLedger
from catalog.ledgers.sqlite import SqliteLedger
from catalog.network import TimeOuts
from catalog.storages.s3.access import S3Access
from catalog.storages.s3.requests import Requests
from catalog.storages.s3.storage import Place as Location
from tableformat.ledger import Ledger
from tableformat.storage import Storage
from tests.places.nodes import Nodes

__all__ = ["FarPlace"]

_FILE: Final = "place.json"


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was there: objects by key with their tags, the catalog's database, nodes by path."""

    objects: Mapping[str, tuple[str, bytes]]
    database: bytes
    nodes: Nodes


@dataclass(frozen=True, slots=True)
class FarPlace:
    """A `tests.places.place.Place` of addresses.

    `catalog` are PyIceberg's properties, secrets of a test's own store among them; `truth` is the
    database of what the catalog says is true, and `time_outs` are those of `TimeOuts`, by name.
    `ledger_environment` has the variables that say how Keeper is spoken to over TLS.
    With `sessions_end` that of a killed process ends before another one comes. Only a place in S3
    and Keeper whose truth is known can be kept and put back.
    """

    catalog: Mapping[str, Any] = field(repr=False)
    ledger_uri: str
    warehouse: str
    truth: str
    time_outs: Mapping[str, float]
    ledger_environment: Mapping[str, str] = field(default_factory=dict)
    sessions_end: bool = False
    _dead: list[Ledger] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def named_in(cls, directory: Path) -> Self | None:
        """Return the place whose addresses are in a directory, None when it has none."""
        file = directory / _FILE
        return cls(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None

    def name_in(self, directory: Path) -> None:
        """Write the addresses into a directory."""
        members = asdict(self)
        del members["_dead"]
        directory.mkdir(parents=True, exist_ok=True)
        (directory / _FILE).write_text(json.dumps(members), encoding="utf-8")

    @contextlib.contextmanager
    def named_for_a_while(self, directory: Path) -> Iterator[None]:
        """Let a directory stand for it inside the block."""
        self.name_in(directory)
        try:
            yield
        finally:
            (directory / _FILE).unlink()

    def lake(self) -> OpenedCatalog:
        """Return the catalog."""
        return OpenedCatalog(LOCAL_CATALOG, None, self.catalog, TimeOuts(**self.time_outs))

    def ledger(self, clock: Callable[[], int]) -> Ledger:
        """Open the ledger."""
        if is_keeper(self.ledger_uri):
            return KeeperLedger(self._keeper, clock=clock)
        return SqliteLedger(Path(self.ledger_uri.removeprefix("sqlite:")), clock=clock)

    @property
    def _keeper(self) -> KeeperAddress:
        return parse_keeper(self.ledger_uri, environment=self.ledger_environment)

    def storage(self, location: str) -> Storage:
        """Open what a location belongs to."""
        return self.lake().storages(location)

    def dies(self, ledger: Ledger) -> None:
        """Leave the session: the servers know only after a while that nobody is there.

        Where they know already, they have closed it, as a client does that ends in order.
        """
        if self.sessions_end:
            ledger.close()
        else:
            self._dead.append(ledger)

    def outside(self) -> object:
        """Return the tags of all objects, the catalog's rows, and the nodes."""
        with self._database() as database:
            rows = tuple(database.iterdump())
        return self._tags(), rows, Nodes.below(self.ledger_uri).content()

    def keep(self) -> object:
        """Read everything."""
        self._forget_the_dead()
        storage, found = self.storage(self.warehouse), self.bucket
        objects = {
            key: (tag, storage.read(found.location(key))) for key, tag in self._tags().items()
        }
        with self._database() as database:
            rows = database.serialize()
        return _Kept(objects, rows, Nodes.below(self.ledger_uri))

    def put_back(self, kept: object) -> None:
        """Remove, rewrite and put back what differs."""
        assert isinstance(kept, _Kept)
        self._forget_the_dead()
        now = self._tags()
        gone = [{"Key": key} for key in now.keys() - kept.objects.keys()]
        if gone:
            response = self.client.delete_objects(
                Bucket=self.bucket.bucket, Delete={"Objects": gone}
            )
            assert "Errors" not in response, response["Errors"]
        for key, (tag, data) in kept.objects.items():
            if now.get(key) != tag:
                self.storage(self.warehouse).put(self.bucket.location(key), data)
        with self._database() as database, self._database(":memory:") as before:
            before.deserialize(kept.database)
            before.backup(database)
        kept.nodes.put_back(self.ledger_uri)

    def _forget_the_dead(self) -> None:
        while self._dead:
            self._dead.pop().close()

    def _database(self, name: str = "") -> contextlib.closing[sqlite3.Connection]:
        return contextlib.closing(sqlite3.connect(name or self.truth))

    @property
    def bucket(self) -> Location:
        """The bucket, and the key that everything is below."""
        return Location.below(self.warehouse)

    @property
    def client(self) -> Any:
        """boto3's client of the store, as the product makes it."""
        access = self.lake().storages.access(self.warehouse)
        assert isinstance(access, S3Access)
        return Requests(access).client

    def _tags(self) -> dict[str, str]:
        return dict(self._listed())

    def _listed(self) -> Iterator[tuple[str, str]]:
        pages = self.client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self.bucket.bucket, Prefix=self.bucket.key):
            for one in page.get("Contents", ()):
                yield one["Key"], one["ETag"]
