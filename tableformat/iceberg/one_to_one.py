"""Whether a lake partition can hold rows of one source partition only, from the plan alone.

That a source partition lies in one lake partition is proved on its rows (`partition_proof.py`).
The other direction no look at one partition can show: here it is read off the partition key. Each
expression of the key must be a field of the spec, one to one with it on all data (`=` and `*` of
the matrix in `partition_matrix.py`), so that the values of a lake partition say which source
partition a row is of. Asked before everything in a lake partition is removed (protocol.md step 6).
"""

from __future__ import annotations

from tableformat.errors import RefusedError
from tableformat.iceberg.partition_spec import DerivedSpec, derive_spec
from tableformat.iceberg.schema import MappedColumns
from tableformat.mergetree.expression_text import parse_partition_key
from tableformat.mergetree.table import MergeTreeTable

__all__ = ["why_not_one_to_one"]


def why_not_one_to_one(table: MergeTreeTable, columns: MappedColumns, spec: DerivedSpec) -> str:
    """Return why several partitions of a table may lie in one lake partition, '' when none do.

    Args:
        table: the source.
        columns: its mapped columns.
        spec: of the lake table.

    Raises:
        UsageError: the key's text cannot be read.
    """
    key = table.engine.partition_by
    if not parse_partition_key(key):
        return ""
    if not spec.fields:
        return f"the lake table is not partitioned, the source is, by {key}"
    try:
        derived = derive_spec(table, columns) if spec.chosen else spec
    except RefusedError as error:
        return f"nothing shows that '{spec}' divides rows as PARTITION BY {key} does ({error})"
    if derived.notes:
        return derived.notes[0]
    there = {f.meaning for f in spec.fields}
    missing = [str(f) for f in derived.fields if f.meaning not in there]
    if missing:
        return f"PARTITION BY {key} is '{derived}', and '{spec}' does not divide by {missing[0]}"
    return ""
