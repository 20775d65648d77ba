"""Settings of HDFS, and the reading of its responses, without a cluster."""

from __future__ import annotations

import json
import os

import pytest

from catalog.secret_variables import harmless_environment
from catalog.storages.access import ALLOW_INSECURE
from catalog.storages.hdfs.access import ENDPOINT, TOKEN, USER, HdfsAccess
from catalog.storages.hdfs.store import STORE, HdfsRefusalError
from catalog.storages.schemes import Storages
from tableformat.errors import (
    DeniedError,
    EndedCredentialsError,
    LastingError,
    RefusedError,
    UnsupportedError,
    UsageError,
)

GIVEN = {ENDPOINT: "https://nn.example.com:9871/", USER: "exporter"}


def access_of(properties: dict[str, str], **environment: str) -> HdfsAccess:
    return HdfsAccess.of(properties, environment=environment)


def test_the_properties_come_before_the_environment() -> None:
    environment = {
        "MERGEBERG_HDFS_HTTP_ADDRESS": "https://other.example.com:9871",
        "HADOOP_USER_NAME": "other",
    }
    there, here = access_of({}, **environment), access_of(GIVEN, **environment)

    assert (there.endpoint, there.user) == ("https://other.example.com:9871", "other")
    assert (here.endpoint, here.user) == ("https://nn.example.com:9871", "exporter")


def test_a_token_authenticates_and_is_shown_nowhere() -> None:
    access = access_of(GIVEN | {TOKEN: "s3cret-token"})

    assert (access.user, access.token, access.is_vended) == (None, "s3cret-token", True)
    assert "s3cret-token" not in f"{access!r} {access}"
    assert access.masked("delegation=s3cret-token") == "delegation=***"


def test_a_token_of_the_environment_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks get it by a broadcast; no other process that a command starts needs it."""
    monkeypatch.setenv("MERGEBERG_HDFS_DELEGATION_TOKEN", "s3cret-token")

    assert access_of(GIVEN, **os.environ).token == "s3cret-token"  # noqa: S105  the test's own
    assert "s3cret-token" not in harmless_environment().values()


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({USER: "exporter"}, r"must be where the NameNode serves WebHDFS.*https://HOST:9871"),
        (GIVEN | {ENDPOINT: "nn.example.com:9871"}, "must be where the NameNode serves WebHDFS"),
        ({ENDPOINT: GIVEN[ENDPOINT]}, "no user is configured.*HADOOP_USER_NAME"),
    ],
)
def test_a_missing_identity_is_requested(properties: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        access_of(properties)


@pytest.mark.parametrize("name", ["hdfs.host", "hdfs.port", "hdfs.kerberos_ticket"])
def test_what_would_have_no_effect_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"the property {name}: it has no effect here"):
        access_of(GIVEN | {name: "1"})


def test_http_to_another_machine_is_refused_unless_it_is_allowed() -> None:
    given = GIVEN | {ENDPOINT: "http://nn.example.com:9870"}
    with pytest.raises(
        RefusedError, match="over http anyone on the network can read and change the rows"
    ):
        Storages(given).check()
    Storages(given | {ALLOW_INSECURE: "true"}).check()
    assert access_of(given | {ENDPOINT: "http://127.0.0.1:9870"}).endpoint.startswith("http:")


def refusal(status: int, exception: str, message: str = "said") -> HdfsRefusalError:
    body = {"RemoteException": {"exception": exception, "message": f"{message}\n\tat java"}}
    return HdfsRefusalError.of(status, {}, json.dumps(body).encode())


@pytest.mark.parametrize(
    "exception", ["StandbyException", "RetriableException", "SafeModeException", "IOException"]
)
def test_what_passes_by_itself_is_waited_for(exception: str) -> None:
    assert refusal(403, exception).is_transient


@pytest.mark.parametrize(
    ("exception", "kind"),
    [
        ("AccessControlException", DeniedError),
        ("NSQuotaExceededException", LastingError),
        ("DSQuotaExceededException", LastingError),
    ],
)
def test_what_lasts_is_not_waited_for(exception: str, kind: type[LastingError]) -> None:
    error = refusal(403, exception)
    assert not error.is_transient

    raised = STORE.failure("write", "hdfs://nn/f", str(error), error, waited=1, vended=True)

    assert type(raised) is kind
    assert "at java" not in raised.message
    assert "see to its quota" in raised.message


def test_an_expired_token_is_renewed_by_the_catalog_that_vended_it() -> None:
    error = refusal(403, "InvalidToken", "token is expired")

    raised = STORE.failure("write", "hdfs://nn/f", str(error), error, waited=1, vended=True)

    assert type(raised) is EndedCredentialsError


def test_only_hdfs_says_that_a_file_is_missing() -> None:
    """Harm prevented: a gateway's page of an error is taken for the absence of a file."""
    assert refusal(404, "FileNotFoundException").is_missing
    assert not HdfsRefusalError.of(404, {}, b"<html>not found</html>").is_missing
