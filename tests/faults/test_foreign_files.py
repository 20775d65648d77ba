"""A first export into a lake partition where others have files is refused, unless that is asked.

What counts as the same lake partition, and as a file of others, is tested on tables that PyIceberg
wrote.
"""

from __future__ import annotations

import contextlib
import itertools
import string
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from catalog.iceberg.catalogs import open_catalog
from catalog.iceberg.table import IcebergTable
from catalog.storages.schemes import open_storage
from tableformat.effects import Step
from tableformat.export.dry_run import EXPORT, REPLACE, rehearse
from tableformat.export.request import ById, ExportOptions
from tableformat.file_names import data_file_name, exported_by, key_in
from tableformat.iceberg.snapshot import table_of
from tableformat.iceberg.values import to_text
from tableformat.ledger import Key, State, StatementKind
from tableformat.messages import plain
from tableformat.names import LakeName, PartitionId
from tests.faults.test_operator_actions import FOREIGN, append, compact, expire
from tests.support.fakes import TABLE
from tests.support.keyed_source import Keyed, append_to
from tests.support.lake import make_table
from tests.support.scenarios import (
    AtStep,
    in_shard,
    ledger_rows,
    ports_of,
    pyiceberg,
    rows_in_main,
    run,
)
from tests.support.scene import ONE, TTL, Lightly, Scene, snapshot_at

