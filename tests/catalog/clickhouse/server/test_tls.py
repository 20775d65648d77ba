"""Which authorities a connection trusts, and the messages when it does not."""

from __future__ import annotations

import contextlib
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.clickhouse.server.client import ServerClient, server_tls
from catalog.clickhouse.server.settings import (
    ClientCertificate,
    Credentials,
    Host,
    Secret,
    ServerSettings,
    Tls,
)
from tableformat.errors import SourceError, UsageError
from tests.services.certificates import Authority, Identity
from tests.services.faulty_http import FaultyHttp, Request, response_of


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other"), "other")


@pytest.fixture(scope="module")
def identity(authority: Authority) -> Identity:
    return authority.sign()


def served(identity: Identity, clients: Authority | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.file)
    return context


def certificate_of(identity: Identity) -> ClientCertificate:
    certificate, key = identity.texts
    return ClientCertificate(certificate, Secret(key))


def ask(
    server: FaultyHttp, tls: Tls, credentials: Credentials | None = None, *, name: str = ""
) -> tuple[bytes, Request]:
    host = replace(server.host, name=name or server.host.name)
    settings = ServerSettings((host,), credentials or Credentials(), tls, connect_timeout=5)
    with ServerClient(settings, host, pause=lambda _: None) as client:
        return client.query("SELECT 1", repeat=True), server.requests[-1]


@contextlib.contextmanager
def refused(match: str) -> Iterator[None]:
    with pytest.raises(SourceError, match=match) as raised:
        yield
    assert str(raised.value).startswith("Cannot reach ClickHouse at https://")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_an_own_authority_is_trusted(authority: Authority, identity: Identity, name: str) -> None:
    with FaultyHttp(response_of(b"rows"), tls=served(identity)) as server:
        assert ask(server, Tls(authority.text), name=name)[0] == b"rows"


def test_a_certificate_of_somebody_else_is_refused(
    authority: Authority, other: Authority, identity: Identity
) -> None:
    """A man in the middle can have a certificate of an authority of his own."""
    with FaultyHttp(response_of(b"rows"), tls=served(identity)) as server:
        for tls in (Tls(), Tls(other.text)):
            with refused(
                r"is not signed by a trusted authority.*Name the .* MERGEBERG_SOURCE_CA_FILE"
            ):
                ask(server, tls)
        assert server.requests == []
    expired, elsewhere = authority.sign(days=-1), authority.sign(names="DNS:elsewhere.example")
    with (
        FaultyHttp(response_of(), tls=served(expired)) as server,
        refused(r"certificate has expired"),
    ):
        ask(server, Tls(authority.text))
    for name in ("127.0.0.1", "localhost"):
        with FaultyHttp(response_of(), tls=served(elsewhere)) as server:
            with refused(rf"was issued for another host name \(.*'{name}'\)\. Use a name that"):
                ask(server, Tls(authority.text), name=name)
            assert server.requests == []


def test_a_client_certificate_logs_the_user_in(authority: Authority, identity: Identity) -> None:
    """It is loaded from texts, on a host that has none of the files."""
    credentials = Credentials("exporter", certificate=certificate_of(authority.sign()))
    with FaultyHttp(response_of(b"rows"), tls=served(identity, authority)) as server:
        response, request = ask(server, Tls(authority.text), credentials)

    assert response == b"rows"
    assert request.headers["x-clickhouse-ssl-certificate-auth"] == "on"
    assert request.headers["x-clickhouse-user"] == "exporter"


def test_a_missing_or_wrong_client_certificate_is_named(
    authority: Authority, other: Authority, identity: Identity
) -> None:
    wrong = Credentials("exporter", certificate=certificate_of(other.sign()))
    for credentials in (Credentials("exporter"), wrong):
        with (
            FaultyHttp(response_of(b"rows"), tls=served(identity, authority)) as server,
            pytest.raises(SourceError, match=r"Cannot reach ClickHouse at https://") as raised,
        ):
            ask(server, Tls(authority.text), credentials)
        assert server.requests == []
        assert "MERGEBERG_SOURCE_CERTIFICATE" in str(raised.value)


def test_http_and_https_on_each_others_ports_are_reported(identity: Identity) -> None:
    with FaultyHttp(response_of(b"rows")) as server:
        host = Host("https", "127.0.0.1", server.host.port)
        client = ServerClient(ServerSettings((host,)), host)
        with client, refused(r"does not speak TLS on this port.*port for https \(usually 8443\)"):
            client.query("SELECT 1")
    with FaultyHttp(response_of(b"rows"), tls=served(identity)) as server:
        host = Host("http", "127.0.0.1", server.host.port)
        client = ServerClient(ServerSettings((host,)), host)
        with client, pytest.raises(SourceError, match=r"and whether it expects https on this po"):
            client.query("SELECT 1")
        assert server.requests == []


def test_what_cannot_be_used_is_named_without_being_shown(
    authority: Authority, other: Authority, tmp_path: Path
) -> None:
    host = Host("https", "ch1", 8443)
    broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    certificate, key = authority.sign().texts

    with pytest.raises(UsageError, match=r"certificate of an authority is damaged"):
        server_tls(ServerSettings((host,), tls=Tls(broken)))
    for own in (
        ClientCertificate(broken, Secret(key)),
        ClientCertificate(certificate, Secret(other.sign().texts[1])),
    ):
        with pytest.raises(
            UsageError,
            match=r"certificate or its key is damaged or cannot be read, or the key is another",
        ):
            server_tls(ServerSettings((host,), Credentials("u", certificate=own)))

    (tmp_path / "key").write_text(key)
    command = [
        "openssl",
        "pkey",
        "-in",
        "key",
        "-out",
        "locked",
        "-aes128",
        "-passout",
        "pass:word",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    locked = ClientCertificate(certificate, Secret((tmp_path / "locked").read_text()))
    with pytest.raises(
        UsageError, match=r"the key of the client certificate is protected by a pass phrase"
    ):
        server_tls(ServerSettings((host,), Credentials("u", certificate=locked)))


def test_no_file_of_a_key_is_left_or_open_to_others(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library takes a certificate from a file only; others on the host must not read it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[int] = []
    load: Callable[..., None] = ssl.SSLContext.load_cert_chain

    def watch(context: ssl.SSLContext, file: Path, **options: object) -> None:
        seen.extend((file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777))
        load(context, file, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watch)
    credentials = Credentials("u", certificate=certificate_of(authority.sign()))
    server_tls(ServerSettings((Host("https", "ch1", 8443),), credentials))

    assert seen == [0o600, 0o700]
    assert list(tmp_path.iterdir()) == []
