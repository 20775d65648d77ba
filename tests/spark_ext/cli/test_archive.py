"""`mergeberg archive`: nothing leaves the source that is not, compared, in the lake."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from tableformat.names import LakeName
from tests.support.damaged_files import damage_when_committed, lose_a_row
from tests.wrong.places import Places

_NUMBERS = itertools.count(1)


@pytest.fixture
def table(places: Places) -> str:
    """Make a table with 3 rows in partition 1 and 2 in partition 2."""
    places.reads_parts = True
    name = f"db.archived{next(_NUMBERS)}"
    places.clickhouse_run(
        f"CREATE TABLE {name} (p UInt8, id Int64, s String) ENGINE = MergeTree"
        " PARTITION BY p ORDER BY id",
        f"INSERT INTO {name} VALUES (1, 1, 'a'), (1, 2, 'b'), (1, 3, ''), (2, 4, 'd'), (2, 5, 'e')",
    )
    return name


def in_source(places: Places, table: str) -> tuple[int, int]:
    """Return rows of the table, and the number of its detached parts."""
    with EmbeddedConnection(places.clickhouse) as connection:
        shown = connection.rows(f"SELECT count() FROM {table}")
        detached = connection.rows(
            f"SELECT count() FROM system.detached_parts WHERE table = '{table[3:]}'"
        )
    return int(str(shown[0][0])), int(str(detached[0][0]))


def in_lake(places: Places, to: str) -> int:
    lake = open_catalog("lake", warehouse=places.warehouse).table(LakeName.parse(to))
    return sum(t.file.record_count for t in lake.loaded.scan().plan_files()) if lake else 0


def archive(places: Places, table: str, *words: str) -> tuple[int, list[dict[str, object]]]:
    code, out, err = places.run(
        "archive", table, *(words or ("--all",)), "--to", f"lake.n.{table[3:]}", "--json"
    )
    assert code in (0, 1, 3, 4), err
    return code, [json.loads(line) for line in out.splitlines() if '"source"' in line]


@pytest.mark.parametrize("drop", [False, True], ids=["detach", "drop"])
def test_archived_partitions_are_in_the_lake_and_not_in_the_table(
    places: Places, table: str, *, drop: bool
) -> None:
    code, found = archive(places, table, "--all", *(["--drop"] if drop else []))

    assert (code, [f["source"] for f in found]) == (0, ["dropped" if drop else "detached"] * 2)
    assert in_source(places, table) == (0, 0 if drop else 2)
    assert in_lake(places, f"lake.n.{table[3:]}") == 5
    again, kept = archive(places, table)
    assert (again, kept) == (0, [])
    assert in_lake(places, f"lake.n.{table[3:]}") == 5


def test_a_partition_that_was_exported_before_is_compared_again(places: Places, table: str) -> None:
    """Harm prevented: the lake's files were damaged since the export, and the source goes."""
    to = f"lake.n.{table[3:]}"
    places.run("export", table, "--all", "--to", to)
    lake = open_catalog("lake", warehouse=places.warehouse).table(LakeName.parse(to))
    assert lake is not None
    tasks = sorted(lake.loaded.scan().plan_files(), key=lambda t: t.file.record_count)
    lose_a_row(Path(tasks[0].file.file_path.removeprefix("file://")))

    code, found = archive(places, table)

    assert code == 3
    assert [f["source"] for f in found] == ["detached", "kept"]
    assert "the comparison with the lake gave differs" in str(found[1]["message"])
    assert in_source(places, table) == (2, 1)


def test_what_cannot_be_archived_is_not_called_an_export(places: Places, table: str) -> None:
    """Harm prevented: who archives reads, also later, that something cannot be exported."""
    to = f"lake.n.{table[3:]}"
    assert places.run("export", table, "--partition-id", "2", "--to", to)[0] == 0
    places.clickhouse_run(f"INSERT INTO {table} VALUES (1, 9, unhex('FF'))")

    code, (found,) = archive(places, table, "--partition-id", "1")
    _, listed, _ = places.run("exports", "list", "--json")
    places.clickhouse_run(f"ALTER TABLE {table} ADD COLUMN later Int64")
    refused = [
        places.run("archive", table, "--partition-id", "1", "--to", to, *words)
        for words in ((), ("--dry-run",))
    ]

    output = f"Cannot archive partition 1 of {table}: column s: not valid UTF-8 in 1 row"
    assert (code, output in str(found["message"])) == (3, True)
    assert f"cannot archive partition 1 of {table}" in listed
    assert f"cannot export partition 1 of {table}" not in listed
    for code, _, err in refused:
        assert code == 3
        assert f"Cannot archive {table} to {to}: Tables have different structure: column la" in err


