"""A whole export that is measured: every partition of a table, for every line of the input.

python -m tests.bench.whole_export SOURCE TABLE DIRECTORY
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Final

from catalog.iceberg.catalogs import open_catalog
from catalog.sources import SourcePlace
from catalog.storages.schemes import open_storage
from spark_ext.actions.export_ports import Places, SparkWhenNeeded, export_all, open_ports
from spark_ext.engine.session import SparkSettings, slots
from tableformat.export.job import ExportRequest
from tableformat.export.ports import Silent
from tableformat.export.request import AllPartitions, ExportOptions
from tableformat.export.slices import stored_receipts
from tableformat.file_names import RECEIPTS
from tableformat.names import LakeName, TableName
from tests.bench.many import Transferred, serve_lines

_MASTER: Final = "local[2]"


def export(
    source: str, table_name: str, spark: SparkWhenNeeded, directory: Path, master: str = _MASTER
) -> Transferred:
    """Export everything into a new warehouse; return what its receipts say.

    `master` is that of the session.

    Raises:
        AssertionError: a partition was not committed.
    """
    lake = open_catalog("lake", warehouse=directory)
    places = Places(SourcePlace(source, allow_insecure=True), lake)
    ports = open_ports(places, spark, Silent())
    to = LakeName.parse("lake.bench.exported")
    request = ExportRequest(TableName.parse(table_name), to, AllPartitions(), ExportOptions(), {})
    outcomes = export_all(request, ports, slots=slots(master))
    wrong = [o for o in outcomes if o.status.exit_code]
    assert not wrong, wrong[0]
    ports.ledger.close()
    table = ports.lake.table(to)
    assert table is not None
    location = f"{table.load().location}/{RECEIPTS}"
    receipts = stored_receipts(open_storage(location), location)
    rows = sum(o.rows for o in outcomes)
    return sum(r.file_bytes for r in receipts), rows, max(r.peak_memory for r in receipts)


if __name__ == "__main__":
    session = SparkWhenNeeded(SparkSettings(_MASTER))
    serve_lines(partial(export, sys.argv[1], sys.argv[2], session), Path(sys.argv[3]))
    os._exit(0)
