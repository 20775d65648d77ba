"""The ZooKeepers of the tests: who may speak to one over TLS, and three that lose one."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.services.certificates import Authority, Identity
from tests.services.zookeeper import TlsPort, ZooKeeper, zookeeper, zookeeper_ensemble


@contextmanager
def connected(hosts: str, **settings: object) -> Iterator[KazooClient]:
    """Return a client that has a session."""
    with closing(KazooClient(hosts, **settings)) as client, ExitStack() as stack:
        client.start()
        stack.callback(client.stop)
        yield client


def response_of(server: ZooKeeper, authority: Authority, mine: Identity | None = None) -> bytes:
    """Ask a server over TLS how it serves."""
    context = ssl.create_default_context(cafile=str(authority.file))
    if mine is not None:
        context.load_cert_chain(mine.certificate, mine.key)
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(b"srvr")
        return connection.makefile("rb").read()


def test_tls_is_spoken_alone(tmp_path: Path) -> None:
    """Harm prevented: tests of TLS pass over a plain connection, or with any certificate."""
    authority, another = Authority(tmp_path), Authority(tmp_path, "another")
    with zookeeper(TlsPort(authority)) as server:
        settings = {"use_ssl": True, "ca": str(authority.file), "check_hostname": True}
        with connected(server.address, **settings) as client:
            client.create("/x", b"1")
            assert client.get("/x")[0] == b"1"
        with pytest.raises(ssl.SSLCertVerificationError):
            response_of(server, another)
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
            # As long as a header of TLS, which the server waits for.
            plain.sendall(b"srvr\n")
            assert b"Mode" not in plain.makefile("rb").read()


def test_a_client_without_a_certificate_of_the_authority_is_turned_away(tmp_path: Path) -> None:
    authority, another = Authority(tmp_path), Authority(tmp_path, "another")
    with zookeeper(TlsPort(authority, demands_client=True)) as server:
        assert b"Mode: standalone" in response_of(server, authority, authority.sign())
        for stranger in (None, another.sign()):
            with pytest.raises(ssl.SSLError, match="alert"):
                response_of(server, authority, stranger)


def test_three_go_on_when_one_that_led_is_lost() -> None:
    """Harm prevented: tests of a lost leader would show one that nobody lost."""
    with zookeeper_ensemble() as servers, connected(servers.address) as client:
        client.create("/x", b"1")
        session, first = client.client_id, servers.leader()

        first.kill()

        assert servers.leader() is not first
        assert client.retry(client.get, "/x")[0] == b"1"
        assert client.client_id == session
        servers.start()
        assert sorted(server.mode for server in servers.servers) == [
            *("follower", "follower", "leader")
        ]
