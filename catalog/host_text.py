"""`HOST` and `HOST:PORT`, as the addresses of servers have them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_port", "named_host"]

_HIGHEST_PORT: Final = 65_535
_HOST: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")


def named_host(text: str, default_port: int) -> tuple[str, int] | None:
    """Return name and port, None for any other text; an IPv6 address keeps its brackets."""
    found = _HOST.fullmatch(text)
    port = int(found["port"] or default_port) if found else 0
    return (found["name"].lower(), port) if found and is_port(port) else None


def is_port(number: int) -> bool:
    """Whether a server can listen there."""
    return 0 < number <= _HIGHEST_PORT
