"""`mergeberg exports list`: which are listed, and since when each is there."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from catalog.ledgers import uris
from spark_ext.cli.option_values import shown_time
from tableformat.ledger import Key, Row
from tests.wrong.places import Places


def export(places: Places, name: str, *more: str) -> None:
    to = ("--to", f"lake.n.{name}", "--partition-id", "202401")
    assert places.run("export", "db.events", *to, *more)[0] == 0


def listed(places: Places, name: str, *more: str) -> list[dict[str, object]]:
    found = places.outcomes("exports", "list", *more)
    return [one for one in found if one["destination_table"] == f"lake.n.{name}"]


def test_an_export_was_created_when_it_was_begun_also_after_an_earlier_one(
    places: Places,
) -> None:
    """srs-016, SystemTables.Exports: "when the export operation was created"."""
    export(places, "created")
    export(places, "created", "--force")

    with contextlib.closing(uris.open_ledger(None, local_warehouse=places.warehouse)) as ledger:
        (noted,) = (r for r in ledger.rows() if r.destination_table == "lake.n.created")
        # Both may have been begun in one second, which is what is shown.
        assert noted.done is not None
        later = noted.created + 3_600_000
        row = ledger.write(replace(noted, done=replace(noted.done, begun=later)))
        assert isinstance(row, Row)
    (found,) = listed(places, "created")
    assert found["create_time"] == shown_time(later)
    assert found["create_time"] != shown_time(row.created)


def test_a_status_that_there_is_not_is_refused_and_any_letters_do(places: Places) -> None:
    """Harm prevented: an empty table after a slip of the hand reads as nothing that failed."""
    export(places, "status")

    code, out, err = places.run("exports", "list", "--status", "COMPLETE")

    assert (code, out, "'completed'" in err) == (2, "", True), err
    (found,) = listed(places, "status", "--status", "completed")
    assert found["status"] == "COMPLETED"


def test_rows_of_others_that_a_statement_changed_are_no_export(places: Places) -> None:
    """Harm prevented: an export of 0 rows from a table `lake.n.t` that ClickHouse does not have."""
    export(places, "of_others")
    with contextlib.closing(uris.open_ledger(None, local_warehouse=places.warehouse)) as ledger:
        (row,) = (r for r in ledger.rows() if r.destination_table == "lake.n.of_others")
        to = row.key.destination
        own = Key.of_lake(to, "202405", to)
        name = row.destination_table
        pieces = row.key.within("202405")
        for key in (own, pieces):
            ledger.write(replace(row, key=key, source_table=name, version=0))

    (found,) = listed(places, "of_others")

    assert (found["source_table"], found["partition_id"]) == ("db.events", "202401")
    code, _, stderr = places.run("exports", "show", "202405")
    assert (code, "has none" in stderr) == (3, True), (code, stderr)
