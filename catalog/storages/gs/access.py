"""Defines the settings of Google Cloud Storage, which executors get, too.

A catalog has PyIceberg's properties (`gcs.service.host`, `gcs.oauth2.token`); a REST catalog adds
those of a table, which may expire. Without a token Google's library finds the credentials: the
service account whose key file GOOGLE_APPLICATION_CREDENTIALS names, which is read where the catalog
is opened, else the default of each host, such as the machine's account.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from catalog.network import DEFAULT_TIME_OUTS, INSECURE, TimeOuts, is_in_clear, is_true
from catalog.storages.access import authorities, refuse_http, text_of, without
from tableformat.errors import NotFoundError, UnsupportedError, UsageError

__all__ = ["ENDPOINT", "NAME", "GsAccess"]

NAME: Final = "Google Cloud Storage"
ENDPOINT: Final = "gcs.service.host"
_GOOGLE: Final = "https://storage.googleapis.com"
_EMULATOR: Final = "STORAGE_EMULATOR_HOST"
_KEY_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_REFUSED: Final[Mapping[str, str]] = {
    "gcs.requester-pays": "use a bucket that its owner pays for",
    "gcs.user-project": "use a bucket that its owner pays for",
    "gcs.encryption-key": "set the bucket's default encryption",
    "gcs.decryption-key": "set the bucket's default encryption",
    "gcs.impersonate.service-account": f"name it in the file of {_KEY_FILE}",
    "gcs.no-auth": "an export writes, which needs credentials",
}


@dataclass(frozen=True, slots=True)
class GsAccess:
    """The address and the credentials of Google Cloud Storage.

    `token` is an access token, `key` the text of a service account's key file; without both the
    host has the credentials. `ca` is a PEM text. A request is retried for `retry_for` seconds
    during an outage. Neither repr nor str shows a secret.
    """

    endpoint: str = _GOOGLE
    token: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
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
    ) -> GsAccess:
        """Read the settings from the properties of a catalog, or of a table's `FileIO`.

        Args:
            properties: PyIceberg's.
            environment: for the endpoint, credentials and authorities that the properties lack.
            time_outs: of every request.
            allow_insecure: whether http to another machine is allowed.

        Raises:
            RefusedError: the endpoint is http, and that is not allowed.
            UnsupportedError: a property would have no effect.
            NotFoundError: the file of authorities or of credentials cannot be read.
            UsageError: a value is malformed.
        """
        for name, instead in _REFUSED.items():
            given = text_of(properties, name)
            if given and given.lower() != "false":
                message = f"Cannot use {NAME} with the property {name}: it has no effect here. "
                raise UnsupportedError(f"{message}Leave it out: {instead}.")
        token = text_of(properties, "gcs.oauth2.token")
        return cls(
            endpoint=_endpoint(
                text_of(properties, ENDPOINT) or text_of(environment, _EMULATOR) or _GOOGLE,
                allow_insecure=allow_insecure or is_true(environment.get(INSECURE)),
            ),
            token=token,
            key=None if token else _key(environment.get(_KEY_FILE)),
            ca=authorities(NAME, properties, environment),
            connect_timeout=time_outs.connect,
            read_timeout=time_outs.read,
            retry_for=time_outs.retry_for,
        )

    @property
    def is_anonymous(self) -> bool:
        """Whether requests have no credentials; only servers on this host (emulators) allow it."""
        host = urlsplit(self.endpoint).hostname or ""
        try:
            is_local = ipaddress.ip_address(host).is_loopback
        except ValueError:
            is_local = host == "localhost"
        return is_local and self.token is None and self.key is None

    @property
    def is_vended(self) -> bool:
        """Whether a catalog may have vended the token, and may vend a new one."""
        return self.token is not None

    def masked(self, text: str) -> str:
        """Return a text with its secrets masked."""
        return without(text, self.token)


def _endpoint(given: str, *, allow_insecure: bool) -> str:
    found = urlsplit(given)
    # The text before an @ may be a secret, so the message does not show the address.
    if found.scheme not in ("http", "https") or not found.hostname or "@" in found.netloc:
        message = (
            f"Cannot use {NAME}: {ENDPOINT} is no address of a server. Write "
            f"{ENDPOINT}: https://HOST[:PORT], or leave it out for Google's."
        )
        raise UsageError(message)
    if is_in_clear(given) and not allow_insecure:
        raise refuse_http(NAME, given)
    return given.rstrip("/")


def _key(path: str | None) -> str | None:
    """Return the text of a service account's key file; None for other kinds of credentials."""
    if not path:
        return None
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        message = (
            f"Cannot use {NAME}: {_KEY_FILE} names {path}, which cannot be read: {error.strerror}. "
            "Name a file of credentials, or give a token (gcs.oauth2.token)."
        )
        raise NotFoundError(message) from error
    try:
        kind = json.loads(text)["type"]
    except (ValueError, KeyError, TypeError):
        return text
    return text if kind == "service_account" else None
