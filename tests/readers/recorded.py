"""The results of the readers, as recorded next to this file, and how they are measured again.

    versions    {reader: version}
    shown       {reader: {Iceberg type: the reader's type}}
    wrong       {reader: {table: {what was asked: the result}}}; what is not there was right
    pruned      {reader: {case: whether the poison was not touched}}
    asked       {reader: of how many columns and filters a result was compared}

The tests fail when a measured result is another one than the recorded, for better or worse; the
page docs/reference/readers.md is made of the recorded ones (`pages.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.readers.engines import ENGINES, Reader
from tests.readers.measure import Truth, shown_types, wrong_filters, wrong_values
from tests.readers.pruning import Poisoned, prunes

__all__ = ["FILE", "OfReader", "load", "measure", "save"]

FILE: Final = Path(__file__).with_name("recorded.json")


@dataclass(frozen=True, slots=True)
class OfReader:
    """All results of one reader."""

    version: str
    shown: Mapping[str, str]
    wrong: Mapping[str, Mapping[str, Any]]
    pruned: Mapping[str, bool]
    asked: int


def measure(reader: Reader, truths: Iterable[Truth], poisoned: Iterable[Poisoned]) -> OfReader:
    """Ask a reader everything. The first table is the one whose types are shown."""
    tables = list(truths)
    wrong = {
        truth.table.name: {
            w.asked: w.result for w in (*wrong_values(reader, truth), *wrong_filters(reader, truth))
        }
        for truth in tables
    }
    return OfReader(
        reader.version(),
        shown_types(reader, tables[0].table),
        {table: results for table, results in wrong.items() if results},
        {case.case.name: prunes(reader, case) for case in poisoned},
        sum(len(truth.filters) + len(truth.table.columns) for truth in tables),
    )


def load() -> dict[str, OfReader]:
    """Return the recorded results by reader."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    return {engine.name: OfReader(**found[engine.name]) for engine in ENGINES}


def save(results: Mapping[str, OfReader]) -> None:
    """Record results; the text is the same for the same results."""
    content = {engine.name: asdict(results[engine.name]) for engine in ENGINES}
    text = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=False)
    FILE.write_text(f"{text}\n", encoding="utf-8")
