"""Where servers are and how to reach them: the values, and the address that names them.

    https://[USER@]HOST[:PORT][,HOST2[:PORT]...][/][?OPTION=VALUE[&...]]

Ports default to 8443 for https and 8123 for http, which is refused unless it is allowed. What
stands before the last @ of an address is never shown, however malformed the address is; nor is the
value of an option. The options are connect-timeout, read-timeout (seconds) and compress (0, 1).
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from catalog.clickhouse.origin import STAGING_DATABASE
from catalog.clickhouse.server.credentials import Credentials, Secret
from catalog.clickhouse.server.given import Given, choose, in_environment, in_file
from catalog.host_text import named_host
from catalog.shown_address import has_options_before_host
from catalog.this_machine import is_this_machine
from tableformat.errors import RefusedError, UsageError

__all__ = ["Host", "ServerSettings", "Tls", "host_at", "is_server", "parse_server"]

_PORTS: Final = {"https": 8443, "http": 8123}
_FORM: Final = "Write https://[USER@]HOST[:PORT][,HOST2[:PORT]...]"
_CONNECT_TIMEOUT: Final = 10.0
_READ_TIMEOUT: Final = 300.0


@dataclass(frozen=True, slots=True)
class Host:
    """One server."""

    scheme: str
    name: str
    port: int

    @property
    def is_secure(self) -> bool:
        """Whether it is spoken to over TLS."""
        return self.scheme == "https"

    @property
    def url(self) -> str:
        """The address, without a path."""
        return f"{self.scheme}://{self.place}"

    @property
    def place(self) -> str:
        """Name and port."""
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Tls:
    """Whom to trust: the authorities of a PEM text and no others; None for those of the system."""

    ca: str | None = None


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The replicas of one source, and how to speak to any of them.

    The time-outs are seconds: to connect, and to wait for the next bytes of an answer.
    `staging_database` is where staging tables are made, `reading` are the user's settings for the
    queries that read rows. `warnings` are sentences for the user about what was given.
    """

    hosts: tuple[Host, ...]
    credentials: Credentials = field(default_factory=Credentials)
    tls: Tls = field(default_factory=Tls)
    connect_timeout: float = _CONNECT_TIMEOUT
    read_timeout: float = _READ_TIMEOUT
    compress: bool = False
    staging_database: str = STAGING_DATABASE
    reading: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def shown(self) -> str:
        """The address without any secret; `parse_server` reads it."""
        user = self.credentials.user
        who = f"{urllib.parse.quote(user, safe='')}@" if user else ""
        places = ",".join(host.place for host in self.hosts)
        return f"{self.hosts[0].scheme}://{who}{places}"


def is_server(uri: str) -> bool:
    """Tell whether a source's text names a server."""
    return uri.lower().startswith(("https:", "http:"))


def host_at(scheme: str, place: str) -> Host | None:
    """Return the host that `HOST` or `HOST:PORT` names, None for any other text."""
    found = named_host(place, _PORTS[scheme])
    return Host(scheme, found[0].strip("[]"), found[1]) if found else None


def parse_server(
    uri: str,
    *,
    environment: Mapping[str, str],
    config_file: Path | None = None,
    allow_insecure: bool = False,
    instead: tuple[Host, ...] = (),
) -> ServerSettings:
    """Read the address of a server, and who logs in there.

    A user, a password, a token or a certificate is taken from the address, else from the
    environment, else from the file. What the user should know is kept in `warnings`, for whoever
    speaks to the user.

    Args:
        uri: the address.
        environment: MERGEBERG_SOURCE_USER, _PASSWORD, _TOKEN, _CA_FILE, _CERTIFICATE and _KEY.
        config_file: a TOML file with the same names in its table `source`.
        allow_insecure: whether http to another machine is allowed.
        instead: the hosts to ask instead of those of the address, when there are any.

    Raises:
        UsageError: the address, the environment or the file is malformed or contradicts itself.
        NotFoundError: a file that is named is not there.
        RefusedError: it is http and that is not allowed, or others may read the file's secret.
    """
    scheme, user, password, rest = _taken_apart(uri)
    shown = f"{scheme}://{rest.partition('?')[0]}"
    places, _, options = rest.partition("?")
    hosts = _hosts(scheme, places.removesuffix("/"), shown)
    if instead:
        hosts, shown = instead, ",".join(host.url for host in instead)
    in_clear = scheme == "http" and not all(is_this_machine(host.name) for host in hosts)
    if in_clear and not allow_insecure:
        message = (
            f"Cannot read the source {shown}: over http everybody on the way reads the rows and "
            "the password, and can change them. Give --allow-insecure, or use https."
        )
        raise RefusedError(message)
    layers = [Given("the address", user=user, password=password), in_environment(environment)]
    if config_file is not None:
        layers.append(in_file(config_file))
    credentials, ca = choose(tuple(layers))
    if credentials.certificate is not None and scheme == "http":
        message = (
            f"Cannot read the source {shown}: a client certificate is given, and over http nobody "
            "asks for one. Use https, or leave the certificate out."
        )
        raise UsageError(message)
    settings = ServerSettings(
        hosts, credentials, Tls(ca), warnings=_warnings(shown, password, in_clear=in_clear)
    )
    return _with_options(settings, options)


