"""Access to a ledger in ZooKeeper: TLS, digest users, client certificates."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import Permissions, make_digest_acl

from catalog.ledgers.keeper.address import KeeperAddress, parse_keeper
from tableformat.errors import LedgerError, UsageError
from tableformat.history import Counter, Event, EventKind
from tableformat.ledger import Row
from tests.services.certificates import Authority
from tests.services.zookeeper import TlsPort, ZooKeeper, zookeeper
from tests.support.keeper_ledgers import (
    ME,
    a_row,
    address_of,
    landed,
    many_parts,
    new_chroot,
    nodes_below,
    opened,
    peeking,
)

KEY = a_row().key.hash
USER = {"MERGEBERG_LEDGER_USER": "exporter", "MERGEBERG_LEDGER_PASSWORD": "pass:word"}
ANOTHER = {**USER, "MERGEBERG_LEDGER_PASSWORD": "another-one"}
ME_TO_KEEPER = ("exporter", "pass:word")
LARGE = replace(a_row(), claim=replace(a_row().claim, parts=many_parts(1200)))
EVENT = Event(
    1, EventKind.EXPORT_PARTITION, "db.t", "lake.n.t", "202401", "", "committed",
    counter=Counter.EXPORTS, parts=2,
)  # fmt: skip


def fill(address: KeeperAddress) -> None:
    """Create every kind of node; a lease ends with its session."""
    with opened(address) as ledger:
        ledger.write_all((LARGE, a_row("small", landed=(landed(7),))))
        ledger.next_epoch()
        ledger.note((EVENT,))
        ledger.take_lease("k", ME, 60)
        lease = f"{address.chroot}/mergeberg/v1/leases/k"
        with peeking(address, **client_settings(address)) as client:
            check_rights(client, lease)


def client_settings(address: KeeperAddress) -> dict[str, object]:
    """Return how an administrator connects."""
    login = [("digest", f"{address.user}:{address.password}")] if address.password else []
    if not address.secure:
        return {"auth_data": login}
    return {
        "auth_data": login,
        "use_ssl": True,
        "ca": str(address.ca_file),
        "certfile": str(address.certificate),
        "keyfile": str(address.key),
    }


def check_rights(client: KazooClient, path: str) -> None:
    """Fail unless the node is its creator's alone."""
    rights, _ = client.get_acls(path)
    assert [one.perms for one in rights] == [Permissions.ALL] * len(rights)
    assert {one.id.scheme for one in rights} & {"world"} == set(), path


def test_nodes_of_a_user_are_inaccessible_to_others(zookeeper_server: ZooKeeper) -> None:
    """Harm prevented: any client of Keeper can delete the record of exports."""
    address = address_of(zookeeper_server.address, USER)
    fill(address)

    with peeking(address, **client_settings(address)) as client:
        paths = nodes_below(client, address.chroot)
        assert len(paths) > 12
        for path in paths:
            check_rights(client, path)
    for environment in ({}, ANOTHER):
        stranger = replace(address_of("localhost", environment), hosts=address.hosts)
        stranger = replace(stranger, chroot=address.chroot)
        with opened(stranger) as ledger:
            with pytest.raises(LedgerError, match=r"allows no other to use them\. Set MERGEB") as e:
                ledger.read(KEY)
            assert "another-one" not in str(e.value)
            with pytest.raises(LedgerError, match="allows no other to use them"):
                ledger.write(a_row())


def test_a_user_refuses_nodes_that_anybody_may_change(
    zookeeper_server: ZooKeeper,
) -> None:
    """Harm prevented: credentials are given, and the ledger is everybody's all the same."""
    address = address_of(zookeeper_server.address, USER)
    with opened(replace(address, user=None, password=None)) as everybodys:
        everybodys.write(a_row())

    with opened(address) as ledger:
        with pytest.raises(LedgerError, match=f"every client may change the node {address.chroot}"):
            ledger.write(a_row("other"))
        with pytest.raises(LedgerError, match="every client may change the node"):
            ledger.read(KEY)


