"""Sends requests to S3, retries them while the server is away, and maps S3 errors to ours.

- `Requests` never retries once `stopped` is set.
- `is_transient` decides whether a request may succeed later.
- `failure` returns the error with the advice; it never contains a secret.
"""

from __future__ import annotations

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
from catalog.processes import ScratchDirectory, at_end
from catalog.retry import Failed, repeated
from catalog.storages.s3.access import ALLOW_INSECURE, S3Access, no_address
from tableformat.errors import (
    DeniedError,
    DestinationError,
    EndedCredentialsError,
    LastingError,
    MissingError,
    RefusedError,
)
from tableformat.messages import Option

__all__ = ["FAILURES", "Requests", "code_of", "error_text", "failure", "is_missing", "is_transient"]

FAILURES: Final = (BotoCoreError, ClientError, BrokenTlsError)
"""The exceptions of a request; the last one is for bytes that changed in transit."""
_FAILED: Final = 300
_NOT_IMPLEMENTED: Final = 501
# A response to HEAD has no body, so its code is the status.
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
        # The bytes changed in transit.
        "BadDigest",
        "XAmzContentChecksumMismatch",
        "XAmzContentSHA256Mismatch",
    }
)
_NO_TLS: Final = "WRONG_VERSION_NUMBER"
"""OpenSSL's reason for a response that is not TLS."""
_TRANSIENT_ERRORS: Final = (
    ChecksumError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NotConnectedError,
)


# What S3 and the stores with its interface send with each success of a request that we send; None
# for a success without a body.
_SENT: Final[Mapping[str, str | None]] = {
    "AbortMultipartUpload": None,
    "CompleteMultipartUpload": "ETag",
    "CreateMultipartUpload": "UploadId",
    "DeleteObject": None,
    "GetObject": "ETag",
    "HeadObject": "ETag",
    "ListMultipartUploads": "IsTruncated",
    "ListObjectsV2": "IsTruncated",
    "ListParts": "IsTruncated",
    "PutObject": "ETag",
    "UploadPart": "ETag",
    "UploadPartCopy": "CopyPartResult",
}


class ForeignResponseError(HTTPClientError):  # type: ignore[misc]  # boto3 has no types
    """A success that is not S3's, such as the page of a proxy: nothing was done or read."""

    fmt = "{status}: something else than S3 responded to {operation}, with {type}"


def _check_is_s3(http_response: Any, parsed: Mapping[str, Any], model: Any, **_: Any) -> None:
    """Check that a success is one of S3; boto3 takes any text for one.

    Raises:
        ForeignResponseError: it is not.
    """
    if http_response.status_code >= _FAILED:
        return
    needed = _SENT[model.name]
    if needed in parsed if needed else not http_response.content:
        return
    raise ForeignResponseError(
        status=http_response.status_code,
        operation=model.name,
        type=http_response.headers.get("Content-Type", "no type"),
    )


@dataclass(frozen=True, slots=True)
class _Advice:
    """The remedy for a refusal of a server, and the kind of its error."""

    text: str
    kind: type[DestinationError] = LastingError


_WRONG_KEY: Final = _Advice(
    "the key is wrong: set s3.access-key-id and s3.secret-access-key of the catalog, or the "
    "credentials of the environment where it has none"
)
_EXPIRED: Final = _Advice(
    "the credentials have expired: get new ones (a catalog that vends them renews them); finished "
    "files are kept",
    EndedCredentialsError,
)
_RIGHTS: Final = _Advice(
    "grant s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject, "
    "s3:AbortMultipartUpload, s3:ListBucketMultipartUploads and s3:ListMultipartUploadParts there",
    DeniedError,
)
_ADVICE: Final[Mapping[str, _Advice]] = {
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
    "MethodNotAllowed": _RIGHTS,
    "405": _RIGHTS,
    "NoSuchBucket": _Advice("create the bucket, or correct the warehouse's location"),
    "RequestTimeTooSkewed": _Advice("set this host's clock"),
    "NotImplemented": _Advice(
        "the server lacks what mergeberg needs, conditional writes above all; use another one"
    ),
}
_UNKNOWN: Final = _Advice(
    "check the catalog's s3 properties, and rights and space there", DestinationError
)
_NO_CREDENTIALS: Final = _Advice(
    "set s3.access-key-id and s3.secret-access-key of the catalog, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY"
)


def code_of(error: Exception) -> str:
    """Return the code of a server's error, '' if no server responded."""
    return str(error.response["Error"].get("Code", "")) if isinstance(error, ClientError) else ""


def is_missing(error: Exception) -> bool:
    """Whether a server reports that the object does not exist."""
    return code_of(error) in _MISSING


