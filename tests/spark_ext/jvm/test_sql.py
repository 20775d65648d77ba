"""CALL, ClickHouse's statements and the system tables in PySpark, with Iceberg's own SQL."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Row, SparkSession

from spark_ext.procedures.statements import TYPED_PROCEDURES
from spark_ext.set_up import register
from tests.support.declared_for_tests import ECHO
from tests.support.local_spark import SPARK_MARKS
from tests.support.spark_application import (
    ICEBERG,
    MERGEBERG,
    SparkApplication,
    lake_settings,
)
from tests.support.spark_jar import Driver

pytestmark = SPARK_MARKS

REFUSAL = "Cannot find the table 'x': there is none. Name another."
ROW = [
    "t",
    1,
    2**62,
    0.5,
    True,
    "2024-01-02T03:04:05.000006+00:00",
    "2024-02-29",
    {"a": "b"},
    ["c"],
]


def error(**more: str) -> dict[str, object]:
    return {
        "error": {"kind": "NotFoundError", "message": REFUSAL, "code": 60, "sqlstate": "42P01"}
        | more
    }


@pytest.fixture(scope="module")
def spark(
    spark_application: SparkApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    lake = lake_settings(tmp_path_factory.mktemp("sql"))
    with spark_application.session(lake, (MERGEBERG, ICEBERG)) as session:
        yield session


@pytest.fixture
def driver(spark: SparkSession) -> Driver:
    made = Driver(
        {
            "echo": lambda _: {"rows": [ROW]},
            "refuse": lambda _: error(),
            "crash": lambda _: error(traceback="Traceback (most recent call last): here"),
            "state": lambda _: {"rows": [[1, "RUNNING"], [2, "COMPLETED"], [3, "COMPLETED"]]},
            "execute_alter": lambda _: {"rows": [["1", "done", 2, 3, 4, 5, "6", "why"]]},
        }
    )
    bridge(spark).register(made)
    return made


def bridge(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.mergeberg.spark.PyBridge


def test_a_call_runs_once_however_its_result_is_looked_at(
    spark: SparkSession, driver: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    """An export that runs again because somebody prints its result would be a second export."""
    frame = spark.sql("CALL lake.system.echo(table => 'db.t')")
    names = frame.schema.names
    frame.show()
    rows = frame.collect()
    frame.createOrReplaceTempView("answered")
    counted = frame.count() + spark.sql("SELECT * FROM answered WHERE small = 1").count()

    assert len(driver.taken()) == 1
    assert names == [column.name for column in ECHO.columns]
    assert rows == [
        Row(
            text="t",
            small=1,
            big=2**62,
            ratio=0.5,
            yes=True,
            at=dt.datetime(2024, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001  PySpark's are in local time
            day=dt.date(2024, 2, 29),
            options={"a": "b"},
            names=["c"],
        )
    ]
    assert counted == 2
    assert "2024-02-29" in capsys.readouterr().out


def test_explaining_a_call_runs_nothing(spark: SparkSession, driver: Driver) -> None:
    (row,) = spark.sql("EXPLAIN CALL lake.system.echo('db.t')").collect()

    assert "Call lake.system.echo(db.t, 4" in row[0]
    assert driver.taken() == []


def test_arguments_arrive_by_name_with_their_defaults(spark: SparkSession, driver: Driver) -> None:
    spark.sql(
        "CALL lake.system.ECHO(dry_run => true, table => 'ö`\\'x', "
        "at => TIMESTAMP '2024-01-02 03:04:05Z', "
        "options => map('a', '1', 'b', NULL), names => array('x', 'y'), big => 9223372036854775807)"
    )
    spark.sql("CALL lake.system.echo('db.t', 5)")
    first, second = driver.taken()
    ((user,),) = spark.sql("SELECT current_user()").collect()

    defaults: dict[str, object] = {
        "count": 4,
        "big": None,
        "ratio": 0.5,
        "dry_run": False,
        "at": None,
        "options": {},
        "names": [],
    }
    assert first == {
        "call": "echo",
        "catalog": "lake",
        "user": user,
        "arguments": defaults
        | {"table": "ö`'x", "dry_run": True, "at": "2024-01-02T03:04:05Z", "big": 2**63 - 1}
        | {"options": {"a": "1", "b": None}, "names": ["x", "y"]},
    }
    assert second["arguments"] == defaults | {"table": "db.t", "count": 5}


def test_parameters_of_the_session_are_put_in(spark: SparkSession, driver: Driver) -> None:
    spark.sql("CALL lake.system.echo(table => :name)", args={"name": "db.t"})
    spark.sql("CALL lake.system.echo(?, ?)", args=["db.u", 7])

    first, second = (request["arguments"] for request in driver.taken())
    assert first["table"] == "db.t"
    assert (second["table"], second["count"]) == ("db.u", 7)


def test_a_missing_or_unknown_argument_is_sparks_own_error(
    spark: SparkSession, driver: Driver
) -> None:
    with pytest.raises(AnalysisException, match="REQUIRED_PARAMETER_NOT_FOUND"):
        spark.sql("CALL lake.system.echo()")
    with pytest.raises(AnalysisException, match="UNRECOGNIZED_PARAMETER_NAME"):
        spark.sql("CALL lake.system.echo(tabel => 'x')")
    assert driver.taken() == []


def test_a_call_without_a_catalog_means_the_current_one(
    spark: SparkSession, driver: Driver
) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    spark.sql("USE lake.db")
    spark.sql("CALL system.echo('t')")
    spark.sql("USE spark_catalog.default")
    spark.sql("CALL mergeberg.system.echo('t')")
    spark.sql("BEGIN USE lake.db; CALL system.echo('in a script'); END")
    spark.sql("USE spark_catalog.default")

    assert [request["catalog"] for request in driver.taken()] == ["lake", "mergeberg", "lake"]


@settings(max_examples=15)
@given(
    text=st.none() | st.text(),
    small=st.integers(-(2**31), 2**31 - 1),
    big=st.none() | st.integers(-(2**63), 2**63 - 1),
    ratio=st.floats(allow_nan=False),
    at=st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)),  # noqa: DTZ001
    options=st.none() | st.dictionaries(st.text(), st.none() | st.text(), max_size=3),
)
def test_every_value_of_a_result_arrives_unchanged(
    spark: SparkSession,
    text: str | None,
    small: int,
    big: int | None,
    ratio: float,
    at: dt.datetime,
    options: dict[str, str | None] | None,
) -> None:
    values = [
        text,
        small,
        big,
        ratio,
        None,
        at.isoformat() + "Z",
        at.date().isoformat(),
        options,
        [text],
    ]
    made = Driver({"echo": lambda _: {"rows": [values]}})
    bridge(spark).register(made)

    frame = spark.sql("CALL lake.system.echo('t')").selectExpr("*", "unix_micros(at) AS micros")
    (row,) = frame.drop("at").collect()

    since = at - dt.datetime(1970, 1, 1)  # noqa: DTZ001
    assert row.micros == since // dt.timedelta(microseconds=1)
    assert (row.text, row.small, row.big, row.ratio) == (text, small, big, ratio)
    assert (row.yes, row.day, row.options, row.names) == (None, at.date(), options, [text])


@pytest.mark.parametrize(
    ("place", "value"), [(1, 2**31), (2, "7"), (2, 7.5), (0, 7), (4, 1), (7, []), (8, {})]
)
def test_a_value_that_does_not_fit_its_column_is_a_bug_and_no_other_value(
    spark: SparkSession, place: int, value: object
) -> None:
    wrong = [*ROW[:place], value, *ROW[place + 1 :]]
    bridge(spark).register(Driver({"echo": lambda _: {"rows": [wrong]}}))

    with pytest.raises(AnalysisException, match=r"in the column .* This is a bug"):
        spark.sql("CALL lake.system.echo('t')")


def test_what_the_user_can_mend_is_one_line_with_its_state(
    spark: SparkSession, driver: Driver
) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.sql("CALL lake.system.refuse()")

    assert str(caught.value) == f"{REFUSAL} SQLSTATE: 42P01"
    assert caught.value.getSqlState() == "42P01"
    assert caught.value.getMessageParameters() == {"errorMessage": REFUSAL}
    assert len(driver.taken()) == 1


def test_a_bug_keeps_its_traceback(spark: SparkSession, driver: Driver) -> None:
    with pytest.raises(AnalysisException, match=r"Traceback .most recent call last.: here"):
        spark.sql("CALL lake.system.crash()")
    assert len(driver.taken()) == 1


def test_arguments_of_statements_have_names_that_spark_reads(
    spark: SparkSession, driver: Driver
) -> None:
    """Some are words of SQL: `column`, `where`, `partition`."""
    for procedure in TYPED_PROCEDURES:
        given = {p.name: True if p.type == "BOOLEAN" else "x" for p in procedure.parameters}
        driver._functions[procedure.name] = lambda _: {"rows": []}
        arguments = (f"{n} => {'true' if v is True else repr(v)}" for n, v in given.items())

        assert (
            spark.sql(f"CALL lake.system.{procedure.name}({', '.join(arguments)})").collect() == []
        )

        (request,) = driver.taken()
        assert request["arguments"] == given


def test_a_jar_of_another_mergeberg_is_reported(spark: SparkSession) -> None:
    """A copy of the jar on a server is forgotten when the packages are brought up to date."""
    register(spark)

    with pytest.raises(AnalysisException, match="the jar in this Spark is of another version"):
        spark.sql("CALL lake.system.echo('t')")


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE db.t EXPORT PARTITION ID '202401' TO TABLE lake.db.t SETTINGS a = 1",
        "ALTER TABLE db.t\n  DROP PARTITION ('it''s', \"ö\", 'a\\'b') -- why",
        "OPTIMIZE TABLE db.t FINAL",
        "KILL QUERY WHERE query_id = 'x'",
    ],
)
def test_a_statement_of_clickhouse_reaches_python_word_for_word(
    spark: SparkSession, driver: Driver, text: str
) -> None:
    rows = spark.sql(text).collect()

    (request,) = driver.taken()
    assert request["call"] == "execute_alter"
    assert request["arguments"] == {"statement": text}
    assert rows == [("1", "done", 2, 3, 4, 5, "6", "why")]


def test_variables_are_put_into_statements_of_clickhouse_too(
    spark: SparkSession, driver: Driver
) -> None:
    """Also into names, which say that it is a statement of ClickHouse's."""
    spark.conf.set("spark.mergeberg.test.day", "202401")
    spark.conf.set("spark.mergeberg.test.db", "db")
    spark.sql("ALTER TABLE ${spark.mergeberg.test.db}.t DROP PARTITION ${spark.mergeberg.test.day}")

    (request,) = driver.taken()
    assert request["arguments"] == {"statement": "ALTER TABLE db.t DROP PARTITION 202401"}


