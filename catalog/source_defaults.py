"""The defaults of the options of a source, which every interface has.

The module imports nothing: the help of a command shows them, and needs no ClickHouse.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DEFAULT_DATABASE", "DEFAULT_SOURCE", "DEFAULT_WAIT", "STAGING_DATABASE", "SYNC_TIMEOUT"]

DEFAULT_SOURCE: Final = "ch"
"""The name of a source without a name of its own."""
DEFAULT_DATABASE: Final = "default"
"""The database of a table that is named without one, unless the user sets another."""
DEFAULT_WAIT: Final = 60.0
"""Seconds to wait for a directory that another process has open."""
SYNC_TIMEOUT: Final = 60.0
"""Seconds that a partition waits for parts that its replica does not have yet."""
STAGING_DATABASE: Final = "mergeberg_staging"
"""Where staging tables are made unless the user names another database."""
