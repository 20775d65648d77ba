"""The SQL of a digest is reproducible, and detects every change of a value.

docs/spec/digest.md. ClickHouse is the real one; one query computes hundreds of variants.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.clickhouse.connection import whole
from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.digest import Digest
from tableformat.errors import InternalError
from tableformat.mergetree.digest_sql import (
    DigestColumn,
    digest_sql,
    digest_type,
    empty_digest,
    in_order,
    read_digest,
    source_columns,
)
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import Simple, parse_type, render_type
from tableformat.names import quote_identifier
from tests.strategies.mapping import samples
from tests.support.digest_reference import column_checksum, row_checksum, siphash

TYPES = {
    "a": "Nullable(Int64)",
    "b": "Nullable(Int64)",
    "f": "Nullable(Float64)",
    "l": "Array(Nullable(Int32))",
    "s": "Nullable(String)",
    "t": "Tuple(x Nullable(UInt8), y Array(String))",
    "ts": "Nullable(DateTime64(6, 'UTC'))",
}
NUMBERS = st.none() | st.integers(-(2**63), 2**63 - 1).map(str) | st.sampled_from(["0", "1"])
TEXTS = st.none() | st.binary(max_size=4).map(lambda b: f"unhex('{b.hex()}')")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "a": NUMBERS,
    "b": NUMBERS,
    "f": st.none()
    | st.floats().map(
        lambda f: f"reinterpretAsFloat64({int.from_bytes(struct.pack('<d', f), 'little')}::UInt64)"
    ),
    "l": st.lists(st.none() | st.integers(-3, 3), max_size=3).map(
        lambda xs: f"[{', '.join('NULL' if x is None else str(x) for x in xs)}]"
    ),
    "s": TEXTS,
    "t": st.builds(
        lambda x, ys: f"tuple({x}, [{', '.join(ys)}])",
        st.sampled_from(["NULL", "0", "7"]),
        st.lists(st.sampled_from(["''", "'a'", "'b'"]), max_size=2),
    ),
    "ts": st.none()
    | st.integers(-(10**15), 10**15).map(lambda n: f"fromUnixTimestamp64Micro({n})"),
}
ROW = st.fixed_dictionaries(VALUES)


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedConnection]:
    with EmbeddedConnection(tmp_path_factory.mktemp("clickhouse"), create=True) as connection:
        connection.command("SET allow_suspicious_low_cardinality_types = 1")
        connection.command("SET enable_time_time64_type = 1")
        yield connection


def columns(types: dict[str, str]) -> tuple[DigestColumn, ...]:
    found = []
    for name, text in types.items():
        of = parse_type(text)
        sql = f"CAST({quote_identifier(name)} AS {text})"
        found.append(DigestColumn(name, sql, of, render_type(digest_type(of))))
    return in_order(found)


def asked(
    clickhouse: EmbeddedConnection,
    wanted: Sequence[DigestColumn],
    table: str,
    group: str = "0",
) -> dict[int, Digest]:
    rows = clickhouse.rows(digest_sql(wanted, table, group=group, tallies=True))
    return {whole(g): read_digest(wanted, row, tallies=True)[0] for g, *row in rows}


def variants(tables: Sequence[Sequence[dict[str, str | None]]]) -> str:
    """Return SQL of many small tables in one, numbered by `g`; one array for each column."""
    rows = [(g, row) for g, table in enumerate(tables) for row in table]
    arrays = [f"[{', '.join(str(g) for g, _ in rows)}] AS g"]
    for name, text in TYPES.items():
        values = ", ".join(f"CAST({row[name] or 'NULL'} AS {text})" for _, row in rows)
        arrays.append(f"[{values}] AS {name}")
    joined = ", ".join(("g", *TYPES))
    return f"(SELECT {joined} FROM (SELECT {', '.join(arrays)}) ARRAY JOIN {joined})"


def canonical(row: dict[str, str | None]) -> tuple[str, ...]:
    """Return the part of a row that the digest distinguishes: every NaN is equal."""
    return tuple(
        "nan" if name == "f" and value is not None and _is_nan(value) else str(value)
        for name, value in row.items()
    )


def _is_nan(sql: str) -> bool:
    bits = int(sql.partition("(")[2].partition(":")[0])
    (number,) = struct.unpack("<d", bits.to_bytes(8, "little"))
    return math.isnan(number)


@settings(max_examples=8)
@given(
    rows=st.lists(ROW, min_size=2, max_size=5),
    changes=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(sorted(TYPES)), ROW), min_size=20, max_size=40
    ),
    shuffles=st.lists(st.randoms(use_true_random=False), min_size=3, max_size=3),
)
def test_a_digest_sees_every_changed_value_and_no_order(
    clickhouse: EmbeddedConnection,
    rows: list[dict[str, str | None]],
    changes: list[tuple[int, str, dict[str, str | None]]],
    shuffles: list[Any],
) -> None:
    """Harm prevented: a wrong value that is called equal; equal rows that are called wrong."""
    tables = [rows, *(random.sample(rows, len(rows)) for random in shuffles)]
    for number, name, other in changes:
        changed = [dict(row) for row in rows]
        changed[number % len(rows)][name] = other[name]
        tables.append(changed)
    tables += [[*rows, rows[0]], rows[1:]]
    found = asked(clickhouse, columns(TYPES), variants(tables), "g")

    for number, table in enumerate(tables):
        same = sorted(map(canonical, table)) == sorted(map(canonical, rows))
        assert (found[0].differences(found[number]) == ()) == same, table


@settings(max_examples=8)
@given(rows=st.lists(ROW, min_size=1, max_size=40), cuts=st.integers(1, 5))
def test_a_digest_is_the_same_however_rows_are_cut_into_files(
    clickhouse: EmbeddedConnection, rows: list[dict[str, str | None]], cuts: int
) -> None:
    wanted = columns(TYPES)
    pieces = asked(clickhouse, wanted, variants([rows[i::cuts] for i in range(cuts)]), "g")
    whole = asked(clickhouse, wanted, variants([rows]))

    assert sum(pieces.values(), empty_digest(wanted)) == whole[0]


def test_values_exchanged_between_rows_change_the_row_checksum_alone(
    clickhouse: EmbeddedConnection,
) -> None:
    before = "(SELECT arrayJoin([(1, 'a'), (2, 'b')]) AS x, x.1 AS n, x.2 AS s)"
    after = before.replace("(1, 'a'), (2, 'b')", "(1, 'b'), (2, 'a')")
    wanted = columns({"n": "UInt8", "s": "String"})

    (found,) = asked(clickhouse, wanted, before)[0].differences(asked(clickhouse, wanted, after)[0])

    assert "exchanged between rows" in str(found)


def test_two_columns_that_change_their_names_are_seen(clickhouse: EmbeddedConnection) -> None:
    before = "(SELECT number AS a, number + 1 AS b FROM numbers(3))"
    after = "(SELECT number AS b, number + 1 AS a FROM numbers(3))"
    wanted = columns({"a": "UInt64", "b": "UInt64"})

    found = asked(clickhouse, wanted, before)[0].differences(asked(clickhouse, wanted, after)[0])

    assert {d.column for d in found} == {"a", "b"}


def test_minus_zero_is_another_value_and_every_nan_the_same(
    clickhouse: EmbeddedConnection,
) -> None:
    wanted = columns({"f": "Float64"})
    bits = "reinterpretAsFloat64(toUInt64({}))"
    zero, minus, nan, other = (
        asked(clickhouse, wanted, f"(SELECT {bits.format(n)} AS f)")[0]
        for n in (0, 1 << 63, 0x7FF8000000000000, 0xFFF8000000000001)
    )

    assert nan == other
    assert (nan.columns[0].least, nan.columns[0].greatest) == (None, None)
    assert [d.figure for d in zero.differences(minus)] == ["checksum"]


def test_an_unsigned_number_is_never_the_negative_one_of_the_same_bits(
    clickhouse: EmbeddedConnection,
) -> None:
    """Harm prevented: a table whose 2^64 - 1 wrapped to -1 is called equal."""
    unsigned = asked(clickhouse, columns({"n": "UInt64"}), "(SELECT toUInt64(-1) AS n)")[0]
    signed = asked(clickhouse, columns({"n": "Int64"}), "(SELECT toInt64(-1) AS n)")[0]

    assert [d.figure for d in unsigned.differences(signed)] == ["least", "greatest"]


@settings(max_examples=30)
@given(one=samples(rows=3, depth=2))
def test_every_type_that_leaves_clickhouse_is_digested(
    clickhouse: EmbeddedConnection, one: Any
) -> None:
    """Harm prevented: a type that is exported and cannot be verified."""
    wanted = source_columns([Column("c", one.type, render_type(one.type))], {})
    values = f"(SELECT arrayJoin([{', '.join(one.sql)}]) AS c) AS __src"

    (found,) = asked(clickhouse, wanted, values).values()

    assert found.rows == 3
    assert found.columns[0].type == render_type(digest_type(wanted[0].type))


def test_anybody_can_compute_a_digest_from_its_description(
    clickhouse: EmbeddedConnection,
) -> None:
    """Harm prevented: a kept digest whose meaning is only in this program, or changes with it."""
    given_values: dict[str, tuple[str, str, list[Any]]] = {
        "a": ("Nullable(Int32)", "[1, NULL, -5]", [1, None, -5]),
        "b": ("UInt64", "[18446744073709551615, 0, 7]", [-1, 0, 7]),
        "c": ("Bool", "[true, false, true]", [1, 0, 1]),
        "d": ("Nullable(Decimal(9, 2))", "[1.5, NULL, -2.25]", [150, None, -225]),
        "e": ("Float32", "[0.5, nan, -0.0]", [0.5, float("nan"), -0.0]),
        "f": ("String", "['', 'é', unhex('FF00')]", [b"", "é".encode(), b"\xff\0"]),
        "g": ("FixedString(3)", "['a', 'b', '']", [b"a\0\0", b"b\0\0", b"\0\0\0"]),
        "h": ("Date32", "['1969-12-31', '1970-01-02', '2024-01-01']", [-1, 1, 19723]),
        "i": (
            "DateTime64(6, 'UTC')",
            "arrayMap(n -> fromUnixTimestamp64Micro(n), [-1, 0, 1000000])",
            [-1, 0, 1_000_000],
        ),
        "j": (
            "UUID",
            f"['{UUID(int=1)}', '{UUID(int=2**127 + 5)}', '{UUID(int=1)}']",
            [UUID(int=n).bytes for n in (1, 2**127 + 5, 1)],
        ),
        "k": ("Array(Nullable(Int8))", "[[1, NULL], [], [2]]", [[1, None], [], [2]]),
        "l": (
            "Map(String, Array(UInt8))",
            "[map('k', [1], 'l', []), map(), map('k', [])]",
            [[(b"k", [1]), (b"l", [])], [], [(b"k", [])]],
        ),
        "m": (
            "Tuple(x Int8, y Nullable(String))",
            "[(1, 'a'), (2, NULL), (3, '')]",
            [(1, b"a"), (2, None), (3, b"")],
        ),
    }
    wanted = columns({name: text for name, (text, _, _) in given_values.items()})
    arrays = ", ".join(
        f"arrayElement(CAST({sql} AS Array({text})), number + 1) AS {name}"
        for name, (text, sql, _) in given_values.items()
    )
    found = asked(clickhouse, wanted, f"(SELECT {arrays} FROM numbers(3))")[0]

    types = [c.type for c in found.columns]
    values = [given_values[c.name][2] for c in found.columns]
    assert siphash(b"") == 0x1E924B9D737700D7
    assert [c.checksum for c in found.columns] == [
        column_checksum(v, of) for v, of in zip(values, types, strict=True)
    ]
    assert found.checksum == row_checksum(values, types)
    assert [c.nulls for c in found.columns] == [1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1]


def test_a_type_that_never_leaves_clickhouse_is_refused_as_a_bug() -> None:
    with pytest.raises(InternalError, match="no wire type"):
        digest_type(Simple("Int128"))


def test_a_figure_of_another_form_is_refused_as_a_bug() -> None:
    wanted = columns({"n": "Int64"})

    with pytest.raises(InternalError, match="the figure 'x'"):
        read_digest(wanted, (1, 2, "x", 0, 0, 0), tallies=False)
