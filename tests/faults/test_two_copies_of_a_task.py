"""Spark runs a second copy of a slow task, and both write: one file of them is in the lake.

On a real cluster of two hosts with `spark.speculation`: the first copy stands still in the middle
of its file (`tests/support/standing_worker.py`), and Spark itself begins another one on the other
host.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.ledgers.uris import open_ledger
from spark_ext.set_up import enable, settings
from tableformat.ledger import State
from tableformat.receipt import Receipt
from tests.properties.duckdb_reader import DuckDBReader
from tests.services.server_process import wait_until
from tests.services.spark_cluster import CLUSTER_CONF, HOSTS, Cluster, ask, executors
from tests.support.iceberg_spark import catalog_settings, iceberg_spark
from tests.support.interfaces import Interfaces
from tests.support.local_spark import SPARK_MARKS
from tests.support.processes import parent, processes, stands_still
from tests.support.standing_worker import DAEMON_CONF, let_stand

pytestmark = [*SPARK_MARKS, pytest.mark.timeout(300), pytest.mark.nightly]

ROWS = 150_000
SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Scene:
    """A session on the cluster, and the directory that tells copies to stop."""

    cluster: Cluster
    spark: SparkSession
    stand: Path
    threads: ThreadPoolExecutor
    duckdb: DuckDBReader

    def sql(self, statement: str) -> list[Row]:
        return self.spark.sql(statement).collect()

    def begin(self, table: str) -> Future[list[Row]]:
        """Begin an export, of some files, in another thread."""
        return self.threads.submit(
            self.sql,
            f"""CALL lake.system.export_partition(table => 'n.{table}', source => 'ch.db.t',
                partition_id => 'all', max_bytes_per_file => 1000000)""",
        )

    def standing(self, attempt: int, exporting: Future[list[Row]]) -> int:
        """Return the process of a copy once it stands still."""

        def stands() -> bool:
            assert not exporting.done(), exporting.result()
            return any(stands_still(one) for one in self._stood(attempt))

        wait_until(stands, f"copy {attempt} stood still", seconds=SECONDS)
        (process,) = self._stood(attempt)
        return process

    def _stood(self, attempt: int) -> list[int]:
        return [int(p.suffix.removeprefix(".")) for p in self.stand.glob(f"{attempt}.*")]

    def copies(self) -> list[tuple[int, bool, str]]:
        """Return the copies of the task that the last stage copied, as Spark's pages have them.

        Each is its number, whether it is speculative, and how it stands.
        """
        (stage, *_) = ask(f"{self.cluster.application}/stages")
        place = f"{self.cluster.application}/stages/{stage['stageId']}/0/taskList?length=1000"
        tasks = ask(place)
        copied = {task["index"] for task in tasks if task["speculative"]}
        return sorted(
            (t["attempt"], t["speculative"], t["status"]) for t in tasks if t["index"] in copied
        )

    def wait_for_copies(self, first: str, second: str) -> None:
        """Return when the two copies stand so; Spark's pages are a moment late."""
        so = [(0, False, first), (1, True, second)]
        wait_until(lambda: self.copies() == so, f"the copies were {so}")

    def receipts(self, table: str) -> list[Receipt]:
        """Return the receipts of an export, also of files that are not in the lake."""
        below = self.cluster.interfaces.root / "lake" / "n" / table / "metadata" / "mergeberg"
        stored = (path for path in below.glob("*/*/[0-9]*.json") if path.is_file())
        return [Receipt.from_json(path.read_text()) for path in stored]

    def of_copies(self, table: str) -> dict[int, Receipt]:
        """Return the receipts of both copies of a task by their numbers, once there are two."""
        receipts = self.receipts(table)
        of = Counter(r.slice_number for r in receipts)
        return {int(r.attempt[0]): r for r in receipts if of[r.slice_number] > 1}

    def check_exactly_once(self, table: str) -> set[str]:
        """Check that every row is there once, for two readers; return the data files."""
        numbers = range(ROWS)
        loaded = self.cluster.interfaces.table(f"n.{table}")
        found = self.duckdb.read(loaded, ["id"])["id"]
        assert self.cluster.interfaces.numbers(f"n.{table}", "id") == list(numbers)
        assert sorted(found.to_pylist()) == list(numbers)
        files = self.cluster.interfaces.data_files(f"n.{table}")
        in_lake = [r for r in self.receipts(table) if _path(r) in files]
        numbers_of_slices = {r.slice_number for r in self.receipts(table)}
        assert sorted(r.slice_number for r in in_lake) == sorted(numbers_of_slices)
        assert len(numbers_of_slices) == len(files) > 1
        self._check_ledger(table, files, sum(r.file_bytes for r in in_lake))
        return files

    def _check_ledger(self, table: str, files: set[str], size: int) -> None:
        uri = f"sqlite:{self.cluster.interfaces.root}/ledger.db"
        with contextlib.closing(open_ledger(uri, local_warehouse=None)) as ledger:
            (row,) = (r for r in ledger.rows() if r.destination_table == f"lake.n.{table}")
        assert (row.state, len(row.landed)) == (State.COMPLETED, 1)
        assert row.done is not None
        landed = row.done.landed
        assert (landed.rows, landed.data_files, row.done.bytes) == (ROWS, len(files), size)
        main = self.cluster.interfaces.table(f"n.{table}").current_snapshot()
        assert main is not None
        assert main.snapshot_id == landed.snapshot_id

    def left(self, table: str, *, dry_run: bool) -> list[tuple[str, str, str]]:
        """Return what gc tells of a table: what it does, and with what."""
        found = self.sql(
            f"CALL lake.system.gc(table => 'n.{table}', dry_run => {str(dry_run).lower()})"
        )
        return sorted((r.action, r.kind, r.location.removeprefix("file://")) for r in found)


