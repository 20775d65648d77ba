"""What a name means in a session: a table of a ClickHouse or of the lake, never a guess."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ext.sql.names import Names, Parts
from spark_ext.sql.session_settings import SessionSettings, SourceTable
from tableformat.clickhouse_codes import UNKNOWN_TABLE
from tableformat.errors import NotFoundError, UsageError
from tableformat.names import LakeName, TableName

PART = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=8)
ANY_NAME = st.lists(
    st.one_of(st.sampled_from(["ch", "other", "lake", "unity", "spark_catalog", "db", "t"]), PART),
    min_size=1,
    max_size=5,
).map(tuple)


def names(
    *sources: str,
    current: Parts = ("lake", "ns"),
    spark_has: tuple[Parts, ...] = (),
    default: str | None = None,
) -> Names:
    conf = {f"spark.mergeberg.source.{name}": f"chdb:/{name}" for name in sources}
    if default is not None:
        conf["spark.mergeberg.source.default"] = default
    return Names(
        SessionSettings.of(conf),
        frozenset({"lake", "second"}),
        frozenset({"spark_catalog", "unity"}),
        current,
        lambda parts: parts in spark_has,
    )


def where(found: SourceTable) -> tuple[str, TableName]:
    return found.place.uri, found.table


@given(database=PART, table=PART)
def test_three_parts_with_a_source_are_a_table_of_that_clickhouse(
    database: str, table: str
) -> None:
    """Whatever Spark has, and however the parts are called."""
    looked_up = names("ch", "other", spark_has=(("ch", database, table),))
    meant = ("chdb:/ch", TableName(database, table))

    assert where(looked_up.source(("ch", database, table))) == meant
    found = looked_up.table(("ch", database, table))
    assert isinstance(found, SourceTable)
    assert where(found) == meant


def test_a_bare_name_is_of_the_only_source() -> None:
    assert where(names("ch").source(("db", "t"))) == ("chdb:/ch", TableName("db", "t"))


def test_a_bare_name_is_of_the_default_source() -> None:
    looked_up = names("ch", "other", default="other")

    assert where(looked_up.source(("db", "t"))) == ("chdb:/other", TableName("db", "t"))


def test_a_name_alone_is_of_the_database_that_the_source_says() -> None:
    looked_up = names("ch", "other", default="other")
    conf = {"spark.mergeberg.source.ch": "chdb:/ch", "spark.mergeberg.source.ch.database": "shop"}
    configured = replace(looked_up, settings=SessionSettings.of(conf))

    assert where(looked_up.source(("t",))) == ("chdb:/other", TableName("default", "t"))
    assert where(configured.source(("t",))) == ("chdb:/ch", TableName("shop", "t"))
    with pytest.raises(UsageError, match=r"Cannot tell what t is: Spark has a table"):
        names("ch", spark_has=(("t",),)).source(("t",))


def test_a_bare_name_that_spark_has_is_nobodys_guess() -> None:
    """Harm prevented: rows of another table than the one that SELECT shows."""
    with pytest.raises(UsageError, match=r"Cannot tell what db\.t is: Spark has a table") as caught:
        names("ch", spark_has=(("db", "t"),)).source(("db", "t"))

    assert "the sources ch" in str(caught.value)
    assert "lake, second" in str(caught.value)


@pytest.mark.parametrize("sources", [(), ("ch", "other")])
def test_a_bare_name_of_no_certain_source_is_refused(sources: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"it names no source.*spark\.mergeberg\.source\.default"):
        names(*sources).source(("db", "t"))


def test_a_bare_name_is_a_clickhouse_table_only_as_a_source() -> None:
    assert names("ch").table(("db", "t")) == LakeName("lake", ("db",), "t")
    assert names("ch").lake(("db", "t")) == LakeName("lake", ("db",), "t")


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        (("lake", "n", "t"), LakeName("lake", ("n",), "t")),
        (("second", "n", "m", "t"), LakeName("second", ("n", "m"), "t")),
        (("n", "t"), LakeName("lake", ("n",), "t")),
        (("n", "m", "t"), LakeName("lake", ("n", "m"), "t")),
        (("t",), LakeName("lake", ("ns",), "t")),
    ],
)
def test_a_name_of_the_lake_is_completed_as_spark_does(parts: Parts, found: LakeName) -> None:
    assert names("ch").lake(parts) == found
    assert names("ch").table(parts) == found


@pytest.mark.parametrize(
    ("parts", "current", "message"),
    [
        (("n", "t"), ("spark_catalog", "default"), "'spark_catalog' is no Iceberg catalog"),
        (("t",), ("spark_catalog", "default"), "'spark_catalog' is no Iceberg catalog"),
        (("unity", "n", "t"), ("lake",), "'unity' is no Iceberg catalog"),
        (("lake", "t"), ("second", "n"), "it has no namespace"),
        (("t",), ("lake",), "it has no namespace"),
        (("ch", "db", "t"), ("lake", "n"), "'ch' is a source, and a table of the lake is meant"),
    ],
)
def test_what_is_no_table_of_the_lake_is_refused_with_what_there_is(
    parts: Parts, current: Parts, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        names("ch", current=current).lake(parts)

    assert "the sources ch, and the catalogs lake, second" in str(caught.value)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("ch",), "it is the name of a source"),
        (("ch", "db", "t", "u"), r"it has 4 parts"),
        (("lake", "n", "t"), "'lake' is a catalog of Spark's, and an export is from"),
        (("unity", "n", "t"), "'unity' is a catalog of Spark's"),
    ],
)
def test_what_is_no_source_is_refused(parts: Parts, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        names("ch").source(parts)


def test_a_source_that_nobody_named_is_not_found() -> None:
    with pytest.raises(NotFoundError, match=r"the source 'chh'.*Did you mean ch\?"):
        names("ch").source(("chh", "db", "t"))


def test_a_lake_table_that_is_not_there_may_be_one_of_a_source_that_is_not() -> None:
    """Harm prevented: `ch.db.t` is reported as missing in a lake that the user did not mean."""
    with pytest.raises(NotFoundError) as caught:
        names("ch").refuse_unknown(("chh", "db", "t"), "list the partitions of lake.chh.db.t")

    assert caught.value.code == UNKNOWN_TABLE
    assert caught.value.message == (
        "Cannot list the partitions of lake.chh.db.t: there is no such lake table, and neither a "
        "source nor a catalog is called 'chh'; the session has the sources ch, and the "
        "catalogs lake, second. Did you mean ch? Set spark.mergeberg.source.chh to the address "
        "of a ClickHouse, or spark.sql.catalog.chh to an Iceberg catalog."
    )


def test_where_no_catalog_is_current_a_name_that_says_none_is_found_nowhere() -> None:
    """A session begins in Spark's own catalog, which is not what its user misspelt."""
    with pytest.raises(NotFoundError, match=r"find the table chh\.db\.t: .*Did you mean ch\?"):
        names("ch", current=("spark_catalog", "default")).table(("chh", "db", "t"))