@pytest.mark.parametrize(
    "text", ["SELEC 1", "ALTER TABLE db.t DROP NONSENSE", "CALL lake.system.echo("]
)
def test_a_mistake_keeps_sparks_own_message(spark: SparkSession, driver: Driver, text: str) -> None:
    with pytest.raises(ParseException, match="PARSE_SYNTAX_ERROR"):
        spark.sql(text)
    assert driver.taken() == []


def test_icebergs_procedures_stay_icebergs(spark: SparkSession, driver: Driver) -> None:
    """One of ours with the name of one of Iceberg's could never be called."""
    theirs = {row.procedure_name for row in spark.sql("SHOW PROCEDURES IN lake.system").collect()}
    ours = {row.procedure_name for row in spark.sql("SHOW PROCEDURES IN mergeberg").collect()}

    assert "rewrite_data_files" in theirs
    assert {"partitions", "execute_alter"} < ours
    assert theirs & ours == set()
    with pytest.raises(AnalysisException, match="FAILED_TO_LOAD_ROUTINE"):
        spark.sql("CALL lake.system.nope()")
    assert driver.taken() == []


def test_procedures_can_be_looked_up(spark: SparkSession) -> None:
    description = " ".join(
        str(row[0]) for row in spark.sql("DESCRIBE PROCEDURE mergeberg.system.echo").collect()
    )

    assert "echo" in description
    assert ECHO.description in description
    with pytest.raises(AnalysisException, match=r"Cannot find the procedure system\.nope"):
        spark.sql("CALL mergeberg.system.nope()")


