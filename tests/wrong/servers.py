"""Servers that cannot be used, and what a command says of them (docs/reference/errors.md)."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.services.certificates import Authority, Identity
from tests.services.faulty_http import CUT, SILENT, FaultyHttp, Response, chunked, response_of
from tests.support.errors_page import Refusal, refusal_of
from tests.wrong.places import Places

__all__ = ["SERVERS", "SOURCES"]

HIDDEN = "pa55-w0rd-of-mine"


def _partitions(source: str, *words: str) -> tuple[str, ...]:
    return ("partitions", "db.events", "--source", source, *words)


# What is wrong with the address: nobody is asked anything.
SOURCES: dict[str, tuple[str, ...]] = {
    "a source of another kind": _partitions(f"clickhouse://exporter:{HIDDEN}@server"),
    "a source over http": _partitions(f"http://exporter:{HIDDEN}@server"),
    "an address without a host": _partitions(f"https://exporter:{HIDDEN}@"),
    "an address with a database": _partitions("https://server/db"),
    "a port that is none": _partitions("https://server:84430"),
    "a password among the options of an address": _partitions(f"https://server?password={HIDDEN}"),
    "an unknown option of an address": _partitions("https://server?timeout=3"),
    "a read-timeout that is no number": _partitions("https://server?read-timeout=never"),
    "an unknown server name": _partitions("https://no-such-host.invalid"),
    "a source configuration that is not there": _partitions(
        "https://server", "--source-config", "/nowhere.toml"
    ),
    "`archive` from a server that may not be changed": (
        *("archive", "db.events", "--all", "--to", "lake.n.new"),
        *("--source", "https://archiver@server"),
    ),
    "`gc` of nothing": ("gc",),
    "`gc` on a cluster without a source": ("gc", "--to", "lake.n.new", "--cluster", "main"),
    "`gc` on a cluster of a directory": (
        *("gc", "--to", "lake.n.new", "--cluster", "main", "--source", "chdb:./clickhouse"),
    ),
    "`archive` from frozen parts": (
        *("archive", "db.events", "--all", "--to", "lake.n.new"),
        *("--source", "parts:shadow/1?ddl=events.sql"),
    ),
}

Case = Callable[[Places, pytest.MonkeyPatch], Refusal]


def _responding(*responses: Response, options: str = "") -> Case:
    """Return a run against a server over http with such a response."""

    def run(places: Places, patch: pytest.MonkeyPatch) -> Refusal:
        patch.setenv("MERGEBERG_SOURCE_PASSWORD", HIDDEN)
        with FaultyHttp(*responses) as server:
            source = f"{server.host.url.replace('//', '//exporter@')}{options}"
            return refusal_of(places, _partitions(source, "--allow-insecure"))

    return run


def _not_running(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    with FaultyHttp(response_of()) as server:
        url = server.host.url
    return refusal_of(places, _partitions(url, "--allow-insecure"))


def _not_cleaned_up(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    lake = ("--to", "lake.n.cleaned_up")
    places.run("export", "db.events", "--partition-id", "202401", *lake)
    with FaultyHttp(response_of()) as server:
        url = server.host.url
    return refusal_of(places, ("gc", *lake, "--source", url, "--allow-insecure"))


@contextlib.contextmanager
def _tls(places: Places, days: int = 30, names: str = "IP:127.0.0.1") -> Iterator[FaultyHttp]:
    """Run a server over https; its authority's certificate is in the file authority.pem."""
    directory: Path = places.root / "certificates"
    directory.mkdir(exist_ok=True)
    identity: Identity = Authority(directory).sign(days=days, names=names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    with FaultyHttp(response_of(), tls=context) as server:
        yield server


def _certified(days: int = 30, names: str = "IP:127.0.0.1", *, trusted: bool = True) -> Case:
    """Return a run against a server over https with such a certificate."""

    def run(places: Places, patch: pytest.MonkeyPatch) -> Refusal:
        with _tls(places, days, names) as server:
            if trusted:
                file = places.root / "certificates" / "authority.pem"
                patch.setenv("MERGEBERG_SOURCE_CA_FILE", str(file))
            return refusal_of(places, _partitions(server.host.url))

    return run


def _https_to_http(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    with FaultyHttp(response_of()) as server:
        return refusal_of(places, _partitions(server.host.url.replace("http", "https")))


def _http_to_https(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    with _tls(places) as server:
        url = server.host.url.replace("https", "http")
        return refusal_of(places, _partitions(url, "--allow-insecure"))


def _readable(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    file = places.root / "source.toml"
    file.write_text(f'[source]\npassword = "{HIDDEN}"\n')
    file.chmod(0o644)
    return refusal_of(places, _partitions("https://server", "--source-config", str(file)))


def _twice(places: Places, patch: pytest.MonkeyPatch) -> Refusal:
    patch.setenv("MERGEBERG_SOURCE_PASSWORD", HIDDEN)
    patch.setenv("MERGEBERG_SOURCE_TOKEN", HIDDEN)
    return refusal_of(places, _partitions("https://server"))


def _unknown_token(places: Places, patch: pytest.MonkeyPatch) -> Refusal:
    patch.setenv("MERGEBERG_SOURCE_TOKEN", HIDDEN)
    with FaultyHttp(response_of(_WRONG_TOKEN, status="403 Forbidden")) as server:
        return refusal_of(places, _partitions(server.host.url, "--allow-insecure"))


def _no_certificate(places: Places, patch: pytest.MonkeyPatch) -> Refusal:
    file = places.root / "empty.pem"
    file.write_text("")
    patch.setenv("MERGEBERG_SOURCE_CA_FILE", str(file))
    return refusal_of(places, _partitions("https://server"))


_PAGE = {"Content-Type": "text/html"}
_WRONG = (
    b"Code: 516. DB::Exception: exporter: Authentication failed: password is incorrect, or "
    b"there is no user with such name. (AUTHENTICATION_FAILED) (version 26.9.2.1)"
)
_WRONG_TOKEN = _WRONG.replace(b"exporter", b"access token")

# What a server does, or what is given to log in there; each run ends its own server.
SERVERS: dict[str, Case] = {
    "a source configuration that others may read": _readable,
    "a password and a token": _twice,
    "a file without a certificate": _no_certificate,
    "the server does not run": _not_running,
    "a server to clean up does not run": _not_cleaned_up,
    "the server does not respond": _responding(SILENT, options="?read-timeout=0.2"),
    "the server ends the connection": _responding(CUT),
    "a response breaks off": _responding(chunked([b'{"meta": ['], end=False)),
    "the server's certificate is not signed by a trusted authority": _certified(trusted=False),
    "the server's certificate has expired": _certified(days=-1),
    "the server's certificate is for another host": _certified(names="DNS:elsewhere.example"),
    "https to a port for http": _https_to_http,
    "http to a port for https": _http_to_https,
    "the password is wrong": _responding(response_of(_WRONG, status="403 Forbidden")),
    "the access token is wrong": _unknown_token,
    "a proxy responds instead of the server": _responding(
        response_of(b"<h1>Bad Gateway</h1>", status="502 Bad Gateway", headers=_PAGE, ours=False)
    ),
    "a login page responds instead of the server": _responding(
        response_of(b"<h1>Sign in</h1>", headers=_PAGE, ours=False)
    ),
    "the server is elsewhere": _responding(
        response_of(
            status="302 Found", ours=False, headers={"Location": "https://sso.example/login"}
        )
    ),
    "the port of ClickHouse's native protocol": _responding(
        b"HTTP/1.0 400 Bad Request\r\n\r\nPort 9000 is for clickhouse-client program.\r\n"
    ),
}