def _taken_apart(uri: str) -> tuple[str, str | None, Secret | None, str]:
    """Return scheme, user, password, and what follows the last @."""
    scheme, colon, rest = uri.partition("://")
    before, at, after = rest.rpartition("@")
    scheme = scheme.lower()
    if not colon or scheme not in _PORTS or has_options_before_host(before):
        # Of a text of another form nobody knows where its secret is.
        message = f"Cannot read the source: it is no address of a server. {_FORM}."
        raise UsageError(message)
    if not at:
        return scheme, None, None, rest
    user, has_password, password = (urllib.parse.unquote(p) for p in before.partition(":"))
    secret = Secret(password) if has_password and password else None
    return scheme, user or None, secret, after


def _hosts(scheme: str, places: str, shown: str) -> tuple[Host, ...]:
    hosts = []
    for place in places.split(","):
        host = host_at(scheme, place)
        if host is None:
            message = (
                f"Cannot read the source {shown}: {place!r} is not HOST or HOST:PORT. {_FORM}; a "
                "user or password with other characters than letters and digits has them as %XX."
            )
            raise UsageError(message)
        hosts.append(host)
    return tuple(dict.fromkeys(hosts))


def _with_options(settings: ServerSettings, text: str) -> ServerSettings:
    """Read the options after the question mark; a value is never shown, it may be a secret."""
    for option in filter(None, text.split("&")):
        name, _, value = option.partition("=")
        match name:
            case "connect-timeout":
                settings = replace(settings, connect_timeout=_seconds(settings, name, value))
            case "read-timeout":
                settings = replace(settings, read_timeout=_seconds(settings, name, value))
            case "compress" if value in ("0", "1"):
                settings = replace(settings, compress=value == "1")
            case "user" | "password" | "token":
                message = (
                    f"Cannot read the source {settings.shown}: {name!r} is no option. Write a user "
                    "before the host (USER@HOST), and set MERGEBERG_SOURCE_PASSWORD or "
                    "MERGEBERG_SOURCE_TOKEN for a secret."
                )
                raise UsageError(message)
            case _:
                message = (
                    f"Cannot read the source {settings.shown}: {name!r} is no option, or has "
                    "another value than it may have. The options are connect-timeout and "
                    "read-timeout (seconds), compress (0, 1)."
                )
                raise UsageError(message)
    return settings


def _seconds(settings: ServerSettings, name: str, value: str) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", value) or float(value) == 0:
        message = (
            f"Cannot read the source {settings.shown}: {name} is no number of seconds above 0. "
            f"Write for example {name}=30."
        )
        raise UsageError(message)
    return float(value)


def _warnings(shown: str, password: Secret | None, *, in_clear: bool) -> tuple[str, ...]:
    found = []
    if in_clear:
        found.append(
            f"{shown} is not encrypted: everybody on the way reads the rows and the password, and "
            "can change them."
        )
    if password is not None:
        found.append(
            f"The address of {shown} has a password in it, which every user of this machine sees "
            "in the list of processes: set MERGEBERG_SOURCE_PASSWORD instead."
        )
    return tuple(found)
