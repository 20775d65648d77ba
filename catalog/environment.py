"""What several settings share that are variables of the environment."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["INSECURE", "is_true"]

INSECURE: Final = "MERGEBERG_ALLOW_INSECURE"
"""Allows what is not over TLS."""
_TRUE: Final = ("true", "1", "t", "yes", "y", "on")


def is_true(value: Any) -> bool:
    """Whether the value of a property means yes; that of a YAML file need not be a text."""
    return str(value).lower() in _TRUE
