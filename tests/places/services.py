"""The services that far worlds are in.

    with far_services() as services, services.settled(directory) as catalog: ...

Every world has a bucket, a path in Keeper and a catalog of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.lying_catalog.server import LyingCatalog
from tests.places.far import FarPlace
from tests.services.minio import MinIO, minio
from tests.services.zookeeper import Ensemble, ZooKeeper, zookeeper
from tests.support.keeper_ledgers import new_chroot
from tests.support.s3_places import properties_of

__all__ = ["FarServices", "far_services", "through_rest"]

_PATIENT: Final = {"connect": 30.0, "read": 60.0, "retry_for": 20.0}
_OF_SQL: Final = ("type", "uri", "warehouse")


@dataclass(frozen=True, slots=True)
class FarServices:
    """A ZooKeeper, or three, and an object store over TLS."""

    keeper: ZooKeeper | Ensemble
    store: MinIO

    @contextlib.contextmanager
    def settled(self, directory: Path, *, sessions_end: bool = False) -> Iterator[LyingCatalog]:
        """Say in a directory that its world is here; serve its catalog for that time.

        With `sessions_end` Keeper ends the session of a killed process at once.
        """
        behind = replace(self.behind(directory, _PATIENT), sessions_end=sessions_end)
        with LyingCatalog(behind.lake()) as catalog:
            through_rest(behind, catalog).name_in(directory)
            yield catalog

    def behind(self, directory: Path, time_outs: Mapping[str, float]) -> FarPlace:
        """Return a new place as its catalog sees it, whose database is in a directory."""
        truth = directory / "catalog.db"
        warehouse = f"s3://{self.store.make_bucket()}/warehouse"
        held = {"type": "sql", "uri": f"sqlite:///{truth}", "warehouse": warehouse}
        ledger = f"keeper://{self.keeper.address}{new_chroot()}"
        catalog = {**held, **properties_of(self.store)}
        return FarPlace(catalog, ledger, warehouse, str(truth), time_outs)

    def keep_versions(self, place: FarPlace) -> None:
        """Let the bucket of a place keep what is removed from it."""
        self.store.client().put_bucket_versioning(
            Bucket=place.bucket.bucket, VersioningConfiguration={"Status": "Enabled"}
        )


def through_rest(behind: FarPlace, catalog: LyingCatalog) -> FarPlace:
    """Return the place as everybody else sees it."""
    storage = {name: value for name, value in behind.catalog.items() if name not in _OF_SQL}
    return replace(behind, catalog={**storage, "type": "rest", "uri": catalog.uri})


@contextlib.contextmanager
def far_services() -> Iterator[FarServices]:
    """Run them for the time of a context; nothing of them is left."""
    with zookeeper() as keeper, minio() as store:
        yield FarServices(keeper, store)
