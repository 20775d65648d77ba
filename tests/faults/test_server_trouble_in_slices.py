"""A server that fails while slices are read: a stream counts when it is whole, or not at all.

What is broken is one file's: it is written again, or its partition waits for the next run, which
keeps the files that are finished. The other partitions are exported.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.clickhouse_front import ClickHouseFront
from tests.services.clickhouse_http import faults
from tests.services.clickhouse_http.faults import BrokenStream, Fault
from tests.services.relay import Relay, relay
from tests.support.server_trouble import RunResult, Trouble

# Of the statements of an export only those that read a slice name parts.
SLICE = "._part = '"
OLD_TEXT = (
    "Code: 241, e.displayText() = DB::Exception: Memory limit (for query) exceeded: would use"
    " 1.00 GiB, e.what() = DB::Exception\n"
)
BROKEN: dict[str, tuple[Fault, str]] = {
    "a proxy without its server": (faults.PROXY_PAGE, "another program responded, HTTP 502"),
    "no answer": (faults.DROP, "closed the connection before it responded"),
    "cut": (faults.cut(200_000), "its response breaks off"),
    "short with a clean end": (faults.short(200_000), ""),
    "nothing with a clean end": (faults.short(0), ""),
    "an error of old servers in its tail": (faults.tail(OLD_TEXT, 200_000), "Memory limit"),
    "an error of old servers and no rows": (faults.tail(OLD_TEXT, 0), "Memory limit"),
    "too many queries": (
        faults.error(202, "TOO_MANY_SIMULTANEOUS_QUERIES", "Too many simultaneous queries"),
        "raise max_concurrent_queries",
    ),
    "no memory": (
        faults.error(241, "MEMORY_LIMIT_EXCEEDED", "Query memory limit exceeded"),
        "Raise max_memory_usage",
    ),
}


@pytest.fixture(params=["ArrowStream", "Native"])
def wire(request: pytest.FixtureRequest, newest: Trouble) -> str:
    """Return the format in which rows travel, as Native also where the server has Arrow."""
    if request.param == "Native":
        newest.read_as_native()
    return str(request.param)


on_one_of_both = pytest.mark.parametrize(
    "either", ["newest", pytest.param("oldest", marks=pytest.mark.nightly)], indirect=True
)


@pytest.fixture
def relayed(either: Trouble) -> Iterator[tuple[Trouble, Relay]]:
    """Return a server behind a relay, through which exports ask it."""
    with relay(int(either.url.rpartition(":")[2])) as between:
        either.relay = between
        yield either, between


def large(trouble: Trouble, name: str) -> str:
    """Make a table of two partitions, each of two files."""
    return trouble.filled(name, parts=2, rows=8000)


def killed(trouble: Trouble, between: Relay, query: str = "") -> RunResult:
    """Export a table of one part, whose query somebody ends while it cannot go on."""
    name = trouble.filled("killed", parts=0)
    # More than all buffers on the way take, compressed too: no hash stands twice.
    hashes = ", ".join(f"hex(SHA256(toString(number * 4 + {n})))" for n in range(4))
    trouble.ask(f"INSERT INTO db.{name} SELECT 0, number, concat({hashes}) FROM numbers(120000)")
    trouble.while_writing(lambda: between.stall_after(200_000))

    def act() -> None:
        between.wait_until_stalled()
        trouble.ask("KILL QUERY WHERE query_id LIKE 'mergeberg-%' ASYNC")
        between.resume()

    with trouble.meanwhile(act):
        whole = ("--target-file-size", "512")
        return trouble.export(name, "--max-retries", "0", *whole, query=query)


def assert_one_waits(
    trouble: Trouble, name: str, result: RunResult, why: str, *options: str
) -> None:
    """Check that one partition of a `large` table has one of its two files, the other is whole."""
    (line,) = (one for one in result.partitions if ": failed: " in one)
    left = int(line.removeprefix("partition ")[0])
    trouble.assert_failed(result, 4, str(left), why)
    assert trouble.in_lake(name) == [row for row in trouble.in_source(name) if row[0] != left]
    kept = trouble.files()
    assert len(kept) == 3
    again = trouble.assert_exported_once(name, *options)
    assert f"partition {left}: 1 of 2 files finished by an earlier run" in again.err
    assert kept < trouble.files()
    assert len(trouble.files()) == 4


@pytest.mark.parametrize(
    "what",
    [pytest.param(one, marks=pytest.mark.nightly if n % 3 else ()) for n, one in enumerate(BROKEN)],
)
def test_a_broken_response_is_one_file_of_the_next_run(
    newest: Trouble, newest_server: ClickHouseFront, what: str
) -> None:
    """Harm prevented: rows that were cut off, and are never missed."""
    name = large(newest, "broken")
    fault, why = BROKEN[what]
    newest_server.fail_next(fault, containing=SLICE)

    result = newest.export(name, "--max-retries", "0")

    assert newest_server.faults_left == 0
    assert_one_waits(newest, name, result, why)


@pytest.mark.soak
@pytest.mark.parametrize("what", [what for what in BROKEN if "clean" in what or "old" in what])
def test_a_broken_response_in_a_format_that_has_no_end(
    newest: Trouble, newest_server: ClickHouseFront, what: str
) -> None:
    """Native, as older servers send it: nothing but the number of rows tells that it is whole."""
    newest.read_as_native()
    name = large(newest, "endless")
    fault, why = BROKEN[what]
    newest_server.fail_next(fault, containing=SLICE)

    result = newest.export(name, "--max-retries", "0")

    assert newest_server.faults_left == 0
    assert newest_server.requests("FORMAT Native")
    assert_one_waits(newest, name, result, why)


def test_a_proof_that_lost_its_rows_is_no_proof(
    newest: Trouble, newest_server: ClickHouseFront
) -> None:
    """Values by which rows are put into a lake partition, of a server that cannot compute them."""
    newest.read_as_native()
    name = newest.filled("unproved")
    newest_server.fail_next(faults.short(0), containing="FORMAT Native")

    result = newest.export(name)

    newest.assert_stopped(result, 4, "0 rows were returned, it has 200", "run again")
    assert newest.in_lake(name) == []
    newest.assert_exported_once(name)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(how, marks=pytest.mark.nightly if number else ())
        for number, how in enumerate(BrokenStream)
    ],
)
def test_a_query_that_an_operator_ends_in_every_versions_form(
    newest: Trouble, newest_server: ClickHouseFront, wire: str, how: BrokenStream
) -> None:
    newest_server.break_streams(how)
    with relay(newest_server.port) as between:
        newest.relay = between
        result = killed(newest, between, query=f"?compress={int(wire == 'Native')}")

    assert newest_server.requests(f"FORMAT {wire}")
    # A connection that just ends says nothing.
    why = "breaks off" if how is BrokenStream.CUT else ""
    newest.assert_failed(result, 4, "0", why, "Finished files are kept.")
    newest.relay = None
    newest.assert_exported_once("killed")


@pytest.mark.soak
def test_a_query_that_an_operator_ends_on_the_oldest_server(oldest: Trouble) -> None:
    """It says so behind the rows, and ends the response as if all were well."""
    with relay(int(oldest.url.rpartition(":")[2])) as between:
        oldest.relay = between
        result = killed(oldest, between)
        oldest.assert_failed(result, 4, "0", "Finished files are kept.")
        oldest.assert_exported_once("killed")


def test_a_broken_response_is_requested_again(
    newest: Trouble, newest_server: ClickHouseFront, wire: str
) -> None:
    """With retries, as by default, nobody has to do anything."""
    name = large(newest, "again")
    for fault, _ in BROKEN.values():
        newest_server.fail_next(fault, containing=SLICE)

    result = newest.assert_exported_once(name, "--max-retries", "9")

    assert newest_server.faults_left == 0
    assert "to write again, attempt 2 of" in result.err
    assert newest_server.requests(f"FORMAT {wire}")
    assert len(newest.files()) == 4


@on_one_of_both
def test_a_connection_that_is_cut(relayed: tuple[Trouble, Relay]) -> None:
    trouble, between = relayed
    name = large(trouble, "cut")
    trouble.while_writing(lambda: between.cut_after(200_000))

    result = trouble.export(name, "--max-retries", "0")

    assert_one_waits(trouble, name, result, "breaks off")


@on_one_of_both
def test_a_server_of_which_no_byte_comes(relayed: tuple[Trouble, Relay]) -> None:
    """It is waited for as long as the address says, and not twice."""
    trouble, between = relayed
    name = large(trouble, "stalled")
    trouble.while_writing(lambda: between.stall_after(200_000))

    result = trouble.export(name, "--max-retries", "0", query="?read-timeout=1")
    between.resume()

    assert_one_waits(trouble, name, result, "it sent nothing for 1 s")


@on_one_of_both
@pytest.mark.parametrize("what", ["dies", pytest.param("stands still", marks=pytest.mark.nightly)])
def test_a_server_that_ends_or_stands_still_while_rows_stream(
    relayed: tuple[Trouble, Relay], what: str
) -> None:
    """Every slice that is left fails; the next run continues with what was frozen then."""
    trouble, between = relayed
    name = large(trouble, "ended")
    trouble.while_writing(lambda: between.stall_after(200_000))

    def act() -> None:
        between.wait_until_stalled()
        (trouble.process.kill if what == "dies" else trouble.process.pause)()
        between.resume()

    with trouble.meanwhile(act):
        result = trouble.export(name, "--max-retries", "0", query="?read-timeout=1")

    assert (result.code, result.out.count(": failed: Cannot read ")) == (4, 2)
    assert "Next: mergeberg export" in result.err
    finished = trouble.files()
    trouble.process.resume()
    trouble.process.start()
    assert trouble.in_lake(name) == []
    trouble.assert_exported_once(name)
    assert finished <= trouble.files()
    assert len(trouble.files()) == 4


@on_one_of_both
def test_a_server_that_restarts_while_rows_stream(relayed: tuple[Trouble, Relay]) -> None:
    """The frozen parts outlive it: files are written again until it responds."""
    trouble, between = relayed
    name = large(trouble, "restarted")
    trouble.while_writing(lambda: between.stall_after(200_000))
    # The second try waits until the server is there again, as the pause before it may.
    trouble.while_writing(trouble.process.start)

    def act() -> None:
        between.wait_until_stalled()
        trouble.process.kill()
        between.resume()

    with trouble.meanwhile(act):
        result = trouble.export(name, "--max-retries", "1")

    assert result.code == 0, result.everything
    assert "to write again, attempt 2 of 2" in result.err
    trouble.assert_exported_once(name)
    assert len(trouble.files()) == 4


def test_a_staging_table_that_an_operator_drops(either: Trouble) -> None:
    name = either.filled("unstaged")

    def drop() -> None:
        either.ask(f"DROP TABLE {staged(either)}")

    either.while_writing(drop)

    result = either.export(name, "--max-retries", "1")

    for partition in ("0", "1"):
        either.assert_failed(result, 4, partition, "was dropped meanwhile", "Run it again")
    assert either.in_lake(name) == []
    either.assert_exported_once(name)


def test_a_part_that_an_operator_merges_away(either: Trouble) -> None:
    """Asked for by its name it shows no rows and no error, so that only the count tells."""
    name = either.filled("merged", parts=3)

    def merge() -> None:
        table = staged(either)
        if isinstance(either.process, ClickHouseFront):
            either.ask(f"ALTER TABLE {table} MODIFY SETTING table_readonly = 0")
        either.ask(f"SYSTEM START MERGES {table}")
        either.ask(f"OPTIMIZE TABLE {table} PARTITION 1 FINAL")

    either.while_writing(merge)
    result = either.export(name, "--max-retries", "1")

    either.assert_failed(result, 4, "1", "gave 0 rows, planned were 300")
    assert either.in_lake(name) == [row for row in either.in_source(name) if row[0] == 0]
    either.assert_exported_once(name)


def staged(trouble: Trouble) -> str:
    """Return the one staging table, as SQL."""
    (table,) = trouble.staged()
    return f"mergeberg_staging.`{table}`"
