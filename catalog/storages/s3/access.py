"""Defines the settings of S3, from PyIceberg's properties; executors get them, too.

A catalog has PyIceberg's properties (`s3.endpoint`, `s3.access-key-id` ...); a REST catalog adds
those of a table, which may expire. boto3 finds the rest: in the environment, in ~/.aws, or from the
machine's role.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from catalog.network import DEFAULT_TIME_OUTS, INSECURE, TimeOuts, is_in_clear, is_true
from catalog.storages.access import (
    ALLOW_INSECURE,
    CA_FILE,
    authorities,
    refuse_http,
    seconds_of,
    text_of,
    without,
)
from tableformat.errors import UnsupportedError, UsageError

__all__ = ["ALLOW_INSECURE", "CA_FILE", "S3Access", "no_address"]

_S3: Final = "S3"
_KEYS: Final = ("access-key-id", "secret-access-key", "session-token", "region", "profile-name")
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REFUSED: Final[Mapping[str, str]] = {
    "role-arn": "name a profile of ~/.aws/config that has role_arn, as s3.profile-name",
    "anonymous": "an export writes, which needs credentials",
    "signer": "requests are signed here; let the catalog vend credentials",
    "server-side-encryption": "set the bucket's default encryption",
    "sse-kms-key-id": "set the bucket's default encryption",
}


@dataclass(frozen=True, slots=True)
class S3Access:
    """The address and the credentials of S3; boto3 finds what is None.

    `ca` is a PEM text. A request is retried for `retry_for` seconds during an outage. Neither repr
    nor str shows a secret.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    profile: str | None = None
    proxy: str | None = field(default=None, repr=False)
    virtual_hosts: bool = False
    ca: str | None = field(default=None, repr=False)
    connect_timeout: float = DEFAULT_TIME_OUTS.connect
    read_timeout: float = DEFAULT_TIME_OUTS.read
    retry_for: float = DEFAULT_TIME_OUTS.retry_for

    @classmethod
    def of(
        cls,
        properties: Mapping[str, Any],
        *,
        environment: Mapping[str, str],
        time_outs: TimeOuts = DEFAULT_TIME_OUTS,
        allow_insecure: bool = False,
    ) -> S3Access:
        """Read the settings from the properties of a catalog, or of a table's `FileIO`.

        Args:
            properties: PyIceberg's.
            environment: for the endpoint and the authorities, if the properties lack them.
            time_outs: the defaults of the properties' time-outs.
            allow_insecure: whether http to another machine is allowed.

        Raises:
            RefusedError: the endpoint is http, and that is not allowed.
            UnsupportedError: a property would have no effect.
            NotFoundError: the file of authorities cannot be read.
            UsageError: a value is malformed.
        """
        for name, instead in _REFUSED.items():
            given = text_of(properties, f"s3.{name}", f"client.{name}")
            if given and not (name == "anonymous" and not is_true(given)):
                message = f"Cannot use S3 with the property s3.{name}: it has no effect here. "
                raise UnsupportedError(f"{message}Leave it out: {instead}.")
        key, secret, token, region, profile = (
            text_of(properties, f"s3.{name}", f"client.{name}") for name in _KEYS
        )
        if (key is None) != (secret is None):
            message = (
                "Cannot log in to S3: the catalog has one of s3.access-key-id and "
                "s3.secret-access-key. Give both, or none for the credentials of the environment."
            )
            raise UsageError(message)
        return cls(
            endpoint=_endpoint(
                text_of(properties, "s3.endpoint") or text_of(environment, *_ENDPOINTS),
                allow_insecure=allow_insecure or is_true(environment.get(INSECURE)),
            ),
            region=region,
            access_key=key,
            secret_key=secret,
            token=token,
            profile=profile,
            proxy=text_of(properties, "s3.proxy-uri"),
            virtual_hosts=is_true(text_of(properties, "s3.force-virtual-addressing")),
            ca=authorities(_S3, properties, environment),
            connect_timeout=seconds_of(_S3, properties, "s3.connect-timeout", time_outs.connect),
            read_timeout=seconds_of(_S3, properties, "s3.request-timeout", time_outs.read),
            retry_for=time_outs.retry_for,
        )

    def masked(self, text: str) -> str:
        """Return a text with its secrets masked."""
        return without(text, self.secret_key, self.token, self.proxy)


def no_address() -> UsageError:
    """Return the error for a malformed endpoint."""
    return UsageError(
        "Cannot use S3: s3.endpoint is no address of a server. Write "
        "s3.endpoint: https://HOST[:PORT], and credentials as s3.access-key-id and "
        "s3.secret-access-key."
    )


def _endpoint(given: str | None, *, allow_insecure: bool) -> str | None:
    if given is None:
        return None
    found = urlsplit(given)
    # The text before an @ may be a secret, so the message does not show the address.
    if found.scheme not in ("http", "https") or not found.hostname or "@" in found.netloc:
        raise no_address()
    if is_in_clear(given) and not allow_insecure:
        raise refuse_http(_S3, given)
    return given
