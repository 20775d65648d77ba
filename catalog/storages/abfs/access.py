"""Defines the settings of Azure Blob Storage, from PyIceberg's properties; executors get them, too.

A location names the container and the account's host, as in Hadoop and Iceberg:
abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH. The credentials are properties
(`adls.account-key`, `adls.sas-token`, `adls.token`, `adls.connection-string`), else variables of
the environment, as for Azure's own tools. A REST catalog vends a token for one account
(`adls.sas-token.ACCOUNT`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from catalog.network import DEFAULT_TIME_OUTS, INSECURE, TimeOuts, is_in_clear, is_true
from catalog.storages.access import Place, authorities, refuse_http, text_of, without
from tableformat.errors import RefusedError, UnsupportedError, UsageError

__all__ = ["ENDPOINT", "NAME", "VARIABLES", "AbfsAccess", "account_of", "endpoint_of_connection"]

NAME: Final = "Azure Blob Storage"
ENDPOINT: Final = "adls.connection-string"
_ACCOUNT: Final = "adls.account-name"
_HOST: Final = "adls.account-host"
_SAS: Final = "adls.sas-token"
_SUFFIX: Final = "core.windows.net"
_AZURE_DOMAINS: Final = (
    *(_SUFFIX, "core.usgovcloudapi.net", "core.chinacloudapi.cn", "core.cloudapi.de"),
    *("storage.azure.net", "fabric.microsoft.com"),
)
"""The domains of Azure's own hosts."""
_ON_HTTPS: Final = "use adls.connection-string with its BlobEndpoint"
_BY_ENTRA: Final = "get a token (az account get-access-token) and give it as adls.token"
_ENVIRONMENT: Final[Mapping[str, str]] = {
    ENDPOINT: "AZURE_STORAGE_CONNECTION_STRING",
    _ACCOUNT: "AZURE_STORAGE_ACCOUNT",
    "adls.account-key": "AZURE_STORAGE_KEY",
    _SAS: "AZURE_STORAGE_SAS_TOKEN",
}
_OF_CONNECTION: Final[Mapping[str, str]] = {
    "accountname": _ACCOUNT,
    "accountkey": "adls.account-key",
    "sharedaccesssignature": _SAS,
    "blobendpoint": "endpoint",
    "endpointsuffix": "suffix",
    "defaultendpointsprotocol": "protocol",
}
VARIABLES: Final = tuple(_ENVIRONMENT.values())
"""Variables of the environment, some of which have secrets."""
_REFUSED: Final[Mapping[str, str]] = {
    "adls.credential": _BY_ENTRA,
    "adls.tenant-id": _BY_ENTRA,
    "adls.client-id": _BY_ENTRA,
    "adls.client-secret": _BY_ENTRA,
    "adls.anon": "an export writes, which needs credentials",
    "adls.blob-storage-authority": _ON_HTTPS,
    "adls.dfs-storage-authority": _ON_HTTPS,
    "adls.blob-storage-scheme": _ON_HTTPS,
    "adls.dfs-storage-scheme": _ON_HTTPS,
}


