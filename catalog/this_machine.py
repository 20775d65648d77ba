"""Which hosts are this machine: what is said to them does not leave it."""

from __future__ import annotations

import ipaddress

__all__ = ["is_this_machine"]


def is_this_machine(host: str) -> bool:
    """Whether a host is this machine by its name alone, so that nothing leaves it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
