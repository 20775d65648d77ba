"""`mergeberg export --check-rows`: parts that changed and hold the rows that were exported.

A merge or a mutation may rewrite parts whose rows stay the same: nothing is exported then.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSchemasUpdate, RemoveSnapshotsUpdate
from pyiceberg.types import StringType

from tests.support.session_lake import opened
from tests.wrong.places import Places

_NUMBERS = itertools.count(1)
_SETTLED: Final = "SETTINGS mutations_sync = 2, alter_sync = 2"
_SAME: Final = "ALTER TABLE {} UPDATE s = s WHERE 1 " + _SETTLED
_OTHER: Final = "ALTER TABLE {} UPDATE s = 'other' WHERE id = 1 " + _SETTLED
_EXCHANGED: Final = (
    "ALTER TABLE {} UPDATE s = multiIf(id = 1, 'b', id = 2, 'a', s) WHERE 1 " + _SETTLED
)
_MESSAGE: Final = "its parts changed, its rows may be the same: --check-rows compares them first"


@pytest.fixture
def table(places: Places) -> str:
    """Make a table with 3 rows in partition 1 and 2 in partition 2."""
    places.reads_parts = True
    name = f"db.checked{next(_NUMBERS)}"
    places.clickhouse_run(
        f"CREATE TABLE {name} (p UInt8, id Int64, s String) ENGINE = MergeTree PARTITION BY p"
        " ORDER BY id",
        f"INSERT INTO {name} VALUES (1, 1, 'a'), (1, 2, 'b'), (1, 3, ''), (2, 4, 'd'), (2, 5, 'e')",
    )
    return name


def change(places: Places, table: str, *statements: str) -> None:
    places.clickhouse_run(*(sql.format(table) for sql in statements))


def export(
    places: Places, table: str, *words: str, to: str = "", forgets: bool = True
) -> list[tuple[object, object]]:
    """Export everything, whatever its manifest TTL is; return status and message of each."""
    named = ("--to", to or f"lake.n.{table[3:]}")
    for one in ("1", "2") if forgets else ():
        places.run("exports", "forget", one, "--table", table, *named)
    found = places.outcomes("export", table, "--all", *named, *words)
    of_partitions = {str(one["partition_id"]): one for one in found if "partition_id" in one}
    return [
        (one.get("status", one.get("action")), one["message"])
        for _, one in sorted(of_partitions.items())
    ]


def expire_all_but_main(table: Table) -> None:
    """Append a row of another partition; then keep only its snapshot and the current schema."""
    row = {"p": [9], "id": [9], "s": ["9"]}
    table.append(pa.table(row, schema=table.schema().as_arrow()))
    table = table.refresh()
    metadata = table.metadata
    gone = [s.snapshot_id for s in metadata.snapshots if s != table.current_snapshot()]
    table.catalog.commit_table(
        table, (), (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": gone}),)
    )
    if len(metadata.schemas) > 1:
        table = table.refresh()
        now = metadata.current_schema_id
        before = [s.schema_id for s in metadata.schemas if s.schema_id != now]
        table.catalog.commit_table(
            table, (), (RemoveSchemasUpdate.model_validate({"schema-ids": before}),)
        )


def statuses(places: Places, table: str, *words: str) -> list[object]:
    return [status for status, _ in export(places, table, *words)]


@pytest.mark.parametrize("words", [("--check-rows",), ("--verify",), ("--check-rows", "--verify")])
@pytest.mark.parametrize("before", [(), ("--verify",)], ids=["no digest", "a kept digest"])
def test_equal_rows_in_other_parts_are_not_exported_again(
    places: Places, table: str, words: tuple[str, ...], before: tuple[str, ...]
) -> None:
    """Harm prevented: a night of exports for nothing, after a mutation of the whole table."""
    export(places, table, *before)
    change(places, table, _SAME)
    is_compared = before or "--check-rows" in words

    found = export(places, table, *words)

    assert {status for status, _ in found} == {"unchanged" if is_compared else "replaced"}
    if is_compared:
        assert all("its parts changed, its rows are the same" in str(m) for _, m in found)
        # The parts are noted: nothing has to be compared any more.
        again = export(places, table)
        assert {status for status, _ in again} == {"unchanged"}
        assert not any("its parts changed" in str(m) for _, m in again)


@pytest.mark.parametrize(
    "statements",
    [
        (
            f"ALTER TABLE {{}} MODIFY COLUMN s LowCardinality(String) {_SETTLED}",
            f"ALTER TABLE {{}} MODIFY COLUMN s String {_SETTLED}",
        ),
        ("ALTER TABLE {} UPDATE s = s WHERE p = 1 " + _SETTLED, "OPTIMIZE TABLE {} FINAL"),
    ],
    ids=["a column there and back", "a mutation and a merge"],
)
def test_whatever_wrote_equal_rows_again_changes_nothing(
    places: Places, table: str, statements: tuple[str, ...]
) -> None:
    export(places, table)
    change(places, table, *statements)

    assert set(statuses(places, table, "--check-rows")) == {"unchanged"}


def test_a_merge_that_drops_deleted_rows_changes_nothing(places: Places, table: str) -> None:
    change(places, table, "DELETE FROM {} WHERE id = 3 SETTINGS lightweight_deletes_sync = 2")
    export(places, table)
    change(places, table, "OPTIMIZE TABLE {} FINAL")

    assert statuses(places, table, "--check-rows") == ["unchanged", "unchanged"]


@pytest.mark.parametrize("other", [_OTHER, _EXCHANGED], ids=["another value", "values exchanged"])
@pytest.mark.parametrize("before", [(), ("--verify",)], ids=["no digest", "a kept digest"])
def test_a_partition_with_another_row_is_exported_again_and_no_other(
    places: Places, table: str, before: tuple[str, ...], other: str
) -> None:
    export(places, table, *before)
    change(places, table, other)

    assert statuses(places, table, "--check-rows") == ["replaced", "unchanged"]
    assert statuses(places, table) == ["unchanged", "unchanged"]
    code, out, err = places.run("verify", table, "--all", "--to", f"lake.n.{table[3:]}")
    assert code == 0, (out, err)


def test_a_column_that_came_is_another_row(places: Places, table: str) -> None:
    """Harm prevented: the values of the new column are never exported."""
    export(places, table, "--verify")
    change(places, table, f"ALTER TABLE {{}} ADD COLUMN more String DEFAULT 'x' {_SETTLED}", _SAME)

    assert statuses(places, table, "--check-rows", "--evolve-schema") == ["replaced", "replaced"]


def test_without_the_option_the_outcome_says_that_the_rows_may_be_the_same(
    places: Places, table: str
) -> None:
    export(places, table)
    change(places, table, _SAME)

    assert export(places, table) == [("replaced", _MESSAGE)] * 2


def test_with_more_rows_no_message_speaks_of_equal_ones(places: Places, table: str) -> None:
    export(places, table)
    change(places, table, "INSERT INTO {} VALUES (1, 9, ''), (2, 9, '')")

    assert export(places, table, "--check-rows") == [("replaced", "")] * 2


def test_a_dry_run_says_what_would_be_compared(places: Places, table: str) -> None:
    export(places, table)
    change(places, table, _SAME)

    plain = export(places, table, "--dry-run")
    checked = export(places, table, "--dry-run", "--check-rows")

    assert {action for action, _ in (*plain, *checked)} == {"replace"}
    assert all(str(text).endswith(_MESSAGE) for _, text in plain)
    assert all("unless the rows, which --check-rows compares" in str(text) for _, text in checked)


def test_a_young_export_is_refused_only_when_its_rows_are_other_ones(
    places: Places, table: str
) -> None:
    """Harm prevented: with the TTL 0 a merge makes every later run fail, for ever."""
    export(places, table, "--manifest-ttl", "0")
    change(places, table, _SAME)

    (_, refused) = export(places, table, forgets=False)[0]
    rehearsed = export(places, table, "--check-rows", "--dry-run", forgets=False)
    checked = export(places, table, "--check-rows", forgets=False)
    change(places, table, _OTHER)
    other = export(places, table, "--check-rows", forgets=False)

    assert "never again" in str(refused)
    assert {action for action, _ in rehearsed} == {"refused"}
    assert all("are the same: the source partition differs" in str(text) for _, text in rehearsed)
    assert [status for status, _ in checked] == ["already_exported"] * 2
    assert [status for status, _ in other] == ["refused", "already_exported"]
    assert "never again" in str(other[0][1])


def test_a_partition_of_a_tree_is_refused_only_when_its_rows_are_other_ones(
    places: Places, table: str, tmp_path: Path
) -> None:
    to = f"hive:{tmp_path}/tree"
    export(places, table, to=to)
    change(places, table, _SAME)

    refused = export(places, table, to=to)
    checked = export(places, table, "--check-rows", to=to)
    change(places, table, _OTHER)
    other = export(places, table, "--check-rows", to=to)

    assert [status for status, _ in refused] == ["refused"] * 2
    assert [status for status, _ in checked] == ["unchanged"] * 2
    assert [status for status, _ in other] == ["refused", "unchanged"]


def test_files_that_somebody_damaged_are_no_proof(places: Places, table: str) -> None:
    """Harm prevented: rows that main has lost are never exported again."""
    export(places, table)
    path, *_ = sorted((places.warehouse / "n" / table[3:]).rglob("*.parquet"))
    path.write_bytes(b"")
    change(places, table, _SAME)

    statuses(places, table, "--dry-run")  # forgets the exports
    code, out, err = places.run(
        "export", table, "--all", "--to", f"lake.n.{table[3:]}", "--check-rows"
    )

    assert code == 0, (out, err)
    assert out.count(": replaced") == 1
    assert "its rows could not be compared with those exported: Cannot verify" in out + err


@pytest.mark.parametrize("is_expired", [False, True], ids=["known", "expired"])
def test_a_column_that_was_added_again_is_not_the_exported_one(
    places: Places, table: str, *, is_expired: bool
) -> None:
    """Harm prevented: rows count as the same whose values the lake reads as NULL."""
    change(places, table, f"ALTER TABLE {{}} MODIFY COLUMN s Nullable(String) {_SETTLED}")
    export(places, table, "--verify")
    change(places, table, "ALTER TABLE {} MODIFY COLUMN id Int64 CODEC(ZSTD)", _SAME)
    name = table[3:]
    with opened(places, name).update_schema() as update:
        update.delete_column("s")
    with opened(places, name).update_schema() as update:
        update.add_column("s", StringType())
    if is_expired:
        expire_all_but_main(opened(places, name))

    assert statuses(places, table, "--check-rows") == ["replaced", "replaced"]


def test_a_digest_of_an_expired_export_is_computed_again(places: Places, table: str) -> None:
    """The files themselves have what the digest cannot prove any more."""
    export(places, table, "--verify")
    change(places, table, _SAME)
    expire_all_but_main(opened(places, table[3:]))

    assert statuses(places, table, "--check-rows") == ["unchanged", "unchanged"]