@dataclass(frozen=True, slots=True)
class AbfsAccess:
    """The address and the credentials of an account: one of `key`, `sas` and `token`.

    `key` is the account's, in base64; `sas` a shared access signature, as a query; `token` one of
    Entra. `ca` is a PEM text. A request is retried for `retry_for` seconds during an outage.
    Neither repr nor str shows a secret.
    """

    endpoint: str
    account: str
    key: str | None = field(default=None, repr=False)
    sas: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)
    connect_timeout: float = DEFAULT_TIME_OUTS.connect
    read_timeout: float = DEFAULT_TIME_OUTS.read
    retry_for: float = DEFAULT_TIME_OUTS.retry_for

    @classmethod
    def of(
        cls,
        location: str,
        properties: Mapping[str, Any],
        *,
        environment: Mapping[str, str],
        time_outs: TimeOuts = DEFAULT_TIME_OUTS,
        allow_insecure: bool = False,
    ) -> AbfsAccess:
        """Read the settings from a location, and the properties of a catalog or a table's `FileIO`.

        Args:
            location: in the account.
            properties: PyIceberg's.
            environment: for credentials and authorities that the properties lack.
            time_outs: of every request.
            allow_insecure: whether http to another machine is allowed.

        Raises:
            RefusedError: the endpoint is http, and that is not allowed; or the location's host
                is not Azure's, and no configuration names it.
            UnsupportedError: a property would have no effect.
            NotFoundError: the file of authorities cannot be read.
            UsageError: a value is malformed, or there are no credentials.
        """
        _refuse(properties)
        given = _given(properties, environment)
        host = account_of(location)[1]
        account = _account(location, host, given)
        endpoint = _endpoint(given, account, host)
        _refuse_other_host(location, host, given, properties)
        if is_in_clear(endpoint) and not (allow_insecure or is_true(environment.get(INSECURE))):
            raise refuse_http(NAME, endpoint)
        key, sas, token = _credentials(location, given, _vended_sas(properties, account, host))
        return cls(
            endpoint=endpoint,
            account=account,
            key=key,
            sas=sas,
            token=token,
            ca=authorities(NAME, properties, environment),
            connect_timeout=time_outs.connect,
            read_timeout=time_outs.read,
            retry_for=time_outs.retry_for,
        )

    @property
    def is_vended(self) -> bool:
        """Whether a catalog may have vended the credentials, and may vend new ones."""
        return self.key is None

    def masked(self, text: str) -> str:
        """Return a text with its secrets masked."""
        return without(text, self.key, self.sas, self.token)


def account_of(location: str) -> tuple[str, str]:
    """Return the container of a location, and the account's host, '' if it has none.

    Raises:
        UsageError: it names no container.
    """
    container, _, host = Place.below(location).bucket.partition("@")
    return container, host


def endpoint_of_connection(text: str) -> tuple[str, str]:
    """Return the account of a connection string, and the address of its blobs.

    Raises:
        UsageError: it is malformed; the message shows nothing of it.
    """
    given = _connection(text)
    account = given.get(_ACCOUNT, "")
    return account, _endpoint(given, account, "")


def _refuse(properties: Mapping[str, Any]) -> None:
    for name, instead in _REFUSED.items():
        given = text_of(properties, name)
        if given and given.lower() not in ("false", "https"):
            message = f"Cannot use {NAME} with the property {name}: it has no effect here. "
            raise UnsupportedError(f"{message}Leave it out: {instead}.")


def _has_credentials(properties: Mapping[str, Any]) -> bool:
    """Whether the properties have credentials; then the environment is ignored."""
    names = ("adls.account-key", "adls.token", _SAS)
    return text_of(properties, *names) is not None or any(
        name.startswith(f"{_SAS}.") for name in properties
    )


