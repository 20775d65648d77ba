"""A PostgreSQL over TLS with an authority of its own; one that cannot prove itself is not used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.iceberg import catalogs as encrypted
from catalog.iceberg.catalogs import OpenedCatalog
from tableformat.errors import DestinationError
from tests.services.certificates import Authority
from tests.services.postgres import Postgres, postgres
from tests.services.postgres_tls_proxy import TlsProxy, tls_proxy


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take this machine for another one: only then anything is demanded."""
    monkeypatch.setattr(encrypted, "is_this_machine", lambda _: False)


def namespaces(server: Postgres, at: TlsProxy, query: str) -> list[tuple[str, ...]]:
    uri = f"postgresql+psycopg2://{server.account()}@localhost:{at.port}/postgres?{query}"
    catalog = OpenedCatalog("prod", None, {"uri": uri, "warehouse": "file:///nowhere"}).catalog
    catalog.create_namespace("n")
    return catalog.list_namespaces()


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("mode", ["", "&sslmode=verify-full", "&sslmode=verify-ca"])
def test_an_own_authority_is_trusted(server: Postgres, authority: Authority, mode: str) -> None:
    with tls_proxy(server.socket, authority.sign()) as at:
        found = namespaces(server, at, f"sslrootcert={authority.file}{mode}")

        assert at.encrypted > 0
    assert found == [("n",)]


@pytest.mark.usefixtures("far")
def test_a_server_without_a_valid_certificate_gets_no_query(
    server: Postgres, authority: Authority, tmp_path: Path
) -> None:
    """Harm prevented: another server says which files a table has."""
    trusting = f"sslrootcert={authority.file}"
    stranger = Authority(tmp_path, "stranger").sign()
    elsewhere = authority.sign(names="DNS:db.example")
    for identity, message in (
        (stranger, "certificate verify failed"),
        (elsewhere, "does not match host name"),
        (None, "server does not support SSL"),
    ):
        with (
            tls_proxy(server.socket, identity) as at,
            pytest.raises(DestinationError, match=message),
        ):
            namespaces(server, at, trusting)
