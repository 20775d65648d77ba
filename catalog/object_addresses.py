"""Translates ClickHouse's addresses of objects to locations of this process's object stores.

ClickHouse names an object by the URL of its server, Iceberg by bucket and path. The environment
names the server (`AWS_ENDPOINT_URL`, `STORAGE_EMULATOR_HOST`, `AZURE_STORAGE_CONNECTION_STRING`);
the default is that of Amazon, Google or Azure. An address of another server has no location here.
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
    """Return the `s3://` location of an address, None if it is on another server.

    Args:
        address: an address of ClickHouse's engine S3: bucket in the path or in the host's name, or
            `s3://bucket/path`.
        environment: variables that name the endpoint of S3.
    """
    try:
        url = urlsplit(address)
        found = _bucket_and_path(url, environment)
    except ValueError:
        return None
    if found is None or not all(found) or _PATTERN & set(found[1]):
        return None
    bucket, path = found
    return f"s3://{bucket}/{path}"


def gs_location(address: str, environment: Mapping[str, str]) -> str | None:
    """Return the `gs://` location of an address, None if it is on another server.

    Args:
        address: an address of ClickHouse's engine GCS: bucket in the path or in the host's name, or
            `gs://bucket/path`.
        environment: variables that name the endpoint of Google Cloud Storage.

    Raises:
        TableFormatError: the environment's endpoint or credentials are invalid.
    """
    try:
        url = urlsplit(address)
        path = unquote(url.path).strip("/")
        if url.scheme == "gs":
            bucket: str | None = url.netloc
        elif url.scheme not in _PORTS or url.query or url.fragment or not url.hostname:
            return None
        else:
            endpoint = GsAccess.of({}, environment=environment).endpoint
            bucket = _bucket_in_host(url, urlsplit(endpoint))
    except ValueError:
        return None
    if bucket == "":
        bucket, _, path = path.partition("/")
    return f"gs://{bucket}/{path}" if bucket and path and not _PATTERN & set(path) else None


def abfs_location(
    address: str, container: str, path: str, environment: Mapping[str, str]
) -> str | None:
    """Return the `abfss://` location of a path, None if it is in an account of another server.

    Args:
        address: a connection string, or the URL of an account's blobs.
        container: the container of the account.
        path: in the container.
        environment: variables with the account's endpoint and credentials.

    Raises:
        TableFormatError: the environment has no credentials for the account.
    """
    below = path.strip("/")
    if not container or not below or _PATTERN & set(below):
        return None
    if found := _ADDRESS.fullmatch(address):
        # Emulators have the account in the path.
        account = found["account"] or found["host"].partition(".")[0]
        endpoint = address
    else:
        account, endpoint = endpoint_of_connection(address)
    location = f"abfss://{container}@{account}.{_AZURE}/{below}"
    reached = AbfsAccess.of(location, {}, environment=environment)
    return location if reached.endpoint == endpoint.rstrip("/") else None


def hdfs_location(address: str) -> str | None:
    """Return the location of a directory of HDFS, None for another address."""
    found = urlsplit(address)
    is_one = found.scheme == "hdfs" and bool(found.netloc) and bool(found.path.strip("/"))
    return address.rstrip("/") if is_one and not _PATTERN & set(found.path) else None


def _bucket_and_path(url: SplitResult, environment: Mapping[str, str]) -> tuple[str, str] | None:
    path = unquote(url.path).strip("/")
    if url.scheme in ("s3", "s3a", "s3n"):
        return url.netloc, path
    if url.scheme not in _PORTS or url.query or url.fragment or url.hostname is None:
        return None
    given = next((environment[name] for name in _ENDPOINTS if environment.get(name)), None)
    bucket = _bucket_in_host(url, urlsplit(given) if given else None)
    if bucket is None:
        return None
    if bucket:
        return bucket, path
    first, _, rest = path.partition("/")
    return first, rest


def _bucket_in_host(url: SplitResult, endpoint: SplitResult | None) -> str | None:
    """Return the bucket in a URL's host name, '' if there is none, None for another server."""
    host = url.hostname or ""
    if endpoint is None:
        found = _AMAZON.fullmatch(host) if url.port in (None, _PORTS[url.scheme]) else None
        return None if found is None else found["bucket"] or ""
    if (url.scheme, _port(url)) != (endpoint.scheme, _port(endpoint)):
        return None
    if host == endpoint.hostname:
        return ""
    bucket = host.removesuffix(f".{endpoint.hostname}")
    return None if bucket == host else bucket


def _port(of: SplitResult) -> int | None:
    return of.port or _PORTS.get(of.scheme)
