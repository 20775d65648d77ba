"""Settings of Google Cloud Storage: credentials, address, and the reading of responses."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from catalog.network import TimeOuts
from catalog.storages.gs.access import GsAccess
from catalog.storages.gs.store import GsStorage, requests_of
from catalog.storages.s3.access import S3Access
from catalog.storages.schemes import Storages, open_storage
from tableformat.errors import (
    DeniedError,
    DestinationError,
    EndedCredentialsError,
    LastingError,
    NotFoundError,
    RefusedError,
    UnsupportedError,
    UsageError,
)
from tests.services.faulty_http import FaultyHttp, Response, response_of

SECRET = "ya29.s3cret"  # noqa: S105  a test's
EMPTY = response_of(b"{}", ours=False)


def of(properties: dict[str, Any], **environment: str) -> GsAccess:
    return GsAccess.of(properties, environment=environment)


def refusal(status: str, reason: str, message: str = "no") -> bytes:
    """Return an error in Google's form."""
    body = {"error": {"code": 0, "message": message, "errors": [{"reason": reason}]}}
    return response_of(json.dumps(body).encode(), status=status, ours=False)


def asked(*responses: Response, retry_for: float = 20) -> tuple[FaultyHttp, GsStorage]:
    server = FaultyHttp(*responses)
    bounds = TimeOuts(connect=2, read=2, retry_for=retry_for)
    given = {"gcs.service.host": server.host.url, "gcs.oauth2.token": SECRET}
    access = GsAccess.of(given, environment={}, time_outs=bounds, allow_insecure=True)
    return server, GsStorage(access)


def test_it_is_made_from_the_properties_and_the_environment(tmp_path: Path) -> None:
    ca, key = tmp_path / "ca.pem", tmp_path / "key.json"
    ca.write_text("authority")
    key.write_text('{"type": "service_account"}')

    assert of({}) == GsAccess("https://storage.googleapis.com")
    assert of({"gcs.oauth2.token": SECRET, "mergeberg.ca-file": str(ca)}) == GsAccess(
        token=SECRET, ca="authority"
    )
    assert of({}, GOOGLE_APPLICATION_CREDENTIALS=str(key), SSL_CERT_FILE=str(ca)) == GsAccess(
        key='{"type": "service_account"}', ca="authority"
    )
    assert of({"gcs.service.host": "https://a:1/"}, STORAGE_EMULATOR_HOST="https://b").endpoint == (
        "https://a:1"
    )
    assert of({}, STORAGE_EMULATOR_HOST="https://b:2").endpoint == "https://b:2"
    vended = of({"gcs.oauth2.token": SECRET}, GOOGLE_APPLICATION_CREDENTIALS=str(key))
    assert (vended.token, vended.key) == (SECRET, None)
    key.write_text('{"type": "authorized_user"}')
    assert of({}, GOOGLE_APPLICATION_CREDENTIALS=str(key)).key is None


def test_tasks_get_all_of_it_and_no_secret_is_shown() -> None:
    access = GsAccess(token=SECRET, key="hidden", ca="hidden")

    assert pickle.loads(pickle.dumps(access)) == access  # noqa: S301  our own
    assert "hidden" not in f"{access!r} {access} {requests_of(access)!r}"
    assert SECRET not in f"{access!r} {access} {requests_of(access)!r}"
    assert access.masked(f"a {SECRET} b") == "a *** b"


@pytest.mark.parametrize(
    ("properties", "environment", "named"),
    [
        ({"gcs.service.host": "https://10.0.0.1"}, {}, False),
        ({"gcs.service.host": "https://localhost.example.com"}, {}, False),
        ({"gcs.service.host": "https://localhost:1"}, {}, True),
        ({}, {"STORAGE_EMULATOR_HOST": "https://127.0.0.1:1"}, True),
        ({"gcs.service.host": "https://127.0.0.1:1", "gcs.oauth2.token": "t"}, {}, False),
    ],
)
def test_only_servers_of_this_host_get_no_credentials(
    properties: dict[str, str],
    environment: dict[str, str],
    named: bool,  # noqa: FBT001  a parameter
) -> None:
    assert of(properties, **environment).is_anonymous is named


