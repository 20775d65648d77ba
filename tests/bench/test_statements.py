"""The benchmark of statements counts what it says; what changes metadata alone opens no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.statements import Measured, measure, table

FILES = 12


def test_statements_of_metadata_open_no_data_file_and_update_writes_least(
    tmp_path: Path,
) -> None:
    """Harm prevented: a partition of terabytes that is read to be detached, attached or frozen."""
    found = {one.statement: one for one in measure(tmp_path, FILES, 2_000)}

    counted = {name: (one.opened, one.written) for name, one in found.items()}
    assert counted["REPLACE FROM, --fast"][1] <= FILES
    del counted["REPLACE FROM, --fast"]
    assert counted.pop("UPDATE of 3 rows")[1] == 3
    assert counted == {
        "FREEZE": (0, 0),
        "DETACH": (0, 0),
        "ATTACH --fast": (0, 0),
        "DETACH again": (0, 0),
        "ATTACH, every byte": (FILES, 0),
    }


def test_the_table_shows_both_sizes_in_one_row() -> None:
    small, large = Measured("DETACH", 0.5, 0, 0), Measured("DETACH", 0.6, 0, 0)

    assert table([small], [large]).splitlines()[2] == "| DETACH | 0.50 | 0.60 | 1.20 | 0 | 0 |"
    with pytest.raises(ValueError, match="zip"):
        table([small], [])
