"""`--evolve-schema`, and what a table of ours remembers: columns added later, conversions.

See docs/reference/existing-tables.md. ClickHouse, task code and catalog are the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, StructType

from catalog.clickhouse.rows.digests import FileDigests
from tableformat.errors import RefusedError
from tableformat.export.request import ById
from tableformat.iceberg.properties import remembered_source
from tableformat.messages import plain
from tests.support.real_export import RealExport
from tests.support.strangers_lake import (
    COLUMNS,
    EVENTS,
    ROWS,
    events,
    lake_schema,
    make,
    month,
    statuses,
)

SETTLED: Final = "SETTINGS mutations_sync = 2, alter_sync = 2"


@pytest.fixture(scope="module")
def digests() -> Iterator[FileDigests]:
    with FileDigests() as opened:
        yield opened


def test_a_table_that_lacks_columns_gets_them_when_that_is_allowed(exports: RealExport) -> None:
    """They are optional and come in a commit of their own, before the first file."""
    name = events(exports, columns=f"{EVENTS}, c Array(Tuple(x UInt8, y Map(String, UInt64)))")
    schema = lake_schema()
    narrow = StructType(NestedField(11, "b", StringType()))
    lacking = Schema(
        *(
            NestedField(2, "n", narrow) if f.name == "n" else f
            for f in schema.fields
            if f.name != "s"
        )
    )
    make(exports, name, lacking, partition_spec=month(lacking))
    with pytest.raises(RefusedError, match="--evolve-schema adds it") as refused:
        exports.run(name)
    before = exports.lake(name)
    seen: list[int] = []
    exports.before = lambda *_: seen.append(exports.lake(name).metadata.current_schema_id)

    assert statuses(exports, name, evolve_schema=True) == ["committed"] * 2

    exports.before = lambda *_: None
    after = exports.lake(name)
    assert str(refused.value).count("--evolve-schema adds it") == 3
    assert seen == [1]
    assert [f.name for f in after.schema().fields] == ["n", "id", "ts", "s", "c"]
    assert not any(after.schema().find_field(n).required for n in ("s", "c", "n.a"))
    old = {n: before.schema().find_field(n).field_id for n in before.schema().column_names}
    assert {n: after.schema().find_field(n).field_id for n in old} == old
    rows = [(i, s, {"b": n["b"], "a": n["a"]}) for i, s, n in ROWS]
    assert exports.in_lake(name, COLUMNS) == rows
    assert statuses(exports, name, evolve_schema=True) == ["already_exported"] * 2
    assert len(exports.lake(name).schemas()) == 2


def test_a_table_of_ours_remembers_what_it_was_given_later(exports: RealExport) -> None:
    """Harm prevented: what the table says of its source is not what it holds."""
    name = events(exports)
    assert statuses(exports, name) == ["committed"] * 2
    exports.clickhouse.command(
        f"ALTER TABLE {name.sql} ADD COLUMN later Decimal(9, 2) DEFAULT id / 2 COMMENT 'half'"
    )
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} (ts, id) SELECT toDateTime('2024-03-01', 'UTC'), 7"
    )

    assert statuses(exports, name, evolve_schema=True)[-1] == "committed"

    table = exports.lake(name)
    remembered = remembered_source(table.properties)
    assert remembered is not None
    assert remembered.table.columns == exports.clickhouse.source.describe(name).columns
    assert table.schema().find_field("later").doc == "half"
    assert max(exports.in_lake(name, "id, later")) == (7, Decimal("3.50"))


EXPRESSIONS: Final = (
    f"{EVENTS}, d Int64 DEFAULT id + 1, m Int64 MATERIALIZED id * 2, al Int64 ALIAS id"
)


def test_another_expression_of_the_source_is_noted_by_any_export(exports: RealExport) -> None:
    """Harm prevented: UPDATE and DELETE in the lake compute with the expressions of before."""
    name = events(exports, columns=EXPRESSIONS)
    assert statuses(exports, name) == ["committed"] * 2
    before = exports.lake(name)
    # The same expression in other words is no change.
    exports.clickhouse.command(f"ALTER TABLE {name.sql} MODIFY COLUMN m MATERIALIZED (id * 2)")
    assert statuses(exports, name) == ["already_exported"] * 2
    assert exports.lake(name).metadata_location == before.metadata_location
    for one in ("d DEFAULT id + 9", "m MATERIALIZED id * 3", "al Int64 ALIAS id + 100"):
        exports.clickhouse.command(f"ALTER TABLE {name.sql} MODIFY COLUMN {one} {SETTLED}")

    notes: list[str] = []

    assert statuses(exports, name, note=notes.append) == ["already_exported"] * 2

    after = exports.lake(name)
    remembered = remembered_source(after.properties)
    assert remembered is not None
    assert remembered.table.columns == exports.clickhouse.source.describe(name).columns
    assert [n.rpartition(" as ")[2] for n in notes] == ["the source has it now: columns"]
    assert after.metadata.current_snapshot_id == before.metadata.current_snapshot_id
    assert after.schemas() == before.schemas()
    assert statuses(exports, name) == ["already_exported"] * 2
    assert exports.lake(name).metadata_location == after.metadata_location


def test_another_expression_of_another_source_is_noted_if_allowed(
    exports: RealExport,
) -> None:
    """Harm prevented: statements in the lake compute rows of one table as those of the other."""
    one, other = events(exports, columns=EXPRESSIONS), events(exports, columns=EXPRESSIONS)
    assert statuses(exports, one) == ["committed"] * 2
    before = exports.lake(one).metadata_location
    exports.clickhouse.command(f"ALTER TABLE {other.sql} MODIFY COLUMN al Int64 ALIAS id + 100")

    with pytest.raises(RefusedError, match="column al") as refused:
        exports.run(other, to=one)

    assert "ALIAS id + 100" in refused.value.message
    assert "--evolve-schema" in plain(refused.value.message)
    assert exports.lake(one).metadata_location == before
    done = statuses(exports, other, to=one, evolve_schema=True, alongside=True)
    assert done == ["committed"] * 2
    remembered = remembered_source(exports.lake(one).properties)
    assert remembered is not None
    assert [c.default_expression for c in remembered.table.columns][-1] == "id + 100"
    assert str(remembered.table.name) == str(one)


def test_types_that_are_wider_now_are_widened_and_no_value_changes(exports: RealExport) -> None:
    """Files that hold the narrower type stay: Iceberg's promotions read them."""
    name = events(exports, columns=f"{EVENTS}, a Int32, f Float32, d Decimal(5, 2)")
    assert statuses(exports, name) == ["committed"] * 2
    before = exports.in_lake(name, "id, a, f, d")
    for column in ("a Int64", "f Float64", "d Decimal(9, 2)"):
        exports.clickhouse.command(f"ALTER TABLE {name.sql} MODIFY COLUMN {column}")
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} (ts, id, a, f, d) SELECT toDateTime('2024-03-01', 'UTC'), 9,"
        " 9000000000, 1e300, 1234567.25"
    )
    with pytest.raises(RefusedError, match="--evolve-schema widens it") as refused:
        exports.run(name)
    assert str(refused.value).count("--evolve-schema widens it") == 3

    assert statuses(exports, name, evolve_schema=True)[-1] == "committed"

    table = exports.lake(name)
    kinds = [str(table.schema().find_field(n).field_type) for n in ("a", "f", "d")]
    assert kinds == ["long", "double", "decimal(9, 2)"]
    added = (9, 9000000000, 1e300, Decimal("1234567.25"))
    assert exports.in_lake(name, "id, a, f, d") == [*before, added]
    remembered = remembered_source(table.properties)
    assert remembered is not None
    assert remembered.table.columns == exports.clickhouse.source.describe(name).columns
    assert len(table.schemas()) == 2


