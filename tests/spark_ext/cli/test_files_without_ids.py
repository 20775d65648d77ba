"""Data files without field ids, as `add_files` of Iceberg's libraries brings them to a table."""

from __future__ import annotations

import itertools
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableformat.errors import DestinationError
from tests.support.session_lake import alter, opened, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

_NUMBERS = itertools.count(1)
_MAPPING = "schema.name-mapping.default"


@pytest.fixture
def session(places: Places) -> NoSpark:
    return NoSpark({"spark.mergeberg.warehouse": str(places.warehouse)})


def lake_with_file(places: Places, key: str) -> str:
    """Export rows of January and February; another program adds a file with one of March."""
    places.reads_parts = True
    name = f"without_ids{next(_NUMBERS)}"
    places.clickhouse_run(
        f"CREATE TABLE db.{name} (p Date, id Int64) ENGINE = MergeTree PARTITION BY {key}"
        " ORDER BY id",
        f"INSERT INTO db.{name} VALUES ('2024-01-05', 1), ('2024-01-05', 2), ('2024-02-05', 4)",
    )
    assert places.run("export", f"db.{name}", "--all", "--to", f"lake.n.{name}")[0] == 0
    types = {"p": pa.date32(), "id": pa.int64()}
    schema = pa.schema([pa.field(one, of, nullable=False) for one, of in types.items()])
    rows = pa.table([[date(2024, 3, 5)], [7]], schema)
    path = places.root / f"{name}.parquet"
    pq.write_table(rows, path)
    opened(places, name).add_files([f"file://{path}"])
    return name


def without_mapping(places: Places, name: str) -> None:
    with opened(places, name).transaction() as change:
        change.remove_properties(_MAPPING)


def test_partition_values_tell_where_a_file_belongs(places: Places, session: NoSpark) -> None:
    """Harm prevented: one file of a partition blocks the statements on all others."""
    name = lake_with_file(places, "p")
    without_mapping(places, name)

    (dropped,) = alter(session, f"ALTER TABLE lake.n.{name} DROP PARTITION ID '20240105'")
    assert (dropped["status"], dropped["rows"]) == ("dropped", 2)
    (dropped,) = alter(session, f"ALTER TABLE lake.n.{name} DROP PARTITION ID '20240305'")

    assert (dropped["status"], dropped["rows"]) == ("dropped", 1)
    assert rows_of(places, name) == 1


def test_a_name_mapping_tells_the_columns_of_a_file(places: Places, session: NoSpark) -> None:
    name = lake_with_file(places, "toYYYYMM(p)")

    (dropped,) = alter(session, f"ALTER TABLE lake.n.{name} DROP PARTITION ID '202403'")

    assert (dropped["status"], dropped["rows"]) == ("dropped", 1)
    assert rows_of(places, name) == 3


def test_without_a_mapping_the_file_is_named(places: Places, session: NoSpark) -> None:
    """Harm prevented: nobody knows which of a thousand files to rewrite."""
    name = lake_with_file(places, "toYYYYMM(p)")
    without_mapping(places, name)

    with pytest.raises(DestinationError, match=rf"{name}\.parquet belongs: .* it has none, so"):
        alter(session, f"ALTER TABLE lake.n.{name} DROP PARTITION ID '202401'")

    assert rows_of(places, name) == 4


def test_an_evolved_table_reads_files_without_ids_that_come_later(places: Places) -> None:
    """Harm prevented: a column that an export added is NULL in every file without ids."""
    name = lake_with_file(places, "p")
    places.clickhouse_run(
        f"ALTER TABLE db.{name} ADD COLUMN x Nullable(Int64), ADD COLUMN t Tuple(a Int64)",
        f"INSERT INTO db.{name} VALUES ('2024-04-05', 9, 90, tuple(1))",
    )
    words = ("--partition-id", "20240405", "--evolve-schema", "--to", f"lake.n.{name}")
    assert places.run("export", f"db.{name}", *words)[0] == 0

    t = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    types = {"p": pa.date32(), "id": pa.int64(), "x": pa.int64(), "t": t}
    rows = pa.table([[date(2024, 5, 5)], [8], [80], [{"a": 2}]], pa.schema(types.items()))
    required = pa.schema([f.with_nullable(f.name not in ("p", "id")) for f in rows.schema])
    path = places.root / f"{name}_later.parquet"
    pq.write_table(rows.cast(required), path)
    opened(places, name).add_files([f"file://{path}"])

    (row,) = opened(places, name).scan("p = '2024-05-05'").to_arrow().to_pylist()
    assert (row["id"], row["x"], row["t"]) == (8, 80, {"a": 2})
