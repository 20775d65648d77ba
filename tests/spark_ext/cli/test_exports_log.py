"""`mergeberg exports log`: how many lines it shows, and which."""

from __future__ import annotations

import contextlib
from typing import Any

from catalog.ledgers import uris
from tableformat.errors import SourceError
from tests.wrong.places import Places


def log_of(places: Places, table: str, *more: str) -> list[dict[str, Any]]:
    return [*places.outcomes("exports", "log", "--table", table, *more)]


def test_the_log_shows_the_latest_lines_and_says_how_many_it_leaves_out(places: Places) -> None:
    """Harm prevented: 10,000 lines on a terminal."""
    for _ in range(3):
        places.run("export", "db.events", "--partition-id", "202402", "--to", "lake.n.lines")
    with contextlib.closing(uris.open_ledger(None, local_warehouse=places.warehouse)) as ledger:
        (newest, *_) = (e for e in ledger.events(None, 100) if e.table == "db.events")
        ledger.note((newest,) * 60)

    code, out, err = places.run("exports", "log", "--table", "db.events")

    assert (code, len(out.splitlines())) == (0, 51)
    assert err == "· 14 earlier lines not shown: --limit 0 shows all\n"
    assert len(log_of(places, "db.events")) == 50
    assert len(log_of(places, "db.events", "--limit", "0")) == 64
    assert [e["status"] for e in log_of(places, "db.events", "--limit", "2")] == [
        "already_exported",
        "already_exported",
    ]


def test_the_log_can_be_asked_for_what_failed(places: Places) -> None:
    def fail(*_: object) -> None:
        message = "Cannot read the source: it is away. Look after it."
        raise SourceError(message)

    words = ("export", "db.other", "--to", "lake.n.logged", "--partition-id")
    places.run(*words, "202402")
    places.before = fail
    places.run(*words, "202401")

    found = log_of(places, "db.other", "--failed")

    assert {e["status"] for e in found} == {"failed"}
    assert {e["partition"] for e in found} == {"202401"}
