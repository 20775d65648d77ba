"""Faults of HDFS; `test_store_faults.py` has the tests of all stores."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from urllib3.response import BaseHTTPResponse

from tableformat.errors import LastingError
from tests.support.store_kinds import HdfsPlace
from tests.support.store_places import over

pytestmark = over(HdfsPlace)


def ignore_conditions(place: HdfsPlace, patch: pytest.MonkeyPatch) -> None:
    """Let the cluster get each rename without its options, as the gateway HttpFS hands it on."""
    real = place.pool.request

    def request(method: str, url: str, **given: Any) -> BaseHTTPResponse:
        return real(method, re.sub("&renameoptions=[A-Z]+", "", url), **given)

    patch.setattr(place.pool, "request", request)


def refusal_of(act: Callable[[], object]) -> str:
    """Return the message of a refusal that is not tried again."""
    with pytest.raises(LastingError) as caught:
        act()
    assert "did not recover" not in caught.value.message
    return caught.value.message


def test_a_gateway_that_passes_over_conditions_is_refused(
    place: HdfsPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: two writers have the same claim, and old metadata is taken for new."""
    place.storage.put(place.file, b"theirs")
    ignore_conditions(place, monkeypatch)

    for write in (place.storage.put, place.storage.put_if_absent):
        with pytest.raises(LastingError, match=r"Name the NameNode itself as .*http-address"):
            write(place.file, b"ours")

    place.assert_there(b"theirs")


def test_another_cluster_is_not_taken_for_this_one(place: HdfsPlace) -> None:
    """Harm prevented: rows go to another cluster, or are reported as lost."""
    storage, elsewhere = place.storage, "hdfs://other.example.com:8020/lake/f"
    acts: tuple[Callable[[str], object], ...] = (
        *(storage.read, storage.size, storage.sha256, storage.list, storage.delete),
        lambda at: storage.put_if_absent(at, b"x"),
    )
    for act in acts:
        message = refusal_of(partial(act, elsewhere))
        assert f"serves {place.server.root}, not hdfs://other.example.com:8020" in message
        assert "Correct the location" in message


def test_a_directory_of_another_user_is_not_listed_and_not_emptied(place: HdfsPlace) -> None:
    place.storage.put(place.file, b"theirs")
    stranger = place.without_right()

    for act in (lambda: stranger.list(place.root), lambda: stranger.delete(place.file)):
        assert re.search(place.refused, refusal_of(act))

    place.assert_there(b"theirs")
