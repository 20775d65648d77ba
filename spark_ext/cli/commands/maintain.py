"""The command `mergeberg maintain`: maintains an Iceberg table, and keeps exports in force."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import Final

import click
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from catalog.iceberg.spark_settings import CATALOG
from catalog.network import TimeOuts
from spark_ext.actions.exports import open_existing
from spark_ext.cli.destination import destination_name, open_iceberg
from spark_ext.cli.next_command import changed_command, following_command
from spark_ext.cli.option_values import is_asked, is_confirmed, pairs
from spark_ext.cli.output import Output, output_for
from spark_ext.cli.sections import Invocation
from spark_ext.engine.jars import SparkHome
from spark_ext.engine.java import find_java
from spark_ext.engine.session import SparkSettings, open_session
from spark_ext.engine.shell import Shell, ShellOptions
from spark_ext.operations.maintenance import (
    DELETING,
    Maintenance,
    Procedures,
    Report,
    Task,
    tasks_of,
)
from tableformat.names import LakeName
from tableformat.quantities import counted, human_bytes, parse_duration

__all__ = ["maintain"]

_FAILED: Final = 4
_WIDTH: Final = 78
"""The columns of a note after its mark."""
_NOUNS: Final = {
    Task.COMPACT: "partition",
    Task.MANIFESTS: "manifest",
    Task.SNAPSHOTS: "snapshot",
    Task.ORPHANS: "file",
}
_STARTED_WITH: Final = ("spark.jars", "spark.sql.extensions", "spark.sql.catalogImplementation")
"""The settings that a session must have when it starts; those of its catalog may have secrets."""


def maintain(  # noqa: PLR0913, PLR0917  one parameter per option
    table: str, only: tuple[str, ...], older_than: str | None, retain_last: int | None,
    master: str, conf: tuple[str, ...], warehouse: Path, ledger: str | None, time_outs: TimeOuts,
    *, dry_run: bool, yes: bool, as_json: bool
) -> int:  # fmt: skip
    """Run `mergeberg maintain`; return the exit code."""
    age = None if older_than is None else parse_duration("--older-than", older_than)
    tasks = tuple(tasks_of(only))
    output, name = output_for(as_json=as_json), destination_name(table)
    what = f"maintain {name}"
    catalog = open_iceberg(name, what, warehouse=warehouse, time_outs=time_outs)
    found, known = open_existing(catalog, name, what, ledger=ledger)
    engine = _Engine(name, master, pairs("--conf", conf), warehouse, output)
    with contextlib.closing(known):
        work = Maintenance(
            name, found, catalog, known, lambda: engine.procedures, output.note, age, retain_last
        )
        work.check(tasks)
        run = _Run(work, output, dry_run=dry_run, yes=yes, as_json=as_json)
        if any(task is not Task.COMPACT for task in tasks):
            # A table that Spark cannot reach is refused before anything changes.
            engine.procedures.check(found.load)
        for task in tasks:
            run.one(task)
        run.end()
    return _FAILED if run.failed else 0


@dataclass(frozen=True)
class _Engine:
    """The Spark session of the command, which starts when it is needed."""

    name: LakeName
    master: str
    conf: Mapping[str, str] = field(repr=False)
    warehouse: Path
    output: Output

    @cached_property
    def procedures(self) -> Procedures:
        """Iceberg's procedures for the table.

        Raises:
            NotFoundError: no Java version that Spark supports is installed.
            SourceError: Spark did not start, or a jar cannot be downloaded.
        """
        active = SparkSession.getActiveSession()
        return Procedures(self._started() if active is None else active, self.name)

    def _started(self) -> SparkSession:
        home = SparkHome(Path(_find_spark_home()))  # type: ignore[no-untyped-call]
        environ = {**os.environ, "JAVA_HOME": str(find_java(os.environ).home)}
        wanted = ShellOptions({}, self.conf, self.master, self.warehouse)
        settings = Shell.made(wanted, home, environ).with_jars(self.output).settings
        self.output.note("waiting for Spark to start")
        started = {one: settings[one] for one in _STARTED_WITH if one in settings}
        session = open_session(SparkSettings(self.master, tuple({**self.conf, **started}.items())))
        for setting, value in settings.items():
            # Not on the command line of the JVM, which every user of the host sees.
            if setting.startswith(CATALOG):
                session.conf.set(setting, value)
        return session


@dataclass(slots=True)
class _Run:
    """Runs the tasks one by one and prints what each did; `left` was only counted."""

    work: Maintenance
    output: Output
    dry_run: bool
    yes: bool
    as_json: bool
    failed: bool = False
    left: bool = False
    reports: list[Report] = field(default_factory=list)

    def one(self, task: Task) -> None:
        """Run one task, or count what it would do."""
        if task in DELETING:
            # Rows that a commit of this run lost could still be restored now, and not later.
            self.work.compare()
        looks = self.dry_run or (task in DELETING and not self.yes)
        report = self.work.run(task, dry_run=looks)
        if looks and not self.dry_run and report.count:
            # A "no" leaves this task alone: the ones before it are done.
            would = _titled(task, _line(report, would=True))
            if is_asked(yes=self.yes, as_json=self.as_json) and is_confirmed(would):
                report, looks = self.work.run(task, dry_run=False), False
            else:
                self.left = True
        self._show(report, would=looks)

    def end(self) -> None:
        """Compare the rows, and print them and the command that should follow."""
        rows, partitions = self.work.compare()
        if self.as_json:
            self.output.record({"task": "rows", "rows": rows, "partitions": partitions})
        else:
            found = f"{counted(rows, 'row')} in {counted(partitions, 'lake partition')}"
            self.output.say(f"{'rows':<10} {found}{'' if self.dry_run else ', as before'}")
            if following := self._next():
                self.output.next(following)

    def _next(self) -> str:
        context = click.get_current_context()
        words = context.ensure_object(Invocation).words
        if self.left or (self.dry_run and any(one.count for one in self.reports)):
            return changed_command(words, context, adds="--yes", without="--dry-run")
        if self.failed:
            # The line of a failed command is printed by its exit code.
            return ""
        return following_command(words, context) if any(r.holds for r in self.reports) else ""

    def _show(self, report: Report, *, would: bool) -> None:
        self.reports.append(report)
        self.failed = self.failed or report.failed
        if self.as_json:
            self.output.record(_record(report, would=would))
            return
        self.output.say(_titled(report.task, _line(report, would=would)))
        for note in report.notes:
            self.output.note(_wrapped(note))
        if report.for_gc:
            files = counted(report.for_gc, "old file")
            self.output.note(f"{files} of exports stay: `mergeberg gc` judges them")


def _wrapped(note: str) -> str:
    """Return a note in lines of a terminal; a word, such as a location, is never divided."""
    return fill(
        note, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _titled(task: Task, text: str) -> str:
    return f"{task.value:<10} {text}"


def _line(report: Report, *, would: bool) -> str:
    """Return what a task did or would do, in less than 70 characters."""
    if not report.count:
        return "nothing to do"
    number, size = counted(report.count, _NOUNS[report.task]), human_bytes(report.bytes)
    files = f"{counted(report.files, 'file')}, {size}"
    match report.task:
        case Task.COMPACT:
            return f"{number}: {files}, {'would become' if would else 'became'} {_new(report)}"
        case Task.MANIFESTS:
            return f"{number}, {size}, {'would become' if would else 'became'} {_new(report)}"
        case Task.SNAPSHOTS:
            did = "would expire" if would else "expired"
            return f"{number} {did}, with {files}"
        case Task.ORPHANS:
            return f"{files}, {'would be removed' if would else 'removed'}"


def _new(report: Report) -> str:
    size = "" if report.new_bytes is None else f", {human_bytes(report.new_bytes)}"
    return f"{report.new_files:,}{size}"


def _record(report: Report, *, would: bool) -> dict[str, object]:
    return {
        "task": report.task.value,
        "status": "nothing" if not report.count else "would" if would else "done",
        "count": report.count,
        "files": report.files,
        "bytes": report.bytes,
        "new_files": report.new_files,
        "new_bytes": report.new_bytes,
        "for_gc": report.for_gc,
        "notes": list(report.notes),
    }
