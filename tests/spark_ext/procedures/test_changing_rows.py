"""UPDATE, DELETE and CLEAR COLUMN on lake tables do what they do in ClickHouse."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.types import IntegerType

from catalog.iceberg.catalogs import open_catalog
from tableformat.errors import RefusedError, UnsupportedError
from tests.support.other_engines import delete_first_row
from tests.support.session_lake import ALLOWED, alter, export_all, opened, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

TYPED = (
    "CREATE TABLE db.typed (p UInt8, id UInt64, i8 Int8, u64 UInt64, d Decimal(20, 4), f Float64,"
    " s String, n Nullable(Int32), dt DateTime('Europe/Berlin'), dt64 DateTime64(3, 'UTC'),"
    " day Date, e Enum8('a' = 1, 'b' = 2), lc LowCardinality(String), arr Array(Nullable(Int32)),"
    " m Map(String, Int32), t Tuple(a Int32, b String), uu UUID, fs FixedString(4), ok Bool,"
    " `nest.a` Array(Int32), `nest.b` Array(String), dflt Int32 DEFAULT i8 + 1,"
    " mat Int64 MATERIALIZED i8 * 2, twice Int64 MATERIALIZED mat * 2, al String ALIAS upper(s))"
    " ENGINE = MergeTree PARTITION BY p ORDER BY id"
)
FILLED = (
    "INSERT INTO db.typed SELECT number % 3, number, number % 7, 18446744073709551615 - number,"
    " number / 8, number / 3, concat('s', toString(number)), if(number % 4 = 0, NULL, number),"
    " toDateTime('2024-03-31 00:30:00', 'UTC') + number * 1800, toDateTime64('2024-01-01', 3)"
    " + number / 10, toDate('2024-01-01') + number, if(number % 2 = 0, 'a', 'b'),"
    " toString(number % 2), [number, NULL], map('k', number), (number, toString(number)),"
    " toUUID('00000000-0000-0000-0000-000000000000'), toFixedString('ab', 4), number % 2,"
    " [number], [toString(number)], number FROM numbers(30)"
)
STATEMENTS = [
    "UPDATE s = concat(s, 'x'), i8 = i8 + 1 IN PARTITION 1 WHERE u64 % 2 = 0",
    "UPDATE n = NULL WHERE id % 2 = 0",
    "UPDATE n = n + 1 IN PARTITION ID '0' WHERE isNull(n) OR n > 5",
    "UPDATE arr = arrayConcat(arr, [7]), m = map('z', i8) WHERE e = 'b'",
    "UPDATE t = tuple(i8, s), uu = toUUID('12345678-1234-5678-1234-567812345678') WHERE ok",
    "UPDATE d = d * 2, f = d IN PARTITION 2 WHERE dt64 >= '2024-01-01 00:00:01'",
    "UPDATE dt = dt + 3600, day = toDate(dt) WHERE dt < '2024-03-31 03:30:00'",
    "UPDATE lc = upper(lc), e = 'b', fs = 'abcd' WHERE lc IN ('0', '7')",
    "UPDATE u64 = 18446744073709551615 WHERE al = 'S4'",
    "UPDATE i8 = 100 WHERE twice = 8",
    "UPDATE `nest.a` = [7] WHERE has(`nest.b`, '3')",
    "DELETE WHERE id % 3 = 0",
    "DELETE WHERE t.a > 20 OR arr.size0 = 3",
    "DELETE IN PARTITION 1 WHERE n > 9",
    "DELETE IN PARTITION 2 WHERE 1",
    "CLEAR COLUMN dflt IN PARTITION 1",
    "CLEAR COLUMN n",
    "CLEAR COLUMN t IN PARTITION 0",
    (
        "UPDATE s = CASE WHEN i8 > 3 THEN 'big' WHEN i8 = 0 THEN s ELSE concat(s, '!') END,"
        " i8 = id % 2 ? 1 : 2 WHERE arrayExists(x -> x > 20, arr) OR CASE e WHEN 'a' THEN ok END"
    ),
    "DELETE IN PARTITION tuple(1 + 1) WHERE arrayExists(id -> id > 25, arr)",
]
# Each of the others shows other types, or another command; of one kind one is enough for every run.
NIGHTLY = (
    "UPDATE n = NULL WHERE",
    "UPDATE arr = ",
    "UPDATE d = ",
    "UPDATE lc = ",
    "UPDATE i8 = 100",
    "DELETE WHERE id",
    "CLEAR COLUMN t ",
)
MEMBERS = (
    "CREATE TABLE db.members (id UInt64, s String, v Int32, pair Tuple(a Int32, b String),"
    " mat Tuple(a Int32) MATERIALIZED tuple(v), arr Array(Tuple(a Int32)),"
    " m Map(String, Tuple(a Int32)), n Nested(a Int32)) ENGINE = MergeTree ORDER BY id"
    " SETTINGS flatten_nested = 0"
)
SETS_MEMBERS = {
    "UPDATE pair = tuple(pair.a + 1, pair.b) WHERE id = 1": "pair.c",
    "CLEAR COLUMN pair": "pair.c",
    "UPDATE v = 7 WHERE id = 1": "mat.c",
    "UPDATE arr = [tuple(1)] WHERE id = 1": "arr.element.c",
    "UPDATE s = 'x', m = map('k', tuple(1)) WHERE id = 1": "m.value.c",
    "CLEAR COLUMN n": "n.element.c",
}
_NUMBERS = iter(range(1_000))


@pytest.fixture(autouse=True)
def _written(places: Places) -> None:
    """Let files be written of what is in the source."""
    places.reads_parts = True


@pytest.fixture
def typed(places: Places) -> str:
    """Make a table with thirty rows in three partitions; return a name for a lake table."""
    places.clickhouse_run("DROP TABLE IF EXISTS db.typed SYNC", TYPED, FILLED)
    return f"typed_{next(_NUMBERS)}"


def content(places: Places, name: str) -> pa.Table:
    """Return what a lake table has, as PyIceberg reads it, by id."""
    return opened(places, name).scan().to_arrow().sort_by("id")


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param(one, marks=pytest.mark.nightly if one.startswith(NIGHTLY) else ())
        for one in STATEMENTS
    ],
)
def test_it_leaves_what_clickhouse_leaves(
    places: Places, session: NoSpark, typed: str, statement: str
) -> None:
    """The same statement there, exported afterwards, gives the same values of every column."""
    export_all(session, "typed", typed)
    before = content(places, typed)

    rows = alter(session, f"ALTER TABLE lake.n.{typed} {statement}")

    assert [row["status"] for row in rows] == ["changed"]
    places.clickhouse_run(f"ALTER TABLE db.typed {statement} SETTINGS mutations_sync = 2")
    export_all(session, "typed", f"{typed}_after")
    after = content(places, f"{typed}_after")
    assert content(places, typed).to_pylist() == after.to_pylist()
    assert after.to_pylist() != before.to_pylist()


def test_only_files_with_such_rows_are_rewritten(
    places: Places, session: NoSpark, typed: str
) -> None:
    export_all(session, "typed", typed)
    before = {t.file.file_path for t in opened(places, typed).scan().plan_files()}

    (row,) = alter(session, f"ALTER TABLE lake.n.{typed} UPDATE s = 'x' WHERE id = 4")

    assert (row["status"], row["rows"], row["data_files"]) == ("changed", 1, 1)
    table = opened(places, typed)
    after = {t.file.file_path for t in table.scan().plan_files()}
    assert (len(before & after), len(after)) == (2, 3)
    assert table.scan(row_filter="id = 4").to_arrow().column("s").to_pylist() == ["x"]
    (snapshot,) = [s for s in table.metadata.snapshots if s.snapshot_id == row["snapshot_id"]]
    assert snapshot.parent_snapshot_id is not None
    assert rows_of(places, typed, snapshot.parent_snapshot_id) == 30


def test_what_changes_nothing_makes_no_snapshot(
    places: Places, session: NoSpark, typed: str
) -> None:
    export_all(session, "typed", typed)
    before = opened(places, typed).metadata.current_snapshot_id

    (row,) = alter(session, f"ALTER TABLE lake.n.{typed} DELETE WHERE s = 'nobody'")

    assert (row["status"], row["rows"]) == ("unchanged", 0)
    assert "nothing to do: no row of 30 changes" in str(row["message"])
    assert opened(places, typed).metadata.current_snapshot_id == before


def test_the_lightweight_forms_do_the_same(places: Places, session: NoSpark, typed: str) -> None:
    export_all(session, "typed", typed)

    (one,) = alter(session, f"UPDATE lake.n.{typed} SET s = 'y' IN PARTITION 1 WHERE id = 4")
    (two,) = alter(session, f"DELETE FROM lake.n.{typed} IN PARTITION 1 WHERE id = 7")

    assert [one["status"], two["status"]] == ["changed", "changed"]
    assert rows_of(places, typed) == 29


REFUSED = {
    "UPDATE id = 1 WHERE id = 2": 420,
    "UPDATE p = 1 WHERE id = 2": 420,
    "CLEAR COLUMN id IN PARTITION 1": 524,
    "UPDATE nothing = 1 WHERE id = 2": 16,
    "DELETE WHERE nothing = 2": 47,
    "CLEAR COLUMN nothing IN PARTITION 1": 10,
    "UPDATE mat = 1 WHERE id = 2": 420,
    "UPDATE i8 = 'text' WHERE id = 2": 6,
    "DELETE WHERE s": 36,
}


def test_what_clickhouse_refuses_is_refused_with_its_code(
    places: Places, session: NoSpark, typed: str
) -> None:
    export_all(session, "typed", typed)
    before = opened(places, typed).metadata.current_snapshot_id

    for statement, code in REFUSED.items():
        with pytest.raises(RefusedError) as refused:
            alter(session, f"ALTER TABLE lake.n.{typed} {statement}")

        assert (statement, refused.value.code) == (statement, code)
        assert opened(places, typed).metadata.current_snapshot_id == before


def test_a_column_that_may_not_be_there_is_no_error(session: NoSpark, typed: str) -> None:
    export_all(session, "typed", typed)

    (row,) = alter(
        session, f"ALTER TABLE lake.n.{typed} CLEAR COLUMN IF EXISTS nothing IN PARTITION 1"
    )

    assert row["status"] == "unchanged"


def test_functions_that_read_something_else_are_refused(session: NoSpark, typed: str) -> None:
    """Harm prevented: an UPDATE by which a user reads files of the machine that runs it."""
    export_all(session, "typed", typed)

    with pytest.raises(UnsupportedError, match="the function file reads"):
        alter(session, f"ALTER TABLE lake.n.{typed} UPDATE s = lower(file('/etc/passwd')) WHERE 1")


@pytest.mark.parametrize("condition", ["_partition_id = '1'", "_part = '1_1_1_0'"])
def test_parts_of_the_table_that_runs_it_are_not_taken_for_the_lakes(
    places: Places, session: NoSpark, typed: str, condition: str
) -> None:
    """Harm prevented: a statement that finds no row, and says so, although there are some."""
    export_all(session, "typed", typed)

    with pytest.raises(UnsupportedError, match="IN PARTITION"):
        alter(session, f"ALTER TABLE lake.n.{typed} DELETE WHERE {condition}")

    assert rows_of(places, typed) == 30


@pytest.mark.parametrize(
    ("statement", "column"),
    [
        ("UPDATE at = toDateTime64('2024-01-01 00:00:00.123456789', 9, 'UTC') WHERE 1", "at"),
        ("UPDATE s = unhex('ff') WHERE 1", "s"),
    ],
)
def test_values_that_the_lake_cannot_hold_are_refused(
    places: Places, session: NoSpark, statement: str, column: str
) -> None:
    """Harm prevented: digits that are cut off in silence."""
    places.clickhouse_run(
        "DROP TABLE IF EXISTS db.fine SYNC",
        "CREATE TABLE db.fine (id Int64, at DateTime64(9, 'UTC'), s String) ENGINE = MergeTree"
        " ORDER BY id",
        "INSERT INTO db.fine VALUES (1, '2024-01-01 00:00:00.123456', 'x')",
    )
    name = f"fine_{next(_NUMBERS)}"
    export_all(session, "fine", name)
    before = opened(places, name).metadata.current_snapshot_id

    with pytest.raises(RefusedError, match=f"column {column}: "):
        alter(session, f"ALTER TABLE lake.n.{name} {statement}")

    assert opened(places, name).metadata.current_snapshot_id == before


def test_what_is_deleted_is_not_kept_in_the_text_of_the_statement(
    places: Places, session: NoSpark, typed: str
) -> None:
    """Harm prevented: whom somebody wants to be forgotten is in the summary for ever."""
    export_all(session, "typed", typed)

    alter(session, f"ALTER TABLE lake.n.{typed} DELETE WHERE s = 's7'")

    snapshot = opened(places, typed).current_snapshot()
    assert snapshot is not None
    assert "s7" not in str(snapshot.summary)
    assert all(b"s7'" not in path.read_bytes() for path in places.warehouse.rglob("*.db*"))


@pytest.mark.representative
def test_an_export_neither_undoes_it_nor_stumbles_over_it(
    places: Places, session: NoSpark, typed: str
) -> None:
    """Harm prevented: rows that were deleted in the lake on purpose come back every night."""
    export_all(session, "typed", typed)
    alter(session, f"ALTER TABLE lake.n.{typed} DELETE IN PARTITION 1 WHERE id = 4")
    alter(session, f"ALTER TABLE lake.n.{typed} DELETE IN PARTITION 2 WHERE 1")

    rows = {row["partition_id"]: row for row in export_all(session, "typed", typed)}

    assert {row["status"] for row in rows.values()} == {"already_exported"}
    assert "DELETE IN PARTITION ID '1' changed it" in str(rows["1"]["message"])
    assert rows_of(places, typed) == 19
    places.clickhouse_run("ALTER TABLE db.typed UPDATE s = '' WHERE 1 SETTINGS mutations_sync = 2")
    with pytest.raises(RefusedError):
        export_all(session, "typed", typed)
    assert rows_of(places, typed) == 19


def test_force_brings_what_the_source_has(places: Places, session: NoSpark, typed: str) -> None:
    export_all(session, "typed", typed)
    alter(session, f"ALTER TABLE lake.n.{typed} DELETE IN PARTITION 1 WHERE id > 4")

    alter(
        session,
        f"ALTER TABLE ch.db.typed EXPORT PARTITION 1 TO TABLE lake.n.{typed} {ALLOWED},"
        " export_merge_tree_partition_force_export = 1",
    )

    assert rows_of(places, typed) == 30


def test_rows_of_others_are_changed_too_and_keep_their_partition(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    table = opened(places, dropped_from)
    arrow = table.schema().as_arrow()
    moment = pa.scalar("2024-02-10T00:00:00+00:00").cast(arrow.field("ts").type)
    columns = [pa.array([moment.as_py()], arrow.field("ts").type), [7], ["theirs"]]
    table.append(pa.table(columns, schema=arrow))
    name = f"lake.n.{dropped_from}"

    (row,) = alter(session, f"ALTER TABLE {name} UPDATE s = concat(s, '!') WHERE id > 0")

    assert (row["status"], row["rows"], row["data_files"]) == ("changed", 3, 2)
    found = opened(places, dropped_from).scan().to_arrow().sort_by("id").column("s").to_pylist()
    assert found == ["0", "1!", "2!", "theirs!"]
    alter(session, f"ALTER TABLE {name} DROP PARTITION 202402")
    assert rows_of(places, dropped_from) == 1


def test_a_file_with_deletes_is_refused_with_the_way_round(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    """Harm prevented: rows that another engine deleted by position come back."""
    table = opened(places, dropped_from)
    delete_first_row(table, next(iter(table.scan().plan_files())).file)

    with pytest.raises(UnsupportedError, match="rewrite_data_files"):
        alter(session, f"ALTER TABLE lake.n.{dropped_from} UPDATE s = 'x' WHERE 1")


def test_a_column_that_the_lake_lost_is_named(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    with opened(places, dropped_from).update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("s")

    with pytest.raises(UnsupportedError, match="has no column s"):
        alter(session, f"ALTER TABLE lake.n.{dropped_from} UPDATE s = 'x' WHERE 1")


@pytest.fixture
def with_members(places: Places, session: NoSpark) -> str:
    """Make a lake table whose structs have a member `c` that ClickHouse does not have."""
    name = f"members_{next(_NUMBERS)}"
    places.clickhouse_run("DROP TABLE IF EXISTS db.members SYNC", MEMBERS)
    places.clickhouse_run("INSERT INTO db.members (id, arr) VALUES (0, [tuple(1)])")
    export_all(session, "members", name)
    with opened(places, name).update_schema() as change:
        for path in ("pair", "mat", "arr.element", "m.value", "n.element"):
            change.add_column((*path.split("."), "c"), IntegerType())
    struct = {"a": 1, "c": 2}
    row = {"s": "theirs", "v": 1, "pair": struct | {"b": "b"}, "mat": struct, "arr": [struct]}
    row |= {"m": [("k", struct)], "n": [struct]}
    table = opened(places, name)
    theirs = [row | {"id": number} for number in (1, 2)]
    table.append(pa.Table.from_pylist(theirs, table.schema().as_arrow()))
    return name


def test_a_struct_with_members_of_the_lake_alone_is_not_set(
    places: Places, session: NoSpark, with_members: str
) -> None:
    """Harm prevented: the values of another engine become NULL in every row of the file."""
    before = opened(places, with_members).metadata.current_snapshot_id

    for statement, member in SETS_MEMBERS.items():
        with pytest.raises(UnsupportedError, match=f"the lake table has {member}, which its"):
            alter(session, f"ALTER TABLE lake.n.{with_members} {statement}")

        assert opened(places, with_members).metadata.current_snapshot_id == before


def test_a_struct_with_members_of_the_lake_alone_is_read_and_kept(
    places: Places, session: NoSpark, with_members: str
) -> None:
    """Harm prevented: one ALTER TABLE of another engine ends all statements on a table."""
    before = content(places, with_members).to_pylist()
    where = "pair.a = 1 AND length(arr) + length(n) = 2 AND m['k'].a = 1 AND id = 1"

    (row,) = alter(session, f"ALTER TABLE lake.n.{with_members} UPDATE s = pair.b WHERE {where}")

    assert (row["status"], row["rows"]) == ("changed", 1)
    assert content(places, with_members).to_pylist() == [
        one | ({"s": "b"} if one["id"] == 1 else {}) for one in before
    ]


def test_a_column_that_came_later_is_null_and_stays_so(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    with opened(places, dropped_from).update_schema() as change:
        change.add_column("later", IntegerType())

    (row,) = alter(session, f"ALTER TABLE lake.n.{dropped_from} DELETE WHERE id = 1")

    assert row["status"] == "changed"
    found = opened(places, dropped_from).scan().to_arrow()
    assert found.column("later").null_count == found.num_rows == 2


def test_the_lake_tables_own_partition_fields_are_kept(places: Places, session: NoSpark) -> None:
    """Harm prevented: a row in a partition of the lake that its values do not belong to."""
    catalog = open_catalog("lake", warehouse=places.warehouse).catalog
    name = f"own_{next(_NUMBERS)}"
    export_all(session, "events", name)
    table = catalog.load_table(f"n.{name}")
    with table.update_spec() as change:
        change.add_identity("s")

    with pytest.raises(RefusedError, match="the partition field s") as refused:
        alter(session, f"ALTER TABLE lake.n.{name} UPDATE s = 'x' WHERE 1")

    assert refused.value.code == 420
