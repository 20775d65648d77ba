"""The commands that run statements: `mergeberg alter`, and those for single statements.

The statements are those of Spark SQL (docs/reference/statements.md). In `mergeberg alter`, `ch` is
the source of --source. In EXPORT, db.t or t without a source is a table of that source. A lake
table has its catalog in its name, or is completed by --catalog. The destination of EXPORT can be
ns.t or t, in the catalog lake and the namespace default. `run_typed` runs the commands of
`spark_ext.cli.typed_commands`, which are statements on lake tables.

`StatementRun` runs one statement and prints its result. `INTO OUTFILE` and `FORMAT` of `mergeberg
alter` (RQ...IntoOutfile, RQ...Format) format the rows that report the outcome of each partition;
they never affect data files. ClickHouse itself formats these rows. An existing file is kept unless
TRUNCATE or APPEND is given, as in ClickHouse.

`statement_exports` runs the exports of a statement; it starts Spark only when there are rows to
write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from catalog.clickhouse.row_format import (
    Columns,
    check_format,
    compressed,
    compression_of,
    formatted,
)
from catalog.iceberg.catalogs import LOCAL_CATALOG, OpenedCatalog, configured_catalogs, open_catalog
from catalog.ledgers.uris import open_known_ledger, open_ledger
from catalog.network import TimeOuts
from catalog.rewriting.integrity import checks
from catalog.shards import local_tables
from catalog.source_defaults import DEFAULT_SOURCE
from catalog.sources import SourcePlace
from spark_ext.actions.cancel import kill_queries
from spark_ext.actions.export import Stopping
from spark_ext.actions.export_ports import Places, SparkWhenNeeded
from spark_ext.cli.destination import open_destination
from spark_ext.cli.export_run import Exporting, check_it_waits, check_not_stopped
from spark_ext.cli.next_command import exit_code_of
from spark_ext.cli.option_values import is_asked, pairs, refuse_unless_confirmed, takes_rows
from spark_ext.cli.output import Output, output_for
from spark_ext.engine.session import SparkSettings, slots
from spark_ext.operations.operate import Operation, operate, operation_of
from spark_ext.operations.tables import ExportsFrom, OtherTables, StoppableExports
from spark_ext.procedures.export import EXPORTED, exported_rows, forecast_rows, without_figures
from spark_ext.sql.arguments import Argument, GivenValue
from spark_ext.sql.clauses import Ending, Outfile
from spark_ext.sql.export import joined
from spark_ext.sql.grammar import parse_statement, syntax_error_of
from spark_ext.sql.messages import in_alter, in_command
from spark_ext.sql.names import Names
from spark_ext.sql.session_settings import SessionSettings, SourceTable, command_settings
from spark_ext.sql.statement_exports import (
    SessionExport,
    exports_of,
    reads_source,
    refuse_temporary,
    requested_exports,
    run_by_clickhouse,
)
from spark_ext.sql.statement_reader import DottedName, shown_statement
from spark_ext.sql.statement_settings import (
    SESSION,
    StatementSettings,
    read_operation_settings,
    read_statement_settings,
    refuse_fast_without_effect,
    refuse_unused_settings,
)
from spark_ext.sql.statements import FAST, Alter, KillMode, KillQuery, Statement, TypedStatement
from tableformat.clickhouse_codes import (
    BAD_ARGUMENTS,
    CANNOT_OPEN_FILE,
    NOT_IMPLEMENTED,
    SUPPORT_IS_DISABLED,
    SYNTAX_ERROR,
)
from tableformat.errors import (
    DestinationError,
    KilledError,
    RefusedError,
    TableFormatError,
    UnsupportedError,
    UsageError,
)
from tableformat.export.dry_run import Forecast
from tableformat.export.outcome import WORSE_THAN_FAILED, Outcome, worst
from tableformat.export.ports import Observer
from tableformat.names import LakeName, split_identifiers
from tableformat.operations.statement import EVERY_PARTITION

__all__ = [
    "OF_EXPORTS",
    "StatementRun",
    "alter",
    "check_ending",
    "rendered",
    "run_typed",
    "statement_exports",
    "write_outfile",
]


def alter(  # noqa: PLR0913, PLR0917  one parameter per option
    statement: str, database: str, grace: float, master: str, conf: tuple[str, ...],
    cluster_host: tuple[str, ...], source: SourcePlace, warehouse: Path, ledger: str | None,
    time_outs: TimeOuts, catalog: str | None,
    *, allow_alter: bool, yes: bool, dry_run: bool, fast: bool, as_json: bool
) -> int:  # fmt: skip
    """Run `mergeberg alter`; return the exit code."""
    given = pairs("--conf", conf)
    settings = SessionSettings(
        {DEFAULT_SOURCE: replace(source, allow_alter=allow_alter, database=database)},
        ledger,
        DEFAULT_SOURCE,
        warehouse,
        time_outs,
    )
    read = parse_statement(statement)
    if read is None:
        message = (
            f"Cannot read the statement {shown_statement(statement)[:60]!r}: it is not about "
            "partitions of ClickHouse's or of the lake. `mergeberg --help` lists the statements as "
            "commands."
        )
        raise syntax_error_of(statement) or UsageError(message, code=SYNTAX_ERROR)
    if fast:
        refuse_fast_without_effect(read, "--fast")
    output = output_for(as_json=as_json)
    running = StatementRun(
        settings, output, read, in_alter,
        as_json=as_json, fast=fast, catalog=catalog, yes=yes,
        conf=given, session=command_settings(given),
    )  # fmt: skip
    check_ending(running.ending)
    try:
        if isinstance(read, KillQuery):
            return running.kill(read, dry_run=dry_run)
        spark = SparkSettings(master, tuple(given.items()))
        hosts, stopping = (
            pairs("--cluster-host", cluster_host),
            Stopping(grace, running.output.note),
        )
        if not isinstance(read, Alter) or not exports_of(read):
            exports = partial(statement_exports, spark, hosts, stopping, running)
            return running.change(exports, dry_run=dry_run)
        with stopping:
            return running.export(read, spark, hosts, stopping, dry_run=dry_run)
    except TableFormatError as error:
        error.reword(in_alter)
        raise


_MASTER: Final = "local[*]"


def run_typed(  # noqa: PLR0913  one parameter per option that several commands have
    typed: TypedStatement,
    *,
    table: str,
    warehouse: Path,
    ledger: str | None,
    time_outs: TimeOuts,
    dry_run: bool,
    as_json: bool,
    catalog: str | None = None,
    yes: bool = False,
    source: SourcePlace | None = None,
    grace: float = 0.0,
    master: str = _MASTER,
    conf: tuple[str, ...] = (),
    cluster_host: tuple[str, ...] = (),
    **given: Any,
) -> int:
    """Run one statement; return the exit code.

    Raises:
        TableFormatError: the statement is refused or failed; the message names its options.
    """
    # Without --source, the name ch must still be known, so that ch.db.t is no lake table.
    place = SourcePlace("") if source is None else source
    settings = SessionSettings(
        {DEFAULT_SOURCE: place}, ledger, DEFAULT_SOURCE, warehouse, time_outs
    )
    values = {one.name: _value(one, given[one.name]) for one in typed.arguments}
    statement = typed.of(DottedName(split_identifiers(table)), values, _spelled)
    options = click.get_current_context().command.params
    known = {name for one in options for name in one.opts}
    reword = partial(in_command, options=known)
    output = output_for(as_json=as_json)
    spark_conf = pairs("--conf", conf)
    run = StatementRun(
        settings, output, statement, reword,
        as_json=as_json, catalog=catalog, yes=yes,
        conf=spark_conf, session=command_settings(spark_conf),
    )  # fmt: skip
    spark = SparkSettings(master, tuple(spark_conf.items()))
    hosts = pairs("--cluster-host", cluster_host)
    stopping = Stopping(grace, run.output.note)
    try:
        # These commands refuse a ClickHouse table; `mergeberg alter` needs --allow-alter for it.
        run.names.lake(statement.table.parts)
        exports = partial(statement_exports, spark, hosts, stopping, run)
        return run.change(exports, dry_run=dry_run)
    except TableFormatError as error:
        error.reword(reword)
        raise


def _value(one: Argument, given: Any) -> GivenValue:
    """Return the value of an option; Click collects the values of all options but flags."""
    if one.is_flag:
        return bool(given)
    texts: tuple[str, ...] = given
    if one.several:
        return texts
    return texts[0] if texts else None


def _spelled(one: Argument) -> str:
    return one.option


_DEFAULT: Final = "TabSeparated"
_TYPES: Final = {"STRING": "String", "BIGINT": "Int64"}
# Snapshot ids exceed the exact integers of most JSON readers.
_TEXTS: Final = ("snapshot_id",)

OF_EXPORTS: Final[Columns] = tuple(
    (one.name, "String" if one.name in _TEXTS else _TYPES[one.type]) for one in EXPORTED
)
"""The columns of a result about partitions, with ClickHouse types."""


def check_ending(ending: Ending) -> None:
    """Check before the statement runs that its result can be written as FORMAT and OUTFILE ask.

    Raises:
        UnsupportedError: ClickHouse cannot write the format (its code), the format is binary and
            has no file (code 48). ClickHouse does not know the compression or its level (its code),
            or would append to a compressed file (code 36).
        RefusedError: the file exists or cannot be created (code 76).
    """
    form = ending.format
    is_text = form is None or check_format(form, OF_EXPORTS)
    to_screen = ending.outfile is None or ending.outfile.stdout
    if to_screen and not is_text:
        message = (
            f"Cannot print the result in the format {form}: it is not text. Write it to a file: "
            f"INTO OUTFILE 'path' FORMAT {form}."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    outfile = ending.outfile
    if outfile is None:
        return
    compression = compression_of(outfile.path, outfile.compression)
    if outfile.append and compression is not None:
        message = (
            f"Cannot append the result to {outfile.path}: it is compressed ({compression}), and "
            "not every program reads two compressed results in one file. Write another name, or "
            "COMPRESSION 'none' if the file is not compressed."
        )
        raise UnsupportedError(message, code=BAD_ARGUMENTS)
    compressed(b"", compression, outfile.level)
    refused = _refused(Path(outfile.path), keeps=not (outfile.truncate or outfile.append))
    if refused:
        message = f"Cannot write the result to {outfile.path}: {refused}"
        raise RefusedError(message, code=CANNOT_OPEN_FILE)


def _refused(path: Path, *, keeps: bool) -> str:
    """Return why a file cannot be written, with advice; '' if it can.

    Args:
        path: the path of the file.
        keeps: whether an existing file must be kept.
    """
    if path.is_dir():
        return "it is a directory. Name a file."
    if not path.parent.is_dir():
        return f"{path.parent} is not a directory. Create it, or write another name."
    if keeps and path.exists():
        return "the file exists already. Write TRUNCATE or APPEND after its name, or another name."
    return ""


def rendered(ending: Ending, columns: Columns, rows: Sequence[Sequence[object]]) -> bytes:
    """Return the rows in the format of the statement.

    Raises:
        DestinationError: ClickHouse, which formats the rows, failed.
    """
    form = ending.format or _DEFAULT
    try:
        return formatted(form, columns, rows)
    except TableFormatError as error:
        message = (
            f"Cannot write the result in the format {form}: {error.message} The statement itself "
            "was executed. Run it again to see its result."
        )
        raise DestinationError(message) from error


def write_outfile(outfile: Outfile, content: bytes) -> None:
    """Write the result to the file of INTO OUTFILE.

    Raises:
        DestinationError: the file cannot be compressed or written; exported partitions stay.
    """
    compression = compression_of(outfile.path, outfile.compression)
    try:
        content = compressed(content, compression, outfile.level)
    except TableFormatError as error:
        message = (
            f"{error.message} The statement itself was executed. Run it again to see its result."
        )
        raise DestinationError(message) from error
    # "x" also keeps a file that another process created after `check_ending`.
    mode = "ab" if outfile.append else "wb" if outfile.truncate else "xb"
    try:
        with Path(outfile.path).open(mode) as file:
            file.write(content)
    except OSError as error:
        message = (
            f"Cannot write the result to {outfile.path}: {error.strerror}. Exported partitions are "
            "kept. Run the same statement again to see its result."
        )
        raise DestinationError(message) from error


def statement_exports(
    spark: SparkSettings,
    hosts: Mapping[str, str],
    stopping: Stopping,
    observer: Observer,
    lake: OpenedCatalog,
    ledger: str | None,
    settings: StatementSettings,
) -> StoppableExports:
    """Return the runner for the exports of one statement.

    Args:
        spark: the settings of Spark, which starts when there are files to write.
        hosts: HTTP addresses of a cluster's hosts, by their addresses in the cluster.
        stopping: handles SIGTERM.
        observer: receives progress and outcomes.
        lake: the catalog of the lake table.
        ledger: the ledger's address; None for the default.
        settings: the settings of the statement.
    """
    return StoppableExports(
        lambda: SparkWhenNeeded(spark),
        lambda place: Places(place, lake, ledger),
        settings,
        slots(spark.master),
        lambda one: local_tables(one.place, one.table, cluster_hosts=hosts),
        observer,
        stopping,
    )


_NAMESPACE: Final = "default"
"""The namespace of a lake table without one."""
_KILLED: Final = ("kill_status", "query_id", "partition_id", "message")
_Exports: TypeAlias = Callable[[OpenedCatalog, str | None, StatementSettings], ExportsFrom]


@dataclass(slots=True)
class StatementRun:
    """Runs one statement and prints its result; also the observer of its exports.

    `reword` rewords messages for the command. `catalog` is that of lake tables without one in their
    name. `conf` are the settings of --conf, `session` those and the ones of the environment.
    """

    settings: SessionSettings
    output: Output
    statement: Statement
    reword: Callable[[str], str]
    outcomes: list[Outcome] = field(default_factory=list)
    as_json: bool = field(default=False, kw_only=True)
    fast: bool = field(default=False, kw_only=True)
    catalog: str | None = field(default=None, kw_only=True)
    yes: bool = field(default=False, kw_only=True)
    conf: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    session: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def ending(self) -> Ending:
        """INTO OUTFILE, FORMAT and SETTINGS of the statement."""
        return self.statement.ending

    @property
    def names(self) -> Names:
        """The name resolution, with one source and without tables of Spark."""
        catalogs = frozenset((LOCAL_CATALOG, *configured_catalogs()))
        current = () if self.catalog is None else (self.catalog, _NAMESPACE)
        of_exports = (LOCAL_CATALOG, _NAMESPACE)
        return Names(self.settings, catalogs, frozenset(), current, lambda _: False, of_exports)

    def export(
        self,
        read: Alter,
        spark: SparkSettings,
        hosts: Mapping[str, str],
        stopping: Stopping,
        *,
        dry_run: bool,
    ) -> int:
        """Run the exports of the statement; return the exit code."""
        settings = read_statement_settings(read, self.session)
        if SESSION + FAST in self.conf:
            refuse_fast_without_effect(read, f"the setting {SESSION}{FAST}")
        exports = requested_exports(read, settings, self.names)
        check_it_waits(settings)
        exporting = Exporting(
            spark, self.output, as_json=self.as_json, observer=self, reword=self.reword
        )
        codes: list[int] = []
        errors: list[TableFormatError] = []
        found: list[Forecast] = []
        is_done = False
        try:
            for one in exports:
                try:
                    check_not_stopped(one, stopping)
                    places = self._places(one, looks_only=dry_run)
                    tables = local_tables(
                        places.source, one.request.table, cluster=one.cluster, cluster_hosts=hosts
                    )
                    if dry_run:
                        keep = found.extend if self._is_formatted_on_screen() else None
                        codes.append(exporting.rehearse(one.request, places, tables, keep=keep))
                    else:
                        codes.append(exporting.run(one.request, places, tables, stopping))
                except KilledError as error:
                    errors.append(error)
                    break
                except TableFormatError as error:
                    # A failed export must not stop the others.
                    errors.append(error)
            is_done = not errors
        finally:
            # An interrupted statement reports what it has committed. Without an outcome it writes
            # no file, because the same statement would be refused for that file.
            if dry_run and (is_done or found):
                self._write_result(forecast_rows(found), errors, dry_run=True)
            elif not dry_run and (is_done or self.outcomes):
                self._write_outcomes(errors)
        return self._code(codes, errors)

    def _places(self, export: SessionExport, *, looks_only: bool) -> Places:
        settings = self.settings
        lake = open_destination(
            export.request.to,
            warehouse=settings.warehouse,
            time_outs=settings.time_outs,
            looks_only=looks_only,
        )
        return Places(export.source.place, lake, settings.ledger)

    def _write_outcomes(self, errors: Sequence[TableFormatError], *, dry_run: bool = False) -> None:
        """Write the outcomes as rows, if the statement has FORMAT or INTO OUTFILE."""
        if self._is_formatted():
            rows = exported_rows(tuple(self.outcomes), dry_run=dry_run)
            self._write_result(rows, errors, dry_run=dry_run)

    def _write_result(
        self,
        rows: Sequence[Sequence[object]],
        errors: Sequence[TableFormatError] = (),
        columns: Columns = OF_EXPORTS,
        *,
        dry_run: bool,
    ) -> None:
        """Write rows, if the statement has FORMAT or INTO OUTFILE.

        A dry run writes no file: the statement itself would be refused for it.

        Raises:
            DestinationError: they cannot be written; the message includes the other errors.
        """
        outfile = self.ending.outfile
        if dry_run and outfile is not None:
            self.note(f"a dry run writes no result to {outfile.path}")
        if not (self._is_formatted_on_screen() if dry_run else self._is_formatted()):
            return
        try:
            self._write(rows, columns, dry_run=dry_run)
        except DestinationError as error:
            raise _together([*errors, error]) from error

    def _code(self, codes: Sequence[int], errors: Sequence[TableFormatError]) -> int:
        """Return the exit code of all exports.

        Raises:
            TableFormatError: exports failed, and no exit code is worse than that of a failure.
        """
        code = worst(codes)
        if not errors:
            return code
        together = _together(errors)
        if code not in WORSE_THAN_FAILED:
            raise together
        self.output.error(self.reword(together.message), "", code=together.code)
        return code

    def change(self, exports: _Exports, *, dry_run: bool) -> int:
        """Run a statement without EXPORT in the lake or in ClickHouse; return the exit code."""
        read = self.statement
        if isinstance(read, KillQuery):
            raise TypeError(read)
        refuse_temporary(read, None)
        table = self.names.table(read.table.parts)
        if not isinstance(table, SourceTable):
            return self._operate(operation_of(read), table, exports, dry_run=dry_run)
        if self.fast:
            message = (
                f"Cannot use --fast on {table.table}: it is a table of ClickHouse, which compares "
                "parts by itself. Leave it out."
            )
            raise UnsupportedError(message, code=SUPPORT_IS_DISABLED)
        refuse_unused_settings(
            self.conf,
            f"a statement on {table.table}",
            "ClickHouse runs it, and gets only SETTINGS of the statement",
        )
        run_by_clickhouse(read, read.table.parts[0], table, dry_run=dry_run)
        message = f"run by ClickHouse on {table.table}"
        if dry_run:
            message = f"it would be {message}; nothing was done"
        if not (self._is_formatted_on_screen() if dry_run else self._is_formatted()):
            self.output.say(message)
        self._write_result(
            (without_figures("run" if dry_run else "done", message),), dry_run=dry_run
        )
        return 0

    def _operate(
        self, read: Operation, table: LakeName, exports: _Exports, *, dry_run: bool
    ) -> int:
        """Run a statement on a lake table; return the exit code."""
        session = {**self.session, **({SESSION + FAST: "1"} if self.fast else {})}
        reads = bool(self.conf) and reads_source(read, self.names)
        given = read_operation_settings(read, session, alone=self.conf, reads_source=reads)
        warehouse, time_outs = self.settings.warehouse, self.settings.time_outs
        opened = partial(open_catalog, warehouse=warehouse, time_outs=time_outs)
        lake = opened(table.catalog)
        others = OtherTables(
            self.names.table,
            opened,
            exports(lake, self.settings.ledger, given),
            allow_empty=given.allow_empty,
            checks=checks(fast=given.fast),
            sources=self.settings.sources,
        )
        codes: list[int] = []
        errors: list[TableFormatError] = []
        with contextlib.closing(
            open_ledger(self.settings.ledger, local_warehouse=lake.ledger_directory)
        ) as ledger:
            run = partial(operate, read, table, lake, ledger, self.note, others)
            if not dry_run and is_asked(yes=self.yes, as_json=self.as_json):
                self._ask(table, tuple(run(dry_run=True)))
            try:
                for outcome in run(dry_run=dry_run):
                    codes.append(outcome.status.exit_code)
                    (self._planned if dry_run else self.finished)(outcome)
            except TableFormatError as error:
                errors.append(error)
            finally:
                # As for exports: earlier commands are reported, also of an interrupted statement.
                if self.outcomes:
                    self._write_outcomes(errors, dry_run=dry_run)
        return self._code(codes, errors)

    def _ask(self, table: LakeName, forecasts: Sequence[Outcome]) -> None:
        """Ask the user for confirmation if the statement would remove or replace rows.

        Raises:
            RefusedError: the user declined.
        """
        effects = [
            f"partition {one.partition_id} of {table}: {one.message}; {one.change}"
            for one in forecasts
            if takes_rows(one)
        ]
        if effects:
            refuse_unless_confirmed(f"change {table}", "\n".join(effects))

    def kill(self, read: KillQuery, *, dry_run: bool) -> int:
        """Cancel the exports of statements, or only list them; return the exit code.

        Raises:
            NotFoundError: there is no ledger, so that nothing would be cancelled.
        """
        refuse_unused_settings(self.conf, "KILL QUERY", "it has no effect there")
        warehouse, time_outs = self.settings.warehouse, self.settings.time_outs
        known = open_known_ledger(self.settings.ledger, "run KILL QUERY", local_warehouse=warehouse)
        with contextlib.closing(known) as ledger:
            killed = kill_queries(
                read.query_ids,
                ledger,
                lambda name: open_destination(
                    name, warehouse=warehouse, time_outs=time_outs, looks_only=False
                ),
                mode=KillMode.TEST if dry_run else read.mode,
                note=self.output.note,
            )
        rows = [(one.status.value, one.query_id, one.partition_id, one.message) for one in killed]
        columns = tuple((name, "String") for name in _KILLED)
        self._write_result(rows, (), columns, dry_run=dry_run)
        if not (self._is_formatted_on_screen() if dry_run else self._is_formatted()):
            self.output.table(_KILLED, [dict(zip(_KILLED, row, strict=True)) for row in rows])
        return 0

    def note(self, text: str) -> None:
        """Print a notice."""
        self.output.note(self.reword(text))

    def none_selected(self, text: str) -> None:
        """Print that no partition is selected."""
        self.output.none_selected(self.reword(text))

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Start the progress line."""
        self.output.begin(partitions, rows, size)

    def rows(self, written: int) -> None:
        """Update the progress line."""
        self.output.rows(written)

    def finished(self, outcome: Outcome) -> None:
        """Keep an outcome; print it unless the statement has FORMAT or INTO OUTFILE."""
        reworded = replace(outcome, message=self.reword(outcome.message))
        self.outcomes.append(reworded)
        if not self._is_formatted():
            self.output.finished(reworded)

    def _planned(self, outcome: Outcome) -> None:
        """Keep the forecast of a dry run; print it unless FORMAT shows it on the screen."""
        reworded = replace(outcome, message=self.reword(outcome.message))
        self.outcomes.append(reworded)
        if self._is_formatted_on_screen():
            return
        if self.as_json:
            self.output.record({**asdict(reworded), "status": outcome.status.planned})
            return
        self.output.say(_forecast(reworded))
        if reworded.change:
            self.output.say(f"  {reworded.change}")

    def _is_formatted_on_screen(self) -> bool:
        outfile = self.ending.outfile
        return self._is_formatted() and (outfile is None or outfile.stdout)

    def _is_formatted(self) -> bool:
        return self.ending.outfile is not None or self.ending.format is not None

    def _write(
        self,
        rows: Sequence[Sequence[object]],
        columns: Columns = OF_EXPORTS,
        *,
        dry_run: bool = False,
    ) -> None:
        """Write rows as FORMAT and INTO OUTFILE of the statement ask; a dry run writes no file."""
        content = rendered(self.ending, columns, rows)
        outfile = self.ending.outfile
        if outfile is not None and not dry_run:
            write_outfile(outfile, content)
        if content and (outfile is None or outfile.stdout):
            self.output.document(content.decode().removesuffix("\n"))


def _forecast(outcome: Outcome) -> str:
    """Return the forecast of a statement for one partition, as a line of text."""
    every = outcome.partition_id == EVERY_PARTITION
    of = "every partition" if every else f"partition {outcome.partition_id}"
    colon = "" if outcome.message.startswith("would ") else ":"
    return f"dry run: {of}{colon} {outcome.message}"


def _together(errors: Sequence[TableFormatError]) -> TableFormatError:
    """Return one error for one or several errors, with the class of the worst."""
    return joined(sorted(errors, key=exit_code_of, reverse=True), "")
