"""Tests the promises of a storage that exports need: an object is visible whole, or not at all.

    from conformance.suites.storage import storage_promises
    TestMine = storage_promises(lambda name: (MyStorage(...), f"mine://place/{name}"))

`open_place(name)` returns the storage and the location of an empty directory. Each test opens it
twice by the same name, as two processes would. `begun_is_seen` is False for a storage without
unfinished objects, where nothing can be found or removed. `many` exceeds the number of objects that
its server lists in one response. A storage that `copies` copies objects without sending their bytes
through this process.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar, Final

import pytest

from tableformat.errors import DestinationError, MissingError, UsageError
from tableformat.file_names import data_file_name, exported_by
from tableformat.storage import Storage, StoredObject

__all__ = ["StoragePromises", "storage_promises"]

_NAMES = itertools.count()
_NAME: Final = data_file_name("a" * 26, "1234567890", 3, "0-abc")
_LARGE: Final = 20 * 1024 * 1024 + 17
"""More bytes than any storage sends in one request."""
_MANY: Final = 1_203
"""More objects than a server lists in one response by default."""
_ODD: Final = (
    "p=2024-01-01",
    "a b",
    "a+b",
    "ü-ñ-名",
    "50%25",
    "%3D",
    "a:b",
    "q?x=1#f",
    "'quoted' \"twice\"",
    "{x}[y]*~$&,;@!()",
    "back\\slash",
)
Place = tuple[Storage, str]


class StoragePromises:
    """Tests a storage; each test has its own directory."""

    open_place: ClassVar[Callable[[str], Place]]
    begun_is_seen: ClassVar[bool]
    refused: ClassVar[tuple[str, ...]]
    many: ClassVar[int]
    copies: ClassVar[bool]
    storage: Storage
    other: Storage
    root: str

    @pytest.fixture(autouse=True)
    def place(self) -> None:
        """Open a new directory twice."""
        name = f"place-{next(_NAMES)}"
        self.storage, self.root = type(self).open_place(name)
        self.other, _ = type(self).open_place(name)

    @pytest.mark.parametrize("size", [0, 13, _LARGE], ids=["empty", "small", "large"])
    def test_nothing_is_visible_before_it_is_whole(self, size: int) -> None:
        """Harm prevented: a reader sees half of a file."""
        content, location = os.urandom(size), f"{self.root}/p=1/{_NAME}"
        sink = self.storage.create(location)
        for start in range(0, size, 1_000_003):
            sink.write(content[start : start + 1_000_003])
            assert self.other.list(self.root) == ()
        sink.commit()

        assert self.other.list(self.root) == (StoredObject(location, size),)
        assert self.other.list_unfinished(self.root) == ()
        assert self.other.read(location) == content
        assert self.other.size(location) == size
        assert self.other.sha256(location) == hashlib.sha256(content).hexdigest()

    def test_what_is_begun_is_found_and_can_be_removed(self) -> None:
        """Harm prevented: unfinished objects of killed writers stay, and are paid for, for ever."""
        location = f"{self.root}/p=1/{_NAME}"
        sink = self.storage.create(location)
        sink.write(os.urandom(_LARGE))

        if not self.begun_is_seen:
            assert self.other.list_unfinished(self.root) == ()
            sink.abort()
            assert self.other.list(self.root) == ()
            return
        (begun,) = self.other.list_unfinished(self.root)
        assert exported_by(begun.location) == ("a" * 26, "1234567890")
        assert begun.location.rpartition("/")[0] == f"{self.root}/p=1"
        assert begun.location.rpartition("/")[2].startswith(".")
        assert self.other.list_unfinished(f"{self.root}/p=2") == ()
        self.other.delete(begun.location)
        self.other.delete(begun.location)
        assert self.other.list_unfinished(self.root) == ()
        sink.abort()
        assert self.other.list(self.root) == ()

    @pytest.mark.parametrize("size", [13, _LARGE], ids=["small", "large"])
    def test_what_is_given_up_leaves_nothing(self, size: int) -> None:
        """Harm prevented: a table's directory fills with the files of failed writers."""
        sink = self.storage.create(f"{self.root}/f.parquet")
        sink.write(os.urandom(size))
        sink.abort()

        assert self.other.list(self.root) == ()
        assert self.other.list_unfinished(self.root) == ()

    def test_put_replaces_and_delete_may_be_repeated(self) -> None:
        """Harm prevented: recovery after a crash fails at a step that was done before the crash."""
        location = f"{self.root}/x.json"
        self.storage.put(location, b"1")
        self.storage.put(location, b"2")
        assert self.other.read(location) == b"2"

        self.storage.delete(location)
        self.other.delete(location)
        assert self.storage.list(self.root) == ()

    def test_of_many_who_put_if_absent_one_wins(self) -> None:
        """Harm prevented: two writers commit the same, or the owner of a claim does not know it."""
        contents = [hashlib.sha256(bytes([n])).digest() * 100 for n in range(16)]
        location = f"{self.root}/claim"

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda c: self.storage.put_if_absent(location, c), contents))

        assert sum(won) == 1
        assert self.other.read(location) == contents[won.index(True)]
        assert self.other.put_if_absent(location, contents[won.index(True)]) is False
        assert self.other.list_unfinished(self.root) == ()

    @pytest.mark.parametrize("name", _ODD)
    def test_locations_are_taken_literally(self, name: str) -> None:
        """A partition directory may contain %3D, # or spaces, none of which is decoded."""
        location = f"{self.root}/{name}/{name}.json"
        if name in self.refused:
            with pytest.raises(UsageError):
                self.storage.put(location, b"x")
            assert self.other.list(self.root) == self.other.list_unfinished(self.root) == ()
            return
        self.storage.put(location, b"x")

        assert self.other.list(f"{self.root}/{name}") == (StoredObject(location, 1),)
        assert self.other.read(location) == b"x"
        self.other.delete(location)
        assert self.storage.list(self.root) == ()

    def test_every_object_is_listed_and_of_no_neighbour(self) -> None:
        """Harm prevented: gc, or a resumed export, sees the first page only."""
        below = f"{self.root}/many"
        with ThreadPoolExecutor(16) as pool:
            locations = [f"{below}/{n:04}/{n % 7}" for n in range(type(self).many)]
            list(pool.map(lambda one: self.storage.put(one, b"x"), locations))
        self.storage.put(f"{self.root}/many-more", b"x")

        assert [one.location for one in self.other.list(below)] == sorted(locations)
        assert self.other.list(f"{below}/0000/") == (StoredObject(f"{below}/0000/0", 1),)
        assert self.other.list(f"{self.root}/nothing") == ()

    def test_a_fetched_file_has_the_bytes(self, tmp_path: Path) -> None:
        """Harm prevented: verify reads other bytes than readers do."""
        content, location = os.urandom(3_000_000), f"{self.root}/f"
        self.storage.put(location, content)

        assert self.other.fetch(location, tmp_path).read_bytes() == content
        assert self.other.read(location) == content

    @pytest.mark.parametrize("size", [0, 13, _LARGE], ids=["empty", "small", "large"])
    def test_a_copy_by_the_storage_is_equal_and_lives_on(self, size: int) -> None:
        """Harm prevented: a copy disappears with its original, or is incomplete."""
        content, location = os.urandom(size), f"{self.root}/p=1/f"
        to = f"{self.root}/p=2/50%25 a+b/f"
        self.storage.put(location, content)

        assert self.storage.copy(self.other, location, to) is self.copies

        if not self.copies:
            assert self.other.list(self.root) == (StoredObject(location, size),)
            return
        self.storage.delete(location)
        assert self.other.list(self.root) == (StoredObject(to, size),)
        assert self.other.list_unfinished(self.root) == ()
        assert self.other.read(to) == content

    def test_a_copy_by_the_storage_is_in_nothing_s_place(self) -> None:
        """Harm prevented: a copy replaces a file that snapshots refer to."""
        location, to, absent = (f"{self.root}/{name}" for name in ("a", "b", "absent"))
        self.storage.put(location, b"new")
        self.storage.put(to, b"old")
        if not self.copies:
            assert self.storage.copy(self.other, absent, to) is False
            return

        with pytest.raises(DestinationError, match="there is another object of that name"):
            self.storage.copy(self.other, location, to)
        with pytest.raises(MissingError, match=r"Cannot .*/absent: "):
            self.storage.copy(self.other, absent, f"{self.root}/c")

        assert self.other.read(to) == b"old"
        assert [one.location for one in self.other.list(self.root)] == [location, to]

    def test_what_is_missing_is_named(self) -> None:
        """Harm prevented: a missing object is read as empty, or an outage is taken for absence."""
        absent = f"{self.root}/absent"
        readers: tuple[Callable[[], object], ...] = (
            lambda: self.storage.read(absent),
            lambda: self.storage.size(absent),
            lambda: self.storage.sha256(absent),
        )
        for read in readers:
            with pytest.raises(MissingError, match=r"Cannot read .*/absent: .*put it back"):
                read()


def storage_promises(
    open_place: Callable[[str], Place],
    *,
    begun_is_seen: bool = True,
    refused: tuple[str, ...] = (),
    many: int = _MANY,
    copies: bool = False,
) -> type[StoragePromises]:
    """Return the test class for a kind of storage.

    Args:
        open_place: opens the storage and an empty directory by name.
        begun_is_seen: whether unfinished objects can be listed.
        refused: names that the storage refuses, because it would change them.
        many: more objects than its server lists in one response.
        copies: whether the storage copies objects itself.
    """
    given = {
        "open_place": staticmethod(open_place),
        "begun_is_seen": begun_is_seen,
        "refused": refused,
        "many": many,
        "copies": copies,
    }
    return type("Promises", (StoragePromises,), given)
