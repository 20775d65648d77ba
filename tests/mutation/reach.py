"""A plugin of pytest that writes down which functions of the product each test calls.

`pytest -p tests.mutation.reach --reach DIRECTORY` writes one JSON file for each process of tests:
`path::name` of a test, and `path:qualified.name` of each function. Functions that other processes
call (those of Spark and of ClickHouse) are not seen. What fixtures call counts for the test that
needs them first.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

__all__ = ["load_reach"]

_ROOT: Final = Path(__file__).resolve().parents[2]
_PRODUCT: Final = ("tableformat", "catalog", "spark_ext")


class Reach:
    """Collects the functions of each test of this process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: dict[CodeType, str] = {}
        self._called: set[str] = set()
        self._tests: dict[str, set[str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note what is called between the first fixture of a test and its last."""
        self._called = self._tests.setdefault(item.nodeid.partition("[")[0], set())
        sys.setprofile(self._on_call)
        threading.setprofile(self._on_call)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def pytest_sessionfinish(self) -> None:
        """Write the file of this process."""
        self._directory.mkdir(parents=True, exist_ok=True)
        found = {name: sorted(called - {""}) for name, called in self._tests.items() if called}
        path = self._directory / f"{os.getpid()}.json"
        path.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")

    def _on_call(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            name = self._names.get(code)
            if name is None:
                name = self._names[code] = _name_of(code)
            self._called.add(name)


def load_reach(directory: Path) -> dict[str, frozenset[str]]:
    """Return the functions that each test calls, from the files of all processes.

    Args:
        directory: where the plugin wrote them.
    """
    found: dict[str, frozenset[str]] = {}
    for path in sorted(directory.glob("*.json")):
        for test, called in json.loads(path.read_text(encoding="utf-8")).items():
            found[test] = found.get(test, frozenset()) | frozenset(called)
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--reach", type=Path, help="write into this directory what each test calls")


def pytest_configure(config: pytest.Config) -> None:
    """Register what collects, in every process that runs tests."""
    directory: Path | None = config.getoption("reach")
    if directory is not None:
        config.pluginmanager.register(Reach(directory), "reach-of-tests")


def _name_of(code: CodeType) -> str:
    """Return `path:qualified.name` of a function of the product, '' for any other."""
    path = Path(code.co_filename)
    if not path.is_relative_to(_ROOT) or code.co_name.startswith("<"):
        return ""
    relative = path.relative_to(_ROOT)
    return f"{relative}:{code.co_qualname}" if relative.parts[0] in _PRODUCT else ""
