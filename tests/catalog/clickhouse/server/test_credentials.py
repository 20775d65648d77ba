"""Who logs in: what is sent, and that nothing shows it."""

from __future__ import annotations

import dataclasses
import json
import pickle
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.server.settings import (
    ClientCertificate,
    Credentials,
    Host,
    Secret,
    ServerSettings,
    Tls,
)
from tableformat.errors import UsageError

# Long enough that none stands in a text by chance.
# As long as no word of what is shown anyway.
SECRETS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Z")), min_size=24)
KEY = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0LWtleQ==\n-----END PRIVATE KEY-----\n"


def settings_of(credentials: Credentials) -> ServerSettings:
    return ServerSettings((Host("https", "ch1", 8443),), credentials, Tls("the authority"))


@given(SECRETS, st.booleans())
def test_no_form_of_the_settings_shows_a_secret(secret: str, is_token: bool) -> None:  # noqa: FBT001
    """Settings go into plans, logs and tracebacks; what they show, everybody reads."""
    certificate = ClientCertificate("public", Secret(KEY))
    given_ = (
        Credentials(token=Secret(secret), certificate=certificate)
        if is_token
        else Credentials("exporter", Secret(secret), certificate=certificate)
    )
    settings = settings_of(given_)
    values = (settings, given_, certificate, Secret(secret), settings.credentials.shown)

    for value in values:
        for form in (repr(value), str(value), f"{value}", f"{[value]!r}", settings.shown):
            assert secret not in form
            assert "c2VjcmV0" not in form
    for taken_apart in (dataclasses.asdict(settings), dataclasses.astuple(settings)):
        assert secret not in repr(taken_apart)
        with pytest.raises(TypeError, match=r"Secret is not JSON") as raised:
            json.dumps(taken_apart)
        assert secret not in "".join(traceback.format_exception(raised.value))


@given(SECRETS)
def test_a_task_on_another_host_gets_the_same_credentials(secret: str) -> None:
    """Spark sends them as pickles; what came out otherwise would not log in."""
    settings = settings_of(
        Credentials("u", Secret(secret), certificate=ClientCertificate("public", Secret(KEY)))
    )

    again = pickle.loads(pickle.dumps(settings))  # noqa: S301  our own

    assert again == settings
    assert again.credentials.password.reveal() == secret
    assert hash(again.credentials) == hash(settings.credentials)
    assert again.credentials != Credentials("u", Secret(f"{secret}x"))


@pytest.mark.parametrize(
    ("credentials", "headers", "shown", "checked"),
    [
        (
            Credentials(),
            {"X-ClickHouse-User": "default"},
            "the user 'default'",
            "MERGEBERG_SOURCE_USER, and set MERGEBERG_SOURCE_PASSWORD: no password was given",
        ),
        (
            Credentials("exporter", Secret("pass wörd")),
            {"X-ClickHouse-User": "exporter", "X-ClickHouse-Key": "pass w\xc3\xb6rd"},
            "the user 'exporter'",
            "MERGEBERG_SOURCE_USER and MERGEBERG_SOURCE_PASSWORD",
        ),
        (
            Credentials(token=Secret("e.y.J")),
            {"Authorization": "Bearer e.y.J"},
            "an access token",
            "MERGEBERG_SOURCE_TOKEN",
        ),
        (
            Credentials("exporter", certificate=ClientCertificate("public", Secret(KEY))),
            {"X-ClickHouse-User": "exporter", "X-ClickHouse-SSL-Certificate-Auth": "on"},
            "the user 'exporter' by a client certificate",
            "whether the server lets that user in by this certificate",
        ),
    ],
    ids=["nobody", "password", "token", "certificate"],
)
def test_each_way_to_log_in_has_its_headers(
    credentials: Credentials, headers: dict[str, str], shown: str, checked: str
) -> None:
    """As ClickHouse's HTTP interface takes them, in UTF-8, and never in the address."""
    assert credentials.headers() == headers
    assert credentials.shown == shown
    assert credentials.to_check == checked


@pytest.mark.parametrize("wrong", ["", " secret", "secret ", "sec\nret", "secr\0et", "\ud800"])
def test_what_http_cannot_carry_is_refused_without_being_shown(wrong: str) -> None:
    """HTTP trims header values, and a line's end would begin another header."""
    with pytest.raises(UsageError, match=r"the password is empty, begins or ends") as raised:
        Credentials("exporter", Secret(wrong))

    assert "sec" not in str(raised.value)
    with pytest.raises(UsageError, match=r"the access token is empty"):
        Credentials(token=Secret(wrong))
    with pytest.raises(UsageError, match=r"the user name is empty"):
        Credentials(wrong)


def test_a_token_says_by_itself_who_logs_in() -> None:
    with pytest.raises(UsageError, match=r"an access token and a password are given.*one of the"):
        Credentials("u", Secret("secret"), Secret("token"))
    with pytest.raises(UsageError, match=r"an access token and a user are given"):
        Credentials("u", token=Secret("token"))


@given(SECRETS, st.text(max_size=20), st.text(max_size=20))
def test_what_a_server_says_is_shown_without_our_secret(
    secret: str, before: str, after: str
) -> None:
    """A proxy may send back what it was sent."""
    masked = Credentials("u", Secret(secret)).masked(f"{before}{secret}{after}")

    assert secret not in masked
    assert Credentials("u").masked(f"{before}{secret}") == f"{before}{secret}"
