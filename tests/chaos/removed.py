"""What is cleaned up in a chaos run, and can still be read: the judge reads every version."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlparse

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from catalog.storages.local import LocalStorage
from tableformat.storage import Storage
from tests.places.far import FarPlace
from tests.places.found import place_at
from tests.places.place import Place

__all__ = ["Removed", "removed_in"]


class Removed(Protocol):
    """Keeps what is removed from a world."""

    def storage(self, location: str) -> Storage:
        """Return a storage that removes, and keeps."""
        ...

    def io(self) -> FileIO:
        """Return what reads all that there was until now."""
        ...

    def names(self) -> tuple[str, ...]:
        """Return what was removed."""
        ...


def removed_in(directory: Path, front: Path) -> Removed:
    """Return what keeps, in the world of a directory; `front` stands for what processes see."""
    place = place_at(directory)
    if isinstance(place, FarPlace):
        return _InBucket(place, place_at(front))
    return _Below(directory / "removed")


@dataclass(frozen=True, slots=True)
class _Below:
    """Keeps below another directory, under the same path."""

    directory: Path

    def storage(self, location: str) -> Storage:  # noqa: ARG002  it is so everywhere
        return _Moving(self)

    def io(self) -> FileIO:
        return _Moved(self)

    def names(self) -> tuple[str, ...]:
        return tuple(str(path) for path in self.directory.rglob("*") if path.is_file())

    def kept(self, location: str) -> Path:
        return self.directory / Path(urlparse(location).path).relative_to("/")


class _Moving(LocalStorage):
    def __init__(self, removed: _Below) -> None:
        self._removed = removed

    def delete(self, location: str) -> None:
        kept = self._removed.kept(location)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            Path(urlparse(location).path).rename(kept)


class _Moved(PyArrowFileIO):
    def __init__(self, removed: _Below) -> None:
        super().__init__()
        self._removed = removed

    def new_input(self, location: str) -> PyArrowFile:
        kept = self._removed.kept(location)
        return super().new_input(str(kept) if kept.exists() else location)


@dataclass(frozen=True, slots=True)
class _InBucket:
    """The bucket keeps every version of an object."""

    place: FarPlace
    front: Place

    def storage(self, location: str) -> Storage:
        return self.front.storage(location)

    def io(self) -> FileIO:
        return _Versions(self.place, {key: version for key, version, _ in self._versions()})

    def names(self) -> tuple[str, ...]:
        return tuple(key for key, _, there in self._versions() if not there)

    def _versions(self) -> Iterator[tuple[str, str, bool]]:
        """Yield each object, its last version that has bytes, and whether it is there now."""
        found, gone = dict[str, str](), set[str]()
        place = self.place.bucket
        pages = self.place.client.get_paginator("list_object_versions")
        for page in pages.paginate(Bucket=place.bucket, Prefix=place.key):
            # The latest version of an object comes first.
            for one in page.get("Versions", ()):
                found.setdefault(one["Key"], one["VersionId"])
            gone |= {one["Key"] for one in page.get("DeleteMarkers", ()) if one["IsLatest"]}
        yield from ((key, version, key not in gone) for key, version in found.items())


class _Versions(FileIO):
    def __init__(self, place: FarPlace, versions: dict[str, str]) -> None:
        super().__init__()
        self._place, self._versions = place, versions

    def new_input(self, location: str) -> InputFile:
        return _Version(location, self._place, self._versions)

    def new_output(self, location: str) -> OutputFile:
        message = f"Cannot write {location}: the judge only reads."
        raise io.UnsupportedOperation(message)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        message = f"Cannot delete {location}: the judge only reads."
        raise io.UnsupportedOperation(message)


class _Version(InputFile):
    def __init__(self, location: str, place: FarPlace, versions: dict[str, str]) -> None:
        super().__init__(location)
        self._place, self._versions = place, versions

    @property
    def _key(self) -> str:
        return self.location.removeprefix(self._place.bucket.location(""))

    def __len__(self) -> int:
        return len(self._read())

    def exists(self) -> bool:
        return self._key in self._versions

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002  PyIceberg's
        return io.BytesIO(self._read())

    def _read(self) -> bytes:
        if not self.exists():
            raise FileNotFoundError(self.location)
        found: Any = self._place.client.get_object(
            Bucket=self._place.bucket.bucket, Key=self._key, VersionId=self._versions[self._key]
        )
        return bytes(found["Body"].read())
