"""How tests reach an object store: as a catalog's properties say it, and as storage is given it."""

from __future__ import annotations

from pathlib import Path

from catalog.network import TimeOuts
from catalog.storages.s3.access import CA_FILE, S3Access
from tests.services.s3_server import Account, S3Server

__all__ = ["access_to", "properties_of"]


def properties_of(
    store: S3Server,
    account: Account | None = None,
    *,
    endpoint: str | None = None,
    ca_file: Path | None = None,
) -> dict[str, str]:
    """Return PyIceberg's properties of a catalog whose warehouse is in an object store.

    Args:
        store: that it is in.
        account: the caller, the administrator when None.
        endpoint: where it is asked, as a proxy of it.
        ca_file: the authorities that are trusted, the store's own when None.
    """
    whose = account or store.root
    properties = {
        "s3.endpoint": endpoint or store.endpoint,
        "s3.region": store.region,
        "s3.access-key-id": whose.access_key,
        "s3.secret-access-key": whose.secret_key,
        CA_FILE: str(ca_file or store.ca_file),
    }
    return properties if whose.token is None else {**properties, "s3.session-token": whose.token}


def access_to(
    store: S3Server,
    account: Account | None = None,
    *,
    endpoint: str | None = None,
    ca_file: Path | None = None,
    time_outs: TimeOuts | None = None,
) -> S3Access:
    """Return the same as storage is given it; requests go on for seconds only."""
    properties = properties_of(store, account, endpoint=endpoint, ca_file=ca_file)
    bounds = time_outs or TimeOuts(connect=5, read=10, retry_for=20)
    return S3Access.of(properties, environment={}, time_outs=bounds)