def test_a_partition_that_was_merged_since_its_export_is_archived(
    places: Places, table: str
) -> None:
    """Harm prevented: what was exported daily can never leave the source, because it merged."""
    to = f"lake.n.{table[3:]}"
    places.clickhouse_run(f"INSERT INTO {table} VALUES (1, 6, 'f')")
    for words in (("--partition-id", "1", "--verify"), ("--partition-id", "2")):
        assert places.run("export", table, *words, "--to", to)[0] == 0
    places.clickhouse_run(f"OPTIMIZE TABLE {table} FINAL")

    code, found = archive(places, table, "--all")
    late = places.run("export", table, "--all", "--to", to)
    places.clickhouse_run(f"ALTER TABLE {table} ATTACH PARTITION ID '1'")
    back = places.outcomes("export", table, "--all", "--to", to, "--late-rows", "append")
    again, dropped = archive(places, table, "--all", "--drop")

    assert (code, [f["source"] for f in found]) == (0, ["detached"] * 2)
    assert late[0] == 0
    assert [one["status"] for one in back if "status" in one] == ["already_exported"]
    assert (again, [f["source"] for f in dropped]) == (0, ["dropped"] * 2)
    assert in_source(places, table) == (0, 0)
    assert in_lake(places, to) == 6


def test_what_the_lake_lost_is_not_dropped_later(places: Places, table: str) -> None:
    """Harm prevented: the last copy of rows is dropped because metadata still names a file."""
    to = f"lake.n.{table[3:]}"
    assert archive(places, table, "--all")[0] == 0
    lake = open_catalog("lake", warehouse=places.warehouse).table(LakeName.parse(to))
    assert lake is not None
    tasks = sorted(lake.loaded.scan().plan_files(), key=lambda t: t.file.record_count)
    lose_a_row(Path(tasks[0].file.file_path.removeprefix("file://")))

    code, found = archive(places, table, "--all", "--drop")

    assert code == 3
    assert sorted(str(f["source"]) for f in found) == ["dropped", "kept"]
    assert any("Nothing was dropped" in str(f["message"]) for f in found)
    assert in_source(places, table) == (0, 1)


def test_a_rebuilt_ledger_keeps_what_is_archived(places: Places, table: str) -> None:
    """Harm prevented: late rows replace the only copy of archived rows."""
    to = f"lake.n.{table[3:]}"
    assert archive(places, table, "--all", "--drop")[0] == 0
    unarchived = ("exports", "unarchive", "2", "--table", table, "--to", to, "--yes")
    assert places.run(*unarchived)[0] == 0
    rebuilt = ("--ledger", f"sqlite:{places.root}/anew-{table}.db")
    assert places.run("exports", "rebuild", "--to", to, *rebuilt)[0] == 0
    places.clickhouse_run(
        f"INSERT INTO {table} SELECT 1 + number % 2, number, 'late' FROM numbers(20)"
    )

    found = places.outcomes("export", table, "--all", "--to", to, *rebuilt)

    refused = {one["partition_id"]: str(one["message"]) for one in found}
    assert refused["1"].startswith("it is archived since ")
    assert "younger than its manifest TTL" in refused["2"]
    assert in_lake(places, to) == 5


