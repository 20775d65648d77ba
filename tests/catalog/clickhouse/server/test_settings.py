"""The address of a server: what is read from it, and what is never shown of it."""

from __future__ import annotations

import traceback
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.server.settings import (
    Host,
    ServerSettings,
    is_server,
    parse_server,
)
from tableformat.errors import RefusedError, TableFormatError, UsageError

NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True) | st.ip_addresses(v=6).map(str)
PORTS = st.integers(1, 65_535)
USERS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Z")), min_size=1)
HIDDEN = "pa55-w0rd-of-mine"


def read(uri: str) -> ServerSettings:
    return parse_server(uri, environment={}, allow_insecure=True)


@given(
    st.sampled_from(["https", "http"]),
    st.lists(st.tuples(NAMES, PORTS), min_size=1, max_size=3, unique=True),
    st.none() | USERS,
)
def test_what_is_shown_is_read_back(
    scheme: str, places: list[tuple[str, int]], user: str | None
) -> None:
    hosts = tuple(Host(scheme, name, port) for name, port in places)
    who = f"{quote(user, safe='')}@" if user else ""
    settings = read(f"{scheme}://{who}{','.join(host.place for host in hosts)}")

    assert settings.hosts == hosts
    assert settings.credentials.user == user
    assert read(settings.shown) == settings
    assert [read(host.url).hosts for host in hosts] == [(host,) for host in hosts]


@pytest.mark.parametrize(
    ("uri", "urls"),
    [
        ("https://ch1.example", ["https://ch1.example:8443"]),
        ("HTTPS://CH1.example/", ["https://ch1.example:8443"]),
        ("http://ch1", ["http://ch1:8123"]),
        ("https://a,b:9443,a", ["https://a:8443", "https://b:9443"]),
        ("https://u@[::1]:8443", ["https://[::1]:8443"]),
        ("https://10.0.0.1/?compress=1", ["https://10.0.0.1:8443"]),
    ],
)
def test_an_address_names_one_or_several_servers(uri: str, urls: list[str]) -> None:
    assert [host.url for host in read(uri).hosts] == urls