def is_transient(error: Exception) -> bool:
    """Whether a retry may succeed: the server is down, overloaded, or the connection broke."""
    if isinstance(error, ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        over = status >= 500 and status != _NOT_IMPLEMENTED  # noqa: PLR2004  the servers' own faults
        return over or code_of(error) in _TRANSIENT
    if isinstance(error, (SSLError, BrokenTlsError)):
        # An untrusted certificate or a server without TLS lasts; a broken connection does not.
        summary = str(error).upper()
        return "CERTIFICATE" not in summary and _NO_TLS not in summary
    return isinstance(error, _TRANSIENT_ERRORS)


def failure(what: str, location: str, error: Exception, access: S3Access) -> DestinationError:
    """Return the error of a request, without secrets.

    It is a LastingError if the server refused for good, or did not recover in time.

    Args:
        what: the action as it follows "Cannot " in the message.
        location: of the object.
        error: the exception of the request.
        access: the settings, whose secrets are masked.
    """
    summary = access.masked(error_text(error)).rstrip(". ")
    message = f"Cannot {what} {location}: {summary}."
    if is_missing(error):
        return MissingError(
            f"{message} It was removed or moved away: put it back from a copy or an older version."
        )
    if is_transient(error):
        return LastingError(
            f"{message} The storage did not recover within {access.retry_for:g} s "
            f"({Option.RETRY_FOR}). Check it and the network; finished files are kept, and it is "
            "safe to run again."
        )
    # Some servers, MinIO among them, report expired temporary keys as unknown.
    ended = access.token is not None and code_of(error) == "InvalidAccessKeyId"
    advice = _EXPIRED if ended else _ADVICE.get(code_of(error)) or _other_advice(error)
    remedy = f"{advice.text[:1].upper()}{advice.text[1:]}"
    return advice.kind(f"{message} {remedy}; it is safe to run again.")


def error_text(error: Exception) -> str:
    """Return a request's failure as one line, which may have secrets."""
    if isinstance(error, ClientError):
        found: Mapping[str, Any] = error.response["Error"]
        code, text = found.get("Code", "unknown"), found.get("Message", "")
        return f"{code}: {text}" if text and text != code else str(code)
    if isinstance(error, EndpointConnectionError) and (why := _unknown_host(error)) is not None:
        host = urlsplit(str(error.kwargs["endpoint_url"])).hostname
        return f"the host {host} cannot be found: {why.strerror}"
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _unknown_host(error: BaseException) -> socket.gaierror | None:
    """Return the failed DNS look-up among the causes of an error."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, socket.gaierror):
        cause = cause.__cause__ or cause.__context__
    return cause


def _other_advice(error: Exception) -> _Advice:
    if isinstance(error, SSLError) and _NO_TLS in str(error).upper():
        return _Advice(
            "the server speaks http there: name its https port, or write http:// in s3.endpoint "
            f"and allow it ({ALLOW_INSECURE}: true)"
        )
    if isinstance(error, SSLError):
        return _Advice(
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
    """Sends requests to S3 with the settings `access`. Once `stopped` is set, none is retried."""

    access: S3Access
    stopped: Event = field(default_factory=Event, compare=False)

    @property
    def client(self) -> Any:
        """boto3's client, one for each access, shared by the threads of a process."""
        return _client(self.access, os.getpid())

    def run(self, what: str, location: str, request: Callable[[Any], T]) -> T:
        """Run a request, with retries; return its result.

        Args:
            what: the action as it follows "Cannot " in the message.
            location: of the object, for messages.
            request: sends the request through boto3's client; it may run more than once.

        Raises:
            DestinationError: the request is refused, or the server does not recover in time.
        """

        def failed(error: Exception) -> Failed:
            summary = self.access.masked(error_text(error))
            return Failed(summary, is_transient(error), failure(what, location, error, self.access))

        def sent() -> T:
            try:
                return request(self.client)
            except RecursionError as error:
                # boto3 follows each redirect by a request of its own for the region.
                raise ForeignResponseError(
                    status="3xx", operation=what, type="a redirect to itself"
                ) from error

        return repeated(
            sent,
            doing=f"{what} {location}",
            failures=FAILURES,
            failed=failed,
            retry_for=self.access.retry_for,
            stopped=self.stopped,
        )


# The process id is part of the key: a forked child must not share connections.
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
        # We send checksums with every upload; older servers refuse the SDK's form of them.
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
        # boto3 accepts fewer host names than URLs may have, none with an underscore.
        raise no_address() from error
    for operation in _SENT:
        client.meta.events.register(f"after-call.s3.{operation}", _check_is_s3)
    if is_in_clear(access.endpoint or ""):
        _warn_of_http(access.endpoint)
    if access.endpoint is None and is_in_clear(client.meta.endpoint_url):
        message = (
            "Cannot use the S3 endpoint of ~/.aws/config: it is http, over which anyone on the "
            "network can read the rows. Configure it as s3.endpoint of the catalog, which can "
            "allow http."
        )
        raise RefusedError(message)
    return client


@functools.cache
def _warn_of_http(endpoint: str | None) -> None:
    """Warn about an allowed http endpoint, once in a process."""
    _LOGGER.warning(
        "%s is not encrypted: anyone on the network can read and change the rows.", endpoint
    )


@functools.cache
def _file_of(authorities: str) -> str:
    """Write the authorities to a file, because boto3 takes only a file."""
    scratch = ScratchDirectory("s3")
    at_end(scratch.close)
    file = scratch.path / "authorities.pem"
    file.write_text(authorities)
    return str(file)
