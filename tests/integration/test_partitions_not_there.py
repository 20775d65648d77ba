"""A partition that is not there: every statement does on a lake table what it does in ClickHouse.

X-04. It never was there, its rows were deleted, or it is detached; or it is named by a value of
another type, or as a part.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tests.support.both_sides import DONE, BothSides
from tests.support.real_export import RealExport

COLUMNS = "p UInt8, k UInt64, s String, INDEX i s TYPE bloom_filter"
# A partition of rows that were deleted keeps its empty part: else ClickHouse drops that some time.
KEYS = "ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS remove_empty_parts = 0"
NOW = "SETTINGS mutations_sync = 2"
EMPTY_SOURCE = "SETTINGS allow_replace_partition_from_empty_source = 1"

# Of those that name a second table it is that one which lacks the partition.
FROM_OTHER = {
    "ATTACH FROM": "ALTER TABLE db.t ATTACH {} FROM db.u",
    "REPLACE FROM": "ALTER TABLE db.t REPLACE {} FROM db.u",
    "REPLACE FROM, by nothing": f"ALTER TABLE db.t REPLACE {{}} FROM db.u {EMPTY_SOURCE}",
    "MOVE TO TABLE": "ALTER TABLE db.u MOVE {} TO TABLE db.t",
}
OF_PARTS = {
    "DROP": "ALTER TABLE db.u DROP {}",
    "DETACH": "ALTER TABLE db.u DETACH {}",
    "ATTACH": "ALTER TABLE db.u ATTACH {}",
    "DROP DETACHED": "ALTER TABLE db.u DROP DETACHED {} SETTINGS allow_drop_detached = 1",
}
STATEMENTS = {
    **FROM_OTHER,
    **OF_PARTS,
    "FREEZE": "ALTER TABLE db.u FREEZE {} WITH NAME 'frozen'",
    "UNFREEZE": "ALTER TABLE db.u UNFREEZE {} WITH NAME 'never'",
    "UPDATE": f"ALTER TABLE db.u UPDATE s = 'x' IN {{}} WHERE 1 {NOW}",
    "DELETE": f"ALTER TABLE db.u DELETE IN {{}} WHERE 1 {NOW}",
    "CLEAR COLUMN": f"ALTER TABLE db.u CLEAR COLUMN s IN {{}} {NOW}",
    "CLEAR INDEX": f"ALTER TABLE db.u CLEAR INDEX i IN {{}} {NOW}",
    "OPTIMIZE": "OPTIMIZE TABLE db.u {}",
    "OPTIMIZE FINAL DEDUPLICATE": "OPTIMIZE TABLE db.u {} FINAL DEDUPLICATE",
}
# Of Replicated tables in ClickHouse: what is known of them is written next to each.
NAMES = (*STATEMENTS, "FETCH", "FORGET")
EMPTIED = {name: str(number) for number, name in enumerate(NAMES)}
DETACHED = {name: str(number) for number, name in enumerate(NAMES, len(NAMES))}
KEPT = 2 * len(NAMES)
UNKNOWN = 200

# ClickHouse keeps a part without rows, and "replaces" by it; the lake has no such files, and asks.
ON_PURPOSE = {
    ("REPLACE FROM", "emptied"): (DONE, "code 36"),
    ("REPLACE FROM", "detached"): (DONE, "code 36"),
}


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothSides]:
    """Make two tables with the same partitions; of `u` some are emptied, and others detached."""
    root = tmp_path_factory.mktemp("not_there")
    with EmbeddedConnection(root / "clickhouse", create=True) as connection:
        made = BothSides(RealExport(connection, root))
        for name in ("t", "u"):
            rows = f"SELECT number, number, 'a' FROM numbers({KEPT + 1})"
            made.make(name, f"({COLUMNS}) {KEYS}", rows)
            made.export(name)
        emptied = f"ALTER TABLE db.u DELETE WHERE p < {len(EMPTIED)} {NOW}"
        detached = ", ".join(f"DETACH PARTITION ID '{one}'" for one in DETACHED.values())
        for statement in (emptied, f"ALTER TABLE db.u {detached}"):
            assert (made.there(statement), made.here(statement)) == (DONE, DONE)
        yield made


def assert_ends_alike(sides: BothSides, what: str, of: str, state: str = "") -> str:
    """Run a statement on both sides; check that it ends, and leaves the same rows, as there."""
    statement = STATEMENTS[what].format(of)

    there, here = sides.there(statement), sides.here(statement)

    if (expected := ON_PURPOSE.get((what, state))) is not None:
        assert (there, here) == expected
        assert sides.here(f"ALTER TABLE db.t DROP {of}") == DONE
    else:
        assert there == here
    sides.assert_same_rows("t", "u")
    return here


# ClickHouse runs these in a process of its own, which takes seconds each time.
MUTATING = ("UPDATE", "DELETE", "CLEAR COLUMN", "CLEAR INDEX")
STATES = ("never there", "by its value", "emptied", "detached")


@pytest.mark.parametrize(
    ("state", "what"),
    [
        pytest.param(
            state,
            what,
            marks=pytest.mark.nightly if what in MUTATING and state != "emptied" else (),
        )
        for state in STATES
        for what in STATEMENTS
    ],
)
def test_what_is_not_there_ends_as_in_clickhouse(sides: BothSides, what: str, state: str) -> None:
    """Harm prevented: a script that is right for ClickHouse fails, or does more, on the lake."""
    of = {
        "never there": f"PARTITION ID '{UNKNOWN}'",
        "by its value": f"PARTITION {UNKNOWN}",
        "emptied": f"PARTITION ID '{EMPTIED[what]}'",
        "detached": f"PARTITION ID '{DETACHED[what]}'",
    }

    assert_ends_alike(sides, what, of[state], state)


@pytest.mark.parametrize("what", STATEMENTS)
def test_a_value_that_is_none_of_the_key_is_the_same_error(sides: BothSides, what: str) -> None:
    assert assert_ends_alike(sides, what, "PARTITION 'x'") == "code 53"


@pytest.mark.parametrize("part", [f"{UNKNOWN}_1_1_0", f"{KEPT}_900_900_0"])
@pytest.mark.parametrize("what", OF_PARTS)
def test_a_part_that_is_not_there_is_the_same_error(sides: BothSides, what: str, part: str) -> None:
    code = 232 if what in ("DROP", "DETACH") else 233

    assert assert_ends_alike(sides, what, f"PART '{part}'") == f"code {code}"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (f"FETCH PARTITION ID '{UNKNOWN}' FROM 'lake.n.t'", "code 257"),
        (f"FETCH PARTITION ID '{DETACHED['FETCH']}' FROM 'lake.n.t'", "code 256"),
        (f"FORGET PARTITION ID '{UNKNOWN}'", "code 999"),
        (f"FORGET PARTITION ID '{KEPT}'", "code 716"),
        (f"FORGET PARTITION ID '{EMPTIED['FORGET']}'", DONE),
        (f"FORGET PARTITION ID '{DETACHED['FORGET']}'", DONE),
    ],
)
def test_what_only_replicated_tables_have_ends_with_their_codes(
    sides: BothSides, statement: str, expected: str
) -> None:
    """The embedded ClickHouse has no Keeper: the codes are those of its source code."""
    assert sides.here(f"ALTER TABLE db.u {statement}") == expected

    sides.assert_same_rows("t", "u")


def test_a_partition_that_the_other_table_has_not_any_more_is_not_fetched(sides: BothSides) -> None:
    statement = f"ALTER TABLE db.t FETCH PARTITION ID '{EMPTIED['FETCH']}' FROM 'lake.n.u'"

    assert sides.here(statement) == "code 257"
