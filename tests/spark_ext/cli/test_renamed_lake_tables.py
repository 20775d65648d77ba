"""Commands that name a lake table mean the table that has the name now, whatever it was called."""

from __future__ import annotations

import itertools
import json

import pytest

from catalog.iceberg.catalogs import open_catalog
from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.ledger import Row, State
from tableformat.names import LakeName
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

_NUMBERS = itertools.count(1)


@pytest.fixture
def table(places: Places) -> str:
    """Make a table with 3 rows in partition 1 and 2 in partition 2."""
    places.reads_parts = True
    name = f"db.renamed{next(_NUMBERS)}"
    places.clickhouse_run(
        f"CREATE TABLE {name} (p UInt8, id Int64) ENGINE = MergeTree PARTITION BY p ORDER BY id",
        f"INSERT INTO {name} VALUES (1, 1), (1, 2), (1, 3), (2, 4), (2, 5)",
    )
    return name


def old(table: str) -> str:
    return f"lake.n.{table[3:]}"


def new(table: str) -> str:
    return f"{old(table)}_b"


def renamed(places: Places, table: str, *, has_successor: bool = False) -> None:
    """Rename the lake table; another one may take its name."""
    catalog = open_catalog("lake", warehouse=places.warehouse).catalog
    catalog.rename_table(old(table).removeprefix("lake."), new(table).removeprefix("lake."))
    if has_successor:
        schema = catalog.load_table(new(table).removeprefix("lake.")).schema()
        catalog.create_table(old(table).removeprefix("lake."), schema)


def export(places: Places, table: str, to: str, *words: str) -> int:
    return places.run("export", table, *words, "--to", to, "--manifest-ttl", "1")[0]


