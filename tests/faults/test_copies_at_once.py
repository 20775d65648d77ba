"""Real processes, each on a ClickHouse directory of its own: copies, replicas and shards at once.

Copies of a directory are one table, by its UUID, and replicas are one by their path in Keeper: of
several that export at once one wins each partition. Shards have paths of their own, and their rows
meet in one lake partition. No Keeper runs: a table that was attached AS REPLICATED keeps its path
and can be read, and an export does nothing else with it.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from tableformat.file_names import exported_by
from tableformat.ledger import State
from tests.faults.test_processes_at_once import exporting, outcomes

ROWS: Final = 200_000
PARTITIONS: Final = 5
PROCESSES: Final = 3
KILLS: Final = 2
"""Of each process."""
DONE: Final = {"committed", "already_exported", "in_progress"}
_TABLE: Final = (
    "CREATE TABLE db.t (p UInt8, id UInt32, a String) ENGINE = MergeTree PARTITION BY p ORDER BY id"
)


def fill(directory: Path, *, first: int = 0, keeper: str = "") -> Path:
    """Make a ClickHouse with a table of five partitions; return its directory.

    Args:
        directory: the new directory.
        first: the lowest number; the others are this plus even numbers.
        keeper: the table's path in Keeper, where it is to be a replicated one.
    """
    config = directory.with_suffix(".xml")
    path, name = f"<default_replica_path>{keeper}</default_replica_path>", directory.name
    replica = f"<default_replica_name>{name}</default_replica_name>"
    config.write_text(f"<clickhouse>{path}{replica}</clickhouse>" if keeper else "<clickhouse/>")
    insert = f"INSERT INTO db.t SELECT number % {PARTITIONS}, {first} + 2 * number,"
    with EmbeddedConnection(directory, create=True, config_file=config) as connection:
        connection.command("CREATE DATABASE db")
        connection.command(_TABLE)
        connection.command(f"{insert} hex(cityHash64(number)) FROM numbers({ROWS})")
        if keeper:
            connection.command("DETACH TABLE db.t")
            connection.command("ATTACH TABLE db.t AS REPLICATED")
    return directory


def copies(directory: Path) -> list[Path]:
    """Return directories that are copies of one another."""
    made = [fill(directory / "copy0")]
    for number in range(1, PROCESSES):
        made.append(Path(shutil.copytree(made[0], directory / f"copy{number}", symlinks=True)))
    return made


def replicas(directory: Path) -> list[Path]:
    """Return directories that were filled one by one, with one path in Keeper."""
    return [fill(directory / f"replica{number}", keeper="/tables/t") for number in range(2)]


def shards(directory: Path) -> list[Path]:
    """Return directories with other rows in the same partitions, each with a path of its own."""
    return [
        fill(directory / f"shard{number}", first=number, keeper=f"/tables/{number}/t")
        for number in range(2)
    ]


def export_at_once(directory: Path, sources: list[Path], *words: str) -> list[list[dict[str, Any]]]:
    """Run one command for each directory, all at once; return what each says."""
    with contextlib.ExitStack() as stack:
        commands = [
            stack.enter_context(
                exporting(directory, "--json", "--source", f"chdb:{source}", *words)
            )
            for source in sources
        ]
        return [outcomes(command) for command in commands]


def assert_exported_once(
    directory: Path, sources: list[Path], *, keys: int, rows: set[int]
) -> None:
    """Check what readers see, the ledger, and that no source has anything frozen."""
    lake = open_catalog("lake", warehouse=directory / "warehouse").catalog
    table = lake.load_table("n.t")
    found = Counter(table.scan().to_arrow()["id"].to_pylist())
    assert {*found} == rows
    assert [number for number, times in found.items() if times > 1] == []
    main = [task.file.file_path for task in table.scan().plan_files()]
    with contextlib.closing(SqliteLedger(directory / "warehouse" / LEDGER_FILE)) as ledger:
        exported = list(ledger.rows())
        # By its name alone each file is known as one of an export that landed.
        landed = {(r.key.hash, r.claim.transaction_id) for r in exported}
        assert {exported_by(path) for path in main} == landed
        assert [(r.state, len(r.landed)) for r in exported] == [(State.COMPLETED, 1)] * keys
        assert [ledger.holder(r.key.hash) for r in exported] == [None] * keys
    for source in sources:
        with EmbeddedConnection(source) as connection:
            sql = "SELECT name FROM system.tables WHERE database = 'mergeberg_staging'"
            assert connection.rows(sql) == ()


@pytest.mark.parametrize("made", [copies, replicas])
def test_copies_and_replicas_that_export_at_once_are_one_table(
    tmp_path: Path, made: Callable[[Path], list[Path]]
) -> None:
    """Harm prevented: every replica's schedule adds the same rows to the lake."""
    sources = made(tmp_path)

    exported = [o for process in export_at_once(tmp_path, sources) for o in process]

    found = Counter((str(o["partition_id"]), str(o["status"])) for o in exported)
    assert {status for _, status in found} <= DONE
    assert [found[str(p), "committed"] for p in range(PARTITIONS)] == [1] * PARTITIONS
    numbers = {2 * number for number in range(ROWS)}
    assert_exported_once(tmp_path, sources, keys=PARTITIONS, rows=numbers)


def test_shards_that_export_at_once_meet_in_the_same_lake_partitions(tmp_path: Path) -> None:
    """Harm prevented: a shard's rows are taken for another's, and left out or replaced."""
    sources = shards(tmp_path)

    # By commands of their own they are tables of one name: the one that is later has to say so.
    exported = export_at_once(tmp_path, sources, "--overwrite-file-if-exists")

    assert [Counter(o["status"] for o in process) for process in exported] == [
        Counter(committed=PARTITIONS)
    ] * len(sources)
    numbers = {first + 2 * n for first in range(len(sources)) for n in range(ROWS)}
    assert_exported_once(tmp_path, sources, keys=PARTITIONS * len(sources), rows=numbers)


def test_copies_that_die_at_any_moment_while_others_export(tmp_path: Path) -> None:
    """Harm prevented: what one copy left half done is done again, or never, by another."""
    sources, killed = copies(tmp_path), list[bool]()
    together = threading.Barrier(len(sources))

    def die_often(number: int) -> None:
        chance = random.Random(number)  # noqa: S311  moments, not secrets
        for _ in range(KILLS):
            together.wait()
            with exporting(tmp_path, "--source", f"chdb:{sources[number]}") as process:
                assert process.stderr is not None
                # Before the first note it only starts.
                process.stderr.readline()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=chance.uniform(0, 0.5))
                killed.append(process.poll() is None)

    with ThreadPoolExecutor(len(sources)) as pool:
        assert [*pool.map(die_often, range(len(sources)))] == [None] * len(sources)
    last = [o for source in sources for o in export_at_once(tmp_path, [source])[0]]

    assert any(killed)
    assert {str(o["status"]) for o in last} <= DONE - {"in_progress"}
    numbers = {2 * number for number in range(ROWS)}
    assert_exported_once(tmp_path, sources, keys=PARTITIONS, rows=numbers)
