"""`mergeberg maintain` with the real Spark and Iceberg: what it does, and what stays in force."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

import spark_ext
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from catalog.iceberg.table import IcebergTable
from catalog.ledgers.sqlite import SqliteLedger
from spark_ext.cli.main import invoke
from spark_ext.operations.maintenance import Maintenance, Procedures, Task
from tableformat.committer import LakeTableState
from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tableformat.file_names import RECEIPTS
from tableformat.ledger import Row, State
from tableformat.names import LakeName
from tableformat.quantities import human_bytes
from tests.services.server_process import wait_until
from tests.support.errors_page import refusal_in, rows
from tests.support.frozen_parts import ROOT
from tests.support.local_spark import SPARK_MARKS
from tests.support.session_lake import ALLOWED
from tests.support.spark_application import SparkApplication, session_below
from tests.support.terminal import at_terminal
from tests.wrong.maintenance import WRONG, Maintained

pytestmark = SPARK_MARKS

SMALL: Final = f"{ALLOWED}, export_merge_tree_part_max_bytes_per_file = 100"
WEEK_AGO: Final = time.time() - 8 * 86_400
NOW: Final = ("--older-than", "0s", "--yes")
_NUMBERS = itertools.count()


@dataclass
class Lake:
    """A lake table with three partitions of ten rows, each in several files."""

    root: Path
    spark: SparkSession
    name: str

    @property
    def table(self) -> str:
        return f"lake.n.{self.name}"

    @property
    def opened(self) -> IcebergTable:
        found = open_catalog("lake", warehouse=self.root).table(LakeName.parse(self.table))
        assert isinstance(found, IcebergTable)
        return found

    @property
    def state(self) -> LakeTableState:
        return self.opened.load()

    @property
    def place(self) -> Path:
        return Path(self.state.location.removeprefix("file:").replace("//", "/"))

    def files(self, pattern: str = "*") -> set[Path]:
        return {path for path in self.place.rglob(pattern) if path.is_file()}

    def clickhouse(self, *statements: str) -> None:
        with EmbeddedConnection(self.root / "clickhouse") as connection:
            for sql in statements:
                connection.command(sql)

    def run_sql(self, statement: str) -> str:
        (found,) = spark_ext.sql(self.spark, statement).collect()
        return str(found.status)

    def export(self) -> set[str]:
        """Export every partition; return what became of them."""
        statement = (
            f"ALTER TABLE ch.db.{self.name} EXPORT PARTITION ALL TO TABLE {self.table} {SMALL},"
            " export_merge_tree_partition_manifest_ttl = 1"
        )
        return {str(one.status) for one in spark_ext.sql(self.spark, statement).collect()}

    def verdicts(self) -> set[str]:
        source = f"ch.db.{self.name}"
        found = spark_ext.verify(self.spark, self.table, source, all_partitions=True)
        return {one.status for one in found}

    def rows(self) -> int:
        self.spark.sql(f"REFRESH TABLE {self.table}")
        return self.spark.table(self.table).count()

    def rewrite(self) -> None:
        self.spark.sql(
            f"CALL lake.system.rewrite_data_files(table => 'n.{self.name}',"
            " options => map('rewrite-all', 'true'))"
        ).collect()

    def maintain(self, *words: str) -> tuple[int, str, str]:
        """Run the command; return the exit code and both outputs."""
        out, err = io.StringIO(), io.StringIO()
        places = ("--warehouse", str(self.root), "--ledger", f"sqlite:{self.root}/ledger.db")
        code = invoke(["maintain", self.table, *places, *words], out, err)
        return code, out.getvalue(), err.getvalue()

    def maintained(self, *words: str) -> dict[str, dict[str, Any]]:
        """Run the command for programs; return its records by task."""
        code, out, err = self.maintain(*words, "--json")
        assert code == 0, out + err
        return {one["task"]: one for one in map(json.loads, out.splitlines())}

    def rows_of_ledger(self) -> list[Row]:
        ledger = SqliteLedger(self.root / "ledger.db")
        try:
            return [row for row in ledger.rows() if row.destination_table == self.table]
        finally:
            ledger.close()

    def write(self, row: Row) -> None:
        ledger = SqliteLedger(self.root / "ledger.db")
        assert isinstance(ledger.write(row), Row)
        ledger.close()

    def old(self, path: str) -> Path:
        """Write a file that is a week old, below the table's location."""
        file = self.place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"PAR1")
        os.utime(file, (WEEK_AGO, WEEK_AGO))
        return file

    def check_rebuilt(self) -> None:
        """Check that a new ledger can be made of what is left, and knows the exports."""
        rebuilt = f"sqlite:{self.root}/{self.name}.db"
        out, err = io.StringIO(), io.StringIO()
        words = ("--to", self.table, "--warehouse", str(self.root), "--ledger", rebuilt)
        assert invoke(["exports", "rebuild", *words], out, err) == 0, err.getvalue()
        before = self.spark.conf.get("spark.mergeberg.ledger")
        assert before is not None
        self.spark.conf.set("spark.mergeberg.ledger", rebuilt)
        try:
            assert self.export() <= {"unchanged", "already_exported"}
        finally:
            self.spark.conf.set("spark.mergeberg.ledger", before)

    def age_all(self) -> None:
        for file in self.files():
            os.utime(file, (WEEK_AGO, WEEK_AGO))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("maintained")
    with EmbeddedConnection(root / "clickhouse", create=True) as connection:
        connection.command("CREATE DATABASE db")
    return root


