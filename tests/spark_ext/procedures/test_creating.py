"""A lake table is made as an export would make it, and nothing is put into it."""

from __future__ import annotations

import pytest

from tableformat.errors import RefusedError, UnsupportedError, UsageError
from tests.support.session_without_spark import NoSpark, Row
from tests.wrong.places import Places


def created(session: NoSpark, name: str, **given: str | bool | dict[str, str]) -> Row:
    (row,) = session.call("create_table_like", source="ch.db.events", table=f"n.{name}", **given)
    return row


def test_a_table_is_made_and_an_export_fills_it(places: Places, session: NoSpark) -> None:
    row = created(session, "made")

    assert (row["destination_table"], row["status"], row["columns"]) == (
        "lake.n.made",
        "created",
        3,
    )
    assert (row["partition_spec"], row["sort_order"]) == ("month(ts)", "id ASC NULLS LAST")
    assert session.call("partitions", table="n.made") == []
    code, out, err = places.run("export", "db.events", "--all", "--to", "lake.n.made")
    assert (code, out.count(": exported")) == (0, 2), err
    assert len(session.call("partitions", table="n.made")) == 2


def test_a_table_that_is_there_and_fits_stays_as_it_is(places: Places, session: NoSpark) -> None:
    """So a script may be run again."""
    created(session, "twice")
    before = places.files()

    assert created(session, "twice")["status"] == "exists"
    assert created(session, "twice", dry_run=True)["status"] == "exists"
    assert {n: s for n, s in places.files().items() if "/twice/" in n} == {
        n: s for n, s in before.items() if "/twice/" in n
    }


def test_a_table_that_does_not_fit_is_refused(session: NoSpark) -> None:
    """Harm prevented: a script goes on to fill a table of another shape."""
    created(session, "by_day", partition_spec="day(ts)")

    for dry_run in (True, False):
        with pytest.raises(RefusedError, match=r"lake\.n\.by_day"):
            created(session, "by_day", dry_run=dry_run)


def test_a_dry_run_makes_nothing(session: NoSpark) -> None:
    assert created(session, "dry", dry_run=True)["status"] == "create"
    assert created(session, "dry")["status"] == "created"


def test_a_conversion_and_a_spec_are_taken(session: NoSpark) -> None:
    row = created(session, "chosen", convert={"s": "binary"}, partition_spec="bucket(4, id)")

    assert row["partition_spec"] == "bucket(4, id)"
    assert created(session, "chosen", partition_spec="bucket(4, id)")["status"] == "exists"


def test_what_cannot_be_mapped_is_refused_before_anything_is_made(
    places: Places, session: NoSpark
) -> None:
    with pytest.raises((RefusedError, UnsupportedError), match="AggregateFunction"):
        session.call("create_table_like", source="ch.db.odd", table="n.odd")

    assert [name for name in places.files() if "/odd/" in name] == []


def test_a_destination_in_a_clickhouse_is_refused(session: NoSpark) -> None:
    with pytest.raises(UsageError, match="'ch' is a source, and a table of the lake is meant"):
        session.call("create_table_like", source="ch.db.events", table="ch.n.t")
