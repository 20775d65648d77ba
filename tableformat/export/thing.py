"""What `gc` tells of: something that may be in nobody's use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Kind", "Thing"]


class Kind(StrEnum):
    """What lies there."""

    DATA_FILE = "data file"
    BEGUN_FILE = "begun file"
    RECEIPT = "receipt"
    MANIFEST = "manifest"
    METADATA = "metadata file"
    SNAPSHOT = "snapshot"
    LIST = "list of a commit"
    STOP_MARK = "mark to stop"
    VIEW_ROWS = "rows of a view"
    STAGING_TABLE = "staging table"


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that may be in nobody's use: what and where, and whether and why it may go."""

    kind: Kind
    location: str
    bytes: int
    may_go: bool
    why: str
    partition_id: str = ""
