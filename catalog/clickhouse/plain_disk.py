"""A directory of part folders as a disk that is only read (source.md section 3)."""

from __future__ import annotations

from pathlib import Path

from tableformat.names import quote_string

__all__ = ["plain_disk_sql"]


def plain_disk_sql(directory: Path) -> str:
    """Return the disk, as it stands in the settings of a table that has table_disk."""
    return (
        "disk(readonly = 1, type = 'object_storage', object_storage_type = 'local', "
        f"metadata_type = 'plain', path = {quote_string(f'{directory}/')})"
    )