def _given(properties: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the account and credentials in the properties, else in the environment.

    Raises:
        UsageError: the connection string is malformed.
    """
    names = (_ACCOUNT, _HOST, "adls.account-key", _SAS, "adls.token")
    found = {name: text for name in names if (text := text_of(properties, name))}
    connection, from_environment = text_of(properties, ENDPOINT), dict[str, str]()
    if connection is None and not _has_credentials(properties):
        from_environment = {n: t for n, v in _ENVIRONMENT.items() if (t := environment.get(v))}
        connection = from_environment.pop(ENDPOINT, None)
    return {**from_environment, **found, **_connection(connection)}


def _account(location: str, host: str, given: Mapping[str, str]) -> str:
    """Return the name of the account.

    Raises:
        UsageError: it is missing, or two names differ.
    """
    account = given.get(_ACCOUNT) or host.partition(".")[0]
    if not account:
        message = (
            f"Cannot use {location}: it names no account. Write "
            f"abfss://CONTAINER@ACCOUNT.dfs.{_SUFFIX}/PATH, or {_ACCOUNT}."
        )
        raise UsageError(message)
    if host and host.partition(".")[0] != account:
        message = (
            f"Cannot use {location}: the credentials belong to the account {account!r}. Give those "
            "of the account in the location."
        )
        raise UsageError(message)
    return account


def _credentials(
    location: str, given: Mapping[str, str], vended: str | None
) -> tuple[str | None, str | None, str | None]:
    """Return the account's key, a signature, or a token.

    Raises:
        UsageError: there is none, or the key is malformed.
    """
    if sas := vended or given.get(_SAS):
        return None, sas.removeprefix("?"), None
    if token := given.get("adls.token"):
        return None, None, token
    if key := given.get("adls.account-key"):
        return _key(key), None, None
    message = (
        f"Cannot use {location}: there are no credentials. Give adls.account-key, {_SAS}, "
        f"adls.token or {ENDPOINT} in the catalog's configuration, or set "
        f"{_ENVIRONMENT[ENDPOINT]}."
    )
    raise UsageError(message)


def _connection(text: str | None) -> dict[str, str]:
    """Return the members of a connection string.

    Raises:
        UsageError: it is malformed; the message shows nothing of it.
    """
    found = {}
    for member in (text or "").split(";"):
        name, equals, value = member.strip().partition("=")
        if not name:
            continue
        if not equals:
            message = (
                f"Cannot use {NAME}: {ENDPOINT} is no connection string. Copy it from the "
                "account's access keys: AccountName=...;AccountKey=...;EndpointSuffix=..."
            )
            raise UsageError(message)
        if known := _OF_CONNECTION.get(name.lower()):
            found[known] = value
    return found


def _endpoint(given: Mapping[str, str], account: str, host: str) -> str:
    """Return the address of the account's blobs.

    Raises:
        UsageError: the given address is malformed.
    """
    if endpoint := given.get("endpoint"):
        found = urlsplit(endpoint)
        # The text before an @ may be a secret, so the message does not show the address.
        if found.scheme not in ("http", "https") or not found.hostname or "@" in found.netloc:
            message = (
                f"Cannot use {NAME}: BlobEndpoint of {ENDPOINT} is no address of a server. Write "
                "BlobEndpoint=https://HOST[:PORT], or leave it out for Azure's."
            )
            raise UsageError(message)
        return endpoint.rstrip("/")
    named = given.get(_HOST) or host.replace(".dfs.", ".blob.", 1)
    named = named or f"{account}.blob.{given.get('suffix') or _SUFFIX}"
    return f"{given.get('protocol') or 'https'}://{named}"


def _refuse_other_host(
    location: str, host: str, given: Mapping[str, str], properties: Mapping[str, Any]
) -> None:
    """Refuse a location on an unknown host, which must get no credentials.

    A table may name any host in its location.

    Raises:
        RefusedError: the host is not Azure's, and neither the configuration nor a server names it.
    """
    if not host or given.get("endpoint") or given.get(_HOST):
        return
    warehouse = text_of(properties, "warehouse") or ""
    named = {account_of(warehouse)[1]} if warehouse.startswith(("abfs://", "abfss://")) else set()
    # A name without a dot is an account and not a host.
    vended = "." in host and text_of(properties, *(f"{_SAS}.{one}" for one in _hosts(host)))
    domains = (*_AZURE_DOMAINS, *((given["suffix"],) if given.get("suffix") else ()))
    if host in named or vended or any(host.endswith(f".{domain}") for domain in domains):
        return
    message = (
        f"Cannot use {location}: the host {host} is not Azure's, and the catalog's configuration "
        f"does not name it, so that it gets no credentials. Write {_HOST}: {host} into the "
        "configuration, if it is right."
    )
    raise RefusedError(message)


def _hosts(host: str) -> tuple[str, ...]:
    return (host, host.replace(".dfs.", ".blob.", 1)) if host else ()


def _vended_sas(properties: Mapping[str, Any], account: str, host: str) -> str | None:
    """Return the signature that a REST catalog vends for the account, under any of its names."""
    return text_of(properties, *(f"{_SAS}.{name}" for name in (*_hosts(host), account)))


def _key(given: str) -> str:
    """Return an account's key.

    Raises:
        UsageError: it is malformed.
    """
    try:
        base64.b64decode(given, validate=True)
    except binascii.Error as error:
        message = (
            f"Cannot use {NAME}: adls.account-key is not in base64. Copy it from the account's "
            "access keys."
        )
        raise UsageError(message) from error
    return given
