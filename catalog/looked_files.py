"""What a statement changes in data files, found out once, and what it left of their rows.

Where that lies is known by location, so that another host may look at a file than the one that
writes it anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema

from catalog.clickhouse.row_changes import RowChanges
from catalog.scratch import ScratchDirectory
from catalog.storages.opening import Opens
from tableformat.branches import BranchFile
from tableformat.iceberg.properties import RememberedSource
from tableformat.mergetree.row_change import RowChange
from tableformat.operations.planned import Rewrite

__all__ = ["FileLooker", "KeptRows", "Looked", "LookedFiles", "LooksElsewhere"]

_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Looked:
    """What changes in a file, None for nothing, and the location of what is left of its rows."""

    rewrite: Rewrite | None
    left: str


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Lends what is left of files; a `catalog.changed_files.LeftOfFiles`.

    `sets` are columns that may have other values, `at` the locations, by the paths of the files.
    """

    sets: tuple[str, ...]
    at: Mapping[str, str]
    storages: Opens

    @contextmanager
    def left(self, path: str) -> Iterator[pa.Table]:
        """Lend what is left of the rows of a file that changes, in order, by `ROW_NUMBER`.

        The other columns are those that it sets, as what ClickHouse hands over; mapped, not read.
        """
        location = self.at[path]
        with ScratchDirectory("left") as scratch:
            local = self.storages(location).fetch(location, scratch.path)
            with pa.memory_map(str(local)) as left, pa.ipc.open_stream(left) as stream:
                yield stream.read_all()


@dataclass(frozen=True, slots=True)
class FileLooker:
    """Looks at files on another host than the statement was given on, or here.

    `schema` is the table's. What is left of a file comes below the location `kept`; that is a
    directory of all who look where it is `at_hand`.
    """

    source: RememberedSource
    schema: Schema
    change: RowChange
    storages: Opens
    kept: str = ""
    at_hand: bool = True

    def __call__(self, files: Iterable[BranchFile]) -> Iterator[Looked]:
        """Look at files, one after the other.

        Raises:
            RefusedError: ClickHouse refuses a value, or a file's values are not the source's.
            DestinationError: a file cannot be read, or the storage failed.
            SourceError: ClickHouse does not start.
        """
        of = self.source, self.storages, self.schema, self.change
        # As many others look on this host as it has processors for.
        with RowChanges(*of, threads=1) as rows:
            directory = Path(self.kept) if self.at_hand else rows.directory
            for file in files:
                looked = look(rows, file, directory)
                if self.at_hand or looked.rewrite is None:
                    yield looked
                else:
                    yield Looked(looked.rewrite, self._stored(Path(looked.left)))

    def _stored(self, local: Path) -> str:
        location = f"{self.kept}/{local.name}"
        sink = self.storages(location).create(location)
        try:
            with local.open("rb") as left:
                while piece := left.read(_PIECE):
                    sink.write(piece)
            sink.commit()
        except BaseException:
            sink.abort()
            raise
        local.unlink()
        return location


def look(rows: RowChanges, file: BranchFile, directory: Path) -> Looked:
    """Look at a file; what is left of it comes into a directory of this host.

    Raises:
        TableFormatError: as `FileLooker`.
    """
    left = directory / f"{uuid.uuid4().hex}.arrow"
    return Looked(rows(file, left), str(left))


LooksElsewhere = Callable[[tuple[BranchFile, ...]], tuple[Looked, ...] | None]
"""Looks at files elsewhere; None where they are better looked at here."""


@dataclass(frozen=True, slots=True)
class LookedFiles:
    """Remembers what was found out; a `tableformat.operations.change_rows.RowsOfFiles`.

    And a `catalog.changed_files.LeftOfFiles`. `rows` looks at files here.
    """

    rows: RowChanges
    storages: Opens
    elsewhere: LooksElsewhere | None = None
    _found: dict[str, Looked] = field(default_factory=dict, init=False, repr=False)

    @property
    def sets(self) -> tuple[str, ...]:
        """The columns that may have other values afterwards."""
        return self.rows.sets

    def __call__(self, files: tuple[BranchFile, ...]) -> tuple[Rewrite | None, ...]:
        """Return what changes in files, None for nothing; the same whenever it is asked.

        Raises:
            TableFormatError: as `FileLooker`, of the first file of which it is so.
        """
        new = tuple({f.path: f for f in files if f.path not in self._found}.values())
        found = self.elsewhere(new) if self.elsewhere is not None and new else None
        if found is None:
            found = tuple(look(self.rows, file, self.rows.directory) for file in new)
        self._found.update(zip((f.path for f in new), found, strict=True))
        return tuple(self._found[f.path].rewrite for f in files)

    @property
    def kept(self) -> KeptRows:
        """What is left of files, for whoever writes them anew."""
        at = {path: one.left for path, one in self._found.items() if one.rewrite is not None}
        return KeptRows(self.sets, at, self.storages)

    @contextmanager
    def left(self, path: str) -> Iterator[pa.Table]:
        """Lend what is left of the rows of a file that changes, as `KeptRows` does."""
        kept = KeptRows(self.sets, {path: self._found[path].left}, self.storages)
        with kept.left(path) as table:
            yield table
