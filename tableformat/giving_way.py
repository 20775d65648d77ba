"""What the claim of a statement says that REPLACE, DROP and DETACH may stop."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GivesWay"]


@dataclass(frozen=True, slots=True)
class GivesWay:
    """The statement that runs, as text, and who runs it; '' in `stopped_by`: nobody stops it."""

    statement: str
    owner: str
    stopped_by: str = ""
