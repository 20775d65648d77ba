"""Settings of abfs from locations, properties and the environment, and their refusals."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.secret_variables import is_secret
from catalog.storages.abfs.access import AbfsAccess
from catalog.storages.abfs.store import AbfsStorage, requests_of, signed_by
from catalog.storages.schemes import Storages
from tableformat.errors import RefusedError, UnsupportedError, UsageError

AT = "abfss://lake@acme.dfs.core.windows.net/wh"
KEY = base64.b64encode(b"the key of acme, hidden").decode()
SECRET = "hidden"  # noqa: S105  what is looked for
CONNECTION = f"DefaultEndpointsProtocol=https;AccountName=acme;AccountKey={KEY}"
AZURES = "https://acme.blob.core.windows.net"


def of(properties: Mapping[str, Any], location: str = AT, **environment: str) -> AbfsAccess:
    return AbfsAccess.of(location, properties, environment=environment)


@pytest.mark.parametrize(
    ("location", "properties", "endpoint"),
    [
        (AT, {"adls.account-key": KEY}, AZURES),
        (AT, {"adls.connection-string": CONNECTION}, AZURES),
        (AT, {"adls.connection-string": f"{CONNECTION};EndpointSuffix=core.windows.net"}, AZURES),
        ("abfs://lake/wh", {"adls.connection-string": CONNECTION}, AZURES),
        ("abfss://lake/wh", {"adls.account-name": "acme", "adls.account-key": KEY}, AZURES),
        (AT.replace("core.windows.net", "core.chinacloudapi.cn"), {"adls.account-key": KEY},
         "https://acme.blob.core.chinacloudapi.cn"),
        (AT, {"adls.account-key": KEY, "adls.account-host": "blobs.example"},
         "https://blobs.example"),
        (AT, {"adls.connection-string": f"{CONNECTION};BlobEndpoint=https://a:1/acme/"},
         "https://a:1/acme"),
    ],
)  # fmt: skip
def test_an_account_is_found(location: str, properties: Mapping[str, str], endpoint: str) -> None:
    assert of(properties, location) == AbfsAccess(endpoint, "acme", key=KEY)


def test_the_identity_comes_from_a_property_before_the_environment() -> None:
    named = {"AZURE_STORAGE_CONNECTION_STRING": CONNECTION}
    vended = {"adls.sas-token.acme.dfs.core.windows.net": "?sv=1&sig=hidden"}

    assert of({}, AT, **named).key == KEY
    assert of({}, AT, AZURE_STORAGE_KEY=KEY).key == KEY
    signed = {"AZURE_STORAGE_SAS_TOKEN": "sig=hidden"}
    assert of({}, AT, **signed).sas == "sig=hidden"
    for properties, sas, token in (
        (vended, "sv=1&sig=hidden", None),
        ({"adls.sas-token.acme": "sig=other"}, "sig=other", None),
        ({"adls.sas-token": "sig=plain"}, "sig=plain", None),
        ({"adls.token": "hidden"}, None, "hidden"),
    ):
        access = of(properties, AT, **named)
        assert (access.key, access.sas, access.token) == (None, sas, token)
        assert access.is_vended
    assert not of({}, AT, **named).is_vended


def test_the_environment_does_not_come_to_tasks() -> None:
    """Harm prevented: the account's key in the environment of every process."""
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"):
        assert is_secret(name)


def test_tasks_get_all_of_it_and_no_secret_is_shown() -> None:
    access = AbfsAccess(AZURES, "acme", SECRET, SECRET, SECRET, SECRET)

    assert pickle.loads(pickle.dumps(access)) == access  # noqa: S301  our own
    assert "hidden" not in f"{access!r} {access} {requests_of(access)!r}"
    assert access.masked("a hidden b") == "a *** b"


@pytest.mark.parametrize(
    ("properties", "error", "message"),
    [
        ({}, UsageError, r"there are no credentials\. Give adls\.account-key"),
        ({"adls.account-key": "?"}, UsageError, "adls.account-key is not in base64"),
        ({"adls.connection-string": "hidden"}, UsageError, "is no connection string"),
        ({"adls.connection-string": f"{CONNECTION};BlobEndpoint=ftp://x"}, UsageError,
         "BlobEndpoint of adls.connection-string is no address"),
        ({"adls.account-name": "other", "adls.account-key": KEY}, UsageError,
         "the credentials belong to the account 'other'"),
        ({"adls.tenant-id": "t", "adls.client-id": "c"}, UnsupportedError,
         r"adls\.tenant-id: it has no effect here.*give it as adls\.token"),
        ({"adls.anon": "true", "adls.account-key": KEY}, UnsupportedError, "adls.anon"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_by_name(
    properties: Mapping[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        of(properties)

    assert "hidden" not in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_location_without_an_account_is_refused() -> None:
    with pytest.raises(UsageError, match="names no account"):
        of({"adls.account-key": KEY}, "abfss://lake/wh")


def test_http_is_refused_unless_it_is_allowed_or_stays_here() -> None:
    there = {"adls.connection-string": f"{CONNECTION};BlobEndpoint=http://blobs/acme"}
    here = {"adls.connection-string": f"{CONNECTION};BlobEndpoint=http://127.0.0.1:1/acme"}

    with pytest.raises(
        RefusedError, match="over http anyone on the network can read and change the rows"
    ):
        of(there)
    with pytest.raises(RefusedError, match=r"mergeberg\.allow-insecure: true"):
        Storages({**there, "warehouse": AT}).check()
    Storages({**there, "warehouse": AT, "mergeberg.allow-insecure": "true"}).check()
    assert of(there, MERGEBERG_ALLOW_INSECURE="1").endpoint == "http://blobs/acme"
    assert of(here).endpoint == "http://127.0.0.1:1/acme"


def test_tables_use_the_credentials_that_their_catalog_vends() -> None:
    storages = Storages({"warehouse": AT, "adls.account-key": KEY})
    storages.learn(f"{AT}/n/t", {"adls.sas-token.acme": "sig=lent"})

    vended, own = storages.access(f"{AT}/n/t/data/f"), storages.access(f"{AT}/n/other")

    assert isinstance(vended, AbfsAccess)
    assert isinstance(own, AbfsAccess)
    assert (vended.sas, vended.key, own.sas, own.key) == ("sig=lent", None, None, KEY)
    assert isinstance(storages(AT), AbfsStorage)


@given(st.dictionaries(st.sampled_from(["comp", "restype", "prefix"]), st.text(max_size=5)))
def test_a_request_is_signed_whatever_it_asks(query: dict[str, str]) -> None:
    """Azure's rule; whether a server takes it is shown by every other test over one."""
    signed = signed_by(AbfsAccess(AZURES, "acme", key=KEY))

    headers = signed("GET", "/lake/f", query, {})

    assert headers["Authorization"].startswith("SharedKey acme:")
    assert signed("GET", "/lake/g", query, {})["Authorization"] != headers["Authorization"]
    assert KEY not in str(headers)
