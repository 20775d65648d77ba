"""Whole exports into abfs: an Iceberg table by a catalog in a database, and a tree of directories.

As a user runs them, and through what gs is written through, too (test_object_stores.py kills it).
The store is a local one, over TLS, which asks for the account's key.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.storages.abfs.access import ENDPOINT
from tests.far_lake import FarLake
from tests.local_spark import SPARK_MARKS
from tests.services.azurite import Azurite

pytestmark = SPARK_MARKS


def made(store: Azurite, directory: Path) -> FarLake:
    """Make a container, a catalog with its warehouse there, and a table to export into it."""
    container = store.make_container()
    return FarLake(
        directory,
        store.location(container),
        store.properties,
        {
            "AZURE_STORAGE_CONNECTION_STRING": store.connection(),
            "SSL_CERT_FILE": str(store.ca_file),
        },
        lambda: store.objects(container),
        store.key,
    )


def test_an_export_into_abfs_is_there_once_and_shows_no_secret(
    abfs_server: Azurite, tmp_path: Path
) -> None:
    """The second run finds it there, and compares it with the source."""
    lake = made(abfs_server, tmp_path)

    first = lake.exported("first")
    written = lake.objects()
    second = lake.exported("second")

    assert (first.code, first.out.count(" exported"), first.out.count("verified")) == (0, 2, 2), (
        first.out + first.err
    )
    assert (second.code, second.out.count("already exported")) == (0, 2), second.out + second.err
    lake.is_there_once(written=written)
    assert len(lake.files()) == 2
    for run in (first, second):
        assert run.shows() == []


@pytest.mark.soak
def test_a_tree_in_abfs_is_written_once_and_can_be_verified(
    abfs_server: Azurite, tmp_path: Path
) -> None:
    lake = made(abfs_server, tmp_path)
    to = f"hive:{lake.root}/a tree"

    first = lake.ended("export", *lake.words("--verify", to=to))
    written = lake.objects()
    second = lake.ended("export", *lake.words(to=to))
    verified = lake.ended("verify", *lake.words(to=to))

    assert (first[0], first[1].count("verified")) == (0, 2), first[1]
    assert (second[0], second[1].count("already exported")) == (0, 2), second[1]
    assert verified[0] == 0, verified[1]
    assert lake.objects() == written
    assert sorted(name.split("/")[1] for name in lake.files()) == ["p=a%20b", "p=ü%3D%252F"]


def test_a_container_that_is_not_there_fails_at_once_and_says_what_to_do(
    abfs_server: Azurite, tmp_path: Path
) -> None:
    """Harm prevented: fifteen minutes of trying what will never work."""
    lake = made(abfs_server, tmp_path)
    lake.root = abfs_server.location("no-such-container")

    run = lake.exported("run")

    assert run.code == 4, run.out + run.err
    assert "Make the container" in run.err
    assert "safe to run again" in run.err
    assert run.shows() == []
    assert ENDPOINT not in run.err
