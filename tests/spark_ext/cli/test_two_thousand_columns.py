"""A table of 2,000 columns goes through every command, not only through the export."""

from __future__ import annotations

import json
from typing import Final

import pytest

from catalog.iceberg.catalogs import open_catalog
from tableformat.names import LakeName
from tests.wrong.places import Places

pytestmark = pytest.mark.nightly

_TO: Final = "lake.n.wide"
_TYPES: Final = ("Int64", "String", "Nullable(Float64)", "DateTime64(3, 'UTC')", "Decimal(18, 4)")
_NAMES: Final = tuple(f"column_{i}" for i in range(2_000))
_TYPE_OF: Final = {name: _TYPES[i % len(_TYPES)] for i, name in enumerate(_NAMES)}
_ROWS: Final = ", ".join(
    f"CAST((number + {i}) % 100 AS {_TYPE_OF[name]})" for i, name in enumerate(_NAMES)
)
_BAD: Final = _NAMES[1_996]


def run(places: Places, *words: str) -> tuple[int, list[dict[str, object]], str]:
    code, out, err = places.run(*words, "--json")
    found = [json.loads(line) for line in out.splitlines()]
    return code, [one for one in found if "partition_id" in one], err


def rows_of(places: Places, to: str) -> int:
    lake = open_catalog("lake", warehouse=places.warehouse).table(LakeName.parse(to))
    return sum(t.file.record_count for t in lake.loaded.scan().plan_files()) if lake else 0


@pytest.fixture
def wide(places: Places) -> Places:
    """Make a table of 2,000 columns: of partition 3 each row is there twice, 4 has a bad text."""
    places.reads_parts = True
    columns = ", ".join(f"{name} {of}" for name, of in _TYPE_OF.items())
    places.clickhouse_run(
        "SET max_query_size = 100000000, max_ast_elements = 10000000",
        "DROP TABLE IF EXISTS db.wide SYNC",
        f"CREATE TABLE db.wide (p UInt8, id UInt32, {columns}) ENGINE = MergeTree PARTITION BY p"
        " ORDER BY id",
        *(
            f"INSERT INTO db.wide SELECT {p}, number, {_ROWS} FROM numbers(100) SETTINGS"
            " max_query_size = 100000000, max_ast_elements = 10000000"
            for p in (1, 2, 3, 3)
        ),
        f"INSERT INTO db.wide (p, id, {_BAD}) VALUES (4, 1, unhex('FF'))",
    )
    return places


@pytest.mark.timeout(900)
def test_two_thousand_columns_are_exported_verified_and_archived(wide: Places) -> None:
    """Harm prevented: what can be exported can neither be compared nor archived."""
    words = ("--partition-id", "1", "--to", _TO)

    code, (exported,), err = run(wide, "export", "db.wide", *words, "--verify")
    assert (code, exported["status"], exported["verified"]) == (0, "committed", True), err
    code, (compared,), err = run(wide, "verify", "db.wide", *words)
    assert (code, compared["verdict"], compared["columns"]) == (0, "equal", 2_002), err
    code, (archived,), err = run(wide, "archive", "db.wide", "--partition-id", "2", "--to", _TO)
    assert (code, archived["source"]) == (0, "detached"), err

    code, (refused,), err = run(wide, "export", "db.wide", "--partition-id", "4", "--to", _TO)
    assert (code, refused["status"]) == (3, "refused"), err
    assert f"column {_BAD}: " in str(refused["message"])
    assert "in 1 row, for example FF" in str(refused["message"])
    assert rows_of(wide, _TO) == 200


@pytest.mark.timeout(900)
def test_rows_of_two_thousand_columns_are_changed_and_deduplicated(wide: Places) -> None:
    to, one = "lake.n.wider", ("--partition-id", "3")
    code, _, err = run(wide, "export", "db.wide", *one, "--to", to)
    assert (code, rows_of(wide, to)) == (0, 200), err

    for words, rows in (
        (("optimize", to, *one, "--deduplicate", "--final"), 100),
        (("update", to, *one, "--set", f"{_NAMES[0]} = 7", "--where", "id = 1"), 100),
        (("delete", to, *one, "--where", "id = 2"), 99),
        (("clear-column", to, *one, "--column", _NAMES[1]), 99),
    ):
        code, out, err = wide.run(*words, "--warehouse", str(wide.warehouse))
        assert code == 0, (words, out, err)
        assert rows_of(wide, to) == rows, (words, out, err)
