"""After a commit the session shows the table as it is, where it has such a table."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from spark_ext.sql.catalogs import refresh
from tableformat.errors import DestinationError
from tableformat.names import LakeName
from tests.support.session_without_spark import NoSpark

LAKE = {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog"}
TABLE = LakeName("lake", ("n",), "t")


def test_a_table_that_spark_has_cached_is_refreshed() -> None:
    spark = NoSpark(LAKE, tables=frozenset({"lake.n.t"}))

    refresh(spark.session, TABLE)

    assert spark.refreshed == ["lake.n.t"]


@pytest.mark.parametrize("settings", [LAKE, {}], ids=["no such table", "no such catalog"])
def test_what_spark_does_not_have_is_left_alone(settings: dict[str, str]) -> None:
    """A catalog may be configured for PyIceberg alone."""
    spark = NoSpark(settings)

    refresh(spark.session, TABLE)

    assert spark.refreshed == []


def test_a_table_that_spark_cannot_read_is_an_error_that_says_what_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Harm prevented: an export that landed reads as one that failed."""

    def fail(_self: NoSpark, _name: str) -> bool:
        message = "the catalog did not answer\nat line 2"
        raise AnalysisException(message)

    monkeypatch.setattr(NoSpark, "tableExists", fail)

    with pytest.raises(
        DestinationError, match=r"did not answer\. The statement's changes are kept\."
    ):
        refresh(NoSpark(LAKE).session, TABLE)
