"""Defines the settings of HDFS over WebHDFS, from a catalog's properties; executors get them, too.

A location names the NameNode by its RPC address, hdfs://HOST:8020, as Hadoop's readers need it;
WebHDFS has another port, which a property names. The user is PyIceberg's `hdfs.user`, which a
cluster without Kerberos trusts, or the owner of a delegation token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from catalog.network import DEFAULT_TIME_OUTS, INSECURE, TimeOuts, is_in_clear, is_true
from catalog.storages.access import authorities, refuse_http, text_of, without
from tableformat.errors import UnsupportedError, UsageError

__all__ = ["ENDPOINT", "NAME", "TOKEN", "TOKEN_VARIABLE", "USER", "HdfsAccess"]

NAME: Final = "HDFS"
ENDPOINT: Final = "mergeberg.hdfs.http-address"
TOKEN: Final = "mergeberg.hdfs.delegation-token"  # noqa: S105  a property's name
USER: Final = "hdfs.user"
_ENDPOINT_VARIABLE: Final = "MERGEBERG_HDFS_HTTP_ADDRESS"
TOKEN_VARIABLE: Final = "MERGEBERG_HDFS_DELEGATION_TOKEN"  # noqa: S105  a variable's name
_USER_VARIABLE: Final = "HADOOP_USER_NAME"
_REFUSED: Final[Mapping[str, str]] = {
    "hdfs.host": "write it into the location, hdfs://HOST:PORT/PATH",
    "hdfs.port": "write it into the location, hdfs://HOST:PORT/PATH",
    "hdfs.kerberos_ticket": f"get a delegation token (hdfs fetchdt) and give it as {TOKEN}",
}


@dataclass(frozen=True, slots=True)
class HdfsAccess:
    """The address of WebHDFS, and `user`, or `token`, a delegation token.

    `ca` is a PEM text. A request is retried for `retry_for` seconds during an outage. Neither repr
    nor str shows a secret.
    """

    endpoint: str
    user: str | None = None
    token: str | None = field(default=None, repr=False)
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
    ) -> HdfsAccess:
        """Read the settings from the properties of a catalog, or of a table's `FileIO`.

        Args:
            properties: PyIceberg's, and ours.
            environment: for the address, user, token and authorities that the properties lack.
            time_outs: of every request.
            allow_insecure: whether http to another machine is allowed.

        Raises:
            RefusedError: the address is http, and that is not allowed.
            UnsupportedError: a property would have no effect.
            NotFoundError: the file of authorities cannot be read.
            UsageError: the address or the user is missing, or a value is malformed.
        """
        for name, instead in _REFUSED.items():
            if text_of(properties, name):
                message = f"Cannot use {NAME} with the property {name}: it has no effect here. "
                raise UnsupportedError(f"{message}Leave it out: {instead}.")
        token = text_of(properties, TOKEN) or text_of(environment, TOKEN_VARIABLE)
        user = text_of(properties, USER) or text_of(environment, _USER_VARIABLE)
        if not token and not user:
            message = (
                f"Cannot use {NAME}: no user is configured. Name a user ({USER} of the catalog, or "
                f"{_USER_VARIABLE}), or give a delegation token ({TOKEN}, or {TOKEN_VARIABLE})."
            )
            raise UsageError(message)
        return cls(
            endpoint=_endpoint(
                text_of(properties, ENDPOINT) or text_of(environment, _ENDPOINT_VARIABLE) or "",
                allow_insecure=allow_insecure or is_true(environment.get(INSECURE)),
            ),
            user=None if token else user,
            token=token,
            ca=authorities(NAME, properties, environment),
            connect_timeout=time_outs.connect,
            read_timeout=time_outs.read,
            retry_for=time_outs.retry_for,
        )

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
            f"Cannot use {NAME}: {ENDPOINT} of the catalog, or {_ENDPOINT_VARIABLE}, must be where "
            "the NameNode serves WebHDFS. Write https://HOST:9871, its dfs.namenode.https-address."
        )
        raise UsageError(message)
    if is_in_clear(given) and not allow_insecure:
        raise refuse_http(NAME, given)
    return given.rstrip("/")
