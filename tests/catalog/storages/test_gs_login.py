"""Login to Google Cloud Storage without a token: a service account, by its key file.

The token server is a stand-in; Google's library itself signs the requests.
"""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.parse
from pathlib import Path

import pytest

from catalog.network import TimeOuts
from catalog.storages.gs.access import GsAccess
from catalog.storages.gs.store import GsStorage
from tableformat.errors import DestinationError
from tests.services.faulty_http import FaultyHttp, response_of

TOKEN = response_of(
    json.dumps({"access_token": "made-1", "expires_in": 3600, "token_type": "Bearer"}).encode(),
    headers={"Content-Type": "application/json"},
    ours=False,
)
EMPTY = response_of(b"{}", ours=False)
STORED = response_of(b'{"generation": "1"}', ours=False)


def key_file(directory: Path, token_uri: str) -> Path:
    """Make a file of credentials of an account of a service."""
    key = directory / "key.pem"
    made = subprocess.run(
        ["openssl", "genpkey", "-algorithm", "RSA", "-out", key], capture_output=True, check=False
    )
    assert made.returncode == 0, made.stderr
    file = directory / "credentials.json"
    account = {
        "type": "service_account",
        "client_email": "exporter@project.iam.gserviceaccount.com",
        "private_key_id": "k1",
        "private_key": key.read_text(),
        "token_uri": token_uri,
    }
    file.write_text(json.dumps(account))
    return file


def storage_of(server: FaultyHttp, key: Path) -> GsStorage:
    access = GsAccess.of(
        {"gcs.service.host": server.host.url},
        environment={"GOOGLE_APPLICATION_CREDENTIALS": str(key)},
        time_outs=TimeOuts(connect=2, read=2, retry_for=2),
        allow_insecure=True,
    )
    return GsStorage(access)


def test_a_key_file_gets_a_token_with_one_request(tmp_path: Path) -> None:
    with FaultyHttp(TOKEN) as tokens, FaultyHttp(EMPTY, STORED) as server:
        storage = storage_of(server, key_file(tmp_path, f"{tokens.host.url}/token"))
        assert storage.list("gs://b/lake") == ()
        storage.put("gs://b/lake/f", b"x")

    (asked,) = tokens.requests
    (signed,) = urllib.parse.parse_qs(asked.body.decode())["assertion"]
    claims = json.loads(base64.urlsafe_b64decode(signed.split(".")[1] + "=="))
    assert claims["iss"] == "exporter@project.iam.gserviceaccount.com"
    assert claims["scope"] == "https://www.googleapis.com/auth/devstorage.read_write"
    assert {one.headers["authorization"] for one in server.requests} == {"Bearer made-1"}


def test_a_key_that_is_refused_fails_at_once_and_is_not_shown(tmp_path: Path) -> None:
    refused = response_of(b'{"error": "invalid_grant"}', status="400 Bad Request", ours=False)
    with FaultyHttp(refused) as tokens, FaultyHttp(EMPTY) as server:
        key = key_file(tmp_path, f"{tokens.host.url}/token")
        with pytest.raises(DestinationError, match="invalid_grant") as caught:
            storage_of(server, key).list("gs://b/lake")

    assert "GOOGLE_APPLICATION_CREDENTIALS" in caught.value.message
    assert "PRIVATE KEY" not in caught.value.message
    assert server.requests == []


@pytest.mark.parametrize("text", ["no JSON", "{}", '{"type": "service_account"}'])
def test_a_file_that_is_none_of_credentials_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(text)
    with FaultyHttp(EMPTY) as server, pytest.raises(DestinationError, match="name a file of cred"):
        storage_of(server, file).list("gs://b/lake")
