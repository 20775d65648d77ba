"""TLS of the front: who trusts whom is decided by TLS itself."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest
import urllib3

from tests.services.certificates import Authority, Identity
from tests.services.clickhouse_front import ClickHouseFront, FrontTls, clickhouse_front


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def front(authority: Authority) -> Iterator[ClickHouseFront]:
    with clickhouse_front(tls=FrontTls("".join(authority.sign().texts), authority.text)) as made:
        made.command("CREATE USER exporter IDENTIFIED WITH ssl_certificate CN 'exporter'")
        yield made


def ask(front: ClickHouseFront, trusts: Authority, shows: Identity | None = None) -> str:
    """Ask who one is, as `exporter`, and showing a certificate when there is one."""
    context = ssl.create_default_context(cafile=trusts.file)
    headers = {}
    if shows is not None:
        context.load_cert_chain(shows.certificate, shows.key)
        headers = {"X-ClickHouse-User": "exporter", "X-ClickHouse-SSL-Certificate-Auth": "on"}
    with urllib3.PoolManager(ssl_context=context, retries=False, timeout=30) as http:
        sql = "SELECT currentUser()"
        return http.request("POST", front.url, body=sql, headers=headers).data.decode()


def test_a_client_that_trusts_the_authority_gets_a_response(
    front: ClickHouseFront, authority: Authority
) -> None:
    assert ask(front, authority) == "default\n"


def test_a_client_that_trusts_somebody_else_does_not_ask(
    front: ClickHouseFront, stranger: Authority
) -> None:
    with pytest.raises(urllib3.exceptions.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        ask(front, stranger)


def test_a_client_certificate_stands_for_the_user_whom_it_names(
    front: ClickHouseFront, authority: Authority
) -> None:
    exporter, other = authority.sign(subject="exporter"), authority.sign(subject="other")

    assert ask(front, authority, exporter) == "exporter\n"
    assert ask(front, authority, other).startswith("Code: 516.")


def test_a_certificate_of_somebody_else_is_not_taken(
    front: ClickHouseFront, authority: Authority, stranger: Authority
) -> None:
    forged = stranger.sign(subject="exporter")

    with pytest.raises(urllib3.exceptions.HTTPError, match=r"(?i)ssl|alert|eof|reset|aborted"):
        ask(front, authority, forged)


@pytest.mark.parametrize(
    ("names", "days", "match"),
    [
        ("IP:127.0.0.1", -1, "certificate has expired"),
        ("DNS:elsewhere.example", 30, "IP address mismatch"),
    ],
)
def test_a_server_with_a_wrong_certificate_is_not_asked(
    authority: Authority, names: str, days: int, match: str
) -> None:
    wrong = authority.sign(names=names, days=days)
    with (
        clickhouse_front(tls=FrontTls("".join(wrong.texts))) as front,
        pytest.raises(urllib3.exceptions.SSLError, match=match),
    ):
        ask(front, authority)