@pytest.mark.parametrize("verify", [True, False])
def test_wider_types_leave_rows_equal(
    exports: RealExport, digests: FileDigests, *, verify: bool
) -> None:
    """Harm prevented: every partition is exported again, or called wrong, for wider types."""
    more = "a Int32, f Float32, d Decimal(5, 2), e Array(Float32), t Tuple(x Int32, y Decimal(5,2))"
    name = events(exports, columns=f"{EVENTS}, {more}")
    exports.clickhouse.command(
        f"ALTER TABLE {name.sql} UPDATE a = id * -7, f = id / 10, d = id / 4,"
        f" e = [id / 3, nan, -0.0], t = (id, id / 8) WHERE 1 {SETTLED}"
    )
    exports.run(name, verify=verify)
    wider = (
        "a Int64", "f Float64", "d Decimal(12, 2)", "e Array(Float64)",
        "t Tuple(x Int64, y Decimal(12, 2))",
    )  # fmt: skip
    for column in wider:
        exports.clickhouse.command(f"ALTER TABLE {name.sql} MODIFY COLUMN {column} {SETTLED}")

    found = exports.run(name, evolve_schema=True, check_rows=True)
    compared = exports.verify(name, digests)

    assert {o.status.value for o in found} == {"already_exported"}
    assert all("its parts changed, its rows are the same" in o.message for o in found)
    assert {(c.verdict.value, c.compared_with) for c in compared} == {("equal", "source")}


