"""What a commit takes out of main and what it brings there, as figures for people and programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Figures", "Leaving", "Sized", "counted_files"]


class Sized(Protocol):
    """A file with its rows and its size in bytes."""

    @property
    def rows(self) -> int:
        """How many rows it has."""
        ...

    @property
    def bytes(self) -> int:
        """Its size."""
        ...


@dataclass(frozen=True, slots=True)
class Figures:
    """Files, their rows and their bytes; `bytes` is None where files are not written yet."""

    files: int = 0
    rows: int = 0
    bytes: int | None = 0

    def __add__(self, other: Figures) -> Figures:
        """Return both together."""
        unknown = self.bytes is None or other.bytes is None
        size = None if unknown else (self.bytes or 0) + (other.bytes or 0)
        return Figures(self.files + other.files, self.rows + other.rows, size)


@dataclass(frozen=True, slots=True)
class Leaving:
    """What leaves main for a key: its files, rows and bytes, and how many of them others wrote.

    `before` is the snapshot that main was, None where it had none.
    """

    paths: tuple[str, ...] = ()
    rows: int = 0
    foreign_files: int = 0
    foreign_rows: int = 0
    bytes: int = 0
    before: int | None = None

    @property
    def figures(self) -> Figures:
        """Files, rows and bytes."""
        return Figures(len(self.paths), self.rows, self.bytes)


def counted_files(files: Iterable[Sized]) -> Figures:
    """Return the figures of files."""
    found = tuple(files)
    return Figures(len(found), sum(f.rows for f in found), sum(f.bytes for f in found))
