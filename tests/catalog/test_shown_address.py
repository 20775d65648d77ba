"""What may be shown of a source, whatever the user wrote there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.network import shown_address, without_secret

HIDDEN = "pa55-w0rd-of-mine"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"https://u:{HIDDEN}@ch1:8443", "https://u@ch1:8443"),
        (f"--source=https://u:{HIDDEN}@ch1", "--source=https://u@ch1"),
        (f"clickhouse://u:{HIDDEN}@ch1/db?a=b", "clickhouse://u@ch1/db?a=b"),
        (f"https://u:a@{HIDDEN}/?#@ch1", "https://u@ch1"),
        (f"https://ch1?password={HIDDEN}&read-timeout=3", "https://ch1?read-timeout=3"),
        (f"https://ch1?password=a@{HIDDEN}", "https://ch1"),
        (f"https://ch1:8443/?user=u&password={HIDDEN}@{HIDDEN}", "https://ch1"),
        (f"https://u@ch1/?password=a@{HIDDEN}", "https://u"),
        (f"clickhouse://u@ch1/db?password={HIDDEN}&a=b", "clickhouse://u@ch1/db?a=b"),
        (f"clickhouse://ch1/db?a=b&apiToken={HIDDEN}", "clickhouse://ch1/db?a=b"),
        ("https://u@ch1,ch2?compress=1", "https://u@ch1,ch2?compress=1"),
        ("https://ch1", "https://ch1"),
        ("chdb:./clickhouse", "chdb:./clickhouse"),
        ("--all", "--all"),
    ],
)
def test_an_address_is_shown_without_its_password(text: str, shown: str) -> None:
    assert without_secret(text) == shown


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=10), st.text(max_size=20))
def test_no_password_of_an_address_is_shown(
    before: str, after: str, scheme: str, place: str
) -> None:
    assert HIDDEN not in without_secret(f"{scheme}://u:{before}{HIDDEN}{after}@{place}")


@given(
    st.sampled_from(["https", "http", "clickhouse", "jdbc:clickhouse"]),
    st.sampled_from(["", "u@", "u:p@"]),
    st.sampled_from(["ch1", "ch1:8443", "ch1/", "ch1:8443/db"]),
    st.sampled_from(["password", "token", "access_token", "PASSWORD", "sslkey"]),
    st.text(st.characters(exclude_characters="&"), max_size=10),
)
def test_no_secret_that_stands_among_the_options_is_shown(
    scheme: str, user: str, place: str, option: str, before: str
) -> None:
    """The message to a user who writes it there says that it is no option, without the value."""
    assert HIDDEN not in without_secret(f"{scheme}://{user}{place}?{option}={before}@{HIDDEN}")
    assert HIDDEN not in without_secret(f"{scheme}://{user}{place}?{option}={before}{HIDDEN}")


@given(st.text())
def test_what_is_no_address_is_shown_as_it_is(text: str) -> None:
    if "://" not in text:
        assert without_secret(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"u:{HIDDEN}@ch1:8123", "u@ch1:8123"),
        (f"u:a:{HIDDEN}@{HIDDEN}@ch1:8123", "u@ch1:8123"),
        (f"zookeeper:u:{HIDDEN}@h/x", "zookeeper@h/x"),
        (f"https:u:{HIDDEN}@ch1", "https@ch1"),
        (f"ch=https:u:{HIDDEN}@ch1", "ch=https@ch1"),
        (f"ch1:8123?password={HIDDEN}&a=b", "ch1:8123?a=b"),
        (f"https://u:{HIDDEN}@ch1", "https://u@ch1"),
        ("chdb:/a:b@c?key=d", "chdb:/a:b@c?key=d"),
        ("ch=chdb:/a:b@c", "ch=chdb:/a:b@c"),
        ("parts:/a:b@c?ddl=/t:u@v.sql", "parts:/a:b@c?ddl=/t:u@v.sql"),
        ("sqlite:/a:b@c?key=d", "sqlite:/a:b@c?key=d"),
        ("ch1.example:8123", "ch1.example:8123"),
        ("user@ch1", "user@ch1"),
    ],
)
def test_a_malformed_address_is_shown_without_its_password(text: str, shown: str) -> None:
    """The user left the scheme out; the paths of files may have any characters."""
    assert shown_address(text) == shown


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_no_password_of_a_malformed_address_is_shown(before: str, after: str, at: str) -> None:
    assert HIDDEN not in shown_address(f"u:{before}{HIDDEN}{after}@{at.replace('@', '')}")
