"""Parses server addresses, credentials and TLS settings of a ClickHouse source.

    https://[USER@]HOST[:PORT][,HOST2[:PORT]...][/][?OPTION=VALUE[&...]]

- Ports default to 8443 for https and 8123 for http; http needs an explicit permission. Options
  are connect-timeout, read-timeout (seconds), compress (0, 1) and replicas (1 to 99).
- A user logs in with a password, an access token or a client certificate. Each setting is taken
  from the first place that gives it: address, environment, configuration file. A password
  belongs to the user of its own place and is never sent for another one.
- Credentials are texts, never paths, and they pickle, so that tasks on other hosts can use them.
- No message, repr or str shows a secret, an option's value or the text before the last @ of a
  malformed address. `Credentials.masked` removes secrets from server messages.
- Values that HTTP would trim or cut are refused here, because the HTTP library would show them.

See docs/reference/source-server.md, "The address" and "Who logs in".
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
import unicodedata
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from catalog.network import has_options_before_host, is_this_machine, named_host
from catalog.source_defaults import STAGING_DATABASE
from tableformat.errors import NotFoundError, RefusedError, UsageError
from tableformat.messages import Option

__all__ = [
    "PREFIX",
    "SECRETS",
    "ClientCertificate",
    "Credentials",
    "Given",
    "Host",
    "Secret",
    "ServerSettings",
    "Tls",
    "choose",
    "host_at",
    "in_environment",
    "in_file",
    "is_server",
    "parse_server",
]

_MASK: Final = "***"
# Shorter secrets occur in texts by chance, and masking them would reveal them.
_SHORTEST_MASKED: Final = 4


class Secret:
    """A text that only `reveal` returns."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        """Keep `text`."""
        self._text = text

    def reveal(self) -> str:
        """Return the text, to send it; never show it."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({_MASK!r})"

    def __str__(self) -> str:
        return _MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A certificate with its chain, and its private key, as PEM texts."""

    certificate: str
    key: Secret


@dataclass(frozen=True, slots=True)
class Credentials:
    """The login: user `default` without a password if nothing is given.

    A certificate alone logs the user in. With a password or a token, it only identifies the TLS
    client, and the other logs in.
    """

    user: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    certificate: ClientCertificate | None = None

    def __post_init__(self) -> None:
        if self.token is not None and (self.password is not None or self.user is not None):
            other = "a user" if self.password is None else "a password"
            message = (
                f"Cannot log in to ClickHouse: an access token and {other} are given, and a token "
                "already identifies the user. Give one of the two."
            )
            raise UsageError(message)
        _check_header("user name", self.user)
        _check_header("password", None if self.password is None else self.password.reveal())
        _check_header("access token", None if self.token is None else self.token.reveal())

    @property
    def shown(self) -> str:
        """The user, for messages."""
        if self.token is not None:
            return "an access token"
        how = " by a client certificate" if self.certificate and not self.password else ""
        return f"the user '{self.user or 'default'}'{how}"

    @property
    def to_check(self) -> str:
        """What to check after a refused login, for a message after 'Check'."""
        if self.token is not None:
            return "MERGEBERG_SOURCE_TOKEN"
        if self.password is not None:
            return "MERGEBERG_SOURCE_USER and MERGEBERG_SOURCE_PASSWORD"
        if self.certificate is not None:
            return "whether the server lets that user in by this certificate"
        return "MERGEBERG_SOURCE_USER, and set MERGEBERG_SOURCE_PASSWORD: no password was given"

    def headers(self) -> dict[str, str]:
        """Return the headers of a request; credentials never go into its URL."""
        if self.token is not None:
            return {"Authorization": f"Bearer {_as_sent(self.token.reveal())}"}
        found = {"X-ClickHouse-User": _as_sent(self.user or "default")}
        if self.password is not None:
            found["X-ClickHouse-Key"] = _as_sent(self.password.reveal())
        elif self.certificate is not None:
            found["X-ClickHouse-SSL-Certificate-Auth"] = "on"
        return found

    def masked(self, text: str) -> str:
        """Return a foreign text with our secrets masked."""
        for secret in (self.password, self.token):
            if secret is not None and len(secret.reveal()) >= _SHORTEST_MASKED:
                text = text.replace(secret.reveal(), _MASK)
        return text


def _check_header(what: str, text: str | None) -> None:
    if text is None:
        return
    if not text or text != text.strip(" \t") or any(_is_control(one) for one in text):
        message = (
            f"Cannot log in to ClickHouse: the {what} is empty, begins or ends with a blank, or "
            "has a control character or half of one in it, which HTTP does not carry. Correct it, "
            "or choose another one."
        )
        raise UsageError(message)


def _as_sent(text: str) -> str:
    """Return a text that the HTTP library, which encodes headers as Latin-1, sends as UTF-8."""
    return text.encode().decode("latin-1")


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs")


PREFIX: Final = "MERGEBERG_SOURCE_"
_NAMES: Final = ("user", "password", "token", "ca-file", "certificate", "key")
SECRETS: Final = (f"{PREFIX}PASSWORD", f"{PREFIX}TOKEN")
"""The environment variables that hold a secret of a source."""
_TABLE: Final = "source"
_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Given:
    """The settings of one place; `place` names it in messages, the last three are paths."""

    place: str
    user: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    ca_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


def in_environment(environment: Mapping[str, str]) -> Given:
    """Return the settings in environment variables; an empty variable is ignored."""
    found = {name: environment.get(PREFIX + name.upper().replace("-", "_")) for name in _NAMES}
    return _given("the environment", {n: text for n, text in found.items() if text}, Path())


def in_file(path: Path) -> Given:
    """Return the settings in the table `source` of a TOML file.

    Raises:
        NotFoundError: the file does not exist.
        UsageError: it cannot be read, or has unknown names or invalid values.
        RefusedError: it holds a secret, and other users than its owner may read it.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            read = tomllib.loads(file.read().decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # Without the cause, which shows the file's content.
        raise _unreadable(path, error) from None
    table = read.get(_TABLE, {})
    if not isinstance(table, dict):
        table = {_TABLE: table}
    wrong = sorted(name for name, value in table.items() if not _is_wanted(name, value))
    if wrong:
        message = (
            f"Cannot read the configuration {path}: [{_TABLE}] has {', '.join(wrong)}, and may "
            f"have {', '.join(_NAMES)}, each with a text. Correct the file."
        )
        raise UsageError(message)
    if ("password" in table or "token" in table) and mode & _OF_OTHERS:
        message = (
            f"Cannot use the configuration {path}: it holds a secret, and others than its owner "
            f"may open it (mode {stat.S_IMODE(mode):o}). Run: chmod 600 {path}"
        )
        raise RefusedError(message)
    return _given(f"the configuration {path}", table, path.parent)


def choose(layers: tuple[Given, ...]) -> tuple[Credentials, str | None]:
    """Choose the credentials and the trusted authorities (a PEM text) among several places.

    Raises:
        NotFoundError: a named file does not exist.
        UsageError: the settings contradict each other, or a file is malformed.
    """
    ca = next((_pem(one.ca_file, one.place, "CERTIFICATE") for one in layers if one.ca_file), None)
    certificate = next((_certificate(one) for one in layers if one.certificate or one.key), None)
    secret = next((one for one in layers if one.password or one.token), Given("nothing"))
    if secret.password and secret.token:
        message = (
            f"Cannot log in to ClickHouse: {secret.place} gives a password and an access token. "
            "Give one of the two."
        )
        raise UsageError(message)
    named = next((one for one in layers if one.user), secret)
    if secret.user not in (None, named.user):
        message = (
            f"Cannot log in to ClickHouse: {named.place} names the user '{named.user}', and the "
            f"secret in {secret.place} belongs to '{secret.user}'. Give both in one place."
        )
        raise UsageError(message)
    return Credentials(named.user, secret.password, secret.token, certificate), ca


def _given(place: str, texts: Mapping[str, str], directory: Path) -> Given:
    def secret(name: str) -> Secret | None:
        return Secret(texts[name]) if name in texts else None

    def path(name: str) -> Path | None:
        return directory / Path(texts[name]).expanduser() if name in texts else None

    return Given(
        place,
        texts.get("user"),
        secret("password"),
        secret("token"),
        path("ca-file"),
        path("certificate"),
        path("key"),
    )


def _is_wanted(name: str, value: Any) -> bool:
    return name in _NAMES and isinstance(value, str) and bool(value)


def _certificate(given: Given) -> ClientCertificate:
    """Read a certificate and its key, which may be in the same file."""
    if given.certificate is None:
        message = (
            f"Cannot log in to ClickHouse: {given.place} gives the key of a client certificate and "
            "no certificate. Give both."
        )
        raise UsageError(message)
    certificate = _pem(given.certificate, given.place, "CERTIFICATE")
    key = _pem(given.key or given.certificate, given.place, "PRIVATE KEY")
    return ClientCertificate(certificate, Secret(key))


def _pem(path: Path, place: str, kind: str) -> str:
    """Read a PEM file that must have an object of a kind."""
    try:
        text = path.read_bytes().decode("ascii", "replace")
    except OSError as error:
        message = (
            f"Cannot read the file {path}, which {place} names: {error.strerror}. Correct the path."
        )
        raise NotFoundError(message) from None
    if not re.search(rf"-----BEGIN [A-Z ]*{kind}-----", text):
        what = "private key" if kind == "PRIVATE KEY" else "certificate"
        message = (
            f"Cannot use the file {path}, which {place} names: it contains no {what} in PEM format "
            f"(-----BEGIN {kind}-----). Name another file, or convert it with openssl."
        )
        raise UsageError(message)
    return text


def _unreadable(path: Path, error: Exception) -> UsageError:
    if isinstance(error, FileNotFoundError):
        message = f"Cannot read the configuration {path}: there is no such file. Correct its path."
        return NotFoundError(message)
    if isinstance(error, OSError):
        message = f"Cannot read the configuration {path}: {error.strerror}. Check its rights."
        return UsageError(message)
    line = re.search(r"line [0-9]+", str(error)) if not isinstance(error, UnicodeError) else None
    where = f" ({line[0]})" if line else ""
    return UsageError(
        f"Cannot read the configuration {path}: it is no TOML{where}. Write for example "
        '[source] and, in the next line, user = "exporter".'
    )


_PORTS: Final = {"https": 8443, "http": 8123}
_FORM: Final = "Write https://[USER@]HOST[:PORT][,HOST2[:PORT]...]"
_CONNECT_TIMEOUT: Final = 10.0
_READ_TIMEOUT: Final = 300.0


@dataclass(frozen=True, slots=True)
class Host:
    """A server's address."""

    scheme: str
    name: str
    port: int

    @property
    def is_secure(self) -> bool:
        """Whether it uses TLS."""
        return self.scheme == "https"

    @property
    def url(self) -> str:
        """The URL without a path."""
        return f"{self.scheme}://{self.place}"

    @property
    def place(self) -> str:
        """The text `HOST:PORT`."""
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Tls:
    """The trusted authorities as PEM text and no others; None for those of the system."""

    ca: str | None = None


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The replicas of one source, and the settings of connections to them.

    The time-outs are in seconds: to connect, and to wait for the next bytes of a response.
    `staging_database` is the database for staging tables. `reading` are the user's settings for
    queries that read rows. `replicas` is the number of hosts that read the slices of an export at
    the same time. `warnings` are sentences for the user about the settings.
    """

    hosts: tuple[Host, ...]
    credentials: Credentials = field(default_factory=Credentials)
    tls: Tls = field(default_factory=Tls)
    connect_timeout: float = _CONNECT_TIMEOUT
    read_timeout: float = _READ_TIMEOUT
    compress: bool = False
    staging_database: str = STAGING_DATABASE
    reading: tuple[tuple[str, str], ...] = ()
    replicas: int = 1
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def shown(self) -> str:
        """The address without secrets; `parse_server` parses it."""
        user = self.credentials.user
        who = f"{urllib.parse.quote(user, safe='')}@" if user else ""
        places = ",".join(host.place for host in self.hosts)
        return f"{self.hosts[0].scheme}://{who}{places}"


def is_server(uri: str) -> bool:
    """Whether a source's text is the address of a server."""
    return uri.lower().startswith(("https:", "http:"))


def host_at(scheme: str, place: str) -> Host | None:
    """Return the host of `HOST` or `HOST:PORT`, None for any other text."""
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
    """Parse the address of a server, and choose its credentials.

    User, password, token and certificate are taken from the address, else from the environment,
    else from the file. Warnings for the user are in `warnings`.

    Args:
        uri: the address.
        environment: MERGEBERG_SOURCE_USER, _PASSWORD, _TOKEN, _CA_FILE, _CERTIFICATE and _KEY.
        config_file: a TOML file with the same names in its table `source`.
        allow_insecure: whether http to another machine is allowed.
        instead: hosts to use instead of those of the address, if there are any.

    Raises:
        UsageError: the address, the environment or the file is malformed or contradicts itself.
        NotFoundError: a named file does not exist.
        RefusedError: the address is http and that is not allowed, or other users may read the file
            with the secret.
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
            f"Cannot read the source {shown}: over http anyone on the network can read and change "
            f"the rows and the password. Give {Option.ALLOW_INSECURE}, or use https."
        )
        raise RefusedError(message)
    layers = [Given("the address", user=user, password=password), in_environment(environment)]
    if config_file is not None:
        layers.append(in_file(config_file))
    credentials, ca = choose(tuple(layers))
    if credentials.certificate is not None and scheme == "http":
        message = (
            f"Cannot read the source {shown}: a client certificate is given, but over http no "
            "server requests one. Use https, or leave the certificate out."
        )
        raise UsageError(message)
    settings = ServerSettings(
        hosts, credentials, Tls(ca), warnings=_warnings(shown, password, in_clear=in_clear)
    )
    return _with_options(settings, options)


def _taken_apart(uri: str) -> tuple[str, str | None, Secret | None, str]:
    """Split an address into scheme, user, password, and the text after the last @."""
    scheme, colon, rest = uri.partition("://")
    before, at, after = rest.rpartition("@")
    scheme = scheme.lower()
    if not colon or scheme not in _PORTS or has_options_before_host(before):
        # In a text of another form, a secret may be anywhere.
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
    """Parse the options after the question mark; a value may be a secret and is never shown."""
    for option in filter(None, text.split("&")):
        name, _, value = option.partition("=")
        match name:
            case "connect-timeout":
                settings = replace(settings, connect_timeout=_seconds(settings, name, value))
            case "read-timeout":
                settings = replace(settings, read_timeout=_seconds(settings, name, value))
            case "compress" if value in ("0", "1"):
                settings = replace(settings, compress=value == "1")
            case "replicas" if re.fullmatch(r"[1-9][0-9]?", value, re.ASCII):
                settings = replace(settings, replicas=int(value))
            case "user" | "password" | "token":
                message = (
                    f"Cannot read the source {settings.shown}: {name!r} is no option. Write a user "
                    "before the host (USER@HOST), and set MERGEBERG_SOURCE_PASSWORD or "
                    "MERGEBERG_SOURCE_TOKEN for a secret."
                )
                raise UsageError(message)
            case _:
                message = (
                    f"Cannot read the source {settings.shown}: {name!r} is not an option, or has "
                    "an invalid value. The options are connect-timeout and read-timeout (seconds), "
                    "compress (0, 1), replicas (1 to 99)."
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
            f"{shown} is not encrypted: anyone on the network can read and change the rows and the "
            "password."
        )
    if password is not None:
        found.append(
            f"The address of {shown} has a password in it, which every user of this machine sees "
            "in the list of processes: set MERGEBERG_SOURCE_PASSWORD instead."
        )
    return tuple(found)