def _path(receipt: Receipt) -> str:
    return receipt.file_path.removeprefix("file://")


@contextlib.contextmanager
def session(
    root: Path, conf: Mapping[str, str], cluster: Cluster, threads: ThreadPoolExecutor
) -> Iterator[SparkSession]:
    """Start a session, and a worker on each host while it starts."""
    starting = [threads.submit(cluster.worker, f"of-{host}", host) for host in HOSTS]
    with iceberg_spark(root, conf) as spark:
        enable(spark)
        for one in starting:
            one.result()
        yield spark


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Run a master, two workers and a session; one core on each host."""
    root = tmp_path_factory.mktemp("copies")
    (root / "stand").mkdir()
    with EmbeddedConnection(root / "clickhouse", create=True) as connection:
        for statement in (
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt32, s String) ENGINE = MergeTree ORDER BY id",
            f"INSERT INTO db.t SELECT number, hex(cityHash64(number)) FROM numbers({ROWS})",
        ):
            connection.command(statement)
    cluster = Cluster(Interfaces(root))
    lake = catalog_settings(
        "lake",
        type="jdbc",
        uri=f"jdbc:sqlite:{root}/lake.db",
        jdbc__schema_version="V1",
        warehouse=f"file://{root}/lake",
    )
    try:
        cluster.start_master()
        conf = {
            **CLUSTER_CONF,
            **DAEMON_CONF,
            **settings(),
            **lake,
            "spark.master": cluster.master,
            "spark.ui.port": f"{cluster.ui_port}",
            "spark.executorEnv.STAND_STILL": f"{root}/stand",
            "spark.mergeberg.source.ch": f"chdb:{root}/clickhouse",
            "spark.mergeberg.ledger": f"sqlite:{root}/ledger.db",
        }
        with (
            ThreadPoolExecutor(len(HOSTS)) as threads,
            session(root, conf, cluster, threads) as spark,
            contextlib.closing(DuckDBReader()) as duckdb,
        ):
            yield Scene(cluster, spark, root / "stand", threads, duckdb)
    finally:
        cluster.end()


@pytest.fixture(autouse=True)
def _nothing_stands_still(scene: Scene) -> Iterator[None]:
    """Continue the processes that a test left stopped; the next one gives other orders."""
    yield
    for host in HOSTS:
        for process in executors(host, scene.cluster.interfaces.root):
            os.kill(process, signal.SIGCONT)
    for marker in scene.stand.iterdir():
        worker = marker.suffix.removeprefix(".")
        if worker and stands_still(int(worker)):
            os.kill(int(worker), signal.SIGCONT)
        marker.unlink()


@pytest.mark.soak
def test_spark_ends_the_copy_that_stands_still_once_the_other_has_finished(scene: Scene) -> None:
    """What it had begun is no file, and gc tells of it."""
    let_stand(scene.stand, 0)
    exporting = scene.begin("ended")
    first = scene.standing(0, exporting)

    (row,) = exporting.result(timeout=SECONDS)
    wait_until(lambda: first not in processes(), "the first copy was ended", seconds=SECONDS)

    assert row.status == "committed"
    scene.wait_for_copies("KILLED", "SUCCESS")
    files = scene.check_exactly_once("ended")
    (begun,) = scene.left("ended", dry_run=True)
    assert begun[:2] == ("remove", "begun file")
    assert scene.left("ended", dry_run=False) == [("removed", *begun[1:])]
    assert scene.check_exactly_once("ended") == files


def test_of_two_copies_that_finish_before_the_commit_one_is_in_the_lake(
    scene: Scene,
) -> None:
    """Also when it is the one that finished last: of the other host nothing was heard."""
    let_stand(scene.stand, 0)
    exporting = scene.begin("both")
    first = scene.standing(0, exporting)
    let_stand(scene.stand, 1)
    host = _executor_of(first)
    second = scene.standing(1, exporting)

    others = len(scene.receipts("both"))
    os.kill(host, signal.SIGSTOP)
    os.kill(first, signal.SIGCONT)
    # Spark copies a task when there is none left to begin: all others have their files.
    wait_until(lambda: len(scene.receipts("both")) > others, "the first copy had its file")
    os.kill(second, signal.SIGCONT)
    (row,) = exporting.result(timeout=SECONDS)

    assert row.status == "committed"
    scene.wait_for_copies("RUNNING", "SUCCESS")
    _check_loser(scene, "both")


@pytest.mark.soak
def test_a_copy_that_goes_on_after_the_commit_changes_nothing(scene: Scene) -> None:
    """A host that stood still all the time finishes a file that nobody waits for any more."""
    let_stand(scene.stand, 0)
    exporting = scene.begin("late")
    first = scene.standing(0, exporting)
    os.kill(_executor_of(first), signal.SIGSTOP)

    (row,) = exporting.result(timeout=SECONDS)
    scene.wait_for_copies("RUNNING", "SUCCESS")
    before = scene.check_exactly_once("late")
    os.kill(first, signal.SIGCONT)
    wait_until(lambda: scene.of_copies("late") != {}, "the first copy had its file")

    assert row.status == "committed"
    assert scene.check_exactly_once("late") == before
    (again,) = scene.begin("late").result(timeout=SECONDS)
    assert again.status == "already_exported"
    _check_loser(scene, "late")


def _executor_of(worker: int) -> int:
    """Return the Java that a Python worker works for, by way of its daemon."""
    return parent(parent(worker))


def _check_loser(scene: Scene, table: str) -> None:
    """Check that the second copy's file is in the lake, and the first one's is for gc to remove."""
    files = scene.check_exactly_once(table)
    copies = {number: _path(receipt) for number, receipt in scene.of_copies(table).items()}
    assert copies[1] in files
    assert copies[0] not in files
    assert Path(copies[0]).exists()
    removed = scene.left(table, dry_run=True)
    assert [one[:2] for one in removed] == [("remove", "data file"), ("remove", "receipt")]
    assert removed[0][2] == copies[0]
    scene.left(table, dry_run=False)
    assert not Path(copies[0]).exists()
    assert scene.left(table, dry_run=True) == []
    assert scene.check_exactly_once(table) == files
