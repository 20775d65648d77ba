"""What the ledger's row keeps of a partition that left its source after an export."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Archived", "DetachedPart"]


@dataclass(frozen=True, slots=True)
class DetachedPart:
    """A part in the source's `detached` directory, as the source lists it: which one it is.

    `modified` is seconds since 1970, `bytes` its size; each 0 where the source does not say.
    """

    name: str
    bytes: int = 0
    modified: int = 0


@dataclass(frozen=True, slots=True)
class Archived:
    """That the rows of a completed export left their source: the lake may have the only copy.

    `since` is milliseconds since 1970. `detached` are the parts that still lie in the source's
    `detached` directory, none where they were dropped; None from before the source is touched until
    it has said which they are.
    """

    since: int
    detached: tuple[DetachedPart, ...] | None = None
