"""The nodes of a ledger in Keeper, as an administrator sees them, and puts them back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from catalog.ledgers.keeper.address import parse_keeper
from tests.support.keeper_ledgers import peeking

__all__ = ["Nodes"]

_EPOCH: Final = "/epoch"
_LEASE: Final = "/leases/"
_SAYS_SOMETHING: Final = ("/rows/", "/events/", _LEASE)


@dataclass(frozen=True, slots=True)
class Nodes:
    """Content and version of every node by its path; no node has another one's number."""

    found: Mapping[str, tuple[bytes, int]]

    @classmethod
    def below(cls, address: str) -> Self:
        """Read all nodes at and below the path of a ledger's address."""
        place = parse_keeper(address, environment={})
        with peeking(place) as client:
            return cls(dict(_nodes(client, place.chroot)))

    def content(self) -> dict[str, object]:
        """Return what does not move by itself; a ledger that says nothing is none.

        Of the numbers of claims one may always be left out.
        """
        if not any(kind in path for path in self.found for kind in _SAYS_SOMETHING):
            return {}
        return {
            path: _lease(stored) if _LEASE in path else (stored, version)
            for path, (stored, version) in self.found.items()
            if not path.endswith(_EPOCH)
        }

    def put_back(self, address: str) -> None:
        """Let the nodes of an address be these; those that differ are recreated, at once."""
        place = parse_keeper(address, environment={})
        with peeking(place) as client:
            now = dict(_nodes(client, place.chroot))
            differ = {path for path in now.keys() & self.found if now[path] != self.found[path]}
            change = client.transaction()
            for path in sorted((now.keys() - self.found.keys()) | differ, reverse=True):
                change.delete(path)
            for path in sorted((self.found.keys() - now.keys()) | differ):
                stored, version = self.found[path]
                change.create(path, stored)
                for _ in range(version):
                    # Rows are moved by the version, which counts.
                    change.set_data(path, stored)
            for done in change.commit() if change.operations else ():
                if isinstance(done, Exception):
                    raise done


def _lease(stored: bytes) -> object:
    members = json.loads(stored.partition(b"\n")[2])
    return {name: value for name, value in members.items() if name != "until"}


def _nodes(client: KazooClient, path: str) -> Iterator[tuple[str, tuple[bytes, int]]]:
    with contextlib.suppress(NoNodeError):
        stored, description = client.get(path)
        yield path, (stored, description.version)
        for name in client.get_children(path):
            yield from _nodes(client, f"{path}/{name}")
