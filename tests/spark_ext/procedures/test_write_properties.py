"""The write properties that the owner of a lake table has set hold for all that writes to it."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from tableformat.errors import RefusedError
from tests.support.session_lake import ALLOWED, alter, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

_NUMBERS = iter(range(1_000))


@pytest.fixture(autouse=True)
def _written(places: Places) -> None:
    """Let files be written of what is in the source."""
    places.reads_parts = True


def owned(places: Places, session: NoSpark, **properties: str) -> str:
    """Export a table's first partition; then the owner of the lake table sets properties."""
    name = f"owned_{next(_NUMBERS)}"
    places.clickhouse_run(
        f"CREATE TABLE db.{name} (p UInt8, id Int64, s String, INDEX i id TYPE bloom_filter)"
        " ENGINE = MergeTree PARTITION BY p ORDER BY id",
        f"INSERT INTO db.{name} SELECT number % 3, number, toString(number) FROM numbers(90)",
    )
    export(session, name, 0)
    assert codecs(places, name) == {0: {"ZSTD"}}
    with opened(places, name).transaction() as change:
        change.set_properties({f"write.{key}": text for key, text in properties.items()})
    return name


def export(session: NoSpark, name: str, partition: int, settings: str = "") -> list[str]:
    rows = alter(
        session,
        f"ALTER TABLE ch.db.{name} EXPORT PARTITION ID '{partition}' TO TABLE lake.n.{name}"
        f" {ALLOWED}{settings}",
    )
    return [str(row["status"]) for row in rows]


def codecs(places: Places, name: str) -> dict[int, set[str]]:
    """Return the codecs of the files of each partition in main."""
    found: dict[int, set[str]] = {}
    for task in opened(places, name).scan().plan_files():
        group = pq.read_metadata(task.file.file_path.removeprefix("file://")).row_group(0)
        of = {group.column(i).compression for i in range(group.num_columns)}
        found.setdefault(task.file.partition[0], set()).update(of)
    return found


def test_exports_and_statements_write_with_the_codec_of_the_table(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: files that a reader of the owner cannot decompress."""
    name = owned(places, session, **{"parquet.compression-codec": "snappy"})

    places.clickhouse_run(f"INSERT INTO db.{name} SELECT 1, 90 + number, '' FROM numbers(9)")
    small = ", export_merge_tree_part_max_bytes_per_file = 1"
    assert export(session, name, 1, small) == ["committed"]
    assert codecs(places, name) == {0: {"ZSTD"}, 1: {"SNAPPY"}}
    alter(session, f"ALTER TABLE lake.n.{name} UPDATE s = 'x' IN PARTITION 0 WHERE id = 3")
    assert codecs(places, name) == {0: {"SNAPPY"}, 1: {"SNAPPY"}}
    assert export(session, name, 2) == ["committed"]
    with opened(places, name).transaction() as change:
        change.set_properties({"write.parquet.compression-codec": "gzip"})
    alter(session, f"OPTIMIZE TABLE lake.n.{name} PARTITION 1 FINAL")
    alter(session, f"ALTER TABLE lake.n.{name} CLEAR INDEX i IN PARTITION 2")
    assert codecs(places, name) == {0: {"SNAPPY"}, 1: {"GZIP"}, 2: {"GZIP"}}
    rows = opened(places, name).scan().to_arrow().to_pylist()
    expected = [{"p": n % 3, "id": n, "s": "x" if n == 3 else str(n)} for n in range(90)]
    expected += [{"p": 1, "id": n, "s": ""} for n in range(90, 99)]
    assert sorted(rows, key=lambda row: row["id"]) == expected


def test_files_have_the_size_of_the_table_unless_the_user_gives_one(
    places: Places, session: NoSpark
) -> None:
    name = owned(places, session, **{"target-file-size-bytes": "1"})
    places.clickhouse_run(f"INSERT INTO db.{name} SELECT 1, 100 + number, '' FROM numbers(9)")

    export(session, name, 1)
    export(session, name, 2, ", export_merge_tree_part_max_bytes_per_file = 1000000")

    files = [task.file.partition[0] for task in opened(places, name).scan().plan_files()]
    assert files.count(1) > 1
    assert files.count(2) == 1


def test_a_value_that_a_property_cannot_have_refuses_and_changes_nothing(
    places: Places, session: NoSpark
) -> None:
    name = owned(places, session, **{"parquet.compression-codec": "lzo"})
    before = opened(places, name).metadata.current_snapshot_id
    message = (
        "its property write.parquet.compression-codec is 'lzo', and not one of brotli, gzip, lz4, "
        "snappy, uncompressed, zstd. Set such a value, or remove the property."
    )

    for run in (
        lambda: export(session, name, 1),
        lambda: alter(session, f"ALTER TABLE lake.n.{name} UPDATE s = 'x' WHERE 1"),
        lambda: alter(session, f"OPTIMIZE TABLE lake.n.{name} FINAL"),
    ):
        with pytest.raises(RefusedError) as refused:
            run()
        assert str(refused.value).endswith(message)

    assert opened(places, name).metadata.current_snapshot_id == before
