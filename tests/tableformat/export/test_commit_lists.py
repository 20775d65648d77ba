"""The list of a commit comes back as it was stored, from this release and from the one before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.storages.schemes import open_storage
from tableformat.committer import Append
from tableformat.errors import LedgerError
from tableformat.export.commit_lists import LIST_FORMAT, list_location, listed_in, store_list
from tableformat.export.destination import WrittenClaim
from tableformat.ledger import Claim, Key, Row, State
from tableformat.mergetree.table import KeeperNode
from tests.strategies.ledger import keeper_nodes

_ROW = Row(
    Key("keeper:/t", "202401", "uuid"), "db.t", "lake.n.t", State.RUNNING,
    Claim(3, "7161", "f", 1, rows=12, data_files=2, bytes=99), 1, 9,
)  # fmt: skip


def stored(directory: Path, row: Row) -> bytes:
    """Store the list of a commit of one partition; return its text."""
    location = directory.as_uri()
    written = WrittenClaim(row, (), Append())
    store_list(open_storage(location), location, "1", (written,))
    return open_storage(location).read(f"{list_location(location)}/1.json")


@given(node=st.none() | keeper_nodes)
def test_an_export_comes_back_with_the_node_of_its_source_table(
    tmp_path_factory: pytest.TempPathFactory, node: KeeperNode | None
) -> None:
    """Harm prevented: a rebuilt ledger takes another table's rows for those it exported."""
    row = replace(_ROW, keeper_node=node)

    (read,) = listed_in("here", stored(tmp_path_factory.mktemp("lists"), row))

    assert (read.key, read.keeper_node) == (row.key, node)
    assert (read.transaction_id, read.epoch, read.rows) == ("7161", 3, 12)


@pytest.mark.parametrize("version", [1, 2])
def test_a_list_of_a_format_before_is_read_without_what_it_lacks(
    tmp_path: Path, version: int
) -> None:
    node = KeeperNode(1, 0)
    body: dict[str, Any] = json.loads(stored(tmp_path, replace(_ROW, keeper_node=node)))
    body["format_version"] = version
    (export,) = body["exports"]
    del export["increment"]
    if version == 1:
        del export["keeper_node"]

    (read,) = listed_in("here", json.dumps(body).encode())

    assert (read.key, read.keeper_node) == (_ROW.key, None if version == 1 else node)


def test_a_list_has_the_increment_of_late_rows(tmp_path: Path) -> None:
    """Harm prevented: a rebuilt ledger takes late rows for the partition's own."""
    late = replace(_ROW, key=_ROW.key.next)

    (read,) = listed_in("here", stored(tmp_path, late))

    assert read.key == late.key


@pytest.mark.parametrize(
    "change",
    [{"format_version": LIST_FORMAT + 1}, {"exports": [{"keeper_node": {"czxid": 1}}]}],
    ids=["newer", "damaged"],
)
def test_a_list_that_cannot_be_read_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    body = {**json.loads(stored(tmp_path, _ROW)), **change}

    with pytest.raises(LedgerError, match=r"Cannot read here: "):
        listed_in("here", json.dumps(body).encode())
