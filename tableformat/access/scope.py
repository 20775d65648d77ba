"""On what a privilege is: a table by its whole name, everything below a name, or everything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tableformat.names import quote_identifier

__all__ = ["EVERYTHING", "Scope"]

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Scope:
    """A name by its parts, `lake.ns.t`, or what stands `below` it, `lake.ns.*`; `*.*` below ()."""

    parts: tuple[str, ...]
    below: bool = False

    def covers(self, other: Scope) -> bool:
        """Whether a privilege on this is one on the other."""
        if self.below:
            inside = other.parts[: len(self.parts)] == self.parts
            return inside and (other.below or len(other.parts) > len(self.parts))
        return self == other

    def __str__(self) -> str:
        """Return it as GRANT has it."""
        if not self.parts:
            return "*.*"
        shown = ".".join(p if _PLAIN.match(p) else quote_identifier(p) for p in self.parts)
        return f"{shown}.*" if self.below else shown


EVERYTHING: Final = Scope((), below=True)
"""`*.*`."""
