"""Local storage: an object is there whole or not at all."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.storage import open_storage
from tableformat.errors import DestinationError, UnsupportedError
from tableformat.storage import StoredObject


@pytest.fixture(params=["", "file://", "file:"], ids=["path", "uri", "hadoop"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}{tmp_path}/lake"


def test_a_file_is_not_there_before_it_is_finished(root: str) -> None:
    """Half a file under its name would be read by someone."""
    storage = open_storage(root)
    sink = storage.create(f"{root}/a/f.parquet")
    sink.write(b"half")

    assert storage.list(root) == ()
    assert [o.location for o in storage.list_unfinished(root)] == [
        f"{root}/a/.f.parquet.inprogress"
    ]

    sink.write(b" and half")
    sink.commit()
    assert storage.list(root) == (StoredObject(f"{root}/a/f.parquet", 13),)
    assert storage.list_unfinished(root) == ()
    assert storage.read(f"{root}/a/f.parquet") == b"half and half"
    assert storage.size(f"{root}/a/f.parquet") == 13


def test_a_file_given_up_leaves_nothing(root: str) -> None:
    storage = open_storage(root)
    sink = storage.create(f"{root}/f.parquet")
    sink.write(b"half")
    sink.abort()

    assert storage.list(root) == ()
    assert storage.list_unfinished(root) == ()


def test_put_replaces_and_delete_may_be_repeated(root: str) -> None:
    storage = open_storage(root)
    storage.put(f"{root}/x.json", b"1")
    storage.put(f"{root}/x.json", b"2")
    assert storage.read(f"{root}/x.json") == b"2"

    storage.delete(f"{root}/x.json")
    storage.delete(f"{root}/x.json")
    assert storage.list(root) == ()


def test_of_many_who_put_if_absent_one_wins(root: str) -> None:
    storage = open_storage(root)
    contents = [hashlib.sha256(bytes([n])).digest() * 100 for n in range(16)]

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda c: storage.put_if_absent(f"{root}/claim", c), contents))

    assert sum(won) == 1
    assert storage.read(f"{root}/claim") == contents[won.index(True)]
    assert storage.list_unfinished(root) == ()


# Not in the set: what a file name cannot hold, and the names of the directory itself.
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1)


@given(name=NAMES.filter(lambda n: n not in {".", ".."} and len(n.encode()) < 200))
def test_locations_are_taken_literally(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """A partition directory may hold %3D, # or spaces; none of them is decoded."""
    root = tmp_path_factory.mktemp("lake")
    storage = open_storage(str(root))
    storage.put(f"file://{root}/{name}", b"x")

    assert [path.name for path in root.iterdir()] == [name]
    assert storage.read(f"file://{root}/{name}") == b"x"


def test_free_space_is_known_before_the_directory_is_made(root: str) -> None:
    free = open_storage(root).free_bytes(f"{root}/not/yet")
    assert free is not None
    assert free > 0


def test_what_is_missing_or_in_the_way_is_named(root: str, tmp_path: Path) -> None:
    storage = open_storage(root)
    with pytest.raises(DestinationError, match=r"Cannot read .*/absent: No such file"):
        storage.read(f"{root}/absent")
    (tmp_path / "lake").write_text("a file, not a directory")
    with pytest.raises(DestinationError, match=r"Cannot create .*/f: .*Check space and perm"):
        storage.create(f"{root}/f")


def test_other_schemes_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="storage of the scheme 's3' is not supported"):
        open_storage("s3://bucket/lake")
