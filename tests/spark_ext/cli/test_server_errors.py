"""The messages about an unusable server: as docs/reference/errors.md says, and no secret."""

from __future__ import annotations

import logging

import pytest

from tests.services.clickhouse_front import ClickHouseFront
from tests.support.errors_page import refusal_of, rows
from tests.wrong.places import Places
from tests.wrong.reading import READING
from tests.wrong.rights import RIGHTS
from tests.wrong.servers import HIDDEN, SERVERS, SOURCES


@pytest.fixture(autouse=True)
def _nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "PASSWORD", "TOKEN", "CA_FILE", "CERTIFICATE", "KEY", "CONFIG"):
        monkeypatch.delenv(f"MERGEBERG_SOURCE_{name}", raising=False)


@pytest.mark.parametrize("what", SOURCES)
def test_a_wrong_address_says_what_the_page_says(places: Places, what: str) -> None:
    assert refusal_of(places, SOURCES[what]) == rows()[what]


@pytest.mark.parametrize("what", SERVERS)
def test_a_wrong_server_says_what_the_page_says(
    places: Places, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    assert SERVERS[what](places, monkeypatch) == rows()[what]


@pytest.mark.parametrize("what", RIGHTS)
def test_a_user_without_rights_gets_the_message_of_the_page(
    places: Places, newest_server: ClickHouseFront, what: str
) -> None:
    """And nothing is left in the source."""
    assert RIGHTS[what](places, newest_server) == rows()[what]

    left = "SELECT name FROM system.tables WHERE database = 'mergeberg_staging'"
    assert newest_server.rows(left) == ()


@pytest.mark.parametrize("what", READING)
def test_what_goes_wrong_at_a_server_on_the_way_says_what_the_page_says(
    places: Places, newest_server: ClickHouseFront, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    assert READING[what](places, newest_server, monkeypatch) == rows()[what]


@pytest.mark.parametrize("what", SOURCES)
@pytest.mark.parametrize("more", [(), ("--json",), ("--debug",)])
def test_no_output_shows_the_password_of_an_address(
    places: Places, caplog: pytest.LogCaptureFixture, what: str, more: tuple[str, ...]
) -> None:
    """The next command is made of what was typed, the password included."""
    with caplog.at_level(logging.DEBUG):
        _, out, err = places.run(*SOURCES[what], *more)

    assert "Cannot " in err
    assert HIDDEN not in out + err + caplog.text
