"""Catalogs use TLS, unless they are on this machine or the user allows plain connections."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import make_url

from catalog.iceberg import catalogs as encrypted
from catalog.iceberg.catalogs import OpenedCatalog, with_encryption
from tableformat.errors import RefusedError

REST = "http://catalog.example:8181/api"
POSTGRES = "postgresql+psycopg2://exporter:hidden@db.example/iceberg"
NOTHING: Mapping[str, str] = {}


@pytest.fixture(autouse=True)
def _no_warning_yet() -> None:
    encrypted._warn_once.cache_clear()


def opened(uri: str, environment: Mapping[str, str] = NOTHING, **more: Any) -> str:
    return str(with_encryption("prod", {"uri": uri, **more}, environment)["uri"])


@pytest.mark.parametrize(
    "uri",
    [
        REST,
        "http://user:hidden@catalog.example",
        f"{POSTGRES}?sslmode=disable",
        f"{POSTGRES}?sslmode=prefer",
        f"{POSTGRES}?sslmode=allow",
        "postgresql+psycopg2:///iceberg?host=db.example&sslmode=prefer",
        "postgresql+psycopg2://127.0.0.1,db.example/iceberg?sslmode=prefer",
    ],
)
def test_what_may_be_plain_is_refused_unless_it_is_allowed(
    uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Harm prevented: an attacker in the network changes which files a table has."""
    with pytest.raises(RefusedError) as caught:
        opened(uri)
    assert "without TLS anyone on the network" in caught.value.message
    assert "mergeberg.allow-insecure: true" in caught.value.message
    assert "hidden" not in caught.value.message
    assert caplog.messages == []

    allowed: tuple[dict[str, Any], ...] = (
        {"mergeberg.allow-insecure": True},
        {"environment": {"MERGEBERG_ALLOW_INSECURE": "1"}},
    )
    for how in allowed:
        with caplog.at_level(logging.WARNING):
            assert opened(uri, **how) == uri

    (warning,) = caplog.messages
    assert "is used without TLS" in warning
    assert "hidden" not in warning


def test_a_token_is_fetched_over_tls_too() -> None:
    """Harm prevented: the catalog's secret is sent to the token server in clear."""
    login: dict[str, Any] = {"oauth2-server-uri": "http://login.example/token"}
    with pytest.raises(RefusedError, match=r"http://login.example.*Use https in its oauth2-server"):
        opened("https://catalog.example", **login)


def test_a_catalog_is_refused_before_any_request() -> None:
    """Harm prevented: the check exists, but opening a catalog bypasses it."""
    with pytest.raises(RefusedError, match=r"the catalog prod \(http://catalog.invalid\)"):
        _ = OpenedCatalog("prod", None, {"uri": "http://catalog.invalid"}).catalog
    uri = "postgresql+psycopg2://db.invalid/x?sslmode=disable"
    with pytest.raises(RefusedError, match=r"the catalog prod \(PostgreSQL at db.invalid\)"):
        _ = OpenedCatalog("prod", None, {"uri": uri}).catalog


@pytest.mark.parametrize("where", ["db.example", "10.0.0.1:6432", "db1,db2"])
def test_without_an_sslmode_libpq_must_not_fall_back(where: str) -> None:
    """Harm prevented: without TLS on the server, libpq silently connects in clear."""
    url = make_url(
        opened(f"postgresql+psycopg2://exporter:hidden@{where}/iceberg?connect_timeout=3")
    )

    assert url.query == {"connect_timeout": "3", "sslmode": "verify-full"}
    assert (url.username, url.password, url.database) == ("exporter", "hidden", "iceberg")


@pytest.mark.parametrize(
    ("uri", "environment"),
    [
        (f"{POSTGRES}?sslmode=require", NOTHING),
        (f"{POSTGRES}?sslmode=verify-full&sslrootcert=/ca.pem", NOTHING),
        (POSTGRES, {"PGSSLMODE": "verify-ca"}),
        ("https://catalog.example", NOTHING),
        ("http://127.0.0.1:8181", NOTHING),
        ("http://localhost:8181", NOTHING),
        ("http://[::1]:8181", NOTHING),
        ("postgresql+psycopg2:///iceberg", NOTHING),
        ("postgresql+psycopg2:///iceberg?host=/run/postgresql", NOTHING),
        ("postgresql+psycopg2:///iceberg", {"PGHOST": "/run/postgresql"}),
        ("postgresql+psycopg2://127.0.0.1:5432/iceberg?sslmode=disable", NOTHING),
        ("sqlite:////lake/catalog.db", NOTHING),
    ],
)
def test_what_is_encrypted_or_stays_here_is_left_alone(
    uri: str, environment: Mapping[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert opened(uri, environment) == uri
    assert caplog.messages == []


def test_the_host_of_the_environment_is_a_host() -> None:
    assert "verify-full" in opened("postgresql+psycopg2:///iceberg", {"PGHOST": "db.example"})
    with pytest.raises(RefusedError, match=r"PostgreSQL at db.example"):
        opened("postgresql+psycopg2:///x?sslmode=prefer", {"PGHOST": "db.example"})
