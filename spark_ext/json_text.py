"""Writes JSON in which no integer loses digits.

Many programs that read JSON, such as jq and browsers, keep integers exact only up to 2^53. Larger
integers are written as text. Snapshot ids are always text, so that they have one type.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tableformat.messages import plain

__all__ = ["EXACT", "json_text"]

EXACT: Final = 1 << 53
"""The largest integer that all JSON readers keep exact."""
_IDS: Final = ("snapshot_id", "snapshot_ids", "landed_snapshots")


def json_text(value: object) -> str:
    """Return a value as JSON in one line, with the options of the command line in its texts.

    Values of types that JSON lacks become text.
    """
    return json.dumps(_exact(value), default=str)


def _exact(value: Any, name: str = "") -> Any:
    """Return a value with text for snapshot ids and large integers."""
    match value:
        case bool():
            return value
        case int():
            return str(value) if name.endswith(_IDS) or abs(value) > EXACT else value
        case dict():
            return {key: _exact(one, str(key)) for key, one in value.items()}
        case list() | tuple():
            return [_exact(one, name) for one in value]
        case str():
            return plain(value)
        case _:
            return value
