"""Reads the disks and volumes of a lake table: named locations for its data files.

Properties of the table define them (docs/spec/table-properties.md):

    mergeberg.disk.cold        s3://archive/lake
    mergeberg.volume.slow      cold, tape

Several tables may share a disk: below it each table has a directory with its uuid. The disk
`default` is the table's own data directory, and has no property. A volume is a list of disks; new
files go to the first one. Because they are table properties, all interfaces and other engines have
the same disks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from tableformat.clickhouse_codes import BAD_ARGUMENTS, UNKNOWN_DISK, UNKNOWN_VOLUME
from tableformat.committer import LakeTableState
from tableformat.errors import NotFoundError, RefusedError
from tableformat.file_names import (
    PathLayout,
    data_file_path,
    directory_without_hash,
    why_no_place,
)

__all__ = ["DISK_PREFIX", "OWN_DISK", "VOLUME_PREFIX", "DiskOrVolume", "Disks"]

DISK_PREFIX: Final = "mergeberg.disk."
VOLUME_PREFIX: Final = "mergeberg.volume."
OWN_DISK: Final = "default"
"""The disk, and unless a property says otherwise the volume, of the table's own data directory."""


@dataclass(frozen=True, slots=True)
class DiskOrVolume:
    """A disk or volume of a statement: files may be below any of `places`, new ones the first.

    `text` is its form in a statement, such as DISK 'cold'.
    """

    text: str
    places: tuple[str, ...]

    def __str__(self) -> str:
        """Return its form in a statement."""
        return self.text


@dataclass(frozen=True, slots=True)
class Disks:
    """The disks of a table by name, each with the location of the table's files on it.

    `former` are the locations of files of the disk `default` before its property was set. `layout`
    is that of new paths on the disk `default`.
    """

    places: Mapping[str, str]
    volumes: Mapping[str, tuple[str, ...]]
    uuid: str
    former: frozenset[str] = frozenset()
    layout: PathLayout = PathLayout.PARTITION

    @classmethod
    def of(cls, state: LakeTableState) -> Self:
        """Return the disks and volumes of a table's properties, and the table's own disk."""
        uuid, properties = state.layout.table_uuid, state.properties
        places = {
            name.removeprefix(DISK_PREFIX): f"{place.rstrip('/')}/{uuid}" if place else uuid
            for name, place in properties.items()
            if name.startswith(DISK_PREFIX)
        }
        volumes = {
            name.removeprefix(VOLUME_PREFIX): tuple(d.strip() for d in disks.split(","))
            for name, disks in properties.items()
            if name.startswith(VOLUME_PREFIX)
        }
        own = {OWN_DISK: state.data_location.rstrip("/")}
        former = state.data_locations - {*own.values()}
        layout = PathLayout.of(properties, state.tree)
        return cls({**places, **own}, {OWN_DISK: (OWN_DISK,), **volumes}, uuid, former, layout)

    def disk(self, name: str, what: str) -> DiskOrVolume:
        """Return a disk as a place to move to.

        Args:
            name: the name of the disk.
            what: the beginning of errors, such as "Cannot run …".

        Raises:
            NotFoundError: there is no disk of that name (code 479).
            RefusedError: its property is not a valid location (code 36).
        """
        return DiskOrVolume(f"DISK {_quoted(name)}", (self._place(name, what),))

    def volume(self, name: str, what: str) -> DiskOrVolume:
        """Return a volume as a place to move to.

        Args:
            name: the name of the volume.
            what: the beginning of errors, such as "Cannot run …".

        Raises:
            NotFoundError: there is no volume of that name (code 548), or not one of its disks
                (479).
            RefusedError: the property of a disk is not a valid location (code 36).
        """
        disks = self.volumes.get(name)
        if disks is None:
            message = (
                f"{what}: No such volume `{name}`. The table's volumes are "
                f"{', '.join(sorted(self.volumes))}. Name one of them, or set the table's property "
                f"{VOLUME_PREFIX}{name} to a list of disks."
            )
            raise NotFoundError(message, code=UNKNOWN_VOLUME)
        places = tuple(self._place(disk, what) for disk in disks)
        return DiskOrVolume(f"VOLUME {_quoted(name)}", places)

    def _place(self, name: str, what: str) -> str:
        place = self.places.get(name)
        if place is None:
            message = (
                f"{what}: No such disk `{name}`. The table's disks are "
                f"{', '.join(sorted(self.places))}. Name one of them, or set the table's property "
                f"{DISK_PREFIX}{name} to a place, as s3://BUCKET/DIRECTORY."
            )
            raise NotFoundError(message, code=UNKNOWN_DISK)
        if name != OWN_DISK and (why := why_no_place(place)):
            value = place.removesuffix(self.uuid).rstrip("/")
            message = f"{what}: the table's property {DISK_PREFIX}{name} is {value!r}, {why}."
            raise RefusedError(message, code=BAD_ARGUMENTS)
        return place

    def place_of(self, path: str) -> str | None:
        """Return the location of the disk that a file is on, None if it is on none."""
        return _above(path, self.places.values())

    def disk_of(self, path: str) -> str | None:
        """Return the name of the disk that a file is on, None if it is on none."""
        place = self.place_of(path)
        return min((n for n, p in self.places.items() if p == place), default=None)

    def place_for_replacement(self, path: str) -> str:
        """Return the location for a file that replaces another one.

        It is the disk of the replaced file, or the table's own if that file is on none.
        """
        return self.place_of(path) or self.places[OWN_DISK]

    def directory_of(self, path: str) -> str:
        """Return the partition directory of a file, '' for none, or if it is on no disk."""
        place = self.place_of(path) or _above(path, self.former)
        if place is None:
            return ""
        return directory_without_hash(path.removeprefix(f"{place}/").rpartition("/")[0])

    def layout_at(self, place: str) -> PathLayout:
        """Return the layout of the paths of new files at a place: only the table's own has hashes.

        On another disk copies that were only started are found by their partition directory.
        """
        return self.layout if place == self.places[OWN_DISK] else PathLayout.PARTITION

    def new_path(self, directory: str, name: str, place: str = "") -> str:
        """Return the path of a new file; `place` is '' for the table's own disk."""
        at = place or self.places[OWN_DISK]
        return data_file_path(at, directory, name, self.layout_at(at))

    def alike(self, paths: Iterable[str]) -> set[str]:
        """Return the directories of all disks in which copies of files may be.

        These are the files' own directories on each disk; without files, the whole disks.
        """
        known = (*self.places.values(), *self.former)
        on = {self.directory_of(one) for one in paths if _above(one, known) is not None} or {""}
        return {
            "/".join(part for part in (place, directory) if part)
            for place in self.places.values()
            for directory in on
        }


def _above(path: str, places: Iterable[str]) -> str | None:
    """Return the innermost of the locations that contain a file, None if none does."""
    return max((one for one in places if path.startswith(f"{one}/")), key=len, default=None)


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
