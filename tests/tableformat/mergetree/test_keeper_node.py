"""A node of Keeper as people read it."""

from __future__ import annotations

from hypothesis import given

from tableformat.mergetree.table import KeeperNode
from tests.strategies.ledger import keeper_nodes


def test_it_shows_when_and_by_which_change_it_was_created() -> None:
    assert str(KeeperNode(11, 1795332620000)) == "2026-11-22 07:30:20 UTC (zxid 11)"


@given(one=keeper_nodes, other=keeper_nodes)
def test_two_nodes_never_read_alike(one: KeeperNode, other: KeeperNode) -> None:
    """Also two tables that were created in the same second are distinct."""
    assert (str(one) == str(other)) == (one == other)
