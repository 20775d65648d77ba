"""The readers by hand: `python -m tests.readers record | write-docs`.

record        ask every reader everything, record the answers (recorded.json), write the pages
write-docs    write docs/reference/readers.md and clickhouse-parquet.md from what is recorded
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.readers import native_parquet, pages, recorded
from tests.readers.engines import ENGINES, Reader
from tests.readers.lake import open_lake
from tests.readers.measure import truth_of
from tests.readers.pruning import make_poisoned

__all__: list[str] = []


def main() -> int:
    """Do what was asked for; return the exit code."""
    arguments = argparse.ArgumentParser(prog="python -m tests.readers")
    arguments.add_argument("what", choices=("record", "write-docs"))
    if arguments.parse_args().what == "record":
        _record()
    pages.write()
    return 0


def _record() -> None:
    with tempfile.TemporaryDirectory(prefix="mergeberg-readers-") as directory:
        with open_lake(Path(directory)) as lake:
            truths = [truth_of(lake, table) for table in lake.make_all()]
            poisoned = make_poisoned(lake)
            native_parquet.save(native_parquet.compare(lake, truths[0].table))
        answers = {}
        for engine in ENGINES:
            sys.stdout.write(f"{engine.name}\n")
            sys.stdout.flush()
            with Reader(engine) as reader:
                answers[engine.name] = recorded.measure(reader, truths, poisoned)
    recorded.save(answers)


if __name__ == "__main__":
    sys.exit(main())
