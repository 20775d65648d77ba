"""What a job acts on is opened so that nothing stays open when it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.iceberg.catalogs import open_catalog
from catalog.sources import SourcePlace
from spark_ext.actions import export_ports
from spark_ext.actions.export_ports import Places, SparkWhenNeeded, open_ports
from spark_ext.engine.session import SparkSettings
from tableformat.errors import UsageError
from tableformat.export.ports import Silent


@pytest.mark.parametrize("uri", ["https://", "nonsense:there", "parts:/x"])
def test_a_source_that_cannot_be_opened_leaves_no_ledger_open(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a session in Keeper for every statement with a wrong source."""
    opened: list[object] = []
    monkeypatch.setattr(export_ports, "open_ledger", lambda *_, **__: opened.append("a ledger"))
    lake = open_catalog("lake", warehouse=tmp_path)

    with pytest.raises(UsageError):
        open_ports(Places(SourcePlace(uri), lake), SparkWhenNeeded(SparkSettings()), Silent())

    assert opened == []
