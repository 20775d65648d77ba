"""Replacements, and first exports beside files of others, that docs/reference/errors.md refuses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import pyarrow as pa
import pytest

from catalog.iceberg import open_catalog
from tests.errors_page import Said, said
from tests.wrong_places import Places

__all__ = ["WORDS", "foreign_files", "other_source"]

_ALL = ("export", "db.events", "--to", "lake.n.new", "--all")
_WHOLE = ("--force", "--replace-partition")
_JANUARY = ("--partition-id", "202401")
WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "`--replace-partition` without `--force`": (*_ALL, "--replace-partition"),
        "`--replace-partition` with `--overwrite-file-if-exists`": (
            *_ALL, *_WHOLE, "--overwrite-file-if-exists",
        ),
        "`--replace-partition` where partitions share a lake partition": (
            *_ALL, *_WHOLE, "--partition-spec", "unpartitioned",
        ),
    }
)  # fmt: skip
"""What is wrong, and the command, which changes nothing."""


def foreign_files(places: Places, _: pytest.MonkeyPatch) -> Said:
    """Export into a lake partition that others have written to."""
    to = ("--to", "lake.n.theirs")
    places.run("export", "db.events", "--partition-id", "202402", *to)
    table = open_catalog("lake", warehouse=places.warehouse).catalog.load_table("n.theirs")
    row = {"ts": datetime(2024, 1, 5, tzinfo=UTC), "id": 1, "s": "theirs"}
    table.append(pa.Table.from_pylist([row], table.schema().as_arrow()))
    return said(places, ("export", "db.events", *_JANUARY, *to))


def other_source(places: Places, _: pytest.MonkeyPatch) -> Said:
    """Replace a whole lake partition in which another table has rows."""
    to = ("--to", "lake.n.shared")
    places.run("export", "db.other", *_JANUARY, *to)
    return said(places, ("export", "db.events", *_JANUARY, *_WHOLE, *to))
