"""`mergeberg.system.parts` and `partitions`: the lake tables that exports go to (P-03, P-74)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_ext.system_tables import (
    PARTITIONS,
    PARTS,
    LakePart,
    partition_rows,
    parts_of_files,
)
from tableformat.iceberg.manifest_scan import LiveFile
from tableformat.names import LakeName, PartName, TableName
from tests.faults.test_operator_actions import compact
from tests.support.real_export import RealExport
from tests.support.scenarios import Partitions, parts_of, pyiceberg, run
from tests.support.system_tables import asked, session_of


def of_table(exports: RealExport, name: TableName) -> list[dict[str, Any]]:
    found = asked(PARTS, session_of(exports.warehouse))
    return [r for r in found if r["table"] == f"lake.n.{name.name}"]


def by_partition(exports: RealExport, name: TableName) -> list[dict[str, Any]]:
    found = asked(PARTITIONS, session_of(exports.warehouse))
    return [r for r in found if r["table"] == f"lake.n.{name.name}"]


def test_a_part_is_a_data_file_with_its_source_parts(exports: RealExport) -> None:
    name = exports.clickhouse.filled()
    exports.clickhouse.insert(name, first=100, rows=20)
    exports.run(name)

    found = of_table(exports, name)

    files = {f.file_path: f for f in exports.data_files(name)}
    assert {r["file_path"] for r in found} == files.keys()
    assert all(r["rows"] == files[r["file_path"]].record_count for r in found)
    assert all(r["bytes"] == files[r["file_path"]].file_size_in_bytes for r in found)
    held = {(r["partition_id"], r["partition"]): set(r["source_parts"]) for r in found}
    assert held == {("0", "p=0"): {"0_1_1_0", "0_3_3_0"}, ("1", "p=1"): {"1_2_2_0", "1_4_4_0"}}
    for row in found:
        assert re.fullmatch(rf"{row['partition_id']}_(\d+)_\1_0", row["name"])
        assert str(PartName.parse(row["name"])) == row["name"]


def test_partitions_are_the_sums_of_their_parts(exports: RealExport) -> None:
    name = exports.clickhouse.filled()
    exports.run(name)

    parts = of_table(exports, name)

    assert sorted(
        (r["partition_id"], r["partition"], r["parts"], r["rows"], r["bytes"])
        for r in by_partition(exports, name)
    ) == sorted((p["partition_id"], p["partition"], 1, 50, p["bytes"]) for p in parts)


def test_what_is_not_in_main_is_not_there(exports: RealExport) -> None:
    """Harm prevented: rows of an export that did not land are taken for rows of the lake."""
    name = exports.clickhouse.filled()

    def look(*_: object) -> None:
        assert of_table(exports, name) == []

    exports.before = look
    try:
        exports.run(name)
    finally:
        exports.before = lambda *_: None

    assert len(of_table(exports, name)) == 2
    catalog = exports.lake(name).catalog
    catalog.drop_table(f"n.{name.name}")
    assert of_table(exports, name) == by_partition(exports, name) == []


def in_directory(directory: Path) -> list[dict[str, Any]]:
    return asked(PARTS, session_of(directory / "warehouse", directory / "ledger.db"))


def test_the_name_of_a_part_stays_when_other_parts_come_and_go(tmp_path: Path) -> None:
    """Harm prevented: DROP PART with a name that was looked up a minute ago drops other rows."""
    source = Partitions(by_id={"p1": parts_of("p1", 7)})
    run(tmp_path, source)
    (before,) = in_directory(tmp_path)
    source.by_id["p2"] = parts_of("p2", 3)
    run(tmp_path, source)

    named = {r["file_path"]: r["name"] for r in in_directory(tmp_path)}

    assert len(named) == len(set(named.values())) == 2
    assert named[before["file_path"]] == before["name"]


def test_foreign_files_have_the_partition_of_their_neighbours_or_none(tmp_path: Path) -> None:
    """Harm prevented: a partition id that was guessed."""
    run(tmp_path, Partitions(by_id={"p1": parts_of("p1", 7)}))
    table = pyiceberg(tmp_path)
    table.append(pa.table([pa.array(range(4))], table.schema().as_arrow()))
    own, other = sorted(in_directory(tmp_path), key=lambda r: r["rows"], reverse=True)
    assert (own["partition_id"], other["partition_id"]) == ("p1", "p1")
    assert (len(own["source_parts"]), other["source_parts"]) == (1, ())

    compact(tmp_path)

    (one,) = in_directory(tmp_path)
    assert (one["partition_id"], one["name"], one["source_parts"]) == (None, None, ())


files = st.builds(
    LiveFile,
    path=st.text(max_size=5),
    key=st.just(""),
    spec_id=st.integers(0, 1),
    partition=st.sampled_from(["p=1", "p=2"]),
    rows=st.integers(0, 9),
    bytes=st.integers(0, 9),
    snapshot_id=st.just(1),
)


@given(st.lists(files, max_size=6, unique_by=lambda file: file.path), st.sampled_from("ab"))
def test_no_file_is_left_out_of_the_partitions(found: list[LiveFile], partition: str) -> None:
    parts = [
        LakePart(one.table, partition if one.file.spec_id else None, one.file, one.source_parts)
        for one in parts_of_files(LakeName("lake", ("n",), "t"), found, ())
    ]

    rows = list(partition_rows(parts))

    assert len({row[:3] for row in rows}) == len(rows)
    sums = [sum(int(str(row[at])) for row in rows) for at in (3, 4, 5)]
    assert sums == [len(found), sum(f.rows for f in found), sum(f.bytes for f in found)]
