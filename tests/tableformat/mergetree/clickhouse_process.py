"""A real ClickHouse for tests of text forms, in a process of its own: it must not be forked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHILD = Path(__file__).with_name("chdb_child.py")


class QueryError(Exception):
    """ClickHouse refused a query; the message is its own."""


class ClickHouse:
    """Runs queries in a child process that ends with this context."""

    def __enter__(self) -> Self:
        self._child = subprocess.Popen(
            [sys.executable, str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.communicate(timeout=60)

    def rows(self, sql: str) -> list[list[Any]]:
        """Return the rows of a query; none for a statement.

        Raises:
            QueryError: ClickHouse refused it.
        """
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(sql) + "\n")
        self._child.stdin.flush()
        response = json.loads(self._child.stdout.readline())
        if "error" in response:
            raise QueryError(response["error"])
        found: list[list[Any]] = response["rows"]
        return found

    def text(self, sql: str) -> str:
        """Return the one value of a query, as text."""
        ((value,),) = self.rows(sql)
        return str(value)
