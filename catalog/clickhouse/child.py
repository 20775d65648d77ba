"""Runs an embedded ClickHouse: `python -m catalog.clickhouse.child IN OUT [DIR]`.

It reads requests and writes responses, one JSON object a line, over two inherited file descriptors.
Standard output belongs to ClickHouse, which may print there. `embedded.py` is the other end. This
is a separate process because chdb blocks signals while a query runs, allows one data path in a
process, and hangs after a fork. The end of input ends the process, also during a query. It then
removes DIR.

    {"id": 1, "open": "<path>[?config-file=<file>]"}    -> {"id": 1, "done": true}
    {"id": 2, "rows": "<sql>"}                          -> {"id": 2, "rows": [[...], ...]}
    {"id": 3, "command": "<sql>"}                       -> {"id": 3, "done": true}
    anything that fails                                 -> {"id": n, "error": "<ClickHouse's text>"}
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO, Final

from chdb import session

__all__ = ["main"]

# Time limit of a statement after the parent has closed its end.
_GRACE_SECONDS: Final = 2.0
# Time limit of closing, because a background mutation may never end.
_CLOSE_SECONDS: Final = 30.0
_DRAINS: Final = 3
_UNCLEAN: Final = 3

Request = dict[str, Any]
Leave = Callable[[int], None]


class _Clickhouse:
    """The only session of this process."""

    def __init__(self) -> None:
        self._session: Any = None

    def execute(self, request: Request) -> bytes:
        """Execute a request; return the response without a line end."""
        number = request["id"]
        try:
            if "open" in request:
                path = request["open"]
                self._session = session.Session(path)  # type: ignore[no-untyped-call]
            elif "command" in request:
                self._session.query(request["command"], "Null")
            else:
                result = self._session.query(request["rows"], "JSONCompactEachRow")
                return b'{"id":%d,"rows":[%s]}' % (number, _joined(result.bytes()))
        except Exception as error:  # noqa: BLE001  reported to the other end
            self._drain()
            return json.dumps({"id": number, "error": f"{error}"}).encode()
        return json.dumps({"id": number, "done": True}).encode()

    def _drain(self) -> None:
        """Discard the rows of a failed query, which chdb would return before the next result."""
        if self._session is None:
            return
        for _ in range(_DRAINS):
            if self._session.query("SELECT 'clean'", "TSV").bytes() == b"clean\n":
                return
        # Further responses could belong to an earlier statement.
        os._exit(_UNCLEAN)

    def close(self) -> None:
        """Close the session, which releases the directory."""
        if self._session is not None:
            self._session.close()


def _joined(lines: bytes) -> bytes:
    return b",".join(line for line in lines.split(b"\n") if line)


def _receive(
    source: BinaryIO,
    requests: queue.Queue[Request | None],
    closing: threading.Event,
    leave: Leave,
) -> None:
    """Queue requests until the parent closes its end, then end the process if it does not stop."""
    for line in source:
        requests.put(json.loads(line))
    requests.put(None)
    if closing.wait(_GRACE_SECONDS):
        time.sleep(_CLOSE_SECONDS)
    leave(1)


def _leave(directory: str | None, status: int) -> None:
    """Remove the directory, and end the process."""
    # Also if the parent removes it, because the parent may have been killed.
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
    # Without the interpreter's shutdown, during which threads of chdb may still run.
    os._exit(status)


def main(requests_from: int, responses_to: int, directory: str | None = None) -> None:
    """Execute requests until input ends, then end the process.

    Args:
        requests_from: the file descriptor to read requests from.
        responses_to: the file descriptor to write responses to.
        directory: a directory to remove at the end.
    """
    requests: queue.Queue[Request | None] = queue.Queue()
    source = os.fdopen(requests_from, "rb")
    closing = threading.Event()
    leave = partial(_leave, directory)
    receiving = (source, requests, closing, leave)
    threading.Thread(target=_receive, args=receiving, daemon=True).start()
    clickhouse = _Clickhouse()
    with os.fdopen(responses_to, "wb") as responses:
        while (request := requests.get()) is not None:
            responses.write(clickhouse.execute(request) + b"\n")
            responses.flush()
    closing.set()
    clickhouse.close()
    leave(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
