"""The commands of the command line, but for those that are statements (`typed_commands`).

Each is declared with its arguments, its options, its help, and the function in
`spark_ext/cli/commands/` that runs it. The module imports little: help and completion need no more.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from catalog.source_defaults import DEFAULT_DATABASE
from spark_ext.cli.options import (
    Location,
    NamedAddress,
    Setting,
    catalog_options,
    cluster_host_option,
    cluster_options,
    export_option,
    grace_option,
    ledger_options,
    limit_options,
    maintain_options,
    mapping_options,
    metrics_option,
    named_catalog_option,
    output_options,
    partition_options,
    session_options,
    source_options,
    spark_options,
    summary_options,
    to_option,
    warehouse_option,
    where_option,
    yes_option,
)
from spark_ext.cli.sections import Run, SectionedCommand
from spark_ext.demo.data import ROWS
from tableformat.export.options import PROOF_SECONDS
from tableformat.ledger import Standing

__all__ = ["COMMANDS", "OF_EXPORTS"]

_LINES: Final = 50


def _command(
    name: str, place: str, kind: type[click.Command] = click.Command
) -> Callable[[Callable[[], None]], click.Command]:
    """Return what makes a command of a function, whose docstring is its help; `place` runs it."""

    def made(described: Callable[[], None]) -> click.Command:
        command = click.command(name, cls=kind)(described)
        command.callback = Run(place)
        return command

    return made


@_command("check", "check:check", SectionedCommand)
@click.argument("table")
@to_option("The destination: catalog.namespace.table.")
@mapping_options
@cluster_options
@source_options()
@ledger_options
@catalog_options
@output_options
def check() -> None:
    """Check whether TABLE (database.table) can be exported, and show how columns are mapped.

    Starts nothing and changes nothing. Ends with 3, and all reasons, when it cannot be exported. Of
    a server it also says what its user may not do, as GRANT statements.

    \b
    Examples:
      mergeberg check db.events --source https://exporter@ch1.example
      mergeberg check db.events --source chdb:./clickhouse
      mergeberg check db.events --to lake.analytics.events --partition-spec "day(ts)"
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("export", "export:export", SectionedCommand)
@click.argument("table")
@partition_options("Export")
@where_option
@to_option(
    "The destination: catalog.namespace.table, or hive:URI for a tree of Hive directories.",
    required=True,
)
@mapping_options
@export_option("hive_columns")
@export_option("force")
@export_option("allow_empty")
@export_option("max_replace")
@export_option("replace_partition")
@export_option("overwrite_file_if_exists")
@export_option("late_rows")
@export_option("incremental")
@export_option("same_table")
@export_option("same_as", default="", show_default=False)
@export_option("commit_every")
@export_option("max_retries")
@export_option("manifest_ttl")
@export_option("abandoned_ttl")
@limit_options
@metrics_option
@spark_options
@export_option("verify")
@export_option("check_rows")
@grace_option
@yes_option
@export_option("backfill")
@export_option("dry_run")
@export_option("wait")
@cluster_options
@source_options()
@ledger_options
@catalog_options
@output_options
@summary_options
def export() -> None:
    """Export partitions of the ClickHouse TABLE (database.table) into an Iceberg table.

    Or, with --to hive:URI, into Parquet files in Hive directories, each partition with a commit
    file. A member of the partition key that is an expression has a directory when --hive-column
    names it.

    Each partition becomes visible whole, or not at all. Running the command again is always safe:
    finished files are kept, and nothing is exported twice.

    \b
    Examples:
      mergeberg export db.events --partition-id 202401 --to lake.analytics.events
      mergeberg export db.events --all --where "partition_id < '202401'" --to lake.analytics.events
      mergeberg export db.events --all --to lake.analytics.events --dry-run
      mergeberg export db.events --all --to hive:/data/events --hive-column 'month=toYYYYMM(ts)'
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("verify", "verify:verify", SectionedCommand)
@click.argument("table")
@partition_options("Compare")
@to_option("The lake table: catalog.namespace.table, or hive:URI.", required=True)
@export_option(
    "convert", help="A conversion of the export that the lake table does not remember. Repeatable."
)
@export_option("same_as", default="", show_default=False)
@session_options
@cluster_options
@source_options()
@ledger_options
@catalog_options
@output_options
@summary_options
def verify() -> None:
    """Compare exported partitions of the ClickHouse TABLE (database.table) with their source.

    Rows, and of each column NULLs, least, greatest and a checksum. Changes nothing. Ends with 1,
    and every difference, when the lake does not hold what the source holds.

    \b
    Examples:
      mergeberg verify db.events --partition-id 202401 --to lake.analytics.events
      mergeberg verify db.events --all --to lake.analytics.events --json
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("archive", "archive:archive_command", SectionedCommand)
@click.argument("table")
@partition_options("Archive")
@where_option
@to_option(
    "The destination: catalog.namespace.table, or hive:URI for a tree of Hive directories.",
    required=True,
)
@click.option(
    "--drop/--detach",
    "drop",
    default=False,
    help="Drop the archived parts from the source; by default they are detached and stay on disk.",
)
@click.option(
    "--allow-alter",
    is_flag=True,
    envvar="MERGEBERG_ALLOW_ALTER",
    help="Change the table on a server; a directory of your own needs no such permission.",
)
@export_option("dry_run", help="Only report what would leave the source.")
@yes_option
@export_option("max_replace")
@export_option("late_rows")
@export_option("same_as", default="", show_default=False)
@mapping_options
@export_option("hive_columns")
@limit_options
@spark_options
@cluster_options
@source_options()
@ledger_options
@catalog_options
@output_options
@summary_options
def archive_command() -> None:
    """Export partitions of TABLE, compare every column, and only then remove them from the source.

    A partition that changed meanwhile, or is not equal in every figure, stays in the source. A
    partition that was exported before is compared again. Run it again to continue: what an
    earlier run detached is dropped with --drop. A server is changed only with --allow-alter.

    \b
    Examples:
      mergeberg archive db.events --partition-id 202401 --to lake.analytics.events
      mergeberg archive db.events --all --where "max_time < '2024-01-01'" --drop \\
          --to lake.analytics.events
      mergeberg archive db.events --all --source https://archiver@ch1.example --allow-alter \\
          --to lake.analytics.events
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("gc", "gc:gc")
@to_option("The lake table: catalog.namespace.table, or hive:URI. Without it: --source only.")
@source_options(default=None, says="Look for staging tables there, on every host:")
@click.option("--cluster", help="Look on every host of every shard of this cluster.")
@click.option(
    "--table", help="Look on every host of every shard of this Distributed table of the source."
)
@cluster_host_option
@click.option(
    "--older-than",
    default="0s",
    show_default=True,
    metavar="AGE",
    help="Only objects that are at least this old, e.g. 12h or 1d. The age is a filter and no "
    "proof, except for staging tables of runs on other hosts, whose state cannot be seen from "
    "here.",
)
@click.option(
    "--expire-dropped",
    metavar="AGE",
    help="Also expire the snapshots before DROP PARTITION statements of at least this age, e.g. "
    "10m, and remove the files that only they had. Snapshots of other writers, branches and tags "
    "stay.",
)
@click.option(
    "--keep-replaced",
    default="1d",
    show_default=True,
    metavar="AGE",
    help="In a tree of Hive directories: how long replaced files stay for readers that have begun.",
)
@click.option("--yes", is_flag=True, help="Remove it; without this option gc only lists it.")
@ledger_options
@catalog_options
@output_options
def gc() -> None:
    """List what abandoned exports left in a lake table and in a source; remove it with --yes.

    Only what is proved to be of no use goes: no request for it can be applied any more, and no
    snapshot refers to it. Whatever else is found is kept, with the reason.

    \b
    Examples:
      mergeberg gc --to lake.analytics.events
      mergeberg gc --to lake.analytics.events --older-than 1d --yes
      mergeberg gc --to lake.analytics.events --expire-dropped 10m --yes
      mergeberg gc --to lake.analytics.events --source https://ch1.example,ch2.example --yes
      mergeberg gc --source https://ch1.example --cluster main --yes
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("maintain", "maintain:maintain")
@click.argument("table")
@maintain_options
@session_options
@ledger_options
@catalog_options
@output_options
def maintain() -> None:
    """Maintain a lake TABLE so that exports stay in force: compact it, and remove what is old.

    Four tasks, in this order: compact merges small files of partitions on which nobody works;
    manifests rewrites many small manifests; snapshots expires old snapshots, but none that an
    export or a statement needs; orphans removes old files to which nothing refers.

    \b
    Examples:
      mergeberg maintain lake.analytics.events --dry-run
      mergeberg maintain lake.analytics.events --yes
      mergeberg maintain lake.analytics.events --only snapshots --older-than 3d --yes
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("alter", "statements:alter", SectionedCommand)
@click.argument("statement")
@click.option(
    "--allow-alter",
    is_flag=True,
    envvar="MERGEBERG_ALLOW_ALTER",
    help="Let a statement about a ClickHouse table change it.",
)
@click.option(
    "--database",
    default=DEFAULT_DATABASE,
    show_default=True,
    envvar="MERGEBERG_DATABASE",
    help="ClickHouse database of tables that are named without one.",
)
@grace_option
@click.option("--dry-run", is_flag=True, help="Only report what the statement would do.")
@click.option("--fast", is_flag=True, help="Compare files that come to a lake table by size alone.")
@yes_option
@named_catalog_option
@session_options
@cluster_host_option
@source_options()
@ledger_options
@catalog_options
@output_options
def alter() -> None:
    """Run a STATEMENT of ClickHouse's about partitions, as in Spark SQL.

    The source is called ch. INTO OUTFILE and FORMAT write what became of each partition.

    \b
    Examples:
      mergeberg alter "ALTER TABLE ch.db.events EXPORT PARTITION ID '202401' \\
          TO TABLE lake.analytics.events SETTINGS allow_experimental_export_merge_tree_part = 1"
      mergeberg alter "ALTER TABLE ch.db.events DETACH PARTITION 202401" --allow-alter
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("partitions", "partitions:partitions")
@click.argument("table")
@cluster_options
@source_options()
@output_options
def partitions() -> None:
    """List the partitions of TABLE (database.table) with active parts, of every shard.

    \b
    Example:
      mergeberg partitions db.events --source chdb:./clickhouse
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("parts", "partitions:parts")
@click.argument("table")
@click.option("--partition-id", help="Only this partition.")
@cluster_options
@source_options()
@output_options
def parts() -> None:
    """List the active parts of TABLE (database.table), of every shard.

    \b
    Example:
      mergeberg parts db.events --source chdb:./clickhouse
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("show", "show:show")
@click.argument("table")
@warehouse_option
@catalog_options
@output_options
def show() -> None:
    """Show where a lake TABLE is, what it holds, and the lines with which others read it.

    \b
    Examples:
      mergeberg show lake.analytics.events
      mergeberg show lake.analytics.events --json
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("read", "partitions:read")
@click.argument("tree", type=Location())
@click.option("--partition-id", help="Only this partition.")
@click.option(
    "--rows", "with_rows", is_flag=True, help="Print the rows, one JSON object a line, not files."
)
@click.option("--check", is_flag=True, help="Read every file, and compare its SHA-256.")
@catalog_options
@output_options
def read() -> None:
    """List what is exported into TREE (hive:URI), or read it.

    Only what commit files name: no file of an export that is under way, or that died. Every file
    has the size that its commit file says, or the command fails; files whose rows are read are
    compared with their SHA-256 too.

    \b
    Examples:
      mergeberg read hive:/data/lake/events
      mergeberg read hive:/data/lake/events --partition-id 202401 --rows
      mergeberg read hive:/data/lake/events --check --json
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("demo", "demo:demo")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo"),
    show_default=True,
    help="The directory of the demo; remove it when you are done.",
)
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=ROWS,
    show_default=True,
    help="Rows of each of the three partitions.",
)
@output_options
def demo() -> None:
    """Show the whole way: fill a ClickHouse, export it through Spark, read the lake back.

    Running it again changes nothing.

    \b
    Examples:
      mergeberg demo
      mergeberg demo --directory /tmp/demo
    """  # noqa: D301  click reads the character, not the two that write it


