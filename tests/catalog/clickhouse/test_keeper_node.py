"""Which node of Keeper a table has, as far as its server can say."""

from __future__ import annotations

import pytest

from catalog.clickhouse.connection import ClickHouseError, Row
from catalog.clickhouse.table_description import node_of
from tableformat.mergetree.table import KeeperNode, KeeperUnavailable


class Answering:
    """A connection that gives one response, and keeps what it was asked."""

    address = "http://server"
    staging_database = ""

    def __init__(self, *rows: Row, error: str = "") -> None:
        self._rows, self._error = rows, error
        self.asked = ""

    def rows(self, sql: str) -> tuple[Row, ...]:
        self.asked = sql
        if self._error:
            raise ClickHouseError(self._error)
        return self._rows

    def command(self, sql: str) -> None:
        message = f"who asks for a node changes nothing: {sql}"
        raise AssertionError(message)

    def close(self) -> None:
        message = "who asks for a node does not own the connection"
        raise AssertionError(message)


def test_a_node_is_known_by_the_change_that_made_it_and_by_its_time() -> None:
    """In milliseconds, as all times of the ledger."""
    connection = Answering((11, 1795332620))

    assert node_of(connection, "/tables/it's", "default") == KeeperNode(11, 1795332620000)
    assert r"path = '/tables/it\'s' AND name = 'replicas'" in connection.asked
    assert "zookeeperName" not in connection.asked


def test_a_table_of_an_auxiliary_keeper_is_looked_up_there() -> None:
    """Harm prevented: the node of another table, of the same path in the main ensemble."""
    connection = Answering((11, 1795332620))

    assert node_of(connection, "/t", "second") == KeeperNode(11, 1795332620000)
    assert connection.asked.endswith(" AND zookeeperName = 'second'")


@pytest.mark.parametrize(
    ("keeper", "message"),
    [
        ("default", "Code: 60. DB::Exception: Unknown table expression 'system.zookeeper'"),
        ("default", "Code: 225. DB::Exception: No Zookeeper configuration in server config"),
        ("second", "Code: 47. DB::Exception: Unknown identifier `zookeeperName`"),
    ],
)
def test_a_server_that_cannot_be_asked_says_nothing(keeper: str, message: str) -> None:
    assert node_of(Answering(error=message), "/t", keeper) is None


@pytest.mark.parametrize(
    ("connection", "reason"),
    [
        (
            Answering(error="Code: 999. Coordination::Exception: Session expired."),
            "Session expired",
        ),
        (Answering(), "it has no node /t/replicas"),
    ],
    ids=["away", "empty"],
)
def test_a_keeper_that_does_not_respond_does_not_count_as_none(
    connection: Answering, reason: str
) -> None:
    """Harm prevented: nothing is compared while Keeper is away."""
    found = node_of(connection, "/t", "default")

    assert isinstance(found, KeeperUnavailable)
    assert reason in found.reason


@pytest.mark.parametrize("code", [497, 47, 202])
def test_any_other_response_is_an_error(code: int) -> None:
    """A user who may not read it must not be let through."""
    with pytest.raises(ClickHouseError, match="some reason"):
        node_of(Answering(error=f"Code: {code}. DB::Exception: some reason"), "/t", "default")
