"""Files of lake tables that may not be read: one line that names the file, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.errors import TableFormatError
from tableformat.file_names import RECEIPTS
from tests.spark_ext.procedures.conftest import EVENTS
from tests.support.another_user import as_another_user, closed_to_all, open_to_others
from tests.support.session_lake import alter, export_all, opened, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

NAMES = ("detached", "source", "empty")
STATEMENTS = {
    "ATTACH": ("detached", "ALTER TABLE lake.n.detached ATTACH PARTITION ID '202402'"),
    "ATTACH FROM": (
        "source",
        "ALTER TABLE lake.n.empty ATTACH PARTITION ID '202402' FROM lake.n.source",
    ),
    "REPLACE FROM": (
        "source",
        "ALTER TABLE lake.n.empty REPLACE PARTITION ID '202402' FROM lake.n.source",
    ),
    "MOVE": (
        "source",
        "ALTER TABLE lake.n.source MOVE PARTITION ID '202402' TO TABLE lake.n.empty",
    ),
    "FETCH": (
        "source",
        "ALTER TABLE lake.n.empty FETCH PARTITION ID '202402' FROM 'lake.n.source'",
    ),
}
KINDS = ("data file", "receipt", "manifest", "manifest list", "metadata file")


@pytest.fixture(scope="module")
def module_places() -> Iterator[Places]:
    """Return places whose files another user may own."""
    with open_to_others() as directory:
        places = Places(directory)
        with EmbeddedConnection(places.clickhouse, create=True) as connection:
            for sql in EVENTS:
                connection.command(sql)
        yield places


@pytest.fixture
def tables(places: Places, session: NoSpark) -> tuple[object, ...]:
    """Make a table that is all detached, one with all rows, and an empty one; they are made once.

    Return what is on the disk of them.
    """
    places.reads_parts = True
    if not (places.warehouse / "n").exists():
        for name in NAMES:
            export_all(session, "events", name)
        alter(session, "ALTER TABLE lake.n.detached DETACH PARTITION ALL")
        alter(session, "ALTER TABLE lake.n.empty DROP PARTITION ALL")
    return on_disk(places)


def on_disk(places: Places) -> tuple[object, ...]:
    """Return which metadata the tables have, and all their data files."""
    tables = (opened(places, name).metadata_location for name in NAMES)
    return (*tables, *sorted((places.warehouse / "n").rglob("*.parquet")))


def file_of(places: Places, name: str, kind: str) -> Path:
    """Return a file of a kind that a statement on partition 202402 of a table reads."""
    table = opened(places, name)
    snapshot = table.snapshot_by_name("detached") or table.current_snapshot()
    assert snapshot is not None
    (manifest,) = (
        one
        for one in snapshot.manifests(table.io)
        for entry in one.fetch_manifest_entry(table.io)
        if "2024-02" in entry.data_file.file_path
    )
    (data,) = (
        entry.data_file.file_path
        for entry in manifest.fetch_manifest_entry(table.io)
        if "2024-02" in entry.data_file.file_path
    )
    location = Path(urlparse(table.location()).path)
    (receipt,) = (
        path
        for path in (location / RECEIPTS).glob(f"{'?' * 26}/*/[0-9]*.json")
        if Path(data).name in path.read_text(encoding="utf-8")
    )
    found = {
        "data file": data,
        "receipt": str(receipt),
        "manifest": manifest.manifest_path,
        "manifest list": snapshot.manifest_list,
        "metadata file": table.metadata_location,
    }
    return Path(unquote(urlparse(found[kind]).path))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_an_unreadable_file_is_named_in_one_line_and_nothing_changes(
    places: Places, session: NoSpark, tables: tuple[object, ...], statement: str, kind: str
) -> None:
    """Harm prevented: advice to restore a file that is whole, or a partition that is half there."""
    name, text = STATEMENTS[statement]
    path = file_of(places, name, kind)

    with (
        as_another_user(places.root),
        closed_to_all(path),
        pytest.raises(TableFormatError, match="Permission denied") as refused,
    ):
        alter(session, text)

    assert (path.name in str(refused.value), "\n" in str(refused.value)) == (True, False), (
        refused.value
    )
    assert "Restore" not in str(refused.value)
    assert on_disk(places) == tables


def test_once_the_files_may_be_read_the_same_statements_run(
    places: Places, session: NoSpark, tables: tuple[object, ...]
) -> None:
    """Nothing of the tries before stands in their way."""
    assert tables
    for text in (STATEMENTS[name][1] for name in ("ATTACH", "REPLACE FROM")):
        assert alter(session, text)[0]["rows"] == 2

    assert [rows_of(places, name) for name in NAMES] == [2, 3, 2]
    alter(session, "ALTER TABLE lake.n.detached DETACH PARTITION ALL")
    alter(session, "ALTER TABLE lake.n.empty DROP PARTITION ALL")
