"""`mergeberg exports unarchive`: exports of an archived partition may replace its rows again."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import click

from catalog.time_outs import TimeOuts
from spark_ext.cli.asking import is_asked, refuse_unless_confirmed
from spark_ext.cli.destination import destination_name, open_destination, open_ledger_of
from spark_ext.cli.options import catalog_options, ledger_options, output_for, output_options
from spark_ext.unarchiving import unarchivable, unarchive_each
from tableformat.errors import UsageError
from tableformat.names import TableName

__all__ = ["unarchive_export"]


@click.command("unarchive")
@click.argument("partition_id")
@click.option("--table", "source_table", required=True, help="The source table (database.table).")
@click.option("--to", required=True, help="The destination: catalog.namespace.table, or hive:URI.")
@click.option("--yes", is_flag=True, help="Do not ask. Needed where there is no terminal.")
@click.option("--dry-run", is_flag=True, help="Say which rows may be replaced, and do nothing.")
@ledger_options
@catalog_options
@output_options
def unarchive_export(  # noqa: PLR0913  one parameter per option
    partition_id: str,
    source_table: str,
    to: str,
    warehouse: Path,
    ledger: str | None,
    time_outs: TimeOuts,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Let exports replace the rows of the archived partition PARTITION_ID again.

    The lake may have the only copy of them. Says how many rows the next export may replace, and
    asks. Nothing changes in the lake, or in the source.

    \b
    Example:
      mergeberg exports unarchive 202401 --table db.events --to lake.analytics.events
    """  # noqa: D301  \b is Click's mark for lines to keep
    output, name = output_for(as_json=as_json), destination_name(to)
    opened = partial(open_destination, warehouse=warehouse, time_outs=time_outs, looks_only=True)
    what = f"unarchive partition {partition_id} of {source_table}"
    with contextlib.closing(open_ledger_of(name, ledger, what, warehouse=warehouse)) as known:
        found = unarchivable(known, partition_id, TableName.parse(source_table), name, opened)
        said = "; ".join(one.text for one in found)
        if not dry_run and is_asked(yes=yes, as_json=as_json):
            refuse_unless_confirmed(what, said)
        elif not dry_run and not yes:
            message = (
                f"Cannot {what}: there is no terminal to ask at. {said}. If they may go, give "
                "--yes."
            )
            raise UsageError(message)
        if not dry_run:
            unarchive_each(known, found)
        for one in found:
            if as_json:
                output.record(
                    {
                        "partition_id": partition_id,
                        "status": "archived" if dry_run else "unarchived",
                        "rows": one.rows,
                        "data_files": one.files,
                    }
                )
            else:
                output.say(f"{'would be unarchived' if dry_run else 'unarchived'}: {one.text}")
    return 0