@pytest.mark.parametrize(
    ("properties", "environment"),
    [
        ({"gcs.service.host": "http://store:9000"}, {}),
        ({}, {"STORAGE_EMULATOR_HOST": "http://store:9000"}),
        ({"gcs.service.host": "http://store:9000", "mergeberg.allow-insecure": "true"}, {}),
    ],
    ids=["catalog", "environment", "said by a table"],
)
def test_http_is_refused_unless_it_is_allowed(
    properties: dict[str, str], environment: dict[str, str]
) -> None:
    """A table's properties cannot allow it: a user who may change a table could disable TLS."""
    with pytest.raises(
        RefusedError, match="over http anyone on the network can read and change the rows"
    ):
        of(properties, **environment)

    allowed = of(properties, MERGEBERG_ALLOW_INSECURE="1", **environment)
    assert allowed.endpoint.startswith("http://")


def test_http_that_the_catalog_does_not_allow_is_refused_first() -> None:
    insecure = {"gcs.service.host": "http://store:9000", "warehouse": "gs://b/wh"}

    Storages({**insecure, "mergeberg.allow-insecure": "true"}).check()
    Storages({**insecure, "gcs.service.host": "http://[::1]:9000"}).check()
    with pytest.raises(RefusedError, match=r"mergeberg\.allow-insecure: true"):
        Storages(insecure).check()


def test_http_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = "http://store.invalid:9000"
    given = {"gcs.service.host": endpoint, "mergeberg.allow-insecure": "true"}
    storages = Storages(given, TimeOuts(connect=1, read=1, retry_for=0))

    for name in ("f", "g"):
        with pytest.raises(DestinationError):
            storages("gs://b/f").size(f"gs://b/{name}")

    assert caplog.text.count(f"{endpoint} is not encrypted: anyone on the network can read") == 1


@pytest.mark.parametrize(
    ("properties", "error", "message"),
    [
        ({"gcs.service.host": "https://u:p@host"}, UsageError, "is no address of a server"),
        ({"gcs.service.host": "store"}, UsageError, "is no address of a server"),
        ({"gcs.no-auth": "true"}, UnsupportedError, "gcs.no-auth: it has no effect here"),
        ({"gcs.requester-pays": "true"}, UnsupportedError, "Leave it out: use a bucket"),
        ({"mergeberg.ca-file": "/nowhere"}, NotFoundError, "names /nowhere, which cannot be read"),
    ],
)
def test_what_would_not_be_done_is_refused(
    properties: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        of(properties)

    assert "u:p" not in str(caught.value)


def test_a_file_of_credentials_that_is_not_there_is_named() -> None:
    with pytest.raises(NotFoundError, match="GOOGLE_APPLICATION_CREDENTIALS names /nowhere"):
        of({}, GOOGLE_APPLICATION_CREDENTIALS="/nowhere")


def test_one_table_is_not_in_two_kinds_of_storage() -> None:
    """Harm prevented: data files are sought, or credentials are shown, at another's server."""
    with pytest.raises(UnsupportedError, match="in a storage of another kind"):
        open_storage("s3://b/f", GsAccess())
    with pytest.raises(UnsupportedError, match="in a storage of another kind"):
        open_storage("gs://b/f", S3Access())


def test_vended_credentials_apply_below_the_tables_location() -> None:
    """Harm prevented: a token that was vended for one table is used for another."""
    storages = Storages({"gcs.oauth2.token": "whole"})
    storages.learn("gs://b/wh/t", {"gcs.oauth2.token": "lent"})

    def token(location: str) -> str | None:
        access = storages.access(location)
        assert isinstance(access, GsAccess)
        return access.token

    assert token("gs://b/wh/t/data/f.parquet") == "lent"
    assert token("gs://b/wh/t2/data/f.parquet") == "whole"


def test_without_the_login_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "catalog.storages.gs.google_login", raising=False)
    monkeypatch.setitem(sys.modules, "google", None)

    with pytest.raises(UnsupportedError, match=r"pip install 'mergeberg\[gs\]'"):
        GsStorage(GsAccess("https://store.example.com")).list("gs://b/lake")


