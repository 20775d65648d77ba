"""The statements of ClickHouse's page on partitions, each run on a partition of its own.

Two tables of the same rows are in ClickHouse and in a lake, and both get the same statements.
FETCH and FORGET, which ClickHouse has for Replicated tables only, have equivalents next to them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from tableformat.names import TableName
from tests.readers.canonical import Cell, canonical
from tests.readers.engines import ReaderResult
from tests.support.both_sides import DONE, UNMERGED, BothSides

__all__ = ["COLUMNS", "STATEMENTS", "TABLES", "Shown", "by_partition", "run_all"]

TABLES: Final = ("t", "u")
COLUMNS: Final = {"p": "int", "k": "long", "s": "string", "v": "double"}
_DEFINITION: Final = (
    "(p UInt8, k Int64, s String DEFAULT 'none', v Nullable(Float64), INDEX i s TYPE bloom_filter)"
    f" ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS {UNMERGED}"
)
_NOW: Final = "SETTINGS mutations_sync = 2"

Shown = dict[int, list[tuple[Cell, ...]]]
"""The rows of each partition, sorted."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The statement for the lake, and for ClickHouse where that has another one.

    `{p}` is the partition, `{part}` a part of it.
    """

    here: tuple[str, ...]
    there: tuple[str, ...] = ()


def _alter(*commands: str) -> Statement:
    return Statement(tuple(f"ALTER TABLE db.t {one}" for one in commands))


STATEMENTS: Final = {
    "none": Statement(()),
    "DETACH PARTITION": _alter("DETACH PARTITION {p}"),
    "DETACH PART": _alter("DETACH PART '{part}'"),
    "DROP PARTITION": _alter("DROP PARTITION {p}"),
    "DROP PART": _alter("DROP PART '{part}'"),
    "DROP DETACHED PARTITION": _alter(
        "DETACH PARTITION {p}", "DROP DETACHED PARTITION {p} SETTINGS allow_drop_detached = 1"
    ),
    "FORGET PARTITION": Statement(
        ("ALTER TABLE db.t DROP PARTITION {p}", "ALTER TABLE db.t FORGET PARTITION {p}"),
        ("ALTER TABLE db.t DROP PARTITION {p}",),
    ),
    "ATTACH PARTITION": _alter("DETACH PARTITION {p}", "ATTACH PARTITION {p}"),
    "ATTACH PART": _alter("DETACH PART '{part}'", "ATTACH PART '{part}'"),
    "ATTACH PARTITION FROM": _alter("ATTACH PARTITION {p} FROM db.u"),
    "REPLACE PARTITION": _alter("REPLACE PARTITION {p} FROM db.u"),
    "MOVE PARTITION TO TABLE": _alter("MOVE PARTITION {p} TO TABLE db.u"),
    "FETCH PARTITION": Statement(
        (
            "ALTER TABLE db.t DROP PARTITION {p}",
            "ALTER TABLE db.t FETCH PARTITION {p} FROM 'lake.n.u'",
            "ALTER TABLE db.t ATTACH PARTITION {p}",
        ),
        ("ALTER TABLE db.t REPLACE PARTITION {p} FROM db.u",),
    ),
    "CLEAR COLUMN": _alter(f"CLEAR COLUMN s IN PARTITION {{p}} {_NOW}"),
    "CLEAR INDEX": _alter(f"CLEAR INDEX i IN PARTITION {{p}} {_NOW}"),
    "FREEZE": _alter("FREEZE PARTITION {p} WITH NAME 'kept'"),
    "UNFREEZE": _alter(
        "FREEZE PARTITION {p} WITH NAME 'short'", "UNFREEZE PARTITION {p} WITH NAME 'short'"
    ),
    "UPDATE": _alter(f"UPDATE v = v * 2, s = upper(s) IN PARTITION {{p}} WHERE k % 3 = 0 {_NOW}"),
    "DELETE": _alter(f"DELETE IN PARTITION {{p}} WHERE v IS NULL {_NOW}"),
    "OPTIMIZE": Statement(("OPTIMIZE TABLE db.t PARTITION {p} FINAL",)),
    "OPTIMIZE DEDUPLICATE": Statement(
        ("OPTIMIZE TABLE db.t PARTITION {p} FINAL DEDUPLICATE BY p, k",)
    ),
}


def run_all(sides: BothSides) -> None:
    """Make the tables, bring them to the lake, and run every statement on both sides."""
    for name, factor in zip(TABLES, (1, 10), strict=True):
        rows = (
            "SELECT intDiv(number, 40) AS p, number % 40 AS k,"
            f" concat('s', toString(k * {factor})), if(k % 5 = {part}, NULL, k / 4 + p)"
            f" FROM numbers({40 * len(STATEMENTS)})"
            for part in (0, 1)
        )
        sides.make(name, _DEFINITION, *(f"(p, k, s, v) {one}" for one in rows))
        sides.export(name, target=sides.largest_part(name))
    parts = _parts(sides)
    for number, statement in enumerate(STATEMENTS.values()):
        named = {"p": number, "part": parts[number]}
        for text in statement.there or statement.here:
            assert (text, sides.there(text.format(**named))) == (text, DONE)
        for text in statement.here:
            assert (text, sides.here(text.format(**named))) == (text, DONE)


def _parts(sides: BothSides) -> dict[int, str]:
    """Return the first part of each partition of the first table."""
    found = sides.exports.clickhouse.rows(
        "SELECT partition_id, min(name) FROM system.parts WHERE database = 'db' AND table = 't'"
        " AND active GROUP BY partition_id"
    )
    return {int(str(partition)): str(part) for partition, part in found}


def in_clickhouse(sides: BothSides, name: str) -> Shown:
    """Return what ClickHouse has of a table."""
    columns = ", ".join(f"toString({one})" for one in COLUMNS)
    return _shown(sides.exports.clickhouse.rows(f"SELECT {columns} FROM db.{name}"))


def by_partition(result: ReaderResult) -> Shown:
    """Return the rows of a reader's result."""
    assert not result.error, result.error
    return _shown(result.rows)


def metadata_of(sides: BothSides, name: str) -> str:
    """Return where the metadata of a lake table is."""
    return sides.exports.lake(TableName("db", name)).metadata_location


def _shown(rows: tuple[tuple[object, ...], ...]) -> Shown:
    found: defaultdict[int, list[tuple[Cell, ...]]] = defaultdict(list)
    for row in rows:
        cells = tuple(canonical(v, of) for v, of in zip(row, COLUMNS.values(), strict=True))
        found[cells[0]].append(cells)
    return {number: sorted(of, key=repr) for number, of in found.items()}
