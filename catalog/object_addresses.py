"""The locations of addresses of object stores, if they are those that are reached from here.

ClickHouse names objects by the address of their server, we by bucket and path: which server that
is, the environment says (`AWS_ENDPOINT_URL`, `STORAGE_EMULATOR_HOST`,
`AZURE_STORAGE_CONNECTION_STRING`), and without it it is Amazon's, Google's or Azure's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from catalog.storages.abfs.access import AbfsAccess, endpoint_of_connection
from catalog.storages.gs.access import GsAccess

__all__ = ["abfs_location", "gs_location", "hdfs_location", "s3_location"]

_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_AMAZON: Final = re.compile(r"(?:(?P<bucket>.+)\.)?s3(?:[.-][a-z0-9-]+)?\.amazonaws\.com(?:\.cn)?")
_PATTERN: Final = frozenset("*?{}")
_ADDRESS: Final = re.compile(r"https?://(?P<host>[^/]+)/?(?P<account>[^/]*)/*")
_AZURE: Final = "dfs.core.windows.net"


def s3_location(address: str, environment: Mapping[str, str]) -> str | None:
    """Return the location of an address, None when it is not reached from here.

    Args:
        address: as ClickHouse's engine S3 takes it: with the bucket in the path or in the host's
            name, or `s3://bucket/path`.
        environment: which says where S3 is.
    """
    try:
        asked = urlsplit(address)
        found = _bucket_and_path(asked, environment)
    except ValueError:
        return None
    if found is None or not all(found) or _PATTERN & set(found[1]):
        return None
    bucket, path = found
    return f"s3://{bucket}/{path}"


def gs_location(address: str, environment: Mapping[str, str]) -> str | None:
    """Return the location of an address, None when it is not reached from here.

    Args:
        address: as ClickHouse's engine GCS takes it: with the bucket in the path or in the host's
            name, or `gs://bucket/path`.
        environment: which says where Google Cloud Storage is.

    Raises:
        TableFormatError: the environment does not say how it is reached.
    """
    try:
        asked = urlsplit(address)
        path = unquote(asked.path).strip("/")
        if asked.scheme == "gs":
            bucket: str | None = asked.netloc
        elif asked.scheme not in _PORTS or asked.query or asked.fragment or not asked.hostname:
            return None
        else:
            there = GsAccess.of({}, environment=environment).endpoint
            bucket = _bucket_in_host(asked, urlsplit(there))
    except ValueError:
        return None
    if bucket == "":
        bucket, _, path = path.partition("/")
    return f"gs://{bucket}/{path}" if bucket and path and not _PATTERN & set(path) else None


def abfs_location(
    address: str, container: str, path: str, environment: Mapping[str, str]
) -> str | None:
    """Return the location of a path of a container, None when it is not reached from here.

    Args:
        address: a connection string, or the address of an account's blobs.
        container: of the account.
        path: in the container.
        environment: which says how the account is reached, and as whom.

    Raises:
        TableFormatError: the environment does not say as whom, or for another account.
    """
    below = path.strip("/")
    if not container or not below or _PATTERN & set(below):
        return None
    if found := _ADDRESS.fullmatch(address):
        # Emulators have the account behind the host.
        account = found["account"] or found["host"].partition(".")[0]
        endpoint = address
    else:
        account, endpoint = endpoint_of_connection(address)
    location = f"abfss://{container}@{account}.{_AZURE}/{below}"
    reached = AbfsAccess.of(location, {}, environment=environment)
    return location if reached.endpoint == endpoint.rstrip("/") else None


def hdfs_location(address: str) -> str | None:
    """Return the location of a directory of HDFS, None for what is none."""
    found = urlsplit(address)
    is_one = found.scheme == "hdfs" and bool(found.netloc) and bool(found.path.strip("/"))
    return address.rstrip("/") if is_one and not _PATTERN & set(found.path) else None


def _bucket_and_path(asked: SplitResult, environment: Mapping[str, str]) -> tuple[str, str] | None:
    path = unquote(asked.path).strip("/")
    if asked.scheme in ("s3", "s3a", "s3n"):
        return asked.netloc, path
    if asked.scheme not in _PORTS or asked.query or asked.fragment or asked.hostname is None:
        return None
    given = next((environment[name] for name in _ENDPOINTS if environment.get(name)), None)
    bucket = _bucket_in_host(asked, urlsplit(given) if given else None)
    if bucket is None:
        return None
    if bucket:
        return bucket, path
    first, _, rest = path.partition("/")
    return first, rest


def _bucket_in_host(asked: SplitResult, endpoint: SplitResult | None) -> str | None:
    """Return the bucket that a host's name begins with, '' for none, None for another server."""
    host = asked.hostname or ""
    if endpoint is None:
        found = _AMAZON.fullmatch(host) if asked.port in (None, _PORTS[asked.scheme]) else None
        return None if found is None else found["bucket"] or ""
    if (asked.scheme, _port(asked)) != (endpoint.scheme, _port(endpoint)):
        return None
    if host == endpoint.hostname:
        return ""
    bucket = host.removesuffix(f".{endpoint.hostname}")
    return None if bucket == host else bucket


def _port(of: SplitResult) -> int | None:
    return of.port or _PORTS.get(of.scheme)