ALONGSIDE = ExportOptions(manifest_ttl=TTL, overwrite_file_if_exists=True)
REFUSED = (
    "Cannot export into this lake partition: main has 1 file with 4 rows there that no export "
    "of this ledger wrote, added by snapshot S{} (append). If they are other rows, export "
    "alongside them with --overwrite-file-if-exists; they stay."
)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return a scene whose destination others made, and filled with four rows."""
    make_table(tmp_path / "warehouse")
    append(tmp_path)
    return Scene(tmp_path)


def test_a_first_export_alongside_foreign_rows_is_refused(scene: Scene) -> None:
    """Harm prevented: rows that somebody had copied by hand are there twice."""
    assert scene.run() == ("refused", REFUSED.format(1))

    assert (scene.files, rows_in_main(scene.directory)) == (0, FOREIGN)
    assert ledger_rows(scene.directory) == []
    assert scene.source.left == {}


def test_the_option_exports_alongside_them_and_removes_nothing(scene: Scene) -> None:
    """Harm prevented: "overwrite" that overwrites."""
    before = set(_paths(scene.directory))

    assert scene.run(ALONGSIDE) == ("committed", "")

    assert before < set(_paths(scene.directory))
    assert rows_in_main(scene.directory) == 12 + FOREIGN
    scene.source.change("more")
    scene.after_ttl()
    assert scene.run() == ("replaced", "")
    assert rows_in_main(scene.directory) == 15 + FOREIGN


def forecast(scene: Scene, options: ExportOptions) -> tuple[str, str]:
    """Return what a dry run says of p1."""
    ports = ports_of(scene.directory, scene.source)
    with contextlib.closing(ports.ledger):
        (found,) = rehearse(
            replace(scene.request, options=options), scene.source, ports.lake, ports.ledger,
            now=scene.now, slots=1, note=lambda _: None, storage=open_storage,
        ).forecasts  # fmt: skip
    return found.action, scene.numbered(plain(found.message))


def test_the_dry_run_refuses_what_the_run_refuses(scene: Scene) -> None:
    """Harm prevented: a rehearsal promises an export that is refused."""
    assert forecast(scene, ExportOptions(manifest_ttl=TTL)) == ("refused", REFUSED.format(1))
    assert forecast(scene, ALONGSIDE)[0] == EXPORT
    assert ledger_rows(scene.directory) == []


def test_the_dry_run_of_an_attach_refuses_what_the_attach_refuses(tmp_path: Path) -> None:
    """Harm prevented: a rehearsal promises rows that may be in files of others already."""
    scene = Scene(tmp_path)
    scene.run()
    compact(tmp_path)
    scene.source.change("more")
    attached = ExportOptions(manifest_ttl=TTL, of_statement=StatementKind.ATTACH_FROM)

    found = forecast(scene, attached)

    assert found == scene.run(attached)
    assert found[0] == "refused"
    assert "these could be there twice" in found[1]


def test_the_dry_run_looks_into_the_partition_of_the_export(tmp_path: Path) -> None:
    """Harm prevented: files of others in one partition stop the rehearsal of another."""
    scene = Scene(tmp_path, Keyed())
    scene.run()
    append_to(tmp_path, "p2", FOREIGN)
    scene.source.change("more")
    scene.after_ttl()

    assert forecast(scene, ExportOptions(manifest_ttl=TTL))[0] == REPLACE
    scene.request = replace(ONE, selection=ById(PartitionId("p2")))
    assert forecast(scene, ExportOptions(manifest_ttl=TTL))[0] == "refused"


def _paths(directory: Path) -> list[str]:
    return [t.file.file_path for t in pyiceberg(directory).scan().plan_files()]


@pytest.mark.parametrize("step", [Step.CLAIM, Step.WRITE_FILES, Step.NOTE_WRITTEN, Step.STAGE])
def test_rows_that_arrive_after_the_look_are_seen_before_the_commit(
    tmp_path: Path, step: Step
) -> None:
    """Harm prevented: the question is asked before hours of writing, and not after them."""
    scene = Scene(tmp_path)
    nth = 2 if step is Step.STAGE else 1

    result = scene.run(None, AtStep(step, lambda: append(tmp_path), nth=nth))

    assert result == ("refused", REFUSED.format(2))
    assert rows_in_main(tmp_path) == FOREIGN
    assert scene.row.state is State.RUNNING
    assert "no export of this ledger wrote" in scene.row.last_error
    assert scene.run() == ("refused", REFUSED.format(2))
    assert scene.run(ALONGSIDE) == ("committed", "")
    assert (scene.files, rows_in_main(tmp_path)) == (1, 12 + FOREIGN)


def test_rows_that_arrive_with_the_request_make_it_a_refusal_with_a_reason(
    tmp_path: Path,
) -> None:
    """Harm prevented: "it may have landed" of a request that the catalog can never apply."""
    scene = Scene(tmp_path)

    result = scene.run(None, AtStep(Step.SEND, lambda: append(tmp_path)))

    assert result == ("refused", REFUSED.format(2))
    assert rows_in_main(tmp_path) == FOREIGN


def test_files_of_other_keys_of_this_ledger_are_no_files_of_others(tmp_path: Path) -> None:
    """Harm prevented: the second shard, or partition, of a cluster needs an option."""
    scene = Scene(tmp_path)
    shard = Lightly(table=replace(TABLE, identity="another shard"))
    shard.by_id = in_shard("another shard", shard.by_id)

    assert scene.run() == ("committed", "")
    other = Scene(tmp_path, shard)
    other.request = other.request.of_table(TABLE.name, 2)
    assert other.run(meddled=True) == ("committed", "")
    scene.request = replace(ONE, selection=ById(PartitionId("p2")))
    assert scene.run() == ("committed", "")

    assert rows_in_main(tmp_path) == 12 + 12 + 3


def test_only_the_partition_with_a_first_export_is_refused(tmp_path: Path) -> None:
    """Harm prevented: the replacement of one partition waits for another one."""
    scene = Scene(tmp_path)
    scene.run()
    append(tmp_path)
    scene.source.change("more")
    scene.after_ttl()
    ports = ports_of(tmp_path, scene.source, clock=lambda: scene.now)

    outcomes = run(tmp_path, scene.source, ports=ports)

    assert {o.partition_id: o.status.value for o in outcomes} == {"p1": "replaced", "p2": "refused"}
    assert rows_in_main(tmp_path) == 15 + FOREIGN


def test_the_copy_of_a_lake_table_holds_files_of_others(tmp_path: Path) -> None:
    """Harm prevented: a copy has the names of the original's files, and the rows come twice."""
    scene = Scene(tmp_path)
    scene.run()
    original = pyiceberg(tmp_path)
    copy = open_catalog("lake", warehouse=tmp_path / "warehouse").create(
        LakeName("lake", ("n",), "copy"),
        schema=original.schema(),
        spec=UNPARTITIONED_PARTITION_SPEC,
        order=UNSORTED_SORT_ORDER,
        properties=original.properties,
    )
    (file,) = (t.file for t in original.scan().plan_files())
    with copy.loaded.transaction() as new, new.update_snapshot().fast_append() as update:
        update.append_data_file(file)
    request = replace(ONE, to=copy.name, options=ExportOptions(manifest_ttl=TTL))
    ports = ports_of(tmp_path, scene.source, clock=lambda: scene.now)

    (outcome,) = run(tmp_path, scene.source, ports=ports, request=request)

    assert outcome.status.value == "refused"
    assert "1 file with 12 rows there that no export of this ledger wrote" in outcome.message