def test_a_path_that_an_administrator_gave_is_enough(zookeeper_server: ZooKeeper) -> None:
    """Harm prevented: the ledger wants rights above its own place."""
    address = address_of(zookeeper_server.address, USER)
    own = KazooClient(",".join(address.hosts), auth_data=[("digest", "admin:a")])
    own.start()
    try:
        admin, user = (make_digest_acl(*who, all=True) for who in (("admin", "a"), ME_TO_KEEPER))
        own.create(address.chroot, makepath=True)
        own.create(f"{address.chroot}/lake", acl=[user])
        own.set_acls(address.chroot, [admin])
    finally:
        own.stop()
        own.close()

    with opened(address, chroot=f"{address.chroot}/lake") as ledger:
        assert isinstance(ledger.write(a_row()), Row)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secure_server(authority: Authority) -> Iterator[ZooKeeper]:
    with zookeeper(TlsPort(authority, demands_client=True)) as server:
        yield server


def secure_address(server: ZooKeeper, authority: Authority, **given: str) -> KeeperAddress:
    """Return the address of a place of its own on a server that speaks TLS."""
    environment = {"MERGEBERG_LEDGER_CA_FILE": str(authority.file), **given}
    return parse_keeper(f"keepers://{server.address}{new_chroot()}", environment=environment)


def shown_by(authority: Authority) -> dict[str, str]:
    """Return the environment that shows a client certificate of an authority."""
    mine = authority.sign(subject="exporter")
    return {
        "MERGEBERG_LEDGER_CERTIFICATE": str(mine.certificate),
        "MERGEBERG_LEDGER_KEY": str(mine.key),
    }


@pytest.mark.parametrize("user", [{}, USER])
def test_a_ledger_over_tls_is_the_certificates_or_the_users(
    secure_server: ZooKeeper, authority: Authority, user: dict[str, str]
) -> None:
    address = secure_address(secure_server, authority, **shown_by(authority), **user)
    fill(address)

    with opened(address) as ledger:
        assert ledger.read(KEY) == replace(LARGE, version=1)
    with peeking(address, **client_settings(address)) as client:
        for path in nodes_below(client, address.chroot):
            check_rights(client, path)


@contextmanager
def impostor(authority: Authority) -> Iterator[int]:
    """Serve TLS with a certificate of the authority for another host; yield the port."""
    signed = authority.sign(names="DNS:elsewhere.invalid")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.certificate, signed.key)

    def serve() -> None:
        with suppress(OSError):
            while True:
                with listening.accept()[0] as plain, suppress(OSError):
                    context.wrap_socket(plain, server_side=True).close()

    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        ThreadPoolExecutor(1) as threads,
    ):
        serving = threads.submit(serve)
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            serving.result()


def test_a_server_of_another_authority_or_name_is_refused(
    secure_server: ZooKeeper, authority: Authority, tmp_path: Path
) -> None:
    """Harm prevented: an attacker in the network impersonates Keeper."""
    mine = shown_by(authority)
    other = secure_address(secure_server, Authority(tmp_path, "another"), **mine)
    named = secure_address(secure_server, authority, **mine)
    with impostor(authority) as port:
        for wrong, message in (
            (other, "CERTIFICATE_VERIFY_FAILED.*issuer"),
            (replace(named, hosts=(f"127.0.0.1:{port}",)), "CERTIFICATE_VERIFY_FAILED.*mismatch"),
            (replace(named, certificate=None, key=None), "alert|broken|time-out|reset|EOF|loss"),
        ):
            with (
                opened(wrong, seconds=2.0) as ledger,
                pytest.raises(LedgerError, match=rf"(?i)({message}).*for 2 s"),
            ):
                ledger.is_made()


def test_files_that_are_no_certificates_are_refused(
    secure_server: ZooKeeper, authority: Authority, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    address = secure_address(secure_server, authority, **shown_by(authority))
    for damaged, message in (
        (replace(address, ca_file=wrong), "MERGEBERG_LEDGER_CA_FILE"),
        (replace(address, key=wrong), "MERGEBERG_LEDGER_KEY"),
    ):
        with (
            opened(damaged) as ledger,
            pytest.raises(UsageError, match=message),
        ):
            ledger.is_made()
