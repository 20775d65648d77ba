"""Which place a directory stands for."""

from __future__ import annotations

from pathlib import Path

from tests.places.far import FarPlace
from tests.places.local import LocalPlace
from tests.places.place import Place

__all__ = ["place_at"]


def place_at(directory: Path) -> Place:
    """Return where the world of a directory is: elsewhere, where a file in it says so."""
    return FarPlace.named_in(directory) or LocalPlace(directory)
