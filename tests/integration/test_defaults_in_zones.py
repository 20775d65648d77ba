"""Defaults that depend on the server's time zone, of columns that parts lack, read on another host.

The server is in Tokyo. Every export here runs in UTC, and has the server's values or none.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.sources import SourcePlace, open_source
from tableformat.errors import UsageError
from tableformat.names import TableName
from tests.support.real_export import RealExport, Rows

_NAME: Final = TableName("db", "t")
_ZONE: Final = "Asia/Tokyo"
_ADDED: Final = (
    "a DateTime DEFAULT '2024-01-01 00:00:00'",
    "b UInt8 DEFAULT toHour(ts)",
    "c String DEFAULT toString(ts)",
    "d Date DEFAULT ts",
    "e DateTime64(3) DEFAULT toDateTime64('2024-01-01 00:00:00', 3)",
    "f UInt16 DEFAULT b + 1",
)
_FREE: Final = (
    "a DateTime DEFAULT 0; b UInt8 DEFAULT id % 2; c String DEFAULT 'x 2024-01-01';"
    " d Date DEFAULT '2024-01-01'; e DateTime('UTC') DEFAULT '2024-01-01 00:00:00';"
    " f DateTime DEFAULT ts"
)
_VALUES: Final = "id, toUnixTimestamp(a), b, c, toString(d), toUnixTimestamp64Milli(e), f"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the directory of a server in Tokyo, whose part was written before the columns."""
    return made(tmp_path / "server", "; ".join(_ADDED))


def made(directory: Path, columns: str) -> Path:
    """Make the directory of a server whose part lacks columns."""
    with EmbeddedConnection(directory, create=True, zone=_ZONE) as server:
        server.command("CREATE DATABASE db")
        server.command(
            "CREATE TABLE db.t (p UInt8, id UInt32, ts DateTime) ENGINE = MergeTree PARTITION BY p"
            " ORDER BY id"
        )
        server.command("INSERT INTO db.t SELECT 0, number, 1700000000 + number FROM numbers(3)")
        added = columns.replace("; ", ", ADD COLUMN ")
        server.command(f"ALTER TABLE db.t ADD COLUMN {added}")
    return directory


def of_server(directory: Path) -> Rows:
    """Return the values that the server shows."""
    with EmbeddedConnection(directory, zone=_ZONE) as server:
        return sorted(server.rows(f"SELECT {_VALUES} FROM db.t"))


def parts_of(directory: Path) -> str:
    """Freeze the table; return the address of the part folders, without a time zone."""
    with EmbeddedConnection(directory, zone=_ZONE) as server:
        server.command("ALTER TABLE db.t FREEZE WITH NAME 'n'")
        ((statement,),) = server.rows("SHOW CREATE TABLE db.t")
    file = directory.parent / "t.sql"
    file.write_text(str(statement))
    (shadow,) = (directory / "shadow" / "n").glob("store/*/*")
    parts = Path(shutil.copytree(shadow, directory.parent / "parts"))
    return f"parts:{quote(str(parts))}?ddl={quote(str(file))}&identity=name:t"


def exported(root: Path, address: str) -> tuple[dict[str, str], Rows]:
    """Export from an address; return the outcomes and the rows in the lake."""
    with EmbeddedConnection(root / "other", create=True) as unused:
        exports = RealExport(unused, root)
        with open_source(SourcePlace(address), is_exporting=True) as source:
            outcomes = exports.run(_NAME, source=source)
        words = {o.partition_id: f"{o.status.value} {o.message}".strip() for o in outcomes}
        if words != {"0": "committed"}:
            return words, []
        found = exports.lake(_NAME).scan().to_arrow().to_pylist()
        return words, sorted(
            (
                row["id"], int(row["a"].timestamp()), row["b"], row["c"], str(row["d"]),
                int(row["e"].timestamp() * 1000), row["f"],
            )
            for row in found
        )  # fmt: skip


def address_of(kind: str, directory: Path) -> tuple[str, str]:
    """Return an address without a time zone, and the same address with it."""
    if kind == "parts":
        parts = parts_of(directory)
        return parts, f"{parts}&zone={_ZONE}"
    return f"chdb:{directory}", f"chdb:{directory}?zone={_ZONE}"


@pytest.mark.parametrize("kind", ["directory", "parts"])
def test_defaults_have_the_values_of_the_servers_zone(
    directory: Path, tmp_path: Path, kind: str
) -> None:
    """Harm prevented: the lake has other hours and days than the server shows."""
    expected = of_server(directory)
    _, zoned = address_of(kind, directory)

    assert exported(tmp_path, zoned) == ({"0": "committed"}, expected)


@pytest.mark.parametrize("kind", ["directory", "parts"])
def test_a_zone_that_nobody_named_is_not_guessed(
    directory: Path, tmp_path: Path, kind: str
) -> None:
    unzoned, _ = address_of(kind, directory)

    words, _ = exported(tmp_path, unzoned)

    assert words == {
        "0": "refused Cannot export partition 0 of db.t: its part 0_1_1_0 lacks the column a, and "
        "a DEFAULT '2024-01-01 00:00:00' depends on the time zone of the server that wrote the "
        "part, which the address of the source does not name. Add zone=ZONE to the address, with "
        "the result of SELECT timezone() on that server."
    }


@pytest.mark.parametrize(
    "column", [_ADDED[1], _ADDED[2], _ADDED[3], "e DateTime64(3) DEFAULT toDateTime64(0.5, 3)"]
)
def test_each_default_in_a_zone_is_refused(tmp_path: Path, column: str) -> None:
    directory = made(tmp_path / "server", column)

    words, _ = exported(tmp_path, f"chdb:{directory}")

    assert "depends on the time zone" in words["0"]


def test_defaults_of_every_zone_need_none(tmp_path: Path) -> None:
    """Harm prevented: a directory is refused although its values are known."""
    directory = made(tmp_path / "server", _FREE)

    words, _ = exported(tmp_path, f"chdb:{directory}")

    assert words == {"0": "committed"}


def test_a_zone_that_does_not_exist_is_refused(directory: Path) -> None:
    with (
        open_source(SourcePlace(f"chdb:{directory}?zone=Nowhere/Land")) as source,
        pytest.raises(UsageError, match=r"Cannot use the time zone 'Nowhere/Land' for .*no"),
    ):
        source.describe(_NAME)
