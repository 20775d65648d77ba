"""Staging tables on servers: where they are made, what they say, and that none is left for ever."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from catalog.clickhouse.snapshot.staging import Origin
from catalog.processes import this_process
from spark_ext.actions import export_ports
from spark_ext.cli.main import invoke
from tableformat.export.slices import SliceTask, WritePlan
from tests.services.clickhouse_front import ClickHouseFront, clickhouse_front
from tests.services.clickhouse_http.faults import error
from tests.services.old_clickhouse import OldPair
from tests.support.child_writer import ChildWriter

Query = Callable[[str], object]
_STAGED = "SELECT name FROM system.tables WHERE database = '{}' ORDER BY name"
# As `catalog.processes.new_job` names jobs; of a host that is not this one.
ELSEWHERE = "0badcafe_7_1n00000000_aaaaaaaa_1"


class Command:
    """The command line with a warehouse of its own, and tasks that need no Spark."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.before: Callable[[WritePlan, tuple[SliceTask, ...]], None] = lambda *_: None

    def __call__(self, *words: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        code = invoke([*words, "--warehouse", str(self._root / "warehouse")], out, err)
        return code, out.getvalue(), err.getvalue()

    def export(self, name: str, url: str, *options: str) -> tuple[int, str, str]:
        words = ("--all", "--to", f"lake.n.{name}", "--source", url, "--allow-insecure")
        return self("export", f"db.{name}", *words, *options)

    def gc(self, name: str, url: str, *options: str) -> tuple[int, str, str]:
        words = ("--to", f"lake.n.{name}", "--source", url, "--allow-insecure")
        return self("gc", *words, *options)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    made = Command(tmp_path)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "begin", lambda _: None)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "done", lambda _: True)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "result", lambda _: None)
    monkeypatch.setattr(
        export_ports,
        "SparkWriter",
        lambda _, server, __: ChildWriter(made.before, server),
    )
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    return made


@pytest.fixture(scope="module")
def dead() -> str:
    """Return the name of a staging table of a job of this host whose process has ended."""
    code = "from catalog.processes import new_job; print(new_job())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return f"{done.stdout.strip()}_1"


@pytest.fixture
def pair(old_servers: OldPair) -> Iterator[OldPair]:
    """Return the old servers; what was made on them is dropped."""
    yield old_servers
    old_servers.mend()
    for number in (1, 2):
        for database in ("db", "mergeberg_staging", "of_our_own"):
            old_servers.query(number, f"DROP DATABASE IF EXISTS {database}")


def both(pair: OldPair) -> str:
    return f"{pair.url(1)},{pair.url(2).removeprefix('http://')}"


def fill(query: Query, name: str) -> None:
    """Make a table with 100 rows in two partitions, also where a test left one of that name."""
    query("CREATE DATABASE IF NOT EXISTS db")
    query(f"DROP TABLE IF EXISTS db.{name}")
    query(
        f"CREATE TABLE db.{name} (p UInt8, k UInt64, s String) ENGINE = MergeTree"
        " PARTITION BY p ORDER BY k"
    )
    query(f"INSERT INTO db.{name} SELECT number % 2, number, toString(number) FROM numbers(100)")


def leave(query: Query, name: str, database: str = "mergeberg_staging") -> None:
    """Leave a staging table, as a run that died does."""
    query(f"CREATE DATABASE IF NOT EXISTS {database}")
    query(f"CREATE TABLE {database}.`{name}` (k UInt8) ENGINE = MergeTree ORDER BY k")


def staged(pair: OldPair, number: int, database: str = "mergeberg_staging") -> list[str]:
    return pair.query(number, _STAGED.format(database)).split()


def test_a_staging_table_says_which_process_made_it_and_when(
    newest_server: ClickHouseFront, command: Command
) -> None:
    """It leads an administrator to its host; it has no user's name."""
    fill(newest_server.command, "said")
    comments: list[str] = []

    def look(*_: object) -> None:
        wanted = "SELECT comment FROM system.tables WHERE database = 'mergeberg_staging'"
        comments.extend(str(comment) for (comment,) in newest_server.rows(wanted))

    command.before = look
    code, _, err = command.export("said", newest_server.url)

    assert code == 0, err
    for comment in comments:
        origin = Origin.parse(comment)
        assert origin is not None
        assert origin.made is not None
        assert origin.made.owner == this_process()
        assert 0 <= (datetime.now(UTC) - origin.made.at).total_seconds() < 600
        assert set(json.loads(comment)) == {
            *("what", "database", "table", "identity", "owner", "made"),
        }
    assert comments
    assert newest_server.rows(_STAGED.format("mergeberg_staging")) == ()


