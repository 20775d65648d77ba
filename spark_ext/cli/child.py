"""Runs a command line in the background: `python -m spark_ext.cli.child PIPE ARGUMENT…`.

It reports the transactions that it has begun through the pipe (`spark_ext.cli.background`).
"""

from __future__ import annotations

import os
import signal
import sys

from spark_ext.cli.background import report_through
from spark_ext.cli.main import run

__all__ = ["main"]


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    pipe = int(sys.argv[1])
    # Otherwise Spark's JVM and ClickHouse would keep the pipe open.
    os.set_inheritable(pipe, False)  # noqa: FBT003  the signature is Python's
    signal.signal(signal.SIGINT, signal.default_int_handler)
    report_through(pipe)
    sys.argv = ["mergeberg", *sys.argv[2:]]
    run()


if __name__ == "__main__":
    main()