@pytest.mark.parametrize(
    "options",
    [ExportOptions(manifest_ttl=TTL), ALONGSIDE, ExportOptions(manifest_ttl=TTL, force=True)],
)
def test_rows_that_others_put_back_under_other_names_are_not_doubled(
    tmp_path: Path, options: ExportOptions
) -> None:
    """Harm prevented: a rewrite in two snapshots looks as if the rows had been deleted."""
    scene = Scene(tmp_path)
    scene.run()
    compact(tmp_path)
    scene.after_ttl()

    status, says = scene.run(options)

    assert (status, rows_in_main(tmp_path)) == ("refused", 12)
    assert "its files were removed by snapshot S3 (delete)" in says
    assert "added by snapshot S4 (append)" in says


def test_force_exports_alongside_foreign_rows(tmp_path: Path) -> None:
    """Harm prevented: rows that were deleted on purpose can never be exported again."""
    scene = Scene(tmp_path)
    scene.run()
    pyiceberg(tmp_path).delete()
    append(tmp_path)

    assert scene.run(replace(ALONGSIDE, force=True)) == ("committed", "")
    assert rows_in_main(tmp_path) == 12 + FOREIGN


def test_the_snapshots_that_added_them_are_named(scene: Scene) -> None:
    """Harm prevented: nobody knows whom to ask."""
    for _ in range(4):
        append(scene.directory)

    status, says = scene.run()

    named = ", ".join(f"snapshot S{n} (append)" for n in (5, 4, 3))
    assert status == "refused"
    assert "5 files with 20 rows there" in says
    assert f"added by {named} and 2 more." in says


def test_a_snapshot_that_was_expired_is_named_as_such(scene: Scene) -> None:
    """Harm prevented: a snapshot is named that cannot be found, without a word why."""
    first = snapshot_at(scene.directory, 1)
    expire(scene.directory)

    ports = ports_of(scene.directory, scene.source)
    (outcome,) = run(scene.directory, scene.source, ports=ports, request=ONE)

    assert f"snapshot {first} (expired)" in outcome.message


COLUMNS: Mapping[str, tuple[PrimitiveType, pa.DataType, list[object]]] = {
    "i": (IntegerType(), pa.int32(), [-1, 7, None]),
    "l": (LongType(), pa.int64(), [2**62, -5, None]),
    "s": (StringType(), pa.string(), ["", "ä/=%", None]),
    "b": (BooleanType(), pa.bool_(), [True, False, None]),
    "d": (DateType(), pa.date32(), [date(1969, 12, 31), date(2024, 1, 31), None]),
    "t": (
        TimestamptzType(),
        pa.timestamp("us", "UTC"),
        [datetime(1969, 12, 31, 23, 59, tzinfo=UTC), datetime(2024, 1, 31, 5, tzinfo=UTC), None],
    ),
    "m": (DecimalType(9, 2), pa.decimal128(9, 2), [Decimal("-1.50"), Decimal("12.00"), None]),
    "y": (BinaryType(), pa.binary(), [b"", b"\x00\xff", None]),
}
_TRANSFORMS = [
    *((name, "identity") for name in COLUMNS if name != "y"),
    *(("t", unit) for unit in ("year", "month", "day", "hour")),
    *(("d", unit) for unit in ("year", "month", "day")),
    *((name, "bucket[16]") for name in "ilsdtmy"),
    *((name, "truncate[3]") for name in "ils"),
]


def lake_table(directory: Path, *fields: tuple[str, str]) -> IcebergTable:
    """Create a table with a column of each type, partitioned by transforms of some."""
    numbers = {name: number for number, name in enumerate(COLUMNS, start=1)}
    return open_catalog("lake", warehouse=directory).create(
        LakeName("lake", ("n",), "typed"),
        schema=Schema(*(NestedField(numbers[n], n, of[0]) for n, of in COLUMNS.items())),
        spec=PartitionSpec(
            *(
                PartitionField(numbers[name], 1000 + i, parse_transform(how), f"{name}_{i}")
                for i, (name, how) in enumerate(fields)
            )
        ),
        order=UNSORTED_SORT_ORDER,
        properties={"format-version": "2"},
    )


