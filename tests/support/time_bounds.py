"""Bounds on time that hold on a machine that does something else too."""

from __future__ import annotations

from typing import Final

__all__ = ["ENDS_WITHIN"]

ENDS_WITHIN: Final = 60.0
"""Seconds within which what is bounded to a few must end.

Without the bound that a test is about, it ends after minutes or never. A tighter one would fail on
a machine under load.
"""
