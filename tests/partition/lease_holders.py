"""Who holds leases in a ledger in Keeper, as an administrator sees it: by which sessions."""

from __future__ import annotations

import json
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from catalog.ledgers.keeper.address import KeeperPaths
from tests.services.certificates import Authority

__all__ = ["LeaseHolders"]

_OF_NO_LEDGER: Final = ""


class LeaseHolders:
    """Looks, over TLS, until it is closed."""

    def __init__(self, address: str, authority: Authority, chroot: str) -> None:
        """Connect to the server of an address, whose certificate an authority signed."""
        self._leases = KeeperPaths(chroot, _OF_NO_LEDGER).leases
        self._client = KazooClient(address, use_ssl=True, ca=str(authority.file))
        self._client.start()

    def sessions_of(self, host: str) -> frozenset[int]:
        """Return the numbers of the sessions by which processes of a host hold leases now."""
        found = set[int]()
        for name in self._client.get_children(self._leases):
            try:
                stored, description = self._client.get(f"{self._leases}/{name}")
            except NoNodeError:
                # It was given back meanwhile.
                continue
            if json.loads(stored.partition(b"\n")[2])["host"] == host:
                found.add(int(description.ephemeralOwner))
        return frozenset(found)

    def close(self) -> None:
        """End the connection."""
        self._client.stop()
        self._client.close()
