"""Conditions over partitions, as the user writes them after --where."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.errors import UsageError
from tableformat.mergetree.expression import Call, Literal
from tableformat.mergetree.summary_filter import parse_filter
from tableformat.mergetree.table import NoTimes, PartitionSummary, Times
from tableformat.names import PartitionId, quote_string
from tests.strategies.types import nasty_text
from tests.tableformat.mergetree.clickhouse_process import ClickHouse

JANUARY = PartitionSummary(
    PartitionId("202401"),
    "202401",
    3,
    1000,
    5000,
    Times("2024-01-01T00:00:00", "2024-01-31 23:00:00"),
)
TIMELESS = PartitionSummary(PartitionId("abc"), "('it''s',1)", 1, 0, 10, Times("", ""))


@pytest.mark.parametrize(
    "text",
    [
        "rows > 10",
        "rows >= 1000 AND bytes <= 5000",
        "rows = 1 OR parts = 3",
        "NOT rows < 1000",
        "not (rows < 10 or rows > 5000)",
        "1000 = rows",
        "bytes > rows",
        "bytes > 4.9e3",
        "partition_id = '202401'",
        "partition_id <> '202402'",
        "partition_id > '2023' AND partition_id < '2025'",
        "partition_id LIKE '2024%'",
        "partition LIKE '2024_1'",
        "partition NOT LIKE '2024'",
        "partition_id IN ('202401', '202402')",
        "partition_id IN ('202401')",
        "partition_id NOT IN ('202402')",
        "rows IN (1, 1000)",
        "rows BETWEEN 1 AND 1000",
        "rows NOT BETWEEN 1 AND 999",
        "min_time = '2024-01-01'",
        "min_time >= '2024-01-01' AND max_time < '2024-02-01'",
        "max_time BETWEEN '2024-01-31 23:00' AND '2024-01-31T23:00:00'",
        "min_time < max_time",
        "min_time LIKE '2024-01-01 00:%'",
    ],
)
def test_a_partition_that_fulfils_the_condition_is_kept(text: str) -> None:
    assert parse_filter(text).matches(JANUARY)
    assert not parse_filter(f"NOT ({text})").matches(JANUARY)


@pytest.mark.parametrize(
    "text", ["max_time < '2030-01-01'", "max_time >= '1970-01-01'", "min_time <= max_time"]
)
def test_a_partition_without_times_is_neither_before_nor_after_any(text: str) -> None:
    """`max_time < …` is how old partitions are found; one without times is not old."""
    assert not parse_filter(text).matches(TIMELESS)
    assert parse_filter("min_time = '' AND max_time = ''").matches(TIMELESS)


@pytest.mark.parametrize(
    "text",
    [
        "max_time < '2024-01-01 00:00:00.5' AND max_time > '2024-01-01 00:00:00.499'",
        "max_time = '2024-01-01 00:00:00.49999' OR max_time = '2024-01-01 00:00:00.4999900'",
        "max_time > '2024-01-01' AND min_time = '2024-01-01'",
        "min_time = '2024-01-01 00:00:00.0'",
        "min_time < max_time",
    ],
)
def test_parts_of_a_second_count(text: str) -> None:
    times = Times("2024-01-01 00:00:00.000000", "2024-01-01 00:00:00.499990")

    assert parse_filter(text).matches(replace(JANUARY, times=times))


@pytest.mark.parametrize("name", ["min_time", "max_time"])
def test_a_partition_of_unknown_times_is_neither_kept_nor_passed_over(name: str) -> None:
    """Harm prevented: `archive` passes a partition over, or takes it, without a word."""
    unknown = replace(JANUARY, times=NoTimes("the key reads no column of a time"))
    why = f"{name} of partition 202401 is not known: the key reads no column of a time"

    for text in (f"{name} < '2030-01-01'", f"NOT {name} < '2030-01-01'", f"{name} = ''"):
        assert parse_filter(text).reads_times
        with pytest.raises(UsageError, match=why):
            parse_filter(text).matches(unknown)
    assert not parse_filter(f"rows > 5000 AND {name} < '2030-01-01'").matches(unknown)
    assert not parse_filter("rows > 5").reads_times


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "row_count > 1",
            "no 'row_count'. The names are partition_id, partition, parts, rows, byte",
        ),
        ("rows > 1 OR size > 1", "no 'size'"),
        ("partition_id = 202401", "202401 is a number and partition_id is text"),
        ("rows = '1000'", "rows is a number and '1000' is text"),
        ("rows BETWEEN 1 AND 'x'", "rows is a number and 'x' is text"),
        ("partition IN ('a', 1)", "1 is a number and partition is text"),
        ("rows LIKE '1%'", "rows is a number, and LIKE compares text"),
        ("min_time > 'yesterday'", "'yesterday' is no time"),
        ("rows", "rows is no condition"),
        ("rows + 1", r"rows \+ 1 is no condition"),
        ("rows IS NULL", "is no condition"),
        ("rows = NULL", "NULL is neither a name nor a constant"),
        ("lower(partition) = 'x'", r"lower\(partition\) is neither a name nor a constant"),
        ("rows > ", "it ends where"),
        ("rows > 1)", r"'\)' at position 9"),
        ("", "it ends where"),
    ],
)
def test_a_wrong_condition_is_an_error_before_anything_is_listed(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_filter(text)


counts = st.integers(0, 20)


@given(counts, counts, counts)
def test_comparisons_of_numbers_are_those_of_numbers(rows: int, low: int, high: int) -> None:
    summary = PartitionSummary(PartitionId("a"), "a", 1, rows, rows)

    def kept(text: str) -> bool:
        return parse_filter(text).matches(summary)

    assert kept(f"rows < {low}") == (rows < low)
    assert kept(f"rows <= {low} AND bytes != {high}") == (rows <= low and rows != high)
    assert kept(f"rows BETWEEN {low} AND {high}") == (low <= rows <= high)
    assert kept(f"rows IN ({low}, {high})") == (rows in (low, high))


@given(nasty_text, nasty_text)
def test_any_text_is_compared_as_it_is(partition: str, other: str) -> None:
    summary = PartitionSummary(PartitionId("a"), partition, 1, 1, 1)

    assert parse_filter(f"partition = {quote_string(partition)}").matches(summary)
    found = parse_filter(f"partition = {quote_string(other)}").matches(summary)
    assert found == (partition == other)
    # In LIKE every character may be written with a backslash before it.
    escaped = quote_string(re.sub(r"([%_\\])", r"\\\1", partition) + "%")
    assert parse_filter(f"partition LIKE {escaped}").matches(summary)


@pytest.mark.parametrize("text", ["abc", "a%c", "a_c", "a\\c", "", "a\nc", "ABC", "ac", "a.c", "ü"])
def test_like_is_that_of_clickhouse(clickhouse: ClickHouse, text: str) -> None:
    patterns = ("a_c", "a%", "a\\%c", "a\\_c", "a\\\\c", "%", "_", "", "a.c", "%b%", "ü")
    listed = ", ".join(f"{quote_string(text)} LIKE {quote_string(p)}" for p in patterns)
    ((expected,),) = clickhouse.rows(f"SELECT [{listed}]")
    summary = PartitionSummary(PartitionId("a"), text, 1, 1, 1)

    found = [parse_filter(f"partition LIKE {quote_string(p)}").matches(summary) for p in patterns]

    assert found == [bool(value) for value in expected]


NOW = datetime(2024, 3, 31, 12, 30, 15, 999_999, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("now()", "2024-03-31 12:30:15"),
        ("NOW()", "2024-03-31 12:30:15"),
        ("today()", "2024-03-31 00:00:00"),
        ("yesterday()", "2024-03-30 00:00:00"),
        ("now() - INTERVAL 1 MONTH", "2024-02-29 12:30:15"),
        ("today() + INTERVAL '2 week'", "2024-04-14 00:00:00"),
        ("toStartOfMonth(now() - INTERVAL 3 MONTH)", "2023-12-01 00:00:00"),
        ("toStartOfQuarter(today()) - INTERVAL 1 QUARTER", "2023-10-01 00:00:00"),
        ("toStartOfYear(now())", "2024-01-01 00:00:00"),
        ("now() - INTERVAL 2000 YEAR", "0024-03-31 12:30:15"),
    ],
)
def test_a_time_is_computed_from_the_clock(text: str, time: str) -> None:
    """A nightly command selects the partitions that are older than some days, or complete."""
    compared = parse_filter(f"max_time < {text}", NOW).expression

    assert isinstance(compared, Call)
    assert compared.arguments[1] == Literal(time)


def test_the_clock_is_that_of_this_host_in_utc() -> None:
    before = datetime.now(UTC).replace(microsecond=0)

    compared = parse_filter("max_time < now()").expression

    assert isinstance(compared, Call)
    assert isinstance(compared.arguments[1], Literal)
    found = datetime.fromisoformat(f"{compared.arguments[1].value}+00:00")
    assert before <= found <= before + timedelta(minutes=5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("max_time < now() - INTERVAL 3000 YEAR", "is before the year 1 or after 9999"),
        ("max_time < now() + INTERVAL 99999999999999 DAY", "is before the year 1 or after 9999"),
        ("max_time < today() - 7", "is neither a name nor a constant"),
        ("max_time < now() - INTERVAL 1 MILLISECOND", "is neither a name nor a constant"),
        ("max_time < now(1)", "is neither a name nor a constant"),
        ("rows < now()", "rows is a number"),
    ],
)
def test_a_time_that_cannot_be_computed_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_filter(text, NOW)


@given(
    now=st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)),  # noqa: DTZ001  its zone is added
    start=st.sampled_from(["", "toStartOfDay", "toStartOfMonth", "toStartOfYear"]),
    sign=st.sampled_from("+-"),
    amount=st.integers(0, 200),
    unit=st.sampled_from(["SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH"]),
)
def test_times_are_computed_as_clickhouse_computes_them(
    clickhouse: ClickHouse, now: datetime, start: str, sign: str, amount: int, unit: str
) -> None:
    text = f"{start}(now()) {sign} INTERVAL {amount} {unit}"
    at = f"toDateTime({quote_string(now.strftime('%Y-%m-%d %H:%M:%S'))}, 'UTC')"
    ((expected,),) = clickhouse.rows(
        f"SELECT toString(toDateTime({text.replace('now()', at)}, 'UTC'))"
    )

    compared = parse_filter(f"max_time < {text}", now.replace(tzinfo=UTC)).expression

    assert isinstance(compared, Call)
    assert compared.arguments[1] == Literal(expected)
