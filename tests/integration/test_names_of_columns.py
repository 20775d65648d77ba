"""Columns keep their names in the lake, whatever they are called and whatever type they have."""

from __future__ import annotations

import json

import pytest

from tableformat.errors import RefusedError
from tests.support.real_export import RealExport

KEYS = "ENGINE = MergeTree ORDER BY tuple()"
WEIRD = ("a b", "x.y", "1", "ü😀", "select", "Type", 'q"q', "back\\slash", "tick`", "a\nb")


def quoted(name: str) -> str:
    return f"`{name.replace(chr(92), chr(92) * 2).replace('`', chr(92) + '`')}`"


def test_nested_members_are_lists_of_their_own_or_one_list_of_structs(exports: RealExport) -> None:
    """As ClickHouse stores them: flatten_nested decides when the table is made."""
    columns = "n Nested(a UInt8, `b b` IPv4, j JSON), k UInt8"
    flat = exports.clickhouse.table(KEYS, columns)
    whole = exports.clickhouse.table(f"{KEYS} SETTINGS flatten_nested = 0", columns)
    exports.clickhouse.command(
        f"INSERT INTO {flat.sql} SELECT [1, 2], ['1.1.1.1', '2.2.2.2'], ['{{}}', '{{\"x\":1}}'], 3"
    )
    exports.clickhouse.command(
        f"INSERT INTO {whole.sql} SELECT [(1, '1.1.1.1', '{{}}'), (2, '2.2.2.2', '{{\"x\":1}}')], 3"
    )

    assert exports.run(flat)[0].status.value == "committed"
    assert exports.run(whole)[0].status.value == "committed"

    assert exports.lake(flat).scan().to_arrow().to_pylist() == [
        {"n.a": [1, 2], "n.b b": ["1.1.1.1", "2.2.2.2"], "n.j": ["{}", '{"x":1}'], "k": 3}
    ]
    assert exports.lake(whole).scan().to_arrow().to_pylist() == [
        {
            "n": [
                {"a": 1, "b b": "1.1.1.1", "j": "{}"},
                {"a": 2, "b b": "2.2.2.2", "j": '{"x":1}'},
            ],
            "k": 3,
        }
    ]


def test_names_of_columns_and_members_stay_as_they_are(exports: RealExport) -> None:
    """Also where an expression, not a cast, gives the value."""
    members = ", ".join(f"{quoted(name)} JSON" for name in WEIRD)
    columns = ", ".join(
        [
            *(f"{quoted(f'{name}~')} UUID" for name in WEIRD),
            f"t Tuple({members}), v Variant(UUID, UInt8)",
        ]
    )
    name = exports.clickhouse.table(KEYS, columns)
    exports.clickhouse.command(f"INSERT INTO {name.sql} (v) VALUES (7)")

    (outcome,) = exports.run(name, conversions={f"{n}~": "binary" for n in WEIRD})

    assert (outcome.status.value, outcome.message) == ("committed", "")
    (row,) = exports.lake(name).scan().to_arrow().to_pylist()
    assert list(row) == [*(f"{n}~" for n in WEIRD), "t", "v"]
    assert row["t"] == dict.fromkeys(WEIRD, "{}")
    assert row["v"] == {"type": "UInt8", "UInt8": 7, "UUID": None}
    assert {row[f"{n}~"] for n in WEIRD} == {b"\0" * 16}


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("a UInt8, A JSON", "columns A and a: the names differ only in case"),
        ("v Variant(UInt8, String), `v.type` UInt8", r"column v.type: two fields have this name"),
        ("`1` UInt8, `_1` IPv4", "columns 1 and _1: both are written as _1"),
        ("p Point, `p.x` UInt8", r"column p\.x: two fields have this name"),
        ("t Tuple(a JSON, A JSON)", r"t\.A and t\.a: the names differ only in case"),
    ],
)
def test_names_that_readers_cannot_distinguish_are_refused(
    exports: RealExport, columns: str, why: str
) -> None:
    name = exports.clickhouse.table(KEYS, columns)
    exports.clickhouse.command(f"INSERT INTO {name.sql} SELECT * FROM {name.sql} LIMIT 0")

    with pytest.raises(RefusedError, match=why):
        exports.run(name)


def test_a_lake_table_remembers_how_its_columns_were_converted(exports: RealExport) -> None:
    name = exports.clickhouse.table(KEYS, "d Decimal(5, 2), s AggregateFunction(sum, UInt64)")
    exports.clickhouse.command(f"INSERT INTO {name.sql} SELECT 1, sumState(toUInt64(2))")

    exports.run(name, conversions={"d": "decimal(12, 2)", "s": "finalize"})

    kept = json.loads(exports.lake(name).properties["mergeberg.source.columns"])
    assert [(c["name"], c["convert"]) for c in kept] == [("d", "decimal(12,2)"), ("s", "finalize")]


def test_a_label_that_is_renamed_later_stays_in_the_lake_as_it_was(exports: RealExport) -> None:
    """ClickHouse renames the label of old rows too; the lake keeps what was exported."""
    name = exports.clickhouse.table(
        "ENGINE = MergeTree PARTITION BY p ORDER BY tuple()", "p UInt8, e Enum8('old' = 1)"
    )
    exports.clickhouse.command(f"INSERT INTO {name.sql} VALUES (1, 'old')")
    exports.run(name)
    exports.clickhouse.command(f"ALTER TABLE {name.sql} MODIFY COLUMN e Enum8('new' = 1)")
    exports.clickhouse.command(f"INSERT INTO {name.sql} VALUES (2, 'new')")

    exports.run(name)

    assert exports.in_source(name, "p, e") == [(1, "new"), (2, "new")]
    assert exports.in_lake(name, "p, e") == [(1, "old"), (2, "new")]