def interrupted(places: Places, table: str, *words: str) -> None:
    def interrupt(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        raise KeyboardInterrupt

    before = places.before
    places.before = interrupt
    assert export(places, table, old(table), *words) == 130
    places.before = before


def rows_of(places: Places, table: str) -> dict[str, Row]:
    ledger = SqliteLedger(places.warehouse / LEDGER_FILE)
    found = {r.key.partition_id: r for r in ledger.rows() if r.source_table == table}
    ledger.close()
    return found


def listed(places: Places, to: str) -> list[tuple[object, object]]:
    code, out, err = places.run("exports", "list", "--to", to, "--json")
    assert code == 0, err
    every = (json.loads(line) for line in out.splitlines())
    return sorted((one["partition_id"], one["destination_table"]) for one in every)


def in_lake(places: Places, to: str) -> int:
    lake = open_catalog("lake", warehouse=places.warehouse).table(LakeName.parse(to))
    assert lake is not None
    return sum(t.file.record_count for t in lake.loaded.scan().plan_files())


def unarchive(places: Places, table: str, to: str) -> tuple[int, str, str]:
    return places.run("exports", "unarchive", "1", "--table", table, "--to", to, "--yes")


def session(places: Places) -> NoSpark:
    return NoSpark(
        {
            "spark.mergeberg.source.ch": f"chdb:{places.clickhouse}",
            "spark.mergeberg.warehouse": str(places.warehouse),
        }
    )


def test_another_table_of_the_name_does_not_free_archived_rows(places: Places, table: str) -> None:
    """Harm prevented: late rows replace the only copy of archived ones, which nobody was told."""
    export(places, table, old(table), "--all")
    words = ("--partition-id", "1", "--to", old(table), "--allow-alter", "--drop")
    assert places.run("archive", table, *words)[0] == 0
    renamed(places, table, has_successor=True)

    code, out, err = unarchive(places, table, old(table))

    assert (code, out) == (3, "")
    assert "another table, which was renamed or dropped" in err
    assert rows_of(places, table)["1"].archived is not None
    places.clickhouse_run(f"INSERT INTO {table} VALUES (1, 9), (1, 10), (1, 11), (1, 12)")
    assert export(places, table, new(table), "--all") == 3
    assert in_lake(places, new(table)) == 5

    code, out, err = unarchive(places, table, new(table))

    assert (code, err) == (0, "")
    assert f"3 rows in 1 file of {new(table)} may be replaced" in out


def test_rows_of_a_table_that_is_not_found_stay_archived(places: Places, table: str) -> None:
    """Harm prevented: "0 rows in 0 files" is said of a table that has them by its new name."""
    words = ("--all", "--to", old(table), "--allow-alter", "--drop")
    assert places.run("archive", table, *words)[0] == 0
    renamed(places, table)

    code, out, err = unarchive(places, table, old(table))

    assert (code, out) == (3, "")
    assert "name it by its present name" in err
    assert rows_of(places, table)["1"].archived is not None


def test_an_interrupted_export_is_cancelled_by_the_new_name(places: Places, table: str) -> None:
    """Harm prevented: its claim stays for ever, and its files too."""
    interrupted(places, table, "--partition-id", "1")
    renamed(places, table, has_successor=True)
    words = ("exports", "cancel", "1", "--table", table, "--to")

    code, _, err = places.run(*words, old(table))
    assert (code, "another table, which was renamed or dropped" in err) == (3, True)
    code, _, err = places.run(*words[:-1])
    assert (code, "present name with --to" in err) == (3, True)
    code, out, err = places.run(*words, new(table), "--json")

    assert code == 0, err
    assert json.loads(out)["table"] == new(table)
    assert rows_of(places, table)["1"].state is State.KILLED


def test_all_exports_into_a_renamed_table_are_cancelled(places: Places, table: str) -> None:
    """`--all` means the same table as a partition's id."""
    interrupted(places, table, "--all")
    renamed(places, table, has_successor=True)

    code, out, _ = places.run("exports", "cancel", "--all", "--to", old(table))
    assert (code, "nothing to cancel" in out) == (0, True)
    code, out, err = places.run("exports", "cancel", "--all", "--to", new(table))

    assert (code, out.count("KILLED")) == (0, 2), err


def test_exports_are_listed_and_forgotten_by_the_new_name(places: Places, table: str) -> None:
    """Harm prevented: the list of a table lacks what it has, or has what another table has."""
    assert places.run("export", table, "--all", "--to", old(table))[0] == 0
    renamed(places, table, has_successor=True)

    assert listed(places, old(table)) == []
    assert listed(places, new(table)) == [("1", new(table)), ("2", new(table))]
    words = ("exports", "forget", "1", "--table", table, "--to")
    assert places.run(*words, old(table))[0] == 3
    assert places.run(*words, new(table))[0] == 0
    done = rows_of(places, table)["1"].done
    assert done is not None
    assert done.forgotten


def test_procedures_take_the_new_name(places: Places, table: str) -> None:
    """`CALL` means the same table as the command line."""
    interrupted(places, table, "--partition-id", "1")
    export(places, table, old(table), "--partition-id", "2")
    renamed(places, table, has_successor=True)
    spark, source = session(places), f"ch.{table}"

    assert spark.call("exports", table=old(table)) == []
    found = spark.call("exports", table=new(table))
    assert [row["destination_table"] for row in found] == [new(table)] * 2
    (ended,) = spark.call("cancel_export", table=new(table), source=source, partition_id="1")
    assert (ended["status"], ended["destination_table"]) == ("killed", new(table))
    (told,) = spark.call("forget_export", table=new(table), source=source, partition_id="2")
    assert told["destination_table"] == new(table)


def test_exports_of_a_dropped_table_are_listed_by_its_name(places: Places, table: str) -> None:
    export(places, table, old(table), "--all")
    catalog = open_catalog("lake", warehouse=places.warehouse).catalog
    catalog.drop_table(old(table).removeprefix("lake."))

    assert [one for one, _ in listed(places, old(table))] == ["1", "2"]


def test_a_claim_renews_the_name_of_the_table(places: Places, table: str) -> None:
    """Harm prevented: the progress of an export is looked for in a table of the old name."""
    export(places, table, old(table), "--all")
    renamed(places, table)

    assert export(places, table, new(table), "--partition-id", "1", "--force") == 0

    assert rows_of(places, table)["1"].destination_table == new(table)
    code, out, _ = places.run("exports", "list", "--table", table, "--json")
    names = {json.loads(line)["destination_table"] for line in out.splitlines()}
    assert (code, names) == (0, {new(table)})
