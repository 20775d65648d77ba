"""The pages that are made of the recorded results, never by hand.

docs/reference/readers.md               surprises, pruning, types, as every reader has them
docs/reference/clickhouse-parquet.md    ClickHouse's own Parquet files, compared with exported ones
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.readers import encodings, native_parquet, recorded
from tests.readers.encodings import OfEncodings
from tests.readers.engines import ENGINES
from tests.readers.faults import FAULTS, REMARKS
from tests.readers.native_parquet import CANNOT, Compared
from tests.readers.pruning import CASES
from tests.readers.recorded import OfReader

__all__ = ["NATIVE", "READERS", "encodings_table", "native_page", "readers_page", "write"]

_REFERENCE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"
READERS: Final = _REFERENCE / "readers.md"
NATIVE: Final = _REFERENCE / "clickhouse-parquet.md"
_MADE: Final = "<!-- Made by `python -m tests.readers write-docs`; change what it is made of. -->"
_READERS: Final = """\
# Readers: verified surprises

{made}

The tests read the same exported tables with every reader on this page: a column of every type
with its extreme values, empty values and NULL; every partition transform with NULL, times before
1970 and texts of all kinds; columns that were added later; a table without rows. They compare
every value with ClickHouse's result, and also the rows that `=`, `<`, `>`, `IN`, `IS NULL` and
`AND` select on every scalar column. {versions}.

The tables are in local files and in an object store (S3 over TLS). Each reader gives the same
results for both. {far_only}

## Where a reader's result differs

In each case the data and its metadata are correct, and the result of the reader is wrong or
surprising. {right}.

{faults}

## What a query reads

Tested on copies of a table in which every byte that the query does not need is overwritten: the
result was still correct.

{pruning}

## Parquet encodings

An export writes plain values and dictionaries only
([decision 0022](../decisions/0022-plain-encodings.md)). Other writers of a lake table may use more.
Tested with files of pyarrow: a column of every type for which Parquet allows the encoding, with
NULL, compressed with zstd, in data pages of version 1 and of version 2. `yes` is for both versions;
`not` names the types of which the reader returns an error instead of values.

{encodings}

{unasked}

## Types that readers show

{shown}

## How a reader reaches S3

This table is for a store at `https://HOST:PORT` with the bucket in the path and a certificate of
a private authority. In addition to endpoint, region and credentials, each reader needs:

{far}

## Defaults that are not functions of the row

If a column was added with `DEFAULT now()`, `rand()` or `generateUUIDv4()` and old parts do not
have it, ClickHouse computes it at each read. So does an export, and the lake keeps the values of
that time. If the values matter, write them into the parts first: `ALTER TABLE … MATERIALIZE
COLUMN …`.
"""
_NATIVE: Final = """\
# ClickHouse's own Parquet files, compared with exported ones

{made}

This table compares what an export writes for each type with what `INSERT INTO FUNCTION file(…,
'Parquet')` of ClickHouse {version} writes. Both files hold the same rows. If pyarrow reads
another value from ClickHouse's file, the table shows the first difference. ClickHouse's files
have no field ids.

{table}

These types are the same in both files: {same}.
"""


def write() -> None:
    """Write both pages from what is recorded."""
    READERS.write_text(readers_page(recorded.load(), encodings.load()), encoding="utf-8")
    version = recorded.load()["ClickHouse"].version
    NATIVE.write_text(native_page(native_parquet.load(), version), encoding="utf-8")


def readers_page(results: Mapping[str, OfReader], encoded: Mapping[str, OfEncodings]) -> str:
    """Return the page about the readers."""
    names = [engine.name for engine in ENGINES]
    versions = ", ".join(f"{name} {results[name].version}" for name in names)
    faults = [(f.reader, f.what, f.result, f.way_round) for f in FAULTS]
    rows = sorted([*faults, *REMARKS], key=lambda row: names.index(row[0]))
    pruning = [
        (c.name, c.reads, *("yes" if results[n].pruned[c.name] else "**no**" for n in names))
        for c in CASES
    ]
    return _READERS.format(
        made=_MADE,
        versions=f"Tested with {versions}",
        right=_right(results),
        faults=_table(("reader", "query or table", "result", "workaround"), rows),
        pruning=_table(("pruning", "what remains to read", *names), pruning),
        encodings=encodings_table(encoded),
        unasked=_unasked(encoded),
        shown=_table(("Iceberg", *names), _shown(results)),
        far=_table(
            ("reader", "setting", "how it trusts the authority"),
            [(engine.name, engine.far, engine.trusts) for engine in ENGINES],
        ),
        far_only=_far_only(),
    )


def encodings_table(encoded: Mapping[str, OfEncodings]) -> str:
    """Return which reader reads which encoding."""
    rows = [
        (f"`{encoding}`", *(encodings.cell(of, encoding) for of in encoded.values()))
        for encoding in encodings.ENCODINGS
    ]
    return _table(("encoding", *encoded), rows)


def _unasked(encoded: Mapping[str, OfEncodings]) -> str:
    """Return which readers were not asked."""
    names = [engine.name for engine in ENGINES if engine.name not in encoded]
    return f"{' and '.join(names)}, which reads no local files, was not asked."


def native_page(found: Iterable[Compared], version: str) -> str:
    """Return the page about ClickHouse's own files."""
    by_type = {each.type: each for each in found}
    different = [
        (f"`{e.type}`", e.ours, e.theirs, _value(e))
        for e in by_type.values()
        if e.ours != e.theirs or e.values
    ]
    same = [f"`{e.type}`" for e in by_type.values() if e.ours == e.theirs and not e.values]
    return _NATIVE.format(
        made=_MADE,
        version=version,
        table=_table(("ClickHouse type", "exported", "ClickHouse's", "value"), different),
        same=", ".join(same),
    )


def _right(results: Mapping[str, OfReader]) -> str:
    """Return how many results differ, by reader."""
    counts = {name: sum(map(len, of.wrong.values())) for name, of in results.items()}
    counted = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"Results that differ, of {results['PyIceberg'].asked} queries: {counted}"


def _far_only() -> str:
    """Return which readers read no local files."""
    names = [engine.name for engine in ENGINES if not engine.of_files]
    return (
        f"{' and '.join(names)} reads only the object store, through the catalog that the "
        "export has committed to."
    )


def _value(compared: Compared) -> str:
    if compared.theirs.startswith(CANNOT):
        return ""
    return compared.values or "the same"


def _shown(results: Mapping[str, OfReader]) -> list[tuple[str, ...]]:
    names = [engine.name for engine in ENGINES]
    types = results[names[0]].shown
    return [(of, *(f"`{results[name].shown[of]}`" for name in names)) for of in types]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '¦') for cell in line)} |" for line in lines)