@pytest.mark.parametrize("verify", [True, False])
def test_rows_are_not_the_same_where_the_table_lost_a_column_meanwhile(
    exports: RealExport, *, verify: bool
) -> None:
    """Harm prevented: rows are called the same while the lake reads NULL."""
    name = events(exports)
    exports.run(name, verify=verify)
    exports.clickhouse.command(f"ALTER TABLE {name.sql} UPDATE s = s WHERE 1 {SETTLED}")
    with exports.lake(name).update_schema() as update:
        update.delete_column("s")

    found = exports.run(name, evolve_schema=True, check_rows=True)

    assert exports.in_lake(name, "id, s") == [(i, None) for i in range(5)]
    assert {o.status.value for o in found} == {"refused"}
    assert all("Use --force to replace it" in plain(o.message) for o in found)


def test_a_note_names_the_lake_column_that_prevents_a_comparison(exports: RealExport) -> None:
    name = events(exports, columns=f"{EVENTS}, more Nullable(String)")
    exports.run(name)
    exports.clickhouse.command(f"ALTER TABLE {name.sql} DROP COLUMN more {SETTLED}")
    exports.clickhouse.command(f"ALTER TABLE {name.sql} UPDATE s = s WHERE 1 {SETTLED}")
    notes: list[str] = []

    found = exports.run(name, check_rows=True, note=notes.append)

    assert {o.status.value for o in found} == {"refused"}
    assert [text for text in notes if "could not be compared" in text] == [
        f"partition {one}: its rows could not be compared with those exported: only the lake table"
        " has more"
        for one in ("202401", "202402")
    ]


def test_a_renamed_column_is_found_again_once_the_table_has_its_name(exports: RealExport) -> None:
    name = events(exports)
    assert statuses(exports, name) == ["committed"] * 2
    exports.clickhouse.command(f"ALTER TABLE {name.sql} RENAME COLUMN s TO path")
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} (ts, id, path) SELECT toDateTime('2024-03-01', 'UTC'), 9, 'new'"
    )
    with pytest.raises(RefusedError, match="RENAME COLUMN s TO path; otherwise"):
        exports.run(name)

    with exports.lake(name).update_schema() as change:
        change.rename_column("s", "path")

    assert statuses(exports, name)[-1] == "committed"
    assert [f.name for f in exports.lake(name).schema().fields] == ["ts", "id", "path", "n"]
    assert exports.in_lake(name, "id, path")[-1] == (9, "new")


def test_conversions_hold_for_a_table_until_its_end(exports: RealExport) -> None:
    """Harm prevented: one column with values of two meanings, or a command that fails next time."""
    columns = "ts DateTime('UTC'), id UInt32, s String, n Tuple(a UInt8, b String)"
    name = events(exports, columns=columns)
    january, february = (p.partition_id for p in exports.clickhouse.source.partitions(name))

    assert statuses(exports, name, selection=ById(january), conversions={"s": "binary"}) == [
        "committed"
    ]
    assert statuses(exports, name, selection=ById(february)) == ["committed"]
    for given, was in (
        ({"s": "string"}, "with --convert s=binary"),
        ({"n": "binary"}, "without a"),
    ):
        with pytest.raises(RefusedError, match=f"was created {was}") as refused:
            exports.run(name, conversions=given)
        assert refused.value.code == 36

    assert exports.in_lake(name, "s") == [(str(i).encode(),) for i in range(5)]
    remembered = remembered_source(exports.lake(name).properties)
    assert remembered is not None
    assert remembered.conversions == {"s": "binary"}


@pytest.mark.parametrize(
    ("before", "now", "conversions", "held"),
    [
        ("DateTime64(9)", "DateTime64(3)", {"x": "long"}, "ticks of 10^-9 s since 1970"),
        ("DateTime64(3)", "String", {"x": "string"}, "text of a DateTime64 in UTC"),
        ("Dynamic", "String", {"x": "string"}, "JSON text of a value of any type"),
    ],
)
def test_no_column_gets_values_of_another_meaning(
    exports: RealExport, before: str, now: str, conversions: dict[str, str], held: str
) -> None:
    """Harm prevented: a number is nanoseconds in one row and milliseconds in the next."""
    name = events(exports, columns=f"{EVENTS}, x {before}")
    assert statuses(exports, name, conversions=conversions) == ["committed"] * 2
    snapshot = exports.lake(name).metadata.current_snapshot_id
    exports.clickhouse.command(f"ALTER TABLE {name.sql} MODIFY COLUMN x {now} {SETTLED}")
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} (ts, id) SELECT toDateTime('2024-03-01', 'UTC'), 7"
    )

    for evolve_schema in (False, True):
        with pytest.raises(RefusedError, match="column x holds ") as refused:
            exports.run(name, evolve_schema=evolve_schema)
        assert held in str(refused.value)
        assert refused.value.code == 122

    assert exports.lake(name).metadata.current_snapshot_id == snapshot
