"""Partitions with files of other writers come to other lake tables: as they are, or not at all."""

from __future__ import annotations

import itertools
import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from catalog.iceberg.catalogs import open_catalog
from tableformat.errors import RefusedError, TableFormatError, UnsupportedError
from tableformat.names import LakeName
from tests.support.other_engines import upgrade
from tests.support.session_lake import alter, opened, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

_NUMBERS = itertools.count(1)
DAY = date(2024, 3, 5)
FOREIGN = "PARTITION ID '20240305'"
TYPES = {"p": pa.date32(), "id": pa.int64(), "v": pa.int64()}
VALUES = {"p": [DAY], "id": [7], "v": [70]}
_FAST = " SETTINGS mergeberg_attach_fast = 1"


@pytest.fixture
def two(places: Places, session: NoSpark) -> tuple[str, str]:
    """Return the names of two lake tables alike, with a row of another partition each."""
    places.reads_parts = True
    number = next(_NUMBERS)
    names = (f"foreign_{number}_a", f"foreign_{number}_b")
    for name in names:
        places.clickhouse_run(
            f"CREATE TABLE db.{name} (p Date, id Int64, v Int64) ENGINE = MergeTree PARTITION BY p"
            " ORDER BY id",
            f"INSERT INTO db.{name} VALUES ('2024-01-05', 1, 10)",
        )
        session.call("export_partitions", table=f"n.{name}", source=f"ch.db.{name}")
    return names


def written(places: Places, name: str, ending: str, schema: pa.Schema) -> Path:
    """Write the row of the foreign partition to a file that no table has."""
    path = places.root / f"{name}.{ending}"
    rows = pa.table([VALUES[one.name] for one in schema], schema)
    if ending == "orc":
        orc.write_table(rows, str(path))
    else:
        pq.write_table(rows, path)
    return path


def add(places: Places, name: str, path: Path, **entry: Any) -> None:
    """Add a file to a table as another writer does, with an entry of its own."""
    table = opened(places, name)
    known: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": f"file://{path}",
        "file_format": FileFormat.PARQUET,
        "partition": Record((DAY - date(1970, 1, 1)).days),
        "record_count": 1,
        "file_size_in_bytes": path.stat().st_size,
    }
    file = DataFile.from_args(**(known | entry))
    file.spec_id = table.spec().spec_id
    with table.transaction() as change, change.update_snapshot().fast_append() as update:
        update.append_data_file(file)


def add_other_form(places: Places, name: str, form: str) -> None:
    """Add a file that is not a plain Parquet file."""
    if form == "ORC":
        path = written(places, name, "orc", pa.schema(TYPES))
        add(places, name, path, file_format=FileFormat.ORC)
    else:
        path = places.root / f"{name}.parquet"
        path.write_bytes(b"PARE" * 100)
        add(places, name, path, key_metadata=b"key")


def entry_of(places: Places, name: str) -> DataFile:
    """Return the entry of the file of the foreign partition."""
    (task,) = opened(places, name).scan("p = '2024-03-05'").plan_files()
    return task.file


STATEMENTS = {
    "ATTACH": f"ALTER TABLE lake.n.{{b}} ATTACH {FOREIGN} FROM lake.n.{{a}}",
    "REPLACE": f"ALTER TABLE lake.n.{{b}} REPLACE {FOREIGN} FROM lake.n.{{a}}",
    "FETCH": f"ALTER TABLE lake.n.{{b}} FETCH {FOREIGN} FROM 'lake.n.{{a}}'",
    "MOVE": f"ALTER TABLE lake.n.{{a}} MOVE {FOREIGN} TO TABLE lake.n.{{b}}",
}


@pytest.mark.parametrize("fast", ["", _FAST], ids=["compared", "fast"])
@pytest.mark.parametrize("form", ["ORC", "encrypted"])
def test_a_file_that_is_no_plain_parquet_file_is_not_copied(
    places: Places, session: NoSpark, two: tuple[str, str], form: str, fast: str
) -> None:
    """Harm prevented: an entry that calls an ORC file Parquet, and the original is removed."""
    a, b = two
    add_other_form(places, a, form)
    before = [opened(places, name).metadata.current_snapshot_id for name in two]

    for statement in STATEMENTS.values():
        with pytest.raises(TableFormatError, match=f"it is an {form} file") as refused:
            alter(session, statement.format(a=a, b=b) + fast)
        assert (refused.value.code, "damaged" in str(refused.value)) == (48, False)

    assert [opened(places, name).metadata.current_snapshot_id for name in two] == before
    assert (rows_of(places, a), rows_of(places, b)) == (2, 1)


_MAPPING = "schema.name-mapping.default"


