"""Names of tables that are malformed or of nothing, in every statement: nothing is changed."""

from __future__ import annotations

import pytest

from catalog.ledgers.uris import open_ledger
from tableformat.errors import TableFormatError
from tests.support.session_lake import ALLOWED, alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

ONE, OTHER = "lake.n.named", "lake.n.named_other"
ABOUT = (
    "ALTER TABLE {} DROP PARTITION ID '202402'",
    "ALTER TABLE {} DETACH PARTITION ID '202402'",
    "ALTER TABLE {} ATTACH PARTITION ID '202402'",
    "ALTER TABLE {} ATTACH PART '202402_1_1_0'",
    "ALTER TABLE {} DROP DETACHED PARTITION ALL",
    f"ALTER TABLE {{}} ATTACH PARTITION ID '202402' FROM {OTHER}",
    f"ALTER TABLE {{}} REPLACE PARTITION ID '202402' FROM {OTHER}",
    f"ALTER TABLE {{}} MOVE PARTITION ID '202402' TO TABLE {OTHER}",
    f"ALTER TABLE {{}} FETCH PARTITION ID '202402' FROM '{OTHER}'",
    "ALTER TABLE {} FREEZE PARTITION ID '202402' WITH NAME 'x'",
    "ALTER TABLE {} UNFREEZE WITH NAME 'x'",
    "ALTER TABLE {} FORGET PARTITION ID '202402'",
    "ALTER TABLE {} CLEAR COLUMN s IN PARTITION ID '202402'",
    "ALTER TABLE {} CLEAR INDEX i IN PARTITION ID '202402'",
    "ALTER TABLE {} UPDATE s = 'x' IN PARTITION ID '202402' WHERE 1",
    "ALTER TABLE {} DELETE IN PARTITION ID '202402' WHERE 1",
    "UPDATE {} SET s = 'x' IN PARTITION ID '202402' WHERE 1",
    "DELETE FROM {} IN PARTITION ID '202402' WHERE 1",
    "OPTIMIZE TABLE {} FINAL",
)
NAMING = (
    f"ALTER TABLE {ONE} ATTACH PARTITION ID '202402' FROM {{}}",
    f"ALTER TABLE {ONE} REPLACE PARTITION ID '202402' FROM {{}}",
    f"ALTER TABLE {ONE} MOVE PARTITION ID '202402' TO TABLE {{}}",
)
OF_NOTHING = {
    "no such table": "lake.n.nowhere",
    "no such namespace": "lake.nowhere.t",
    "no such catalog": "nocat.n.t",
    "a path": "lake.n.`../named`",
    "a line break": "lake.n.`named\n`",
    "a tag that is not there": f"{ONE}.tag_nothing",
    "too many parts": "lake.n.a.b.c.d",
}
MALFORMED = {
    "an empty part": "lake..named",
    "nothing in quotes": "lake.n.``",
    "an open quote": "lake.n.`named",
    "a space in it": "lake.n.na med",
    "a text": "'lake.n.named'",
    "no ASCII": "lake.n.né",
}


@pytest.fixture
def before(places: Places, session: NoSpark) -> tuple[object, ...]:
    """Return two tables and their ledger as they are; they are made once."""
    if not (places.warehouse / "n" / "named").exists():
        export_all(session, "events", "named")
        export_all(session, "events", "named_other")
    return everything(places)


def everything(places: Places) -> tuple[object, ...]:
    """Return which metadata both tables have, and every row of the ledger."""
    tables = (opened(places, name).metadata_location for name in ("named", "named_other"))
    ledger = open_ledger(None, local_warehouse=places.warehouse)
    try:
        return (*tables, *ledger.rows())
    finally:
        ledger.close()


def refused(session: NoSpark, statement: str) -> TableFormatError:
    """Return why a statement is refused."""
    with pytest.raises(TableFormatError) as raised:
        alter(session, statement)
    return raised.value


@pytest.mark.parametrize("name", OF_NOTHING)
def test_every_statement_refuses_a_missing_name_in_one_line_without_a_change(
    places: Places, session: NoSpark, before: tuple[object, ...], name: str
) -> None:
    """Of the table that a statement is about, and of the one behind FROM or TO TABLE."""
    fetch = f"ALTER TABLE {ONE} FETCH PARTITION ID '202402' FROM '{{}}'"
    written = OF_NOTHING[name]
    # A name in quotes inside a text is FETCH's; a path there is one of ZooKeeper.
    naming = (*NAMING, fetch) if "/" not in written else NAMING

    for statement in (*ABOUT, *naming):
        error = refused(session, statement.format(written))
        assert (error.code, "\n" in str(error)) == (60, False), error
        assert str(error).startswith("Cannot "), error
    assert everything(places) == before


@pytest.mark.parametrize("name", MALFORMED)
def test_every_statement_reports_a_malformed_name_and_changes_nothing(
    places: Places, session: NoSpark, before: tuple[object, ...], name: str
) -> None:
    """The first line says it; below it stands the place in the statement."""
    for statement in (*ABOUT, *NAMING):
        error = refused(session, statement.format(MALFORMED[name]))
        first, *rest = str(error).splitlines()
        assert (error.code, first[:25]) == (62, "Cannot read the statement"), error
        assert len(rest) in (0, 3), error
    assert everything(places) == before


@pytest.mark.parametrize("name", ["lake..named", "lake.n.", "lake.n.`named", "lake. .x"])
def test_a_malformed_name_in_the_text_of_fetch_is_reported_in_one_line(
    places: Places, session: NoSpark, before: tuple[object, ...], name: str
) -> None:
    error = refused(session, f"ALTER TABLE {ONE} FETCH PARTITION ID '202402' FROM '{name}'")

    assert "\n" not in str(error)
    assert str(error).startswith("Cannot read the name "), error
    assert everything(places) == before


@pytest.mark.parametrize("statement", [*ABOUT, *NAMING])
def test_a_part_of_a_name_that_is_blank_is_no_failure_of_the_catalog(
    session: NoSpark, before: tuple[object, ...], statement: str
) -> None:
    """Harm prevented: an error of the library below, with the advice to look at the network."""
    assert before
    error = refused(session, statement.format("lake.` `.named"))

    assert "a part of it is empty" in str(error)


def test_a_missing_clickhouse_table_is_reported_with_its_code(
    places: Places, session: NoSpark, before: tuple[object, ...]
) -> None:
    """By EXPORT, which reads it; the others name the lake's tables, or are ClickHouse's own."""
    for name, code in (("ch.db.nothing", 60), ("ch.nodb.t", 81)):
        for statement in (
            f"ALTER TABLE {name} EXPORT PARTITION ID '1' TO TABLE lake.n.new {ALLOWED}",
            f"ALTER TABLE {name} DROP PARTITION ID '1'",
        ):
            error = refused(session, statement)
            assert (error.code, "\n" in str(error)) == (code, False), error
    assert everything(places) == before