@pytest.fixture(scope="module")
def spark(spark_application: SparkApplication, root: Path) -> Iterator[SparkSession]:
    with session_below(spark_application, root, root.as_uri()) as session:
        yield session


@pytest.fixture
def lake(root: Path, spark: SparkSession) -> Lake:
    lake = Lake(root, spark, f"t{next(_NUMBERS)}")
    lake.clickhouse(
        f"CREATE TABLE db.{lake.name} (p UInt8, id Int64, s String)"
        " ENGINE = MergeTree PARTITION BY p ORDER BY id",
        f"INSERT INTO db.{lake.name} SELECT number % 3, number, toString(number) FROM numbers(15)",
        f"INSERT INTO db.{lake.name} SELECT number % 3, 15 + number, '' FROM numbers(15)",
    )
    assert lake.export() == {"committed"}
    return lake


@pytest.mark.representative
def test_each_task_does_what_it_forecast_and_exports_stay_in_force(lake: Lake) -> None:
    """Harm prevented: maintenance of the table ends what is known of its exports."""
    lake.age_all()
    orphan = lake.old("data/p=0/part-0.parquet")
    receipts = lake.files(f"{RECEIPTS}/**/*")
    assert receipts
    before, rows = lake.files(), lake.rows_of_ledger()

    forecast = lake.maintained(*NOW, "--dry-run")
    assert (lake.files(), lake.rows_of_ledger()) == (before, rows)
    code, out, err = lake.maintain("--older-than", "0s")

    # Without a terminal and without --yes, what deletes only counts.
    lines, compact = out.splitlines(), forecast["compact"]
    assert code == 0
    assert [line.split()[0] for line in lines] == [*(task.value for task in Task), "rows"]
    became = f"compact    3 partitions: {compact['files']} files, {human_bytes(compact['bytes'])}"
    assert lines[0].startswith(f"{became}, became 3, ")
    assert "would expire, with" in lines[2]
    assert lines[3] == "orphans    1 file, 4 B, would be removed"
    assert lines[4] == "rows       30 rows in 3 lake partitions, as before"
    assert max(len(line) for line in (*lines, *err.splitlines()[:-1])) <= 80
    (following,) = [line for line in err.splitlines() if line.startswith("Next: ")]
    assert following.startswith(f"Next: mergeberg maintain {lake.table} ")
    assert following.endswith(" --older-than 0s --yes")
    assert orphan.exists()

    counted = lake.maintained(*NOW, "--dry-run")["snapshots"]
    done = lake.maintained(*NOW)
    same = ("count", "files", "bytes")
    assert [done["snapshots"][n] for n in same] == [counted[n] for n in same]
    assert [done["orphans"][n] for n in same] == [forecast["orphans"][n] for n in same] == [1, 1, 4]
    assert not orphan.exists()
    assert receipts <= lake.files()
    assert len(lake.files("*.parquet")) == 3
    assert set(lake.state.snapshots) == {lake.state.main}
    assert len(lake.opened.manifest_sizes(lake.state)) == 1
    assert lake.export() <= {"unchanged", "already_exported"}
    assert lake.verdicts() == {"equal"}
    assert lake.rows() == 30
    lake.check_rebuilt()


def test_what_is_expired_is_what_iceberg_would_expire(lake: Lake) -> None:
    """The counts of files are those that Iceberg's own procedure reports for the same age."""
    lake.run_sql(f"OPTIMIZE TABLE {lake.table} PARTITION ID '0'")
    forecast = lake.maintained("--older-than", "0s", "--dry-run", "--only", "snapshots")

    (deleted,) = lake.spark.sql(
        f"CALL lake.system.expire_snapshots(table => 'n.{lake.name}',"
        " older_than => current_timestamp(), retain_last => 1)"
    ).collect()

    assert forecast["snapshots"]["files"] == sum(deleted)
    assert lake.maintained(*NOW, "--only", "snapshots")["snapshots"]["status"] == "nothing"


