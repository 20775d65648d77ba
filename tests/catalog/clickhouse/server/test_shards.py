"""The addresses of the replicas of a shard, by the user's settings for each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.server.replicas import ClusterHost, Shard, hosts_of
from catalog.clickhouse.server.settings import Host, ServerSettings
from tableformat.errors import UsageError

SETTINGS = ServerSettings((Host("https", "ch1", 8443),))
REPLICA = ClusterHost("ch1", 9000)
SHARD = Shard(1, (REPLICA, ClusterHost("ch2", 9000)))


def test_a_replica_has_its_own_port_or_that_of_the_address() -> None:
    found = hosts_of(SETTINGS, SHARD, {"ch1:9000": "[::1]:8444"})

    assert found == (Host("https", "::1", 8444), Host("https", "ch2", 8443))


@pytest.mark.parametrize(
    "place",
    ["ch1", "ch1:", ":8443", "ch1:http", "ch1:0", "ch1:65536", "ch1:٣", "a b:8443", "[::1]"],
)
def test_a_place_that_is_none_is_refused_with_an_example(place: str) -> None:
    message = r"that is not HOST:PORT\. Write for example --cluster-host ch1:9000=ch1:8443"
    with pytest.raises(UsageError, match=message):
        hosts_of(SETTINGS, SHARD, {"ch1:9000": place})


@given(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True), st.integers(1, 65_535))
def test_every_host_and_port_can_be_given(name: str, port: int) -> None:
    found, _ = hosts_of(SETTINGS, SHARD, {"ch1:9000": f"{name}:{port}"})

    assert found == Host("https", name, port)
