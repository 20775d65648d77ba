"""Which hosts are this machine: what is said to them does not leave it."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

__all__ = ["is_in_clear", "is_this_machine"]


def is_this_machine(host: str) -> bool:
    """Whether a host is this machine by its name alone, so that nothing leaves it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_in_clear(url: str) -> bool:
    """Whether what is said to the server of an address leaves this machine without TLS."""
    found = urlsplit(url)
    return found.scheme == "http" and not is_this_machine(found.hostname or "")