def test_staging_tables_lie_in_the_database_that_was_named(
    newest_server: ClickHouseFront, command: Command
) -> None:
    """Where the operator's grants are; nothing is made in any other."""
    fill(newest_server.command, "named")
    seen: list[int] = []
    command.before = lambda *_: seen.append(len(newest_server.rows(_STAGED.format("of_our_own"))))

    code, _, err = command.export(
        "named", newest_server.url, "--staging-database", "of_our_own", "--verify"
    )

    assert code == 0, err
    assert seen == [1]
    assert newest_server.rows(_STAGED.format("of_our_own")) == ()
    databases = newest_server.rows("SELECT name FROM system.databases")
    assert ("mergeberg_staging",) not in databases


def test_staging_tables_of_the_oldest_lie_there_too_and_are_found_there(
    pair: OldPair, command: Command, dead: str
) -> None:
    """Without comments, without per-query drops, over the format Native."""
    fill(pair.replica(1).query, "named")
    seen: list[list[str]] = []
    command.before = lambda *_: seen.append(staged(pair, 1, "of_our_own"))
    ours = ("--staging-database", "of_our_own")

    code, _, err = command.export("named", pair.url(1), *ours)

    assert code == 0, err
    assert [len(names) for names in seen] == [1]
    assert staged(pair, 1, "of_our_own") == staged(pair, 1) == []
    leave(pair.replica(1).query, dead, "of_our_own")
    assert "nothing to remove" in command.gc("named", pair.url(1))[1]
    assert "1 leftover (" in command.gc("named", pair.url(1), *ours)[1]


def test_leftovers_are_listed_and_dropped_on_every_host_of_the_address(
    pair: OldPair, command: Command, dead: str
) -> None:
    """Each replica has its own: those of the one that no run chooses would stay for ever."""
    fill(pair.replica(1).query, "everywhere")
    assert command.export("everywhere", pair.url(1))[0] == 0
    for number in (1, 2):
        leave(pair.replica(number).query, dead)

    code, out, _ = command.gc("everywhere", both(pair))

    assert code == 0
    for number in (1, 2):
        assert f"{dead} at {pair.url(number)}  its run has ended" in out
        assert staged(pair, number) == [dead]
    code, out, _ = command.gc("everywhere", both(pair), "--yes")
    assert (code, out.splitlines()[-1]) == (0, "removed 2 leftovers, 0 B; 0 kept")
    assert (staged(pair, 1), staged(pair, 2)) == ([], [])


def test_a_source_alone_is_cleaned_of_what_exports_into_any_table_left(
    newest_server: ClickHouseFront, command: Command, dead: str
) -> None:
    """An administrator of the server need not know the lake; resumable exports stay."""
    url = newest_server.url
    alone = ("gc", "--source", url, "--allow-insecure", "--yes")
    for name in ("one", "other"):
        fill(newest_server.command, name)
    leave(newest_server.command, dead)

    code, _, err = command(*alone)

    assert code == 3
    assert "Cannot clean up the source: there is no ledger at" in err
    assert newest_server.rows(_STAGED.format("mergeberg_staging")) == ((dead,),)
    assert command.export("one", url)[0] == 0
    swept: list[tuple[int, str, str]] = []

    def sweep(*_: object) -> None:
        leave(newest_server.command, dead)
        swept.append(command(*alone))

    command.before = sweep
    assert command.export("other", url)[0] == 0
    ((code, out, _),) = swept
    assert (code, out.splitlines()[-1]) == (0, "removed 1 leftover, 0 B; 1 kept")
    assert "its export can be resumed or cancelled" in out


def test_a_host_that_is_down_is_reported_and_the_others_are_done(
    pair: OldPair, command: Command, dead: str
) -> None:
    """And the exit code says that something is left to do."""
    fill(pair.replica(2).query, "halved")
    assert command.export("halved", pair.url(2))[0] == 0
    leave(pair.replica(2).query, dead)
    pair.kill(1)

    code, out, err = command.gc("halved", both(pair), "--yes")

    assert (code, staged(pair, 2)) == (4, [])
    assert "removed 1 leftover" in out
    assert "Cannot clean up staging tables at 1 of 2 hosts: Cannot reach" in err
    assert pair.url(1) in err
    assert "Next: mergeberg gc" in err


