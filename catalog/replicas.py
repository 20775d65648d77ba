"""Finds another replica to go on with, when the one that served a job is gone.

The other hosts of the address are asked, the one that is least behind first. What it must be like
is `ServerSource.why_not_instead_of`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from catalog.clickhouse.server.settings import Host
from catalog.clickhouse.server.source import ServerSource
from catalog.sources import SourcePlace, open_source, server_of
from tableformat.errors import RefusedError, SourceError
from tableformat.names import TableName

__all__ = ["other_replica"]


def other_replica(
    place: SourcePlace,
    gone: ServerSource,
    tried: Collection[Host],
    table: TableName,
    note: Callable[[str], None],
) -> Host | None:
    """Return the host that a job can go on with, None when there is none.

    Args:
        place: of the source; its hosts are asked.
        gone: the source whose host is gone, which says what it had.
        tried: hosts that are not asked any more.
        table: that is exported.
        note: hears why a host is not taken.

    Raises:
        UsageError: the address is malformed.
    """
    settings = server_of(place)
    left = () if settings is None else tuple(one for one in settings.hosts if one not in tried)
    while left:
        with open_source(replace(place, hosts=left), is_exporting=True) as source:
            why = _why_not(source, gone, table)
            host = source.host if isinstance(source, ServerSource) else None
        if host is None:
            note(f"no other host of the address can go on: {why}")
            return None
        if not why:
            return host
        note(f"{host.place} cannot go on: {why}")
        left = tuple(one for one in left if one != host)
    return None


def _why_not(source: object, gone: ServerSource, table: TableName) -> str:
    if not isinstance(source, ServerSource):
        return "it is no server"
    try:
        return source.why_not_instead_of(gone, table)
    except (RefusedError, SourceError) as error:
        return error.message