def fill(table: IcebergTable) -> None:
    """Append a row for each place in the lists of `COLUMNS`."""
    arrays = [pa.array(values, of) for _, of, values in COLUMNS.values()]
    table.loaded.refresh().append(pa.table(arrays, list(COLUMNS)))


def foreign(table: IcebergTable, *partition: str | None, known: str = "") -> list[str]:
    """Return the paths of the files of others in a partition; `known` is a key that is ours."""
    found = table.files_in(table.load(), partition)
    return [f.path for f in found if not (f.key and f.key == known)]


@pytest.mark.parametrize(("column", "transform"), _TRANSFORMS)
def test_the_files_of_a_partition_are_found_by_its_values(
    tmp_path: Path, column: str, transform: str
) -> None:
    """Harm prevented: a value that is read in another form than it is written hides the files."""
    table = lake_table(tmp_path, (column, transform))
    fill(table)
    loaded = table_of(table.load())
    (of,) = (f.field_type for f in loaded.spec().partition_type(loaded.schema()).fields)
    expected: dict[str | None, list[str]] = {}
    for task in loaded.scan().plan_files():
        text = to_text(task.file.partition[0], of)
        expected.setdefault(text, []).append(task.file.file_path)

    assert {text: foreign(table, text) for text in expected} == expected
    assert len(expected) in (2, 3)


def test_files_of_an_earlier_spec_count_unless_their_values_lie_elsewhere(
    tmp_path: Path,
) -> None:
    """Harm prevented: a spec that evolved hides what was written before; or all of it counts."""
    table = lake_table(tmp_path, ("i", "identity"))
    fill(table)
    by_i = {
        t.file.partition[0]: t.file.file_path for t in table.loaded.refresh().scan().plan_files()
    }
    with table.loaded.update_spec() as update:
        update.add_field("s", IdentityTransform(), "s")

    assert foreign(table, "7", "anything") == [by_i[7]]
    assert foreign(table, None, "") == [by_i[None]]
    assert foreign(table, "8", "") == []
    with table.loaded.refresh().update_spec() as update:
        update.remove_field("i_0")
    assert sorted(foreign(table, "")) == sorted(by_i.values())


def test_a_void_field_does_not_place_files(tmp_path: Path) -> None:
    """Harm prevented: version 1's void fields are taken for a place, and hide files."""
    table = lake_table(tmp_path, ("i", "void"), ("b", "identity"))
    fill(table)

    assert len(foreign(table, None, "true")) == 1
    assert foreign(table, None, "false") != foreign(table, None, "true")


_KEYS = st.builds(
    lambda *texts: Key(*texts).hash,
    *itertools.repeat(st.text(string.printable, max_size=9), 3),
)


@given(
    key=_KEYS,
    transaction=st.integers(0, 2**63).map(str),
    number=st.integers(0, 10**6),
    attempt=st.from_regex(r"[0-9a-z]{1,20}", fullmatch=True),
    directory=st.sampled_from(["", "file:///lake/data/", "s3://b/data/p=1-2-3-4/"]),
)
def test_the_key_is_read_from_the_name_of_a_file(
    key: str, transaction: str, number: int, attempt: str, directory: str
) -> None:
    """Harm prevented: files of our own are taken for those of others."""
    name = data_file_name(key, transaction, number, attempt)

    assert exported_by(directory + name) == (key, transaction)
    assert key_in(directory + name) == key


@pytest.mark.parametrize(
    "name",
    [
        "00000-0-4c1de444-cf85-42d6-b9a5-9a8161806d5f.parquet",
        "00000-3-6e1e5f5c-0001.parquet",
        "part-00000.parquet",
        "",
        f"{'A' * 26}-1-0-x.parquet",
        f"{'a' * 25}-1-0-x.parquet",
        f"{'a' * 26}-1-0-x.orc",
        f"{'a' * 26}-1-x.parquet",
    ],
)
def test_names_that_others_give_carry_no_key(name: str) -> None:
    """Harm prevented: a file of others is taken for one of ours."""
    assert key_in(f"file:///lake/data/{name}") == ""
