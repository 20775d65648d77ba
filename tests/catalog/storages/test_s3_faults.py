"""Faults of S3; `test_store_faults.py` has the tests of all stores."""

from __future__ import annotations

import pytest

from catalog.storages.s3.access import S3Access
from catalog.storages.s3.requests import Requests
from tableformat.errors import DestinationError, LastingError
from tests.services.s3_server import Account
from tests.support.store_kinds import MinIOPlace, S3Place, S3ProxyPlace
from tests.support.store_places import LARGE, over


@over(S3ProxyPlace, MinIOPlace)
def test_an_unknown_account_is_refused_at_once(
    place: S3Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Harm prevented: fifteen minutes of hopeless retries."""
    unknown = place.reached(account=Account("nobody", place.server.secret_key))

    with pytest.raises(LastingError, match="InvalidAccessKeyId"):
        unknown.read(place.file)

    assert "trying again" not in caplog.text


@over(MinIOPlace)
def test_a_bucket_removed_during_an_export_leaves_no_partial_object(
    place: S3Place, caplog: pytest.LogCaptureFixture
) -> None:
    sink = place.storage.create(place.file)
    sink.write(LARGE)
    for begun in place.storage.list_unfinished(place.root):
        place.storage.delete(begun.location)
    place.server.client().delete_bucket(Bucket=place.bucket)

    with pytest.raises(
        DestinationError, match=r"NoSuchBucket|NoSuchUpload|lost parts of it that were sent"
    ):
        sink.commit()
    sink.abort()

    assert "trying again" not in caplog.text


def test_an_access_shows_no_secret() -> None:
    access = S3Access(secret_key="hidden-1", token="hidden-2", proxy="http://u:hidden-3@p")  # noqa: S106  a test's

    assert "hidden" not in f"{access!r} {access} {Requests(access)!r}"
    assert access.masked("a hidden-1 b hidden-2") == "a *** b ***"
