"""The pages and the recorded results belong together, and every surprise is explained."""

from __future__ import annotations

import pytest

from tests.readers import encodings, native_parquet, pages, recorded
from tests.readers.engines import ENGINES
from tests.readers.faults import FAULTS, REMARKS, Fault, explaining
from tests.repository.source_files import ROOT

RESULTS = recorded.load()
WRONG = [
    (reader, table, asked)
    for reader, of in RESULTS.items()
    for table, differ in of.wrong.items()
    for asked in differ
]
GATE = ("PyIceberg", "DuckDB", "ClickHouse", "Spark")
REGENERATED_BY = "python -m tests.readers write-docs"


def test_the_pages_are_made_of_what_is_recorded() -> None:
    """Harm prevented: the page tells what was true once."""
    page = pages.readers_page(RESULTS, encodings.load())
    native = pages.native_page(native_parquet.load(), RESULTS["ClickHouse"].version)

    assert pages.READERS.read_text(encoding="utf-8") == page, REGENERATED_BY
    assert pages.NATIVE.read_text(encoding="utf-8") == native, REGENERATED_BY


def test_every_result_that_differs_has_one_explanation() -> None:
    """Harm prevented: a wrong value of ours is recorded as some reader's fault."""
    explained = {cell: len(explaining(*cell)) for cell in WRONG}

    assert WRONG
    assert {cell: n for cell, n in explained.items() if n != 1} == {}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.reader} {fault.what}"[:60])
def test_every_explanation_belongs_to_a_result(fault: Fault) -> None:
    """Harm prevented: users work around what a reader does right by now."""
    assert [cell for cell in WRONG if fault.explains(*cell)]


def test_the_readers_of_the_gate_read_every_value() -> None:
    """Only what a reader has no notion of may differ: ClickHouse's arrays are never NULL."""
    values = [(r, t, a) for r, t, a in WRONG if r in GATE and " " not in a]

    assert sorted(values) == [
        ("ClickHouse", table, name)
        for table, names in (
            ("everything", ("null_struct", "variant")),
            ("grown", ("list", "map", "struct")),
        )
        for name in names
    ]


def test_every_reader_is_recorded_and_named_once() -> None:
    names = [engine.name for engine in ENGINES]

    assert list(RESULTS) == names
    assert len(set(names)) == len(names)
    assert {fault.reader for fault in FAULTS} | {remark[0] for remark in REMARKS} == set(names)


def test_the_lock_of_the_readers_names_no_place_and_has_hashes() -> None:
    """Where packages come from is the business of the machine that installs them."""
    folder = ROOT / "requirements" / "readers"
    lock = (folder / "readers.lock").read_text(encoding="utf-8")
    wanted = [
        line
        for line in (folder / "readers.in").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]

    assert "://" not in lock
    assert all(line.startswith("    --hash=sha256:") or "==" in line for line in lock.splitlines())
    assert [line for line in wanted if f"{line} \\\n    --hash=" not in lock] == []
