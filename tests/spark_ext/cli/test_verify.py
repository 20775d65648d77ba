"""`mergeberg verify` and `export --verify` tell people and programs whether the lake is right.

docs/operating/verify.md. What is compared with what: tests/integration/test_verify_later.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlparse

import pytest

from catalog.iceberg.catalogs import open_catalog
from tableformat.names import LakeName
from tests.support.damaged_files import damage_when_committed, lose_a_row, lose_the_end
from tests.wrong.places import Places

TABLE = "db.verified"
TO = "lake.n.verified"


@pytest.fixture
def exported(places: Places) -> tuple[str, str]:
    """Make and export a table with 3 rows in partition 1 and 2 in partition 2, once."""
    places.reads_parts = True
    if not (places.warehouse / "n" / "verified").exists():
        places.clickhouse_run(
            f"CREATE TABLE {TABLE} (p UInt8, id Int64, s String) ENGINE = MergeTree"
            " PARTITION BY p ORDER BY id",
            f"INSERT INTO {TABLE} VALUES (1, 1, 'a'), (1, 2, 'b'), (1, 3, ''), (2, 4, 'd'),"
            " (2, 5, 'e')",
        )
        code, out, err = places.run("export", TABLE, "--all", "--to", TO, "--verify")
        assert code == 0, err
        assert [line.endswith(" · verified") for line in out.splitlines()] == [True, True, False]
    return TABLE, TO


def first_file(places: Places, to: str) -> Path:
    """Return the data file of partition 1."""
    lake = open_catalog("lake", warehouse=places.warehouse).table(LakeName.parse(to))
    assert lake is not None
    tasks = sorted(lake.loaded.scan().plan_files(), key=lambda task: task.file.record_count)
    return Path(urlparse(tasks[-1].file.file_path).path)


def test_equal_partitions_end_with_0_and_say_what_was_compared(
    places: Places, exported: tuple[str, str]
) -> None:
    table, to = exported

    code, out, err = places.run("verify", table, "--all", "--to", to, "--json")
    plain = places.run("verify", table, "--partition", "1", "--to", to)

    *found, summary = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert summary["summary"]["partitions"] == {"equal": 2}
    assert {k: v for k, v in found[0].items() if k not in ("seconds", "rows_per_second")} == {
        "partition_id": "1",
        "verdict": "equal",
        "message": "",
        "compared_with": "source",
        "rows": 3,
        "data_files": 1,
        "columns": 3,
        "differences": [],
        "code": None,
        "table": to,
    }
    assert found[0]["rows_per_second"] > 0
    assert [c["partition_id"] for c in found] == ["1", "2"]
    assert plain[0] == 0
    assert plain[1].startswith("partition 1: equal · 3 rows · 3 columns · 1 file")


def test_a_difference_ends_with_1_and_every_figure(
    places: Places, exported: tuple[str, str]
) -> None:
    """Harm prevented: a lost row, and a script that goes on."""
    table, to = exported
    path = first_file(places, to)
    whole = path.read_bytes()
    lose_a_row(path)
    try:
        code, out, err = places.run("verify", table, "--all", "--to", to)
        _, listed, _ = places.run("verify", table, "--partition-id", "1", "--to", to, "--json")
    finally:
        path.write_bytes(whole)

    assert code == 1
    assert "partition 1: differs · 3 rows · " in out
    assert "  - rows 3 in the source, 2 in the lake\n" in out
    assert "partition 2: equal" in out
    assert err.startswith("Next: mergeberg exports list --warehouse ")
    differences = json.loads(listed)["differences"]
    assert differences[0] == {"column": "", "figure": "rows", "expected": "3", "found": "2"}
    assert {d["column"] for d in differences} == {"", "id", "p", "s"}


def test_a_partition_that_was_never_exported_ends_with_3_when_it_is_named(
    places: Places, exported: tuple[str, str]
) -> None:
    table, to = exported
    places.clickhouse_run(f"INSERT INTO {table} VALUES (3, 1, 'new')")

    code, out, _ = places.run("verify", table, "--partition-id", "3", "--to", to)
    every, _, _ = places.run("verify", table, "--all", "--to", to)
    places.clickhouse_run(f"ALTER TABLE {table} DROP PARTITION 3")

    assert (code, every) == (3, 0)
    assert out == (
        "partition 3: not exported: the ledger knows no export of it into lake.n.verified\n"
    )


@pytest.mark.parametrize(
    ("damage", "code", "status", "message"),
    [
        (
            lose_a_row,
            1,
            "differs",
            "it is in main, but differs from the source snapshot: rows 3 in the",
        ),
        (
            lose_the_end,
            4,
            "unverified",
            "it is in main, and could not be verified: Cannot verify",
        ),
    ],
)
def test_an_export_that_is_verified_reports_what_the_lake_lacks(
    places: Places,
    exported: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], None],
    code: int,
    status: str,
    message: str,
) -> None:
    """Harm prevented: a disk that loses rows after the export has counted them."""
    table, _ = exported
    damage_when_committed(monkeypatch, damage)

    words = ("--partition-id", "1", "--to", f"lake.n.v_{status}", "--verify", "--json")
    found, out, _ = places.run("export", table, *words)
    outcome = json.loads(out)

    assert (found, outcome["status"], outcome["verified"]) == (code, status, False)
    assert outcome["message"].startswith(message)
    assert outcome["snapshot_id"] is not None


def test_what_cannot_be_verified_is_not_called_an_export(
    places: Places, exported: tuple[str, str]
) -> None:
    table, to = exported

    code, _, err = places.run("verify", table, "--all", "--to", to, "--convert", "s=binary")

    assert code == 3
    assert f"Cannot verify {table} in {to}: --convert s=binary was given, but the dest" in err
