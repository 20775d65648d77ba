"""How a tree of Hive directories is named: by its whole location, so that it has one name."""

from __future__ import annotations

import os
import re
from typing import Final

from tableformat.errors import UsageError
from tableformat.names import HiveName

__all__ = ["tree_name"]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_LOCAL: Final = re.compile(r"file:(?://)?(?=/)")


def tree_name(name: HiveName) -> HiveName:
    """Return the one name of a tree: its whole location, from wherever and however it is named.

    Raises:
        UsageError: it is no path, and no location of a scheme.
    """
    local = _LOCAL.match(name.uri)
    if local is None and _SCHEME.match(name.uri):
        return name
    path = name.uri[local.end() :] if local is not None else name.uri
    if local is None and ":" in path.split("/", 1)[0]:
        message = (
            f"Cannot use {name} as a destination: {path.split('/', 1)[0]!r} is no scheme with a "
            "location. Write hive:s3://BUCKET/PATH, hive:file:///PATH, or a path, such as ./a:b "
            "for one with a colon."
        )
        raise UsageError(message)
    # Two slashes at the beginning are kept there, and are a place of their own nowhere.
    below = os.path.abspath(path).lstrip("/")  # noqa: PTH100  it takes .. out
    return HiveName.at(f"file:///{below}" if below else below)