def test_a_system_table_is_read_like_any_table_and_is_always_current(
    spark: SparkSession, driver: Driver
) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMP VIEW finished AS "
        "SELECT id FROM mergeberg.system.state WHERE status = 'COMPLETED'"
    )
    joined = spark.sql(
        "SELECT s.status FROM mergeberg.system.STATE s JOIN finished f ON s.id = f.id + 1"
    )
    assert driver.taken() == []

    assert sorted(row.status for row in joined.collect()) == ["COMPLETED"]
    assert spark.sql("SELECT count(*) FROM finished").first() == (2,)
    driver._functions["state"] = lambda _: {"rows": [[9, "COMPLETED"]]}
    assert spark.sql("SELECT * FROM finished").collect() == [(9,)]
    assert {request["table"] for request in driver.taken()} == {"state"}
    assert spark.sql("SHOW TABLES IN mergeberg.system").count() >= 1
    assert spark.sql("SHOW NAMESPACES IN mergeberg").collect() == [("system",)]
    assert "status" in str(spark.sql("DESCRIBE mergeberg.system.state").collect())


def test_the_error_of_a_system_table_is_one_line_too(spark: SparkSession, driver: Driver) -> None:
    driver._functions["state"] = lambda _: error()

    with pytest.raises(AnalysisException) as caught:
        spark.sql("SELECT * FROM mergeberg.system.state").collect()
    assert str(caught.value) == f"{REFUSAL} SQLSTATE: 42P01"


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE mergeberg.system.x (a INT)",
        "DROP TABLE mergeberg.system.state",
        "ALTER TABLE mergeberg.system.state ADD COLUMN c INT",
        "ALTER TABLE mergeberg.system.state RENAME TO system.x",
        "INSERT INTO mergeberg.system.state VALUES (1, 'x')",
        "DELETE FROM mergeberg.system.state",
        "CREATE NAMESPACE mergeberg.x",
        "DROP NAMESPACE mergeberg.system CASCADE",
        "SELECT * FROM mergeberg.system.nope",
    ],
)
def test_nothing_but_reading_can_be_done_with_the_system_tables(
    spark: SparkSession, driver: Driver, text: str
) -> None:
    with pytest.raises(AnalysisException):
        spark.sql(text)
    assert driver.taken() == []
