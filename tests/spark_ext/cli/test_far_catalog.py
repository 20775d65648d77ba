"""Statements on a lake whose storage is reached by the properties of its catalog, and nothing else.

The environment has no credentials, no endpoint and no authorities of the store.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from catalog.iceberg.catalogs import open_catalog
from spark_ext.actions import export_ports
from tableformat.names import LakeName
from tests.services.s3_server import S3Server
from tests.support.child_writer import ChildWriter
from tests.support.s3_places import properties_of
from tests.wrong.places import Places

_TABLE: Final = "far.n.t"
_ONE: Final = ("--partition-id", "1")
_STATEMENTS: Final = (
    ("clear-index", _TABLE, *_ONE, "--index", "i"),
    ("clear-column", _TABLE, *_ONE, "--column", "s"),
    ("update", _TABLE, *_ONE, "--set", "s = 'x'", "--where", "id = 1"),
    ("delete", _TABLE, *_ONE, "--where", "id = 2"),
    ("freeze", _TABLE, *_ONE, "--name", "kept"),
    ("detach", _TABLE, *_ONE),
    ("attach", _TABLE, *_ONE),
    ("drop", _TABLE, *_ONE, "--yes"),
)


@pytest.fixture
def run(
    places: Places, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    """Export a table with a skip index in two files a partition; return what runs commands."""
    monkeypatch.setattr(
        export_ports, "SparkWriter", lambda *of: ChildWriter(lambda *_: None, storages=of[-1])
    )
    properties = {
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{s3_server.make_bucket()}/wh",
        **properties_of(s3_server),
    }
    for name, value in properties.items():
        named = name.upper().replace(".", "__").replace("-", "_")
        monkeypatch.setenv(f"PYICEBERG_CATALOG__FAR__{named}", value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    places.clickhouse_run(
        "CREATE OR REPLACE TABLE db.far (p UInt8, id Int64, s String, INDEX i s TYPE bloom_filter)"
        " ENGINE = MergeTree PARTITION BY p ORDER BY id",
        "INSERT INTO db.far VALUES (1, 1, 'a'), (2, 2, 'b')",
        "INSERT INTO db.far VALUES (1, 2, 'b'), (2, 3, 'c')",
    )

    def ran(*words: str) -> tuple[int, str]:
        code, out, err = places.run(*words, "--ledger", f"sqlite:{tmp_path}/ledger.db")
        return code, out + err

    code, output = ran("export", "db.far", "--all", "--to", _TABLE)
    assert code == 0, output
    return ran


def rows(places: Places) -> list[tuple[object, ...]]:
    """Return the rows of partition 1."""
    table = open_catalog("far", warehouse=places.warehouse).table(LakeName.parse(_TABLE))
    assert table is not None
    found = table.loaded.scan(row_filter="p = 1").to_arrow().to_pylist()
    return sorted((row["id"], row["s"]) for row in found)


def test_statements_reach_the_storage_as_the_catalog_says(
    places: Places, run: Callable[..., tuple[int, str]]
) -> None:
    """Harm prevented: a statement works only where the environment happens to have credentials."""
    left = {}
    for words in _STATEMENTS:
        code, output = run(*words)
        assert code == 0, (words, output)
        assert "unchanged" not in output, (words, output)
        left[words[0]] = rows(places)

    assert left == {
        "clear-index": [(1, "a"), (2, "b")],
        "clear-column": [(1, ""), (2, "")],
        "update": [(1, "x"), (2, "")],
        "delete": [(1, "x")],
        "freeze": [(1, "x")],
        "detach": [],
        "attach": [(1, "x")],
        "drop": [],
    }
