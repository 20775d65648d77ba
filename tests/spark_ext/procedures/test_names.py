"""What the arguments of a call name: a lake table is of the catalog that the call is made in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from spark_ext.procedures.declarations import Call, Value
from spark_ext.procedures.names import CallNames
from tableformat.errors import NotFoundError, UsageError
from tableformat.names import LakeName, TableName
from tests.support.session_without_spark import NoSpark

ICEBERG = "org.apache.iceberg.spark.SparkCatalog"
NONE: Mapping[str, str] = {}
SECOND = {"spark.sql.catalog.second": ICEBERG, "spark.sql.catalog.second.type": "hadoop"}


def names(
    catalog: str,
    arguments: dict[str, Value],
    *,
    current: tuple[str, ...] = ("spark_catalog", "default"),
    settings: Mapping[str, str] = NONE,
) -> CallNames:
    conf = {"spark.mergeberg.source.ch": "chdb:/ch", **SECOND, **settings}
    return CallNames.of(Call(NoSpark(conf, current).session, catalog, arguments, conf))


@pytest.mark.parametrize(
    ("catalog", "text", "found"),
    [
        ("lake", "n.t", LakeName("lake", ("n",), "t")),
        ("second", "n.t", LakeName("second", ("n",), "t")),
        ("lake", "second.n.t", LakeName("second", ("n",), "t")),
        ("lake", "a.b.t", LakeName("lake", ("a", "b"), "t")),
        ("lake", "`a.b`.t", LakeName("lake", ("a.b",), "t")),
    ],
)
def test_a_lake_table_is_of_the_catalog_of_the_call(
    catalog: str, text: str, found: LakeName
) -> None:
    assert names(catalog, {"table": text}).lake("table") == found


@pytest.mark.parametrize(
    ("catalog", "text", "found"),
    [
        ("lake", "t", LakeName("lake", ("n",), "t")),
        ("mergeberg", "t", LakeName("lake", ("n",), "t")),
        ("mergeberg", "x.t", LakeName("lake", ("x",), "t")),
    ],
)
def test_the_current_namespace_counts_in_its_own_catalog(
    catalog: str, text: str, found: LakeName
) -> None:
    """`mergeberg` holds no tables: a call that is made there means what is current."""
    assert names(catalog, {"table": text}, current=("lake", "n")).lake("table") == found


def test_the_namespace_of_another_catalog_does_not_count() -> None:
    """Harm prevented: `t` is a table of a namespace that nobody had in mind."""
    with pytest.raises(UsageError, match="it has no namespace"):
        names("second", {"table": "t"}, current=("lake", "n")).lake("table")


def test_tables_of_the_two_sides_are_distinguished() -> None:
    named = names("lake", {"a": "ch.db.t", "b": "n.t", "c": None})

    assert named.source("a").table == TableName("db", "t")
    assert named.table("b") == LakeName("lake", ("n",), "t")
    assert named.lake("b") == LakeName("lake", ("n",), "t")


def test_hosts_are_those_of_a_source_or_of_a_table_of_it() -> None:
    named = names("lake", {"a": "ch", "b": "ch.db.t", "c": None, "d": "nope"})

    assert [p.uri for p in named.hosts("a", cluster=None)] == ["chdb:/ch"]
    assert named.hosts("c", cluster=None) == ()
    with pytest.raises(UsageError, match=r"the hosts of db\.t in chdb:/ch: it is no server"):
        named.hosts("b", cluster=None)
    with pytest.raises(NotFoundError, match="Cannot find the source 'nope'"):
        named.hosts("d", cluster=None)


def test_the_ledger_is_that_of_the_session_whatever_the_catalog(tmp_path: Path) -> None:
    """Also for a call in `mergeberg`, which is no catalog with a warehouse."""
    uri = f"sqlite:{tmp_path}/ledger.db"
    ledger = names("mergeberg", {}, settings={"spark.mergeberg.ledger": uri}).open_ledger()

    assert ledger.uri == uri
    ledger.close()


@pytest.mark.parametrize("catalog", ["lake", "mergeberg", "spark_catalog", "second"])
def test_the_default_ledger_is_next_to_the_built_in_catalogs_warehouse(
    catalog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a call refuses to list what the system tables of the session show."""
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    ledger = names(catalog, {}, settings={"spark.mergeberg.warehouse": str(tmp_path)}).open_ledger()

    assert str(tmp_path) in ledger.uri
    ledger.close()


def test_the_ledger_of_exports_into_another_catalog_has_to_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: two sessions with two warehouses do not know of one another's exports."""
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    rest = {"spark.sql.catalog.r": ICEBERG, "spark.sql.catalog.r.type": "rest"}
    conf = {**rest, "spark.sql.catalog.r.uri": "https://127.0.0.1:1"}

    with pytest.raises(
        UsageError, match="Cannot choose a ledger: the warehouse of the catalog 'r'"
    ):
        names("lake", {}, settings=conf).open_ledger(LakeName("r", ("n",), "t"))