def add_without_ids(places: Places, name: str) -> None:
    """Add a file without field ids, with its columns in another order than the table's.

    PyIceberg then sets the name mapping by which it is read.
    """
    schema = pa.schema([pa.field(one, TYPES[one], nullable=False) for one in ("v", "id", "p")])
    path = written(places, name, "parquet", schema)
    opened(places, name).add_files([f"file://{path}"])


def foreign_row(places: Places, name: str) -> list[dict[str, object]]:
    """Return the rows of the foreign partition, as PyIceberg reads them."""
    found = opened(places, name).scan("p = '2024-03-05'").to_arrow().to_pylist()
    return [dict(row) for row in found]


@pytest.mark.parametrize("fast", ["", _FAST], ids=["compared", "fast"])
@pytest.mark.parametrize("statement", ["FETCH", "MOVE"])
def test_a_file_without_field_ids_is_copied_with_them(
    places: Places, session: NoSpark, two: tuple[str, str], statement: str, fast: str
) -> None:
    """Harm prevented: rows that no reader finds, or under the names of other columns."""
    a, b = two
    add_without_ids(places, a)

    alter(session, STATEMENTS[statement].format(a=a, b=b) + fast)
    if statement == "FETCH":
        alter(session, f"ALTER TABLE lake.n.{b} ATTACH {FOREIGN}")

    assert _MAPPING not in opened(places, b).properties
    assert foreign_row(places, b) == [{"p": DAY, "id": 7, "v": 70}]
    path = entry_of(places, b).file_path.removeprefix("file://")
    ids = {f.name: f.metadata[b"PARQUET:field_id"] for f in pq.read_schema(path)}
    assert ids == {"p": b"1", "id": b"2", "v": b"3"}


def test_a_copy_that_was_made_without_field_ids_is_found(
    places: Places, session: NoSpark, two: tuple[str, str]
) -> None:
    """Where both tables have one mapping a copy has none: its name says nothing of its columns."""
    a, b = two
    add_without_ids(places, a)
    alter(session, f"ALTER TABLE lake.n.{a} FREEZE WITH NAME 'all', DROP {FOREIGN}")
    alter(session, f"ALTER TABLE lake.n.{a} ATTACH {FOREIGN} FROM lake.n.{a}.tag_all")

    alter(session, STATEMENTS["MOVE"].format(a=a, b=b))

    assert foreign_row(places, b) == [{"p": DAY, "id": 7, "v": 70}]


def test_a_file_without_field_ids_or_mapping_is_refused_where_one_is(
    places: Places, session: NoSpark, two: tuple[str, str]
) -> None:
    """Harm prevented: a mapping that was never meant for a file decides which column is which."""
    a, b = two
    add_without_ids(places, a)
    add_without_ids(places, b)
    alter(session, f"ALTER TABLE lake.n.{b} DROP {FOREIGN}")
    with opened(places, a).transaction() as change:
        change.remove_properties(_MAPPING)
    before = [opened(places, name).metadata.current_snapshot_id for name in two]

    for statement in STATEMENTS.values():
        with pytest.raises(TableFormatError, match="it has no field ids, and its table no") as no:
            alter(session, statement.format(a=a, b=b))
        assert no.value.code == 48

    assert [opened(places, name).metadata.current_snapshot_id for name in two] == before


def test_an_export_is_still_copied_as_it_is_where_mappings_differ(
    places: Places, session: NoSpark, two: tuple[str, str]
) -> None:
    a, b = two
    add_without_ids(places, a)
    alter(session, f"ALTER TABLE lake.n.{b} DROP PARTITION ALL")

    alter(session, f"ALTER TABLE lake.n.{b} ATTACH PARTITION ID '20240105' FROM lake.n.{a}")

    def content(name: str) -> bytes:
        (task,) = opened(places, name).scan("p = '2024-01-05'").plan_files()
        return Path(task.file.file_path.removeprefix("file://")).read_bytes()

    assert content(b) == content(a)


