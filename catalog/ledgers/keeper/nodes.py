"""The content of every node: a line with a checksum, and what it is a checksum of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from catalog.ledgers.keeper.session import Trouble

__all__ = ["damaged", "json_members", "member", "members", "sealed", "sealed_members", "unsealed"]

T = TypeVar("T")

_BEGIN: Final = b"mergeberg sha256:"
_MEND: Final = (
    "Restore the node from a copy, or rebuild the ledger from the table (mergeberg exports rebuild)"
)


def sealed(content: bytes) -> bytes:
    """Return what is stored."""
    return _BEGIN + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def unsealed(stored: bytes, path: str) -> bytes:
    """Return the content of a node.

    Raises:
        Trouble: it is damaged.
    """
    head, _, content = stored.partition(b"\n")
    if head != sealed(content).partition(b"\n")[0]:
        raise damaged(path, "its content is not what its checksum was made of")
    return content


def sealed_members(members: Mapping[str, Any]) -> bytes:
    """Return what is stored for a JSON object."""
    return sealed(json.dumps(members, separators=(",", ":")).encode())


def members(stored: bytes, path: str) -> dict[str, Any]:
    """Return the JSON object of a node.

    Raises:
        Trouble: it is damaged, or is none.
    """
    return json_members(unsealed(stored, path), path)


def json_members(content: bytes, path: str) -> dict[str, Any]:
    """Return the JSON object that the content of a node is, or begins with.

    Raises:
        Trouble: it is none.
    """
    try:
        found = json.loads(content)
    except ValueError as error:
        raise damaged(path, repr(error)) from error
    if not isinstance(found, dict):
        raise damaged(path, "it is no JSON object")
    return found


def member(found: Mapping[str, Any], name: str, kind: type[T], path: str) -> T:
    """Return a member of a node's JSON object.

    Raises:
        Trouble: it has none of that name and kind.
    """
    value = found.get(name)
    if not isinstance(value, kind):
        raise damaged(path, f"its member {name!r} is {value!r}")
    return value


def damaged(path: str, why: str) -> Trouble:
    """Return why nothing can be said of what a node holds."""
    return Trouble(f"the node {path} is damaged ({why})", _MEND)
