"""What the demonstration refuses, with the one command that helps."""

from __future__ import annotations

from typing import Final

from tableformat.errors import RefusedError

__all__ = ["INSTALL", "DemoError"]

INSTALL: Final = "pip install 'mergeberg[demo]'"
"""What brings everything that the demo needs beside mergeberg itself."""


class DemoError(RefusedError):
    """The demo cannot go on as things are. Nothing was changed; `next_command` is the way out."""

    def __init__(self, message: str, *, next_command: str) -> None:
        """Keep the message and the command to run next."""
        super().__init__(message)
        self.next_command = next_command
