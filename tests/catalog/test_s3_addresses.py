"""Addresses of S3 as ClickHouse has them, and the locations that they are here."""

from __future__ import annotations

import pytest

from catalog.s3_addresses import s3_location

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
