"""Any file, after any promotion at any depth: rewritten, it has the rows that readers see in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from catalog.clickhouse.rows.files import FILE_NUMBER, ROW_NUMBER
from catalog.iceberg.catalogs import OpenedCatalog, open_catalog
from catalog.rewriting.changed_rows import FileRewrite, FileWriter, FilteredFiles
from catalog.rewriting.merged_files import Merged, MergeWriter, RowOrder
from catalog.rewriting.new_files import FilePlace
from catalog.storages.schemes import Storages
from tableformat.committer import BranchFile
from tableformat.file_names import PathLayout
from tableformat.iceberg.arrow_schema import columns_of_file, file_schema
from tableformat.iceberg.copied_files import with_ids_of
from tableformat.operations.statement import Rewrite
from tableformat.parquet.writer import FileFormat
from tests.properties.duckdb_reader import DuckDBReader

_NUMBERS = itertools.count()
_LEAVES: tuple[tuple[IcebergType, IcebergType, SearchStrategy[Any]], ...] = (
    (IntegerType(), LongType(), st.integers(-(2**31), 2**31 - 1)),
    (FloatType(), DoubleType(), st.floats(width=32, allow_nan=False)),
    (
        DecimalType(5, 2),
        DecimalType(20, 2),
        st.integers(-99_999, 99_999).map(lambda n: Decimal(n).scaleb(-2)),
    ),
    (StringType(), StringType(), st.text("ab", max_size=2)),
)


@dataclass(frozen=True)
class Column:
    """A type, the types that its parts may be promoted to by their paths, and values of it."""

    type: IcebergType
    wider: dict[tuple[str, ...], IcebergType]
    structs: tuple[tuple[str, ...], ...]
    values: SearchStrategy[Any]


@st.composite
def columns(draw: DrawFn, path: tuple[str, ...] = (), depth: int = 3) -> Column:
    """Draw a column; field ids are given by the catalog."""
    kind = draw(st.sampled_from(["leaf", "struct", "list", "map"] if depth else ["leaf"]))
    if kind == "leaf":
        narrow, wide, values = draw(st.sampled_from(_LEAVES))
        return Column(narrow, {path: wide} if wide != narrow else {}, (), st.none() | values)
    if kind == "list":
        inner = draw(columns((*path, "element"), depth - 1))
        of: IcebergType = ListType(1, inner.type, element_required=False)
        return Column(
            of, inner.wider, inner.structs, st.none() | st.lists(inner.values, max_size=3)
        )
    if kind == "map":
        inner = draw(columns((*path, "value"), depth - 1))
        of = MapType(1, StringType(), 2, inner.type, value_required=False)
        pairs = st.dictionaries(st.sampled_from("xyz"), inner.values, max_size=3)
        return Column(
            of, inner.wider, inner.structs, st.none() | pairs.map(lambda d: sorted(d.items()))
        )
    names = draw(st.sampled_from([("a",), ("a", "b"), ("b", "a", "c")]))
    members = {name: draw(columns((*path, name), depth - 1)) for name in names}
    of = StructType(
        *(NestedField(i, n, c.type, required=False) for i, (n, c) in enumerate(members.items(), 1))
    )
    wider = {at: wide for c in members.values() for at, wide in c.wider.items()}
    structs = (path, *(at for c in members.values() for at in c.structs))
    values = st.fixed_dictionaries({n: c.values for n, c in members.items()})
    return Column(of, wider, structs, st.none() | values)


@dataclass(frozen=True)
class Case:
    """A column, rows of it, and what its table's owner does afterwards."""

    column: Column
    rows: list[Any]
    promoted: tuple[tuple[str, ...], ...]
    added: tuple[tuple[str, ...], ...]

    def evolve(self, update: UpdateSchema) -> None:
        for path in self.promoted:
            update.update_column(("c", *path), self.column.wider[path])
        for path in self.added:
            update.add_column(("c", *path, "later"), LongType())


@st.composite
def cases(draw: DrawFn) -> Case:
    column = draw(columns())
    rows = draw(st.lists(column.values, min_size=1, max_size=5))
    promoted = [path for path in column.wider if draw(st.booleans())]
    added = [path for path in column.structs if draw(st.integers(0, 3)) == 0]
    return Case(column, rows, tuple(promoted), tuple(added))


