"""The location of an HTTP address of S3: `s3://bucket/path`, if it is the S3 that is reached here.

ClickHouse names objects by the address of their server, we by bucket and path: which server that
is, the environment says (`AWS_ENDPOINT_URL`), and without it it is Amazon's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

__all__ = ["s3_location"]

_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_AMAZON: Final = re.compile(r"(?:(?P<bucket>.+)\.)?s3(?:[.-][a-z0-9-]+)?\.amazonaws\.com(?:\.cn)?")
_PATTERN: Final = frozenset("*?{}")


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
