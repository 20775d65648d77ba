"""The second reader of verification counts and sums what a file holds."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.rewriting.second_reader import ColumnTally, FileTally, tally_file
from tableformat.iceberg.read_columns import FileColumn
from tableformat.mergetree.types import Nullable, Simple, Tuple

ID = Nullable(Simple("UUID"))


@pytest.mark.parametrize(
    ("values", "tally"),
    [
        ([None, None], ColumnTally(nulls=2)),
        ([None, {"a": b"\1" * 16}], ColumnTally(nulls=1, values=1, total=16)),
    ],
)
def test_structs_of_ids_are_counted_also_where_all_of_them_are_null(
    tmp_path: Path, values: list[dict[str, bytes] | None], tally: ColumnTally
) -> None:
    """A right export of `Nullable(Tuple(a UUID))` was reported as unreadable."""
    path = tmp_path / "file.parquet"
    plain = pa.array(values, pa.struct([("a", pa.binary(16))]))
    ids = pa.ExtensionArray.from_storage(pa.uuid(), plain.field(0))
    structs = pa.StructArray.from_arrays([ids], names=["a"], mask=plain.is_null())
    pq.write_table(pa.table({"c": structs}), path)

    found = tally_file(path, [FileColumn("c", "c", Tuple((("a", ID),)))])

    assert found == FileTally(len(values), (tally,))