def test_credentials_are_in_every_request_and_in_no_address() -> None:
    stored = response_of(b'{"generation": "1"}', ours=False)
    server, storage = asked(EMPTY, stored, EMPTY)
    with server:
        storage.list("gs://b/lake")
        storage.put("gs://b/lake/f", b"x")
        storage.delete("gs://b/lake/f")

    assert [one.method for one in server.requests] == ["GET", "POST", "DELETE"]
    assert {one.headers["authorization"] for one in server.requests} == {f"Bearer {SECRET}"}
    assert not any(SECRET in one.path for one in server.requests)


@pytest.mark.parametrize(
    ("refused", "kind", "message"),
    [
        (
            refusal("401 Unauthorized", "authError"),
            EndedCredentialsError,
            "The credentials are wrong or have expired",
        ),
        (refusal("403 Forbidden", "forbidden"), DeniedError, "Grant storage.objects.list"),
        (refusal("404 Not Found", "notFound"), LastingError, "Create the bucket"),
        (refusal("501 Not Implemented", ""), LastingError, "The server lacks what mergeberg needs"),
        (
            response_of(b"<html>", status="302 Found", ours=False),
            DestinationError,
            "Check gcs.service.host",
        ),
        (
            response_of(b"<html>", ours=False),
            DestinationError,
            "200: <html>. Check gcs.service.host",
        ),
    ],
)
def test_what_will_never_work_fails_at_once(
    refused: bytes, kind: type[DestinationError], message: str
) -> None:
    """Harm prevented: fifteen minutes of waiting for a missing right."""
    server, storage = asked(refused)
    with server, pytest.raises(DestinationError) as caught:
        storage.put_if_absent("gs://b/f", b"x")

    assert len(server.requests) == 1, "it was tried again"
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert "safe to run again" in caught.value.message


def test_a_server_without_tls_is_named_at_once() -> None:
    with FaultyHttp(EMPTY) as server:
        access = of({"gcs.service.host": server.host.url.replace("http:", "https:")})
        with pytest.raises(DestinationError, match="The server speaks http there"):
            GsStorage(access).list("gs://b/lake")


def test_a_host_that_cannot_be_found_is_named_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Harm prevented: fifteen minutes of waiting, and no word of the mistyped name in between."""
    given = {"gcs.service.host": "https://no-such-host.invalid", "gcs.oauth2.token": SECRET}
    storages = Storages(given, TimeOuts(connect=1, read=1, retry_for=1))

    with pytest.raises(DestinationError, match=r"no-such-host\.invalid"):
        storages("gs://b/f").size("gs://b/f")

    assert caplog.messages[0].startswith("trying again to read gs://b/f: the host cannot be found")


@pytest.mark.parametrize(
    "refused",
    [
        refusal("429 Too Many Requests", "rateLimitExceeded"),
        refusal("403 Forbidden", "userRateLimitExceeded"),
        refusal("408 Request Timeout", ""),
        refusal("503 Service Unavailable", "backendError"),
    ],
)
def test_what_passes_is_tried_again(refused: bytes, caplog: pytest.LogCaptureFixture) -> None:
    server, storage = asked(refused, refused, EMPTY)
    with server:
        assert storage.list("gs://b/lake") == ()

    assert len(server.requests) == 3
    assert caplog.text.count("trying again to list gs://b/lake") == 1


def test_what_was_waited_for_in_vain_is_not_waited_for_again() -> None:
    """Harm prevented: an export waits as often as it may try a slice."""
    server, storage = asked(refusal("503 Service Unavailable", "backendError"), retry_for=0.01)
    with server, pytest.raises(LastingError, match="did not recover"):
        storage.list("gs://b/lake")


def test_a_secret_that_a_server_repeats_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    again = refusal("503 Service Unavailable", "backendError", f"you said {SECRET}")
    server, storage = asked(again, refusal("403 Forbidden", "forbidden", f"you said {SECRET}"))
    with server, pytest.raises(DestinationError) as caught:
        storage.list("gs://b/lake")

    assert "you said ***" in caught.value.message
    assert "you said ***" in caplog.text
    assert SECRET not in caplog.text
