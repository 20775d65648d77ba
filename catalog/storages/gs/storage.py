"""Objects in Google Cloud Storage, a `tableformat.storage.Storage`; gs://bucket/name is literal."""

from __future__ import annotations

from catalog.storages.gs.access import GsAccess
from catalog.storages.gs.failures import STORE
from catalog.storages.gs.objects import GsObjects
from catalog.storages.over_http.requests import Requests
from catalog.storages.over_http.storage import ObjectStorage

__all__ = ["GsStorage", "requests_of"]


class GsStorage(ObjectStorage):
    """Objects in buckets. A request goes on while the server is away, as long as `access` says."""

    def __init__(self, access: GsAccess) -> None:
        """Remember how to reach it; nothing is asked yet."""
        super().__init__(requests_of(access))


def requests_of(access: GsAccess) -> Requests:
    """Return what asks it."""
    return Requests(access, STORE, GsObjects)
