"""Local storage: files under their own names; and which storage a location is of."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.storages.local import LocalStorage
from catalog.storages.s3.storage import S3Storage
from catalog.storages.schemes import ReachedStorages, Storages, open_storage
from tableformat.errors import (
    DestinationError,
    InternalError,
    LastingError,
    UnsupportedError,
    UsageError,
    reason_of,
)
from tableformat.storage import StoredObject

_NOBODY: Final = 65534


@pytest.fixture(params=["", "file://", "file:"], ids=["path", "uri", "hadoop"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}{tmp_path}/lake"


def test_a_file_is_not_there_before_it_is_finished(root: str) -> None:
    """Harm prevented: a reader reads an incomplete file."""
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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS], ids=os.strerror)
def test_a_disk_that_is_full_is_not_tried_again(
    root: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Harm prevented: four times the same, with "and run again" each time."""

    def fails(_file: int) -> None:
        raise OSError(number, os.strerror(number))

    storage = open_storage(root)
    monkeypatch.setattr(os, "fsync", fails)

    for write in (storage.put, storage.put_if_absent):
        with pytest.raises(LastingError) as failed:
            write(f"{root}/f", b"x")
        assert reason_of(failed.value.message).startswith(f"{os.strerror(number)}: cannot ")
        assert "continues" in failed.value.message
    monkeypatch.undo()
    assert storage.list(root) == storage.list_unfinished(root) == ()


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Let this thread alone use files as a user without rights; root may list any directory."""
    libc = ctypes.CDLL(None)
    before = libc.setfsuid(_NOBODY)
    try:
        yield
    finally:
        libc.setfsuid(before)


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """Make a directory that other users find; that of pytest is its own user's."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-files-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.mark.parametrize("below", ["", "p=1"])
def test_a_directory_that_cannot_be_listed_is_not_an_empty_one(
    open_to_all: Path, below: str
) -> None:
    """Harm prevented: an unreadable tree is exported again; gc finds no receipt."""
    storage, closed = open_storage(str(open_to_all)), open_to_all / "lake" / below
    storage.put(f"{open_to_all}/lake/p=1/f.parquet", b"x")
    closed.chmod(0)

    with as_nobody():
        with pytest.raises(DestinationError, match=rf"Cannot list {closed}: Permission denied"):
            storage.list(f"{open_to_all}/lake")
        with pytest.raises(DestinationError, match="Permission denied"):
            storage.list_unfinished(f"{open_to_all}/lake")
    closed.chmod(0o755)

    assert storage.list(f"{open_to_all}/not-made") == ()
    assert len(storage.list(f"{open_to_all}/lake")) == 1


@pytest.mark.parametrize("scheme", ["wasbs", "oss", "http"])
def test_other_schemes_are_refused_by_name(scheme: str) -> None:
    with pytest.raises(UnsupportedError, match=f"storage of the scheme '{scheme}' is not support"):
        open_storage(f"{scheme}://bucket/lake")


def test_a_location_with_a_login_is_refused_without_showing_it() -> None:
    """Harm prevented: the secret key in every message about a file of the table."""
    for scheme in ("s3", "gs", "abfss", "hdfs"):
        location = f"{scheme}://AK:a/pa55@bucket/x"
        with pytest.raises(UsageError, match="it has a login") as error:
            Storages({"warehouse": location})(location)
        assert "pa55" not in str(error.value)


def test_another_host_gets_only_the_settings_that_it_needs() -> None:
    """Harm prevented: a task reads the files of a table with the keys of another one."""
    storages = Storages({"s3.access-key-id": "of-catalog", "s3.secret-access-key": "hush"})
    storages.learn("s3://b/lake/t", {"s3.access-key-id": "of-t", "s3.secret-access-key": "hush"})
    files = ["s3://b/lake/t/data/f", "s3://b/lake/t2/data/f", "/data/f"]

    reached: ReachedStorages = pickle.loads(pickle.dumps(storages.reached(files)))  # noqa: S301  our own

    assert reached.places == {
        "s3://b/lake/t": storages.access(files[0]),
        "s3://b": storages.access(files[1]),
    }
    assert reached.places["s3://b/lake/t"] != reached.places["s3://b"]
    assert isinstance(reached("/data/g"), LocalStorage)
    for location in files[:2]:
        opened = reached(f"{location}-2")
        assert isinstance(opened, S3Storage)
        assert opened.access == storages.access(location)
    assert "hush" not in repr(reached)
    with pytest.raises(InternalError, match=r"Cannot reach s3://c/f: no storage"):
        reached("s3://c/f")


def test_what_a_killed_put_left_stops_no_later_one(tmp_path: Path) -> None:
    """Harm prevented: a partition that cannot be archived any more after one kill."""
    (tmp_path / ".mark.json.inprogress").write_bytes(b"ha")

    LocalStorage().put(f"{tmp_path}/mark.json", b"half and whole")

    assert (tmp_path / "mark.json").read_bytes() == b"half and whole"
