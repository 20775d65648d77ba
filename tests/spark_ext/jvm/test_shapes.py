"""Which texts that Spark refused are taken for ClickHouse's, and in what time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_ext.sql.grammar import is_partition_statement, render_statement
from spark_ext.sql.statements import Statement
from tests.strategies.statements import statements
from tests.support.spark_jar import jvm_with_jar
from tests.support.statement_examples import KNOWN as KNOWN_TO_CLICKHOUSE
from tests.support.statement_examples import OURS as ONLY_HERE
from tests.support.time_bounds import ENDS_WITHIN

pytestmark = pytest.mark.spark

OURS = [
    "ALTER TABLE db.t EXPORT PARTITION ID '202401' TO TABLE lake.db.t SETTINGS a = 1",
    "alter table `db`.`t` export part 'all_1_1_0' to table lake.db.t;",
    'ALTER TABLE "d.b"."t" ON CLUSTER c ATTACH PARTITION ALL',
    "ALTER TABLE ch.db.t ON CLUSTER 'c 1' DETACH PART 'all_1_1_0'",
    "-- why\n/* ALTER */ ALTER /* x */ TABLE t -- y\n DROP DETACHED PARTITION tuple()",
    "ALTER TABLE t REPLACE PARTITION ('x', 3) FROM s",
    "ALTER TABLE t MOVE PARTITION (1, 2) TO TABLE u",
    "ALTER TABLE t DROP PARTITION (NULL)",
    "ALTER TABLE t DROP PARTITION (2024)",
    "ALTER TABLE t DROP PARTITION (toDate('2024-01-01'))",
    "ALTER TABLE t DROP PARTITION 202401",
    "ALTER TABLE t (DROP PARTITION 1), (DROP PARTITION 2)",
    "ALTER TEMPORARY TABLE t FETCH PARTITION 1 FROM '/x'",
    "ALTER TABLE t FORGET PARTITION 1",
    "ALTER TABLE t FREEZE",
    "ALTER TABLE t FREEZE;",
    "ALTER TABLE t UNFREEZE WITH NAME 'b'",
    "ALTER TABLE t FREEZE PARTITION 1 WITH NAME 'b'",
    "ALTER TABLE t FREEZE, FREEZE PARTITION 2",
    "ALTER TABLE t UPDATE a = 1 IN PARTITION 1 WHERE 1",
    "ALTER TABLE t DELETE WHERE a = 'PARTITION'",
    "ALTER TABLE t DELETE IN PARTITION 1 WHERE 1",
    "ALTER TABLE t CLEAR COLUMN c IN PARTITION 1",
    "ALTER TABLE t CLEAR INDEX i IN PARTITION 1",
    "OPTIMIZE TABLE db.t PARTITION 1 FINAL",
    "KILL QUERY WHERE query_id = 'x'",
    "KILL QUERY ON CLUSTER c WHERE query_id = 'x' SYNC",
    "ALTER TABLE t EXPORT PARTITON 1",
    "ALTER TABLE {t:Identifier}.u DETACH PARTITION 1",
    "DELETE FROM t IN PARTITION 1 WHERE a = 2",
    "UPDATE t SET a = (SELECT 1), b = [2] IN PARTITION 1 WHERE a = 2",
]
"""One text of every shape, and mistakes that Python explains better."""

THEIRS = [
    "",
    ";",
    "SELEC 1",
    "SELECT 'ALTER TABLE t DROP PARTITION 1'",
    "ALTER TABLE",
    "ALTER TABLE t",
    "ALTER TABLE t.",
    "ALTER TABLE 't' DROP PARTITION 1",
    "ALTER TABLE t DROP NONSENSE",
    "ALTER TABLE t REPLACE",
    "ALTER TABLE {t DROP PART",
    "ALTER TABLE t DROP PARTITION FIELD bucket(4, id)",
    "ALTER TABLE t REPLACE PARTITION FIELD a WITH b",
    "ALTER TABLE t ADD PARTITION FIELD days(ts)",
    "ALTER TABLE t DROP PARTITION (p = )",
    "ALTER TABLE t DROP PARTITION (p)",
    "ALTER TABLE t DROP PARTITION (`p` = 'x'",
    "ALTER TABLE t ADD PARTITION 1",
    "ALTER TABLE t CREATE BRANCH",
    "ALTER TABLE t WRITE ORDERED",
    "ALTER TABLE t ON CLUSTER DROP",
    "ALTER TABLE t FREEZER",
    "UPDATE t SET a = (SELECT b IN PARTITION) WHERE",
    "UPDATE t SET a =",
    "DELETE FROM t WHERE",
    "ALTER VIEW t DROP PARTITION 1",
    "OPTIMIZE t",
    "KILL MUTATION WHERE 1",
    "EXPLAIN ALTER TABLE t DROP PARTITION 1",
    "/* ALTER TABLE t DROP PARTITION 1",
    "-- ALTER TABLE t DROP PARTITION 1",
    "ALTER TABLE `t DROP PARTITION 1",
]
"""Texts whose refusal by Spark or Iceberg must stay what the user sees."""


STRICTER = [
    "ALTER TABLE t DROP PARTITION (p)",  # Spark's: the value is missing.
]
"""Texts that Java leaves to Spark, and Python would read if it were asked."""


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with jvm_with_jar() as started:
        yield started


@pytest.mark.parametrize("text", OURS)
def test_a_statement_of_clickhouse_is_known_by_its_first_words(jvm: Any, text: str) -> None:
    assert jvm.mergeberg.spark.Shapes.isClickHouse(text)


@pytest.mark.parametrize("text", THEIRS)
def test_every_other_refused_text_keeps_the_error_that_spark_gave(jvm: Any, text: str) -> None:
    """A response by us about a statement that was meant for Iceberg would mislead."""
    assert not jvm.mergeberg.spark.Shapes.isClickHouse(text)


@settings(max_examples=200)
@given(statement=statements)
@example(statement=None)
def test_whatever_python_can_read_is_handed_to_it(jvm: Any, statement: Statement | None) -> None:
    """Else a user's right statement would be Spark's syntax error."""
    texts = [render_statement(statement)] if statement else [*KNOWN_TO_CLICKHOUSE, *ONLY_HERE]

    assert [text for text in texts if not jvm.mergeberg.spark.Shapes.isClickHouse(text)] == []


@pytest.mark.parametrize("text", [*OURS, *THEIRS])
def test_java_and_python_agree_on_what_is_clickhouses(jvm: Any, text: str) -> None:
    """Java alone would leave a text without a response, Python alone would never see it."""
    ours = jvm.mergeberg.spark.Shapes.isClickHouse(text)

    assert is_partition_statement(text) == ours or text in STRICTER


pieces = st.sampled_from(
    (
        *(
            "ALTER",
            "TABLE",
            "t",
            "`a``b`",
            '"x\\"y"',
            ".",
            "DROP",
            "PARTITION",
            "PART",
            "FREEZE",
            "ON",
        ),
        *(
            "CLUSTER",
            "(",
            ")",
            "/*",
            "*/",
            "--",
            "\n",
            "'",
            "`",
            "FIELD",
            "\\",
            "\0",
            "\u00a0",
            "ß",
        ),
    )
) | st.text(max_size=3)


@settings(max_examples=200)
@given(text=st.lists(pieces, max_size=30).map(" ".join))
def test_any_text_gets_a_result(jvm: Any, text: str) -> None:
    """A crash here would hide Spark's own error."""
    assert jvm.mergeberg.spark.Shapes.isClickHouse(text) in (True, False)


