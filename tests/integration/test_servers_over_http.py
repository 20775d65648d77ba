"""The oldest and the newest ClickHouse over HTTP: the same values, and no error taken for rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from catalog.clickhouse.connection import ClickHouseError
from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.settings import Credentials, Secret, ServerSettings, parse_server
from tableformat.errors import SourceError
from tests.services.certificates import Authority
from tests.services.clickhouse_front import ClickHouseFront, FrontTls, clickhouse_front
from tests.services.clickhouse_http.faults import BrokenStream
from tests.services.old_clickhouse import OldPair

Connect = Callable[..., ServerConnection]

# Fails after some megabytes, long after the HTTP status 200.
FAILS_LATE = "SELECT number, throwIf(number = 3000000) FROM system.numbers LIMIT 4000000"


def settings_of(url: str, user: str | None = None, word: str | None = None) -> ServerSettings:
    settings = parse_server(url, environment={}, allow_insecure=True)
    password = None if word is None else Secret(word)
    return replace(settings, credentials=Credentials(user, password))


def connected(settings: ServerSettings) -> ServerConnection:
    return ServerConnection(ServerClient(settings, settings.hosts[0]))


@pytest.fixture
def oldest(old_servers: OldPair) -> Iterator[ServerConnection]:
    with connected(settings_of(old_servers.url(1))) as connection:
        yield connection


@pytest.fixture
def newest(newest_server: ClickHouseFront) -> Iterator[ServerConnection]:
    with connected(settings_of(newest_server.url)) as connection:
        yield connection


@pytest.fixture(params=[pytest.param("oldest", marks=pytest.mark.nightly), "newest"])
def connection(request: pytest.FixtureRequest) -> ServerConnection:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, ServerConnection)
    return found


def test_values_arrive_the_same_from_every_version(connection: ServerConnection) -> None:
    """Digits of 64 bits, decimals, dates and NULL, whatever a version writes by default."""
    sql = (
        "SELECT toUInt64(-1), toInt64(-9223372036854775808), toDecimal64('1.5', 4), 0.1, nan,"
        " toDate('2024-02-29'), NULL, [toUInt64(-1)], 'ä\\'\\n\\t\\\\', toUInt8(1)"
    )
    (row,) = connection.rows(sql)
    decimal = row[2]

    assert row[:2] == (2**64 - 1, -(2**63))
    # The oldest writes the zeros at the end.
    assert decimal in ("1.5", "1.5000")
    assert row[3:] == (0.1, "nan", "2024-02-29", None, [2**64 - 1], "ä'\n\t\\", 1)
    assert connection.rows("SELECT 1 WHERE 0") == ()
    assert len(connection.rows("SELECT number FROM system.numbers LIMIT 100000")) == 100_000


def test_statements_are_performed_or_refused(connection: ServerConnection) -> None:
    connection.command("CREATE DATABASE said")
    connection.command("CREATE TABLE said.t (k UInt64) ENGINE = MergeTree ORDER BY k")
    connection.command("INSERT INTO said.t SELECT number FROM system.numbers LIMIT 7")

    assert connection.rows("SELECT count() FROM said.t") == ((7,),)
    connection.command("DROP TABLE said.t")
    with pytest.raises(ClickHouseError, match=r"said") as raised:
        connection.command("DROP TABLE said.t")
    assert raised.value.code == 60
    connection.command("DROP DATABASE said")
    with pytest.raises(ClickHouseError, match=r"nope") as raised:
        connection.rows("SELECT nope")
    assert raised.value.code == 47
    with pytest.raises(ClickHouseError, match=r"throwIf"):
        connection.rows(FAILS_LATE)


def test_bytes_that_are_no_utf8_arrive_or_are_refused(
    oldest: ServerConnection, newest: ServerConnection
) -> None:
    """Both would say U+FFFD for them in the format that both have."""
    assert newest.rows("SELECT unhex('FF41'), 1") == (("\udcffA", 1),)
    with pytest.raises(SourceError, match=r"is not UTF-8.*Use a newer version"):
        oldest.rows("SELECT unhex('FF41')")


@pytest.mark.parametrize("compress", [False, True])
def test_the_oldest_server_ends_a_failed_stream_as_if_all_were_well(
    oldest: ServerConnection,
    compress: bool,  # noqa: FBT001
) -> None:
    """So the text is kept for who reads the format and finds that rows are missing."""
    client = ServerClient(replace(oldest.client.settings, compress=compress), oldest.host)
    with client, client.stream(f"{FAILS_LATE} FORMAT Native") as stream:
        read = sum(len(chunk) for chunk in stream.chunks())

        assert read > 1_000_000
        assert stream.is_complete
        assert stream.error_at_end is not None
        assert stream.error_at_end.code == 395
    with oldest.client.stream("SELECT 'Code: 395, e.displayText() = DB::Exception: x'") as stream:
        assert b"".join(stream.chunks()) == b"Code: 395, e.displayText() = DB::Exception: x\n"


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("how", BrokenStream)
def test_newer_servers_break_a_failed_stream_off(
    newest_server: ClickHouseFront,
    how: BrokenStream,
    compress: bool,  # noqa: FBT001
) -> None:
    """However their version tells it."""
    newest_server.break_streams(how)
    settings = replace(settings_of(newest_server.url), compress=compress)
    with (
        ServerClient(settings, settings.hosts[0]) as client,
        client.stream(f"{FAILS_LATE} FORMAT Native") as stream,
    ):
        failure: SourceError | None = None
        try:
            for _ in stream.chunks():
                pass
            failure = stream.error_at_end
        except SourceError as error:
            failure = error
        assert failure is not None
        assert newest_server.url in str(failure)
        assert failure.code == 395 or "breaks off" in str(failure)


def test_a_refused_login_is_one_line(old_servers: OldPair, newest_server: ClickHouseFront) -> None:
    newest_server.command("CREATE USER exporter IDENTIFIED BY 'the-right-one'")
    with connected(settings_of(newest_server.url, "exporter", "the-right-one")) as connection:
        assert connection.rows("SELECT 1") == ((1,),)
    for url in (old_servers.url(1), newest_server.url):
        for user in ("exporter", "nobody"):
            with (
                connected(settings_of(url, user, "the-wrong-one")) as connection,
                pytest.raises(
                    SourceError, match=rf"Cannot log in.*{url} as the user '{user}'"
                ) as e,
            ):
                connection.rows("SELECT 1")
            assert e.value.code in (192, 193, 516)
            assert "the-wrong-one" not in str(e.value)
            assert "\n" not in str(e.value)


def test_a_profile_that_cuts_results_off_is_overruled(newest_server: ClickHouseFront) -> None:
    """With result_overflow_mode = 'break' a server gives the first rows and says that it is all."""
    newest_server.command(
        "CREATE USER short SETTINGS max_result_rows = 10, result_overflow_mode = 'break',"
        " max_block_size = 10"
    )
    with (
        connected(settings_of(newest_server.url, "short")) as connection,
        pytest.raises(ClickHouseError, match=r"Limit for result exceeded") as raised,
    ):
        connection.rows("SELECT number FROM system.numbers LIMIT 1000")
    assert raised.value.code == 396


def test_the_refusal_for_a_read_only_user_names_what_to_allow(
    old_servers: OldPair, newest_server: ClickHouseFront
) -> None:
    """Without them 64 bits would arrive as text from one version and as a number from another."""
    newest_server.command("CREATE USER reader SETTINGS readonly = 1")
    for url in (old_servers.url(1), newest_server.url):
        with (
            connected(settings_of(url, "reader")) as connection,
            pytest.raises(
                SourceError,
                match=r"as the user 'reader': Cannot .* in readonly mode.*\(readonly = 0",
            ) as raised,
        ):
            connection.rows("SELECT 1")
        assert raised.value.code == 164


def test_a_connection_of_yesterday_is_not_used(oldest: ServerConnection) -> None:
    """The oldest server closes connections that are idle; a statement would be lost with one."""
    assert oldest.rows("SELECT 1") == ((1,),)
    client = oldest.client
    # As if more seconds had gone by than the server waits.
    client._used -= 3600
    pool = client._pool
    assert oldest.rows("SELECT 2") == ((2,),)
    assert client._pool is not pool


def test_tls_a_token_and_a_certificate(tmp_path_factory: pytest.TempPathFactory) -> None:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    own = authority.sign(subject="exporter")
    files = {
        "CA_FILE": str(authority.file),
        "CERTIFICATE": str(own.certificate),
        "KEY": str(own.key),
    }
    environment = {f"MERGEBERG_SOURCE_{name}": path for name, path in files.items()}
    tls = FrontTls("".join(authority.sign().texts), authority.text)
    with clickhouse_front(tls=tls) as front:
        front.command("CREATE USER exporter IDENTIFIED WITH ssl_certificate CN 'exporter'")
        front.command("CREATE USER holder")
        front.token("holder", "a.b.c")
        address = front.url.replace("https://", "https://exporter@")

        with connected(parse_server(address, environment=environment)) as connection:
            assert connection.rows("SELECT currentUser()") == (("exporter",),)
        del environment["MERGEBERG_SOURCE_CERTIFICATE"], environment["MERGEBERG_SOURCE_KEY"]
        environment["MERGEBERG_SOURCE_TOKEN"] = "a.b.c"  # noqa: S105
        with connected(parse_server(front.url, environment=environment)) as connection:
            assert connection.rows("SELECT currentUser()") == (("holder",),)
