"""The address of a JDBC catalog and SQLAlchemy's of the same database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.engine import make_url

from catalog.iceberg.spark_settings import sqlalchemy_uri
from tableformat.errors import UnsupportedError

TEXTS = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)


def refused(setting: str, why: str) -> UnsupportedError:
    return UnsupportedError(f"Cannot: {setting} {why}.")


def translated(uri: str, **options: str) -> str:
    return sqlalchemy_uri(uri, options, refused)


@given(path=TEXTS.filter(lambda text: "?" not in text))
def test_a_file_is_the_same_file(path: str) -> None:
    """Harm prevented: characters in the path open another, empty catalog."""
    url = make_url(translated(f"jdbc:sqlite:/srv/{path}"))

    assert (url.drivername, url.database) == ("sqlite", f"/srv/{path}")


@given(user=TEXTS, password=TEXTS, port=st.integers(1, 65_535))
def test_the_server_and_the_user_of_the_address_are_the_same(
    user: str, password: str, port: int
) -> None:
    """Also where user and password have characters that an address has a use for."""
    address = f"jdbc:postgresql://db.example:{port}/iceberg"
    url = make_url(translated(address, user=user, password=password))

    assert (url.drivername, url.host, url.port) == ("postgresql+psycopg2", "db.example", port)
    assert (url.database, url.username, url.password) == ("iceberg", user, password)


@pytest.mark.parametrize(
    ("options", "given_options", "found"),
    [
        ("?ssl=true", {}, {"sslmode": "verify-full"}),
        ("?sslmode=require&ssl=true", {}, {"sslmode": "require"}),
        ("?ssl=false", {}, {}),
        ("", {"sslmode": "require"}, {"sslmode": "require"}),
        ("?sslmode=disable", {"sslMode": "require"}, {"sslmode": "disable"}),
        ("?currentSchema=lake", {}, {"options": "-csearch_path=lake"}),
        ("?ApplicationName=a%20b", {}, {"application_name": "a b"}),
        ("?connectTimeout=7&socketTimeout=3&tcpKeepAlive=true", {}, {"connect_timeout": "7"}),
        ("?sslrootcert=/etc/ca.pem", {}, {"sslrootcert": "/etc/ca.pem"}),
    ],
)
def test_options_are_those_of_the_library_and_the_address_comes_first(
    options: str, given_options: dict[str, str], found: dict[str, str]
) -> None:
    url = make_url(translated(f"jdbc:postgresql://h/d{options}", **given_options))

    assert dict(url.query) == found


@pytest.mark.parametrize(
    ("uri", "host", "database"),
    [
        ("jdbc:postgresql://[::1]:5432/d", "::1", "d"),
        ("jdbc:postgresql:///d", "localhost", "d"),
        ("jdbc:postgresql://h/", "h", None),
        ("jdbc:postgresql://h/a%2Fb", "h", "a/b"),
    ],
)
def test_every_form_of_an_address_with_one_host_is_read(
    uri: str, host: str, database: str | None
) -> None:
    url = make_url(translated(uri))

    assert (url.host, url.database) == (host, database)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("jdbc:mysql://h/d", "another database than SQLite"),
        ("postgresql://h/d", "another database than SQLite"),
        ("", "another database than SQLite"),
        ("jdbc:sqlite:lake.db", "names no file by its whole path"),
        ("jdbc:sqlite::memory:", "names no file by its whole path"),
        ("jdbc:sqlite:file:/lake.db", "names no file by its whole path"),
        ("jdbc:sqlite:/lake.db?cipher=x", "another option than busy_timeout"),
        ("jdbc:postgresql://h1,h2/d", "with one host"),
        ("jdbc:postgresql:d", "with one host"),
        ("jdbc:postgresql://u:hunter2@h/d", "with one host"),
        ("jdbc:postgresql://h/d?user=u&password=a&hunter2", "an option without an equivalent"),
        ("jdbc:postgresql://h/d?currentSchema=a;b", "an option without an equivalent"),
        ("jdbc:postgresql://h/d?socketFactory=x", "an option without an equivalent"),
    ],
)
def test_what_is_not_the_same_is_refused_without_its_text(uri: str, message: str) -> None:
    """A part of a password may stand where an option does."""
    with pytest.raises(UnsupportedError, match=message) as caught:
        translated(uri)

    assert "hunter2" not in str(caught.value)


def test_options_of_a_file_are_left_out_or_refused() -> None:
    assert translated("jdbc:sqlite:/a.db", user="u", password="p") == "sqlite:////a.db"  # noqa: S106
    with pytest.raises(UnsupportedError, match=r"jdbc\.cipher has another option"):
        translated("jdbc:sqlite:/a.db", cipher="x")
    assert translated("jdbc:sqlite:/a.db?journal_mode=WAL&busy_timeout=5") == "sqlite:////a.db"
