"""The queries of a job at a server: what they are called, and how all of them are ended."""

from __future__ import annotations

import logging

from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.settings import ServerSettings
from tableformat.errors import SourceError
from tableformat.names import quote_string
from tableformat.source import ServedLayout

__all__ = ["kill_queries", "query_prefix"]

_LOGGER = logging.getLogger("mergeberg.source")


def query_prefix(job: str) -> str:
    """Return how the ids of all queries of a job's tasks begin."""
    return f"mergeberg-{job}-"


def kill_queries(settings: ServerSettings, layout: ServedLayout, job: str) -> None:
    """Let a server end what tasks of a job may still read there; nobody waits for it.

    A query whose reader is gone ends by itself with its next block, but one that sorts first has
    none for a long time. Where the server cannot be told, nothing is lost but its work: that is
    logged.

    Args:
        settings: of the source.
        layout: of the snapshot that the tasks read; its host is asked.
        job: whose queries.
    """
    for host in (host for host in settings.hosts if host.url == layout.host):
        mine = f"startsWith(query_id, {quote_string(query_prefix(job))})"
        with ServerClient(settings, host) as client:
            try:
                client.query(f"KILL QUERY WHERE {mine} ASYNC")
            except SourceError as error:
                _LOGGER.warning("queries of an ended export may still run: %s", error)
