"""Tables of an open chdb session as a source: queried outside of it, temporary ones by a stand-in.

What is looked at was found by `tests/support/session_sources.py`, in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from catalog.clickhouse.session import check_session
from tableformat.errors import UsageError
from tests.repository.source_files import ROOT
from tests.support.own_process import results_of

_SECONDS = 120


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the program found."""
    directory = tmp_path_factory.mktemp("sessions")
    return results_of("tests.support.session_sources", directory, seconds=_SECONDS)


def test_what_the_user_set_in_the_session_hides_no_row(found: dict[str, Any]) -> None:
    """A `limit` of the session would leave parts out; the query runs outside of it."""
    assert found["connection"]["rows"] == 3
    assert found["connection"]["threads"] == [[0]]


def test_a_stream_of_the_session_goes_on(found: dict[str, Any]) -> None:
    """A second query in the same session would end it."""
    assert found["connection"]["stream"] == sum(len(f"{n}\n") for n in range(1_000_000))


def test_no_digit_and_no_byte_is_lost(found: dict[str, Any]) -> None:
    assert found["connection"]["wide"] == [str(2**64 - 1), "1.5"]
    assert found["connection"]["bytes"] is True


def test_a_failed_query_leaves_nothing_in_the_next_result(found: dict[str, Any]) -> None:
    error, message = found["connection"]["failed"]

    assert error == "ClickHouseError"
    assert "Value passed to 'throwIf' function is non-zero" in message
    assert found["connection"]["after"] == [["clean"]]


def test_closing_twice_is_as_once_and_the_session_stays_open(found: dict[str, Any]) -> None:
    error, message = found["connection"]["closed"]

    assert (error, message.partition(":")[0]) == ("SourceError", "Cannot use ClickHouse")
    assert found["connection"]["session"] == "open\n"


def test_a_closed_session_is_not_opened_again(found: dict[str, Any]) -> None:
    assert found["connection"]["no session"] == [
        "UsageError",
        "Cannot read from the chdb session: it is closed. Open it, and call again.",
    ]


def test_a_relative_path_after_a_change_of_directory_opens_nothing_else(
    found: dict[str, Any],
) -> None:
    error, message = found["moved"]["error"]

    assert error == "SourceError"
    assert "open sessions by absolute paths" in message


def test_a_temporary_table_is_known_by_its_uuid(found: dict[str, Any]) -> None:
    temporary = found["temporary"]

    assert temporary["table"] == [
        "_temporary_and_external_tables.t",
        f"uuid:{temporary['uuid']}",
        ["p", "k"],
    ]


def test_its_parts_have_their_own_names_and_blocks(found: dict[str, Any]) -> None:
    """Others of the same rows are no merge of those before, and are exported."""
    assert found["temporary"]["first"] == [["1_1_1_0", 3, 1, 1], ["1_2_2_0", 3, 2, 2]]
    assert found["temporary"]["others"] == [["1_3_3_0", 3, 3, 3], ["1_4_4_0", 3, 4, 4]]


def test_it_is_frozen_as_files_and_nothing_stays(found: dict[str, Any]) -> None:
    """A stand-in and a staging table while it is open, nothing when it is closed."""
    assert found["temporary"]["frozen"] == [["1_1_1_0", 3, True], ["1_2_2_0", 3, True]]
    assert found["temporary"]["staged"] == 2
    assert found["temporary"]["left"] == []


def test_another_definition_than_was_described_is_refused(found: dict[str, Any]) -> None:
    one, error, message = found["temporary"]["changed"]

    assert (one, error) == ("1", "RefusedError")
    assert "_temporary_and_external_tables.t: its columns changed" in message


def test_parts_that_come_meanwhile_are_there_or_nothing_is(found: dict[str, Any]) -> None:
    """Once: the stand-in is made again with them. Always: the export is not begun."""
    assert found["changing"]["once"] == [4, 2]
    assert found["changing"]["kept"] == 1
    assert found["changing"]["always"][0] == "SourceError"
    assert "changed in each of 5 attempts" in found["changing"]["always"][1]
    assert found["changing"]["left"] == []


def test_an_unfinished_mutation_is_refused(found: dict[str, Any]) -> None:
    error, message = found["changing"]["mutation"]

    assert error == "RefusedError"
    assert "_temporary_and_external_tables.t: the mutation mutation_3.txt is not" in message


def test_something_else_is_no_session() -> None:
    with pytest.raises(UsageError, match=r"Cannot read from object: it is no chdb session\."):
        check_session(object())


def test_chdb_is_brought_by_the_session_alone() -> None:
    """A process that has loaded it must not fork, and most have no session."""
    program = "import sys, spark_ext.python_api; sys.exit('chdb' in sys.modules)"

    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=_SECONDS)
