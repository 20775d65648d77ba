"""Which ledger a session's system tables tell of."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from spark_ext.system_tables import known_ledger
from tableformat.errors import UnsupportedError


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Return a warehouse with a ledger next to it."""
    made = tmp_path / "warehouse"
    made.mkdir()
    assert SqliteLedger(made / LEDGER_FILE).identity
    return made


def uri_of(conf: dict[str, str]) -> str | None:
    with known_ledger(conf) as ledger:
        return None if ledger is None else ledger.uri


def test_it_is_the_one_next_to_the_built_in_warehouse(warehouse: Path) -> None:
    conf = {"spark.mergeberg.warehouse": str(warehouse)}

    assert uri_of(conf) == f"sqlite:{warehouse / LEDGER_FILE}"


def test_one_that_is_named_wins(warehouse: Path, tmp_path: Path) -> None:
    named = tmp_path / "named.db"
    assert SqliteLedger(named).identity
    conf = {
        "spark.mergeberg.warehouse": str(warehouse),
        "spark.mergeberg.ledger": f"sqlite:{named}",
    }

    assert uri_of(conf) == f"sqlite:{named}"


def test_a_users_own_catalog_has_no_default_ledger(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: exports of the demo are shown as those of the production lake."""
    conf = {"spark.mergeberg.warehouse": str(warehouse)}

    assert (
        uri_of(conf | {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog"}) is None
    )

    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "http://127.0.0.1:1")
    assert uri_of(conf) is None


def test_one_that_was_not_made_yet_is_none(tmp_path: Path) -> None:
    """Nothing was exported: the tables are empty, and no file is made."""
    assert uri_of({"spark.mergeberg.ledger": f"sqlite:{tmp_path / 'l.db'}"}) is None
    assert list(tmp_path.iterdir()) == []


def test_a_kind_that_nobody_knows_is_an_error() -> None:
    """Harm prevented: an empty table where a typing error hides every export."""
    with pytest.raises(UnsupportedError, match="this release knows sqlite:PATH and keeper:"):
        uri_of({"spark.mergeberg.ledger": "redis://host/path"})
