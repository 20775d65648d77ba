"""The paths of a tree, and the partition keys that have directories."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.types import (
    DateType,
    FixedType,
    IntegerType,
    StringType,
    TimestamptzType,
    UUIDType,
)

from tableformat.errors import UnsupportedError
from tableformat.hive.layout import TreePaths, check_directories
from tests.support.fakes import TABLE

TYPES = {
    "eventDate": DateType(),
    "retention": IntegerType(),
    "p": StringType(),
    "t": TimestamptzType(),
    "f": FixedType(4),
    "u": UUIDType(),
    "a b": StringType(),
    "a=b": StringType(),
    "n.x": IntegerType(),
    "größe": StringType(),
    ".p": StringType(),
    "_p": StringType(),
}
PATHS = TreePaths("file:///lake/tree")


@pytest.mark.parametrize(
    "key", ["", "tuple()", "eventDate", "(eventDate, retention)", "(p)", "(`a b`, `n.x`, `größe`)"]
)
def test_plain_columns_a_tuple_of_them_or_nothing_have_directories(key: str) -> None:
    check_directories(replace(TABLE, engine=replace(TABLE.engine, partition_by=key)), TYPES)


def test_times_and_fixed_texts_have_directories_where_a_rule_spells_them() -> None:
    table = replace(TABLE, engine=replace(TABLE.engine, partition_by="(t, f)"))

    check_directories(table, TYPES, spelled={"t": "UTC", "f": "text-or-hex"})


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("toYYYYMM(eventDate)", "toYYYYMM(eventDate) is an expression"),
        ("(eventDate, retention % 10)", "modulo(retention, 10) is an expression"),
        ("t", "t is a timestamptz"),
        ("f", "f is a fixed[4]"),
        ("(p, u)", "u is a uuid"),
        ("gone", "gone is a None"),
        ("_p", "_p begins with _, and readers ignore"),
        ("(p, _p)", "_p begins with _"),
        ("`a=b`", "`a=b` has = in its name, which DuckDB and ClickHouse would read as %XX"),
        ("`.p`", "begins with ., and readers ignore"),
    ],
)
def test_anything_else_is_refused_by_name_with_clickhouses_code(key: str, why: str) -> None:
    table = replace(TABLE, engine=replace(TABLE.engine, partition_by=key))

    with pytest.raises(UnsupportedError) as refused:
        check_directories(table, TYPES)

    assert refused.value.code == 48
    assert why.replace("modulo(retention, 10)", "retention % 10") in refused.value.message


def test_what_is_ours_is_no_data_and_paths_are_relative_to_the_root() -> None:
    data = PATHS.absolute("p=1/5-key-0-a.parquet")

    assert PATHS.relative(data) == "p=1/5-key-0-a.parquet"
    assert PATHS.is_data(data)
    assert not PATHS.is_data(f"{PATHS.own}/x.parquet")
    assert not PATHS.is_data(PATHS.commit("commit_all_5"))


def test_the_names_of_log_entries_sort_as_their_numbers() -> None:
    names = [PATHS.log_entry("u", number) for number in (1, 9, 10, 99, 100, 10**15)]

    assert names == sorted(names)
