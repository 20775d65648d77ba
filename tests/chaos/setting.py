"""Where a chaos run takes place: on this disk, or in services that die and networks that break.

Two places are named in its directory: that of operators and of the judge, to whom nothing is lied,
and below `front` that of all processes.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from tests.chaos.world import World
from tests.lying_catalog.server import LyingCatalog
from tests.places.far import FarPlace
from tests.places.services import FarServices, through_rest
from tests.services.minio import minio
from tests.services.server_process import ServerProcess
from tests.services.toxiproxy import FROM_SERVER, Proxy, toxiproxy
from tests.services.zookeeper import Ensemble, zookeeper_ensemble

__all__ = ["Setting", "far", "local"]

_BRIEF: Final = {"connect": 5.0, "read": 0.5}
"""Of processes: every lie that makes wait costs its time-out."""
_BRIEF_FAR: Final = {"connect": 5.0, "read": 2.0, "retry_for": 20.0}
_HONEST: Final = {"connect": 10.0, "read": 60.0, "retry_for": 10.0}
_STORE_SECONDS: Final = {"s3.connect-timeout": "2", "s3.request-timeout": "5"}
_LEDGER_SECONDS: Final = "timeout=20&session-timeout=3"
_LONGEST_OUTAGE: Final = 3.0
_SLOW_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Setting:
    """The catalog, the place as processes see it, and what else may happen, by its weight."""

    catalog: LyingCatalog
    front: FarPlace
    acts: tuple[tuple[int, Callable[[], None]], ...] = ()

    def calm(self, world: World) -> None:
        """Give true responses to processes that begin from now on, and wait for a slow machine."""
        self.catalog.lie()
        replace(self.front, time_outs=_HONEST).name_in(world.front)

    def rough(self, world: World) -> None:
        """Let processes that begin from now on wait for nobody."""
        self.front.name_in(world.front)


@contextlib.contextmanager
def local(world: World) -> Iterator[Setting]:
    """Take place in a directory, but for the catalog that lies."""
    here = world.directory / "warehouse"
    with LyingCatalog(here) as catalog:
        ledger, truth = f"sqlite:{world.directory / 'ledger.db'}", str(here / "lake.db")
        rest = {"type": "rest", "uri": catalog.uri}
        yield Setting(catalog, FarPlace(rest, ledger, here.as_uri(), truth, _BRIEF))


@contextlib.contextmanager
def far(world: World, chance: random.Random) -> Iterator[Setting]:
    """Take place over three Keepers, REST and S3, which processes reach through proxies."""
    with zookeeper_ensemble() as keepers, minio() as store, toxiproxy() as proxies:
        services = FarServices(keepers, store)
        behind = services.behind(world.directory, _HONEST)
        services.keep_versions(behind)
        behind.name_in(world.directory)
        to_keepers = tuple(proxies.before(one.port) for one in keepers.servers)
        to_store = proxies.before(store.port)
        with LyingCatalog(behind.lake()) as catalog:
            seen = through_rest(behind, catalog)
            through = f"https://{to_store.address}"
            addresses = ",".join(proxy.address for proxy in to_keepers)
            ledger = seen.ledger_uri.replace(keepers.address, addresses)
            front = replace(
                seen,
                catalog={**seen.catalog, **_STORE_SECONDS, "s3.endpoint": through},
                ledger_uri=f"{ledger}?{_LEDGER_SECONDS}",
                time_outs=_BRIEF_FAR,
            )
            acts = (
                *_Outage(lambda: keepers, to_keepers, chance).acts("keeper"),
                *_Outage(keepers.leader, (), chance).acts("keeper's leader"),
                *_Outage(lambda: store, (to_store,), chance).acts("store"),
            )
            yield Setting(catalog, front, acts)


@dataclass(frozen=True, slots=True)
class _Outage:
    """What becomes of servers, or of the ways to them, for seconds; then it is mended."""

    find: Callable[[], ServerProcess | Ensemble]
    proxies: tuple[Proxy, ...]
    chance: random.Random

    def acts(self, name: str) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield what may happen, under names of their own; without proxies only servers end."""
        on_the_way = (self.cut, self.slow, self.loses_responses) if self.proxies else ()
        yield from (
            (1, _Named(f"{name} {act.__name__}", act)) for act in (self.killed, *on_the_way)
        )

    def killed(self) -> None:
        """End what is found now, as a loss of power does."""
        found = self.find()
        found.kill()
        self._wait()
        found.start()

    def cut(self) -> None:
        """End all connections, and refuse others."""
        self._meet(Proxy.down)

    def slow(self) -> None:
        """Let everything arrive late."""
        self._meet(lambda proxy: proxy.latency(_SLOW_SECONDS))

    def loses_responses(self) -> None:
        """Let what is asked be carried out, and nobody hear of it."""
        self._meet(lambda proxy: proxy.timeout(streams=FROM_SERVER))

    def _meet(self, fault: Callable[[Proxy], None]) -> None:
        for proxy in self.proxies:
            fault(proxy)
        self._wait()
        for proxy in self.proxies:
            proxy.heal()

    def _wait(self) -> None:
        time.sleep(self.chance.uniform(0, _LONGEST_OUTAGE))


class _Named:
    """An act with a name to count it by."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.__name__, self._act = name, act

    def __call__(self) -> None:
        self._act()
