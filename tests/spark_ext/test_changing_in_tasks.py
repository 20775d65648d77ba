"""Statements that rewrite files in Spark's tasks: the rows are the same, whatever happens.

So are the verdicts of comparisons that read them there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyspark.sql import Row, SparkSession

import spark_ext
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from catalog.storages.schemes import Storages
from spark_ext.actions import verify
from spark_ext.actions.verify import DigestsInTasks
from spark_ext.engine import jobs as files_in_tasks
from spark_ext.engine.jobs import in_tasks, running_tasks
from spark_ext.operations import rewrite as changing_in_tasks
from tableformat.committer import FileInMain
from tableformat.errors import RefusedError, SourceError, StoppedError, TableFormatError
from tableformat.iceberg.read_columns import FilesToDigest
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.types import parse_type
from tests.support.local_spark import SPARK_MARKS, local_spark
from tests.support.troubled_tasks import AsIs, DiesOnce, NeverEnds, Refuses

pytestmark = SPARK_MARKS

ALLOWED = "SETTINGS allow_experimental_export_merge_tree_part = 1"
SMALL = "export_merge_tree_part_max_bytes_per_file = 200"
PARTITIONS = 4
STATEMENTS = [
    "UPDATE n = n * 2, s = concat(s, toString(p)) WHERE id % 3 = 0 AND p != 1",
    "DELETE WHERE p = 0 OR id % 5 = 1",
    "UPDATE n = 7 IN PARTITION 2 WHERE id > 0",
    "CLEAR COLUMN s IN PARTITION 3",
]
Wraps = Callable[[Any], Any]
_NUMBERS = iter(range(1_000))
_SECONDS = 60


class Lake:
    """A session with tasks, a ClickHouse, and a lake whose tables have a file in each partition."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark = root, spark

    def filled(self, settings: str = ALLOWED) -> str:
        """Return the name of a new lake table with all rows."""
        name = f"t{next(_NUMBERS)}"
        self.sql(f"ALTER TABLE ch.db.t EXPORT PARTITION ALL TO TABLE lake.n.{name} {settings}")
        return name

    def sql(self, statement: str) -> list[Row]:
        return spark_ext.sql(self.spark, statement).collect()

    def table(self, name: str) -> Table:
        catalog = open_catalog("lake", warehouse=self.root / "warehouse").catalog
        table: Table = catalog.load_table(f"n.{name}")
        return table

    def rows(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table(name).scan().to_arrow().sort_by("id").to_pylist()
        return found

    def files(self, name: str) -> list[tuple[object, ...]]:
        """Return what manifests say of the files of a table, but their names."""
        columns = ("partition", "record_count", "sort_order_id", "value_counts", "lower_bounds")
        files = self.table(name).inspect.data_files().to_pylist()
        return sorted(tuple(str(one[key]) for key in columns) for one in files)

    def left(self) -> list[Path]:
        """Return what statements and their tasks have not removed."""
        return [*self.root.rglob("*.arrow"), *self.root.rglob("*.inprogress")]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Yield a lake; a task that fails is tried twice."""
    root = tmp_path_factory.mktemp("tasks")
    with EmbeddedConnection(root / "clickhouse", create=True) as connection:
        for sql in (
            "CREATE DATABASE db",
            (
                "CREATE TABLE db.t (p UInt8, id Int64, n Nullable(Int64), s String)"
                " ENGINE = MergeTree PARTITION BY p ORDER BY id"
                " SETTINGS max_bytes_to_merge_at_max_space_in_pool = 1,"
                " max_bytes_to_merge_at_min_space_in_pool = 1"
            ),
            *(
                "INSERT INTO db.t SELECT number % 4, number, if(number % 7 = 0, NULL, number),"
                f" toString(number) FROM numbers({begin}, 40)"
                for begin in (0, 40, 80)
            ),
        ):
            connection.command(sql)
    with local_spark(failures=2) as spark:
        spark.conf.set("spark.mergeberg.source.ch", f"chdb:{root}/clickhouse")
        spark.conf.set("spark.mergeberg.warehouse", str(root / "warehouse"))
        yield Lake(root, spark)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let two files be enough for tasks; return what tasks were asked for."""
    monkeypatch.setattr(files_in_tasks, "LEAST_FILES", 2)
    return seen(monkeypatch, lambda work: work)


def seen(monkeypatch: pytest.MonkeyPatch, wraps: Wraps, of: str = "") -> list[str]:
    """Let something be in the place of what tasks do, by its class; return the classes."""
    asked: list[str] = []

    def around(
        spark: SparkSession,
        what: str,
        items: Any,
        cost: Any,
        work: Any,
        look: Callable[[], None] = lambda: None,
    ) -> tuple[Any, ...]:
        asked.append(type(work).__name__)
        wrapped = wraps(work) if of in type(work).__name__ else work
        return in_tasks(spark, what, items, cost, wrapped, look)

    for module in (changing_in_tasks, files_in_tasks):
        monkeypatch.setattr(module, "in_tasks", around)
    return asked


@pytest.mark.parametrize(
    "statements", [STATEMENTS[:1], pytest.param(STATEMENTS[1:], marks=pytest.mark.soak)]
)
def test_tasks_leave_what_this_process_leaves(
    lake: Lake, asked: list[str], monkeypatch: pytest.MonkeyPatch, statements: list[str]
) -> None:
    one, other = lake.filled(), lake.filled()

    for statement in statements:
        rows = [tuple(row)[:5] for row in lake.sql(f"ALTER TABLE lake.n.{one} {statement}")]
        with monkeypatch.context() as patch:
            patch.setattr(files_in_tasks, "LEAST_FILES", 1_000)
            in_tasks_already = len(asked)
            here = lake.sql(f"ALTER TABLE lake.n.{other} {statement}")
        assert len(asked) == in_tasks_already, "it was to be done here"
        assert rows == [tuple(row)[:5] for row in here]
        assert lake.rows(one) == lake.rows(other)
        assert lake.files(one) == lake.files(other)

    # Those of one partition are of one file.
    assert asked == ["FileLooker", "_Writing"]
    assert lake.left() == []


@pytest.mark.soak
def test_groups_of_files_are_merged_in_tasks(
    lake: Lake, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = lake.filled(f"{ALLOWED}, {SMALL}"), lake.filled(f"{ALLOWED}, {SMALL}")
    rows = lake.rows(one)
    assert len(lake.files(one)) > 2 * PARTITIONS

    results = lake.sql(f"OPTIMIZE TABLE lake.n.{one}")

    assert asked == ["HostMerger"]
    monkeypatch.setattr(files_in_tasks, "LEAST_FILES", 1_000)
    here = lake.sql(f"OPTIMIZE TABLE lake.n.{other}")
    assert [tuple(row)[:5] for row in results] == [tuple(row)[:5] for row in here]
    assert lake.files(one) == lake.files(other)
    assert len(lake.files(one)) == PARTITIONS
    assert lake.rows(one) == lake.rows(other) == rows


@pytest.mark.soak
def test_a_refused_value_has_the_same_message(
    lake: Lake, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a page of Java in the place of one clear line."""
    name = lake.filled()
    before = lake.table(name).metadata_location
    statement = f"ALTER TABLE lake.n.{name} UPDATE s = unhex('ff') WHERE id > 50"

    with pytest.raises(RefusedError) as of_tasks:
        lake.sql(statement)
    assert asked == ["FileLooker"]
    monkeypatch.setattr(files_in_tasks, "LEAST_FILES", 1_000)
    with pytest.raises(RefusedError) as here:
        lake.sql(statement)

    assert of_tasks.value.message == here.value.message
    assert "\n" not in here.value.message
    assert lake.table(name).metadata_location == before


@pytest.mark.soak
def test_tasks_that_die_when_they_are_done_leave_each_row_once(
    lake: Lake, asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Harm prevented: rows twice, because what a dead task wrote counts as well."""
    assert asked == []
    asked = seen(monkeypatch, lambda work: DiesOnce(work, tmp_path))
    one, other = lake.filled(), lake.filled()
    statement = "UPDATE n = id WHERE 1"

    lake.sql(f"ALTER TABLE lake.n.{one} {statement}")

    assert asked == ["FileLooker", "_Writing"]
    assert list(tmp_path.iterdir()) != []
    monkeypatch.setattr(files_in_tasks, "LEAST_FILES", 1_000)
    lake.sql(f"ALTER TABLE lake.n.{other} {statement}")
    assert lake.rows(one) == lake.rows(other)
    written = list((lake.root / "warehouse").rglob(f"{one}/**/*.parquet"))
    assert len(written) > 2 * PARTITIONS, "what the dead wrote is there, and nobody reads it"


@pytest.mark.soak
@pytest.mark.parametrize("of", ["FileLooker", "_Writing"])
def test_a_cancelled_statement_says_so_and_has_changed_nothing(
    lake: Lake, asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, of: str
) -> None:
    begun, name = tmp_path / "begun", lake.filled()
    before = lake.rows(name)
    assert asked == []
    seen(monkeypatch, lambda work: NeverEnds(work, begun), of)

    ended = in_thread(lambda: lake.sql(f"ALTER TABLE lake.n.{name} UPDATE n = 1 WHERE id > 3"))
    wait_for(begun)
    lake.spark.sparkContext.cancelAllJobs()
    error = ended()

    assert isinstance(error, StoppedError | RefusedError)
    assert "its Spark job was cancelled" in error.message
    assert "org.apache" not in error.message
    assert lake.rows(name) == before


def test_a_drop_stops_what_runs_in_tasks(
    lake: Lake, asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Harm prevented: a DROP that waits for an hour's UPDATE of the same partition."""
    begun, name = tmp_path / "begun", lake.filled()
    assert asked == []
    seen(monkeypatch, lambda work: NeverEnds(work, begun), "_Writing")

    ended = in_thread(lambda: lake.sql(f"ALTER TABLE lake.n.{name} UPDATE n = 1 WHERE id > 3"))
    wait_for(begun)
    lake.sql(f"ALTER TABLE lake.n.{name} DROP PARTITION 2")
    error = ended()

    assert isinstance(error, StoppedError)
    assert "it was stopped by DROP PARTITION ID '2'" in error.message
    rows = lake.rows(name)
    assert {row["p"] for row in rows} == {0, 1, 3}
    assert all(row["n"] in (None, row["id"]) for row in rows), "nothing of it is visible"
    assert lake.spark.range(5).count() == 5


def compared(monkeypatch: pytest.MonkeyPatch, wraps: Wraps = lambda work: work) -> list[int]:
    """Let two files be enough for tasks that compare; return how many files each job was given."""
    jobs: list[int] = []

    def around(
        spark: SparkSession, what: str, files: Any, cost: Any, work: Any, then: str
    ) -> Generator[None, None, tuple[Any, ...]]:
        jobs.append(len(files))
        return running_tasks(spark, what, files, cost, wraps(work), then)

    monkeypatch.setattr(files_in_tasks, "LEAST_FILES", 2)
    monkeypatch.setattr(verify, "running_tasks", around)
    return jobs


def test_a_table_is_compared_in_tasks_as_by_this_process(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, jobs = lake.filled(), compared(monkeypatch)

    def verdicts() -> list[tuple[object, ...]]:
        compare = spark_ext.verify(lake.spark, f"lake.n.{name}", "ch.db.t", all_partitions=True)
        return [(c.partition_id, c.status, c.compared_with, c.rows, c.columns) for c in compare]

    found = verdicts()
    monkeypatch.setattr(files_in_tasks, "LEAST_FILES", 1_000)

    assert found == [(str(p), "equal", "source", 30, 4) for p in range(PARTITIONS)]
    assert verdicts() == found
    assert jobs == [PARTITIONS]


def test_who_interrupts_a_comparison_cancels_its_tasks(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Harm prevented: executors that read a table for hours for nobody."""
    jobs = compared(monkeypatch, lambda work: NeverEnds(work, tmp_path / "begun"))
    table = lake.table(lake.filled())
    files = tuple(
        FileInMain(task.file.file_path, task.file.record_count, deletes=False)
        for task in table.scan().plan_files()
    )
    columns = (DigestColumn("id", "", parse_type("Int64"), "Int64"),)

    def interrupt(_rows: int) -> None:
        raise KeyboardInterrupt

    with (
        DigestsInTasks(Storages(), lambda _: lake.spark, interrupt) as digests,
        pytest.raises(KeyboardInterrupt),
    ):
        digests.digest(FilesToDigest(files, table.schema(), columns))

    tracker, deadline = lake.spark.sparkContext.statusTracker(), time.monotonic() + _SECONDS
    while tracker.getActiveJobsIds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
    assert jobs == [PARTITIONS]
    assert lake.spark.range(5).count() == 5


def test_the_error_of_the_first_item_is_raised(lake: Lake) -> None:
    with pytest.raises(RefusedError, match="Cannot do 5: it is refused") as refused:
        in_tasks(lake.spark, "Cannot", range(40), int, Refuses(frozenset({39, 5, 17})))

    assert refused.value.code == 36


def test_the_results_keep_the_order_of_the_items(lake: Lake, tmp_path: Path) -> None:
    items = range(100, 140)

    made = in_tasks(lake.spark, "Cannot", items, int, DiesOnce(AsIs(), tmp_path))

    assert made == tuple(items)


@pytest.mark.soak
def test_executors_with_other_versions_are_refused(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: files of which each is written by another release."""
    here = (("python", "2.7"), ("chdb-core", "1"), ("pyarrow", "1"))
    monkeypatch.setattr("spark_ext.engine.jobs.installed_versions", lambda: here)

    with pytest.raises(SourceError, match=r"it has python 3.*driver has 2\.7"):
        in_tasks(lake.spark, "Cannot do it", range(3), int, AsIs())


def in_thread(act: Callable[[], object]) -> Callable[[], TableFormatError | None]:
    """Begin something in a thread; return what waits for its end, and returns its error."""
    errors: list[TableFormatError] = []

    def run() -> None:
        try:
            act()
        except TableFormatError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def ended() -> TableFormatError | None:
        thread.join(_SECONDS)
        assert not thread.is_alive()
        return next(iter(errors), None)

    return ended


def wait_for(begun: Path) -> None:
    """Return when a task has reported that it waits."""
    deadline = time.monotonic() + _SECONDS
    while not begun.exists():
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
