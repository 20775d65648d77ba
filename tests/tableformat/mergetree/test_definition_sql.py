"""Stored definitions of a lake table never become SQL directly, and read only their row."""

from __future__ import annotations

import pytest

from tableformat.errors import RefusedError, UnsupportedError
from tableformat.mergetree.definition_sql import (
    evaluated_columns,
    evaluated_engine,
    evaluated_key,
    evaluated_zone,
)
from tableformat.mergetree.table import Column, Engine
from tableformat.mergetree.types import parse_type


def column(of: str = "String", kind: str = "", default: str = "") -> Column:
    """Return a column of a type, with a default."""
    return Column("c", parse_type(of), of, kind, default)


@pytest.mark.parametrize(
    ("kind", "default", "written"),
    [
        ("DEFAULT", "concat(a,'x') ", "concat(a, 'x')"),
        ("MATERIALIZED", "a+1", "a + 1"),
        ("ALIAS", "arrayMap(x->(x*2),b)", "arrayMap((x) -> x * 2, b)"),
        ("EPHEMERAL", "", ""),
        ("DEFAULT", "now()", "now()"),
    ],
)
def test_a_default_is_written_from_what_was_read(kind: str, default: str, written: str) -> None:
    (found,) = evaluated_columns((column(kind=kind, default=default),))

    assert (found.default_kind, found.default_expression) == (kind, written)


@pytest.mark.parametrize(
    ("default", "why"),
    [
        ("file('/etc/passwd')", "the function file reads files"),
        ("upper(FILE('/etc/passwd'))", "the function FILE reads files"),
        ("`file`('/etc/passwd')", "the function file reads files"),
        ("if(1, dictGet('d', 'a', 1), 2)", "the function dictGet reads dictionaries"),
        ("arrayMap(x -> file(x), ['/etc/passwd'])", "the function file reads files"),
        ("(SELECT 1)", "SELECT"),
        ("c IN system.zeros", "reads system.zeros as a table"),
        ("c IN `/etc/passwd`", "reads /etc/passwd as a table"),
        ("c IN url('http://h', 'LineAsString', 's String')", "the function url"),
        ("c IN format('Values', '1')", r"reads format\(…\) as a table"),
        ("functionOfTomorrow(c)", "functionOfTomorrow is not listed"),
        ("1, d String DEFAULT 2", "found ','"),
        ("1) ENGINE = File(CSV) --", r"found '\)'"),
        ("'open", "is not closed"),
    ],
)
def test_a_default_that_reaches_further_is_refused(default: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why) as refused:
        evaluated_columns((column(kind="DEFAULT", default=default),))

    assert "mergeberg.source." in refused.value.message


def test_a_kind_of_default_is_no_place_for_sql() -> None:
    with pytest.raises(RefusedError, match="is no kind of default"):
        evaluated_columns((column(kind="DEFAULT file('/etc/passwd') --", default="1"),))


@pytest.mark.parametrize(
    "of",
    [
        "Array(Nullable(DateTime64(3, 'Europe/Berlin')))",
        "Tuple(a UInt8, `b c` Map(String, Enum8('a\\'b' = 1)))",
        "AggregateFunction(quantiles(0.5, 0.9), UInt64)",
        "JSON(max_dynamic_paths=5, a.b UInt8)",
        "SimpleAggregateFunction(sum, UInt64)",
        "Decimal(20, 4)",
    ],
)
def test_a_type_is_written_as_it_was(of: str) -> None:
    assert [c.type_text for c in evaluated_columns((column(of),))] == [of]


@pytest.mark.parametrize(
    ("of", "why"),
    [
        ("AggregateFunction(sum, UInt8 /* ) DEFAULT file('/etc/passwd') */)", "is no type"),
        ("AggregateFunction(sum, $a$ ) DEFAULT file('/x') $a$)", "is no type"),
        ("JSON(a UInt8 -- ) DEFAULT file('/x')\n)", "is no type"),
        ("Future(; DROP TABLE t)", "is no type"),
        ("DateTime('/etc/passwd')", "is no name of a time zone"),
        ("Array(DateTime64(3, '../../../etc/passwd'))", "is no name of a time zone"),
    ],
)
def test_a_type_holds_nothing_else(of: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        evaluated_columns((column(of),))


@pytest.mark.parametrize("zone", ["", "UTC", "Europe/Berlin", "Etc/GMT+5", "Asia/Ust-Nera"])
def test_a_zone_stays(zone: str) -> None:
    assert evaluated_zone(zone) == zone


@pytest.mark.parametrize("zone", [":/etc/passwd", "/etc/passwd", "../x", "a/../b", "a b", "UTC\n"])
def test_a_zone_is_no_path(zone: str) -> None:
    with pytest.raises(RefusedError, match="is no name of a time zone"):
        evaluated_zone(zone)


def test_keys_are_written_from_what_was_read() -> None:
    engine = Engine(
        "ReplicatedReplacingMergeTree",
        arguments="'/t', 'r', ver",
        partition_by="toYYYYMM(d)",
        primary_key="a",
        order_by="(a,b DESC)",
        sample_by="file('/x')",
        ttl="url('http://h')",
        settings=(("disk", "x"),),
    )

    assert evaluated_engine(engine) == Engine(
        "ReplicatedReplacingMergeTree",
        arguments="'/t', 'r', ver",
        partition_by="toYYYYMM(d)",
        primary_key="tuple(a)",
        order_by="(a, b DESC)",
    )
    assert evaluated_key("") == ""
    assert evaluated_engine(Engine("MergeTree")) == Engine("MergeTree")


@pytest.mark.parametrize(
    "engine",
    [
        Engine("MergeTree", partition_by="file('/x')"),
        Engine("MergeTree", order_by="(a, file('/x') DESC)"),
        Engine("MergeTree", primary_key="file('/x')"),
        Engine("ReplacingMergeTree", arguments="file('/x')"),
        Engine("MergeTree", partition_by="a) AS SELECT file('/x'"),
        Engine("MergeTree", order_by="a SETTINGS disk = 'x'"),
    ],
)
def test_a_key_that_reaches_further_is_refused(engine: Engine) -> None:
    with pytest.raises((RefusedError, UnsupportedError), match=r"mergeberg\.source\."):
        evaluated_engine(engine)
