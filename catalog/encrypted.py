"""Catalogs are asked over TLS, or the user has allowed that they are not.

For a REST catalog that is https. PostgreSQL's own library speaks without TLS whenever the server
does not offer it, unless sslmode says otherwise: where nothing says it, TLS is demanded, and that
the server is the one that is named. What does not leave this machine needs none
(RQ…Security.Network, RQ…Security.DataEncryption).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from catalog.environment import INSECURE, is_true
from catalog.storages.given import ALLOW_INSECURE
from catalog.this_machine import is_in_clear, is_this_machine
from tableformat.errors import RefusedError

__all__ = ["with_encryption"]

_LOGGER: Final = logging.getLogger(__name__)
_ADDRESSES: Final = ("uri", "oauth2-server-uri")
"""Of a REST catalog, and of whoever gives it its tokens."""
_SSLMODE: Final = "sslmode"
_ENCRYPTED: Final = ("require", "verify-ca", "verify-full")
_DEMANDED: Final = "verify-full"


def with_encryption(
    name: str, properties: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the properties of a catalog with what it takes that it is asked over TLS.

    Args:
        name: of the catalog.
        properties: as they are configured.
        environment: of the process.

    Raises:
        RefusedError: it would be asked without, and nobody has allowed that.
    """
    allowed = is_true(properties.get(ALLOW_INSECURE)) or is_true(environment.get(INSECURE))
    for said in _ADDRESSES:
        address = str(properties.get(said, ""))
        if is_in_clear(address):
            shown = f"http://{urlsplit(address).netloc.rpartition('@')[2]}"
            _pass_or_refuse(name, shown, f"Use https in its {said}", allowed)
    uri = str(properties.get("uri", ""))
    if uri.startswith("postgresql"):
        return {**properties, "uri": _postgres(name, uri, environment, allowed=allowed)}
    return dict(properties)


def _postgres(name: str, uri: str, environment: Mapping[str, str], *, allowed: bool) -> str:
    """Return the address of a PostgreSQL, with the mode of TLS where none is given."""
    try:
        url = make_url(uri)
    except ArgumentError:
        # Whoever opens it says what is wrong with it.
        return uri
    hosts = _hosts(url, environment)
    mode = url.query.get(_SSLMODE) or environment.get("PGSSLMODE")
    if mode in _ENCRYPTED or all(is_this_machine(h) or h.startswith("/") for h in hosts):
        return uri
    if mode is None and not allowed:
        named = url.update_query_dict({_SSLMODE: _DEMANDED})
        return named.render_as_string(hide_password=False)
    way = f"Write sslmode={_DEMANDED} into its uri"
    _pass_or_refuse(name, f"PostgreSQL at {', '.join(hosts)}", way, allowed)
    return uri


def _hosts(url: URL, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts that PostgreSQL's own library takes, none for a socket of this machine."""
    query = url.query.get("host", ())
    given = (query,) if isinstance(query, str) else query
    if url.host:
        given = (url.host,)
    if not given:
        given = (environment.get("PGHOST", ""), environment.get("PGHOSTADDR", ""))
    return tuple(_without_port(h) for text in given for h in text.split(",") if h)


def _without_port(host: str) -> str:
    """Return a host of a list, of which each may have its port."""
    return host.partition(":")[0] if host.count(":") == 1 else host.strip("[]")


def _pass_or_refuse(name: str, shown: str, way: str, allowed: bool) -> None:  # noqa: FBT001
    if allowed:
        _tell(name, shown)
        return
    message = (
        f"Cannot open the catalog {name} ({shown}): without TLS everybody on the way reads what is "
        f"said there, and can change which files a table has. {way}, or allow it in the catalog's "
        f"configuration ({ALLOW_INSECURE}: true) or by {INSECURE}=1."
    )
    raise RefusedError(message)


@functools.cache
def _tell(name: str, shown: str) -> None:
    """Warn of what was allowed, once in a process."""
    _LOGGER.warning(
        "the catalog %s (%s) is not asked over TLS: everybody on the way reads what is said there, "
        "and can change which files a table has.",
        name,
        shown,
    )
