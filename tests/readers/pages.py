"""The pages that are made of the recorded answers, never by hand.

docs/reference/readers.md               surprises, pruning, types, as every reader has them
docs/reference/clickhouse-parquet.md    ClickHouse's own Parquet files beside ours
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.readers import native_parquet, recorded
from tests.readers.engines import ENGINES
from tests.readers.faults import FAULTS, REMARKS
from tests.readers.native_parquet import CANNOT, Compared
from tests.readers.pruning import CASES
from tests.readers.recorded import OfReader

__all__ = ["NATIVE", "READERS", "native_page", "readers_page", "write"]

_REFERENCE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"
READERS: Final = _REFERENCE / "readers.md"
NATIVE: Final = _REFERENCE / "clickhouse-parquet.md"
_MADE: Final = "<!-- Made by `python -m tests.readers write-docs`; change what it is made of. -->"
_READERS: Final = """\
# Readers: verified surprises

{made}

Every reader below reads the same tables, which an export has written: a column of every type with
its extremes, empties and NULL; every partition transform with NULL, times before 1970 and texts of
all kinds; columns that were added later; a table without rows. Every value, and which rows `=`,
`<`, `>`, `IN`, `IS NULL` and `AND` find on every column of one value, is compared with ClickHouse's
own answer. {versions}.

The tables are in local files, and in an object store, S3 over TLS: a reader answers both alike.
{far_only}

## Where a reader's answer differs

The data and its metadata are right in each case; the answer of the reader is not, or not what one
would expect. {right}.

{faults}

## What a query reads

Proved on copies of a table in which every byte that the query has no need of is garbage: the answer
was right all the same.

{pruning}

## As what types are shown

{shown}

## How a reader reaches S3

A store behind `https://HOST:PORT` whose certificate an authority of one's own has signed, with the
bucket in the path. Beside endpoint, region and credentials, in each reader's own words, it takes:

{far}

## Defaults that are not functions of the row

A column that was added with `DEFAULT now()`, `rand()` or `generateUUIDv4()` and that old parts do
not hold yet is computed each time it is read, also by an export: the lake keeps the values of that
moment. Write them into the parts first, if they matter: `ALTER TABLE … MATERIALIZE COLUMN …`.
"""
_NATIVE: Final = """\
# ClickHouse's own Parquet files beside ours

{made}

What `INSERT INTO FUNCTION file(…, 'Parquet')` of ClickHouse {version} writes for each type, and
what an export writes. Both files hold the same rows; where pyarrow reads another value from
ClickHouse's file, the first one that differs is told. ClickHouse's files have no field ids.

{table}

Types that are not listed as different are the same in both files: {same}.
"""


def write() -> None:
    """Write both pages from what is recorded."""
    READERS.write_text(readers_page(recorded.load()), encoding="utf-8")
    version = recorded.load()["ClickHouse"].version
    NATIVE.write_text(native_page(native_parquet.load(), version), encoding="utf-8")


def readers_page(answers: Mapping[str, OfReader]) -> str:
    """Return the page about the readers."""
    names = [engine.name for engine in ENGINES]
    versions = ", ".join(f"{name} {answers[name].version}" for name in names)
    faults = [(f.reader, f.what, f.answer, f.way_round) for f in FAULTS]
    rows = sorted([*faults, *REMARKS], key=lambda row: names.index(row[0]))
    pruning = [
        (c.name, c.reads, *("yes" if answers[n].pruned[c.name] else "**no**" for n in names))
        for c in CASES
    ]
    return _READERS.format(
        made=_MADE,
        versions=f"Seen with {versions}",
        right=_right(answers),
        faults=_table(("reader", "what", "answer", "way round"), rows),
        pruning=_table(("pruning", "what is left to read", *names), pruning),
        shown=_table(("Iceberg", *names), _shown(answers)),
        far=_table(
            ("reader", "what it is told", "how it trusts the authority"),
            [(engine.name, engine.far, engine.trusts) for engine in ENGINES],
        ),
        far_only=_far_only(),
    )


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
        table=_table(("ClickHouse type", "ours", "ClickHouse's", "value"), different),
        same=", ".join(same),
    )


def _right(answers: Mapping[str, OfReader]) -> str:
    """Return how many answers differ, by reader."""
    counts = {name: sum(map(len, of.wrong.values())) for name, of in answers.items()}
    told = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"Of {answers['PyIceberg'].asked} questions so many are answered otherwise: {told}"


def _far_only() -> str:
    """Return which readers read no local files."""
    names = [engine.name for engine in ENGINES if not engine.of_files]
    return (
        f"{' and '.join(names)} is asked in the object store alone, through the catalog that the "
        "export has committed to."
    )


def _value(compared: Compared) -> str:
    if compared.theirs.startswith(CANNOT):
        return ""
    return compared.values or "the same"


def _shown(answers: Mapping[str, OfReader]) -> list[tuple[str, ...]]:
    names = [engine.name for engine in ENGINES]
    types = answers[names[0]].shown
    return [(of, *(f"`{answers[name].shown[of]}`" for name in names)) for of in types]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '¦') for cell in line)} |" for line in lines)
