"""The child of `clickhouse_process`: responds to queries, one JSON line each way.

The engine is in memory. It may write to file descriptor 1, so responses use a copy of it.
"""

from __future__ import annotations

import json
import os
import sys

from chdb import session


def serve() -> None:
    """Respond until the input ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as responses:
        os.dup2(2, 1)
        engine = session.Session()  # type: ignore[no-untyped-call]
        for line in sys.stdin:
            try:
                result = engine.query(json.loads(line), "JSONCompact")  # type: ignore[no-untyped-call]
                text = str(result)
                response = {"rows": json.loads(text)["data"] if text else []}
            except Exception as error:  # noqa: BLE001  whatever it is, the parent raises it
                response = {"error": str(error)}
            responses.write(json.dumps(response) + "\n")
            responses.flush()
        engine.close()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    serve()
