"""Every statement of the requirement documents runs as it stands, by `mergeberg alter`."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from spark_ext.actions import export_ports
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.names import PartitionId
from tests.requirement_statements.statements import (
    CANCELLATION,
    EXPORTS,
    STORIES,
    Step,
    Story,
    exports_into,
)
from tests.wrong.places import Places

_ALLOWED: Final = "SETTINGS allow_experimental_export_merge_tree_part = 1"
# Each part of a source keeps a file of its own.
_APART: Final = f"{_ALLOWED}, export_merge_tree_part_max_bytes_per_file = 1"


_PART: Final = re.compile(r"\{(?P<branch>\w+) (?P<id>\d+)\}")


@dataclass
class StoryRun:
    """A run of a story: its places, with ClickHouse and a lake of their own."""

    places: Places

    def alter(self, statement: str, *more: str) -> tuple[int, str, str]:
        """Run a statement."""
        where = ("--source", f"chdb:{self.places.clickhouse}", "--warehouse")
        lake = (str(self.places.warehouse), "--catalog", "lake")
        return self.places.run("alter", statement, *where, *lake, *more)

    def begin(self, story: Story) -> None:
        """Make its tables."""
        with EmbeddedConnection(self.places.clickhouse, create=True) as connection:
            for sql in story.clickhouse:
                connection.command(sql)
        for name in story.exported:
            statement = f"ALTER TABLE {name} EXPORT PARTITION ALL TO TABLE lake.default.{name}"
            code, _, err = self.alter(f"{statement} {_APART}")
            assert code == 0, err
        catalog = open_catalog("lake", warehouse=self.places.warehouse).catalog
        disks = {
            "mergeberg.disk.fast_ssd": f"file://{self.places.root}/fast",
            "mergeberg.disk.cold": f"file://{self.places.root}/cold",
            "mergeberg.volume.slow": "cold",
        }
        for name in story.exported:
            with catalog.load_table(f"default.{name}").transaction() as transaction:
                transaction.set_properties(disks)

    def ended(self, statement: str) -> str | int:
        """Run a statement; return what it ended with, as `Step.ends` has it."""
        file = self.places.root / "answer"
        statement = _PART.sub(lambda found: self._part(statement, found), statement)
        code, out, err = self.alter(statement.replace("/path/to/file", str(file)), "--json")
        if code and not err:
            return str(json.loads(out.splitlines()[0])["status"])
        if code:
            error = json.loads(err.splitlines()[-1])
            return int(error["code"] or 0)
        if "FORMAT JSON" in statement:
            statuses = {row["status"] for row in json.loads(out)["data"]}
        elif "OUTFILE" in statement:
            statuses = {line.split("\t")[1] for line in file.read_text().splitlines()}
        else:
            statuses = {json.loads(line)["status"] for line in out.splitlines()}
        return ", ".join(sorted(statuses))

    def _part(self, statement: str, found: re.Match[str]) -> str:
        """Return the name of a part of a partition of the table, on a branch."""
        name = statement.split()[2].removeprefix("default.")
        catalog = open_catalog("lake", warehouse=self.places.warehouse).catalog
        table, partition = catalog.load_table(f"default.{name}"), PartitionId(found["id"])
        head = table.snapshot_by_name(found["branch"])
        assert head is not None
        paths = (
            one.file.file_path for one in table.scan(snapshot_id=head.snapshot_id).plan_files()
        )
        files = {
            path for path in paths if f"={found['id']}/" in path or _month(found["id"]) in path
        }
        return str(lake_part_name(partition, *files))


def _month(partition_id: str) -> str:
    """Return the directory of a month's files."""
    return f"={partition_id[:4]}-{partition_id[4:]}/"


@pytest.fixture
def story_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoryRun:
    """Return places where nothing is yet, and a writer that needs no Spark."""
    places = Places(tmp_path, reads_parts=True)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "begin", lambda _: None)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "done", lambda _: True)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "result", lambda _: None)
    monkeypatch.setattr(export_ports, "SparkWriter", lambda *_: places.writer())
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    return StoryRun(places)


def run(story: StoryRun, steps: tuple[Step, ...]) -> list[tuple[str, str | int]]:
    """Run the statements of all steps; return those that ended otherwise than they are to."""
    ended = [(one, step.ends, story.ended(one)) for step in steps for one in step.statements]
    return [(statement, found) for statement, ends, found in ended if found != ends]


@pytest.mark.representative
def test_the_exports_of_the_requirement_run_as_they_stand(story_run: StoryRun) -> None:
    story_run.begin(EXPORTS)

    assert run(story_run, EXPORTS.steps) == []


def test_they_run_with_a_tree_of_hive_directories_as_destination(story_run: StoryRun) -> None:
    """Settings.ForceExport is refused in a tree, without a second setting."""
    story_run.begin(EXPORTS)
    tree = story_run.places.root / "tree"

    assert run(story_run, exports_into(str(tree))) == []
    code, out, _ = story_run.places.run("read", f"hive:{tree}", "--rows")
    assert (code, [json.loads(line)["k"] for line in out.splitlines()]) == (0, ["key1", "key2"])


def test_the_kill_of_the_requirement_ends_the_export_that_it_names(story_run: StoryRun) -> None:
    """QueryCancellation: `<query_id>` is that of the export, which is writing."""
    story_run.begin(EXPORTS)
    export, kill = CANCELLATION
    ended: list[int] = []

    def rows() -> dict[str, str]:
        path = story_run.places.warehouse / LEDGER_FILE
        with contextlib.closing(SqliteLedger(path)) as ledger:
            return {row.claim.query_id: row.state.name for row in ledger.rows()}

    def killing(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        (query_id,) = rows()
        ended.append(story_run.alter(kill.text.replace("<query_id>", query_id))[0])

    story_run.places.before = killing
    code, _, err = story_run.alter(export)
    story_run.places.before = lambda *_: None

    assert (code, ended) == (4, [0])
    assert "was killed" in err
    assert [*rows().values()] == ["KILLED"]
    assert story_run.ended(export) == "committed"


@pytest.mark.parametrize("story", STORIES)
def test_the_statements_of_the_requirements_run_as_they_stand(
    story_run: StoryRun, story: str
) -> None:
    """Names of the documents are tables of lake.default."""
    story_run.begin(STORIES[story])

    assert run(story_run, STORIES[story].steps) == []
