"""ClickHouse's own side with many partitions: a native INSERT for each, for every line.

python -m tests.bench.many_native CLICKHOUSE DIRECTORY PARTITIONS
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from chdb.session import Session

from tableformat.names import quote_string
from tableformat.parquet.writer import FileFormat
from tests.bench.many import MANY_ROWS, MANY_TABLE, Transferred, serve_lines
from tests.support.processes import own_peak


def insert(session: Session, partitions: int, directory: Path) -> Transferred:
    """Write a file for each partition, in the codec of our own files, in the order of the key."""
    fmt = FileFormat()
    settings = (
        f"max_threads = 1, output_format_parquet_compression_method = {quote_string(fmt.codec)},"
        f" output_format_compression_level = {fmt.level}"
    )
    for number in range(partitions):
        path = quote_string(str(directory / f"{number}.parquet"))
        session.query(  # type: ignore[no-untyped-call]
            f"INSERT INTO FUNCTION file({path}, 'Parquet') SELECT * FROM {MANY_TABLE}"
            f" WHERE p = {number} ORDER BY id SETTINGS {settings}"
        )
    files = list(directory.iterdir())
    assert len(files) == partitions
    return sum(f.stat().st_size for f in files), partitions * MANY_ROWS, own_peak()


if __name__ == "__main__":
    opened = Session(sys.argv[1])  # type: ignore[no-untyped-call]
    serve_lines(partial(insert, opened, int(sys.argv[3])), Path(sys.argv[2]))
    # Past the ending of chdb's threads; the directory is free when the process is gone.
    opened.close()  # type: ignore[no-untyped-call]
    os._exit(0)