def test_a_table_that_was_created_again_is_archived(places: Places, table: str) -> None:
    """Harm prevented: the refusal of a restored table names an option that `archive` lacks."""
    to = f"lake.n.{table[3:]}"
    assert places.run("export", table, "--all", "--to", to)[0] == 0
    places.clickhouse_run(
        f"CREATE TABLE {table}_new AS {table}",
        f"INSERT INTO {table}_new SELECT * FROM {table}",
        f"DROP TABLE {table} SYNC",
        f"RENAME TABLE {table}_new TO {table}",
    )

    refused, kept = archive(places, table, "--all", "--drop")
    advice = re.search(r"use --same-as (uuid:\S+);", str(kept[0]["message"]))
    assert advice is not None
    as_then = ("--same-as", advice[1])
    unknown = places.run("verify", table, "--all", "--to", to)
    verified = places.run("verify", table, "--all", "--to", to, *as_then)
    other = places.run("archive", table, "--all", "--to", to, "--same-as", "uuid:1")
    rehearsed = places.run("archive", table, "--all", "--to", to, "--dry-run", "--drop", *as_then)
    code, found = archive(places, table, "--all", "--drop", *as_then)

    assert (refused, [f["source"] for f in kept]) == (3, ["kept", "kept"])
    assert unknown[1].count(": not exported") == 2
    assert (verified[0], verified[1].count(": equal")) == (0, 2), verified[1]
    assert other[2].startswith(f"Cannot archive {table} as uuid:1: no export of a table of that")
    assert (rehearsed[0], rehearsed[1].count("would be compared and dropped")) == (0, 2)
    assert (code, [f["source"] for f in found]) == (0, ["dropped"] * 2)
    assert in_source(places, table) == (0, 0)
    assert in_lake(places, to) == 5


