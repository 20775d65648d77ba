"""A column that the owner of a lake table dropped and added again with another type."""

from __future__ import annotations

import pytest
from pyiceberg.types import IcebergType, NestedField, StringType, StructType, TimestampType

from tableformat.errors import RefusedError
from tests.support.session_lake import alter, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

_STRUCT = StructType(NestedField(100, "x", StringType(), required=False))
TYPES = {"other_kind": TimestampType(), "composed": _STRUCT}


@pytest.fixture(params=list(TYPES))
def table(places: Places, request: pytest.FixtureRequest) -> str:
    """Export a table whose column `s` gets another type in the lake."""
    places.reads_parts = True
    name = str(request.param)
    if not (places.warehouse / "n" / name).exists():
        places.clickhouse_run(
            f"CREATE TABLE db.{name} (p UInt8, id Int64, s Nullable(String)) ENGINE = MergeTree"
            " PARTITION BY p ORDER BY id",
            f"INSERT INTO db.{name} VALUES (1, 1, 'a'), (1, 2, 'b'), (2, 4, 'd')",
        )
        assert places.run("export", f"db.{name}", "--all", "--to", f"lake.n.{name}")[0] == 0
        give_type(places, name, TYPES[name])
    return name


def give_type(places: Places, name: str, of: IcebergType) -> None:
    with opened(places, name).update_schema() as update:
        update.delete_column("s")
    with opened(places, name).update_schema() as update:
        update.add_column("s", of)


def test_verify_tells_both_types(places: Places, table: str) -> None:
    """Harm prevented: values that are gone are reported as a fault of the program."""
    code, out, err = places.run("verify", f"db.{table}", "--all", "--to", f"lake.n.{table}")

    assert code == 1, err
    type_now = opened(places, table).schema().find_type("s")
    assert f"column s: it is String in the source, {type_now} in the lake" in out


@pytest.mark.parametrize(
    "statement",
    ["UPDATE s = 'x' IN PARTITION 1 WHERE id = 1", "DELETE IN PARTITION 1 WHERE s = 'a'"],
)
def test_statements_that_read_it_are_refused(places: Places, table: str, statement: str) -> None:
    session = NoSpark({"spark.mergeberg.warehouse": str(places.warehouse)})

    with pytest.raises(RefusedError, match=r"Cannot .*column s"):
        alter(session, f"ALTER TABLE lake.n.{table} {statement}")
