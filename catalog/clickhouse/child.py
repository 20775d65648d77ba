"""The process of an embedded ClickHouse: `python -m catalog.clickhouse.child IN OUT [DIR]`.

Reads requests and writes answers, one JSON object a line, over two inherited file descriptors:
standard output belongs to ClickHouse, which may print there. `embedded.py` is the other end. It is
a process of its own because chdb blocks signals while a query runs, allows one data path a process
and hangs after a fork. End of input ends it, also in the middle of a query. It removes DIR then.

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

# How long a statement may still take when the other end is gone, before the process ends anyway.
_GRACE_SECONDS: Final = 2.0
# How long closing may take; what a mutation does in the background has no other end.
_CLOSE_SECONDS: Final = 30.0
_DRAINS: Final = 3
_UNCLEAN: Final = 3

Request = dict[str, Any]
Leave = Callable[[int], None]


class _Clickhouse:
    """The one session of this process."""

    def __init__(self) -> None:
        self._session: Any = None

    def answer(self, request: Request) -> bytes:
        """Perform a request and return its answer, without the line end."""
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
        except Exception as error:  # noqa: BLE001  whatever it is, the other end is told
            self._drain()
            return json.dumps({"id": number, "error": f"{error}"}).encode()
        return json.dumps({"id": number, "done": True}).encode()

    def _drain(self) -> None:
        """Take away the rows of a failed query: chdb gives them out before those of the next."""
        if self._session is None:
            return
        for _ in range(_DRAINS):
            if self._session.query("SELECT 'clean'", "TSV").bytes() == b"clean\n":
                return
        # No answer of this process can be trusted any more.
        os._exit(_UNCLEAN)

    def close(self) -> None:
        """Close the session, which gives the directory free."""
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
    """Pass requests on until the other end is gone; a statement that then still runs is cut off."""
    for line in source:
        requests.put(json.loads(line))
    requests.put(None)
    if closing.wait(_GRACE_SECONDS):
        time.sleep(_CLOSE_SECONDS)
    leave(1)


def _leave(directory: str | None, status: int) -> None:
    """End the process; its directory goes with it."""
    # Also where the parent removes it: at the end of input nothing tells yet whether it was killed.
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
    # Past the interpreter's own ending, in which chdb's threads may still be at work.
    os._exit(status)


def main(requests_from: int, answers_to: int, directory: str | None = None) -> None:
    """Answer requests until there are no more, then end the process.

    Args:
        requests_from: the file descriptor of requests.
        answers_to: that of answers.
        directory: removed at the end.
    """
    requests: queue.Queue[Request | None] = queue.Queue()
    source = os.fdopen(requests_from, "rb")
    closing = threading.Event()
    leave = partial(_leave, directory)
    receiving = (source, requests, closing, leave)
    threading.Thread(target=_receive, args=receiving, daemon=True).start()
    clickhouse = _Clickhouse()
    with os.fdopen(answers_to, "wb") as answers:
        while (request := requests.get()) is not None:
            answers.write(clickhouse.answer(request) + b"\n")
            answers.flush()
    closing.set()
    clickhouse.close()
    leave(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
