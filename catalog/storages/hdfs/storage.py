"""Files in HDFS, a `tableformat.storage.Storage`; hdfs://host:port/path is literal."""

from __future__ import annotations

from catalog.storages.hdfs.access import HdfsAccess
from catalog.storages.hdfs.failures import STORE
from catalog.storages.hdfs.objects import IN_PROGRESS, HdfsObjects
from catalog.storages.over_http.requests import Requests
from catalog.storages.over_http.storage import ObjectStorage
from tableformat.storage import StoredObject

__all__ = ["HdfsStorage", "requests_of"]


class HdfsStorage(ObjectStorage):
    """Files in directories. A request goes on while the cluster is away, as `access` says."""

    def __init__(self, access: HdfsAccess) -> None:
        """Remember how to reach it; nothing is asked yet."""
        super().__init__(requests_of(access))

    def list(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return the finished files below a directory, at any depth, in order."""
        found = super().list(prefix)
        return tuple(one for one in found if not one.location.endswith(IN_PROGRESS))

    def list_unfinished(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return what begun files below a directory have left; of the living, or of the dead."""
        found = super().list(prefix)
        return tuple(one for one in found if one.location.endswith(IN_PROGRESS))


def requests_of(access: HdfsAccess) -> Requests:
    """Return what asks it."""
    return Requests(access, STORE, HdfsObjects)
