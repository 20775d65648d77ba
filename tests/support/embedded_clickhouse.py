"""ClickHouse for tests, in a process of its own: the test process itself never loads it.

The process is `embedded_clickhouse_child.py`: results come as a task would receive them.
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
        self._child = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("embedded_clickhouse_child.py"))],
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
        response = self._child.stdout.readline()
        assert response, "the ClickHouse process ended"
        if error := json.loads(response)["error"]:
            message = f"{error}\nin {request['sql']}"
            raise RuntimeError(message)
