"""`mergeberg exports rebuild`: the ledger is lost, the lake is not."""

from __future__ import annotations

import json

from tests.wrong.places import Places


def test_a_rebuilt_ledger_exports_nothing_twice(places: Places) -> None:
    words = ("export", "db.events", "--all", "--to", "lake.n.lost")
    new = ("--ledger", f"sqlite:{places.root / 'new-ledger.db'}")
    assert places.run(*words)[0] == 0

    refused = places.run(*words, *new)
    code, out, err = places.run("exports", "rebuild", "--to", "lake.n.lost", *new, "--json")
    again = places.run(*words, *new)

    assert refused[0] == 3
    assert (code, err) == (0, "")
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["COMPLETED"] * 2
    assert again[0] == 0
    assert again[1].count(": already exported") == 2
    old = places.run(*words)
    assert old[0] == 3
    assert "exported to with another ledger" in old[2]


def test_a_missing_table_is_reported(places: Places) -> None:
    code, _, err = places.run("exports", "rebuild", "--to", "lake.n.nowhere")

    assert code == 3
    assert err.startswith(
        "Cannot rebuild the ledger of lake.n.nowhere: there is no such lake table."
    )
