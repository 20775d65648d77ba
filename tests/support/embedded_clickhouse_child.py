"""The process behind `embedded_clickhouse.py`: it alone loads ClickHouse.

It serves requests, one JSON object per line: `{"sql": ...}` runs a statement, with `"arrow": path`
it also writes the result to an Arrow file. Every response is `{"error": text or null}`.
"""

from __future__ import annotations

# Loaded before the driver, else closing hangs.
import chdb  # noqa: F401

# isort: split
import json
import sys

import adbc_driver_chdb.dbapi as driver
import adbc_driver_manager
import pyarrow as pa


def serve() -> None:
    """Serve requests until the input ends."""
    with driver.connect("chdb://") as connection:
        for line in sys.stdin:
            request = json.loads(line)
            error = None
            try:
                with connection.cursor() as cursor:
                    cursor.execute(request["sql"])
                    if path := request.get("arrow"):
                        table = cursor.fetch_arrow_table()
                        with (
                            pa.OSFile(path, "wb") as file,
                            pa.ipc.new_file(file, table.schema) as w,
                        ):
                            w.write_table(table)
            except (adbc_driver_manager.Error, OSError) as failed:
                error = str(failed)
            sys.stdout.write(json.dumps({"error": error}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    serve()
