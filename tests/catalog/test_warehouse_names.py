"""A warehouse is a directory of any name: paths are taken literally, and so are locations."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from catalog.iceberg.catalogs import OpenedCatalog, open_catalog
from catalog.storages.local import local_location, local_path
from tableformat.committer import Commit
from tableformat.names import LakeName

NAME: Final = LakeName("lake", ("n",), "t")
SCHEMA: Final = Schema(NestedField(1, "n", LongType(), required=False))
_CHARACTERS: Final = st.characters(exclude_characters="/\0", exclude_categories=["Cs"])
_NAMES: Final = st.text(_CHARACTERS, min_size=1, max_size=20).filter(lambda n: n not in (".", ".."))


def committed(opened: OpenedCatalog) -> int | None:
    """Make a table with a snapshot and an object among its data; return the snapshot."""
    table = opened.create(
        NAME,
        schema=SCHEMA,
        spec=UNPARTITIONED_PARTITION_SPEC,
        order=UNSORTED_SORT_ORDER,
        properties={},
    )
    state = table.load()
    commit = Commit((), state.layout, "ledger")
    assert table.send(state, table.stage(state, commit), commit, ()).applied
    data = f"{state.location}/data/f"
    table.storages(data).put(data, b"x")
    return table.load().main


@settings(max_examples=25)
@given(name=_NAMES)
@example(name="a?b")
@example(name="a%20b")
@example(name="a%3Fb")
@example(name="a#b")
@example(name="a b")
@example(name="file:")
@example(name="%")
@example(name="a\nb")
def test_a_warehouse_is_one_directory_and_is_found_again(name: str) -> None:
    """Harm prevented: a table whose pieces are in three directories, of which none is found."""
    with tempfile.TemporaryDirectory() as made:
        root = Path(made).resolve()
        (root / "elsewhere").mkdir()
        snapshot = committed(open_catalog("lake", warehouse=root / name))

        found = open_catalog("lake", warehouse=root / "elsewhere" / ".." / name).table(NAME)

        assert found is not None
        state = found.load()
        assert state.main == snapshot is not None
        assert found.storages(state.location).read(f"{state.location}/data/f") == b"x"
        assert {one.name for one in root.iterdir()} == {name, "elsewhere"}
        assert state.location == f"file://{root}/{name}/n/t"


@given(path=st.text(_CHARACTERS | st.just("/")))
def test_a_location_of_a_path_is_that_path(path: str) -> None:
    assert local_path(local_location(Path("/", path))) == Path("/", path)


@pytest.mark.parametrize("head", ["file://", "file:", ""])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql+psycopg2", "sql"])
def test_a_sql_catalog_on_a_local_disk_has_its_ledger_in_its_warehouse(
    head: str, kind: str
) -> None:
    given = {"type": "sql"} if kind == "sql" else {"uri": f"{kind}:///x"}
    opened = OpenedCatalog("mine", None, {**given, "warehouse": f"{head}/data/a%20b/../c?d"})

    assert opened.ledger_directory == Path("/data/c?d")


@pytest.mark.parametrize(
    "properties",
    [
        {"type": "rest", "uri": "https://x", "warehouse": "file:///data"},
        {"uri": "https://x", "warehouse": "/data"},
        {"uri": "sqlite:///x", "warehouse": "s3://lake/wh"},
        {"uri": "sqlite:///x"},
        {"type": "glue", "warehouse": "file:///data"},
    ],
)
def test_others_have_no_place_for_a_ledger(properties: dict[str, str]) -> None:
    assert OpenedCatalog("mine", None, properties).ledger_directory is None
