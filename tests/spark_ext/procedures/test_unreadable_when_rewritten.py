"""A data file that cannot be read for a rewrite: one line, and nothing changes."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from tableformat.errors import TableFormatError
from tests.support.session_lake import alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

PARTITION = "PARTITION ID '202402'"
REWRITES = {
    "UPDATE": f"ALTER TABLE {{}} UPDATE s = 'x' IN {PARTITION} WHERE id = 1",
    "DELETE": f"ALTER TABLE {{}} DELETE IN {PARTITION} WHERE id = 1",
    "CLEAR COLUMN": f"ALTER TABLE {{}} CLEAR COLUMN s IN {PARTITION}",
    "CLEAR INDEX": f"ALTER TABLE {{}} CLEAR INDEX `bloom_filter(s)` IN {PARTITION}",
    "OPTIMIZE": f"OPTIMIZE TABLE {{}} {PARTITION} DEDUPLICATE",
    "MOVE TO DISK": f"ALTER TABLE {{}} MOVE {PARTITION} TO DISK 'cold'",
}
IN_MAKE_TEST = {("UPDATE", "unreadable"), ("OPTIMIZE", "gone"), ("MOVE TO DISK", "unreadable")}


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        pytest.param(one, what, marks=() if (one, what) in IN_MAKE_TEST else pytest.mark.soak)
        for one in REWRITES
        for what in ("unreadable", "gone")
    ],
)
def test_it_is_named_in_one_line_and_nothing_changes(
    places: Places, session: NoSpark, statement: str, what: str
) -> None:
    """Harm prevented: a bare error of the operating system, or a table that is half changed."""
    places.reads_parts = True
    if not (places.warehouse / "n" / "whole").exists():
        export_all(session, "events", "whole")
    with opened(places, "whole").transaction() as changed:
        changed.set_properties({"mergeberg.disk.cold": str(places.root / "cold")})
    table = opened(places, "whole")
    (path,) = (
        Path(unquote(urlparse(task.file.file_path).path))
        for task in table.scan("ts >= '2024-02-01T00:00:00+00:00'").plan_files()
    )
    kept = path.with_suffix(".kept")
    path.rename(kept)
    if what == "unreadable":
        # No user can open it, root neither.
        path.symlink_to(path)
    before = files(places)
    try:
        with pytest.raises(TableFormatError) as refused:
            alter(session, REWRITES[statement].format("lake.n.whole"))
        assert files(places) == before
    finally:
        path.unlink(missing_ok=True)
        kept.rename(path)

    assert opened(places, "whole").metadata_location == table.metadata_location
    assert (path.name in str(refused.value), "\n" in str(refused.value)) == (True, False), (
        refused.value
    )


def files(places: Places) -> list[str]:
    """Return every data file of the table, wherever it is."""
    return sorted(map(str, places.root.rglob("*.parquet")))
