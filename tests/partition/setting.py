"""Where a run takes place: Keeper, catalog and object store, each over TLS.

Two places are named in its directory: that of operators and of the judge, and below `front` that of
the processes, who wait for nobody for long. The addresses are the same: which network lies between
is for the starter of the processes.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from catalog.ledgers.keeper.address import CA_FILE
from tests.chaos.world import World
from tests.partition.lease_holders import LeaseHolders
from tests.places.far import FarPlace
from tests.places.services import FarServices
from tests.services.certificates import Authority
from tests.services.minio import minio
from tests.services.rest_server import rest_server
from tests.services.zookeeper import TlsPort, ZooKeeper, zookeeper
from tests.support.keeper_ledgers import new_chroot
from tests.support.s3_places import properties_of

__all__ = ["Setting", "over_tls"]

_HONEST: Final = {"connect": 10.0, "read": 60.0, "retry_for": 20.0}
_BRIEF: Final = {"connect": 5.0, "read": 5.0, "retry_for": 20.0}
_STORE_SECONDS: Final = {"s3.connect-timeout": "5", "s3.request-timeout": "5"}
_LEDGER_SECONDS: Final = "timeout=20&session-timeout=3"


@dataclass(frozen=True, slots=True)
class Setting:
    """The ledger's server, who holds leases there, and the place as processes see it."""

    keeper: ZooKeeper
    holders: LeaseHolders
    front: FarPlace

    def rough(self, world: World) -> None:
        """Let processes that begin from now on wait for nobody for long."""
        self.front.name_in(world.front)

    def calm(self, world: World) -> None:
        """Let processes that begin from now on wait for a slow machine."""
        replace(self.front, time_outs=_HONEST).name_in(world.front)


@contextlib.contextmanager
def over_tls(world: World) -> Iterator[Setting]:
    """Run the services for the time of a context, and name the places in a directory."""
    with contextlib.ExitStack() as stack:
        mine = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mergeberg-ca-")))
        authority = Authority(mine)
        keeper = stack.enter_context(zookeeper(TlsPort(authority)))
        store = stack.enter_context(minio())
        catalog = stack.enter_context(rest_server(store))
        chroot = new_chroot()
        place = FarPlace(
            catalog={**catalog.properties, **properties_of(store)},
            ledger_uri=f"keepers://{keeper.address}{chroot}",
            warehouse=f"s3://{catalog.bucket}/wh",
            truth="",
            time_outs=_HONEST,
            ledger_environment={CA_FILE: str(authority.file)},
        )
        FarServices(keeper, store).keep_versions(place)
        place.name_in(world.directory)
        front = replace(
            place,
            catalog={**place.catalog, **_STORE_SECONDS},
            ledger_uri=f"{place.ledger_uri}?{_LEDGER_SECONDS}",
            time_outs=_BRIEF,
        )
        holders = LeaseHolders(keeper.address, authority, chroot)
        stack.callback(holders.close)
        yield Setting(keeper, holders, front)
