"""docs/how-to/query.md: the view over ClickHouse and the lake shows each row once at every step."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Final

from tests.repository.source_files import ROOT
from tests.wrong.places import Places

PAGE: Final = (ROOT / "docs/how-to/query.md").read_text(encoding="utf-8")
VIEW: Final[str] = re.findall(r"```sql\n(CREATE OR REPLACE VIEW .*?)\n```", PAGE, re.DOTALL)[0]
ROWS: Final = 300
MONTHS: Final = ("202401", "202402")


def in_clickhouse(places: Places, *statements: str) -> str:
    """Run statements in one process, which may read files below its working directory; print."""
    program = (
        "import sys\nfrom chdb.session import Session\nsession = Session(sys.argv[1])\n"
        "for sql in sys.argv[2:]:\n    found = session.query(sql, 'TSV')\nprint(found)"
    )
    command = [sys.executable, "-c", program, str(places.clickhouse), *statements]
    ended = subprocess.run(
        command, cwd="/", capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    return str(ended.stdout).strip()


def view(places: Places, boundary: str) -> str:
    """Return the statement of the page, with a boundary and the place of the lake table."""
    location = places.warehouse / "n" / "events"
    assert VIEW.count("2024-02-01") == 2
    return VIEW.replace("2024-02-01", boundary).replace(
        "/data/warehouse/analytics/events", str(location)
    )


def test_the_view_shows_each_row_once_while_the_boundary_moves(places: Places) -> None:
    """Harm prevented: a view that counts a partition twice, or misses it, while it is moved."""
    places.reads_parts = True
    places.clickhouse_run(
        "DROP TABLE IF EXISTS db.events SYNC",
        "CREATE TABLE db.events (id UInt64, ts DateTime('UTC'), price Float64) ENGINE = MergeTree "
        "PARTITION BY toYYYYMM(ts) ORDER BY id",
        "INSERT INTO db.events SELECT number, toDateTime('2024-01-15 00:00:00', 'UTC') + "
        f"toIntervalMonth(number % 2), number FROM numbers({ROWS})",
    )
    seen = "SELECT count(), uniqExact(id), sum(price) FROM db.events_all"
    wanted = f"{ROWS}\t{ROWS}\t{sum(range(ROWS))}"
    lake = ("--to", "lake.n.events")

    for month, boundary in zip(MONTHS, ("2024-02-01", "2024-03-01"), strict=True):
        partition = ("--partition-id", month)
        exported = places.run("export", "db.events", *partition, *lake, "--verify")
        # Before the first partition is exported there is no lake table, and so no view.
        before = wanted if month == MONTHS[0] else in_clickhouse(places, seen)
        moved = in_clickhouse(places, view(places, boundary), seen)
        archived = places.run("archive", "db.events", *partition, *lake)

        assert (exported[0], archived[0]) == (0, 0), (exported, archived)
        assert (before, moved, in_clickhouse(places, seen)) == (wanted, wanted, wanted)

    assert in_clickhouse(places, "SELECT count() FROM db.events") == "0"
