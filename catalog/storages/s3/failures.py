"""What S3 fails with: whether to go on, and the error of ours that says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ChecksumError,
    ClientError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    SSLError,
)
from botocore.exceptions import ConnectionError as NotConnectedError

from catalog.storages.s3.access import S3Access
from tableformat.errors import DestinationError

__all__ = ["FAILURES", "code_of", "failure", "is_transient"]

FAILURES: Final = (BotoCoreError, ClientError)
"""What a request raises."""
_NOT_IMPLEMENTED: Final = 501
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
_EXPIRED: Final = "the credentials have ended: get new ones; finished files are kept"
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
_NO_CREDENTIALS: Final = (
    "set s3.access-key-id and s3.secret-access-key of the catalog, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY"
)


def code_of(error: Exception) -> str:
    """Return the code of a server's refusal, '' where no server answered."""
    return str(error.response["Error"].get("Code", "")) if isinstance(error, ClientError) else ""


def is_transient(error: Exception) -> bool:
    """Whether a request may succeed later: the server is away, overloaded, or was cut off."""
    if isinstance(error, ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        over = status >= 500 and status != _NOT_IMPLEMENTED  # noqa: PLR2004  the servers' own faults
        return over or code_of(error) in _TRANSIENT
    if isinstance(error, SSLError):
        # A certificate that is not trusted stays so; a connection that was cut does not.
        return "CERTIFICATE" not in str(error).upper()
    return isinstance(error, _ALWAYS)


def failure(what: str, location: str, error: Exception, access: S3Access) -> DestinationError:
    """Return the error of a request; nothing in it is secret.

    Args:
        what: what was tried, as it follows "Cannot".
        location: of the object.
        error: what the request raised.
        access: whose secrets do not show.
    """
    said = access.masked(_said(error)).rstrip(". ")
    message = f"Cannot {what} {location}: {said}."
    if is_transient(error):
        return DestinationError(
            f"{message} The storage did not recover within {access.retry_for:g} s (--retry-for). "
            "Check it and the network; finished files are kept, and it is safe to run again."
        )
    advice = _ADVICE.get(code_of(error)) or _other_advice(error)
    return DestinationError(f"{message} {advice[:1].upper()}{advice[1:]}; it is safe to run again.")


def _said(error: Exception) -> str:
    if isinstance(error, ClientError):
        found: Mapping[str, Any] = error.response["Error"]
        code, text = found.get("Code", "unknown"), found.get("Message", "")
        return f"{code}: {text}" if text and text != code else str(code)
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _other_advice(error: Exception) -> str:
    if isinstance(error, SSLError):
        return (
            "name the authority that signed its certificate, a PEM file, as mergeberg.ca-file of "
            "the catalog or in SSL_CERT_FILE"
        )
    name = type(error).__name__
    if "Credential" in name or "Profile" in name:
        return _NO_CREDENTIALS
    return "check the catalog's s3 properties, and rights and space there"