def test_an_export_that_is_not_equal_stays_in_the_source(
    places: Places, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a disk that loses rows, and then the source is dropped."""
    damage_when_committed(monkeypatch, lose_a_row)

    code, found = archive(places, table, "--partition-id", "1", "--drop")

    assert (code, [f["source"] for f in found]) == (1, ["kept"])
    assert in_source(places, table) == (5, 0)


def test_a_row_that_comes_in_while_files_are_written_keeps_the_partition(
    places: Places, table: str
) -> None:
    """Harm prevented: a row that was inserted after the snapshot is dropped unexported."""
    places.before = lambda *_: places.clickhouse_run(f"INSERT INTO {table} VALUES (1, 9, 'late')")

    code, found = archive(places, table, "--partition-id", "1", "--drop")

    assert (code, [f["source"] for f in found]) == (3, ["kept"])
    assert "no longer those that were exported" in str(found[0]["message"])
    assert in_source(places, table) == (6, 0)
    places.before = lambda *_: None
    # A ledger that is made anew does not take it for archived: its rows would be added.
    to, rebuilt = f"lake.n.{table[3:]}", ("--ledger", f"sqlite:{places.root}/anew-{table}.db")
    assert places.run("exports", "rebuild", "--to", to, *rebuilt)[0] == 0
    words = ("--late-rows", "append-all", "--force", *rebuilt)
    assert places.run("export", table, "--partition-id", "1", "--to", to, *words)[0] == 0
    assert in_lake(places, to) == 4


@pytest.mark.parametrize(
    "change", ["MODIFY COLUMN c String DEFAULT 'now'", "ADD COLUMN d Int64 DEFAULT id * 2"]
)
def test_definitions_that_change_meanwhile_keep_the_partition(
    places: Places, table: str, change: str
) -> None:
    """Harm prevented: values that the source showed last are in no copy any more."""
    places.clickhouse_run(f"ALTER TABLE {table} ADD COLUMN c String DEFAULT 'then'")
    places.before = lambda *_: places.clickhouse_run(f"ALTER TABLE {table} {change}")

    code, found = archive(places, table, "--partition-id", "1", "--drop")

    places.before = lambda *_: None
    assert (code in (1, 3), [f["source"] for f in found]) == (True, ["kept"])
    assert in_source(places, table) == (5, 0)


def forced(places: Places, table: str, *words: str) -> tuple[int, str]:
    """Run an export of partition 1 into the lake table of the archive."""
    code, out, err = places.run(
        "export", table, "--partition-id", "1", "--to", f"lake.n.{table[3:]}", *words
    )
    return code, out + err


@pytest.mark.parametrize(
    ("words", "drop"),
    [
        pytest.param(("--force",), True, marks=pytest.mark.representative),
        ((), True),
        (("--force", "--replace-partition"), True),
        (("--force",), False),
    ],
    ids=str,
)
def test_a_late_row_never_takes_the_place_of_the_only_copy(
    places: Places, table: str, words: tuple[str, ...], *, drop: bool
) -> None:
    """Harm prevented: what the refusal of an export says destroys 10,000 rows."""
    archive(places, table, "--all", *(["--drop"] if drop else []))
    places.clickhouse_run(f"INSERT INTO {table} VALUES (1, 9, 'late')")

    code, output = forced(places, table, *words)
    code_dry, output_dry = forced(places, table, *words, "--dry-run")

    assert (code, code_dry, in_lake(places, f"lake.n.{table[3:]}")) == (3, 3, 5)
    for text in (output, output_dry):
        assert "archived since" in text
        assert "--force" not in text.replace(" ".join(words), "")


def test_late_rows_come_in_as_the_refusal_says(places: Places, table: str) -> None:
    """The words of a refusal that lose nothing have to work, three times."""
    to, late = f"lake.n.{table[3:]}", ("--late-rows", "append")
    archive(places, table, "--all")
    for number in (1, 2, 3):
        places.clickhouse_run(
            f"INSERT INTO {table} VALUES (1, 1{number}, 'late')",
            f"INSERT INTO {table} VALUES (1, 2{number}, 'later')",
            f"OPTIMIZE TABLE {table} FINAL",
        )
        assert archive(places, table, "--all")[0] == 3

        code, found = archive(places, table, "--all", *late, *["--drop"] * (number == 3))

        # The last run also drops what the others detached, of both partitions.
        did = ["dropped"] * 3 if number == 3 else ["detached"]
        assert (code, [one["source"] for one in found]) == (0, did), found
        assert in_lake(places, to) == 5 + 2 * number
        code, out, err = places.run("verify", table, "--all", "--to", to)
        assert code == 0, out + err
        assert f"late rows {number}" in places.run("exports", "list")[1]
    assert in_source(places, table) == (0, 0)
    code, out, _ = places.run("export", table, "--partition-id", "1", "--to", to)
    assert (code, "already exported" in out) == (0, True)


def test_a_dry_run_of_late_rows_says_what_the_run_does(places: Places, table: str) -> None:
    archive(places, table, "--all", "--drop")
    places.clickhouse_run(f"INSERT INTO {table} VALUES (1, 9, 'late')")
    words = ("export", table, "--partition-id", "1", "--to", f"lake.n.{table[3:]}")

    refused, out_refused, _ = places.run(*words, "--dry-run")
    code, out, _ = places.run(*words, "--late-rows", "append", "--dry-run")

    assert (refused, "--late-rows append" in out_refused) == (3, True)
    assert (code, "would be exported" in out or "export" in out) == (0, True)
    assert in_lake(places, f"lake.n.{table[3:]}") == 5


def test_a_part_that_was_attached_again_is_not_added(places: Places, table: str) -> None:
    archive(places, table, "--partition-id", "1")
    places.clickhouse_run(
        f"ALTER TABLE {table} ATTACH PARTITION 1", f"INSERT INTO {table} VALUES (1, 9, 'late')"
    )

    code, out, err = places.run(
        "export", table, "--partition-id", "1", "--to", f"lake.n.{table[3:]}",
        "--late-rows", "append",
    )  # fmt: skip

    assert (code, "was attached to the source again" in out + err) == (3, True)
    places.clickhouse_run(f"OPTIMIZE TABLE {table} FINAL")
    code, out, err = places.run(
        "export", table, "--partition-id", "1", "--to", f"lake.n.{table[3:]}",
        "--late-rows", "append",
    )  # fmt: skip
    assert (code, "may have the rows of the archived part" in out + err) == (3, True)
    assert in_lake(places, f"lake.n.{table[3:]}") == 3


def test_no_detached_part_is_dropped_whose_rows_left_the_lake(places: Places, table: str) -> None:
    """Harm prevented: the late rows are whole in main, and the parts before them are dropped."""
    to = f"lake.n.{table[3:]}"
    archive(places, table, "--partition-id", "1")
    drop = f"ALTER TABLE {to} DROP PARTITION ID '1'"
    code, out, err = places.run("alter", drop, "--yes", "--warehouse", str(places.warehouse))
    assert code == 0, out + err
    places.clickhouse_run(f"INSERT INTO {table} VALUES (1, 9, 'late')")
    assert archive(places, table, "--partition-id", "1", "--late-rows", "append")[0] == 0

    code, found = archive(places, table, "--all", "--drop")

    assert code == 3
    assert [f["source"] for f in found if f["partition_id"] == "1"] == ["kept"]
    assert "Nothing was dropped" in str([f["message"] for f in found])
    assert in_source(places, table) == (0, 2)


def test_unarchiving_says_what_may_go_and_needs_a_yes(places: Places, table: str) -> None:
    archive(places, table, "--all", "--drop")
    places.clickhouse_run(f"INSERT INTO {table} VALUES (1, 9, 'late')")
    words = ("exports", "unarchive", "1", "--table", table, "--to", f"lake.n.{table[3:]}")

    code, out, err = places.run(*words)
    dry, out_dry, _ = places.run(*words, "--dry-run")
    assert (code, dry) == (2, 0)
    assert "3 rows in 1 file of lake.n." in err
    assert "would be unarchived" in out_dry
    assert forced(places, table, "--force")[0] == 3

    code, out, _ = places.run(*words, "--yes")
    assert (code, "unarchived: partition 1" in out) == (0, True)
    assert forced(places, table)[0] == 3, "fewer rows"
    assert forced(places, table, "--force")[0] == 0
    assert in_lake(places, f"lake.n.{table[3:]}") == 3
    again, _, err = places.run(*words, "--yes")
    assert (again, "it is not archived" in err) == (3, True)


@pytest.mark.parametrize("words", [("--all",), ("--partition-id", "1")], ids=str)
def test_dropping_later_frees_what_was_detached(
    places: Places, table: str, words: tuple[str, ...]
) -> None:
    """Harm prevented: nothing but statements by hand ever frees the disk."""
    archive(places, table, *words)
    left = in_source(places, table)[1]

    code, found = archive(places, table, *words, "--drop")

    assert (code, [f["source"] for f in found]) == (0, ["dropped"] * left)
    assert all(int(str(f["freed_bytes"])) > 0 for f in found)
    assert in_source(places, table)[1] == 0
    assert archive(places, table, *words, "--drop")[0] == 0


def test_a_part_that_took_the_name_of_what_was_detached_is_not_dropped(
    places: Places, table: str
) -> None:
    """Harm prevented: ClickHouse restarts the numbers of blocks, and a late row is dropped."""
    archive(places, table, "--partition-id", "1")
    for statement in (
        "ALTER TABLE {t} DROP DETACHED PARTITION 1 SETTINGS allow_drop_detached = 1",
        "ALTER TABLE {t} DETACH PARTITION 2",
        "INSERT INTO {t} VALUES (1, 9, 'late')",
        "ALTER TABLE {t} DETACH PARTITION 1",
    ):
        # Each opens the directory once more, as a server does that is started again.
        places.clickhouse_run(statement.format(t=table))

    code, found = archive(places, table, "--partition-id", "1", "--drop")

    assert (code, [f["source"] for f in found]) == (3, ["kept"])
    assert "cannot be identified as archived" in str(found[0]["message"])
    assert in_source(places, table)[1] == 2


def test_a_dry_run_says_what_would_leave_the_source(places: Places, table: str) -> None:
    before = in_source(places, table)

    code, out, err = places.run(
        "archive", table, "--all", "--drop", "--to", f"lake.n.{table[3:]}", "--dry-run"
    )

    assert code == 0, err
    assert "would be exported, compared and dropped" in out
    assert in_source(places, table) == before
    archive(places, table, "--partition-id", "1")
    code, out, err = places.run(
        "archive", table, "--all", "--drop", "--to", f"lake.n.{table[3:]}", "--dry-run"
    )
    assert "1 detached part would be dropped" in out
    assert in_source(places, table) == (2, 1)


@pytest.mark.parametrize("kind", ["DateTime64(3, 'UTC')", "Date32"])
def test_a_partition_of_a_far_year_is_not_taken_for_an_old_one(places: Places, kind: str) -> None:
    """Harm prevented: what system.parts shows of 2299 is 2027, and the partition is detached."""
    places.reads_parts = True
    name = f"db.archived{next(_NUMBERS)}"
    places.clickhouse_run(
        f"CREATE TABLE {name} (t {kind}, id Int64) ENGINE = MergeTree PARTITION BY toYear(t)"
        " ORDER BY id",
        *(f"INSERT INTO {name} VALUES ('{year}-05-06', {year})" for year in (1969, 2024, 2299)),
    )

    code, found = archive(places, name, "--all", "--where", "max_time < '2030-01-01'")

    assert (code, [f["partition_id"] for f in found]) == (0, ["1969", "2024"])
    assert in_source(places, name) == (1, 2)
    (left,) = places.outcomes("partitions", name)
    assert str(left["min_time"])[:10] == str(left["max_time"])[:10] == "2299-05-06"


def test_the_same_rows_inserted_again_are_new_rows(places: Places, table: str) -> None:
    """Harm prevented: a second INSERT of equal rows counts as exported, and its parts are dropped.

    After an ATTACH of the detached parts the same rows are the archived ones.
    """
    to, late = f"lake.n.{table[3:]}", ("--late-rows", "append")
    assert archive(places, table, "--all", "--drop")[0] == 0
    places.clickhouse_run(f"INSERT INTO {table} VALUES (1, 1, 'a'), (1, 2, 'b'), (1, 3, '')")

    kept, (refused,) = archive(places, table, "--all", "--drop", *late)
    rows = in_source(places, table), in_lake(places, to)
    code, found = archive(places, table, "--all", *late[:1], "append-all")
    places.clickhouse_run(f"ALTER TABLE {table} ATTACH PARTITION 1")
    again, (back,) = archive(places, table, "--all", "--drop")

    assert (kept, refused["source"], rows) == (3, "kept", ((3, 0), 5))
    assert "equals an archived one, which was dropped" in str(refused["message"])
    assert (code, [one["source"] for one in found]) == (0, ["detached"])
    assert (again, back["source"]) == (0, "dropped")
    assert (in_source(places, table), in_lake(places, to)) == ((0, 0), 8)


def test_late_rows_that_are_not_exported_are_not_equal(places: Places, table: str) -> None:
    """Harm prevented: `verify` ends with 0 although the lake lacks rows of the source.

    Rows that were inserted again count as late rows, and rows that were attached again do not.
    """
    to, late = f"lake.n.{table[3:]}", ("--late-rows", "append")
    assert archive(places, table, "--partition-id", "1")[0] == 0
    assert archive(places, table, "--partition-id", "2", "--drop")[0] == 0
    places.clickhouse_run(
        f"ALTER TABLE {table} ATTACH PARTITION 1",
        f"INSERT INTO {table} VALUES (2, 4, 'd'), (2, 5, 'e')",
    )
    again = [places.run("verify", table, "--partition-id", one, "--to", to) for one in "12"]
    places.clickhouse_run(f"INSERT INTO {table} VALUES (2, 9, 'late'), (2, 10, 'late')")

    found = [
        places.run("verify", table, *words, "--to", to)
        for words in (("--all",), ("--partition-id", "2"))
    ]
    words = (*late[:1], "append-all")
    added, _, err = places.run("export", table, "--partition-id", "2", "--to", to, *words)
    equal, out, _ = places.run("verify", table, "--all", "--to", to)

    assert [code for code, _, _ in again] == [0, 3], again
    for code, text, _ in found:
        assert (code, "partition 2: as exported" in text) == (3, True), text
        assert "the source has 4 rows in 2 parts of it since it was archived" in text
    assert (added, equal) == (0, 0), err + out


def test_a_renamed_table_is_compared_and_archived(places: Places, table: str) -> None:
    """Harm prevented: `verify --all` ends with 0 and compares nothing of what was exported before.

    A partition that the renamed table has no more is compared with its digest.
    """
    to = f"lake.n.{table[3:]}"
    assert places.run("export", table, "--all", "--to", to, "--verify")[0] == 0
    now = f"{table}_now"
    places.clickhouse_run(
        f"RENAME TABLE {table} TO {now}", f"ALTER TABLE {now} DROP PARTITION ID '2'"
    )

    code, out, err = places.run("verify", now, "--all", "--to", to)
    archived = places.run("archive", now, "--partition-id", "1", "--to", to)

    assert (code, out.count(": equal")) == (0, 2), out + err
    assert (archived[0], in_source(places, now)) == (0, (0, 1)), archived