def test_a_table_that_the_server_keeps_is_reported_and_the_others_go(
    newest_server: ClickHouseFront, command: Command, dead: str
) -> None:
    """As versions do that know no drop beyond the server's limit."""
    fill(newest_server.command, "limited")
    assert command.export("limited", newest_server.url)[0] == 0
    second = f"{dead.removesuffix('_1')}_2"
    for name in (dead, second):
        leave(newest_server.command, name)
    too_large = error(359, "TABLE_SIZE_EXCEEDS_MAX_DROP_SIZE_LIMIT", "it is not dropped: too large")
    newest_server.fail_next(
        too_large, containing=f"DROP TABLE IF EXISTS `mergeberg_staging`.`{dead}`"
    )

    code, out, err = command.gc("limited", newest_server.url, "--yes")

    assert code == 4
    assert newest_server.rows(_STAGED.format("mergeberg_staging")) == ((dead,),)
    assert "removed 1 leftover, 0 B; 1 kept" in out
    for text in (out, err):
        assert "it is not dropped: too large" in text
    assert command.gc("limited", newest_server.url, "--yes")[0] == 0
    assert newest_server.rows(_STAGED.format("mergeberg_staging")) == ()


@pytest.mark.parametrize(
    ("options", "is_old", "goes", "why"),
    [
        ((), True, False, "may be running elsewhere: --older-than decides"),
        (("--older-than", "1d"), False, False, "of a run elsewhere, and younger"),
        (("--older-than", "1d"), True, True, "of a run elsewhere, older than --older-than"),
    ],
)
def test_a_leftover_of_another_host_goes_by_the_age_that_the_user_names(
    pair: OldPair,
    command: Command,
    options: tuple[str, ...],
    why: str,
    *,
    is_old: bool,
    goes: bool,
) -> None:
    """Nobody here can see whether its run is at work; somebody else's table never goes."""
    name = f"old{len(options)}{int(is_old)}"
    fill(pair.replica(1).query, name)
    assert command.export(name, pair.url(1))[0] == 0
    for one in (ELSEWHERE, "somebodys_1"):
        leave(pair.replica(1).query, one)
        if is_old:
            folder = pair.replica(1).directory / "data" / "metadata" / "mergeberg_staging"
            os.utime(folder / f"{one}.sql", (0, 0))

    code, out, _ = command.gc(name, pair.url(1), "--yes", *options)

    assert code == 0
    assert why in out
    assert "nothing shows that mergeberg made it" in out
    assert staged(pair, 1) == (["somebodys_1"] if goes else [ELSEWHERE, "somebodys_1"])


def test_staging_tables_over_the_servers_limit_are_dropped(command: Command) -> None:
    """Harm prevented: a partition of more than 50 GB pins the disk until somebody notices."""
    with clickhouse_front(
        config="<max_table_size_to_drop>1000</max_table_size_to_drop>"
        "<max_partition_size_to_drop>1000</max_partition_size_to_drop>"
    ) as front:
        fill(front.command, "large")
        front.command("INSERT INTO db.large SELECT 0, number, toString(number) FROM numbers(10000)")
        with pytest.raises(RuntimeError, match="359"):
            front.command("DROP TABLE db.large")

        code, _, err = command.export("large", front.url)

        assert code == 0, err
        assert "keeps the frozen parts" not in err
        assert front.rows(_STAGED.format("mergeberg_staging")) == ()


def test_the_warning_about_an_address_appears_once(
    newest_server: ClickHouseFront, command: Command, tmp_path: Path
) -> None:
    """A warning that is repeated is not read any more."""
    fill(newest_server.command, "warned")
    newest_server.commands("CREATE USER warned IDENTIFIED BY 'asked'", "GRANT ALL ON *.* TO warned")
    log = tmp_path / "log.json"
    address = newest_server.url.replace("://", "://warned:asked@")
    words = ("--all", "--to", "lake.n.warned", "--source", address)

    code, _, err = command("--log", f"json:{log}", "export", "db.warned", *words)

    assert code == 0, err
    assert err.count("has a password in it") == 1
    assert err.startswith(f"· The address of {newest_server.url} has a password in it")
    assert log.read_text().count("has a password in it") == 1
