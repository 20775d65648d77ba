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
from tests.places.services import far_services, through_rest
from tests.services.server_process import ServerProcess
from tests.services.toxiproxy import FROM_SERVER, Proxy, toxiproxy

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
        """Let processes that begin from now on be told the truth, and wait for a slow machine."""
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
    """Take place over Keeper, REST and S3; processes reach Keeper and S3 through proxies."""
    with far_services() as services, toxiproxy() as proxies:
        behind = services.behind(world.directory, _HONEST)
        services.keep_versions(behind)
        behind.name_in(world.directory)
        to_keeper = proxies.before(services.keeper.port)
        to_store = proxies.before(services.store.port)
        with LyingCatalog(behind.lake()) as catalog:
            seen = through_rest(behind, catalog)
            through = f"https://{to_store.address}"
            ledger = seen.ledger_uri.replace(services.keeper.address, to_keeper.address)
            front = replace(
                seen,
                catalog={**seen.catalog, **_STORE_SECONDS, "s3.endpoint": through},
                ledger_uri=f"{ledger}?{_LEDGER_SECONDS}",
                time_outs=_BRIEF_FAR,
            )
            acts = (
                *_Outage(services.keeper, to_keeper, chance).acts("keeper"),
                *_Outage(services.store, to_store, chance).acts("store"),
            )
            yield Setting(catalog, front, acts)


@dataclass(frozen=True, slots=True)
class _Outage:
    """What becomes of a server, or of the way to it, for seconds; then it is mended."""

    server: ServerProcess
    proxy: Proxy
    chance: random.Random

    def acts(self, name: str) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield what may happen, under names of their own."""
        acts = (self.killed, self.cut, self.slow, self.loses_answers)
        yield from ((1, _Named(f"{name} {act.__name__}", act)) for act in acts)

    def killed(self) -> None:
        """End the server, as a loss of power does."""
        self.server.kill()
        self._wait()
        self.server.start()

    def cut(self) -> None:
        """End all connections, and refuse others."""
        self.proxy.down()
        self._mended()

    def slow(self) -> None:
        """Let everything arrive late."""
        self.proxy.latency(_SLOW_SECONDS)
        self._mended()

    def loses_answers(self) -> None:
        """Let what is asked be carried out, and nobody hear of it."""
        self.proxy.timeout(streams=FROM_SERVER)
        self._mended()

    def _mended(self) -> None:
        self._wait()
        self.proxy.heal()

    def _wait(self) -> None:
        time.sleep(self.chance.uniform(0, _LONGEST_OUTAGE))


class _Named:
    """An act with a name to count it by."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.__name__, self._act = name, act

    def __call__(self) -> None:
        self._act()