def test_the_owner_of_a_table_says_how_long_its_snapshots_stay(lake: Lake) -> None:
    """Harm prevented: a schedule without options expires what the owner wants to keep."""
    lake.run_sql(f"OPTIMIZE TABLE {lake.table} PARTITION ID '0'")
    lake.run_sql(f"OPTIMIZE TABLE {lake.table} PARTITION ID '1'")
    every = len(lake.state.snapshots)

    def expiring(*words: str) -> int:
        found = lake.maintained("--only", "snapshots", "--dry-run", *words)
        return int(found["snapshots"]["count"])

    def owner_sets(key: str, value: str) -> None:
        lake.spark.sql(f"ALTER TABLE {lake.table} SET TBLPROPERTIES ('{key}' = '{value}')")

    assert expiring() == 0
    owner_sets("history.expire.max-snapshot-age-ms", "1")
    assert (expiring(), expiring("--older-than", "7d")) == (every - 1, 0)
    owner_sets("history.expire.min-snapshots-to-keep", "2")
    assert (expiring(), expiring("--retain-last", "1")) == (every - 2, every - 1)
    lake.maintained("--only", "snapshots", "--yes")
    assert len(lake.state.snapshots) == 2


def test_a_rewrite_by_others_is_noted_before_its_proof_expires(lake: Lake) -> None:
    """Harm prevented: a compacted partition is changed by others for ever."""
    lake.rewrite()

    done = lake.maintained(*NOW, "--only", "snapshots")["snapshots"]

    assert done["notes"] == ["noted in the ledger which files others wrote anew: 3 partitions"]
    assert set(lake.state.snapshots) == {lake.state.main}
    assert lake.export() <= {"unchanged", "already_exported"}
    assert lake.verdicts() == {"equal"}


def test_detached_and_frozen_rows_and_an_undo_within_the_age_stay(lake: Lake) -> None:
    """Harm prevented: what the owner may still bring back is gone."""
    before = lake.state.main
    lake.run_sql(f"ALTER TABLE {lake.table} FREEZE PARTITION ID '0' WITH NAME 'kept'")
    lake.run_sql(f"ALTER TABLE {lake.table} DETACH PARTITION ID '1'")
    lake.run_sql(f"ALTER TABLE {lake.table} UPDATE s = 'x' IN PARTITION ID '2' WHERE 1")
    assert lake.maintain("--yes")[0] == 0

    undo = f"REPLACE PARTITION ID '2' FROM {lake.table}.snapshot_id_{before}"
    assert lake.run_sql(f"ALTER TABLE {lake.table} {undo}") == "replaced"
    assert lake.maintain(*NOW)[0] == 0
    assert lake.run_sql(f"ALTER TABLE {lake.table} ATTACH PARTITION ID '1'") == "attached"
    kept = lake.spark.sql(f"SELECT count(*) FROM {lake.table} VERSION AS OF 'kept'").first()
    assert kept is not None
    assert kept[0] >= 10
    assert lake.export() <= {"unchanged", "already_exported"}
    assert lake.verdicts() == {"equal"}
    assert lake.rows() == 30


def test_an_unfinished_export_keeps_its_files_and_snapshots(lake: Lake) -> None:
    """Harm prevented: age alone removes what an interrupted export has staged."""
    (row,) = (one for one in lake.rows_of_ledger() if one.key.partition_id == "0")
    lake.write(replace(row, state=State.RUNNING))
    staged = lake.old(f"data/p=0/{row.key.hash}-77-0-0.parquet")

    code, out, err = lake.maintain(*NOW)

    assert code == 0
    assert staged.exists()
    assert "compact    2 partitions: " in out
    assert "snapshots  nothing to do" in out
    assert "· partition 0 keeps snapshots since " in err
    assert "· 1 old file of exports stay: `mergeberg gc` judges them" in err
    assert err.splitlines()[-1].startswith("Next: mergeberg exports list ")