def test_options_stand_after_the_question_mark() -> None:
    settings = read("https://ch1?connect-timeout=2.5&read-timeout=900&compress=1")

    assert (settings.connect_timeout, settings.read_timeout) == (2.5, 900.0)
    assert settings.compress
    assert not read("https://ch1?compress=0").compress
    assert read("https://ch1,ch2/?replicas=2").replicas == 2
    assert read("https://ch1,ch2").replicas == 1


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("ftp://ch1", r"is no address of a server\. Write https://"),
        ("https:ch1", r"is no address of a server"),
        ("https://", r"https://: '' is not HOST or HOST:PORT"),
        ("https://ch1:port", r"'ch1:port' is not HOST"),
        ("https://ch1:0", r"'ch1:0' is not HOST"),
        ("https://ch1:65536", r"'ch1:65536' is not HOST"),
        ("https://ch1,", r"'' is not HOST"),
        ("https://ch1/db", r"'ch1/db' is not HOST"),
        ("https://ch1#x", r"'ch1#x' is not HOST"),
        ("https://ch1?read-timeout=", r"read-timeout is no number of seconds above 0"),
        ("https://ch1?read-timeout=0", r"read-timeout is no number of seconds above 0"),
        ("https://ch1?connect-timeout=1e3", r"connect-timeout is no number of seconds"),
        ("https://ch1?compress=yes", r"'compress' is not an option, or has an invalid value"),
        ("https://ch1?replicas=0", r"'replicas' is not an option, or has an invalid value"),
        ("https://ch1?replicas=100", r"'replicas' is not an option.*replicas \(1 to 99\)"),
        ("https://ch1?replicas=\u0662", r"'replicas' is not an option, or has an invalid value"),
        ("https://ch1?database=x", r"'database' is not an option.*The options are connect-timeout"),
    ],
)
def test_a_malformed_address_is_refused_with_its_form(uri: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(uri)


def test_http_is_refused_unless_it_is_allowed() -> None:
    """Over http the password and the rows are anybody's, to read and to change."""
    with pytest.raises(RefusedError, match=r"http://ch1: .*Give --allow-insecure, or use https"):
        parse_server("http://ch1", environment={})

    settings = parse_server("http://ch1", environment={}, allow_insecure=True)

    (warning,) = settings.warnings
    assert warning.startswith(
        "http://ch1 is not encrypted: anyone on the network can read and change the rows"
    )
    assert parse_server("https://ch1", environment={}).warnings == ()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8123", "[::1]"])
def test_this_machine_may_be_asked_over_http(host: str) -> None:
    assert parse_server(f"http://{host}", environment={}).warnings == ()


def test_a_host_elsewhere_is_refused_from_every_source_of_settings() -> None:
    """Harm prevented: an address of this machine, and a cluster's other hosts over http."""
    both = (Host("http", "127.0.0.1", 8123), Host("http", "ch2", 8123))

    with pytest.raises(RefusedError, match=r"http://127.0.0.1,ch2: .*use https"):
        parse_server("http://127.0.0.1,ch2", environment={})
    with pytest.raises(RefusedError, match=r"http://127.0.0.1:8123,http://ch2:8123: .*use https"):
        parse_server("http://127.0.0.1", environment={}, instead=both)


def test_a_password_in_the_address_works_and_is_warned_about() -> None:
    """What stands in a command is in the list of processes, for every user of the machine."""
    settings = read(f"https://exporter:{HIDDEN}@ch1")

    assert settings.credentials.password is not None
    assert settings.credentials.password.reveal() == HIDDEN
    assert settings.shown == "https://exporter@ch1:8443"
    (warning,) = settings.warnings
    assert "set MERGEBERG_SOURCE_PASSWORD instead" in warning
    assert HIDDEN not in warning


@pytest.mark.parametrize(
    "uri",
    [
        "https://exporter:{}@ch1:port",
        "https://exporter:a/b?{}#c@ch1:port",
        "https://exporter:a@{}@ch1:0",
        "https://exporter:{}@",
        "https://ch1?password={}",
        "https://ch1?token={}",
        "https://ch1?user=exporter&password={}",
        "https://ch1?x={}",
        "https://ch1?password=a@{}",
        "https://ch1/?token=a@{}",
        "https://exporter@ch1:8443/?password=a@{}",
        "https://ch1?read-timeout={}",
        "https://exporter:{}@ch1?compress=2",
        "https:exporter:{}@ch1",
        "{}://exporter@ch1",
        "https://exporter:{}%0A@ch1",
    ],
)
def test_a_malformed_address_never_shows_its_password(
    uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UsageError) as raised:
        read(uri.format(HIDDEN))

    shown = "".join(traceback.format_exception(raised.value, chain=True)[-1:])
    assert HIDDEN not in shown + repr(raised.value) + caplog.text


@given(st.text(max_size=20), st.text(max_size=20), st.sampled_from(["https", "http"]))
def test_wherever_a_password_stands_before_the_host_it_is_not_shown(
    before: str, after: str, scheme: str
) -> None:
    """Whatever else is in the address, and whether or not it can be read."""
    shown = []
    try:
        settings = read(f"{scheme}://u:{before}{HIDDEN}{after}@ch1:8443")
        shown = [repr(settings), settings.shown, *settings.warnings]
    except TableFormatError as error:
        shown = [repr(error), str(error)]
    assert HIDDEN not in " ".join(shown)


@pytest.mark.parametrize(
    ("uri", "yes"),
    [("https://a", True), ("HTTP://a", True), ("http:a", True), ("chdb:x", False), ("", False)],
)
def test_a_servers_address_is_distinguished_from_other_sources(uri: str, *, yes: bool) -> None:
    assert is_server(uri) == yes
