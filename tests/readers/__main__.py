"""The readers by hand: `python -m tests.readers record | encodings | over-s3 | write-docs`.

record        ask every reader everything, record the results (recorded.json), write the pages
encodings     ask every reader of local files for every encoding of Parquet, print which it reads,
              record that (encodings.json), write the pages
over-s3       ask every reader everything over S3, say which results are not those recorded
write-docs    write docs/reference/readers.md and clickhouse-parquet.md from what is recorded

`record` asks about local files, but readers that read none. `make readers ARGS=record` and so on
fetch Trino before.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from catalog.iceberg.catalogs import open_catalog
from tests.readers import encodings, native_parquet, pages, recorded
from tests.readers.encodings import make_encoded, read_encodings
from tests.readers.engines import ENGINES, Engine, Reader
from tests.readers.far import far_catalog
from tests.readers.lake import open_lake
from tests.readers.measure import Truth, truth_of
from tests.readers.pruning import Poisoned, make_poisoned
from tests.readers.recorded import OfReader
from tests.readers.store import ObjectStore
from tests.services.minio import minio
from tests.services.trino import trino

__all__: list[str] = []


def main() -> int:
    """Do what was asked for; return the exit code: 1 for results that are not those recorded."""
    arguments = argparse.ArgumentParser(prog="python -m tests.readers")
    arguments.add_argument("what", choices=("record", "encodings", "over-s3", "write-docs"))
    what = arguments.parse_args().what
    if what == "over-s3":
        return _compare()
    if what == "record":
        _record()
    if what == "encodings":
        _record_encodings()
    pages.write()
    return 0


def _record() -> None:
    with tempfile.TemporaryDirectory(prefix="mergeberg-readers-") as directory:
        with open_lake(Path(directory)) as lake:
            truths = [truth_of(lake, table) for table in lake.make_all()]
            poisoned = make_poisoned(lake)
            native_parquet.save(native_parquet.compare(lake, truths[0].table))
        local = tuple(engine for engine in ENGINES if engine.of_files)
        results = {e.name: _measured(e, None, truths, poisoned) for e in local}
    results |= _over_s3([engine for engine in ENGINES if not engine.of_files])
    recorded.save(results)


def _record_encodings() -> None:
    results = {}
    with tempfile.TemporaryDirectory(prefix="mergeberg-readers-") as directory:
        tables = make_encoded(open_catalog("lake", warehouse=Path(directory)).catalog)
        for engine in (engine for engine in ENGINES if engine.of_files):
            with Reader(engine) as reader:
                results[engine.name] = read_encodings(reader, tables)
    encodings.save(results)
    sys.stdout.write(f"{pages.encodings_table(results)}\n")


def _compare() -> int:
    known = recorded.load()
    others = [
        f"{name}: {part} {results}\n"
        for name, found in _over_s3(ENGINES).items()
        for part, results in asdict(found).items()
        if results != asdict(known[name])[part]
    ]
    sys.stdout.writelines(others or ["All answers are those recorded.\n"])
    return 1 if others else 0


def _over_s3(engines: Sequence[Engine]) -> dict[str, OfReader]:
    with (
        tempfile.TemporaryDirectory(prefix="mergeberg-readers-") as directory,
        minio() as store,
        far_catalog(store, Path(directory)) as far,
    ):
        with open_lake(Path(directory), far.properties) as lake:
            truths = [truth_of(lake, table) for table in lake.make_all()]
            poisoned = make_poisoned(lake)
        with trino(store, far.store.catalog) as server:
            far_store = replace(far.store, trino=server.port)
            return {e.name: _measured(e, far_store, truths, poisoned) for e in engines}


def _measured(
    engine: Engine, store: ObjectStore | None, truths: list[Truth], poisoned: tuple[Poisoned, ...]
) -> OfReader:
    sys.stdout.write(f"{engine.name}\n")
    sys.stdout.flush()
    with Reader(engine, store) as reader:
        return recorded.measure(reader, truths, poisoned)


if __name__ == "__main__":
    sys.exit(main())
