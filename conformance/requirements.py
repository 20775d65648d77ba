"""Reads requirements.toml: all requirements, their owners, and the status of each owner's share.

This module checks the form of the file. tests/repository/test_requirements.py checks that the named
tests exist, and tests/support/named_tests.py that they ran.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tableformat.errors import InternalError

__all__ = [
    "OWNERS",
    "Deviation",
    "Planned",
    "Proved",
    "Requirement",
    "Requirements",
    "load_requirements",
]

OWNERS: Final = ("A", "B", "C", "C2", "D", "E", "F")

_FILE: Final = Path(__file__).with_name("requirements.toml")


@dataclass(frozen=True, slots=True)
class Planned:
    """The share is not implemented yet."""


@dataclass(frozen=True, slots=True)
class Proved:
    """The share is implemented, and these tests prove it, each as `path::name`."""

    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deviation:
    """The share deviates from the text of the requirement, for this reason."""

    why: str


Share = Planned | Proved | Deviation


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement: its id, a title, its interpretation (`reading`), and each owner's share."""

    id: str
    title: str
    reading: str
    owners: tuple[tuple[str, Share], ...]


@dataclass(frozen=True, slots=True)
class Requirements:
    """All requirements, and the owners whose shares are complete."""

    done: tuple[str, ...]
    all: tuple[Requirement, ...]

    def named_tests(self) -> frozenset[str]:
        """Return all tests that shares name, as `path::name`."""
        shares = (share for item in self.all for _, share in item.owners)
        return frozenset(
            test for share in shares if isinstance(share, Proved) for test in share.tests
        )


def load_requirements(text: str | None = None) -> Requirements:
    """Read and check the list of requirements.

    Args:
        text: The TOML text; None for requirements.toml in this directory.

    Raises:
        InternalError: An entry does not have the form that the head of the file describes.
    """
    raw = tomllib.loads(_FILE.read_text(encoding="utf-8") if text is None else text)
    done = tuple(_text(item, "done") for item in _list(raw.get("done"), "done"))
    _require(set(done) <= set(OWNERS), f"done = {list(done)} names an unknown owner")
    found = tuple(_requirement(item) for item in _list(raw.get("requirement"), "requirement"))
    twice = [name for name, count in Counter(item.id for item in found).items() if count > 1]
    _require(not twice, f"these ids are listed more than once: {twice}")
    return Requirements(done=done, all=found)


def _requirement(item: object) -> Requirement:
    if not isinstance(item, Mapping):
        raise _wrong(f"{item!r} is not a table")
    name = _text(item.get("id"), "an id")
    extra = set(item) - {"id", "title", "reading", "owners"}
    _require(not extra, f"{name} has unknown fields {sorted(extra)}")
    owners = item.get("owners")
    if not isinstance(owners, Mapping) or not owners:
        raise _wrong(f"{name} has no owner")
    _require(set(owners) <= set(OWNERS), f"{name} has an unknown owner among {sorted(owners)}")
    return Requirement(
        id=name,
        title=_text(item.get("title"), f"the title of {name}"),
        reading=_text(item.get("reading"), f"the reading of {name}"),
        owners=tuple((owner, _share(value, name)) for owner, value in owners.items()),
    )


def _share(value: object, name: str) -> Share:
    match value:
        case "planned":
            return Planned()
        case {"test": str(test), **rest} if not rest:
            return Proved((test,))
        case {"test": list(tests), **rest} if tests and not rest:
            return Proved(tuple(_text(test, f"a test of {name}") for test in tests))
        case {"deviation": str(why), **rest} if why and not rest:
            return Deviation(why)
        case _:
            raise _wrong(f"{name} has the share {value!r}")


def _list(value: object, what: str) -> list[object]:
    if not isinstance(value, list):
        raise _wrong(f"{what} is not a list but {value!r}")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(f"{what} is not a text but {value!r}")
    return value


def _require(condition: bool, message: str) -> None:  # noqa: FBT001 - reads as "require that"
    if not condition:
        raise _wrong(message)


def _wrong(message: str) -> InternalError:
    return InternalError(f"Cannot read requirements.toml: {message}. See the head of the file.")