def add_default(places: Places, name: str) -> None:
    """Upgrade a table to version 3, and add a column that has the value 5 in older files."""
    state = open_catalog("lake", warehouse=places.warehouse).table(LakeName("lake", ("n",), name))
    assert state is not None
    upgrade(state.load())
    path = Path(opened(places, name).metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    (schema,) = metadata["schemas"]
    number = metadata["last-column-id"] + 1
    later = {"id": number, "name": "x", "type": "long", "required": False, "initial-default": 5}
    newer = schema | {"schema-id": 1, "fields": [*schema["fields"], later]}
    metadata |= {"schemas": [schema, newer], "current-schema-id": 1, "last-column-id": number}
    path.write_text(json.dumps(metadata))


def test_a_table_of_version_3_is_no_source_of_copies(
    places: Places, session: NoSpark, two: tuple[str, str]
) -> None:
    """Harm prevented: NULL for the default value of a column that older files lack."""
    a, b = two
    add_default(places, a)
    with opened(places, b).update_schema() as change:
        change.add_column("x", LongType())
    alter(session, f"ALTER TABLE lake.n.{b} DROP PARTITION ALL")
    before = opened(places, b).metadata_location

    which = "PARTITION ID '20240105'"
    for copy in (
        f"ATTACH {which} FROM lake.n.{a}",
        f"REPLACE {which} FROM lake.n.{a}",
        f"FETCH {which} FROM 'lake.n.{a}'",
    ):
        with pytest.raises(UnsupportedError, match="has format version 3, and") as refused:
            alter(session, f"ALTER TABLE lake.n.{b} {copy}")
        assert refused.value.code == 48

    assert opened(places, b).metadata_location == before


@pytest.mark.parametrize("form", ["ORC", "encrypted"])
def test_a_file_that_is_no_plain_parquet_file_is_detached_and_attached(
    places: Places, session: NoSpark, two: tuple[str, str], form: str
) -> None:
    """Harm prevented: an intact file is called damaged, and nobody can attach it."""
    name, _ = two
    add_other_form(places, name, form)
    entry = entry_of(places, name)
    detach, attach = (
        f"ALTER TABLE lake.n.{name} {what} {FOREIGN}" for what in ("DETACH", "ATTACH")
    )
    alter(session, detach)

    (row,) = alter(session, attach)

    assert (row["status"], row["rows"]) == ("attached", 1)
    after = entry_of(places, name)
    assert (after.file_path, after.file_format, after.key_metadata) == (
        entry.file_path,
        entry.file_format,
        entry.key_metadata,
    )
    alter(session, detach)
    path = Path(entry.file_path.removeprefix("file://"))
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(RefusedError, match=f"it has {path.stat().st_size:,} bytes, and"):
        alter(session, attach)


def test_each_file_of_another_entry_keeps_its_figures_in_a_copy(
    places: Places, session: NoSpark, two: tuple[str, str]
) -> None:
    """Harm prevented: readers skip nothing in a copy, or take no offsets for the file's own."""
    a, b = two
    path = written(places, a, "parquet", opened(places, a).schema().as_arrow())
    seven = (7).to_bytes(8, "little")
    figures = {
        "value_counts": {1: 1, 2: 1, 3: 1},
        "null_value_counts": {1: 0, 2: 0},
        "lower_bounds": {2: seven},
        "upper_bounds": {2: seven},
    }
    add(places, a, path, **figures)

    alter(session, STATEMENTS["ATTACH"].format(a=a, b=b))

    copy = entry_of(places, b)
    assert copy.split_offsets is None
    assert {name: getattr(copy, name) for name in figures} == figures
    assert not copy.column_sizes


def set_order(places: Places, name: str, *fields: tuple[str, str]) -> int:
    """Let a table have an order, as Spark's WRITE ORDERED BY does; return its id."""
    with opened(places, name).update_sort_order() as update:
        for how, column in fields:
            getattr(update, how)(column, IdentityTransform())
    return opened(places, name).sort_order().order_id


def test_a_copy_has_the_sort_order_of_its_own_table(
    places: Places, session: NoSpark, two: tuple[str, str]
) -> None:
    """Harm prevented: a file is taken for sorted by a column by which it is not."""
    a, b = two
    of_a = set_order(places, a, ("desc", "id")), set_order(places, a, ("asc", "v"))
    of_b = set_order(places, b, ("asc", "v"))
    assert of_b == of_a[0] != of_a[1]
    path = written(places, a, "parquet", opened(places, a).schema().as_arrow())
    found = []
    for order in (*of_a, None):
        add(places, a, path, sort_order_id=order)
        alter(session, STATEMENTS["REPLACE"].format(a=a, b=b))
        found.append(entry_of(places, b).sort_order_id)
        alter(session, f"ALTER TABLE lake.n.{a} DROP {FOREIGN}")

    assert found == [None, of_b, None]


@pytest.mark.parametrize("form", ["ORC", "encrypted"])
def test_a_dry_run_refuses_files_that_are_not_copied(
    places: Places, two: tuple[str, str], form: str
) -> None:
    """Harm prevented: the dry run promises a copy that the run refuses."""
    a, b = two
    add_other_form(places, a, form)
    where = ("--source", f"chdb:{places.clickhouse}", "--warehouse", str(places.warehouse))

    for statement in STATEMENTS.values():
        words = ("alter", statement.format(a=a, b=b), *where)
        planned, run = places.run(*words, "--dry-run"), places.run(*words)
        assert (planned[0], f"it is an {form} file" in planned[2]) == (3, True), planned
        assert planned == run