def test_a_run_that_dies_between_tasks_leaves_the_table_whole(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: half a maintenance is a table that nobody can export to."""
    before, dies_at = Procedures._call, list[str]()

    def dies(self: Procedures, name: str, arguments: str = "") -> list[Any]:
        if name in dies_at:
            raise KeyboardInterrupt
        return before(self, name, arguments)

    monkeypatch.setattr(Procedures, "_call", dies)
    for call in ("rewrite_manifests", "expire_snapshots", "remove_orphan_files"):
        dies_at[:] = [call]
        assert lake.maintain(*NOW)[0] == 130
        assert lake.export() <= {"unchanged", "already_exported"}
    dies_at.clear()
    assert lake.maintain(*NOW)[0] == 0
    assert lake.export() <= {"unchanged", "already_exported"}
    assert lake.verdicts() == {"equal"}
    assert lake.rows() == 30


def test_a_commit_of_the_run_that_loses_rows_is_reported(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: snapshots expire after rows were lost, so that nobody can restore them."""
    before = Maintenance._optimize

    def loses(self: Maintenance, one: Any, state: Any, *, dry_run: bool) -> Any:
        made = before(self, one, state, dry_run=dry_run)
        lake.spark.sql(f"DELETE FROM {lake.table} WHERE p = 0")
        return replace(made, status=Status.OPTIMIZED, snapshot_id=lake.state.main)

    monkeypatch.setattr(Maintenance, "_optimize", loses)
    snapshots = len(lake.state.snapshots)

    code, out, err = lake.maintain(*NOW)

    assert code == 4
    assert "Cannot continue the maintenance of" in err
    assert "20 rows in 2 partitions, and" in err
    assert "snapshots " not in out
    assert len(lake.state.snapshots) > snapshots


@pytest.mark.parametrize("what", WRONG)
def test_a_refusal_says_what_its_page_says_and_changes_nothing(
    lake: Lake, spark_application: SparkApplication, what: str
) -> None:
    """Harm prevented: it maintains another table of the same name, or expires what is needed."""
    maintained = Maintained(lake.root, spark_application, lake.spark, lake.name)
    with WRONG[what](maintained):
        before = lake.files(), lake.rows_of_ledger()
        for words in (NOW, (*NOW, "--dry-run")):
            ran = lake.maintain("--only", "snapshots", *words, "--json")
            found = refusal_in(ran, lake.root)

            printed = found.printed.replace(lake.name, "events")
            assert replace(found, printed=printed) == rows()[what]
            assert (lake.files(), lake.rows_of_ledger()) == before


def test_a_catalog_that_spark_cannot_open_is_refused_with_the_reason(lake: Lake) -> None:
    lake.spark.conf.set("spark.sql.catalog.elsewhere", "no.such.Catalog")
    elsewhere = replace(LakeName.parse(lake.table), catalog="elsewhere")
    why = r"catalog elsewhere cannot read it: .*no\.such\.Catalog.* --only compact"

    with pytest.raises(RefusedError, match=why):
        Procedures(lake.spark, elsewhere).check(lambda: lake.state)


def test_a_second_process_exports_meanwhile(lake: Lake) -> None:
    """Harm prevented: maintenance alongside an export loses rows of one of them."""
    late = "SELECT 3 + number % 2, 30 + number, '' FROM numbers(40)"
    lake.clickhouse(f"INSERT INTO db.{lake.name} {late}")
    words = (
        *("export", f"db.{lake.name}", "--all", "--to", lake.table, "--master", "local[1]"),
        *("--source", f"chdb:{lake.root}/clickhouse", "--warehouse", str(lake.root)),
        *("--ledger", f"sqlite:{lake.root}/ledger.db", "--manifest-ttl", "1"),
    )
    command = [sys.executable, "-c", "from spark_ext.cli.main import run; run()", *words]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as exporting:

        def is_claimed() -> bool:
            assert exporting.poll() is None, exporting.stdout and exporting.stdout.read()
            return any(row.state is State.RUNNING for row in lake.rows_of_ledger())

        wait_until(is_claimed, "the export claims a partition", seconds=300)
        lake.maintained(*NOW)
        out, _ = exporting.communicate(timeout=300)

    assert exporting.returncode == 0, out
    assert lake.rows() == 70
    assert lake.maintained(*NOW)["rows"] == {"task": "rows", "rows": 70, "partitions": 5}
    assert lake.export() <= {"unchanged", "already_exported"}


def test_the_command_starts_spark_and_asks_before_each_task_that_deletes(
    lake: Lake, tmp_path: Path
) -> None:
    """Harm prevented: without a session it finds no table, or a "no" undoes what was done."""
    jars = tmp_path / "mergeberg" / "jars"
    jars.parent.mkdir()
    jars.symlink_to(ROOT / ".readers" / "jars")
    orphan = lake.old("data/p=0/part-0.parquet")
    words = (
        *("maintain", lake.table, "--older-than", "0s", "--master", "local[1]"),
        *("--warehouse", str(lake.root), "--ledger", f"sqlite:{lake.root}/ledger.db"),
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path)}

    code, output = at_terminal(words, "n\ny\n", cwd=tmp_path, env=env)

    assert code == 0, output
    assert "compact    3 partitions: " in output
    assert output.count("Continue? [y/N]") == 2
    assert output.count(" would expire, with ") == 2
    assert len(lake.state.snapshots) > 1
    assert "orphans    1 file, 4 B, removed" in output
    assert not orphan.exists()
    assert f"Next: mergeberg maintain {lake.table}" in output

    code, output = at_terminal((*words, "--yes"), "", cwd=tmp_path, env=env)

    assert code == 0, output
    assert "Continue?" not in output
    assert " expired, with " in output
    assert set(lake.state.snapshots) == {lake.state.main}
    assert lake.export() <= {"unchanged", "already_exported"}
