"""PyIceberg's properties of a catalog or a table are the only settings of S3."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from catalog.network import TimeOuts
from catalog.storages.s3.access import S3Access
from catalog.storages.s3.storage import Place, UnfinishedUpload
from catalog.storages.schemes import Storages, open_storage
from tableformat.errors import (
    DestinationError,
    NotFoundError,
    RefusedError,
    UnsupportedError,
    UsageError,
)


def of(properties: dict[str, Any], **environment: str) -> S3Access:
    return S3Access.of(properties, environment=environment)


def test_a_catalogs_own_properties_are_all_it_takes(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("authorities")
    access = S3Access.of(
        {
            "s3.endpoint": "https://store:9000",
            "client.region": "eu-1",
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
            "s3.session-token": "token",
            "s3.connect-timeout": 3,
            "s3.force-virtual-addressing": True,
            "mergeberg.ca-file": str(tmp_path / "ca.pem"),
        },
        environment={"SSL_CERT_FILE": "/not/this"},
        time_outs=TimeOuts(read=7, retry_for=60),
    )

    assert access == S3Access(
        endpoint="https://store:9000",
        region="eu-1",
        access_key="key",
        secret_key="secret",  # noqa: S106  a test's
        token="token",  # noqa: S106  a test's
        connect_timeout=3.0,
        read_timeout=7,
        retry_for=60,
        virtual_hosts=True,
        ca="authorities",
    )
    assert pickle.loads(pickle.dumps(access)) == access  # noqa: S301  our own
    assert of({}, SSL_CERT_FILE=str(tmp_path / "ca.pem")).ca == "authorities"


@pytest.mark.parametrize(
    ("properties", "environment"),
    [
        ({"s3.endpoint": "http://store:9000"}, {}),
        ({}, {"AWS_ENDPOINT_URL_S3": "http://store:9000"}),
        ({"s3.endpoint": "http://store:9000", "mergeberg.allow-insecure": "true"}, {}),
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
    assert allowed.endpoint == "http://store:9000"


def test_http_that_the_catalog_does_not_allow_is_refused_first() -> None:
    insecure = {"s3.endpoint": "http://store:9000", "warehouse": "s3://b/wh"}

    Storages({**insecure, "mergeberg.allow-insecure": "true"}).check()
    Storages({"warehouse": "file:///wh"}).check()
    Storages({**insecure, "s3.endpoint": "http://localhost:9000"}).check()
    with pytest.raises(RefusedError, match=r"mergeberg\.allow-insecure: true"):
        Storages(insecure).check()


def asked_anywhere(storages: Storages, location: str) -> None:
    """Request an object from an address without a server."""
    with pytest.raises(DestinationError):
        storages(location).size(location)


@pytest.mark.parametrize("named_by", ["the environment", "a table"])
def test_http_is_reported_once_regardless_of_its_source(
    named_by: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Harm prevented: rows in clear over a network, allowed once and never reported."""
    endpoint = f"http://store-{len(named_by)}.invalid:9000"
    keys = {"s3.access-key-id": "k", "s3.secret-access-key": "s"}
    monkeypatch.setenv("MERGEBERG_ALLOW_INSECURE", "1")
    storages = Storages(keys, TimeOuts(connect=1, read=1, retry_for=0))
    if named_by == "a table":
        storages.learn("s3://b/wh/t", {**keys, "s3.endpoint": endpoint})
    else:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)

    asked_anywhere(storages, "s3://b/wh/t/data/f")
    asked_anywhere(storages, "s3://b/wh/t/data/g")

    assert caplog.text.count(f"{endpoint} is not encrypted: anyone on the network can read") == 1


@pytest.mark.parametrize("host", ["my_minio:9000", "-a"])
def test_a_host_name_that_boto3_does_not_take_is_no_address(host: str) -> None:
    storage = Storages({"s3.endpoint": f"https://{host}"})("s3://b/f")

    with pytest.raises(UsageError, match=r"s3\.endpoint is no address of a server"):
        storage.size("s3://b/f")


def test_a_host_that_cannot_be_found_is_named_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Harm prevented: fifteen minutes of waiting, and no word of the mistyped name in between."""
    properties = {
        "s3.endpoint": "https://no-such-host.invalid:9000",
        "s3.access-key-id": "k",
        "s3.secret-access-key": "s",
    }
    # A busy machine takes its time to find out that there is no such host.
    storages = Storages(properties, TimeOuts(connect=1, read=1, retry_for=3))

    asked_anywhere(storages, "s3://b/f")

    first = caplog.messages[0]
    assert first.startswith("trying again to read s3://b/f: the host no-such-host.invalid cannot")


@pytest.mark.parametrize(
    ("properties", "error", "message"),
    [
        ({"s3.access-key-id": "k"}, UsageError, "has one of s3.access-key-id and"),
        ({"s3.role-arn": "arn:x"}, UnsupportedError, "s3.role-arn: it has no effect here"),
        ({"s3.anonymous": "true"}, UnsupportedError, "s3.anonymous"),
        ({"s3.signer": "S3V4RestSigner"}, UnsupportedError, "s3.signer"),
        ({"s3.server-side-encryption": "x"}, UnsupportedError, "default encryption"),
        ({"s3.endpoint": "https://u:hidden@store"}, UsageError, "is no address of a server"),
        ({"s3.endpoint": "store:9000"}, UsageError, "is no address of a server"),
        ({"s3.request-timeout": "-1"}, UsageError, "s3.request-timeout is no number of seconds"),
        ({"mergeberg.ca-file": "/not/there.pem"}, NotFoundError, "names /not/there.pem"),
    ],
)
def test_what_would_have_no_effect_is_refused_by_name(
    properties: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        of(properties)

    assert message in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_tables_properties_apply_below_its_location() -> None:
    """Harm prevented: credentials that were vended for one table are used for another."""
    storages = Storages({"s3.access-key-id": "whole", "s3.secret-access-key": "s"})
    for name in ("t", "t2"):
        own = {"s3.access-key-id": name, "s3.secret-access-key": "s"}
        storages.learn(f"s3://b/wh/{name}/", own)

    def key(location: str) -> str | None:
        access = storages.access(location)
        return access.access_key if isinstance(access, S3Access) else None

    assert key("s3://b/wh/t/data/f.parquet") == "t"
    assert key("s3://b/wh/t") == "t"
    assert key("s3://b/wh/t2/data/f.parquet") == "t2"
    assert key("s3://b/wh/t3") == "whole"
    assert storages.access("file:///wh/t/f") is None

    storages.learn("s3://b/wh/t", {"s3.access-key-id": "new", "s3.secret-access-key": "s"})
    assert key("s3://b/wh/t/data/f.parquet") == "new"


def test_an_unfinished_upload_has_its_own_name() -> None:
    begun = UnfinishedUpload("wh/a b/f.parquet", "Id-of_it.~==")

    assert UnfinishedUpload.of(begun.name) == begun
    assert UnfinishedUpload.of("wh/a b/f.parquet") is None
    assert Place.of("s3a://b/k?x#y").key == "k?x#y"
    with pytest.raises(UsageError, match="it names no object"):
        open_storage("s3://only-a-bucket").size("s3://only-a-bucket")
