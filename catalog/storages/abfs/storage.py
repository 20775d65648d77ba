"""Objects in Azure Blob Storage, a `tableformat.storage.Storage`.

abfs[s]://CONTAINER@ACCOUNT.dfs.core.windows.net/NAME is literal; either scheme is asked over https.
"""

from __future__ import annotations

from catalog.storages.abfs.access import AbfsAccess
from catalog.storages.abfs.failures import STORE
from catalog.storages.abfs.objects import AbfsObjects
from catalog.storages.over_http.requests import Requests
from catalog.storages.over_http.storage import ObjectStorage

__all__ = ["AbfsStorage", "requests_of"]


class AbfsStorage(ObjectStorage):
    """Blobs in containers. A request goes on while the server is away, as long as `access` says."""

    def __init__(self, access: AbfsAccess) -> None:
        """Remember how to reach it; nothing is asked yet."""
        super().__init__(requests_of(access))


def requests_of(access: AbfsAccess) -> Requests:
    """Return what asks it."""
    return Requests(access, STORE, AbfsObjects)
