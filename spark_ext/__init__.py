"""The export engine and its interfaces: command line, Spark SQL and Python."""

from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

from spark_ext.public_names import PUBLIC


def _check_own_modules() -> None:
    """Run `tableformat.own_modules` by its path: another package may have a module of its name."""
    place = Path(__file__).resolve().parent.parent / "tableformat"
    spec = PathFinder.find_spec("own_modules", [str(place)])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        module.check_own_modules()


_check_own_modules()


def __getattr__(name: str) -> Any:
    """Load a public name at its first use, because tasks import this package and need none."""
    if name == "sql":
        return import_module("spark_ext.sql")
    if name in PUBLIC:
        return getattr(import_module(PUBLIC[name]), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    """Return the public names, for completion in editors."""
    return sorted((*PUBLIC, "sql", "__doc__", "__name__"))
