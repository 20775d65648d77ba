"""JSON for programs, in which no number loses a digit.

Most programs that read JSON, as jq and every browser, keep integers up to 2^53 only. Ids of
snapshots are texts everywhere, so that they have one type; any other integer is one beyond that.
"""

from __future__ import annotations

import json
from typing import Any, Final

__all__ = ["EXACT", "json_text"]

EXACT: Final = 1 << 53
"""Up to this one, integers of JSON are read as they were written."""
_IDS: Final = ("snapshot_id", "snapshot_ids", "landed_snapshots")


def json_text(value: object) -> str:
    """Return a value as JSON in one line; what JSON has no form for becomes text."""
    return json.dumps(_exact(value), default=str)


def _exact(value: Any, name: str = "") -> Any:
    """Return a value with texts for what is, or may be, no exact number of JSON."""
    match value:
        case bool():
            return value
        case int():
            return str(value) if name.endswith(_IDS) or abs(value) > EXACT else value
        case dict():
            return {key: _exact(one, str(key)) for key, one in value.items()}
        case list() | tuple():
            return [_exact(one, name) for one in value]
        case _:
            return value
