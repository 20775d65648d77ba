"""ClickHouse for tests, in a process of its own: the test process itself never loads it.

Run as a program it answers requests, one JSON object per line: `{"sql": ...}` runs a statement,
`{"sql": ..., "arrow": path}` writes the result to an Arrow file as a task would receive it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

__all__ = ["EmbeddedClickHouse"]


class EmbeddedClickHouse:
    """A ClickHouse in memory; a context manager."""

    def __init__(self) -> None:
        """Prepare; the process starts on entry."""
        self._directory = tempfile.TemporaryDirectory(prefix="mergeberg-test-")

    def __enter__(self) -> Self:
        """Start the process."""
        self._child = subprocess.Popen(  # noqa: S603  our own program
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._directory.name,
        )
        return self

    def __exit__(self, *_: object) -> None:
        """End the process by ending its input."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait(timeout=60)
        self._child.stdout.close()
        self._directory.cleanup()

    def run(self, *statements: str) -> None:
        """Run statements without a result."""
        for sql in statements:
            self._ask({"sql": sql})

    def arrow(self, sql: str) -> pa.Table:
        """Return the result of a query in Arrow, as the driver hands it over."""
        path = str(Path(self._directory.name) / "result.arrow")
        self._ask({"sql": sql, "arrow": path})
        with pa.OSFile(path) as file, pa.ipc.open_file(file) as reader:
            return reader.read_all()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the result of a query as Python values."""
        table = self.arrow(sql)
        return list(zip(*(c.to_pylist() for c in table.columns), strict=True))

    def _ask(self, request: dict[str, str]) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(request) + "\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline()
        assert answer, "the ClickHouse process ended"
        if error := json.loads(answer)["error"]:
            message = f"{error}\nin {request['sql']}"
            raise RuntimeError(message)


def _serve() -> None:
    import chdb  # noqa: F401  must be loaded before the driver, else closing hangs

    import adbc_driver_chdb.dbapi as driver
    import adbc_driver_manager

    with driver.connect("chdb://") as connection:
        for line in sys.stdin:
            request = json.loads(line)
            error = None
            try:
                with connection.cursor() as cursor:
                    cursor.execute(request["sql"])
                    if path := request.get("arrow"):
                        table = cursor.fetch_arrow_table()
                        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as w:
                            w.write_table(table)
            except (adbc_driver_manager.Error, OSError) as failed:
                error = str(failed)
            sys.stdout.write(json.dumps({"error": error}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    _serve()