@settings(max_examples=50)
@given(
    text=st.sampled_from(OURS),
    blank=st.lists(st.sampled_from([" ", "\n", "/* x */", "-- y\n", "\t"]), min_size=1).map(
        "".join
    ),
)
def test_blanks_and_comments_and_case_between_words_change_nothing(
    jvm: Any, text: str, blank: str
) -> None:
    spaced = text.replace("ALTER TABLE ", f"{blank}aLTER{blank}table{blank}")

    assert jvm.mergeberg.spark.Shapes.isClickHouse(spaced)


@settings(max_examples=20)
@given(
    repeated=st.sampled_from(
        [
            "/*",
            "/**/",
            "--\n",
            "-- ",
            "`",
            "``",
            "a.",
            "`a`.",
            "(",
            "ALTER TABLE t ",
            "ON CLUSTER ",
            "\\",
        ]
    ),
    start=st.sampled_from(["", "ALTER ", "ALTER TABLE ", "ALTER TABLE t ", "ALTER TABLE t DROP "]),
)
@example(repeated="/**/ ", start="ALTER TABLE t DROP ")
@example(repeated="a. ", start="ALTER TABLE ")
def test_a_hostile_text_costs_no_more_than_reading_it(jvm: Any, repeated: str, start: str) -> None:
    """An expression that goes back and forth would need years for the same texts."""
    text = start + repeated * (300_000 // len(repeated))
    began = time.monotonic()

    jvm.mergeberg.spark.Shapes.isClickHouse(text)

    assert time.monotonic() - began < ENDS_WITHIN


@pytest.mark.parametrize(
    ("spark", "iceberg"),
    [("4.1.4", "1.12.0"), ("4.1.4", None), ("4.0.5", "1.11.0"), ("4.1.2", "1.12.1")],
)
def test_a_pair_that_works_is_accepted(jvm: Any, spark: str, iceberg: str | None) -> None:
    assert jvm.mergeberg.spark.Versions.refusal(spark, iceberg) is None


@pytest.mark.parametrize(
    ("spark", "iceberg"),
    [("4.1.4", "1.11.0"), ("4.0.5", "1.12.0"), ("4.2.1", "1.12.0"), ("3.5.6", None)],
)
def test_another_pair_is_refused_by_name_with_the_pair_to_install(
    jvm: Any, spark: str, iceberg: str | None
) -> None:
    """Spark 4.2 starts with this Iceberg, and then every statement of Iceberg fails."""
    refusal = jvm.mergeberg.spark.Versions.refusal(spark, iceberg)

    assert refusal.startswith(f"Cannot start mergeberg on Spark {spark}")
    assert (iceberg or "") in refusal
    assert "pyspark 4.1.4 with org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0" in refusal
