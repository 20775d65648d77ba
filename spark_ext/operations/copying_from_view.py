"""ATTACH and REPLACE PARTITION … FROM a temporary view of the caller's Spark session.

Names, then structure, then the partition, and only then the view is evaluated, once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from catalog.clickhouse.row_partitions import RowPartitions
from catalog.foreign_files import ForeignFiles
from catalog.scratch import ScratchDirectory
from catalog.view_rows import ViewRows
from spark_ext.operations.fetching_from import key_of_nobodys
from spark_ext.operations.other_tables import RememberingTable
from spark_ext.operations.spark_views import View
from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.errors import RefusedError
from tableformat.iceberg.properties import RememberedSource
from tableformat.operations.copying import OtherKey
from tableformat.operations.copying_view import CopyFromView, files_in
from tableformat.operations.running import Running
from tableformat.operations.which import AllPartitions, OnePartition

__all__ = ["copying_from_view"]


def copying_from_view(
    what: str,
    view: tuple[str, View],
    named: Callable[[RememberedSource], OnePartition | AllPartitions],
    running: Running,
    to: RememberingTable,
    stack: ExitStack,
    *,
    replaces: bool,
    allow_empty: bool,
) -> tuple[Running, CopyFromView]:
    """Return ATTACH or REPLACE of a partition from a view, and what runs it.

    Args:
        what: begins errors: what cannot be run.
        view: what stands behind FROM, and what it means.
        named: says which partition is meant, of a table of a partition key.
        running: what runs statements on the table.
        to: the table.
        stack: closes what is opened.
        replaces: what is here.
        allow_empty: no rows replace it, too.

    Raises:
        RefusedError: the columns differ (code 122), no single partition is named (code 36), or
            rows of it do not fit into the table.
        UsageError: the value is none of the partition key.
        SourceError: the view cannot be evaluated.
        DestinationError: a storage failed.
        LedgerError: the ledger cannot be read.
    """
    name, means = view
    state, storages = to.found.load(), to.found.storages
    with RowPartitions(to.source, storages) as rows:
        looks = ViewRows(what, storages, state, rows)
        looks.refuse_unlike(means.schema)
        which = named(to.source)
        if isinstance(which, AllPartitions):
            message = (
                f"{what}: {name} is a temporary view, which has no partitions of its own. "
                "Name one partition after the other."
            )
            raise RefusedError(message, code=BAD_ARGUMENTS)
        key = key_of_nobodys(what, which.partition_id, running, to)
        before = files_in(running.partitions.files(state, which.partition_id))
        into = stack.enter_context(ScratchDirectory("fetch")).path
        with means.written(state.location, storages) as files:
            wanted = looks.of_partition(files, which.partition_id, into)
    keys = (OtherKey(key, tuple(one.file for one in wanted)),) if wanted else ()
    copy = ForeignFiles({one.file.path: one for one in wanted}, state, storages)
    ready = replace(running, ports=replace(running.ports, copy=copy))
    schema_id = state.layout.schema_id
    return ready, CopyFromView(which, name, replaces, allow_empty, keys, schema_id, before)
