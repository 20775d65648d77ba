"""Sends requests to S3, retries them while the server is away, and maps S3 errors to ours.

- `Requests` never retries once `stopped` is set.
- `is_transient` decides whether a request may succeed later.
- `failure` returns the error with the advice; it never contains a secret.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ChecksumError,
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    SSLError,
)
from botocore.exceptions import ConnectionError as NotConnectedError
from botocore.httpsession import URLLib3SSLError as BrokenTlsError

from catalog.network import is_in_clear
from catalog.processes import ScratchDirectory
from catalog.retry import Failed, repeated
from catalog.storages.s3.access import ALLOW_INSECURE, S3Access, no_address
from tableformat.errors import (
    DestinationError,
    EndedCredentialsError,
    LastingError,
    MissingError,
    RefusedError,
)

__all__ = ["FAILURES", "Requests", "code_of", "failure", "is_missing", "is_transient", "said_of"]

FAILURES: Final = (BotoCoreError, ClientError, BrokenTlsError)
"""What a request raises; the last when bytes of an answer's body changed on their way."""
_NOT_IMPLEMENTED: Final = 501
# The answer to HEAD has no text that could say more.
_MISSING: Final = ("404", "NoSuchKey")
_TRANSIENT: Final = frozenset(
    {
        "429",
        "ConditionalRequestConflict",
        "OperationAborted",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeoutException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        # The bytes changed on their way: they are sent again.
        "BadDigest",
        "XAmzContentChecksumMismatch",
        "XAmzContentSHA256Mismatch",
    }
)
_NO_TLS: Final = "WRONG_VERSION_NUMBER"
"""OpenSSL's word for an answer that is no TLS at all."""
_ALWAYS: Final = (
    ChecksumError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NotConnectedError,
)
_WRONG_KEY: Final = (
    "the key is wrong: set s3.access-key-id and s3.secret-access-key of the catalog, or the "
    "credentials of the environment where it has none"
)
_EXPIRED: Final = (
    "the credentials have ended: get new ones, which a catalog that lends them does by itself; "
    "finished files are kept"
)
_RIGHTS: Final = (
    "grant s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject, "
    "s3:AbortMultipartUpload, s3:ListBucketMultipartUploads and s3:ListMultipartUploadParts there"
)
_ADVICE: Final[Mapping[str, str]] = {
    "InvalidAccessKeyId": _WRONG_KEY,
    "SignatureDoesNotMatch": _WRONG_KEY,
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidToken": _EXPIRED,
    "InvalidTokenId": _EXPIRED,
    "AccessDenied": _RIGHTS,
    "AllAccessDisabled": _RIGHTS,
    "403": _RIGHTS,
    "NoSuchBucket": "make the bucket, or correct the warehouse's location",
    "RequestTimeTooSkewed": "set this host's clock",
    "NotImplemented": "the server lacks what an export needs, conditional writes above all; use "
    "another one",
}
_UNKNOWN: Final = "check the catalog's s3 properties, and rights and space there"
_NO_CREDENTIALS: Final = (
    "set s3.access-key-id and s3.secret-access-key of the catalog, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY"
)


def code_of(error: Exception) -> str:
    """Return the code of a server's refusal, '' where no server answered."""
    return str(error.response["Error"].get("Code", "")) if isinstance(error, ClientError) else ""


def is_missing(error: Exception) -> bool:
    """Whether a server answered that there is no such object."""
    return code_of(error) in _MISSING


def is_transient(error: Exception) -> bool:
    """Whether a request may succeed later: the server is away, overloaded, or was cut off."""
    if isinstance(error, ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        over = status >= 500 and status != _NOT_IMPLEMENTED  # noqa: PLR2004  the servers' own faults
        return over or code_of(error) in _TRANSIENT
    if isinstance(error, (SSLError, BrokenTlsError)):
        # A certificate that is not trusted stays so, and so does a server without TLS; a connection
        # that was cut does not.
        said = str(error).upper()
        return "CERTIFICATE" not in said and _NO_TLS not in said
    return isinstance(error, _ALWAYS)


def failure(what: str, location: str, error: Exception, access: S3Access) -> DestinationError:
    """Return the error of a request; nothing in it is secret.

    It is one that lasts where the server has refused for good, and where it was waited for in vain.

    Args:
        what: what was tried, as it follows "Cannot".
        location: of the object.
        error: what the request raised.
        access: whose secrets do not show.
    """
    said = access.masked(said_of(error)).rstrip(". ")
    message = f"Cannot {what} {location}: {said}."
    if is_missing(error):
        return MissingError(
            f"{message} It was removed or moved away: put it back from a copy or an older version."
        )
    if is_transient(error):
        return LastingError(
            f"{message} The storage did not recover within {access.retry_for:g} s (--retry-for). "
            "Check it and the network; finished files are kept, and it is safe to run again."
        )
    # Some servers, MinIO among them, do not know keys with a token any more when they have ended.
    ended = access.token is not None and code_of(error) == "InvalidAccessKeyId"
    advice = _EXPIRED if ended else _ADVICE.get(code_of(error)) or _other_advice(error)
    kind = (
        EndedCredentialsError
        if advice == _EXPIRED
        else DestinationError
        if advice == _UNKNOWN
        else LastingError
    )
    return kind(f"{message} {advice[:1].upper()}{advice[1:]}; it is safe to run again.")


def said_of(error: Exception) -> str:
    """Return what a request failed with, in one line; secrets may stand in it."""
    if isinstance(error, ClientError):
        found: Mapping[str, Any] = error.response["Error"]
        code, text = found.get("Code", "unknown"), found.get("Message", "")
        return f"{code}: {text}" if text and text != code else str(code)
    if isinstance(error, EndpointConnectionError) and (why := _unknown_host(error)) is not None:
        host = urlsplit(str(error.kwargs["endpoint_url"])).hostname
        return f"the host {host} cannot be found: {why.strerror}"
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _unknown_host(error: BaseException) -> socket.gaierror | None:
    """Return the failed look-up of a host's name among the causes of an error."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, socket.gaierror):
        cause = cause.__cause__ or cause.__context__
    return cause


def _other_advice(error: Exception) -> str:
    if isinstance(error, SSLError) and _NO_TLS in str(error).upper():
        return (
            "the server speaks http there: name its https port, or write http:// in s3.endpoint "
            f"and allow it ({ALLOW_INSECURE}: true)"
        )
    if isinstance(error, SSLError):
        return (
            "name the authority that signed its certificate, a PEM file, as mergeberg.ca-file of "
            "the catalog or in SSL_CERT_FILE"
        )
    name = type(error).__name__
    if "Credential" in name or "Profile" in name:
        return _NO_CREDENTIALS
    return _UNKNOWN


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
