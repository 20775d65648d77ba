"""FETCH PARTITION and PART from frozen parts of a MergeTree table, without its server."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.frozen.definition import FrozenSettings, render_parts
from catalog.storages.local import LocalStorage
from tableformat.errors import NotFoundError, RefusedError, TableFormatError
from tableformat.export.commit_lists import read_lists
from tests.support.session_lake import ALLOWED, alter, opened, rows_of
from tests.support.session_without_spark import NoSpark, Row
from tests.wrong.places import Places


@dataclass(frozen=True)
class Frozen:
    """Part folders that FREEZE left of a table, and the file with its statement."""

    directory: Path
    statement: Path
    identity: str = ""

    @property
    def uri(self) -> str:
        return render_parts(FrozenSettings(self.directory, self.statement, self.identity, "UTC"))


def freeze(places: Places, table: str, directory: Path) -> Frozen:
    """Freeze a table, and copy what is left of it."""
    directory.mkdir()
    with EmbeddedConnection(places.clickhouse) as connection:
        connection.command(f"ALTER TABLE db.{table} FREEZE WITH NAME '{directory.name}_{table}'")
        ((statement,),) = connection.rows(f"SHOW CREATE TABLE db.{table}")
        ((uuid,),) = connection.rows(
            f"SELECT toString(uuid) FROM system.tables WHERE database = 'db' AND name = '{table}'"
        )
    (shadow,) = (places.clickhouse / "shadow" / f"{directory.name}_{table}").glob("store/*/*")
    shutil.copytree(shadow, directory / "parts")
    (directory / "table.sql").write_text(str(statement))
    return Frozen(directory / "parts", directory / "table.sql", f"uuid:{uuid}")


@pytest.fixture(scope="module")
def moments(module_places: Places, tmp_path_factory: pytest.TempPathFactory) -> Frozen:
    """Return frozen parts of a table with two parts in 1, and one in 2."""
    with EmbeddedConnection(module_places.clickhouse) as connection:
        connection.command(
            "CREATE TABLE db.moments (p UInt8, n UInt64, at DateTime64(9, 'UTC'),"
            " e Enum8('a' = 1, 'b' = 2), m Map(String, Array(Nullable(Int32))))"
            " ENGINE = MergeTree PARTITION BY p ORDER BY n"
        )
        # The lake has no nanoseconds.
        for p, begin, nanoseconds in ((1, 0, 0), (1, 3, 0), (2, 6, 0), (9, 9, 1)):
            at = f"toDateTime64('2024-01-01', 9, 'UTC') + number, {nanoseconds}"
            connection.command(
                f"INSERT INTO db.moments SELECT {p}, number, addNanoseconds({at}), number % 2 + 1,"
                f" map('k', [number, NULL]) FROM numbers({begin}, 3)"
            )
    return freeze(module_places, "moments", tmp_path_factory.mktemp("frozen") / "of_moments")


@pytest.fixture
def table(places: Places, session: NoSpark, moments: Frozen, request: pytest.FixtureRequest) -> str:
    """Return the name of a lake table of the moments."""
    assert moments.directory.exists()
    places.reads_parts = True
    name = f"moments_{abs(hash(request.node.name))}"
    export(session, name)
    return name


def export(session: NoSpark, to: str) -> list[Row]:
    """Export what the lake can hold of the moments."""
    to = f"TO TABLE lake.n.{to}"
    statement = f"ALTER TABLE ch.db.moments EXPORT PARTITION 1 {to}, EXPORT PARTITION 2 {to}"
    return alter(session, f"{statement} {ALLOWED}")


def numbers(places: Places, name: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = opened(places, name).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: int(str(row["n"])))


def listed(places: Places, name: str) -> set[str]:
    """Return the files that the lists of receipts name."""
    location = opened(places, name).location()
    return {f for one in read_lists(LocalStorage(), location) for f in one.files}


def test_a_partition_is_fetched_from_frozen_parts(
    places: Places, session: NoSpark, moments: Frozen, table: str
) -> None:
    """The same rows as an export of it has, without its server."""
    name = f"lake.n.{table}"
    before = numbers(places, table)
    alter(session, f"ALTER TABLE {name} DROP PARTITION 1")
    main = opened(places, table).metadata.current_snapshot_id

    (row,) = alter(session, f"ALTER TABLE {name} FETCH PARTITION 1 FROM '{moments.uri}'")

    assert (row["status"], row["rows"], row["data_files"]) == ("fetched", 6, 2)
    assert opened(places, table).metadata.current_snapshot_id == main
    with pytest.raises(RefusedError, match="are detached here already") as refused:
        alter(session, f"ALTER TABLE {name} FETCH PARTITION 1 FROM '{moments.uri}'")
    assert refused.value.code == 256
    (row,) = alter(session, f"ALTER TABLE {name} ATTACH PARTITION 1")
    assert row["rows"] == 6
    assert numbers(places, table) == before
    # So that a lost ledger can be rebuilt.
    assert {t.file.file_path for t in opened(places, table).scan().plan_files()} <= listed(
        places, table
    )
    with pytest.raises(RefusedError, match="ATTACH PARTITION ID '1' changed it"):
        export(session, table)
    assert rows_of(places, table) == 9


@pytest.mark.representative
def test_a_part_is_fetched_from_frozen_parts(
    places: Places, session: NoSpark, moments: Frozen, table: str
) -> None:
    name = f"lake.n.{table}"
    alter(session, f"ALTER TABLE {name} DROP PARTITION 1")
    parts = sorted(p.name for p in moments.directory.iterdir() if p.name.startswith("1_"))

    with pytest.raises(NotFoundError, match="no part of that name") as refused:
        alter(session, f"ALTER TABLE {name} FETCH PART '1_77_77_0' FROM '{moments.uri}'")
    (row,) = alter(session, f"ALTER TABLE {name} FETCH PART '{parts[1]}' FROM '{moments.uri}'")

    assert refused.value.code == 234
    assert (row["status"], row["rows"]) == ("fetched", 3)
    alter(session, f"ALTER TABLE {name} ATTACH PARTITION 1")
    assert [one["n"] for one in numbers(places, table)] == [3, 4, 5, 6, 7, 8]


def spoilt(moments: Frozen, directory: Path, how: str) -> Frozen:
    """Return a copy of parts that cannot be fetched."""
    shutil.copytree(moments.directory, directory / "parts")
    statement = moments.statement.read_text()
    (directory / "table.sql").write_text(statement)
    if how == "a damaged part":
        data = min((directory / "parts").glob("1_*/data.bin"))
        data.write_bytes(data.read_bytes()[:-8] + b"12345678")
    return Frozen(directory / "parts", directory / "table.sql", moments.identity)


@pytest.mark.parametrize(
    ("how", "partition", "message", "code"),
    [
        ("another table", "1", "Tables have different structure: .*different partition key", 122),
        ("a damaged part", "1", r"Cannot fetch partition 1 of db\.moments: .*1_1_1_0", None),
        ("nothing", "77", "has no files of it", 257),
    ],
)
def test_what_is_no_partition_of_the_table_is_refused_and_changes_nothing(
    places: Places,
    session: NoSpark,
    moments: Frozen,
    tmp_path: Path,
    how: str,
    partition: str,
    message: str,
    code: int | None,
) -> None:
    if not (places.warehouse / "n" / "refused").exists():
        export(session, "refused")
    if how == "another table":
        parts = freeze(places, "events", tmp_path / "of_events")
    else:
        parts = spoilt(moments, tmp_path, how)
    before = places.files()

    with pytest.raises(TableFormatError, match=message) as refused:
        alter(
            session,
            f"ALTER TABLE lake.n.refused FETCH PARTITION {partition} FROM '{parts.uri}'",
        )

    assert code in (None, refused.value.code)
    assert places.files() == before


def test_a_value_that_the_lake_cannot_hold_leaves_nothing_visible_behind(
    places: Places, session: NoSpark, moments: Frozen, table: str
) -> None:
    message = (
        r"Cannot change partition 9 of lake\..*: Cannot fetch partition 9 of db\.moments: column at"
    )
    with pytest.raises(TableFormatError, match=message):
        alter(session, f"ALTER TABLE lake.n.{table} FETCH PARTITION 9 FROM '{moments.uri}'")

    assert "detached" not in opened(places, table).metadata.refs
    assert rows_of(places, table) == 9
