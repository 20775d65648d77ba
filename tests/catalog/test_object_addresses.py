"""Addresses of objects as ClickHouse has them, and the locations that they are here."""

from __future__ import annotations

import pytest

from catalog.object_addresses import abfs_location, gs_location, hdfs_location, s3_location
from tableformat.errors import UsageError

OURS = {"AWS_ENDPOINT_URL": "https://minio.lan:9000"}


@pytest.mark.parametrize(
    ("address", "environment", "location"),
    [
        ("s3://bucket/a/tree/", OURS, "s3://bucket/a/tree"),
        ("https://minio.lan:9000/bucket/a%20b/", OURS, "s3://bucket/a b"),
        ("https://bucket.minio.lan:9000/tree", OURS, "s3://bucket/tree"),
        ("http://minio.lan:9000/bucket/tree", OURS, None),
        ("https://minio.lan/bucket/tree", OURS, None),
        ("https://other.lan:9000/bucket/tree", OURS, None),
        ("https://xminio.lan:9000/bucket/tree", OURS, None),
        ("https://minio.lan:9000/bucket", OURS, None),
        ("https://minio.lan:9000/bucket/{a,b}", OURS, None),
        ("https://minio.lan:9000/bucket/a?versionId=1", OURS, None),
        ("https://bucket.s3.eu-west-1.amazonaws.com/t", OURS, None),
        ("https://bucket.s3.eu-west-1.amazonaws.com/a/t", {}, "s3://bucket/a/t"),
        ("https://s3.eu-west-1.amazonaws.com/bucket/t", {}, "s3://bucket/t"),
        ("https://my.bucket.s3.amazonaws.com/t", {}, "s3://my.bucket/t"),
        ("https://minio.lan:9000/bucket/tree", {}, None),
        ("https://s3.amazonaws.com.evil.lan/bucket/t", {}, None),
        ("hdfs://h:9000/dir", {}, None),
        ("https://[::1/bucket/t", {}, None),
        ("", {}, None),
    ],
)
def test_an_address_is_a_location_of_the_s3_that_is_reached_or_none(
    address: str, environment: dict[str, str], location: str | None
) -> None:
    """Harm prevented: an export into a bucket of the same name on another server."""
    assert s3_location(address, environment) == location


def test_the_variable_for_s3_alone_goes_before_the_one_for_all() -> None:
    environment = {**OURS, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9001"}

    assert s3_location("http://127.0.0.1:9001/b/t", environment) == "s3://b/t"
    assert s3_location("https://minio.lan:9000/b/t", environment) is None


EMULATED = {"STORAGE_EMULATOR_HOST": "https://127.0.0.1:4443"}


@pytest.mark.parametrize(
    ("address", "environment", "location"),
    [
        ("gs://bucket/a/tree/", {}, "gs://bucket/a/tree"),
        ("https://storage.googleapis.com/bucket/a%20b/", {}, "gs://bucket/a b"),
        ("https://bucket.storage.googleapis.com/tree", {}, "gs://bucket/tree"),
        ("https://127.0.0.1:4443/bucket/tree", EMULATED, "gs://bucket/tree"),
        ("https://storage.googleapis.com/bucket/tree", EMULATED, None),
        ("https://127.0.0.1:4443/bucket/tree", {}, None),
        ("https://storage.googleapis.com/bucket", {}, None),
        ("https://storage.googleapis.com/bucket/**/x", {}, None),
        ("https://storage.googleapis.com/bucket/t?generation=1", {}, None),
        ("https://[::1/bucket/t", {}, None),
        ("", {}, None),
    ],
)
def test_an_address_is_a_location_of_googles_store_that_is_reached_or_none(
    address: str, environment: dict[str, str], location: str | None
) -> None:
    assert gs_location(address, environment) == location


CONNECTION = "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey={};{}"
SUFFIX = "EndpointSuffix=core.windows.net"
HIDDEN = CONNECTION.format("[HIDDEN]", SUFFIX)
ACME = {"AZURE_STORAGE_CONNECTION_STRING": CONNECTION.format("c2VjcmV0", SUFFIX)}
AZURITE = {
    "AZURE_STORAGE_CONNECTION_STRING": CONNECTION.format(
        "c2VjcmV0", "BlobEndpoint=https://127.0.0.1:10000/acme"
    )
}
THERE = "abfss://box@acme.dfs.core.windows.net/a/tree"


@pytest.mark.parametrize(
    ("address", "path", "environment", "location"),
    [
        (HIDDEN, "/a/tree/", ACME, THERE),
        ("https://acme.blob.core.windows.net/", "a/tree", ACME, THERE),
        ("https://127.0.0.1:10000/acme", "a/tree", AZURITE, THERE),
        (AZURITE["AZURE_STORAGE_CONNECTION_STRING"], "a/tree", AZURITE, THERE),
        ("https://127.0.0.1:10000/acme", "a/tree", ACME, None),
        (HIDDEN, "a/tree", AZURITE, None),
        (HIDDEN, "", ACME, None),
        (HIDDEN, "a/{_partition_id}", ACME, None),
    ],
)
def test_a_containers_path_is_a_location_of_the_reached_account_or_none(
    address: str, path: str, environment: dict[str, str], location: str | None
) -> None:
    """Harm prevented: an export into a container of the same name of another server."""
    assert abfs_location(address, "box", path, environment) == location


@pytest.mark.parametrize(
    ("environment", "why"),
    [({}, "there are no credentials"), (ACME, "belong to the account 'acme'")],
)
def test_an_account_that_nobody_may_use_says_so(environment: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        abfs_location("https://other.blob.core.windows.net", "box", "t", environment)


@pytest.mark.parametrize(
    ("address", "location"),
    [
        ("hdfs://h:9000/a/tree/", "hdfs://h:9000/a/tree"),
        ("hdfs://h:9000/", None),
        ("hdfs://h:9000/a/*", None),
        ("file:///a/tree", None),
        ("", None),
    ],
)
def test_a_directory_of_hdfs_is_its_own_location(address: str, location: str | None) -> None:
    assert hdfs_location(address) == location
