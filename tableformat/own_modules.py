"""Detects another module that hides one of mergeberg's packages, before it is imported.

The package names are common words, such as `catalog`. A file `catalog.py` in the working directory,
or another distribution, can come first on `sys.path`; an import then fails with a misleading error.
This module uses only the standard library: it runs before other imports are safe.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

__all__ = ["ForeignModuleError", "check_own_modules"]

_NAMES: Final = ("catalog", "spark_ext", "tableformat")


class ForeignModuleError(ImportError):
    """Python would import another module under the name of one of mergeberg's packages."""


def check_own_modules() -> None:
    """Check that Python finds every package of mergeberg in the parent folder of this package.

    A package that is not found is no error here; its import raises one.

    Raises:
        ForeignModuleError: another module hides a package; the message has both paths.
    """
    # The paths are compared without access to files: the packages may be inside a zip file.
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
        # A folder without __init__.py is not of mergeberg, whose packages have one.
        return next((Path(place) for place in spec.submodule_search_locations or ()), None)
    origin = Path(spec.origin)
    return origin.parent if origin.stem == "__init__" else origin
