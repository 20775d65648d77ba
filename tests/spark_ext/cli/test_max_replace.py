"""`mergeberg export --max-replace`: a run that would rewrite much of the lake is refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from catalog.iceberg.catalogs import open_catalog
from tableformat.errors import RefusedError
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

_NUMBERS = itertools.count(1)
_SETTLED = "SETTINGS mutations_sync = 2"


@pytest.fixture
def table(places: Places) -> str:
    """Make a table with two rows in each of three partitions, and export it."""
    places.reads_parts = True
    name = f"db.limited{next(_NUMBERS)}"
    places.clickhouse_run(
        f"CREATE TABLE {name} (p UInt8, id Int64, v Int64) ENGINE = MergeTree PARTITION BY p"
        " ORDER BY id",
        f"INSERT INTO {name} SELECT number % 3 + 1, number, number FROM numbers(6)",
    )
    assert statuses(places, name) == ["committed"] * 3
    for one in "123":
        places.run("exports", "forget", one, "--table", name, *to(name))
    return name


def to(table: str) -> tuple[str, str]:
    return ("--to", f"lake.n.{table[3:]}")


def outcomes(places: Places, table: str, *words: str) -> list[dict[str, object]]:
    found = places.outcomes("export", table, "--all", *to(table), *words)
    return sorted(found, key=lambda one: str(one.get("partition_id")))


def statuses(places: Places, table: str, *words: str) -> list[object]:
    return [one["status"] for one in outcomes(places, table, *words)]


def insert(places: Places, table: str, *partitions: int) -> None:
    rows = ", ".join(f"({one}, 100, 0)" for one in partitions)
    places.clickhouse_run(f"INSERT INTO {table} VALUES {rows}")


def rewrite(places: Places, table: str) -> None:
    """Write all parts again, with the same rows."""
    places.clickhouse_run(f"ALTER TABLE {table} UPDATE v = v WHERE 1 {_SETTLED}")


def snapshots(places: Places, table: str) -> int:
    catalog = open_catalog("lake", warehouse=places.warehouse).catalog
    return len(catalog.load_table(f"n.{table[3:]}").metadata.snapshots)


def refused(places: Places, table: str, *words: str) -> str:
    """Export, and return why it was refused; no snapshot came."""
    before = snapshots(places, table)
    code, out, err = places.run("export", table, "--all", *to(table), *words)

    assert code == 3, (out, err)
    assert snapshots(places, table) == before
    return err


@pytest.mark.representative
def test_more_replacements_than_allowed_are_refused_and_nothing_changes(
    places: Places, table: str
) -> None:
    """Harm prevented: after a mutation a nightly run rewrites the lake, and nobody knows."""
    insert(places, table, 1, 2, 7)
    before = places.files()

    message = refused(places, table, "--max-replace", "1")

    assert f"Cannot export {table} to lake.n.{table[3:]}: of the exported partitions 2" in message
    assert "would be replaced (1, 2), and --max-replace allows 1. Nothing was changed" in message
    assert places.files() == before


def test_as_many_as_are_allowed_are_replaced(places: Places, table: str) -> None:
    insert(places, table, 1, 2)

    assert statuses(places, table, "--max-replace", "2") == ["replaced", "replaced", "unchanged"]


def test_what_is_new_is_exported_where_nothing_may_be_replaced(places: Places, table: str) -> None:
    insert(places, table, 7)

    assert statuses(places, table, "--max-replace", "0") == ["unchanged"] * 3 + ["committed"]


def test_partitions_that_are_not_selected_do_not_count(places: Places, table: str) -> None:
    insert(places, table, 1, 2, 3)
    words = ("--where", "partition_id = '2'", "--max-replace", "1")

    assert statuses(places, table, *words) == ["replaced"]


def test_force_replaces_no_more_than_is_allowed(places: Places, table: str) -> None:
    message = refused(places, table, "--force", "--max-replace", "2")

    assert "3 would be replaced (1, 2, 3), and --max-replace allows 2" in message


def test_a_dry_run_shows_every_partition_and_the_refusal(places: Places, table: str) -> None:
    insert(places, table, 1, 2)
    words = ("export", table, "--all", *to(table), "--dry-run", "--max-replace")

    code, out, err = places.run(*words, "1")

    assert (code, out.count("replace ")) == (3, 2), out
    assert "2 would be replaced (1, 2), and --max-replace allows 1" in err
    assert places.run(*words, "2")[0] == 0


def test_without_a_comparison_the_refusal_names_the_option_that_compares(
    places: Places, table: str
) -> None:
    rewrite(places, table)

    message = refused(places, table, "--max-replace", "2")

    assert "--check-rows first compares the rows of 3 of them, whose parts changed" in message


def test_equal_rows_in_other_parts_do_not_count_where_they_are_compared(
    places: Places, table: str
) -> None:
    """Harm prevented: a merge of all partitions ends each nightly run with a refusal."""
    rewrite(places, table)

    found = statuses(places, table, "--check-rows", "--max-replace", "0")

    assert found == ["unchanged"] * 3


def test_rows_are_compared_before_the_first_replacement(places: Places, table: str) -> None:
    rewrite(places, table)
    places.clickhouse_run(
        f"ALTER TABLE {table} UPDATE v = 99 WHERE id IN (0, 1) {_SETTLED}",
    )
    insert(places, table, 3)
    words = ("--check-rows", "--max-replace")

    _, _, note = places.run("export", table, "--all", *to(table), "--dry-run", *words, "1")
    message = refused(places, table, *words, "1")
    allowed = statuses(places, table, *words, "3")

    assert "1 partition would be replaced, and 2 more if their rows differ" in note
    assert "3 would be replaced (3, 1, 2), and --max-replace allows 1" in message
    assert allowed == ["replaced"] * 3


def test_a_column_that_comes_counts_as_other_rows(places: Places, table: str) -> None:
    """Harm prevented: a column is added to a lake table whose export is refused then."""
    places.clickhouse_run(f"ALTER TABLE {table} ADD COLUMN more UInt8 DEFAULT 1")
    rewrite(places, table)
    before = places.files()

    message = refused(places, table, "--check-rows", "--evolve-schema", "--max-replace", "2")

    assert "3 would be replaced (1, 2, 3)" in message
    assert "--check-rows first" not in message
    assert places.files() == before


def test_a_table_that_is_not_there_yet_is_exported(places: Places, table: str) -> None:
    found = places.outcomes(
        "export", table, "--all", "--to", f"{to(table)[1]}b", "--max-replace", "0"
    )

    assert [one["status"] for one in found] == ["committed"] * 3


def archive(places: Places, table: str, *words: str) -> tuple[int, str, str]:
    return places.run("archive", table, "--all", *to(table), *words)


def left(places: Places, table: str) -> list[object]:
    """Return the partitions that are still in the source."""
    return [one["partition_id"] for one in places.outcomes("partitions", table)]


@pytest.mark.representative
def test_an_archive_replaces_no_more_than_is_allowed(places: Places, table: str) -> None:
    """Harm prevented: after a mutation an archive rewrites the lake, and nobody knows."""
    insert(places, table, 1, 2)
    before = places.files()

    dry, out, note = archive(places, table, "--max-replace", "1", "--dry-run")
    code, _, err = archive(places, table, "--max-replace", "1")

    assert (dry, code) == (3, 3), note + err
    assert out.count("in place of its rows in main") == 2
    for text in (note, err):
        assert f"Cannot archive {table} to lake.n.{table[3:]}: of the exported partitions" in text
        assert "2 would be replaced (1, 2), and --max-replace allows 1" in text
        assert "--check-rows" not in text
    assert places.files() == before
    assert archive(places, table, "--max-replace", "2")[0] == 0
    assert left(places, table) == []


def test_an_archive_of_what_main_has_replaces_nothing(places: Places, table: str) -> None:
    code, _, err = archive(places, table, "--max-replace", "0")

    assert (code, left(places, table)) == (0, []), err


@pytest.mark.parametrize("dry_run", [False, True])
def test_an_archive_of_a_session_has_the_limit(
    places: Places, table: str, *, dry_run: bool
) -> None:
    insert(places, table, 1, 2)
    session = NoSpark(
        {
            "spark.mergeberg.source.ch": f"chdb:{places.clickhouse}",
            "spark.mergeberg.source.ch.wait": "0.3",
            "spark.mergeberg.source.ch.allow-alter": "true",
            "spark.mergeberg.warehouse": str(places.warehouse),
        }
    )
    given: dict[str, Any] = {"table": to(table)[1], "source": f"ch.{table}", "all_partitions": True}

    with pytest.raises(RefusedError, match=r"2 would be replaced \(1, 2\)"):
        session.call("archive_partition", **given, max_replace=1, dry_run=dry_run)

    assert len(left(places, table)) == 3
    rows = session.call("archive_partition", **given, max_replace=2, dry_run=dry_run)
    assert {row["status"] for row in rows} == {"detach" if dry_run else "detached"}
