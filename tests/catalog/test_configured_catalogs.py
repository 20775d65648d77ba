"""Which configuration of PyIceberg's a catalog is opened by: its own, whatever others say."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.iceberg.catalogs import configured_catalogs, open_catalog
from tableformat.errors import DestinationError, NotFoundError


@pytest.fixture
def alongside_a_malformed_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Configure a catalog in the environment, with a malformed one next to it."""
    monkeypatch.setenv("PYICEBERG_CATALOG__OLD", "x")
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__URI", f"sqlite:///{tmp_path}/mine.db")
    return tmp_path


def test_a_malformed_entry_of_another_catalog_is_none_of_its_business(
    alongside_a_malformed_one: Path,
) -> None:
    """Harm prevented: a variable that somebody left behind fails every command."""
    warehouse = alongside_a_malformed_one

    assert open_catalog("MINE", warehouse=warehouse).properties["uri"].endswith("/mine.db")
    assert open_catalog("lake", warehouse=warehouse).local_warehouse == warehouse
    assert configured_catalogs() == {"mine", "old"}
    with pytest.raises(NotFoundError, match="Name one of mine, old, lake"):
        open_catalog("theirs", warehouse=warehouse)


def test_a_request_for_the_malformed_catalog_is_refused(alongside_a_malformed_one: Path) -> None:
    with pytest.raises(DestinationError, match="read PyIceberg's configuration"):
        open_catalog("old", warehouse=alongside_a_malformed_one)
