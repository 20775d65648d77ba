"""Finds a foreign module that hides one of ours, before it is imported.

Our import names are plain words (`catalog` above all), so a file `catalog.py` in the working
directory, or another distribution, can stand before ours on `sys.path`. Half of one and half of
the other then fails far from the cause. This file owns the check and its one error; it uses the
standard library only and imports nothing of ours, because it runs before that is safe.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

__all__ = ["ForeignModuleError", "check_own_modules"]

_NAMES: Final = ("catalog", "spark_ext", "tableformat")


class ForeignModuleError(ImportError):
    """A module that is not ours is found first under one of our import names."""


def check_own_modules() -> None:
    """Check that every one of our import names leads to the folder beside this package.

    A name that leads nowhere is no error here: importing it says so by itself.

    Raises:
        ForeignModuleError: Another module hides ours; both places are named.
    """
    # No question to the disk about these paths: the packages may be shipped inside a zip file.
    here = Path(__file__).resolve().parent.parent
    for name in _NAMES:
        own = here / name
        found = _location(name)
        if found is not None and found.resolve() != own:
            message = (
                f"Cannot import mergeberg: the module {name!r} at {found} hides mergeberg's own "
                f"at {own}. Rename or move the other one, start from another directory, or "
                "install mergeberg into a virtual environment of its own."
            )
            raise ForeignModuleError(message, name=name, path=str(found))


def _location(name: str) -> Path | None:
    """Return the package folder or the file that an import of the name would load."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # The module was put into sys.modules by hand and has no spec.
        return Path(f"sys.modules[{name!r}]")
    if spec is None:
        return None
    if spec.origin is None:
        # A folder without __init__.py. Ours have one, so this can only be somebody else's.
        return next((Path(place) for place in spec.submodule_search_locations or ()), None)
    origin = Path(spec.origin)
    return origin.parent if origin.stem == "__init__" else origin