@pytest.mark.parametrize("name", ["lake", "unity"])
def test_a_name_that_is_a_source_and_a_catalog_is_neither(name: str) -> None:
    looked_up = names(name)
    for read in (looked_up.source, looked_up.lake, looked_up.table):
        with pytest.raises(UsageError, match="is a source and a catalog of Spark's"):
            read((name, "db", "t"))


@given(ANY_NAME)
def test_every_name_is_found_or_refused(parts: Parts) -> None:
    looked_up = names("ch", "other")
    for read in (looked_up.source, looked_up.lake, looked_up.table):
        try:
            found = read(parts)
        except UsageError as error:
            assert str(error).startswith("Cannot ")  # noqa: PT017  either is right
        else:
            assert isinstance(found, SourceTable | LakeName)


@pytest.mark.parametrize("parts", [("logs", "requests"), ("requests",), ("ch", "requests")])
def test_without_a_current_catalog_a_lake_table_has_three_parts(parts: Parts) -> None:
    """Harm prevented: `drop logs.requests`, meant for ClickHouse's, drops the lake's."""
    looked_up = names("ch", current=())

    for find in (looked_up.lake, looked_up.table, looked_up.destination):
        with pytest.raises(UsageError, match=r"has its catalog in front.*or give --catalog"):
            find(parts)
    assert looked_up.other_catalog(parts) is None
    assert looked_up.lake(("lake", "logs", "requests")) == LakeName("lake", ("logs",), "requests")
    with pytest.raises(NotFoundError):
        looked_up.lake(("none", "logs", "requests"))
