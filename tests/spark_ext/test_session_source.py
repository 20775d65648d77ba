"""An open chdb session is a source: its tables are exported exactly once, and it stays as it was.

What is looked at was done by `tests/support/session_exports.py`, a user's program in a process of
its own.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.own_process import results_of

pytestmark = pytest.mark.spark

_SECONDS = 240


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what came of each step of the program."""
    directory = tmp_path_factory.mktemp("session")
    return results_of("tests.support.session_exports", directory, seconds=_SECONDS)


def _statuses(step: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Return what became of the partitions, in the order of their ids."""
    assert "exported" in step, step
    return sorted((e["partition_id"], e["status"], e["rows"]) for e in step["exported"])


def test_a_table_of_a_session_is_exported_once(results: dict[str, Any]) -> None:
    """By its full name, or by the name that the session's current database gives it."""
    assert _statuses(results["first"]) == [("1", "committed", 5)]
    assert _statuses(results["second"]) == [("1", "already_exported", 5)]
    assert (
        results["second"]["exported"][0]["snapshot_id"]
        == (results["first"]["exported"][0]["snapshot_id"])
    )


def test_it_is_the_same_table_when_its_directory_is_opened_by_path(results: dict[str, Any]) -> None:
    """What a session exported is not exported again by a source of that directory."""
    assert _statuses(results["by path"]) == [("1", "already_exported", 5)]
    assert _statuses(results["the rest by path"]) == [
        ("0", "committed", 5),
        ("1", "already_exported", 5),
    ]
    assert results["lake"] == [*range(10)]


def test_a_rehearsal_says_what_would_be_done(results: dict[str, Any]) -> None:
    assert _statuses(results["rehearsed"]) == [("0", "export", 5), ("1", "already_exported", 5)]


@pytest.mark.parametrize("step", ["session", "temporary session"])
def test_the_session_is_what_it_was(results: dict[str, Any], step: str) -> None:
    """Its current database, its settings, its tables; it is open, and nothing of ours is in it."""
    assert results[step]["before"] == results[step]["after"]
    assert "mergeberg" not in json.dumps(results[step]["after"])


def test_a_temporary_table_is_exported_once(results: dict[str, Any]) -> None:
    """Of a session in memory, with an index, a codec, a default, and parentheses in its name."""
    assert _statuses(results["temporary"]) == [("0", "committed", 13), ("1", "committed", 12)]
    assert _statuses(results["temporary again"]) == [
        ("0", "already_exported", 13),
        ("1", "already_exported", 12),
    ]
    assert results["temporary lake"] == [*range(25)]


def test_a_temporary_table_comes_before_one_of_the_database(results: dict[str, Any]) -> None:
    """As in ClickHouse: a name without a database is the session's own table first."""
    assert _statuses(results["temporary first"]) == [("1", "committed", 2)]


def test_a_temporary_table_that_is_made_again_is_another_table(results: dict[str, Any]) -> None:
    """Harm prevented: a script that is run again after a crash adds its rows a second time."""
    assert "may be there already: of uuid:" in results["made again"]["message"]
    assert _statuses(results["others"]) == [("1", "committed", 2)]


def test_a_temporary_replicated_table_is_refused_by_clickhouse(results: dict[str, Any]) -> None:
    assert results["replicated"].startswith("Code: 80.")
    assert "Temporary tables cannot be created with Replicated" in results["replicated"]


@pytest.mark.parametrize(
    ("step", "error", "code", "message"),
    [
        ("nothing", "NotFoundError", 60, "Cannot find the table db.nothing: the database 'db' "),
        ("log", "UnsupportedError", 48, "its engine is Log"),
        ("memory", "UnsupportedError", 48, "_temporary_and_external_tables.memory: its engine is"),
        ("gone", "NotFoundError", 60, "Cannot find the temporary table my (own): the session "),
        ("unknown value", "NotFoundError", None, "Cannot find the partition 7 of _temporary"),
        ("cluster", "UsageError", None, "Cannot look for the cluster 'c' in chdb:session"),
        ("at once", "UsageError", None, "Cannot begin to export db.t with wait=False: its session"),
        ("closed", "UsageError", None, "Cannot read from the chdb session: it is closed."),
        ("closed table", "UsageError", None, "Cannot read from the chdb session: it is closed."),
        ("no session", "UsageError", None, "Cannot read from int: it is no chdb session."),
        ("three parts", "UsageError", None, "Cannot read the table 'ch.db.t' of a session: it has"),
    ],
)
def test_an_impossible_export_is_refused(
    results: dict[str, Any], step: str, error: str, code: int | None, message: str
) -> None:
    assert (results[step]["error"], results[step]["code"]) == (error, code)
    assert message in results[step]["message"]


def test_a_table_of_a_session_is_shown_without_the_session(results: dict[str, Any]) -> None:
    assert results["shown"] == "SessionTable(table='db.t')"


def test_partitions_are_attached_and_replaced_from_a_temporary_table(
    results: dict[str, Any],
) -> None:
    """One that is made again brings its rows in the place of those before, never to them."""
    assert results["attached"] == [["1", "attached", 2]]
    assert results["attached again"] == [["1", "unchanged", 2]]
    assert "use REPLACE PARTITION" in results["attached anew"]["message"]
    assert results["replaced"] == [["1", "replaced", 3]]
    assert results["lake of statements"] == [0, 2, 5, 7, 9]
    step = results["session behind FROM"]
    assert step["before"] == step["after"]


def test_the_export_of_the_requirements_temporary_table_runs(results: dict[str, Any]) -> None:
    """But for its engine, which ClickHouse itself refuses (code 80)."""
    assert results["requirement's engine"].startswith("Code: 80.")
    assert results["requirement"] == [["2020", "committed", 2]]
    assert results["requirement, said to be temporary"] == [["2020", "already_exported", 2]]


@pytest.mark.parametrize(
    ("step", "code", "message"),
    [
        ("temporary without a session", 48, "only the session that created it sees it. Pass the"),
        ("without waiting", None, "its session may be closed before the export has ended"),
        ("another statement", 48, "it is a table of an open session, on which only EXPORT"),
    ],
)
def test_statements_not_possible_on_a_sessions_table_are_refused(
    results: dict[str, Any], step: str, code: int | None, message: str
) -> None:
    """Harm prevented: a table of that name elsewhere is taken for it."""
    assert (results[step]["code"], message in results[step]["message"]) == (code, True), results[
        step
    ]


def test_tables_are_not_given_with_a_statement_of_sparks(results: dict[str, Any]) -> None:
    """Harm prevented: a name means a table of Spark's without a message."""
    assert (
        "only EXPORT, and ATTACH and REPLACE PARTITION … FROM, accept them"
        in results["of Spark"]["message"]
    )
