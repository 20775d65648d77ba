"""One request after the other to S3, each tried again while the server is away."""

from __future__ import annotations

import atexit
import functools
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final, TypeVar

import boto3
from botocore.config import Config

from catalog.scratch import ScratchDirectory
from catalog.storages.repeating import Failed, repeated
from catalog.storages.s3.access import S3Access, no_address
from catalog.storages.s3.failures import FAILURES, failure, is_transient, said_of
from catalog.this_machine import is_in_clear
from tableformat.errors import RefusedError

__all__ = ["Requests"]

T = TypeVar("T")
_CONNECTIONS: Final = 32
_REGION: Final = "us-east-1"
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Requests:
    """Asks S3 as `access` says. Once `stopped` is set, nothing is tried again."""

    access: S3Access
    stopped: Event = field(default_factory=Event, compare=False)

    @property
    def client(self) -> Any:
        """boto3's client: one for each access, shared by the threads of a process."""
        return _client(self.access, os.getpid())

    def ask(self, what: str, location: str, request: Callable[[Any], T]) -> T:
        """Return what a request of the client returns; it may be sent more than once.

        Args:
            what: what is tried, as it follows "Cannot".
            location: of the object, for messages.
            request: asks the client; its exceptions are boto3's.

        Raises:
            DestinationError: it is refused, or the server stays away for too long.
        """

        def failed(error: Exception) -> Failed:
            said = self.access.masked(said_of(error))
            return Failed(said, is_transient(error), failure(what, location, error, self.access))

        return repeated(
            lambda: request(self.client),
            doing=f"{what} {location}",
            failures=FAILURES,
            failed=failed,
            retry_for=self.access.retry_for,
            stopped=self.stopped,
        )


# The process is part of the key: a connection must not be shared with a fork.
@functools.lru_cache(maxsize=16)
def _client(access: S3Access, process: int) -> Any:  # noqa: ARG001  see above
    session = boto3.session.Session(
        aws_access_key_id=access.access_key,
        aws_secret_access_key=access.secret_key,
        aws_session_token=access.token,
        region_name=access.region,
        profile_name=access.profile,
    )
    style = "virtual" if access.virtual_hosts else "path" if access.endpoint else "auto"
    config = Config(
        connect_timeout=access.connect_timeout,
        read_timeout=access.read_timeout,
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=_CONNECTIONS,
        tcp_keepalive=True,
        s3={"addressing_style": style},
        proxies={"http": access.proxy, "https": access.proxy} if access.proxy else None,
        # Ours go with every upload; the SDK's own form of them is refused by older servers.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_supported",
    )
    try:
        client = session.client(
            "s3",
            endpoint_url=access.endpoint,
            region_name=session.region_name or _REGION,
            verify=None if access.ca is None else _file_of(access.ca),
            config=config,
        )
    except ValueError as error:
        # It takes fewer host names than an address may have, none with an underscore.
        raise no_address() from error
    if is_in_clear(access.endpoint or ""):
        _tell_of_http(access.endpoint)
    if access.endpoint is None and is_in_clear(client.meta.endpoint_url):
        message = (
            "Cannot use the S3 endpoint of ~/.aws/config: it is http, where everybody on the way "
            "reads the rows. Write it as s3.endpoint of the catalog, where http can be allowed."
        )
        raise RefusedError(message)
    return client


@functools.cache
def _tell_of_http(endpoint: str | None) -> None:
    """Warn of what was allowed, once in a process, whoever named it: the catalog, a table ..."""
    _LOGGER.warning(
        "%s is not encrypted: everybody on the way reads and can change the rows.", endpoint
    )


@functools.cache
def _file_of(authorities: str) -> str:
    """Return a file with the authorities to trust, which boto3 takes from a file only."""
    scratch = ScratchDirectory("s3")
    atexit.register(scratch.close)
    file = scratch.path / "authorities.pem"
    file.write_text(authorities)
    return str(file)
