"""What was stored beside the files is found after their table got another location."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyiceberg.table.update import SetLocationUpdate

from tests.support.session_lake import opened
from tests.wrong.places import Places


@pytest.fixture(params=["kept", "without"])
def table(places: Places, request: pytest.FixtureRequest) -> str:
    """Export a table, with a digest or without, move its location, and drop its first partition."""
    places.reads_parts = True
    name = f"moved_{request.param}"
    places.clickhouse_run(
        f"CREATE TABLE db.{name} (p UInt8, id Int64) ENGINE = MergeTree PARTITION BY p ORDER BY id",
        f"INSERT INTO db.{name} VALUES (1, 1), (1, 2), (2, 4)",
    )
    words = ("--verify",) if request.param == "kept" else ()
    code, _, err = places.run("export", f"db.{name}", "--all", "--to", f"lake.n.{name}", *words)
    assert code == 0, err
    lake = opened(places, name)
    elsewhere = SetLocationUpdate(location=f"file://{places.root}/elsewhere/{name}")
    lake.catalog.commit_table(lake, (), (elsewhere,))
    places.clickhouse_run(f"ALTER TABLE db.{name} DROP PARTITION ID '1'")
    return name


def verified(places: Places, table: str) -> dict[str, object]:
    words = ("--partition-id", "1", "--to", f"lake.n.{table}", "--json")
    _, out, _ = places.run("verify", f"db.{table}", *words)
    found: dict[str, object] = json.loads(out.splitlines()[0])
    return found


def test_verify_finds_digest_and_receipts(places: Places, table: str) -> None:
    """Harm prevented: rows that are right cannot be proved right, for want of an old location."""
    found = verified(places, table)

    if table.endswith("kept"):
        assert (found["verdict"], found["compared_with"]) == ("equal", "digest")
    else:
        assert found["verdict"] == "not_comparable"
        assert "byte for byte, those that it wrote" in str(found["message"])


def test_without_receipts_the_message_names_both_places(places: Places) -> None:
    name = "moved_bare"
    places.reads_parts = True
    places.clickhouse_run(
        f"CREATE TABLE db.{name} (p UInt8, id Int64) ENGINE = MergeTree PARTITION BY p ORDER BY id",
        f"INSERT INTO db.{name} VALUES (1, 1)",
    )
    assert places.run("export", f"db.{name}", "--all", "--to", f"lake.n.{name}")[0] == 0
    lake = opened(places, name)
    before, now = lake.location(), f"file://{places.root}/elsewhere/{name}"
    lake.catalog.commit_table(lake, (), (SetLocationUpdate(location=now),))
    places.clickhouse_run(f"ALTER TABLE db.{name} DROP PARTITION ID '1'")
    shutil.rmtree(Path(before.removeprefix("file://")) / "metadata" / "mergeberg")

    message = str(verified(places, name)["message"])

    assert f"{now}/metadata/mergeberg/" in message
    assert f"{before}/metadata/mergeberg/" in message