@_command("spark", "spark:spark")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--python", is_flag=True, help="PySpark's shell instead of spark-sql.")
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=NamedAddress(),
    metavar="[NAME=]ADDRESS",
    envvar="MERGEBERG_SOURCE",
    help="Where a ClickHouse's data is: chdb:DIRECTORY, https://[USER@]HOST[:PORT] or "
    "parts:DIR?ddl=FILE. Without a name it is called ch. Repeatable.  "
    "[default: ch=chdb:./clickhouse]",
)
@click.option(
    "--master",
    envvar="MERGEBERG_MASTER",
    help="Spark's master.  [default: that of Spark's configuration, else local[*]]",
)
@click.option(
    "--conf",
    multiple=True,
    type=Setting(),
    metavar="KEY=VALUE",
    help="A Spark setting; not in the shell's list of arguments. Repeatable.",
)
@ledger_options
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def spark() -> None:
    """Start Spark's own shell with everything of mergeberg; -- and its ARGUMENTS may follow.

    CALL lake.system.… and ALTER TABLE ch.… PARTITION … can be typed as they stand in the manual.
    The catalog `lake` is that of Spark's own configuration, else the one of the other commands. The
    exit code is the shell's.

    \b
    Examples:
      mergeberg spark
      mergeberg spark --source ch=https://exporter@ch1.example -- -e "SHOW PROCEDURES IN mergeberg"
      mergeberg spark --python --master local[4]
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("config", "config:config")
@output_options
def config() -> None:
    """Show which configuration file is in effect, and the defaults that it gives.

    \b
    Example:
      mergeberg config
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("cancel", "exports:cancel_export")
@click.argument("partition_ids", nargs=-1, metavar="[PARTITION_ID]...")
@click.option("--all", "everything", is_flag=True, help="All running exports.")
@click.option(
    "--table", "source_table", help="The source table (database.table); not needed with --all."
)
@to_option("The destination, if there are several: catalog.namespace.table, or hive:URI.")
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=PROOF_SECONDS,
    show_default=True,
    help="Seconds to wait for the proof that nothing of it can become visible.",
)
@ledger_options
@catalog_options
@output_options
def cancel_export() -> None:
    """Cancel the running exports of PARTITION_IDs: nothing of them becomes visible.

    A run that works on one stops within seconds; its finished files are removed. Says so when the
    export has landed already. Exporting the partition again begins anew.

    \b
    Examples:
      mergeberg exports cancel 202401 202402 --table db.events
      mergeberg exports cancel 202401 --table db.events --to lake.analytics.events --wait 10
      mergeberg exports cancel --all --table db.events
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("events", "exports:show_events")
@ledger_options
@output_options
def show_events() -> None:
    """Show the counters of source parts since the ledger was created, and how many exports run.

    \b
    Example:
      mergeberg exports events --json
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("forget", "exports:forget_export")
@click.argument("partition_id")
@click.option("--table", "source_table", required=True, help="The source table (database.table).")
@to_option("The destination, if there are several: catalog.namespace.table, or hive:URI.")
@ledger_options
@output_options
def forget_export() -> None:
    """Let the partition PARTITION_ID be exported again before its manifest TTL is over.

    Ends the refusal, and only that: what landed stays known, so that rows are never exported
    twice. Nothing changes in the lake.

    \b
    Example:
      mergeberg exports forget 202401 --table db.events --to lake.analytics.events
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("list", "exports:list_exports")
@click.option(
    "--status",
    type=click.Choice([one.value for one in Standing], case_sensitive=False),
    help="Only exports with this status.",
)
@click.option("--table", "source_table", help="Only exports of this source table (database.table).")
@to_option("Only exports into this lake table.")
@click.option("--limit", type=click.IntRange(1), help="Show at most this many, the latest.")
@click.option("--wide", is_flag=True, help="All columns, however wide the lines become.")
@click.option(
    "--watch",
    type=click.FloatRange(0.1),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help="Show running exports, and refresh every SECONDS (default 2) until nothing is in "
    "progress. "
    "Ctrl-C stops. With --json one line for each change.",
)
@ledger_options
@output_options
def list_exports() -> None:
    """List the exports in the ledger, latest first, with their rows in the lake.

    A line says how many rows of the partition the lake has now, since when, and, if something is
    wrong, what. With --json, and with --wide, every column; times are UTC.

    \b
    Example:
      mergeberg exports list --table db.events --limit 20 --warehouse ./warehouse
      mergeberg exports list --status FAILED
      mergeberg exports list --watch 5
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("log", "exports:show_log")
@click.option("--table", "source_table", help="Only this source table (database.table).")
@click.option("--since", help="Only what is not older than this, for example 30s, 15m, 1h or 7d.")
@click.option(
    "--failed",
    is_flag=True,
    help="Only unsuccessful results: failed, stopped, killed, refused, unknown, differs or "
    "unverified.",
)
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=_LINES,
    show_default=True,
    help="Show at most so many, the latest; 0 shows all.",
)
@ledger_options
@output_options
def show_log() -> None:
    """Show the latest outcomes of exports, oldest first.

    One line for each partition; one for each source part of what was exported or failed.
    The ledger keeps the latest 10,000.

    \b
    Examples:
      mergeberg exports log --failed --since 1d
      mergeberg exports log --table db.events --since 1h
      mergeberg exports log --json
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("rebuild", "exports:rebuild_exports")
@to_option("The lake table: catalog.namespace.table, or hive:URI.", required=True)
@ledger_options
@catalog_options
@output_options
def rebuild_exports() -> None:
    """Rebuild the lost ledger of a lake table from the table itself.

    What is whole in main is known as exported again. What cannot be proved is kept from being
    exported twice, and is named. Afterwards the table belongs to the new ledger: an export that is
    under way with the lost one lands nothing any more.

    \b
    Example:
      mergeberg exports rebuild --to lake.analytics.events --ledger sqlite:/var/lib/new-ledger.db
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("show", "exports:show_export")
@click.argument("partition_id")
@click.option("--table", "source_table", help="Only exports of this source table (database.table).")
@ledger_options
@output_options
def show_export() -> None:
    """Show the exports of PARTITION_ID: states, rows, files, times, source parts.

    With --json the manifest of the last one, over several lines.

    \b
    Example:
      mergeberg exports show 202401 --table db.events
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("unarchive", "exports:unarchive_export")
@click.argument("partition_id")
@click.option("--table", "source_table", required=True, help="The source table (database.table).")
@to_option("The destination: catalog.namespace.table, or hive:URI.", required=True)
@click.option("--yes", is_flag=True, help="Do not ask. Required without a terminal.")
@click.option("--dry-run", is_flag=True, help="Only report which rows may be replaced.")
@ledger_options
@catalog_options
@output_options
def unarchive_export() -> None:
    """Let exports replace the rows of the archived partition PARTITION_ID again.

    The lake may have the only copy of them. Says how many rows the next export may replace, and
    asks. Nothing changes in the lake, or in the source.

    \b
    Example:
      mergeberg exports unarchive 202401 --table db.events --to lake.analytics.events
    """  # noqa: D301  \b is Click's mark for lines to keep


@_command("watermark", "exports:show_watermark")
@click.option("--table", "source_table", required=True, help="The source table (database.table).")
@to_option("The lake table: catalog.namespace.table.", required=True)
@source_options()
@ledger_options
@catalog_options
@output_options
def show_watermark() -> None:
    """Show up to which partition everything is exported, and unchanged since.

    The greatest partition id, in ClickHouse's order, up to which every source partition is whole in
    the lake; and what stops it there. Never inside a partition. Changes nothing.

    \b
    Example:
      mergeberg exports watermark --table db.events --source chdb:./clickhouse \\
          --to lake.analytics.events
    """  # noqa: D301  \b is Click's mark for lines to keep


COMMANDS: Final = (
    check, export, verify, archive_command, gc, maintain, alter, partitions, parts, show, read,
    demo, spark, config,
)  # fmt: skip
OF_EXPORTS: Final = (
    cancel_export, show_events, forget_export, list_exports, show_log, rebuild_exports, show_export,
    unarchive_export, show_watermark,
)  # fmt: skip