@dataclass(frozen=True)
class World:
    """A catalog, another reader, and where files are written."""

    lake: OpenedCatalog
    duckdb: DuckDBReader
    directory: Path

    def table(self, case: Case) -> Table:
        """Return a table with a file of the narrow column, and the wider schema."""
        schema = Schema(
            NestedField(1, "id", LongType(), required=True),
            NestedField(2, "c", case.column.type, required=False),
        )
        name = f"n.t{next(_NUMBERS)}"
        made = self.lake.catalog.create_table(name, assign_fresh_schema_ids(schema))
        numbers = list(range(len(case.rows)))
        form = file_schema(made.schema())
        columns = [pa.array(numbers, pa.int64()), pa.array(case.rows, form.field("c").type)]
        made.append(pa.table(columns, schema=form))
        with made.update_schema() as update:
            case.evolve(update)
        table: Table = self.lake.catalog.load_table(name)
        return table

    def seen(self, table: Table) -> list[dict[str, Any]]:
        """Return the rows of a table, of which two readers say the same."""
        one: list[dict[str, Any]] = (
            table.scan().to_arrow().select(["id", "c"]).sort_by("id").to_pylist()
        )
        two = self.duckdb.read(table, ["id", "c"]).sort_by("id").to_pylist()
        of = table.schema().find_field("c").field_type
        assert one == [row | {"c": _as_pairs(row["c"], of)} for row in two]
        return one


def _as_pairs(value: Any, of: IcebergType) -> Any:
    """Return what DuckDB says of a value as Arrow has it: maps are pairs."""
    match of:
        case _ if value is None:
            return None
        case StructType():
            return {f.name: _as_pairs(value[f.name], f.field_type) for f in of.fields}
        case ListType():
            return [_as_pairs(one, of.element_type) for one in value]
        case MapType():
            return [(one["key"], _as_pairs(one["value"], of.value_type)) for one in value]
        case _:
            return value


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("promoted")
    lake, reader = open_catalog("lake", warehouse=directory), DuckDBReader()
    lake.catalog.create_namespace("n")
    yield World(lake, reader, tmp_path_factory.mktemp("rewritten"))
    reader.close()


@dataclass(frozen=True)
class _Backwards:
    """Says that the rows of a file come in the opposite order."""

    sets: ClassVar[tuple[str, ...]] = ()

    @contextmanager
    def ordered(self, files: tuple[BranchFile, ...]) -> Iterator[pa.Table]:
        numbers = range(files[0].rows - 1, -1, -1)
        form = pa.schema([(FILE_NUMBER, pa.uint64()), (ROW_NUMBER, pa.uint64())])
        yield pa.table([[0] * len(numbers), list(numbers)], schema=form)


def changed(table: Table, file: BranchFile, directory: Path) -> pa.Table:
    """Rewrite a file as CLEAR INDEX does, and UPDATE but for the columns that it sets."""
    every = FilteredFiles(Storages(), frozenset())
    every(file)
    write = FileWriter(Storages(), every, table.schema(), FileFormat())
    place = FilePlace(str(directory), "", PathLayout.PARTITION, "key", str(next(_NUMBERS)), 0)
    return _read(write(FileRewrite(Rewrite((file,), 0, (file.rows,)), place), directory).path)


def merged(table: Table, file: BranchFile, directory: Path) -> pa.Table:
    """Rewrite a file as OPTIMIZE does."""
    write = MergeWriter(Storages(), _Backwards(), table.schema(), FileFormat(), RowOrder())
    place = FilePlace(str(directory), "", PathLayout.PARTITION, "key", str(next(_NUMBERS)), 0)
    (made,) = write(Merged(Rewrite((file,), 0, (file.rows,)), (place,)))
    return _read(made.path)


def for_another(table: Table, file: BranchFile, _directory: Path) -> pa.Table:
    """Return the rows of a file as MOVE, ATTACH and REPLACE write them for other field ids."""
    ids = itertools.count(100)
    other = assign_fresh_schema_ids(table.schema(), lambda: next(ids))
    found = with_ids_of(_read(file.path), table.schema(), other)
    assert found.schema.equals(file_schema(other), check_metadata=True)
    return columns_of_file(found, other)


def _read(path: str) -> pa.Table:
    with pq.ParquetFile(path.removeprefix("file://")) as parquet:
        return parquet.read()


REWRITES: list[Callable[[Table, BranchFile, Path], pa.Table]] = [changed, merged, for_another]


@pytest.mark.representative
@settings(max_examples=40)
@given(case=cases())
def test_a_rewritten_file_has_the_rows_that_readers_saw(world: World, case: Case) -> None:
    """Harm prevented: a wrong value, or a file that no statement can rewrite."""
    table = world.table(case)
    rows = world.seen(table)
    (task,) = table.scan().plan_files()
    file = BranchFile(task.file.file_path, len(rows), task.file.file_size_in_bytes, 0)

    for rewrite in REWRITES:
        found = rewrite(table, file, world.directory)
        assert found.sort_by("id").to_pylist() == rows
        wanted = file_schema(table.schema())
        assert [f.type for f in found.schema] == [f.type for f in wanted]
